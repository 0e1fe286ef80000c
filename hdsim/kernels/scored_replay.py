"""The whole replay of the order ``learned`` on interchangeable cores without contention.

Instants, passes and their order are those of :mod:`hdsim.kernels.counted_replay`, but queued jobs are scored anew at
every pass that can start one, and after every start if asked for. Cores have no ids here: `hold_cores` gives them out
afterwards.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import kernel
from hdsim.kernels.counted_replay import (
    ARRIVED,
    BACKFILL,
    BATCH,
    COMMIT,
    CORES,
    EXTRA,
    HEAD,
    NOW,
    OVER,
    PAUSED,
    QUEUED,
    RESERVED,
    SHADOW,
    STARTED,
)
from hdsim.kernels.free_ranges import FreeRanges, give, take
from hdsim.kernels.heap import Heap, pop, push
from hdsim.kernels.learned_scores import LOG_TIME, learned_scores
from hdsim.kernels.like_jobs import expect, note_end
from hdsim.kernels.profiles import Releases, add_release, head_reservation, longest_before, remove_release
from hdsim.kernels.rules import Backfilling
from hdsim.kernels.walltime import reaches_walltime

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Entries of `ScoredReplay.numbers` behind the five first of `counted_replay`: idle cores, changes, checks of the past.
IDLE, CHANGES, CHECKS = range(5, 8)
#: Entry of `ScoredReplay.rules` behind those of `counted_replay`: jobs are scored after every start.
AFTER_START = 4
#: Result of `scored_replay` besides those of `counted_replay`: the past is to be checked before the next instant.
CHECK = 3
#: Submitted jobs from one check of the past to the next.
PERIOD = 128


class ScoredReplay(NamedTuple):
    """The state of a replay.

    Attributes:
        rules: (5,) see `counted_replay`, also for the dates.
        networks: (N, WEIGHTS) weights, see :func:`hdsim.kernels.learned_scores.learned_scores`.
        followed: (J // PERIOD + 1,) network in use after each check.
        errors: (J // PERIOD + 1, 2) what each check found of requested times, see `learned_scores`.
        arriving: (A,) the jobs in order of their arrival, without those that are rejected.
        arrival: (J,) s, the submission but for jobs that a warm start releases.
        submission: (J,) s.
        runtime: (J,) s.
        requested: (J,) s.
        walltime: (J,) s, infinite where jobs are not killed.
        ends_in_delay: (J,) see ``Workload.ends_in_delay``.
        size: (J,) cores.
        sums: (J + 1, 9) see :func:`hdsim.kernels.learned_scores.past_sums`; what is expected of jobs changes in it.
        expected: (J,) s, run times by which jobs are scored, see :mod:`hdsim.kernels.like_jobs`.
        kind: (J,) see there, -1 where jobs are scored by requested times.
        latest: (K, 6) see there.
        numbers: (8,) state.
        dates: (3,) state.
        starting_time: (J,) s, NaN before the start.
        finish_time: (J,) s, NaN before the end.
        killed: (J,) whether a started job ends at its walltime.
        queue: (J,) queued jobs in order of submission.
        score: (J,) their scores of the present pass.
        started: (J,) jobs in order of their starts.
        changes: (2 J,) for every start -1 and for every end the number of the start, in order.
        ends: Date and number of the start of each running job.
        releases: Expected ends of running jobs.
    """

    rules: Ints
    networks: Floats
    followed: Ints
    errors: Floats
    arriving: Ints
    arrival: Floats
    submission: Floats
    runtime: Floats
    requested: Floats
    walltime: Floats
    ends_in_delay: NDArray[np.bool_]
    size: Ints
    sums: Floats
    expected: Floats
    kind: Ints
    latest: Floats
    numbers: Ints
    dates: Floats
    starting_time: Floats
    finish_time: Floats
    killed: NDArray[np.bool_]
    queue: Ints
    score: Floats
    started: Ints
    changes: Ints
    ends: Heap
    releases: Releases


@kernel
def one_fits(queue: Ints, waiting: int, size: Ints, idle: int) -> bool:
    """Returns whether a queued job has enough idle cores."""
    for i in range(waiting):  # noqa: SIM110 (kernels have no generators)
        if size[queue[i]] <= idle:
            return True
    return False


@kernel
def scored_replay(state: ScoredReplay, instants: int) -> int:
    """Simulates at most a number of instants; returns ``PAUSED``, ``OVER`` or ``CHECK``."""
    numbers, dates, batch, commit = state.numbers, state.dates, state.rules[BATCH] != 0, state.rules[COMMIT] != 0
    backfill, cores, after_start = state.rules[BACKFILL], float(state.rules[CORES]), state.rules[AFTER_START] != 0
    networks, followed, errors = state.networks, state.followed, state.errors
    arriving, dated, submission = state.arriving, state.arrival, state.submission
    runtime, requested = state.runtime, state.requested
    walltime, ends_in_delay, size, sums = state.walltime, state.ends_in_delay, state.size, state.sums
    starting_time, finish_time, killed, changes = state.starting_time, state.finish_time, state.killed, state.changes
    expected, kind, latest = state.expected, state.kind, state.latest
    queue, score, started, ends, releases = state.queue, state.score, state.started, state.ends, state.releases
    for _ in range(instants):
        arrived, waiting = numbers[ARRIVED], numbers[QUEUED]
        arrival = dated[arriving[arrived]] if arrived < len(arriving) else math.inf
        now = min(arrival, ends.key[0]) if ends.length[0] else arrival
        if now == math.inf:
            return OVER
        if now == arrival:
            last = arrived
            while batch and last + 1 < len(arriving) and dated[arriving[last + 1]] == now:
                last += 1
            if (arriving[last] + 1) // PERIOD > numbers[CHECKS]:
                return CHECK
        dates[NOW] = now
        while ends.length[0] and ends.key[0] == now and (batch or arrival > now):
            start = pop(ends)
            job = started[start]
            finish_time[job] = now
            numbers[IDLE] += size[job]
            changes[numbers[CHANGES]] = start
            numbers[CHANGES] += 1
            remove_release(releases, starting_time[job] + requested[job], job)
            note_end(latest, kind, job, starting_time[job], now)
            if backfill == Backfilling.EASY:
                numbers[RESERVED] = -1
            if not batch:
                break
        while arrival == now:
            queue[waiting] = arriving[arrived]
            waiting += 1
            arrived += 1
            arrival = dated[arriving[arrived]] if batch and arrived < len(arriving) else math.inf
        numbers[ARRIVED], numbers[QUEUED] = arrived, waiting
        head, idle = numbers[HEAD], numbers[IDLE]
        # The order matters for a new head and for backfilling with EASY, where a job can start.
        needed = head < 0 and commit and waiting > 0
        if head < 0 or size[head] <= idle or backfill == Backfilling.EASY:
            needed = needed or one_fits(queue, waiting, size, idle)
        if not needed and (backfill != Backfilling.RLSCHEDULER or head < 0):
            continue
        # A pass: jobs are chosen one by one until none can start. Candidates are tried after a head that does not fit.
        serving, longest = True, 0.0
        while waiting:
            if needed:
                # The latest of the queued jobs may just have been started.
                checked = (queue[waiting - 1] + 1) // PERIOD
                expect(queue, waiting, kind, latest, requested, expected, sums[:, LOG_TIME])
                learned_scores(
                    networks[followed[checked]], cores, backfill, now, float(idle), queue, waiting, submission,
                    expected, size, sums, errors[checked], releases, score,
                )  # fmt: skip
                needed = False
            place = -1
            if serving:
                if head >= 0:
                    place = 0
                    while queue[place] != head:
                        place += 1
                else:
                    place = 0
                    for i in range(1, waiting):
                        if score[i] < score[place]:
                            place = i
                job = queue[place]
                if size[job] <= idle:
                    head = -1
                    if backfill == Backfilling.EASY:
                        numbers[RESERVED] = -1
                else:
                    if commit:
                        head = job
                    if backfill == Backfilling.NONE:
                        break
                    serving = False
                    overdue = releases.length[0] > 0 and releases.end[0] <= now
                    if numbers[RESERVED] != job or (backfill == Backfilling.EASY and overdue):
                        dates[SHADOW], dates[EXTRA] = head_reservation(releases, now, float(idle), float(size[job]))
                        numbers[RESERVED] = job
                    longest = longest_before(dates[SHADOW], now, 1.0)
                    continue
            else:
                shadow, extra = dates[SHADOW], dates[EXTRA]
                if backfill == Backfilling.RLSCHEDULER:
                    # In order of submission, and ends are strictly before the reservation.
                    for i in range(waiting):
                        if size[queue[i]] <= idle and now + requested[queue[i]] < shadow:
                            place = i
                            break
                else:
                    for i in range(waiting):
                        job = queue[i]
                        if size[job] > idle or (place >= 0 and score[i] >= score[place]):
                            continue
                        if size[job] <= extra or (now + requested[job] <= shadow and requested[job] <= longest):
                            place = i
                if place < 0:
                    break
                job = queue[place]
                if now + requested[job] > shadow:
                    dates[EXTRA] -= size[job]
            waiting -= 1
            for i in range(place, waiting):
                queue[i] = queue[i + 1]
                score[i] = score[i + 1]
            idle -= size[job]
            start = numbers[STARTED]
            numbers[STARTED] = start + 1
            started[start], starting_time[job] = job, now
            changes[numbers[CHANGES]] = -1
            numbers[CHANGES] += 1
            date, limit = now + runtime[job], now + walltime[job]
            if reaches_walltime(date, limit, ends_in_delay[job]):
                date, killed[job] = limit, True
            push(ends, date, start)
            add_release(releases, now + requested[job], job, float(size[job]))
            # Without commitment a head that cannot start, beside jobs that cannot, has no effect.
            needed = after_start and serving and commit and waiting > 0
            if after_start and (serving or backfill == Backfilling.EASY):
                needed = needed or one_fits(queue, waiting, size, idle)
        numbers[QUEUED], numbers[HEAD], numbers[IDLE] = waiting, head, idle
    return PAUSED


@kernel
def hold_cores(
    changes: Ints, size: Ints, held: Ints, first: NDArray[np.int32], last: NDArray[np.int32], idle: FreeRanges
) -> bool:
    """Gives out ranges of cores in the order of starts and ends; False if the ranges need more space.

    Args:
        changes: (N,) for every start -1 and for every end the number of the start.
        size: (S,) cores of each start.
        held: (S + 1,) receives the index of the first range of each start.
        first: (R,) receives the first rank of each range.
        last: (R,) receives the last rank.
        idle: All cores.
    """
    start = 0
    for change in changes:
        if change >= 0:
            give(idle, first, last, held[change], held[change + 1])
        elif held[start] + size[start] > len(first):
            return False
        else:
            held[start + 1] = take(idle, size[start], first, last, held[start])
            start += 1
    return True
