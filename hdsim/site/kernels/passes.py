"""The two scheduling passes of slurmctld: the main loop and sched/backfill.

Sources: the manual page slurm.conf(5) (SchedulerParameters) and the "Scheduling Configuration Guide" of Slurm, and the
behaviour of slurmctld 22.05, which was recorded.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from hdsim.kernels.compiling import lean_kernel, part_of_kernel
from hdsim.kernels.references import by_reference
from hdsim.site.kernels.layers import start_beside
from hdsim.site.kernels.placing import (
    BEST_FIT,
    BUSY_FIRST,
    LAST_FIRST,
    LEAST_LOADED,
    LINEAR,
    Chosen,
    Demands,
    Flags,
    Floats,
    Ints,
    Usage,
    choose,
    choose_usable,
    find_usable,
    make_chosen,
    reach_gpus,
    usable_cpus,
)
from hdsim.site.kernels.preempting import Preemption, forget, preempt
from hdsim.site.kernels.quotas import LICENSES, NOT_AVAILABLE, PRIORITY, RESERVATION, RESOURCES, exhausted
from hdsim.site.kernels.running import Machine, change_usage, copy_usage, hold
from hdsim.site.kernels.suspending import begin_future, can_suspend, choose_over, end_in_future

#: First width in seconds of the windows in which running jobs end together, when a later start is sought.
_WINDOW = 30.0


class PendingJobs(NamedTuple):
    """Pending jobs in the order of scheduling, one entry for each partition that a job may be in.

    Attributes:
        job: (Q,) jobs.
        entry: (Q,) their entries of :class:`hdsim.site.kernels.quotas.Quotas`.
        partition: (Q,) partitions.
        whole: (Q,) whether the job takes whole nodes there.
        reserves: (Q,) whether the job keeps those behind it waiting: its age and priority suffice.
        plans: (Q,) whether sched/backfill may reserve a later start.
        named: (Q,) whether the job names its nodes.
        limit: (Q,) seconds for which it plans.
        user: (Q,) users, for limits of the jobs that are tested.
        reservation: (Q,) row of the reservation that the job runs in, -1 for none.
        array: (Q,) number of the array that the job is a task of, -1 for none.
    """

    job: Ints
    entry: Ints
    partition: Ints
    whole: Flags
    reserves: Flags
    plans: Flags
    named: Flags
    limit: Floats
    user: Ints
    reservation: Ints
    array: Ints


class Calendar(NamedTuple):
    """Reservations of nodes, (V,) each; one without end or begin is infinite.

    Attributes:
        begin: Begin in seconds.
        end: End in seconds.
        nodes: (V, N) nodes.
    """

    begin: Floats
    end: Floats
    nodes: Flags


class Access(NamedTuple):
    """The nodes that jobs may be on.

    Attributes:
        members: (P, N) nodes of the partitions.
        features: (F, N) nodes that have sets of features.
        feature: (J,) set of features that each job asks for.
        service: (N,) nodes in service.
        completing: (N,) nodes on which jobs have just ended, which no job may start on yet.
        calendar: Reservations.
        user: (J,) users of jobs.
        exclusive_user: (P,) whether jobs of a partition share no node with those of other users (ExclusiveUser).
        alone: (J,) whether a job asks for that itself (--exclusive=user), empty if none does.
    """

    members: Flags
    features: Flags
    feature: Ints
    service: Flags
    completing: Flags
    calendar: Calendar
    user: Ints
    exclusive_user: Flags
    alone: Flags


class Rules(NamedTuple):
    """Parameters of the passes, times in seconds.

    Attributes:
        resolution: bf_resolution.
        window: bf_window.
        depth: default_queue_depth: most jobs that the main loop tests.
        partition_depth: partition_job_depth, 0 for no limit.
        tested: bf_max_job_test.
        tested_of_user: bf_max_job_user, 0 for no limit.
        tested_of_partition: bf_max_job_part, 0 for no limit.
        started: bf_max_job_start, 0 for no limit.
        tasks: bf_max_job_array_resv: most tasks of an array that get a reservation.
        slots: bf_node_space_size: most slots of the plan.
        growth: bf_window_linear in seconds, 0 for windows that double.
        one_reservation: bf_one_resv_per_job.
        least_loaded: (P,) whether the jobs of a partition take the least loaded nodes first (LLN).
        busy_first: bf_busy_nodes: sched/backfill takes nodes with jobs first for later starts.
        serial_last: pack_serial_at_end: jobs of one CPU take the last nodes first.
        linear: select/linear: see `hdsim.site.kernels.placing.LINEAR`.
        trial: The main loop tests each job as if it were the only pending one, and starts none.
    """

    resolution: float
    window: float
    depth: int
    partition_depth: int
    tested: int
    tested_of_user: int
    tested_of_partition: int
    started: int
    tasks: int
    slots: int
    growth: float
    one_reservation: bool
    least_loaded: Flags
    busy_first: bool
    serial_last: bool
    linear: bool
    trial: bool


class Plan(NamedTuple):
    """The nodes that are not reserved, by slots of time.

    Attributes:
        begin: (S,) begins in seconds; a slot ends with the begin of the next one, the last one with `end`.
        row: (S,) row of `free` of each slot, then the rows that are not in use.
        free: (S, W) nodes that pending jobs have not reserved, 64 in a word.
        end: (1,) end of the last slot in seconds.
        length: (2,) slots, and slots that were ever made.
        planned: (J,) start in seconds that each pending job has in the plan, NaN for none.
    """

    begin: Floats
    row: Ints
    free: Ints
    end: Floats
    length: Ints
    planned: Floats


class Space(NamedTuple):
    """Space for a pass.

    Attributes:
        chosen: A choice of nodes.
        future: Use of the nodes at a later time.
        among: (N,) nodes that a job may be on.
        usable: (N,) nodes that a job may be on as far as partitions, reservations and service allow.
        words: (2, W) usable nodes and those of them that no pending job has reserved, 64 in a word.
        open: (N,) nodes that no job ahead waits for.
        closed: (P + V,) partitions and, behind them, reservations in which a job waits.
        counts: (P,) jobs of each partition that were tested.
        rejected: (P,) place in the queue of a task that does not start in each partition, as the rest of its array then
            does not, -1 for none.
        users: (U,) jobs of each user that were tested.
        started: (J,) jobs that the pass has started.
        reason: (J,) code of the reason why each job does not start.
        startable: (J,) whether a trial has found that each job may start.
    """

    chosen: Chosen
    future: Usage
    among: Flags
    usable: Flags
    words: Ints
    open: Flags
    closed: Flags
    counts: Ints
    rejected: Ints
    users: Ints
    started: Ints
    reason: Ints
    startable: Flags


def _words(nodes: int) -> int:
    """Returns the number of words of 64 nodes."""
    return (nodes + 63) // 64


def make_plan(slots: int, nodes: int, jobs: int) -> Plan:
    """Returns a plan of at most a number of slots."""
    floats, row, free = np.zeros((2, slots + 2)), np.arange(slots + 2), np.zeros((slots + 2, _words(nodes)), np.int64)
    return Plan(floats[0], row, free, np.zeros(1), np.zeros(2, np.int64), np.full(jobs, math.nan))


def make_space(usage: Usage, switches: int, partitions: int, users: int, jobs: int) -> Space:
    """Returns space for passes over nodes that are used."""
    nodes = len(usage.core)
    ints = usage.cpus.copy(), usage.jobs.copy(), usage.gpus.copy(), usage.core, usage.counted.copy()
    future = Usage(ints[0], usage.memory.copy(), *ints[1:])
    flags = np.zeros((3, nodes), np.bool_)
    return Space(
        make_chosen(nodes, switches),
        future,
        flags[0],
        flags[1],
        np.zeros((2, _words(nodes)), np.int64),
        flags[2],
        np.zeros(partitions, np.bool_),
        np.zeros(partitions, np.int64),
        np.zeros(partitions, np.int64),
        np.zeros(users, np.int64),
        np.zeros(jobs, np.int64),
        np.zeros(jobs, np.int64),
        np.zeros(jobs, np.bool_),
    )


@part_of_kernel
def _enter(machine: Machine, pending: PendingJobs, place: int, preemption: Preemption) -> None:
    """Has a job be in the partition of its entry."""
    job, demands = pending.job[place], machine.demands
    machine.quotas.entry[job] = pending.entry[place]
    demands.partition[job], demands.whole[job] = pending.partition[place], pending.whole[place]
    if preemption.by_partition:
        preemption.group[job] = pending.partition[place]


@part_of_kernel
def _pack(flags: Flags, into: Ints) -> None:
    """Writes (N,) flags into words."""
    for word in range(len(into)):
        into[word], begin = 0, word * 64
        for bit in range(min(64, len(flags) - begin)):
            into[word] |= np.int64(flags[begin + bit]) << bit


@part_of_kernel
def _unpack(words: Ints, into: Flags) -> int:
    """Writes words into (N,) flags; returns how many are set."""
    count = 0
    for word in range(len(words)):
        bits, begin = words[word], word * 64
        for bit in range(min(64, len(into) - begin)):
            one = (bits >> bit) & 1
            into[begin + bit] = one != 0
            count += one
    return count


@part_of_kernel
def _permitted(access: Access, nodes: Flags, partition: int, job: int, out: Flags) -> int:
    """Takes those of some nodes that are of a partition and have the features of a job; returns their number."""
    count, members, having = 0, access.members[partition], access.features[access.feature[job]]
    for node in range(len(out)):
        out[node] = members[node] and nodes[node] and having[node]
        count += out[node]
    return count


@part_of_kernel
def _beside_users(access: Access, machine: Machine, partition: int, job: int, out: Flags) -> None:
    """Removes the nodes on which a job may not be beside jobs of other users."""
    demands, running = machine.demands, machine.running
    alone, some = access.exclusive_user, len(access.alone) > 0
    own = alone[partition] or (some and access.alone[job])
    for each in alone:
        some |= each
    for place in range(running.length[0] if some else 0):
        other = running.job[place]
        its = alone[demands.partition[other]] or (len(access.alone) > 0 and access.alone[other])
        if access.user[other] != access.user[job] and (own or its):
            for k in range(running.first[other], running.last[other]):
                out[running.node[k]] = False


@part_of_kernel
def _beside_reservations(calendar: Calendar, row: int, start: float, end: float, nodes: Flags) -> bool:
    """Removes the nodes that others have reserved from `start` to `end`; returns whether there are any.

    A job in a reservation keeps to the nodes of it.
    """
    removed = False
    if row >= 0:
        for node in range(len(nodes)):
            nodes[node] &= calendar.nodes[row, node]
    for other in range(len(calendar.begin)):
        if other != row and calendar.begin[other] < end and calendar.end[other] > start:
            for node in range(len(nodes)):
                removed |= nodes[node] and calendar.nodes[other, node]
                nodes[node] &= not calendar.nodes[other, node]
    return removed


@part_of_kernel
def _set_order(rules: Rules, demands: Demands, job: int, partition: int, at_once: int, chosen: Chosen) -> None:
    """Sets the order in which a job takes nodes of a weight."""
    chosen.order[0], chosen.order[1] = BEST_FIT, at_once
    if rules.linear:
        chosen.order[0] = LINEAR
    elif rules.least_loaded[partition]:
        chosen.order[0] = LEAST_LOADED
    elif rules.serial_last and demands.cpus[job] == 1 and demands.least[job] == 1:
        chosen.order[0] = LAST_FIRST


@part_of_kernel
def _cpus(chosen: Chosen, count: int) -> int:
    """Returns the CPUs of a choice of nodes."""
    total = 0
    for k in range(count):
        total += chosen.cpus[k]
    return total


@part_of_kernel
def _any_of(flags: Flags, chosen: Chosen, count: int) -> bool:
    """Whether a flag of one of the chosen nodes is set."""
    found = False
    for k in range(count):
        found |= flags[chosen.node[k]]
    return found


@part_of_kernel
def _is_rejected(pending: PendingJobs, place: int, space: Space) -> bool:
    """Whether a job is a task of an array of which one has not started; notes it as such a task until it starts."""
    array, partition = pending.array[place], pending.partition[place]
    if array < 0:
        return False
    other = space.rejected[partition]
    if other >= 0 and pending.array[other] == array:
        space.reason[pending.job[place]] = space.reason[pending.job[other]]
        return True
    space.rejected[partition] = place
    return False


@lean_kernel
def main_pass(
    machine: Machine,
    preemption: Preemption,
    pending: PendingJobs,
    access: Access,
    rules: Rules,
    space: Space,
    now: float,
) -> int:
    """Starts jobs in order; a job that waits for nodes closes its partition, and its nodes to the other partitions.

    Args:
        machine: Nodes and running jobs.
        preemption: Rules of preemption; takes the jobs that are preempted.
        pending: Pending jobs.
        access: The nodes that jobs may be on.
        rules: Parameters.
        space: Space; takes the jobs that have started.
        now: Present time in seconds.

    Returns:
        The number of jobs that have started.
    """
    machine = Machine(
        machine.nodes,
        by_reference(machine.usage),
        by_reference(machine.demands),
        by_reference(machine.running),
        by_reference(machine.quotas),
    )
    nodes, usage, demands, running, quotas = machine
    space = by_reference(space)
    calendar, chosen, started, tested = access.calendar, by_reference(space.chosen), 0, 0
    layered = len(running.layers.order) > 0
    forget(preemption)
    for node in range(len(space.open)):
        space.open[node] = access.service[node]
    space.closed[:] = False
    space.counts[:] = 0
    space.rejected[:] = -1
    for place in range(len(pending.job)):
        job, partition, row = pending.job[place], pending.partition[place], pending.reservation[place]
        if running.last[job] > 0 or (rules.trial and space.startable[job]):
            continue
        if not rules.trial and _is_rejected(pending, place, space):
            continue
        _enter(machine, pending, place, preemption)
        space.counts[partition] += 1
        if rules.partition_depth and space.counts[partition] > rules.partition_depth:
            continue
        # slurmctld looks at one more, and at the jobs of closed partitions as at others.
        if tested > rules.depth:
            break
        tested += 1
        line = partition if row < 0 else len(access.members) + row
        if space.closed[line] and not rules.trial:
            space.reason[job] = PRIORITY
            continue
        if row >= 0 and not calendar.begin[row] <= now < calendar.end[row]:
            space.reason[job] = RESERVATION
            continue
        limited = exhausted(quotas, job, demands.cpus[job], chosen.node, 0, demands.least[job])
        if limited:
            space.reason[job] = limited
            continue
        _set_order(rules, demands, job, partition, 0, chosen)
        blocked = _permitted(access, space.open, partition, job, space.among) < demands.least[job]
        cpus = 0
        for node in range(len(space.among)):
            cpus += nodes.cpus[node] if space.among[node] else 0
            space.among[node] &= not access.completing[node]
        _beside_users(access, machine, partition, job, space.among)
        reserved = _beside_reservations(calendar, row, now, now + demands.limit[job], space.among)
        count = 0 if blocked else choose(nodes, usage, demands, job, space.among, chosen)
        if layered:
            start_beside(running.layers)
        if layered and not count and not blocked:
            count = choose_over(machine, job, space.among, space.future, chosen)
        if count:
            limited = exhausted(quotas, job, _cpus(chosen, count), chosen.node, count, count)
            if limited:
                space.reason[job] = limited
                continue
            if rules.trial:
                space.startable[job] = True
                continue
            hold(machine, job, now + demands.limit[job], chosen, count)
            space.rejected[partition] = -1
            space.started[started] = job
            started += 1
            continue
        if preemption.enabled and not blocked and not rules.trial:
            members = access.members[partition]
            preempt(machine, preemption, job, members, space.among, space.future, chosen, now)
        space.reason[job] = NOT_AVAILABLE if reserved else RESOURCES
        # A job for which there are too few nodes, busy or not, keeps no others waiting.
        if reserved or rules.trial or blocked or cpus < demands.cpus[job]:
            continue
        if pending.named[place]:
            having = access.features[access.feature[job]]
            for node in range(len(space.open)):
                space.open[node] &= not having[node]
        elif pending.reserves[place]:
            space.closed[line] = True
            for node in range(len(space.open)):
                space.open[node] &= row >= 0 or not access.members[partition, node]
    return started


@lean_kernel
def fitting_nodes(machine: Machine, access: Access, space: Space, job: int, partition: int) -> int:
    """Chooses nodes of a partition, in service or not, for a job; returns their number, 0 if it does not fit.

    Args:
        machine: Nodes, and running jobs, which may be suspended for the job.
        access: The nodes that jobs may be on.
        space: Space; takes the choice.
        job: The job.
        partition: The partition.
    """
    space.chosen.order[0] = BEST_FIT
    for node in range(len(space.open)):
        space.open[node] = True
    _permitted(access, space.open, partition, job, space.among)
    count = choose(machine.nodes, machine.usage, machine.demands, job, space.among, space.chosen)
    if not count and len(machine.running.layers.order):
        start_beside(machine.running.layers)
        count = choose_over(machine, job, space.among, space.future, space.chosen)
    return count


@part_of_kernel
def _slot_end(plan: Plan, slot: int) -> float:
    return plan.begin[slot + 1] if slot + 1 < plan.length[0] else plan.end[0]


@part_of_kernel
def _split(plan: Plan, time: float) -> int:
    """Returns the slot that begins at a time, which is made if there is none; -1 from the end of the plan on."""
    if time >= plan.end[0]:
        return -1
    count = plan.length[0]
    slot = count
    while plan.begin[slot - 1] >= time and slot > 1:
        slot -= 1
    if slot == 1 and plan.begin[0] >= time:
        return 0
    if slot < count and plan.begin[slot] == time:
        return slot
    new = plan.row[count]
    for i in range(count, slot, -1):
        plan.begin[i], plan.row[i] = plan.begin[i - 1], plan.row[i - 1]
    plan.begin[slot], plan.row[slot] = time, new
    for word in range(plan.free.shape[1]):
        plan.free[new, word] = plan.free[plan.row[slot - 1], word]
    plan.length[0] += 1
    plan.length[1] += 1
    return slot


@part_of_kernel
def _same(plan: Plan, row: int, other: int) -> bool:
    """Whether two rows have the same free nodes."""
    differing = 0
    for word in range(plan.free.shape[1]):
        differing |= plan.free[row, word] ^ plan.free[other, word]
    return differing == 0


@part_of_kernel
def _reserve(plan: Plan, start: float, end: float, chosen: Chosen, count: int) -> None:
    """Takes the chosen nodes out of the plan from a time to another."""
    first = _split(plan, max(start, plan.begin[0]))
    if first < 0:
        return
    last = _split(plan, end)
    if last < 0:
        last = plan.length[0]
    for slot in range(first, last):
        for k in range(count):
            plan.free[plan.row[slot], chosen.node[k] >> 6] &= ~(1 << (chosen.node[k] & 63))
    # At most one slot that equals the one before it is joined with it.
    for slot in range(max(first - 1, 0), min(last, plan.length[0] - 1)):
        if _same(plan, plan.row[slot], plan.row[slot + 1]):
            freed = plan.row[slot + 1]
            for i in range(slot + 1, plan.length[0] - 1):
                plan.begin[i], plan.row[i] = plan.begin[i + 1], plan.row[i + 1]
            plan.length[0] -= 1
            plan.row[plan.length[0]] = freed
            break


@part_of_kernel
def _slots(start: float, limit: float, resolution: float) -> tuple[float, float]:
    """Returns begin and end in seconds of a reservation in the plan, at least one slot long."""
    begin = math.floor(start / resolution) * resolution
    return begin, max(math.floor((start + limit) / resolution) * resolution, begin + resolution)


@part_of_kernel
def _overlaps(plan: Plan, start: float, end: float, chosen: Chosen, count: int) -> bool:
    """Whether the plan has reserved one of the chosen nodes between two times."""
    for slot in range(plan.length[0]):
        if _slot_end(plan, slot) > start and plan.begin[slot] < end:
            for k in range(count):
                if not (plan.free[plan.row[slot], chosen.node[k] >> 6] >> (chosen.node[k] & 63)) & 1:
                    return True
    return False


@part_of_kernel
def _next_growth(plan: Plan, slot: int, words: Ints) -> bool:
    """Whether the slot behind one has a node free, of those that a job may use, that it lacks."""
    now, after, more = plan.row[slot], plan.row[slot + 1], 0
    for word in range(plan.free.shape[1]):
        more |= words[0, word] & plan.free[after, word] & ~(words[1, word] & plan.free[now, word])
    return more != 0


@part_of_kernel
def _next_end(calendar: Calendar, time: float, later: float, latest: float) -> float:
    """Returns the second after the first end of a reservation behind a time, if that is before `later` (0 for none)."""
    for end in calendar.end:
        if time < end and end + 1.0 < latest and (later == 0.0 or end + 1.0 < later):
            later = end + 1.0
    return later


@part_of_kernel
def _will_run(
    machine: Machine, preemption: Preemption, job: int, rules: Rules, space: Space, now: float, only_now: bool
) -> tuple[float, int]:
    """Returns the earliest start on the nodes of `space.among`, infinite if there is none, and the number of nodes.

    Running jobs end at their limits, those that end within a window together: the start is the end of the last one.
    Those that can be suspended for the job leave their CPUs at once, and never their memory.
    """
    nodes, usage, demands, running, _ = machine
    chosen, future = by_reference(space.chosen), by_reference(space.future)
    usable, among = chosen.usable, space.among
    open_nodes, open_cpus = find_usable(nodes, usage, demands, job, among, chosen)
    count = choose_usable(nodes, demands, job, open_nodes, open_cpus, chosen)
    if count:
        return now, count
    if only_now:
        return math.inf, 0
    if rules.busy_first and not rules.linear:
        chosen.order[0] = BUSY_FIRST
        for node in range(len(usage.cpus)):
            chosen.spare[node] = usage.jobs[node] > 0
    copy_usage(usage, future)
    layered = len(running.layers.order) > 0
    if layered:
        begin_future(machine, job, future)
        open_nodes, open_cpus = find_usable(nodes, future, demands, job, among, chosen)
    window, limit, place, total = _WINDOW, -math.inf, 0, running.length[0]
    while place < total:
        last = -1
        while place < total:
            other = running.job[place]
            touched = False
            for k in range(running.first[other], running.last[other]):
                touched |= among[running.node[k]]
            if layered and can_suspend(machine, preemption, job, other, now):
                touched = False
            if touched:
                if limit == -math.inf:
                    limit = running.end[place] + (_WINDOW - running.end[place] % _WINDOW)
                last = place
                for k in range(running.first[other], running.last[other]):
                    node = running.node[k]
                    change_usage(nodes, future, demands, other, node, running.cpus[k], running.gpus[k], -1)
                    if layered:
                        end_in_future(machine, job, other, node, future)
                    if among[node]:
                        before, after = usable[node], usable_cpus(nodes, future, demands, job, node)
                        usable[node] = after
                        if chosen.order[0] == LEAST_LOADED:
                            chosen.spare[node] = future.cpus[node]
                        if demands.all_gpus[job]:
                            reach_gpus(future, demands, job, node, chosen)
                        open_nodes += int(after > 0) - int(before > 0)
                        open_cpus += after - before
            place += 1
            if touched and place < total and running.end[place] > limit + window:
                break
        if last < 0:
            break
        while True:
            window = window + rules.growth if rules.growth > 0.0 else 2 * window
            if place == total or running.end[place] <= limit + window:
                break
        count = choose_usable(nodes, demands, job, open_nodes, open_cpus, chosen)
        if count:
            return max(running.end[last], now + 1.0), count
    return math.inf, 0


@lean_kernel
def backfill_pass(
    machine: Machine,
    preemption: Preemption,
    pending: PendingJobs,
    access: Access,
    rules: Rules,
    plan: Plan,
    space: Space,
    now: float,
) -> int:
    """Starts jobs that delay no reservation of a job ahead, and reserves named nodes for the others in order.

    Args:
        machine: Nodes and running jobs.
        preemption: Rules of preemption; takes the jobs that are preempted.
        pending: Pending jobs.
        access: The nodes that jobs may be on.
        rules: Parameters.
        plan: The plan, which is made anew.
        space: Space; takes the jobs that have started.
        now: Present time in seconds.

    Returns:
        The number of jobs that have started.
    """
    machine = Machine(
        machine.nodes,
        by_reference(machine.usage),
        by_reference(machine.demands),
        by_reference(machine.running),
        by_reference(machine.quotas),
    )
    nodes, usage, demands, running, quotas = machine
    space = by_reference(space)
    plan, chosen, started, tested = by_reference(plan), by_reference(space.chosen), 0, 0
    calendar, layered = access.calendar, len(running.layers.order) > 0
    forget(preemption)
    resolution = rules.resolution
    plan.begin[0] = math.floor(now / resolution) * resolution
    plan.end[0] = math.floor((now + rules.window) / resolution) * resolution
    plan.length[0] = plan.length[1] = 1
    _pack(access.service, plan.free[plan.row[0]])
    space.counts[:] = 0
    space.users[:] = 0
    space.rejected[:] = -1
    array, tasks = -1, 0
    for place in range(len(pending.job)):
        plan.planned[pending.job[place]] = math.nan
    for place in range(len(pending.job)):
        job, partition, row = pending.job[place], pending.partition[place], pending.reservation[place]
        if running.last[job] > 0:
            continue
        if tested == rules.tested:
            break
        if pending.array[place] >= 0 and pending.array[place] == array and tasks >= rules.tasks:
            continue
        if _is_rejected(pending, place, space):
            continue
        _enter(machine, pending, place, preemption)
        # Jobs that limits hold back are not counted as tested.
        limited = exhausted(quotas, job, demands.cpus[job], chosen.node, 0, demands.least[job])
        if limited and limited != LICENSES:
            space.reason[job] = limited
            continue
        user = pending.user[place]
        if rules.tested_of_partition and space.counts[partition] >= rules.tested_of_partition:
            continue
        space.counts[partition] += 1
        if rules.tested_of_user and space.users[user] >= rules.tested_of_user:
            continue
        space.users[user] += 1
        if limited:
            space.reason[job] = limited
            continue
        limit, planned = pending.limit[place], plan.planned[job]
        only_now = not (pending.reserves[place] and pending.plans[place]) or (
            rules.one_reservation and not math.isnan(planned)
        )
        later, start, count, from_slot, to_slot, preempts = now, math.inf, 0, 0.0, 0.0, False
        counted = 0
        while True:
            begin, later = later, 0.0
            _permitted(access, access.service, partition, job, space.usable)
            _beside_users(access, machine, partition, job, space.usable)
            if row >= 0:
                if begin >= calendar.end[row]:
                    break
                begin = max(begin, calendar.begin[row])
            end = begin + limit
            reserved = _beside_reservations(calendar, row, begin, end, space.usable)
            _set_order(rules, demands, job, partition, 1, chosen)
            words = space.words
            _pack(space.usable, words[0])
            for word in range(words.shape[1]):
                words[1, word] = words[0, word]
            for slot in range(plan.length[0]):
                ends = _slot_end(plan, slot)
                behind = ends > begin and slot + 1 < plan.length[0] and later == 0.0
                if behind and _next_growth(plan, slot, words):
                    later = ends
                if ends > begin and plan.begin[slot] <= end:
                    for word in range(words.shape[1]):
                        words[1, word] &= plan.free[plan.row[slot], word]
                elif ends > begin:
                    break
            if reserved:
                later = _next_end(calendar, begin, later, plan.end[0])
            available = _unpack(words[1], space.among)
            start, count, preempts = math.inf, 0, False
            counted |= available >= demands.least[job]
            if layered:
                start_beside(running.layers)
            if available >= demands.least[job] and layered and begin <= now:
                count = choose(nodes, usage, demands, job, space.among, chosen)
                if not count:
                    count = choose_over(machine, job, space.among, space.future, chosen)
                start = now
            if available >= demands.least[job] and preemption.enabled and begin <= now:
                count = choose(nodes, usage, demands, job, space.among, chosen)
                start = now
                if not count:
                    members, future = access.members[partition], space.future
                    count = preempt(machine, preemption, job, members, space.among, future, chosen, now)
                    preempts = count > 0
            if available >= demands.least[job] and not count:
                start, count = _will_run(machine, preemption, job, rules, space, now, only_now)
            if count and begin > start:
                start = begin
            if count and start <= now:
                if not _any_of(access.completing, chosen, count):
                    from_slot, to_slot = _slots(start, limit, resolution)
                    break
                # The nodes are kept for the job until they are free.
                start, later = now + 1.0, 0.0
            if later > 0.0 and not only_now and (not count or start > later):
                continue
            if not count or only_now or start > now + rules.window:
                count = 0
                break
            from_slot, to_slot = _slots(start, limit, resolution)
            if not _overlaps(plan, from_slot, to_slot, chosen, count):
                break
            later = start
            if later <= begin:
                count = 0
                break
        tested += counted
        if not count:
            continue
        limited = exhausted(quotas, job, _cpus(chosen, count), chosen.node, count, count)
        if limited:
            space.reason[job] = limited
            continue
        space.rejected[partition] = -1
        if start <= now and not preempts:
            hold(machine, job, now + demands.limit[job], chosen, count)
            space.started[started] = job
            started += 1
            if rules.started and started == rules.started:
                break
            continue
        if math.isnan(planned) or start < planned:
            plan.planned[job] = start
        if not (rules.one_reservation and not math.isnan(planned)):
            if plan.length[1] >= rules.slots:
                break
            _reserve(plan, from_slot, to_slot, chosen, count)
            tasks = tasks + 1 if pending.array[place] == array else 1
            array = pending.array[place]
    return started
