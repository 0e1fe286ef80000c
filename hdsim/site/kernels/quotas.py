"""Licences, and limits of QOS and associations, as amounts that running jobs take of capacities."""

from __future__ import annotations

import math
from typing import NamedTuple

from hdsim.kernels.compiling import part_of_kernel
from hdsim.site.kernels.placing import Flags, Floats, Ints

#: Codes of reasons why a job does not start; those of limits are greater.
NONE, RESOURCES, PRIORITY, LICENSES, NOT_AVAILABLE, RESERVATION = range(6)


class Quotas(NamedTuple):
    """Capacities and what each job takes of them, which may depend on the partition that it is in.

    Attributes:
        entry: (J,) entry of each job: that of the partition in which it runs or is tried.
        capacity: (K,) capacities.
        taken: (K,) what running jobs take of them.
        reason: (K,) code of the reason of a job that waits for one.
        row: (K,) row of `on_node` of capacities of nodes, which jobs of the same holder share, -1 for others.
        on_node: (R, N) running jobs on each node.
        first: (E + 1,) first place of each entry in the following.
        place: (T,) capacities that jobs take of.
        fixed: (T,) amount in any case.
        per_cpu: (T,) amount for each CPU.
        per_node: (T,) amount for each node.
        spent: (M,) TRES-seconds used until the last calculation, with decay.
        left: (M,) TRES-seconds that running jobs may still use until their time limits, as of the last calculation.
        most: (M,) limits in TRES-minutes.
        spent_reason: (M,) code of the reason of a job that waits for one.
        lasting: (M,) whether what was used does not decay.
        uses: (M,) whether what was used counts.
        asks: (M,) whether what the job asks for counts, with what is left to running jobs.
        of_node: (M,) whether that is the amount on each node instead.
        first_spent: (E + 1,) first place of each entry in the following.
        meter: (F,) limits that the job is subject to.
        rate_fixed, rate_per_cpu, rate_per_node: (F,) TRES that it uses.
        minutes: (F,) minutes that it asks for.
        charged: (F,) seconds that are left to it when it starts, 0 where these do not count.
        free: (F,) whether it may start whatever others use.
    """

    entry: Ints
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
    left: Floats
    most: Floats
    spent_reason: Ints
    lasting: Flags
    uses: Flags
    asks: Flags
    of_node: Flags
    first_spent: Ints
    meter: Ints
    rate_fixed: Floats
    rate_per_cpu: Floats
    rate_per_node: Floats
    minutes: Floats
    charged: Floats
    free: Flags


@part_of_kernel
def rate(quotas: Quotas, k: int, cpus: float, nodes: float) -> float:
    """Returns what a job with CPUs on nodes uses of the TRES of a limit."""
    return quotas.rate_fixed[k] + quotas.rate_per_cpu[k] * cpus + quotas.rate_per_node[k] * nodes


@part_of_kernel
def _exceeds(quotas: Quotas, k: int, cpus: int, nodes: int) -> bool:
    """Whether a limit of TRES-minutes keeps a job from starting; minutes are whole ones."""
    meter, amount = quotas.meter[k], rate(quotas, k, cpus, nodes)
    if amount <= 0.0:
        return False
    used = math.floor(quotas.spent[meter] / 60.0) if quotas.uses[meter] and not quotas.free[k] else 0.0
    if quotas.uses[meter] and not quotas.free[k] and used >= quotas.most[meter]:
        return True
    if not quotas.asks[meter]:
        return False
    asked = math.floor(amount / nodes) if quotas.of_node[meter] else math.floor(amount * quotas.minutes[k])
    left = 0.0 if quotas.free[k] else math.floor(quotas.left[meter] / 60.0)
    return asked + left + used > quotas.most[meter]


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
    entry = quotas.entry[job]
    for k in range(quotas.first_spent[entry], quotas.first_spent[entry + 1]):
        if _exceeds(quotas, k, cpus, count if count else least):
            return quotas.spent_reason[quotas.meter[k]]
    for k in range(quotas.first[entry], quotas.first[entry + 1]):
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
    total, entry = 0, quotas.entry[job]
    for i in range(begin, end):
        total += cpus[i]
    for k in range(quotas.first[entry], quotas.first[entry + 1]):
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
    for k in range(quotas.first_spent[entry], quotas.first_spent[entry + 1]):
        quotas.left[quotas.meter[k]] += sign * quotas.charged[k] * rate(quotas, k, total, end - begin)
