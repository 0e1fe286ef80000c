"""Preemption: which running jobs make room for a pending one, as select/cons_tres of slurmctld 22.05 chooses them."""

from __future__ import annotations

from typing import NamedTuple

from hdsim.kernels.compiling import lean_kernel, part_of_kernel
from hdsim.site.kernels.placing import Chosen, Flags, Floats, Ints, Usage, choose
from hdsim.site.kernels.running import Machine, RunningJobs, change_usage, copy_usage


class Preemption(NamedTuple):
    """Rules of preemption between G groups of jobs, which are QOS or partitions.

    Attributes:
        enabled: Whether any group preempts another one.
        by_partition: Whether the groups are partitions, so that the group of a job is the one that it is tried in.
        group: (J,) group of each job.
        beats: (G, G) whether jobs of a group preempt those of another one.
        exempt: (G,) seconds in which a job is not preempted after its start.
        waits: (G,) whether preempted jobs run on for a time of grace.
        rank: (G,) jobs of a lower rank are preempted first, of equal ranks those on fewer nodes.
        start: (J,) starts in seconds.
        youngest: Whether the youngest jobs are preempted first instead.
        reorders: Times that the candidates are ordered anew, so that fewer are preempted (preempt_reorder_count).
        strict: A candidate that suffices comes first, rather than those with most of the nodes (preempt_strict_order).
        candidate: (J,) space.
        covers: (J,) space.
        victim: (J,) jobs that the pass has preempted.
        noted: (J,) whether a job is among them.
        leaving: (J,) whether it ends at once.
        length: (1,) number of `victim`.
    """

    enabled: bool
    by_partition: bool
    group: Ints
    beats: Flags
    exempt: Floats
    waits: Flags
    rank: Ints
    start: Floats
    youngest: bool
    reorders: int
    strict: bool
    candidate: Ints
    covers: Ints
    victim: Ints
    noted: Flags
    leaving: Flags
    length: Ints


@lean_kernel
def sort_queue(group: Ints, rank: Ints, beats: Flags, order: Ints, space: Ints) -> None:
    """Sorts pending jobs: one that preempts another comes before it, and otherwise the one of the lower rank.

    This is no order in the sense of mathematics, as a job may have to stand between two others. The result is that of
    the merge sort by which slurmctld sorts, halves first.

    Args:
        group: (Q,) group of each job, -1 for none.
        rank: (Q,) place of each job without preemption.
        beats: (G, G) whether jobs of a group preempt those of another one.
        order: (Q,) jobs in the order of their submission; takes the order.
        space: (4, Q + 64) space.
    """
    begin, end, state, merged = space[0], space[1], space[2], space[3]
    depth = 0
    begin[0], end[0], state[0] = 0, len(order), 0
    while depth >= 0:
        first, last = begin[depth], end[depth]
        half = first + (last - first) // 2
        if last - first < 2:
            depth -= 1
            continue
        state[depth] += 1
        if state[depth] == 1:
            depth += 1
            begin[depth], end[depth], state[depth] = first, half, 0
            continue
        if state[depth] == 2:
            depth += 1
            begin[depth], end[depth], state[depth] = half, last, 0
            continue
        left, right = first, half
        for place in range(last - first):
            if right == last or (left < half and not _behind(group, rank, beats, order[left], order[right])):
                merged[place] = order[left]
                left += 1
            else:
                merged[place] = order[right]
                right += 1
        for place in range(last - first):
            order[first + place] = merged[place]
        depth -= 1


@part_of_kernel
def _behind(group: Ints, rank: Ints, beats: Flags, job: int, other: int) -> bool:
    """Whether a pending job comes after another one."""
    own, its = group[job], group[other]
    if own >= 0 and its >= 0:
        if beats[own, its]:
            return False
        if beats[its, own]:
            return True
    return rank[job] > rank[other]


@part_of_kernel
def _after(preemption: Preemption, running: RunningJobs, job: int, other: int) -> bool:
    """Whether a job is preempted after another one, which comes later in the order of jobs."""
    if preemption.youngest:
        begun, begun_other = preemption.start[job], preemption.start[other]
        return begun < begun_other or (begun == begun_other and job > other)
    rank, rank_other = preemption.rank[preemption.group[job]], preemption.rank[preemption.group[other]]
    nodes, nodes_other = running.last[job] - running.first[job], running.last[other] - running.first[other]
    if rank != rank_other:
        return rank > rank_other
    return nodes > nodes_other or (nodes == nodes_other and job > other)


