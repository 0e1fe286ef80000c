"""Queued jobs of a play-out: short sorted arrays, and a plan of the orders that choose the next heads.

Ends of running jobs are in such an array, too, instead of a heap.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import part_of_kernel
from hdsim.kernels.heap import Heap
from hdsim.scheduling.kernels.profiles import may_start
from hdsim.scheduling.machine.state import Floats, Ints, Machine
from hdsim.scheduling.rules import Backfilling

#: Scores of jobs in O orders, (O, N).
Table = NDArray[np.float64]

#: Places in the arrays, and what has become of the plan.
LINE = np.dtype(
    [
        ("first", "i8"),  # first place in `ShortQueue.line`
        ("last", "i8"),  # place behind the last one
        ("untried", "i8"),  # first candidate that has not been tried since a job ended or the head changed
        ("at", "i8"),  # place in the line from which on the chosen job is found
        ("early_at", "i8"),  # and in order of submission
        ("stage", "i8"),  # place in the plan
        ("planned", "i8"),  # head that the order of this stage has chosen, -1 for none
    ],
    align=True,
)


class ShortQueue(NamedTuple):
    """Queued jobs of a play-out of N jobs, Q of which wait at its begin.

    Attributes:
        state: (1,) of type `LINE`.
        line: (2 N,) waiting jobs in order, from `first` to `last` - 1.
        line_key: (2 N,) their scores.
        early: (N,) waiting jobs in order of submission, with RLScheduler's backfilling.
        key: (N,) score in the order of the queue, ties in order of the jobs.
        plan: (P,) orders that choose heads, each until one that it chose has started; then the queue's does.
        keys: (O, N) scores of all jobs in these orders.
    """

    state: Any
    line: Ints
    line_key: Floats
    early: Ints
    key: Floats
    plan: Ints
    keys: Table


@part_of_kernel
def in_submission_order(machine: Machine) -> bool:
    """Returns whether candidates are tried in order of submission."""
    return machine.rules.backfill == Backfilling.RLSCHEDULER


@part_of_kernel
def fill_short(queue: ShortQueue, first: int, order: Ints) -> None:
    """Lets (Q,) jobs from number `first` on wait, whose order is given, before the first event."""
    state, middle = queue.state[0], len(queue.key)
    for place in range(len(order)):
        queue.early[place], queue.line[middle + place] = first + place, order[place]
        queue.line_key[middle + place] = queue.key[order[place]]
    state.first, state.last = middle, middle + len(order)
    state.untried, state.stage, state.planned = 0, 0, -1


@part_of_kernel
def insert_end(ends: Heap, date: float, item: int) -> None:
    """Adds an end to those in order, the last one first; of ends at one date the latest start is first."""
    key, items, place = ends.key, ends.item, ends.length[0]
    ends.length[0] = place + 1
    while place > 0 and key[place - 1] <= date:
        key[place], items[place] = key[place - 1], items[place - 1]
        place -= 1
    key[place], items[place] = date, item


@part_of_kernel
def enter_short(machine: Machine, queue: ShortQueue, job: int) -> None:
    """Adds a job that has arrived."""
    state, line, line_key, key = queue.state[0], queue.line, queue.line_key, queue.key[job]
    first, last, untried, by_submission = state.first, state.last, state.untried, in_submission_order(machine)
    # The shorter part of the line makes room.
    if first < last and key < line_key[(first + last) // 2]:
        first -= 1
        at = first
        if not by_submission:
            untried -= 1
        while line_key[at + 1] <= key:
            line[at], line_key[at] = line[at + 1], line_key[at + 1]
            at += 1
        state.first = first
    else:
        at = last
        while at > first and line_key[at - 1] > key:
            line[at], line_key[at] = line[at - 1], line_key[at - 1]
            at -= 1
        state.last = last + 1
    line[at], line_key[at] = job, key
    waiting = machine.clock[0].queued
    queue.early[waiting] = job
    state.untried = min(untried, waiting if by_submission else at)


@part_of_kernel
def leave_short(machine: Machine, queue: ShortQueue, job: int) -> None:
    """Removes a job that starts."""
    state, line, line_key, early = queue.state[0], queue.line, queue.line_key, queue.early
    at, first = state.at, state.first
    while line[at] != job:
        at += 1
    for i in range(at, first, -1):
        line[i], line_key[i] = line[i - 1], line_key[i - 1]
    state.first = first + 1
    if in_submission_order(machine):
        at = state.early_at
        while early[at] != job:
            at += 1
        for i in range(at, machine.clock[0].queued):
            early[i] = early[i + 1]


@part_of_kernel
def first_of(key: Floats, line: Ints, first: int, last: int) -> int:
    """Returns the job of `line[first:last]` of the least key, ties in order of the jobs."""
    found = line[first]
    for place in range(first + 1, last):
        job = line[place]
        if key[job] < key[found] or (key[job] == key[found] and job < found):
            found = job
    return found


@part_of_kernel
def first_short(machine: Machine, queue: ShortQueue) -> int:
    """Returns the next head by the plan or the order of the queue."""
    state = queue.state[0]
    if len(queue.plan):
        if state.planned >= 0 and not math.isnan(machine.starting_time[state.planned]):
            state.stage, state.planned = state.stage + 1, -1
        if state.stage < len(queue.plan):
            state.planned = first_of(queue.keys[queue.plan[state.stage]], queue.line, state.first, state.last)
            return state.planned
    return queue.line[state.first]


@part_of_kernel
def next_short(machine: Machine, queue: ShortQueue, place: int) -> int:
    """Returns the first place from one on of a candidate that may start beside the reservation, -1 for none."""
    clock, jobs, state = machine.clock[0], machine.jobs, queue.state[0]
    by_submission = in_submission_order(machine)
    tried, last = (queue.early, clock.queued) if by_submission else (queue.line, state.last)
    idle, now, shadow, longest, widest, extra = (
        clock.idle,
        clock.now,
        clock.shadow,
        clock.longest,
        clock.widest,
        clock.extra,
    )
    while place < last:
        job = tried[place]
        if may_start(jobs.size[job], jobs.requested[job], now, idle, shadow, longest, widest, extra):
            state.at, state.early_at = state.first if by_submission else place, place
            return place
        place += 1
    return -1
