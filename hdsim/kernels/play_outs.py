"""Play-outs of a decision: the rest of a replay on interchangeable cores for each candidate in each scenario.

The schedule is that of :mod:`hdsim.kernels.counted_replay` from a chosen head on. Only dates are kept, no core ids, and
queues are short sorted arrays, so that a play-out of a hundred jobs takes tens of microseconds.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import kernel
from hdsim.kernels.counted_replay import EASY, NONE, RLSCHEDULER
from hdsim.kernels.heap import Heap, make_heap, pop, push
from hdsim.kernels.profiles import ROUNDED_UP, Releases, add_release, head_reservation, make_releases, remove_release

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
#: Scores of jobs in O orders, (O, S, N).
Table = NDArray[np.float64]

#: A plan of no orders.
NO_PLAN, NO_KEYS = np.zeros(0, np.int64), np.zeros((0, 0, 0))
#: Costs of a job of which the mean is taken.
BOUNDED_SLOWDOWN, WAITING_TIME, TURNAROUND_TIME = range(3)
#: Threshold of the bounded slowdown in seconds; kernels import nothing from higher layers.
TAU = 10.0


class Scenarios(NamedTuple):
    """Jobs of a play-out in S scenarios: R running ones, then Q queued ones, then arrivals; N in all.

    Attributes:
        running: Number of running jobs.
        queued: Number of queued jobs, in order of submission.
        started: (R,) starts of the running jobs in seconds.
        submission: (S, N) seconds, ascending for arrivals, which are later than now.
        runtime: (S, N) seconds, above 0; of a running job the whole run time, so that its end is later than now.
        requested: (S, N) seconds.
        size: (S, N) cores.
        key: (S, N) score in the order of the queue, ties in order of the jobs.
    """

    running: int
    queued: int
    started: Floats
    submission: Floats
    runtime: Floats
    requested: Floats
    size: Ints
    key: Floats


@kernel
def mean_cost(objective: int, submission: Floats, start: Floats, finish: Floats) -> float:
    """Returns the mean cost of the jobs that have ended; see the constants above.

    Args:
        objective: The cost.
        submission: (N,) seconds.
        start: (N,) seconds; the arrays may be longer, also the next.
        finish: (N,) seconds, NaN for a job that has not ended.
    """
    total, count = 0.0, 0
    for job in range(len(submission)):
        if math.isnan(finish[job]):
            continue
        count += 1
        if objective == WAITING_TIME:
            total += start[job] - submission[job]
        elif objective == TURNAROUND_TIME:
            total += finish[job] - submission[job]
        else:
            total += max(1.0, (finish[job] - submission[job]) / max(finish[job] - start[job], TAU))
    return total / count


class Situation(NamedTuple):
    """The present and the rules.

    Attributes:
        backfill: ``NONE``, ``EASY`` or ``RLSCHEDULER`` of :mod:`hdsim.kernels.counted_replay`.
        commit: A head stays the head until it starts, as the given ones do in any case.
        batch: One pass per instant; otherwise one per event, ends first, as in a fork with arrivals.
        now: Present time in seconds.
        idle: Idle cores.
    """

    backfill: int
    commit: bool
    batch: bool
    now: float
    idle: int


class Space(NamedTuple):
    """Space for a play-out of N jobs.

    Attributes:
        ends: Ends of running jobs.
        releases: Their expected ends.
        item: (N,) the job of each start.
        order: (N,) queued jobs in order.
        line: (N,) waiting jobs in order.
        early: (N,) waiting jobs in order of submission.
        start: (N,) seconds, NaN before the start.
        finish: (N,) seconds, NaN before the start.
    """

    ends: Heap
    releases: Releases
    item: Ints
    order: Ints
    line: Ints
    early: Ints
    start: Floats
    finish: Floats


def make_space(n: int) -> Space:
    """Returns space for a play-out of `n` jobs."""
    numbers, dates = np.empty((4, n), np.int64), np.empty((2, n))
    return Space(make_heap(n), make_releases(n), *numbers, *dates)


@kernel
def sort_queue(jobs: Scenarios, space: Space) -> None:
    """Fills the order of the queued jobs."""
    first, behind = jobs.running, jobs.running + jobs.queued
    space.order[: jobs.queued] = first + np.argsort(jobs.key[0, first:behind], kind="mergesort")


@kernel
def first_starts(situation: Situation, heads: Ints, jobs: Scenarios, space: Space) -> NDArray[np.bool_]:
    """Returns the (C, Q) queued jobs that start now behind each of (C,) heads, which are places in the queue."""
    started = np.zeros((len(heads), jobs.queued), np.bool_)
    sort_queue(jobs, space)
    for c in range(len(heads)):
        play_out(situation, jobs.running + heads[c], NO_PLAN, NO_KEYS, jobs, 0, space, False)
        for place in range(jobs.queued):
            started[c, place] = not math.isnan(space.start[jobs.running + place])
    return started


@kernel
def play_outs(
    objective: int, situation: Situation, heads: Ints, jobs: Scenarios, first: int, last: int, space: Space
) -> Floats:
    """Returns the (C, last - first) mean costs of candidates in some scenarios.

    Args:
        objective: See :func:`mean_cost`.
        situation: The present.
        heads: (C,) candidates, places among the queued jobs.
        jobs: The jobs.
        first: First scenario.
        last: The one behind the last scenario.
        space: Space for N jobs.
    """
    cost = np.empty((len(heads), last - first))
    sort_queue(jobs, space)
    for s in range(first, last):
        for c in range(len(heads)):
            play_out(situation, jobs.running + heads[c], NO_PLAN, NO_KEYS, jobs, s, space, True)
            cost[c, s - first] = mean_cost(objective, jobs.submission[s], space.start, space.finish)
    return cost


@kernel
def behind(cost: Floats) -> NDArray[np.bool_]:
    """Returns which of (C,) candidates are clearly worse than the best one.

    The mean of the paired difference of their (C, S) costs is above two of its standard errors.
    """
    candidates, scenarios = cost.shape
    worse = np.zeros(candidates, np.bool_)
    best = 0
    for c in range(1, candidates):
        if cost[c].sum() < cost[best].sum():
            best = c
    for c in range(candidates):
        more = cost[c] - cost[best]
        mean = more.mean()
        worse[c] = mean > 0 and mean**2 * scenarios * (scenarios - 1) > 4 * ((more - mean) ** 2).sum()
    return worse


@kernel
def first_of(key: Floats, waiting: Ints) -> int:
    """Returns the waiting job of the least key, ties in order of the jobs."""
    found = waiting[0]
    for job in waiting:
        if key[job] < key[found] or (key[job] == key[found] and job < found):
            found = job
    return found


@kernel
def play_out(
    situation: Situation,
    head: int,
    plan: Ints,
    keys: Table,
    jobs: Scenarios,
    scenario: int,
    space: Space,
    whole: bool,
) -> None:
    """Fills starts and finishes of a scenario, or only of the present instant.

    Behind the first head, each order of the plan chooses heads until one that it chose has started; then the order of
    the queue does. Waiting jobs are `line[first:last]` in order of the queue and `early[:waiting]` in order of
    submission; the latter are those that RLScheduler's backfilling tries.
    """
    backfill, commit, batch, now, idle = situation
    ends, releases, item, order, line, early, start, finish = space
    submission, runtime, requested = jobs.submission[scenario], jobs.runtime[scenario], jobs.requested[scenario]
    size, key = jobs.size[scenario], jobs.key[scenario]
    n, coming, strict = len(size), jobs.running + jobs.queued, backfill == RLSCHEDULER
    ends.length[0] = releases.length[0] = 0
    for job in range(jobs.running):
        # Ends at one date are in order of starts.
        item[job], start[job] = job, jobs.started[job]
        finish[job] = start[job] + runtime[job]
        push(ends, finish[job], job)
        if backfill != NONE:
            add_release(releases, start[job] + requested[job], job, float(size[job]))
    for job in range(jobs.running, n):
        start[job] = finish[job] = math.nan
    for place in range(jobs.queued):
        line[place], early[place] = order[place], jobs.running + place
    first, last, waiting, reserved, shadow, extra, starts = 0, jobs.queued, jobs.queued, -1, 0.0, 0.0, jobs.running
    longest, chosen, stage, planned = 0.0, True, 0, -1
    while True:
        # A pass: heads start until one does not fit, then backfilling starts others.
        place = -1
        if not (commit or chosen):
            head = -1
        while first < last and (idle or commit or place >= 0):
            serving, job = place < 0, -1
            if serving:
                if head < 0:
                    if planned >= 0 and not math.isnan(start[planned]):
                        stage, planned = stage + 1, -1
                    if stage < len(plan):
                        head = planned = first_of(keys[plan[stage], scenario], line[first:last])
                    else:
                        head = line[first]
                if size[head] <= idle:
                    job, head, chosen = head, -1, False
                    if backfill == EASY:
                        reserved = -1
                    place_in_line = first
                    while line[place_in_line] != job:
                        place_in_line += 1
                else:
                    if backfill == NONE:
                        break
                    overdue = releases.length[0] > 0 and releases.end[0] <= now
                    if reserved != head or (backfill == EASY and overdue):
                        shadow, extra = head_reservation(releases, now, float(idle), float(size[head]))
                        reserved = head
                    longest = (shadow - now) * ROUNDED_UP if shadow > now else 0.0
                    place = 0 if strict else first
                    continue
            else:
                if idle == 0:
                    break
                if strict:
                    while place < waiting:
                        job = early[place]
                        if size[job] <= idle and now + requested[job] < shadow:
                            break
                        place += 1
                    if place == waiting:
                        break
                    place_in_line = first
                    while line[place_in_line] != job:
                        place_in_line += 1
                else:
                    while place < last:
                        job = line[place]
                        if size[job] <= idle and (
                            size[job] <= extra or (now + requested[job] <= shadow and requested[job] <= longest)
                        ):
                            break
                        place += 1
                    if place == last:
                        break
                    place_in_line = place
                    if now + requested[job] > shadow:
                        extra -= size[job]
            # A start.
            if place_in_line == first:
                first += 1
                if not serving and not strict:
                    place += 1
            else:
                last -= 1
                for i in range(place_in_line, last):
                    line[i] = line[i + 1]
            if strict:
                at = 0
                while early[at] != job:
                    at += 1
                waiting -= 1
                for i in range(at, waiting):
                    early[i] = early[i + 1]
            idle -= size[job]
            start[job], finish[job] = now, now + runtime[job]
            push(ends, finish[job], starts)
            item[starts] = job
            starts += 1
            if backfill != NONE:
                add_release(releases, now + requested[job], job, float(size[job]))
        if starts == n or not whole:
            return
        arrival = submission[coming] if coming < n else math.inf
        now = min(arrival, ends.key[0]) if ends.length[0] else arrival
        while ends.length[0] and ends.key[0] == now:
            job = item[pop(ends)]
            idle += size[job]
            if backfill != NONE:
                remove_release(releases, start[job] + requested[job], job)
                if backfill == EASY:
                    reserved = -1
            if not batch:
                # Arrivals at this instant have a pass of their own.
                arrival = math.inf
                break
        while arrival == now:
            low, high = first, last
            while low < high:
                middle = (low + high) // 2
                if key[line[middle]] <= key[coming]:
                    low = middle + 1
                else:
                    high = middle
            for i in range(last, low, -1):
                line[i] = line[i - 1]
            line[low] = coming
            last += 1
            early[waiting] = coming
            waiting += 1
            coming += 1
            arrival = submission[coming] if batch and coming < n else math.inf
