"""Nodes that sleep after a fixed time-out and wake for jobs, on interchangeable cores, as a part of the machine.

Rules, and the order of events at one date, are those of :class:`hdsim.simulation.node_power.NodePower` and
:class:`hdsim.cluster.node_states.NodeStates`. Idle cores of nodes that are not up are no ranges: those of a node follow
the ones that jobs which wait for it hold.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from hdsim.kernels.compiling import in_python, part_of_kernel
from hdsim.kernels.heap import Heap, make_heap, pop, push
from hdsim.kernels.linked_lists import LinkedLists, insert, make_linked_lists, remove
from hdsim.platform.node_state import NodeState
from hdsim.scheduling.machine.held_ranges import HeldRanges, add_cores, choose_lowest, doubled, put_back, remove_cores
from hdsim.scheduling.machine.ranked_queue import RankedQueue, next_ranked
from hdsim.scheduling.machine.state import Bools, Floats, Ints, Machine, end_or_limit, log_start
from hdsim.scheduling.rules import Backfilling

# Plain numbers, which index arrays in kernels.
_ON, _GOING_DOWN, _OFF, _BOOTING = (
    int(state) for state in (NodeState.ON, NodeState.GOING_DOWN, NodeState.OFF, NodeState.BOOTING)
)
_MINUTE = 60.0
#: Lists of idle nodes: those whose time runs, and those whose time is over.
_TIMED, _OVER = 0, 1
#: Kinds of events.
_RESUME, _CHANGE, _TIME_OUT = range(3)
#: The present of the nodes.
SLEEP_STATE = np.dtype(
    [
        ("away", "i8"),  # nodes that are not up
        ("starting", "i8"),  # jobs that wait for nodes
        ("sequence", "i8"),  # events scheduled so far
        ("passed", "i8"),  # columns of `Sleep.timeouts` that have passed, and that there are
        ("timeouts", "i8"),
        ("resumes", "f8"),  # seconds, when nodes whose time is over go down next, infinite for no event
        ("resumes_number", "i8"),  # number of that event
        ("spans", "i8"),  # rows of `Sleep.spans`
        ("lowest", "i8"),  # nodes that may be in `Sleep.freed`
        ("highest", "i8"),
        ("others", "i8"),  # entries of `Sleep.others`
        ("asked", "i8"),  # entries of `Sleep.asked`
        ("begun", "i8"),  # first of the entries of `Sleep.begins` that count, and the one behind the last
        ("begins", "i8"),
        ("suspended", "i8"),  # first of the entries of `Sleep.suspended`, a ring, and their number
        ("recent", "i8"),
        ("unused", "i8"),  # first entry of `Sleep.waiting` that is free, -1 for none
        ("ready", "f8"),  # seconds, when the nodes of the chosen cores will be up
    ],
    align=True,
)


class Sleep(NamedTuple):
    """Nodes that sleep: N nodes, J jobs, C cores.

    Attributes:
        state: (1,) of type `SLEEP_STATE`.
        suspend_time: Seconds after which idle nodes go down.
        suspend_rate: Nodes that begin to go down within 60 s, -1 for no limit.
        resume_rate: Nodes that begin to boot within 60 s, -1 for no limit.
        last_arrival: Seconds, up to which nodes change at least.
        timed: (N,) whether the time-out applies.
        seconds: (2, N) s for which a node goes down, and boots.
        order: (N,) nodes in the order in which they are woken, of equal states.
        node: (C,) node of each core without GPUs.
        first: (N + 1,) first of these cores of each node.
        idle: (N,) cores of each node that no job holds.
        node_state: (N,) :class:`NodeState`; ON for nodes that are up.
        ready: (N,) s, see `NodeStates`.
        off: (N,) s, when a node that goes down will be off.
        boot: (N,) s, when the boot begins that a node was asked for.
        since: (N,) s, when a node went into its state.
        lists: Idle nodes whose time runs, and those whose time is over.
        over: (N,) s, when the time of a node in the first list is over.
        number: (N,) number of the event then.
        timeouts: (2, E) s and number of the events at which the time of nodes is over that were idle before.
        changes: Changes of neighbouring nodes to come, by date; see `_schedule` for the items.
        freed: (N,) nodes that have become idle since the last pass.
        others: (N,) nodes that are not up whose cores have been put beside those of the nodes that are.
        asked: (N,) nodes that have been asked to boot in this pass.
        begins: (2, 2 resume_rate + 2) s, ascending begins of boots, of which the last `resume_rate` count, and working
            memory.
        suspended: (suspend_rate,) s, when the last nodes went down.
        missing: (J,) nodes that a job waits for.
        waiting: (2, C) jobs that wait for a node, and the next entry of the same node.
        queue: (2, N) first and last entry of each node.
        spans: (4, S) node, state, begin and end of every stay in another state that is over.
    """

    state: Any
    suspend_time: float
    suspend_rate: int
    resume_rate: int
    last_arrival: float
    timed: Bools
    seconds: Any
    order: Ints
    node: Ints
    first: Ints
    idle: Ints
    node_state: Ints
    ready: Floats
    off: Floats
    boot: Floats
    since: Floats
    lists: LinkedLists
    over: Floats
    number: Ints
    timeouts: Any
    changes: Heap
    freed: Bools
    others: Ints
    asked: Ints
    begins: Any
    suspended: Floats
    missing: Ints
    waiting: Any
    queue: Any
    spans: Any


def make_sleep(
    jobs: int,
    node: Ints,
    seconds: Any,
    timed: Bools,
    last_arrival: float,
    *,
    suspend_time: float,
    suspend_rate: float,
    resume_rate: float,
) -> Sleep:
    """Returns nodes that are all up and idle at time 0.

    Args:
        jobs: Number of jobs.
        node: (C,) node of each core without GPUs, ascending.
        seconds: (2, N) s for which a node goes down, and boots.
        timed: (N,) whether the time-out applies.
        last_arrival: Seconds, that of the last job, which may be rejected.
        suspend_time: Seconds after which idle nodes go down, above 0.
        suspend_rate: Nodes that begin to go down within 60 s, may be infinite.
        resume_rate: Nodes that begin to boot within 60 s, may be infinite.
    """
    n, cores = seconds.shape[1], len(node)
    rates = [-1 if rate == math.inf else int(rate) for rate in (suspend_rate, resume_rate)]
    first = np.searchsorted(node, np.arange(n + 1))
    up = np.flatnonzero(timed)
    state = np.zeros(1, SLEEP_STATE).view(np.recarray)
    timeouts = np.zeros((2, 2 * jobs + 16))
    timeouts[0, 0], state.timeouts = suspend_time, int(len(up) > 0)
    state.resumes, state.lowest, state.highest, state.unused, state.sequence = math.inf, n, -1, 0 if cores else -1, 1
    return Sleep(
        state=state,
        suspend_time=float(suspend_time),
        suspend_rate=rates[0],
        resume_rate=rates[1],
        last_arrival=float(last_arrival),
        timed=timed.copy(),
        seconds=np.ascontiguousarray(seconds),
        order=np.argsort(seconds[1], kind="stable"),
        node=node.astype(np.int64),
        first=first,
        idle=np.diff(first),
        node_state=np.full(n, _ON),
        ready=np.zeros(n),
        off=np.zeros(n),
        boot=np.zeros(n),
        since=np.zeros(n),
        lists=make_linked_lists(n, 2, up),
        over=np.full(n, float(suspend_time)),
        number=np.zeros(n, np.int64),
        timeouts=timeouts,
        changes=make_heap(4 * n + 1),
        freed=np.zeros(n, bool),
        others=np.zeros(n, np.int64),
        asked=np.zeros(n, np.int64),
        begins=np.zeros((2, 2 * max(rates[1], 0) + 2)),
        suspended=np.zeros(max(rates[0], 1)),
        missing=np.zeros(jobs, np.int64),
        waiting=np.stack([np.zeros(cores, np.int64), np.append(np.arange(1, cores), -1)]),
        queue=np.full((2, n), -1),
        spans=np.zeros((4, 4 * jobs + 8 * n)),
    )


@part_of_kernel
def lacks_events(sleep: Sleep) -> bool:
    """Returns whether there might be more events up to the next pass than there is space for."""
    return _lacks_timeouts(sleep) or _lacks_spans(sleep)


@part_of_kernel
def _lacks_timeouts(sleep: Sleep) -> bool:
    return sleep.state[0].timeouts + 8 > sleep.timeouts.shape[1]


@part_of_kernel
def _lacks_spans(sleep: Sleep) -> bool:
    return sleep.state[0].spans + 4 * len(sleep.idle) > sleep.spans.shape[1]


def with_events(sleep: Sleep) -> Sleep:
    """Returns the nodes with more space for events, where there is too little."""
    if in_python(_lacks_timeouts)(sleep):
        sleep = sleep._replace(timeouts=doubled(sleep.timeouts))
    if in_python(_lacks_spans)(sleep):
        sleep = sleep._replace(spans=doubled(sleep.spans))
    return sleep


# Idle nodes.


@part_of_kernel
def _begin_timeout(sleep: Sleep, node: int, date: float) -> None:
    """Has the time of an idle node be over at a date, at the event that there is if that had the node before."""
    if sleep.over[node] != date:
        sleep.over[node], sleep.number[node] = date, sleep.state[0].sequence
    number, before = sleep.number[node], sleep.lists.ends[_TIMED, 1]
    while (
        before >= 0
        and sleep.over[before] == date
        and (sleep.number[before] > number or (sleep.number[before] == number and before > node))
    ):
        before = sleep.lists.before[before]
    insert(sleep.lists, _TIMED, node, before)


@part_of_kernel
def _begin_timeouts(sleep: Sleep, now: float) -> None:
    """Begins the time-outs of nodes that have become idle and still are."""
    state, date, begun = sleep.state[0], now + sleep.suspend_time, False
    if state.highest < 0:
        return
    for node in range(state.lowest, state.highest + 1):
        if sleep.freed[node]:
            sleep.freed[node] = False
            if sleep.timed[node] and sleep.idle[node] == sleep.first[node + 1] - sleep.first[node]:
                _begin_timeout(sleep, node, date)
                begun = True
    state.lowest, state.highest = len(sleep.idle), -1
    if begun:
        sleep.timeouts[0, state.timeouts], sleep.timeouts[1, state.timeouts] = date, state.sequence
        state.timeouts += 1
        state.sequence += 1


# States of nodes.


@part_of_kernel
def _enter(sleep: Sleep, node: int, state: int, now: float) -> None:
    """Has a node go into a state."""
    present, before = sleep.state[0], sleep.node_state[node]
    if before != _ON:
        row, spans = present.spans, sleep.spans
        spans[0, row], spans[1, row], spans[2, row], spans[3, row] = node, before, sleep.since[node], now
        present.spans = row + 1
    present.away += int(state != _ON) - int(before != _ON)
    sleep.node_state[node], sleep.since[node] = state, now


@part_of_kernel
def _schedule(sleep: Sleep, first: int, last: int, date: float) -> None:
    """Schedules a change of neighbouring nodes, each an event of its own; the item is (number N + first) N + others."""
    nodes = len(sleep.idle)
    push(sleep.changes, date, (sleep.state[0].sequence * nodes + first) * nodes + last - first)
    sleep.state[0].sequence += last - first + 1


@part_of_kernel
def _begin(sleep: Sleep, node: int, now: float, row: int, first: int, behind: int) -> tuple[float, int, int]:
    """Returns when the boot of a node begins, and the first of the begins in a row that count then and their end."""
    begin, rate, begins = max(now, sleep.off[node]), sleep.resume_rate, sleep.begins[row]
    if rate >= 0:
        if behind == len(begins):
            for i in range(first, behind):
                begins[i - first] = begins[i]
            first, behind = 0, behind - first
        if behind - first >= rate:
            begin = max(begin, begins[first] + _MINUTE)
        place = behind
        while place > first and begins[place - 1] > begin:
            begins[place] = begins[place - 1]
            place -= 1
        begins[place] = begin
        behind += 1
        if behind - first > rate:
            first += 1
    return begin, first, behind


@part_of_kernel
def _power_on(sleep: Sleep, node: int, now: float) -> None:
    """Asks a node to boot that is not up."""
    if sleep.ready[node] < math.inf:
        return
    state = sleep.state[0]
    begin, state.begun, state.begins = _begin(sleep, node, now, 0, state.begun, state.begins)
    sleep.ready[node], sleep.boot[node] = begin + sleep.seconds[1, node], begin
    sleep.asked[state.asked] = node
    state.asked += 1


@part_of_kernel
def _suspend(ranges: HeldRanges, sleep: Sleep, now: float) -> None:
    """Switches off nodes whose time is over, as many as the rate allows."""
    state, rate, lists = sleep.state[0], sleep.suspend_rate, sleep.lists
    first, last, off, resumes = 0, -1, 0.0, math.inf
    while lists.ends[_OVER, 0] >= 0:
        if 0 <= rate <= state.recent:
            oldest = sleep.suspended[state.suspended]
            if now < oldest + _MINUTE:
                resumes = oldest + _MINUTE
                break
            state.suspended, state.recent = (state.suspended + 1) % rate, state.recent - 1
        node = lists.ends[_OVER, 0]
        remove(lists, node)
        if rate >= 0:
            sleep.suspended[(state.suspended + state.recent) % rate] = now
            state.recent += 1
        _enter(sleep, node, _GOING_DOWN, now)
        sleep.ready[node], sleep.off[node] = math.inf, now + sleep.seconds[0, node]
        if node != last + 1 or sleep.off[node] != off:
            _go_down(ranges, sleep, first, last, off)
            first, off = node, sleep.off[node]
        last = node
    _go_down(ranges, sleep, first, last, off)
    if resumes < math.inf and state.resumes == math.inf:
        state.resumes, state.resumes_number = resumes, state.sequence
        state.sequence += 1


@part_of_kernel
def _go_down(ranges: HeldRanges, sleep: Sleep, first: int, last: int, off: float) -> None:
    """Takes the cores of neighbouring nodes, if there are any, that go down until a date."""
    if first <= last:
        _schedule(sleep, first, last, off)
        remove_cores(ranges, sleep.first[first], sleep.first[last + 1] - 1)


@part_of_kernel
def _change(machine: Machine, ranges: HeldRanges, sleep: Sleep, first: int, last: int, now: float) -> None:
    """Makes the changes of neighbouring nodes that are due."""
    begin, end, ready, core, behind = 0, -1, 0.0, 0, 0
    for node in range(first, last + 1):
        if sleep.node_state[node] == _GOING_DOWN and sleep.off[node] <= now:
            _enter(sleep, node, _OFF, now)
        if sleep.node_state[node] == _OFF and sleep.ready[node] < math.inf and sleep.boot[node] <= now:
            _enter(sleep, node, _BOOTING, now)
            if node != end + 1 or sleep.ready[node] != ready:
                if begin <= end:
                    _schedule(sleep, begin, end, ready)
                begin, ready = node, sleep.ready[node]
            end = node
        if sleep.node_state[node] == _BOOTING and sleep.ready[node] <= now:
            _come_up(machine, sleep, node, now)
            if sleep.idle[node]:
                if sleep.first[node + 1] - sleep.idle[node] != behind:
                    if core < behind:
                        add_cores(ranges, core, behind - 1)
                    core = sleep.first[node + 1] - sleep.idle[node]
                behind = sleep.first[node + 1]
    if begin <= end:
        _schedule(sleep, begin, end, ready)
    if core < behind:
        add_cores(ranges, core, behind - 1)


@part_of_kernel
def _come_up(machine: Machine, sleep: Sleep, node: int, now: float) -> None:
    """Takes note that a node is up, and begins the jobs that have waited for it last."""
    _enter(sleep, node, _ON, now)
    sleep.ready[node] = 0.0
    state, entry = sleep.state[0], sleep.queue[0, node]
    while entry >= 0:
        job, following = sleep.waiting[0, entry], sleep.waiting[1, entry]
        sleep.missing[job] -= 1
        if sleep.missing[job] == 0:
            state.starting -= 1
            machine.starting_time[job] = now
            log_start(machine, job, end_or_limit(machine, job, now + machine.jobs.runtime[job]))
        sleep.waiting[1, entry], state.unused = state.unused, entry
        entry = following
    sleep.queue[0, node] = sleep.queue[1, node] = -1


@part_of_kernel
def next_change(sleep: Sleep) -> float:
    """Returns the date of the next event of nodes in seconds, infinite if there is none."""
    date, passed = sleep.state[0].resumes, sleep.state[0].passed
    if passed < sleep.state[0].timeouts:
        date = min(date, sleep.timeouts[0, passed])
    if sleep.changes.length[0]:
        date = min(date, sleep.changes.key[0])
    return date


@part_of_kernel
def change_nodes(machine: Machine, ranges: HeldRanges, sleep: Sleep, now: float) -> None:
    """Makes all events of nodes at a date, that of the next one, in the order in which they were scheduled."""
    state, nodes, changes = sleep.state[0], len(sleep.idle), sleep.changes
    squared = nodes * nodes
    machine.clock[0].now = now
    while next_change(sleep) == now:
        number, kind, passed = float(state.sequence), _RESUME, state.passed
        if state.resumes == now:
            number = float(state.resumes_number)
        if changes.length[0] and changes.key[0] == now and changes.item[0] // squared < number:
            number, kind = float(changes.item[0] // squared), _CHANGE
        if passed < state.timeouts and sleep.timeouts[0, passed] == now and sleep.timeouts[1, passed] < number:
            number, kind = sleep.timeouts[1, passed], _TIME_OUT
        if kind == _CHANGE:
            item = pop(changes)
            node = item // nodes % nodes
            _change(machine, ranges, sleep, node, node + item % nodes, now)
            continue
        # Nodes that have served a job until this very instant begin anew.
        _begin_timeouts(sleep, now)
        if kind == _TIME_OUT:
            state.passed += 1
            first = sleep.lists.ends[_TIMED, 0]
            while first >= 0 and sleep.over[first] == now and sleep.number[first] == number:
                remove(sleep.lists, first)
                insert(sleep.lists, _OVER, first, sleep.lists.ends[_OVER, 1])
                first = sleep.lists.ends[_TIMED, 0]
        else:
            state.resumes = math.inf
        _suspend(ranges, sleep, now)


@part_of_kernel
def note_freed(ranges: HeldRanges, sleep: Sleep, job: int) -> None:
    """Takes note of a job that ends."""
    state, top = sleep.state[0], ranges.cores - 1
    for i in range(ranges.begin[job], ranges.end[job]):
        core, last = top - ranges.last[i], top - ranges.first[i]
        while core <= last:
            node = sleep.node[core]
            until = min(sleep.first[node + 1] - 1, last)
            sleep.idle[node] += until - core + 1
            if sleep.idle[node] == sleep.first[node + 1] - sleep.first[node]:
                sleep.freed[node] = True
                state.lowest, state.highest = min(state.lowest, node), max(state.highest, node)
            core = until + 1


@part_of_kernel
def settle_nodes(machine: Machine, sleep: Sleep) -> None:
    """Begins the time-outs of nodes that are idle after a pass, and schedules the boots that it has asked for."""
    state = sleep.state[0]
    _begin_timeouts(sleep, machine.clock[0].now)
    begin = 0
    for i in range(1, state.asked + 1):
        first, last = sleep.asked[begin], sleep.asked[i - 1]
        if i == state.asked or sleep.asked[i] != last + 1 or sleep.boot[last + 1] != sleep.boot[first]:
            _schedule(sleep, first, last, sleep.boot[first])
            begin = i
    state.asked = 0


# Cores of nodes that are not up.


@part_of_kernel
def choose_awake_first(machine: Machine, ranges: HeldRanges, sleep: Sleep, job: int, latest: float) -> bool:
    """Chooses cores of the nodes that are up, and of the fewest others if these do not suffice.

    Of the others only those can be chosen on which the job ends by a date if they are woken; returns False if there are
    too few. `SLEEP_STATE.ready` is the time at which all are up.
    """
    state, now, size = sleep.state[0], machine.clock[0].now, machine.jobs.size[job]
    missing = size - ranges.idle.length[1]
    state.others = 0
    # Nodes that boot or were asked to, nodes that are off, nodes that go down.
    for rank in range(3):
        if missing <= 0:
            break
        for node in sleep.order:
            if sleep.node_state[node] == _ON or sleep.idle[node] == 0:
                continue
            asked = sleep.ready[node] < math.inf
            if rank != (0 if asked else (1 if sleep.node_state[node] == _OFF else 2)):
                continue
            if latest < math.inf:
                up = sleep.ready[node] if asked else max(sleep.off[node], now) + sleep.seconds[1, node]
                if up + machine.jobs.requested[job] > latest:
                    continue
            sleep.others[state.others] = node
            state.others += 1
            missing -= sleep.idle[node]
            if missing <= 0:
                break
    if missing > 0:
        state.others = 0
        return False
    for i in range(state.others):
        node = sleep.others[i]
        add_cores(ranges, sleep.first[node + 1] - sleep.idle[node], sleep.first[node + 1] - 1)
    choose_lowest(ranges, size)
    # Idle cores of lower ids are all chosen.
    behind = ranges.cores - ranges.first[ranges.state[0].chosen - 1]
    for i in range(state.others):
        last = sleep.first[sleep.others[i] + 1]
        left = max(behind, last - sleep.idle[sleep.others[i]])
        if left < last:
            remove_cores(ranges, left, last - 1)
    state.ready = _up_at(ranges, sleep, now)
    return True


@part_of_kernel
def _put_back_others(ranges: HeldRanges, sleep: Sleep) -> None:
    """Gives back cores that `choose_awake_first` has chosen."""
    behind = ranges.cores - ranges.first[ranges.state[0].chosen - 1]
    put_back(ranges)
    for i in range(sleep.state[0].others):
        last = sleep.first[sleep.others[i] + 1]
        first = last - sleep.idle[sleep.others[i]]
        if first < behind:
            remove_cores(ranges, first, min(behind, last) - 1)


@part_of_kernel
def _up_at(ranges: HeldRanges, sleep: Sleep, now: float) -> float:
    """Returns when all nodes of the chosen cores are up if those that are not are asked to boot now, in seconds."""
    state, top, latest, at, first, behind = sleep.state[0], ranges.cores - 1, now, -1, 0, -1
    for i in range(ranges.state[0].used, ranges.state[0].chosen):
        core, last = top - ranges.last[i], top - ranges.first[i]
        while core <= last:
            node = sleep.node[core]
            if node != at and sleep.node_state[node] != _ON:
                if sleep.ready[node] < math.inf:
                    latest = max(latest, sleep.ready[node])
                else:
                    if behind < 0:
                        behind = state.begins - state.begun
                        for j in range(behind):
                            sleep.begins[1, j] = sleep.begins[0, state.begun + j]
                    begin, first, behind = _begin(sleep, node, now, 1, first, behind)
                    latest = max(latest, begin + sleep.seconds[1, node])
            at = node
            core = sleep.first[node + 1]
    return latest


@part_of_kernel
def hold_nodes(machine: Machine, ranges: HeldRanges, sleep: Sleep, job: int, requested: float) -> float:
    """Takes note of a job that is to start, and wakes its nodes; returns the time until its expected end in seconds."""
    state, now, top, at, ready = sleep.state[0], machine.clock[0].now, ranges.cores - 1, -1, machine.clock[0].now
    for i in range(ranges.begin[job], ranges.end[job]):
        core, last = top - ranges.last[i], top - ranges.first[i]
        while core <= last:
            node = sleep.node[core]
            until = min(sleep.first[node + 1] - 1, last)
            sleep.idle[node] -= until - core + 1
            if node != at:
                at = node
                if sleep.node_state[node] == _ON:
                    remove(sleep.lists, node)
                else:
                    _power_on(sleep, node, now)
                    ready = max(ready, sleep.ready[node])
                    sleep.missing[job] += 1
                    entry = state.unused
                    state.unused = sleep.waiting[1, entry]
                    sleep.waiting[0, entry], sleep.waiting[1, entry] = job, -1
                    if sleep.queue[1, node] < 0:
                        sleep.queue[0, node] = entry
                    else:
                        sleep.waiting[1, sleep.queue[1, node]] = entry
                    sleep.queue[1, node] = entry
            core = until + 1
    if sleep.missing[job] == 0:
        return requested
    state.starting += 1
    machine.starting_time[job] = ready
    return (ready - now) + requested


@part_of_kernel
def next_asleep(machine: Machine, queue: RankedQueue, ranges: HeldRanges, sleep: Sleep, place: int) -> int:
    """Returns the first place from one on of a candidate that may start beside the reservation, -1 for none.

    If nodes have to wake for it, its cores are chosen then.
    """
    while True:
        place = next_ranked(machine, queue, place)
        if place < 0 or machine.rules.backfill != Backfilling.EASY:
            return place
        if _may_backfill(machine, ranges, sleep, queue.candidate[place]):
            return place
        place += 1


@part_of_kernel
def _may_backfill(machine: Machine, ranges: HeldRanges, sleep: Sleep, job: int) -> bool:
    """Returns whether a candidate may start beside the head, and takes what it needs off the extra cores."""
    clock, state, size, requested = (
        machine.clock[0],
        sleep.state[0],
        machine.jobs.size[job],
        machine.jobs.requested[job],
    )
    now, shadow = clock.now, clock.shadow
    if size <= ranges.idle.length[1]:
        if now + requested > shadow:
            clock.extra -= size
        return True
    choose_awake_first(machine, ranges, sleep, job, math.inf)
    if now + ((state.ready - now) + requested) <= shadow:
        return True
    if size <= clock.extra:
        clock.extra -= size
        return True
    _put_back_others(ranges, sleep)
    # Among nodes that would be up early enough, one by one.
    if now + requested > shadow or not choose_awake_first(machine, ranges, sleep, job, shadow):
        return False
    if now + ((state.ready - now) + requested) <= shadow:
        return True
    _put_back_others(ranges, sleep)
    return False
