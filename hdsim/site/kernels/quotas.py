"""Licences, and limits of QOS and associations, as amounts that running jobs take of capacities."""

from __future__ import annotations

from typing import NamedTuple

from hdsim.kernels.compiling import part_of_kernel
from hdsim.site.kernels.placing import Flags, Floats, Ints

#: Codes of reasons why a job does not start; those of limits are greater.
NONE, RESOURCES, PRIORITY, LICENSES, NOT_AVAILABLE, RESERVATION = range(6)


class Quotas(NamedTuple):
    """Capacities and what each job takes of them.

    Attributes:
        capacity: (K,) capacities.
        taken: (K,) what running jobs take of them.
        reason: (K,) code of the reason of a job that waits for one.
        row: (K,) row of `on_node` of capacities of nodes, which jobs of the same holder share, -1 for others.
        on_node: (R, N) running jobs on each node.
        first: (J + 1,) first place of each job in the following.
        place: (E,) capacities that jobs take of.
        fixed: (E,) amount in any case.
        per_cpu: (E,) amount for each CPU.
        per_node: (E,) amount for each node.
        spent: (M,) TRES-seconds used until the last calculation, with decay.
        most: (M,) limits of them.
        spent_reason: (M,) code of the reason of a job that waits for one.
        lasting: (M,) whether what was used does not decay.
        first_spent: (J + 1,) first place of each job in the following.
        meter: (F,) limits that the job is subject to.
        rate_fixed, rate_per_cpu, rate_per_node: (F,) TRES that it uses.
    """

    capacity: Floats
    taken: Floats
    reason: Ints
    row: Ints
    on_node: Ints
    first: Ints
    place: Ints
    fixed: Floats
    per_cpu: Floats
    per_node: Floats
    spent: Floats
    most: Floats
    spent_reason: Ints
    lasting: Flags
    first_spent: Ints
    meter: Ints
    rate_fixed: Floats
    rate_per_cpu: Floats
    rate_per_node: Floats


@part_of_kernel
def exhausted(quotas: Quotas, job: int, cpus: int, node: Ints, count: int, least: int) -> int:
    """Returns the code of the reason why limits keep a job from starting, 0 if none does.

    Args:
        quotas: Capacities.
        job: The job.
        cpus: CPUs that it takes.
        node: (N,) nodes that it takes.
        count: Number of these, 0 if they are not chosen yet.
        least: Number of nodes that the job asks for.
    """
    for k in range(quotas.first_spent[job], quotas.first_spent[job + 1]):
        meter = quotas.meter[k]
        if quotas.spent[meter] >= quotas.most[meter]:
            return quotas.spent_reason[meter]
    for k in range(quotas.first[job], quotas.first[job + 1]):
        place = quotas.place[k]
        row = quotas.row[place]
        nodes = count if count else least
        if row >= 0:
            if not count:
                continue
            nodes = 0
            for i in range(count):
                nodes += quotas.on_node[row, node[i]] == 0
        amount = quotas.fixed[k] + quotas.per_cpu[k] * cpus + quotas.per_node[k] * nodes
        if amount > 0.0 and quotas.taken[place] + amount > quotas.capacity[place]:
            return quotas.reason[place]
    return 0


@part_of_kernel
def charge(quotas: Quotas, job: int, node: Ints, cpus: Ints, begin: int, end: int, sign: int) -> None:
    """Takes (1) or gives back (-1) what a job takes of capacities: its nodes are ``node[begin:end]``."""
    total = 0
    for i in range(begin, end):
        total += cpus[i]
    for k in range(quotas.first[job], quotas.first[job + 1]):
        place = quotas.place[k]
        row = quotas.row[place]
        nodes = end - begin
        if row >= 0:
            nodes = 0
            for i in range(begin, end):
                before = quotas.on_node[row, node[i]]
                quotas.on_node[row, node[i]] = before + sign
                nodes += before == 0 if sign > 0 else before == 1
        quotas.taken[place] += sign * (quotas.fixed[k] + quotas.per_cpu[k] * total + quotas.per_node[k] * nodes)