@part_of_kernel
def _candidates(preemption: Preemption, running: RunningJobs, job: int, members: Flags, now: float) -> int:
    """Lists the running jobs that a job may preempt, those to be preempted first in front; returns their number."""
    count, own = 0, preemption.group[job]
    for place in range(running.length[0]):
        other = running.job[place]
        group = preemption.group[other]
        if own < 0 or group < 0 or not preemption.beats[own, group] or preemption.leaving[other]:
            continue
        if now - preemption.start[other] < preemption.exempt[group] or not _touches(running, other, members):
            continue
        at = count
        while at > 0 and _after(preemption, running, preemption.candidate[at - 1], other):
            preemption.candidate[at] = preemption.candidate[at - 1]
            at -= 1
        preemption.candidate[at] = other
        count += 1
    return count


@part_of_kernel
def forget(preemption: Preemption) -> None:
    """Forgets the jobs that an earlier pass has preempted."""
    for place in range(preemption.length[0]):
        job = preemption.victim[place]
        preemption.noted[job], preemption.leaving[job] = False, False
    preemption.length[0] = 0


@part_of_kernel
def _touches(running: RunningJobs, job: int, nodes: Flags) -> bool:
    touched = False
    for k in range(running.first[job], running.last[job]):
        touched |= nodes[running.node[k]]
    return touched


@part_of_kernel
def _shared(running: RunningJobs, job: int, chosen: Chosen, nodes: int) -> int:
    """Returns how many of the chosen nodes a running job is on."""
    shared = 0
    for k in range(running.first[job], running.last[job]):
        for i in range(nodes):
            shared += chosen.node[i] == running.node[k]
    return shared


@part_of_kernel
def preempt(
    machine: Machine,
    preemption: Preemption,
    job: int,
    members: Flags,
    among: Flags,
    future: Usage,
    chosen: Chosen,
    now: float,
) -> int:
    """Chooses nodes for a job that has to preempt others, and notes those; returns the number of nodes, 0 for none.

    Candidates are taken away one after the other until the job fits. Then those that have most of its nodes come first
    and it is tried again, so that fewer jobs are preempted.

    Args:
        machine: Nodes and running jobs.
        preemption: Rules of preemption.
        job: The job.
        members: (N,) nodes of its partition.
        among: (N,) nodes that it may be on.
        future: Space.
        chosen: Takes the nodes and the CPUs on each.
        now: Present time in seconds.
    """
    nodes, demands, running = machine.nodes, machine.demands, machine.running
    count, tried, found, until = _candidates(preemption, running, job, members, now), 0, 0, 0
    again = count > 0
    while again:
        again, found = False, 0
        copy_usage(machine.usage, future)
        for place in range(count):
            other = preemption.candidate[place]
            if not _touches(running, other, among):
                continue
            for k in range(running.first[other], running.last[other]):
                change_usage(nodes, future, demands, other, running.node[k], running.cpus[k], running.gpus[k], -1)
            found = choose(nodes, future, demands, job, among, chosen)
            if not found:
                continue
            until = place + 1
            tried += 1
            if tried - 1 > preemption.reorders or count <= tried:
                break
            _reorder(preemption, running, chosen, found, place)
            again = True
            break
    if not found:
        return 0
    for place in range(until):
        other = preemption.candidate[place]
        # A job with a time of grace may make room for several.
        if _shared(running, other, chosen, found) and not preemption.noted[other]:
            preemption.victim[preemption.length[0]] = other
            preemption.length[0] += 1
            preemption.noted[other] = True
            preemption.leaving[other] = not preemption.waits[preemption.group[other]]
    return found


@part_of_kernel
def _reorder(preemption: Preemption, running: RunningJobs, chosen: Chosen, found: int, last: int) -> None:
    """Puts the candidate that has sufficed in front, and behind it those before by their number of chosen nodes."""
    candidate, covers = preemption.candidate, preemption.covers
    moved = candidate[last]
    for place in range(last, 0, -1):
        candidate[place] = candidate[place - 1]
    candidate[0] = moved
    if preemption.strict:
        return
    for place in range(1, last + 1):
        covers[place] = _shared(running, candidate[place], chosen, found)
    for place in range(2, last + 1):
        other, shared, at = candidate[place], covers[place], place
        while at > 1 and covers[at - 1] < shared:
            candidate[at], covers[at] = candidate[at - 1], covers[at - 1]
            at -= 1
        candidate[at], covers[at] = other, shared
