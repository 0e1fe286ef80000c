"""The choice of nodes for a job as Slurm's select/cons_tres makes it without a topology.

Nodes are in Slurm's order. Sources: the manual page slurm.conf(5) (SelectType, Weight), "Consumable Resources in
Slurm", and the behaviour of slurmctld 22.05, which was recorded.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import part_of_kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
#: A weight beyond those of all nodes.
_HEAVIEST = 1 << 62


class SiteNodes(NamedTuple):
    """The nodes of a site.

    Attributes:
        cpus: (N,) CPUs.
        unit: (N,) CPUs that are allocated together: those of a core, of a socket, or 1.
        memory: (N,) memory in MiB, infinite where it is not allocated.
        weight: (N,) nodes of a lower weight are chosen first.
        gpus: (N,) GPUs.
        gpu_type: (N,) their type.
    """

    cpus: Ints
    unit: Ints
    memory: Floats
    weight: Ints
    gpus: Ints
    gpu_type: Ints


class Demands(NamedTuple):
    """Requests of jobs, (J,) each unless it says otherwise.

    Attributes:
        cpus: CPUs.
        per_task: CPUs of each task.
        least: Least nodes.
        most: Most nodes.
        memory_per_cpu: MiB of each CPU.
        memory_per_node: MiB of each node.
        whole: The job takes whole nodes.
        limit: Time limit in seconds.
        gpus: GPUs on each node.
        gpu_type: Their type, -1 for any.
    """

    cpus: Ints
    per_task: Ints
    least: Ints
    most: Ints
    memory_per_cpu: Floats
    memory_per_node: Floats
    whole: Flags
    limit: Floats
    gpus: Ints
    gpu_type: Ints


class Usage(NamedTuple):
    """Nodes at a time.

    Attributes:
        cpus: (N,) free CPUs.
        memory: (N,) free memory in MiB.
        jobs: (N,) jobs on each node.
        gpus: (N,) free GPUs.
    """

    cpus: Ints
    memory: Floats
    jobs: Ints
    gpus: Ints


class Chosen(NamedTuple):
    """Space for a choice.

    Attributes:
        node: (N,) the chosen nodes, ascending.
        cpus: (N,) CPUs on each.
        usable: (N,) CPUs that the job could use on each node of the platform.
        taken: (N,) CPUs that the job gets on each node of the platform.
        kept: (N,) space for `usable`.
        begin, end, sum, size: (N,) first node, node behind the last one, usable CPUs and number of nodes of each run of
            consecutive nodes.
    """

    node: Ints
    cpus: Ints
    usable: Ints
    taken: Ints
    kept: Ints
    begin: Ints
    end: Ints
    sum: Ints
    size: Ints


def make_chosen(nodes: int) -> Chosen:
    """Returns space for a choice among a number of nodes."""
    ints = np.zeros((9, nodes), np.int64)
    return Chosen(ints[0], ints[1], ints[2], ints[3], ints[4], ints[5], ints[6], ints[7], ints[8])


@part_of_kernel
def usable_cpus(nodes: SiteNodes, usage: Usage, demands: Demands, job: int, node: int) -> int:
    """Returns the CPUs of a node that a job could use, 0 for none."""
    if demands.whole[job]:
        if usage.jobs[node]:
            return 0
        cpus = nodes.cpus[node]
    else:
        cpus = usage.cpus[node]
    per_task = demands.per_task[job]
    cpus -= cpus % per_task
    if usage.memory[node] < demands.memory_per_node[job] or usage.gpus[node] < demands.gpus[job]:
        return 0
    if demands.gpus[job] and demands.gpu_type[job] >= 0 and demands.gpu_type[job] != nodes.gpu_type[node]:
        return 0
    if demands.memory_per_cpu[job] > 0.0:
        fitting = int(min(usage.memory[node] / demands.memory_per_cpu[job], 1e9))
        cpus = min(cpus, fitting - fitting % per_task)
    return max(cpus, 0)


@part_of_kernel
def find_usable(
    nodes: SiteNodes, usage: Usage, demands: Demands, job: int, among: Flags, chosen: Chosen
) -> tuple[int, int]:
    """Fills `chosen.usable`; returns the number of nodes that a job could use, and their CPUs."""
    usable, count, total = chosen.usable, 0, 0
    for node in range(len(usable)):
        usable[node] = usable_cpus(nodes, usage, demands, job, node) if among[node] else 0
        count += usable[node] > 0
        total += usable[node]
    return count, total


@part_of_kernel
def choose(nodes: SiteNodes, usage: Usage, demands: Demands, job: int, among: Flags, chosen: Chosen) -> int:
    """Chooses nodes for a job, and CPUs on each; see `choose_usable`.

    Args:
        nodes: The nodes.
        usage: Their present use.
        demands: Demands of all jobs.
        job: The job.
        among: (N,) nodes that the job may be on.
        chosen: Takes the nodes and the CPUs on each.

    Returns:
        The number of nodes, 0 if the job does not fit.
    """
    count, total = find_usable(nodes, usage, demands, job, among, chosen)
    return choose_usable(nodes, demands, job, count, total, chosen)


@part_of_kernel
def choose_usable(nodes: SiteNodes, demands: Demands, job: int, count: int, total: int, chosen: Chosen) -> int:
    """Chooses nodes for a job of those with usable CPUs: `count` nodes with `total` CPUs; returns their number.

    Nodes of the lowest weights that suffice are looked at. The job gets the smallest run of consecutive nodes of one
    weight that suffices, or else the largest ones; within a run the first nodes; a job that one node can take gets the
    one with the fewest CPUs. If that fails, nodes with few usable CPUs are left out, more and more of them.
    """
    if count < demands.least[job] or total < demands.cpus[job]:
        return 0
    if _by_weight(nodes, demands, job, chosen):
        return _listed(nodes, chosen)
    if count <= demands.least[job]:
        return 0
    usable, kept, found = chosen.usable, chosen.kept, 0
    for node in range(len(usable)):
        kept[node] = usable[node]
    while found == 0 and count > demands.least[job]:
        # A node with few CPUs takes the place of one with many: those with the fewest are left out.
        fewest, most = _HEAVIEST, 0
        for node in range(len(usable)):
            if usable[node]:
                fewest, most = min(fewest, usable[node]), max(most, usable[node])
        if fewest >= most:
            break
        for node in range(len(usable)):
            if usable[node] == fewest and count > demands.least[job]:
                usable[node] = 0
                count -= 1
        if _by_weight(nodes, demands, job, chosen):
            found = _listed(nodes, chosen)
    for node in range(len(usable)):
        usable[node] = kept[node]
    return found


@part_of_kernel
def _by_weight(nodes: SiteNodes, demands: Demands, job: int, chosen: Chosen) -> bool:
    """Takes nodes of the lowest weights that suffice; False if all usable nodes do not."""
    heaviest, usable = -1, chosen.usable
    while True:
        # The next weight among the usable nodes.
        following = _HEAVIEST
        for node in range(len(usable)):
            if usable[node] and heaviest < nodes.weight[node] < following:
                following = nodes.weight[node]
        if following == _HEAVIEST:
            return False
        heaviest = following
        if _take_runs(nodes, demands, job, heaviest, chosen):
            return True


@part_of_kernel
def _runs(nodes: SiteNodes, heaviest: int, chosen: Chosen) -> int:
    """Finds the runs of consecutive usable nodes of one weight, at most `heaviest`; returns their number."""
    count, before = 0, -1
    for node in range(len(chosen.usable)):
        if not chosen.usable[node] or nodes.weight[node] > heaviest:
            before = -1
            continue
        if before < 0 or nodes.weight[node] != nodes.weight[before]:
            chosen.begin[count], chosen.sum[count], chosen.size[count] = node, 0, 0
            count += 1
        run = count - 1
        chosen.end[run] = node + 1
        chosen.sum[run] += chosen.usable[node]
        chosen.size[run] += 1
        before = node
    return count


@part_of_kernel
def _take_runs(nodes: SiteNodes, demands: Demands, job: int, heaviest: int, chosen: Chosen) -> bool:
    """Takes nodes from runs until they suffice; False if all of them do not."""
    runs, taken, per_task = _runs(nodes, heaviest, chosen), chosen.taken, demands.per_task[job]
    for node in range(len(taken)):
        taken[node] = 0
    cpus, least, most = demands.cpus[job], demands.least[job], demands.most[job]
    while most > 0:
        best, suffices = -1, False
        for run in range(runs):
            if not chosen.size[run]:
                continue
            enough = chosen.sum[run] >= cpus and chosen.size[run] >= least
            if best < 0:
                better = True
            else:
                weight, lightest = nodes.weight[chosen.begin[run]], nodes.weight[chosen.begin[best]]
                tighter = enough and (not suffices or chosen.sum[run] < chosen.sum[best])
                larger = not enough and not suffices and chosen.sum[run] > chosen.sum[best]
                better = weight < lightest or (weight == lightest and (tighter or larger))
            if better:
                best, suffices = run, enough
        if best < 0:
            return False
        single = -1
        if least <= 1:
            for node in range(chosen.begin[best], chosen.end[best]):
                if chosen.usable[node] >= cpus and (single < 0 or chosen.usable[node] < chosen.usable[single]):
                    single = node
        for node in range(chosen.begin[best], chosen.end[best]):
            if most == 0 or (cpus <= 0 and least <= 0):
                break
            given = chosen.usable[node]
            if not given or (single >= 0 and node != single) or (most == 1 and given < cpus):
                continue
            if not demands.whole[job]:
                # One task is kept for each further node that the job asks for.
                given = max(min(given, cpus - max(least - 1, 0) * per_task), per_task)
            taken[node] = given
            cpus -= given
            least -= 1
            most -= 1
        if cpus <= 0 and least <= 0:
            return True
        chosen.size[best] = 0
    return False


@part_of_kernel
def _listed(nodes: SiteNodes, chosen: Chosen) -> int:
    """Lists the taken nodes with the CPUs on each, whole units of allocation; returns their number."""
    count = 0
    for node in range(len(chosen.taken)):
        if chosen.taken[node]:
            unit = nodes.unit[node]
            chosen.node[count] = node
            chosen.cpus[count] = min(-(-chosen.taken[node] // unit) * unit, nodes.cpus[node])
            count += 1
    return count
