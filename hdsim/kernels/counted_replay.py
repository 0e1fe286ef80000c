"""The whole replay of a stock agent on interchangeable cores without contention.

Instants, passes and their order are those of the engine; concrete cores are ranges of ranks in the order of preference.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import kernel
from hdsim.kernels.free_ranges import FreeRanges, give, take
from hdsim.kernels.heap import Heap, pop, push
from hdsim.kernels.profiles import (
    Profile,
    Releases,
    add_release,
    forward,
    head_reservation,
    longest_before,
    plan,
    remove_release,
    reserve,
)
from hdsim.kernels.queue_tree import QueueTree, enter, leave, next_fitting
from hdsim.kernels.rules import HEAD_ALONE, Backfilling
from hdsim.kernels.walltime import reaches_walltime

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Entries of `CountedReplay.rules`: backfilling algorithm, whether a head stays the head, whether there is one pass per
#: instant, number of cores.
BACKFILL, COMMIT, BATCH, CORES = range(4)
#: Entries of `CountedReplay.numbers`: arrived and queued jobs, starts, committed head, head that has the reservation,
#: first place that conservative backfilling has not planned (-1 without a plan).
ARRIVED, QUEUED, STARTED, HEAD, RESERVED, PLANNED = range(6)
#: Entries of `CountedReplay.dates`: present time, shadow time and extra cores of the reservation.
NOW, SHADOW, EXTRA = range(3)
#: Results of `replay`: its instants are used up, the ranges of cores need more space, or the replay is at its end.
PAUSED, FULL, OVER = range(3)


class CountedReplay(NamedTuple):
    """The state of a replay.

    Attributes:
        rules: (4,) see above.
        arriving: (A,) the jobs in order of their arrival, without those that are rejected.
        submission: (J,) s.
        runtime: (J,) s.
        requested: (J,) s.
        walltime: (J,) s, infinite where jobs are not killed.
        ends_in_delay: (J,) see ``Workload.ends_in_delay``.
        size: (J,) cores.
        rank: (J,) place in the order of the queue.
        place: (J,) place in the order of candidates.
        candidate: (J,) job of each place in the order of candidates.
        numbers: (6,) state.
        dates: (3,) state.
        starting_time: (J,) s, NaN before the start.
        finish_time: (J,) s, NaN before the end.
        killed: (J,) whether a started job ends at its walltime.
        started: (J,) jobs in order of their starts.
        held: (J + 1,) index of the first range of cores of each start.
        first: (R,) first rank of each of these ranges, descending for each start.
        last: (R,) last rank.
        ends: Date and number of the start of each running job.
        waiting: Queued jobs by rank, and some that backfilling has started; under conservative backfilling planned
            jobs, by start and as places in the order of candidates.
        idle: Idle cores.
        queue: Queued jobs in the order of candidates.
        releases: Expected ends of running jobs.
        profile: Unreserved cores under conservative backfilling.
    """

    rules: Ints
    arriving: Ints
    submission: Floats
    runtime: Floats
    requested: Floats
    walltime: Floats
    ends_in_delay: NDArray[np.bool_]
    size: Ints
    rank: Ints
    place: Ints
    candidate: Ints
    numbers: Ints
    dates: Floats
    starting_time: Floats
    finish_time: Floats
    killed: NDArray[np.bool_]
    started: Ints
    held: Ints
    first: NDArray[np.int32]
    last: NDArray[np.int32]
    ends: Heap
    waiting: Heap
    idle: FreeRanges
    queue: QueueTree
    releases: Releases
    profile: Profile


@kernel
def replay(state: CountedReplay, instants: int) -> int:
    """Simulates at most a number of instants.

    A reference of an array costs more than its use, so that they are taken out of the state once.
    """
    numbers, dates, batch, commit = state.numbers, state.dates, state.rules[BATCH] != 0, state.rules[COMMIT] != 0
    backfill, cores = state.rules[BACKFILL], state.rules[CORES]
    arriving, submission, runtime, requested = state.arriving, state.submission, state.runtime, state.requested
    walltime, ends_in_delay, size, rank = state.walltime, state.ends_in_delay, state.size, state.rank
    places, candidates = state.place, state.candidate
    starting_time, finish_time = state.starting_time, state.finish_time
    killed, started, held, first, last = state.killed, state.started, state.held, state.first, state.last
    ends, waiting, idle, queue, releases = state.ends, state.waiting, state.idle, state.queue, state.releases
    profile, end_date, end_count, free = state.profile, ends.key, ends.length, idle.length
    head_of, head_count, least = waiting.item, waiting.length, queue.size
    serves = backfill in HEAD_ALONE
    for _ in range(instants):
        # A pass takes at most one range for each core.
        if held[numbers[STARTED]] + cores > len(first):
            return FULL
        arrived = numbers[ARRIVED]
        arrival = submission[arriving[arrived]] if arrived < len(arriving) else math.inf
        now = min(arrival, end_date[0]) if end_count[0] else arrival
        if now == math.inf:
            return OVER
        dates[NOW] = now
        while end_count[0] and end_date[0] == now and (batch or arrival > now):
            start = pop(ends)
            job = started[start]
            finish_time[job] = now
            give(idle, first, last, held[start], held[start + 1])
            if backfill != Backfilling.NONE:
                begin = starting_time[job]
                expected = begin + requested[job]
                remove_release(releases, expected, job)
                if backfill == Backfilling.EASY:
                    numbers[RESERVED] = -1
                # A job of zero duration ends before its expected end, which is just after its start.
                if expected != now or begin == now:
                    numbers[PLANNED] = -1
            if not batch:
                break
        while arrival == now:
            job = arriving[arrived]
            arrived += 1
            numbers[QUEUED] += 1
            if serves:
                push(waiting, float(rank[job]), job)
            if backfill != Backfilling.NONE:
                enter(queue, places[job], float(size[job]), requested[job])
            if places[job] < numbers[PLANNED]:
                numbers[PLANNED] = -1
            arrival = submission[arriving[arrived]] if batch and arrived < len(arriving) else math.inf
        numbers[ARRIVED] = arrived
        if not numbers[QUEUED] or not (free[1] or commit):
            continue
        overdue = releases.length[0] > 0 and releases.end[0] <= now
        if backfill == Backfilling.CONSERVATIVE:
            if numbers[PLANNED] < 0 or overdue:
                plan(profile, releases, now, float(free[1]))
                numbers[PLANNED] = head_count[0] = 0
            else:
                forward(profile, now)
        # A pass: jobs are chosen one by one until none can start. Candidates are tried after a head that does not fit.
        serving, place, shadow, longest, extra, widest = serves, 0, math.inf, math.inf, 0.0, 0.0
        while True:
            job = -1
            if serving:
                job = numbers[HEAD]
                if job < 0:
                    while head_count[0] and not math.isnan(starting_time[head_of[0]]):
                        pop(waiting)
                    if not head_count[0]:
                        break
                    job = head_of[0]
                if size[job] <= free[1]:
                    numbers[HEAD] = -1
                    if backfill == Backfilling.EASY:
                        numbers[RESERVED] = -1
                else:
                    if commit:
                        numbers[HEAD] = job
                    # The head does not fit, so that only another job may.
                    if backfill == Backfilling.NONE or (backfill == Backfilling.EASY and least[1] > free[1]):
                        break
                    serving = False
                    if numbers[RESERVED] != job or (backfill == Backfilling.EASY and overdue):
                        dates[SHADOW], dates[EXTRA] = head_reservation(releases, now, float(free[1]), float(size[job]))
                        numbers[RESERVED] = job
                    shadow = dates[SHADOW]
                    if backfill == Backfilling.RLSCHEDULER:
                        # Jobs end strictly before the reservation, which is made once for each head.
                        shadow = np.nextafter(shadow, -math.inf)
                    else:
                        # While no job ends and the head is the same, blocked jobs stay blocked, so that the search
                        # finds submitted ones only.
                        longest = longest_before(shadow, now, 1.0)
                        extra = widest = dates[EXTRA]
                    job = -1
            elif backfill == Backfilling.CONSERVATIVE:
                job = _next_planned(queue, profile, waiting, candidates, size, requested, numbers, now, float(cores))
                if job < 0:
                    break
            if job < 0:
                place = next_fitting(queue, place, now, float(free[1]), shadow, longest, widest, extra)
                if place < 0:
                    break
                job = candidates[place]
                place += 1
                if now + requested[job] > shadow:
                    extra -= size[job]
                    dates[EXTRA] = extra
            start = numbers[STARTED]
            numbers[STARTED] = start + 1
            numbers[QUEUED] -= 1
            started[start], starting_time[job] = job, now
            held[start + 1] = take(idle, size[job], first, last, held[start])
            date, limit = now + runtime[job], now + walltime[job]
            if reaches_walltime(date, limit, ends_in_delay[job]):
                date, killed[job] = limit, True
            push(ends, date, start)
            if backfill != Backfilling.NONE:
                leave(queue, places[job])
                add_release(releases, now + requested[job], job, float(size[job]))
            if not serving and not free[1]:
                break
        if overdue:
            numbers[PLANNED] = -1
    return PAUSED


@kernel
def _next_planned(
    queue: QueueTree,
    profile: Profile,
    planned: Heap,
    candidates: Ints,
    size: Ints,
    requested: Floats,
    numbers: Ints,
    now: float,
    cores: float,
) -> int:
    """Returns the next job that starts now under conservative backfilling, -1 if there is none.

    Jobs are planned in order up to the last one that could start now. See `CountedReplay` for the arguments.
    """
    if planned.length[0] and planned.key[0] <= now:
        return candidates[pop(planned)]
    possible = -1
    while profile.free[0] > 0:
        place = numbers[PLANNED]
        if possible < place or size[candidates[possible]] > profile.free[0]:
            full = 1
            while full < profile.length[0] and profile.free[full] > 0:
                full += 1
            until = profile.times[full] if full < profile.length[0] else math.inf
            possible = next_fitting(queue, place, now, profile.free[0], until, math.inf, 0.0, 0.0)
            if possible < 0:
                break
        place = next_fitting(queue, place, now, cores, math.inf, math.inf, 0.0, 0.0)
        job = candidates[place]
        start = reserve(profile, float(size[job]), requested[job])
        numbers[PLANNED] = place + 1
        if start <= now:
            return job
        push(planned, start, place)
    return -1
