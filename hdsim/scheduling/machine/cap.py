"""A constant hard cap on the power of the machine, on interchangeable cores, as a part of the machine.

Rules and sums are those of :class:`hdsim.cluster.power_budget.PowerBudget` where all nodes are up. Watts are kept as
running sums; where rounding might decide, they are summed up anew in the order there.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from hdsim.kernels.compiling import part_of_kernel
from hdsim.scheduling.kernels.profiles import head_reservation, is_overdue, longest_before
from hdsim.scheduling.machine.held_ranges import HeldRanges
from hdsim.scheduling.machine.queue_tree import next_fitting
from hdsim.scheduling.machine.ranked_queue import RankedQueue
from hdsim.scheduling.machine.state import Floats, Ints, Machine
from hdsim.scheduling.rules import Backfilling

#: The present of the cap.
CAP_STATE = np.dtype(
    [
        ("watts", "f8"),  # W that all nodes draw, about
        ("beside", "i8"),  # idle cores of processors with busy ones
        ("changes", "i8"),  # starts and ends so far
        ("reserved_at", "i8"),  # that number when the reservation was made
        ("level", "f8"),  # W that all nodes will draw at the shadow time without the head, about
        ("head_watts", "f8"),  # W that the head is to have then
        ("margin", "f8"),  # cores that are idle beside the head when there are cores for it
        ("begin", "f8"),  # seconds, when that is
        ("barred", "f8"),  # cores of a candidate that was found to break the cap, so that all wider ones do
        ("barred_late", "f8"),  # the same at the shadow time
        ("passes", "i8"),  # passes before which something has changed
        ("seen", "i8"),  # `changes` at the last pass
    ],
    align=True,
)


class Cap(NamedTuple):
    """A cap on P processors of N nodes, GPUs among them, for J jobs.

    Attributes:
        state: (1,) of type `CAP_STATE`.
        limit: W that committed watts may be at most, a rounding above the cap.
        slack: W by which running sums may be wrong.
        rounding: Factor of an upper bound of cores.
        cheapest: W that a further core of a processor with busy ones adds at least.
        others: W that a further core of another processor adds at least, on average over its cores.
        dearest: W that a further core adds at most.
        several: Whether a node with several processors draws more while it is in use.
        least: See `PowerBudget`.
        shares: (3,) see :data:`hdsim.platform.power.CORE_SHARES`.
        processor: (C,) processor of each core without GPUs.
        first: (P + 1,) first of these cores of each processor.
        cores: (P,) its cores.
        node: (P,) its node.
        processors: (N,) processors of each node.
        of_node: (N + 1,) first of these cores of each node.
        alike: (N,) last of the neighbouring nodes that all have cores and no GPUs, the node before for one that has.
        whole: (2, N + 1) W that the nodes before add whose cores are all taken, and those by which the power falls at
            least when they are given back.
        watts: (P,) W of a computing core.
        core_watts: (P,) W that a further core of a processor adds, one of which is busy.
        wake_watts: (P,) W that the first one adds beside that: those of the other cores, and of the node if that has no
            other processor.
        node_watts: (N,) W that the first busy processor adds of a node of several ones.
        state_watts: (2, N) W of a node in use beside its cores, and of another one that is up.
        head_watts: (J,) W that a reservation keeps for a job.
        least_watts: (J,) W by which the power falls at least when a running job ends.
        kind: (J,) number of the kind of a job: of equal kinds only the first is tried in a pass of ``greedy``.
        refused: (K,) number of the pass in which each kind was refused last.
        held: (2, max(P, N)) cores that jobs hold of each processor, and busy processors of nodes with `node_watts`.
        then: The same at the shadow time.
        space: The same, as working memory.
    """

    state: Any
    limit: float
    slack: float
    rounding: float
    cheapest: float
    others: float
    dearest: float
    several: bool
    least: float
    shares: Floats
    processor: Ints
    first: Ints
    cores: Ints
    node: Ints
    processors: Ints
    of_node: Ints
    alike: Ints
    whole: Any
    watts: Floats
    core_watts: Floats
    wake_watts: Floats
    node_watts: Floats
    state_watts: Floats
    head_watts: Floats
    least_watts: Floats
    kind: Ints
    refused: Ints
    held: Any
    then: Any
    space: Any


# Watts.


@part_of_kernel
def _processor_watts(cap: Cap, processor: int, busy: int) -> float:
    """Returns the W of the cores of a processor, some of which are busy."""
    beside = cap.shares[1] if busy > 0 else cap.shares[2]
    return cap.watts[processor] * (cap.shares[0] * busy + beside * (cap.cores[processor] - busy))


@part_of_kernel
def total_watts(cap: Cap, held: Any) -> float:
    """Returns the W of all nodes whose processors have busy cores, summed in the order of the engine."""
    total, processor = 0.0, 0
    for node in range(cap.state_watts.shape[1]):
        level, busy = 0.0, False
        while processor < len(cap.node) and cap.node[processor] == node:
            level += _processor_watts(cap, processor, held[0, processor])
            busy = busy or held[0, processor] > 0
            processor += 1
        total += level + cap.state_watts[0 if busy else 1, node]
    return total


@part_of_kernel
def _last_whole(cap: Cap, core: int, last: int) -> int:
    """Returns the last of the nodes that begin with a core and are among neighbouring ones as a whole, -1 for none."""
    node = cap.node[cap.processor[core]]
    if core != cap.of_node[node] or cap.of_node[node + 1] > last + 1:
        return -1
    until = cap.node[cap.processor[last]]
    if cap.of_node[until + 1] > last + 1:
        until -= 1
    until = min(until, cap.alike[node])
    return until if until >= node else -1


@part_of_kernel
def _add(cap: Cap, held: Any, core: int, last: int, sign: int) -> tuple[float, int, float]:
    """Adds neighbouring cores to those held, or takes them off.

    Returns:
        The W, the idle cores beside busy ones, and the W by which the power falls at least when the cores are given
        back: most where they are all of a processor.
    """
    watts, beside, falls = 0.0, 0, 0.0
    while core <= last:
        processor = cap.processor[core]
        behind, until = cap.first[processor + 1], -1
        # Cores of one processor, be they all of a node, are counted one by one just as well.
        if behind <= last:
            until = _last_whole(cap, core, last)
        if until >= 0:
            node, behind = cap.node[processor], cap.of_node[until + 1]
            watts += cap.whole[0, until + 1] - cap.whole[0, node]
            falls += cap.whole[1, until + 1] - cap.whole[1, node]
            for i in range(processor, cap.processor[behind - 1] + 1):
                held[0, i] = cap.cores[i] if sign > 0 else 0
            if cap.several:
                for i in range(node, until + 1):
                    held[1, i] = cap.processors[i] if sign > 0 else 0
            core = behind
            continue
        behind = min(behind, last + 1)
        count, before = behind - core, held[0, processor]
        after = before + sign * count
        held[0, processor] = after
        watts += count * cap.core_watts[processor]
        falls += count * cap.core_watts[processor]
        if count == cap.cores[processor]:
            falls += cap.wake_watts[processor]
        beside -= sign * count
        if before == 0 or after == 0:
            watts += cap.wake_watts[processor]
            beside += sign * cap.cores[processor]
            node = cap.node[processor]
            if cap.several and cap.node_watts[node] > 0.0:
                held[1, node] += sign
                if held[1, node] == (1 if sign > 0 else 0):
                    watts += cap.node_watts[node]
        core = behind
    return sign * watts, beside, falls


@part_of_kernel
def _add_job(ranges: HeldRanges, cap: Cap, held: Any, job: int, sign: int) -> tuple[float, int, float]:
    """Adds the cores of a job, or takes them off; see `_add`."""
    watts, beside, falls, top = 0.0, 0, 0.0, ranges.cores - 1
    for i in range(ranges.begin[job], ranges.end[job]):
        more, idle, less = _add(cap, held, top - ranges.last[i], top - ranges.first[i], sign)
        watts += more
        beside += idle
        falls += less
    return watts, beside, falls


@part_of_kernel
def _watts_beside(ranges: HeldRanges, cap: Cap, held: Any, size: int) -> float:
    """Returns the W that the idle cores of the lowest ids add to those held."""
    watts, place, top = 0.0, ranges.idle.length[0], ranges.cores - 1
    at, used = -1, -1
    while size > 0:
        place -= 1
        high = ranges.idle.last[place]
        low = max(ranges.idle.first[place], high - size + 1)
        size -= high - low + 1
        core, last = top - high, top - low
        while core <= last:
            processor = cap.processor[core]
            behind, until = cap.first[processor + 1], -1
            if behind <= last:
                until = _last_whole(cap, core, last)
            if until >= 0:
                # Nobody holds them at a later time either.
                watts += cap.whole[0, until + 1] - cap.whole[0, cap.node[processor]]
                core = cap.of_node[until + 1]
                continue
            behind = min(behind, last + 1)
            watts += (behind - core) * cap.core_watts[processor]
            if processor != at and held[0, processor] == 0:
                watts += cap.wake_watts[processor]
                node = cap.node[processor]
                if cap.several and cap.node_watts[node] > 0.0 and held[1, node] == 0 and node != used:
                    used = node
                    watts += cap.node_watts[node]
            at = processor
            core = behind
    return watts


@part_of_kernel
def _copy(cap: Cap, held: Any, to: Any) -> None:
    """Copies cores of processors and busy processors of nodes."""
    for row in range(2 if cap.several else 1):
        for i in range(held.shape[1]):
            to[row, i] = held[row, i]


@part_of_kernel
def _total_beside(ranges: HeldRanges, cap: Cap, held: Any, size: int) -> float:
    """Returns the W of all nodes with the idle cores of the lowest ids beside those held; see `total_watts`."""
    space, place, top = cap.space, ranges.idle.length[0], ranges.cores - 1
    _copy(cap, held, space)
    while size > 0:
        place -= 1
        high = ranges.idle.last[place]
        low = max(ranges.idle.first[place], high - size + 1)
        size -= high - low + 1
        _add(cap, space, top - high, top - low, 1)
    return total_watts(cap, space)


# Jobs that may start.


@part_of_kernel
def renew_watts(cap: Cap) -> None:
    """Sums the watts up anew, which running sums lose by rounding."""
    cap.state[0].watts = total_watts(cap, cap.held)


@part_of_kernel
def most_cores_now(machine: Machine, cap: Cap) -> float:
    """Returns an upper bound of the cores of a job that may start now."""
    state = cap.state[0]
    room = cap.limit - state.watts + cap.slack
    if room <= state.beside * cap.cheapest:
        most = room / cap.cheapest
    else:
        most = state.beside + (room - state.beside * cap.cheapest) / cap.others
    return min(float(machine.clock[0].idle), most + 1e-6)


@part_of_kernel
def is_within(machine: Machine, ranges: HeldRanges, cap: Cap, job: int) -> bool:
    """Returns whether there are cores for a job, with which the power is within the cap now."""
    size = machine.jobs.size[job]
    if size > most_cores_now(machine, cap):
        return False
    left = cap.limit - cap.state[0].watts
    if left - size * cap.dearest > cap.slack:
        return True
    left -= _watts_beside(ranges, cap, cap.held, size)
    if abs(left) > cap.slack:
        return left > 0
    return _total_beside(ranges, cap, cap.held, size) <= cap.limit


@part_of_kernel
def hold_under_cap(machine: Machine, ranges: HeldRanges, cap: Cap, job: int) -> None:
    """Takes note of a job that starts."""
    clock, state, end = machine.clock[0], cap.state[0], ranges.expected[job]
    watts, beside, falls = _add_job(ranges, cap, cap.held, job, 1)
    state.watts += watts
    state.beside += beside
    state.changes += 1
    state.barred = state.barred_late = math.inf
    cap.least_watts[job] = falls
    if clock.reserved >= 0 and (end > clock.shadow or end <= clock.now):
        watts, _, _ = _add_job(ranges, cap, cap.then, job, 1)
        state.level += watts


@part_of_kernel
def release_under_cap(ranges: HeldRanges, cap: Cap, job: int) -> None:
    """Takes note of a job that ends."""
    state = cap.state[0]
    watts, beside, _ = _add_job(ranges, cap, cap.held, job, -1)
    state.watts += watts
    state.beside += beside
    state.changes += 1
    state.barred = state.barred_late = math.inf


# Reservations.


@part_of_kernel
def reserve_under_cap(machine: Machine, queue: RankedQueue, ranges: HeldRanges, cap: Cap, head: int) -> bool:
    """Reserves cores and power for a head that cannot start; returns whether the reservation is a new one.

    While nothing starts or ends and the head is the same, the reservation stays. There is none if no candidate could
    start beside any reservation.
    """
    clock, state = machine.clock[0], cap.state[0]
    renewed = clock.reserved != head or state.reserved_at != state.changes
    renewed = renewed or clock.shadow <= clock.now or is_overdue(machine.releases, clock.now)
    if renewed:
        _reserve_cores(machine, cap, head)
        if _may_help(machine, queue, cap, head):
            _reserve_watts(machine, ranges, cap)
        else:
            clock.reserved, clock.shadow = -1, -math.inf
            clock.longest, clock.widest, clock.extra = 0.0, -1.0, -1.0
    return renewed


@part_of_kernel
def _reserve_cores(machine: Machine, cap: Cap, head: int) -> None:
    """Finds the earliest time at which there are cores for a head."""
    clock, state, size = machine.clock[0], cap.state[0], machine.jobs.size[head]
    clock.reserved, state.reserved_at, state.head_watts = head, state.changes, cap.head_watts[head]
    shadow, state.margin = head_reservation(machine.releases, clock.now, float(clock.idle), float(size))
    state.begin = clock.now if clock.idle >= size else shadow


@part_of_kernel
def _first_later(machine: Machine) -> int:
    """Returns the first expected release after now: a job that exceeds its requested time counts as running on."""
    place, releases = 0, machine.releases
    while place < releases.length[0] and releases.end[place] <= machine.clock[0].now:
        place += 1
    return place


@part_of_kernel
def _may_help(machine: Machine, queue: RankedQueue, cap: Cap, head: int) -> bool:
    """Returns whether a candidate is narrow enough, or short enough for an upper bound of the shadow time."""
    clock, state, releases = machine.clock[0], cap.state[0], machine.releases
    date, level, place = state.begin, state.watts + state.head_watts, _first_later(machine)
    while True:
        while place < releases.length[0] and releases.end[place] <= date:
            level -= cap.least_watts[releases.job[place]]
            place += 1
        if cap.limit - level > cap.slack:
            break
        if place == releases.length[0]:
            return True
        date = releases.end[place]
    most, longest, margin = most_cores_now(machine, cap), longest_before(date, clock.now, 1.0), state.margin
    place = next_fitting(queue.tree, 0, clock.now, most, date, longest, margin, margin)
    if place >= 0 and queue.candidate[place] == head:
        place = next_fitting(queue.tree, place + 1, clock.now, most, date, longest, margin, margin)
    return place >= 0


@part_of_kernel
def _reserve_watts(machine: Machine, ranges: HeldRanges, cap: Cap) -> None:
    """Reserves the earliest time at which there is power for the head, too."""
    clock, state, releases = machine.clock[0], cap.state[0], machine.releases
    then, place, date = cap.then, _first_later(machine), state.begin
    _copy(cap, cap.held, then)
    state.level, state.barred_late = state.watts, math.inf
    while True:
        while place < releases.length[0] and releases.end[place] <= date:
            watts, _, _ = _add_job(ranges, cap, then, releases.job[place], -1)
            state.level += watts
            place += 1
        left = cap.limit - state.level - state.head_watts
        if left > cap.slack or (left >= -cap.slack and cap.limit - total_watts(cap, then) >= state.head_watts):
            break
        if place == releases.length[0]:
            date = math.inf
            break
        date = releases.end[place]
    clock.shadow, clock.extra = date, state.margin
    if date < math.inf:
        left = cap.limit - state.level - state.head_watts + cap.slack
        clock.extra = min(state.margin, left * cap.rounding / cap.least)
    clock.longest, clock.widest = longest_before(date, clock.now, 1.0), clock.extra


@part_of_kernel
def _may_backfill(machine: Machine, ranges: HeldRanges, cap: Cap, job: int) -> bool:
    """Returns whether a candidate may start beside the head, and takes what it needs off the extra cores."""
    clock, state, size = machine.clock[0], cap.state[0], machine.jobs.size[job]
    late = clock.now + machine.jobs.requested[job] > clock.shadow
    if late:
        if size > min(clock.extra, state.margin) or size >= state.barred_late:
            return False
        left = cap.limit - state.level - _watts_beside(ranges, cap, cap.then, size) - state.head_watts
        if abs(left) <= cap.slack:
            left = cap.limit - _total_beside(ranges, cap, cap.then, size) - state.head_watts
        if left < 0:
            state.barred_late = size
            return False
    if not is_within(machine, ranges, cap, job):
        state.barred = size
        return False
    if late:
        state.margin -= size
        clock.extra -= size
    return True


@part_of_kernel
def begin_pass_under_cap(cap: Cap) -> None:
    """Begins a pass: kinds of jobs that have been refused may start again if something has changed."""
    state = cap.state[0]
    if state.seen != state.changes:
        state.seen = state.changes
        state.passes += 1


@part_of_kernel
def next_under_cap(machine: Machine, queue: RankedQueue, ranges: HeldRanges, cap: Cap, place: int) -> int:
    """Returns the first place from one on of a candidate that may start beside the reservation, -1 for none."""
    clock, tree, easy = machine.clock[0], queue.tree, machine.rules.backfill == Backfilling.EASY
    while True:
        if easy and clock.shadow == math.inf:
            # The head has no reservation: the jobs behind it start in order, and the first that cannot is the head.
            place = next_fitting(tree, place, 0.0, float(machine.rules.cores), math.inf, math.inf, 0.0, 0.0)
            if place < 0:
                return -1
            job = queue.candidate[place]
            if job != clock.reserved:
                if is_within(machine, ranges, cap, job):
                    return place
                _reserve_cores(machine, cap, job)
                _reserve_watts(machine, ranges, cap)
                if clock.shadow < math.inf:
                    place = -1
            place += 1
            continue
        most, extra, state = most_cores_now(machine, cap), clock.extra, cap.state[0]
        if easy:
            most, extra = min(most, state.barred - 0.5), min(extra, state.barred_late - 0.5)
        place = next_fitting(tree, place, clock.now, most, clock.shadow, clock.longest, clock.widest, extra)
        if place < 0:
            return -1
        job = queue.candidate[place]
        if easy:
            if job != clock.reserved and _may_backfill(machine, ranges, cap, job):
                return place
        else:
            kind = cap.kind[job]
            if cap.refused[kind] != state.passes:
                if is_within(machine, ranges, cap, job):
                    return place
                cap.refused[kind] = state.passes
        place += 1
