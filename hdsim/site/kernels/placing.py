"""The choice of nodes for a job as Slurm's select/cons_tres makes it.

Nodes are in Slurm's order. Sources: the manual page slurm.conf(5) (SelectType, Weight), "Consumable Resources in
Slurm", and the behaviour of slurmctld 22.05, which was recorded.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import lean_kernel, part_of_kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
#: Orders in which nodes of a weight are taken: runs of consecutive nodes that fit best, those with the greatest part of
#: free CPUs first (LLN), those with jobs first (bf_busy_nodes), the last ones first (pack_serial_at_end), or as
#: select/linear takes them.
BEST_FIT, LEAST_LOADED, BUSY_FIRST, LAST_FIRST, LINEAR = range(5)
#: A weight beyond those of all nodes.
_HEAVIEST = 1 << 62


#: A distance between switches that nothing connects.
APART = 1 << 40


class Topology(NamedTuple):
    """The switches of a site (topology/tree), S of them; without any, nodes are taken in runs.

    Attributes:
        nodes: (S, N) nodes below each switch.
        level: (S,) levels, 0 for switches of nodes.
        parent: (S,) the switch above each one, itself for none.
        distance: (S, S) links between switches, `APART` for none.
    """

    nodes: Flags
    level: Ints
    parent: Ints
    distance: Ints


class SiteNodes(NamedTuple):
    """The nodes of a site.

    Attributes:
        cpus: (N,) CPUs.
        unit: (N,) CPUs that are allocated together: those of a core, of a socket, or 1.
        threads: (N,) CPUs of a core.
        memory: (N,) memory in MiB, infinite where it is not allocated.
        weight: (N,) nodes of a lower weight are chosen first.
        line: (N,) place of the line of slurm.conf of each node in the order of weights, the weight itself where jobs
            that take whole nodes are placed as others.
        gpus: (N,) GPUs.
        gpu_type: (N,) their type.
        counted: (P,) row of `most` of each partition whose CPUs on each node count, -1 for others.
        most: (R,) CPUs of each node that the jobs of such a partition may have together (MaxCPUsPerNode).
        apart: (P, R) whether jobs of a partition are on no node with jobs of such a one (OverSubscribe).
        topology: The switches.
    """

    cpus: Ints
    unit: Ints
    threads: Ints
    memory: Floats
    weight: Ints
    line: Ints
    gpus: Ints
    gpu_type: Ints
    counted: Ints
    most: Ints
    apart: Flags
    topology: Topology


class Demands(NamedTuple):
    """Requests of jobs, (J,) each unless it says otherwise.

    Attributes:
        cpus: CPUs.
        per_task: CPUs of each task.
        on_node: Tasks on each node, 0 for any number.
        least_cpus: CPUs of each node at least.
        least: Least nodes that were asked for.
        fewest: Least nodes that the tasks take.
        wanted: Nodes that the job takes if it can get them.
        most: Most nodes.
        memory_per_cpu: MiB of each CPU.
        memory_per_node: MiB of each node.
        partition: The partition that the job is or is tried in.
        whole: The job takes whole nodes.
        limit: Time limit in seconds.
        gpus: GPUs on each node.
        gpu_type: Their type, -1 for any.
        all_gpus: GPUs on all nodes together, 0 where the number on each node is given.
        gpus_per_task: GPUs of each task, whose sum is `all_gpus`; 0 for none.
        cpus_per_gpu: CPUs of each GPU of `all_gpus`, 0 for any number.
    """

    cpus: Ints
    per_task: Ints
    on_node: Ints
    least_cpus: Ints
    least: Ints
    fewest: Ints
    wanted: Ints
    most: Ints
    memory_per_cpu: Floats
    memory_per_node: Floats
    partition: Ints
    whole: Flags
    limit: Floats
    gpus: Ints
    gpu_type: Ints
    all_gpus: Ints
    gpus_per_task: Ints
    cpus_per_gpu: Ints


class Usage(NamedTuple):
    """Nodes at a time.

    Attributes:
        cpus: (N,) free CPUs.
        memory: (N,) free memory in MiB.
        jobs: (N,) jobs on each node.
        gpus: (N,) free GPUs.
        core: (N,) CPUs of which no two jobs have some: those of a core, also where single CPUs are allocated.
        counted: (R, N) CPUs of the jobs of each partition whose CPUs count.
    """

    cpus: Ints
    memory: Floats
    jobs: Ints
    gpus: Ints
    core: Ints
    counted: Ints


class Chosen(NamedTuple):
    """Space for a choice.

    Attributes:
        node: (N,) the chosen nodes, ascending.
        cpus: (N,) CPUs on each.
        gpus: (N,) GPUs on each.
        usable: (N,) CPUs that the job could use on each node of the platform.
        reach: (N,) GPUs that it could use there, of jobs with a number of GPUs on all nodes together.
        taken: (N,) CPUs that the job gets on each node of the platform.
        kept: (N,) space for `usable`.
        order: (2,) the order in which nodes of a weight are taken, and whether switches are looked at with nodes of all
            weights at once, as sched/backfill does.
        spare: (N,) free CPUs of each node of the platform for LEAST_LOADED, whether it has jobs for BUSY_FIRST.
        links: (3, S) nodes that are looked at below each switch, whether it has nodes of the job, and links to these.
        begin, end, sum, size, reached: (N,) first node, node behind the last one, usable CPUs, number of nodes and
            GPUs of each run of consecutive nodes.
    """

    node: Ints
    cpus: Ints
    gpus: Ints
    usable: Ints
    reach: Ints
    taken: Ints
    kept: Ints
    order: Ints
    spare: Ints
    links: Ints
    begin: Ints
    end: Ints
    sum: Ints
    size: Ints
    reached: Ints


def make_chosen(nodes: int, switches: int) -> Chosen:
    """Returns space for a choice among a number of nodes."""
    ints = [np.zeros(nodes, np.int64) for _ in Chosen._fields]
    return Chosen(*ints)._replace(order=np.zeros(2, np.int64), links=np.zeros((3, switches), np.int64))


@part_of_kernel
def _beside_gpus(nodes: SiteNodes, usage: Usage, demands: Demands, job: int, node: int, cpus: int) -> int:
    """Returns those of the CPUs of a node that a job with GPUs could use."""
    per_task = demands.per_task[job]
    if usage.gpus[node] < max(demands.gpus[job], 1) or cpus < demands.cpus_per_gpu[job]:
        return 0
    if demands.gpu_type[job] >= 0 and demands.gpu_type[job] != nodes.gpu_type[node]:
        return 0
    if not demands.whole[job]:
        # Tasks whose number on each node is known take no more CPUs than they need.
        least, most = demands.least[job], demands.most[job]
        if demands.cpus[job] == per_task or (least == most and demands.cpus[job] == least * per_task):
            cpus = min(cpus, per_task)
        elif most == 1:
            cpus = min(cpus, demands.cpus[job])
        if demands.on_node[job]:
            cpus = min(cpus, demands.on_node[job] * per_task)
    if demands.gpus_per_task[job]:
        cpus = min(cpus, usage.gpus[node] // demands.gpus_per_task[job] * per_task)
    return cpus


@part_of_kernel
def usable_cpus(nodes: SiteNodes, usage: Usage, demands: Demands, job: int, node: int) -> int:
    """Returns the CPUs of a node that a job could use, 0 for none."""
    if demands.whole[job]:
        if usage.jobs[node]:
            return 0
        cpus = nodes.cpus[node]
    else:
        cpus = usage.cpus[node]
    partition = demands.partition[job]
    for other in range(len(nodes.most)):
        if nodes.apart[partition, other] and usage.counted[other, node] > 0:
            return 0
    row = nodes.counted[partition]
    if row >= 0:
        left = nodes.most[row] - usage.counted[row, node]
        if demands.whole[job] and cpus > left:
            return 0
        cpus = min(cpus, left)
    per_task, memory = demands.per_task[job], usage.memory[node]
    if memory < demands.memory_per_node[job]:
        return 0
    if demands.memory_per_cpu[job] > 0.0 and memory < math.inf:
        unit, excess = nodes.unit[node], cpus - int(min(memory / demands.memory_per_cpu[job], 1e9))
        if excess > 0:
            if demands.whole[job]:
                return 0
            cpus -= -(-excess // unit) * unit
        cpus -= cpus % per_task
    if cpus < (demands.cpus[job] if demands.most[job] == 1 else per_task):
        return 0
    if cpus < max(demands.least_cpus[job], demands.on_node[job] * per_task):
        return 0
    if demands.gpus[job] + demands.all_gpus[job]:
        cpus = _beside_gpus(nodes, usage, demands, job, node, cpus)
    return max(cpus, 0)


@part_of_kernel
def reach_gpus(usage: Usage, demands: Demands, job: int, node: int, chosen: Chosen) -> None:
    """Notes the GPUs of a node that a job with a number of GPUs on all nodes together could use."""
    chosen.reach[node] = usage.gpus[node]
    if demands.cpus_per_gpu[job]:
        chosen.reach[node] = min(usage.gpus[node], chosen.usable[node] // demands.cpus_per_gpu[job])


@part_of_kernel
def _heaviness(nodes: SiteNodes, demands: Demands, job: int, node: int, chosen: Chosen) -> int:
    """Returns the weight of a node for a job: of equal ones, nodes with more GPUs that it could use come first."""
    if not demands.all_gpus[job]:
        return nodes.weight[node]
    return nodes.weight[node] * 256 + 255 - min(chosen.reach[node], demands.all_gpus[job], 255)


@part_of_kernel
def find_usable(
    nodes: SiteNodes, usage: Usage, demands: Demands, job: int, among: Flags, chosen: Chosen
) -> tuple[int, int]:
    """Fills `chosen.usable`; returns the number of nodes that a job could use, and their CPUs."""
    usable, count, total = chosen.usable, 0, 0
    for node in range(len(usable)):
        usable[node] = usable_cpus(nodes, usage, demands, job, node) if among[node] else 0
        if chosen.order[0] == LINEAR and demands.on_node[job]:
            usable[node] = min(usable[node], demands.on_node[job] * demands.per_task[job])
        count += usable[node] > 0
        total += usable[node]
    if demands.all_gpus[job]:
        for node in range(len(usable)):
            reach_gpus(usage, demands, job, node, chosen)
    order = chosen.order[0]
    if order != BEST_FIT:
        for node in range(len(usable)):
            chosen.spare[node] = usage.cpus[node] if order == LEAST_LOADED else usage.jobs[node] > 0
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


@lean_kernel
def choose_usable(nodes: SiteNodes, demands: Demands, job: int, count: int, total: int, chosen: Chosen) -> int:
    """Chooses nodes for a job of those with usable CPUs: `count` nodes with `total` CPUs; returns their number.

    Nodes of the lowest weights that suffice are looked at. The job gets the smallest run of consecutive nodes of one
    weight that suffices, or else the largest ones; within a run the first nodes; a job that one node can take gets the
    one with the fewest CPUs. If that fails, nodes with few usable CPUs are left out, more and more of them.
    """
    if count < demands.fewest[job] or total < demands.cpus[job]:
        return 0
    if _by_weight(nodes, demands, job, chosen):
        return _listed(nodes, demands, job, chosen)
    if count <= demands.fewest[job]:
        return 0
    usable, kept, found = chosen.usable, chosen.kept, 0
    for node in range(len(usable)):
        kept[node] = usable[node]
    while found == 0 and count > demands.fewest[job]:
        # A node with few CPUs takes the place of one with many: those with the fewest are left out.
        fewest, most = _HEAVIEST, 0
        for node in range(len(usable)):
            if usable[node]:
                fewest, most = min(fewest, usable[node]), max(most, usable[node])
        if fewest >= most:
            break
        for node in range(len(usable)):
            if usable[node] == fewest and count > demands.fewest[job]:
                usable[node] = 0
                count -= 1
        if _by_weight(nodes, demands, job, chosen):
            found = _listed(nodes, demands, job, chosen)
    for node in range(len(usable)):
        usable[node] = kept[node]
    return found


@part_of_kernel
def _step(nodes: SiteNodes, demands: Demands, job: int, node: int) -> int:
    """Returns a number by which nodes are looked at, those of the lowest first, until they suffice.

    It is the weight. For jobs that take whole nodes slurmctld looks at one line of slurm.conf after the other.
    """
    return nodes.line[node] if demands.whole[job] else nodes.weight[node]


@part_of_kernel
def _by_weight(nodes: SiteNodes, demands: Demands, job: int, chosen: Chosen) -> bool:
    """Takes nodes of the lowest weights that suffice; False if all usable nodes do not."""
    heaviest, usable = -1, chosen.usable
    while True:
        # The next weight among the usable nodes.
        following = _HEAVIEST
        for node in range(len(usable)):
            step = _step(nodes, demands, job, node)
            if usable[node] and heaviest < step < following:
                following = step
        if following == _HEAVIEST:
            return False
        heaviest = following
        if demands.wanted[job] > demands.fewest[job] and _lacks(nodes, demands, job, heaviest, chosen):
            continue
        if chosen.order[0] == BEST_FIT and len(nodes.topology.level):
            if chosen.order[1]:
                return _take_switches(nodes, demands, job, _HEAVIEST, chosen)
            if _take_switches(nodes, demands, job, heaviest, chosen):
                return True
            continue
        runs = chosen.order[0] == LINEAR and not _is_uneven(nodes, demands, job, heaviest, chosen)
        if chosen.order[0] == BEST_FIT or runs:
            if _take_runs(nodes, demands, job, heaviest, chosen):
                return True
        elif _take_in_order(nodes, demands, job, heaviest, chosen):
            return True


@part_of_kernel
def _lacks(nodes: SiteNodes, demands: Demands, job: int, heaviest: int, chosen: Chosen) -> bool:
    """Whether nodes up to a weight are fewer than a job with a range of numbers takes, and there are others."""
    count, others = 0, False
    for node in range(len(chosen.usable)):
        if chosen.usable[node]:
            count += _step(nodes, demands, job, node) <= heaviest
            others |= _step(nodes, demands, job, node) > heaviest
    return others and count < demands.wanted[job]


@part_of_kernel
def _is_uneven(nodes: SiteNodes, demands: Demands, job: int, heaviest: int, chosen: Chosen) -> bool:
    """Whether usable nodes differ in CPUs and the smallest ones do not suffice: select/linear then takes large ones."""
    fewest, most = _HEAVIEST, 0
    for node in range(len(chosen.usable)):
        if chosen.usable[node] and _step(nodes, demands, job, node) <= heaviest:
            fewest, most = min(fewest, chosen.usable[node]), max(most, chosen.usable[node])
    return fewest < most and demands.cpus[job] > fewest * demands.fewest[job]


@part_of_kernel
def _before(nodes: SiteNodes, demands: Demands, job: int, node: int, other: int, chosen: Chosen) -> bool:
    """Whether a node is taken before another one of a lower number."""
    if chosen.order[0] == LINEAR:
        return chosen.usable[node] >= chosen.usable[other]
    own, its = _heaviness(nodes, demands, job, node, chosen), _heaviness(nodes, demands, job, other, chosen)
    if own != its:
        return own < its
    if chosen.order[0] == LAST_FIRST:
        return True
    if chosen.order[0] == BUSY_FIRST:
        return chosen.spare[node] > chosen.spare[other]
    return chosen.spare[node] * nodes.cpus[other] > chosen.spare[other] * nodes.cpus[node]


@part_of_kernel
def _take_in_order(nodes: SiteNodes, demands: Demands, job: int, heaviest: int, chosen: Chosen) -> bool:
    """Takes nodes one after the other until they suffice; False if all of them do not."""
    taken, per_task = chosen.taken, demands.per_task[job]
    for node in range(len(taken)):
        taken[node] = 0
    cpus, least, gpus = demands.cpus[job], demands.fewest[job], demands.all_gpus[job]
    wanted, most = demands.wanted[job], min(demands.most[job], max(cpus // per_task, least))
    while most > 0 and (cpus > 0 or wanted > 0 or gpus > 0):
        best = -1
        for node in range(len(taken)):
            if taken[node] or not chosen.usable[node] or _step(nodes, demands, job, node) > heaviest:
                continue
            if best < 0 or _before(nodes, demands, job, node, best, chosen):
                best = node
        if best < 0:
            break
        taken[best], got = _given(nodes, demands, job, best, cpus, least, chosen)
        gpus -= got
        cpus -= taken[best]
        least -= 1
        wanted -= 1
        most -= 1
    return cpus <= 0 and least <= 0 and gpus <= 0


@part_of_kernel
def _lightest(
    nodes: SiteNodes, demands: Demands, job: int, switch: int, above: int, heaviest: int, chosen: Chosen
) -> int:
    """Returns the lowest weight of usable nodes below a switch that is greater than `above`."""
    lightest = _HEAVIEST
    for node in range(len(chosen.usable)):
        if chosen.usable[node] and _step(nodes, demands, job, node) <= heaviest and nodes.topology.nodes[switch, node]:
            weight = _heaviness(nodes, demands, job, node, chosen)
            if above < weight < lightest:
                lightest = weight
    return lightest


@part_of_kernel
def _highest_switch(nodes: SiteNodes, demands: Demands, job: int, heaviest: int, chosen: Chosen) -> int:
    """Returns the switch of the highest level with nodes of the lowest weight and enough nodes, -1 for none."""
    topology, highest, lowest = nodes.topology, -1, 0
    for switch in range(len(topology.level)):
        count = 0
        for node in range(len(chosen.usable)):
            usable = chosen.usable[node] > 0 and _step(nodes, demands, job, node) <= heaviest
            count += topology.nodes[switch, node] and usable
        if count < demands.fewest[job] or not count:
            continue
        weight = _lightest(nodes, demands, job, switch, -1, heaviest, chosen)
        if highest < 0 or (topology.level[switch] >= topology.level[highest] and weight <= lowest):
            highest, lowest = switch, weight
    return highest


@part_of_kernel
def _closer_fit(topology: Topology, switch: int, other: int, least: int, counts: Ints) -> int:
    """Returns 1 if a switch fits better than another one, -1 if worse, 0 if equally."""
    while True:
        fits, its = counts[switch] >= least, counts[other] >= least
        if fits and its:
            if counts[switch] != counts[other]:
                return 1 if counts[switch] < counts[other] else -1
            break
        if fits or its:
            return 1 if fits else -1
        above, its_above = topology.parent[switch], topology.parent[other]
        if (above == switch and its_above == other) or above == its_above:
            break
        switch, other = above, its_above
    if counts[switch] != counts[other]:
        return 1 if counts[switch] > counts[other] else -1
    if topology.level[switch] != topology.level[other]:
        return 1 if topology.level[switch] < topology.level[other] else -1
    return 0


@part_of_kernel
def _next_switch(topology: Topology, least: int, links: Ints) -> int:
    """Returns the switch of nodes from which nodes are taken next: the closest one that fits best; -1 for none."""
    best, counts, required, distance = -1, links[0], links[1], links[2]
    for switch in range(len(topology.level)):
        if required[switch] or topology.level[switch] or not counts[switch] or distance[switch] >= APART:
            continue
        if best < 0:
            best = switch
            continue
        fit = _closer_fit(topology, switch, best, least, counts)
        closer = distance[switch] < distance[best] and fit >= 0
        if closer or (distance[switch] == distance[best] and fit > 0):
            best = switch
    return best


@part_of_kernel
def _take_switches(nodes: SiteNodes, demands: Demands, job: int, heaviest: int, chosen: Chosen) -> bool:
    """Takes nodes below switches that are close to each other; False if they do not suffice.

    Nodes of a lower weight are all taken before some of the lowest weight with which the job fits.
    """
    topology, taken, usable, links = nodes.topology, chosen.taken, chosen.usable, chosen.links
    counts, required, distance = links[0], links[1], links[2]
    cpus, least, most, gpus = demands.cpus[job], demands.fewest[job], demands.most[job], demands.all_gpus[job]
    wanted = demands.wanted[job]
    for node in range(len(taken)):
        taken[node] = 0
    top = _highest_switch(nodes, demands, job, heaviest, chosen)
    if top < 0:
        return False
    weight, before, held, reached, count, sufficient = -1, -1, 0, 0, 0, False
    while not sufficient:
        before, weight = weight, _lightest(nodes, demands, job, top, weight, heaviest, chosen)
        if weight == _HEAVIEST:
            return False
        for node in range(len(usable)):
            below = usable[node] > 0 and topology.nodes[top, node]
            if below and _heaviness(nodes, demands, job, node, chosen) == weight:
                held += usable[node]
                count += 1
                reached += chosen.reach[node]
        sufficient = held >= cpus and count >= least and (gpus <= 0 or reached >= gpus)
    for switch in range(len(topology.level)):
        counts[switch], required[switch], distance[switch] = 0, 0, 0
        for node in range(len(usable)):
            if usable[node] and topology.nodes[top, node] and topology.nodes[switch, node]:
                own = _heaviness(nodes, demands, job, node, chosen)
                counts[switch] += own <= weight
                required[switch] |= own <= before
    # Nodes of lower weights, then those below the same switches, then those below further switches.
    source, rest = -1, len(topology.level)
    stage = 0
    while most > 0:
        if stage == 2:
            source = _next_switch(topology, least, links)
            if source < 0:
                break
            for switch in range(rest):
                distance[switch] = min(distance[switch] + topology.distance[source, switch], APART)
        for switch in range(rest if stage == 1 else 1):
            if stage == 1 and (not required[switch] or topology.level[switch]):
                continue
            for node in range(len(usable)):
                if most == 0 or (cpus <= 0 and wanted <= 0 and gpus <= 0):
                    break
                if taken[node] or not usable[node] or not topology.nodes[top, node]:
                    continue
                own = _heaviness(nodes, demands, job, node, chosen)
                if own > (before if stage == 0 else weight):
                    continue
                if stage and not topology.nodes[switch if stage == 1 else source, node]:
                    continue
                taken[node], got = _given(nodes, demands, job, node, cpus, least, chosen)
                cpus -= taken[node]
                gpus -= got
                least -= 1
                wanted -= 1
                most -= 1
        if cpus <= 0 and wanted <= 0 and gpus <= 0:
            return True
        if stage == 2:
            counts[source] = 0
        else:
            stage += 1
            if stage == 2:
                for switch in range(rest):
                    if required[switch]:
                        for other in range(rest):
                            distance[other] = min(distance[other] + topology.distance[switch, other], APART)
    return cpus <= 0 and least <= 0 and gpus <= 0


@part_of_kernel
def _given(
    nodes: SiteNodes, demands: Demands, job: int, node: int, cpus: int, least: int, chosen: Chosen
) -> tuple[int, int]:
    """Returns the CPUs and the GPUs, of those of all nodes together, that a node can give to a job."""
    given, got, per_task = chosen.usable[node], 0, demands.per_task[job]
    if not demands.whole[job]:
        # A core, or what is allocated together, is kept for each further node that the job asks for.
        kept = max(least - 1, 0) * max(nodes.unit[node], nodes.threads[node])
        given = min(given, max(cpus - kept, demands.least_cpus[job]))
    if demands.all_gpus[job]:
        got, per_gpu = chosen.reach[node], demands.cpus_per_gpu[job]
        if per_gpu:
            got = min(got, given // per_gpu)
            given = max(got * per_gpu, per_task)
    return given, got


@part_of_kernel
def _runs(nodes: SiteNodes, demands: Demands, job: int, heaviest: int, chosen: Chosen) -> int:
    """Finds the runs of consecutive usable nodes of one weight, at most `heaviest`; returns their number.

    For select/linear weights make no runs.
    """
    count, before, weight, spread = 0, -1, 0, demands.all_gpus[job] > 0
    linear = chosen.order[0] == LINEAR
    for node in range(len(chosen.usable)):
        if not chosen.usable[node] or _step(nodes, demands, job, node) > heaviest:
            before = -1
            continue
        own = 0 if linear else _heaviness(nodes, demands, job, node, chosen) if spread else nodes.weight[node]
        if before < 0 or own != weight:
            chosen.begin[count], chosen.sum[count], chosen.size[count], chosen.reached[count] = node, 0, 0, 0
            count += 1
        run = count - 1
        chosen.end[run] = node + 1
        chosen.sum[run] += chosen.usable[node]
        chosen.size[run] += 1
        if spread:
            chosen.reached[run] += chosen.reach[node]
        before, weight = node, own
    return count


@part_of_kernel
def _take_runs(nodes: SiteNodes, demands: Demands, job: int, heaviest: int, chosen: Chosen) -> bool:
    """Takes nodes from runs until they suffice; False if all of them do not."""
    runs, taken = _runs(nodes, demands, job, heaviest, chosen), chosen.taken
    gpus, linear = demands.all_gpus[job], chosen.order[0] == LINEAR
    for node in range(len(taken)):
        taken[node] = 0
    cpus, least, most = demands.cpus[job], demands.fewest[job], demands.most[job]
    wanted = demands.wanted[job]
    while most > 0:
        best, suffices = -1, False
        for run in range(runs):
            if not chosen.size[run]:
                continue
            enough = chosen.sum[run] >= cpus and chosen.size[run] >= least
            enough &= gpus <= 0 or chosen.reached[run] >= gpus
            if best < 0:
                better = True
            else:
                weight, lightest = nodes.weight[chosen.begin[run]], nodes.weight[chosen.begin[best]]
                if gpus > 0:
                    weight = _heaviness(nodes, demands, job, chosen.begin[run], chosen)
                    lightest = _heaviness(nodes, demands, job, chosen.begin[best], chosen)
                tighter = enough and (not suffices or chosen.sum[run] < chosen.sum[best])
                larger = not enough and not suffices and chosen.sum[run] > chosen.sum[best]
                better = (tighter or larger) if weight == lightest or linear else weight < lightest
            if better:
                best, suffices = run, enough
        if best < 0:
            break
        single = -1
        if wanted <= 1 and not linear:
            for node in range(chosen.begin[best], chosen.end[best]):
                if chosen.usable[node] < cpus or (gpus > 0 and chosen.reach[node] < gpus):
                    continue
                if single < 0 or chosen.usable[node] < chosen.usable[single]:
                    single = node
        for node in range(chosen.begin[best], chosen.end[best]):
            if most == 0 or (cpus <= 0 and wanted <= 0 and gpus <= 0):
                break
            given = chosen.usable[node]
            if not given or (single >= 0 and node != single) or (most == 1 and given < cpus):
                continue
            given, got = _given(nodes, demands, job, node, cpus, least, chosen)
            gpus -= got
            taken[node] = given
            cpus -= given
            least -= 1
            wanted -= 1
            most -= 1
        if cpus <= 0 and wanted <= 0 and gpus <= 0:
            return True
        chosen.size[best] = 0
    return cpus <= 0 and least <= 0 and gpus <= 0


@part_of_kernel
def _deal(nodes: SiteNodes, demands: Demands, job: int, count: int, chosen: Chosen) -> None:
    """Deals the tasks of a job to the chosen nodes, as dist_tasks_compute_c_b of cons_tres does.

    Each node gets one, then those that fit on the cores of it, then as many as a core has CPUs for in turn. Tasks that
    no node has the CPUs for are dealt as well; they get what is left.
    """
    per_task, on_node = demands.per_task[job], demands.on_node[job]
    left = max(max(demands.cpus[job], demands.least_cpus[job] * count) // per_task, count) - count
    for k in range(count):
        if on_node:
            chosen.taken[chosen.node[k]] = min(chosen.taken[chosen.node[k]], on_node * per_task)
        chosen.cpus[k] = min(per_task, chosen.taken[chosen.node[k]])
    for k in range(count):
        node = chosen.node[k]
        tasks = chosen.cpus[k] % nodes.threads[node] // per_task
        tasks = min(tasks, left, (chosen.taken[node] - chosen.cpus[k]) // per_task)
        chosen.cpus[k] += tasks * per_task
        left -= tasks
    while left > 0:
        # Turns in which each node that has space for a task gets as many as in any other.
        turns, dealt = left, 0
        for k in range(count):
            node = chosen.node[k]
            space, turn = (chosen.taken[node] - chosen.cpus[k]) // per_task, max(nodes.threads[node] // per_task, 1)
            if space:
                turns, dealt = min(turns, space // turn), dealt + turn
        if not dealt:
            break
        turns = min(turns, left // dealt)
        for k in range(count):
            node = chosen.node[k]
            space, turn = (chosen.taken[node] - chosen.cpus[k]) // per_task, max(nodes.threads[node] // per_task, 1)
            if space:
                tasks = turns * turn if turns else min(turn, space, left)
                chosen.cpus[k] += tasks * per_task
                left -= tasks
    for k in range(count):
        if left <= 0:
            break
        node = chosen.node[k]
        # A turn is over before the next one, but no node has more than a part of a task left.
        chosen.cpus[k] = min(chosen.cpus[k] + per_task, chosen.taken[node])
        left -= max(nodes.threads[node] // per_task, 1)


@part_of_kernel
def _allocated(nodes: SiteNodes, demands: Demands, job: int, node: int, cpus: int, usable: int) -> int:
    """Returns the CPUs of the cores or sockets on which a job has a number of CPUs.

    Single CPUs are dealt to cores of one free socket after the other in turn, tasks of several CPUs fill sockets.
    """
    unit, core, per_task = nodes.unit[node], nodes.threads[node], demands.per_task[job]
    if unit <= core:
        return min(-(-cpus // unit) * unit, nodes.cpus[node])
    cores, free = -(-cpus // core), -(-usable // unit)
    if per_task == 1:
        return min(cores, free) * unit
    # Cores of a socket that whole tasks need.
    filled = -(-(unit - unit % per_task) // core)
    full = min(cores // max(filled, 1), free) if filled else 0
    rest = cores - full * filled
    if rest <= 0:
        return full * unit
    if full < free and filled:
        return (full + 1) * unit
    return free * unit


@part_of_kernel
def _listed(nodes: SiteNodes, demands: Demands, job: int, chosen: Chosen) -> int:
    """Lists the taken nodes with CPUs, whole units of allocation, and GPUs on each; returns their number."""
    count, spread = 0, demands.all_gpus[job] > 0
    for node in range(len(chosen.taken)):
        if chosen.taken[node]:
            chosen.node[count] = node
            count += 1
    if demands.whole[job] or demands.cpus_per_gpu[job]:
        for k in range(count):
            node = chosen.node[k]
            chosen.cpus[k] = nodes.cpus[node] if chosen.order[0] == LINEAR else chosen.taken[node]
    else:
        _deal(nodes, demands, job, count, chosen)
    for k in range(count):
        node = chosen.node[k]
        chosen.cpus[k] = _allocated(nodes, demands, job, node, chosen.cpus[k], chosen.usable[node])
        chosen.gpus[k] = demands.gpus[job]
    if spread:
        spread_gpus(demands, job, count, chosen)
    return count


@lean_kernel
def gpus_on(usage: Usage, demands: Demands, job: int, count: int, chosen: Chosen) -> None:
    """Sets the GPUs that a job gets on each of `count` nodes of `chosen` with CPUs."""
    for k in range(count):
        chosen.gpus[k] = demands.gpus[job]
        chosen.reach[chosen.node[k]] = usage.gpus[chosen.node[k]]
    if demands.all_gpus[job]:
        spread_gpus(demands, job, count, chosen)


@part_of_kernel
def spread_gpus(demands: Demands, job: int, count: int, chosen: Chosen) -> None:
    """Sets the GPUs on each of `count` nodes of a job with a number of GPUs on all nodes together.

    Each node gives as many as it can, such that one is left for each node behind it; those with a number for each task
    as the tasks on the node need.
    """
    left = demands.all_gpus[job]
    for k in range(count):
        reach = chosen.reach[chosen.node[k]]
        if demands.gpus_per_task[job]:
            most = chosen.cpus[k] // demands.per_task[job] * demands.gpus_per_task[job]
        elif demands.cpus_per_gpu[job]:
            most = chosen.cpus[k] // demands.cpus_per_gpu[job]
        else:
            most = reach
        chosen.gpus[k] = max(min(reach, most, left - (count - 1 - k)), 0)
        left -= chosen.gpus[k]
