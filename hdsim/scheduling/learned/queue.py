"""Queued jobs in the order ``learned``: scored anew at every pass that can start one, and after starts if asked for."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hdsim.kernels.compiling import part_of_kernel
from hdsim.scheduling.kernels.profiles import may_start
from hdsim.scheduling.learned.like_jobs import expect
from hdsim.scheduling.learned.network import LOG_TIME, learned_scores
from hdsim.scheduling.machine.state import Floats, Ints, Machine
from hdsim.scheduling.rules import Backfilling

#: Submitted jobs from one check of the past to the next.
PERIOD = 128
#: Scoring.
SCORING = np.dtype(
    [
        ("after_start", "?"),  # jobs are scored after every start
        ("stale", "?"),  # they are to be scored before the next choice
        ("checks", "i8"),  # checks of the past so far
    ],
    align=True,
)


class ScoredQueue(NamedTuple):
    """Queued jobs, and what they are scored by.

    Attributes:
        scoring: (1,) of type `SCORING`.
        networks: (N, WEIGHTS) weights, see :func:`hdsim.scheduling.learned.network.learned_scores`.
        followed: (J // PERIOD + 1,) network in use after each check.
        errors: (J // PERIOD + 1, 2) what each check found of requested times, see `learned_scores`.
        submission: (J,) s, the arrival but for jobs that a warm start releases.
        sums: (J + 1, 9) see :func:`hdsim.scheduling.learned.network.past_sums`; what is expected of jobs changes in it.
        expected: (J,) s, run times by which jobs are scored, see :mod:`hdsim.scheduling.learned.like_jobs`.
        kind: (J,) see there, -1 where jobs are scored by requested times.
        latest: (K, 6) see there.
        job: (J + 1,) queued jobs in order of submission.
        score: (J + 1,) their scores.
    """

    scoring: Any
    networks: Floats
    followed: Ints
    errors: Floats
    submission: Floats
    sums: Floats
    expected: Floats
    kind: Ints
    latest: Floats
    job: Ints
    score: Floats


@part_of_kernel
def one_fits(machine: Machine, queue: ScoredQueue) -> bool:
    """Returns whether a queued job has enough idle cores."""
    size, idle = machine.jobs.size, machine.clock[0].idle
    for i in range(machine.clock[0].queued):  # noqa: SIM110 (kernels have no generators)
        if size[queue.job[i]] <= idle:
            return True
    return False


@part_of_kernel
def is_check_due(machine: Machine, queue: ScoredQueue, now: float, arrival: float) -> bool:
    """Returns whether the jobs that arrive next complete a period.

    Args:
        machine: The state.
        queue: The queued jobs.
        now: The next instant in seconds.
        arrival: The next arrival in seconds.
    """
    if now != arrival:
        return False
    arriving, last = machine.arriving, machine.clock[0].arrived
    while machine.rules.batch and last + 1 < len(arriving) and machine.jobs.arrival[arriving[last + 1]] == now:
        last += 1
    return (arriving[last] + 1) // PERIOD > queue.scoring[0].checks


@part_of_kernel
def is_pass_due(machine: Machine, queue: ScoredQueue) -> bool:
    """Returns whether a pass may start a job or reserve cores, and marks scores that it needs as stale.

    The order matters for a new head and for other jobs with EASY or greedy backfilling, where a job can start.
    """
    clock, rules = machine.clock[0], machine.rules
    head = clock.head
    stale = head < 0 and rules.commit and clock.queued > 0
    if head < 0 or machine.jobs.size[head] <= clock.idle or rules.backfill == Backfilling.EASY:
        stale = stale or one_fits(machine, queue)
    queue.scoring[0].stale = stale
    return stale or (rules.backfill == Backfilling.RLSCHEDULER and head >= 0)


@part_of_kernel
def renew_scores(machine: Machine, queue: ScoredQueue) -> None:
    """Scores the queued jobs if scores are stale."""
    if not queue.scoring[0].stale:
        return
    clock, jobs, queued = machine.clock[0], machine.jobs, machine.clock[0].queued
    # The latest of the queued jobs may just have been started.
    checked = (queue.job[queued - 1] + 1) // PERIOD
    expect(queue.job, queued, queue.kind, queue.latest, jobs.requested, queue.expected, queue.sums[:, LOG_TIME])
    learned_scores(
        queue.networks[queue.followed[checked]],
        float(machine.rules.cores),
        machine.rules.backfill,
        clock.now,
        float(clock.idle),
        queue.job,
        queued,
        queue.submission,
        queue.expected,
        jobs.size,
        queue.sums,
        queue.errors[checked],
        machine.releases,
        queue.score,
    )
    queue.scoring[0].stale = False


@part_of_kernel
def enter_scored(machine: Machine, queue: ScoredQueue, job: int) -> None:
    """Adds a job that has arrived."""
    queue.job[machine.clock[0].queued] = job


@part_of_kernel
def leave_scored(machine: Machine, queue: ScoredQueue, job: int, serving: bool) -> None:
    """Removes a job that starts, as a head or not, and marks scores that the next choice needs as stale."""
    clock, rules, scoring, place = machine.clock[0], machine.rules, queue.scoring[0], 0
    while queue.job[place] != job:
        place += 1
    for i in range(place, clock.queued):
        queue.job[i], queue.score[i] = queue.job[i + 1], queue.score[i + 1]
    # Without commitment a head that cannot start, beside jobs that cannot, has no effect.
    stale = scoring.after_start and serving and rules.commit and clock.queued > 0
    if scoring.after_start and (serving or rules.backfill in (Backfilling.EASY, Backfilling.GREEDY)):
        stale = stale or one_fits(machine, queue)
    scoring.stale = stale


@part_of_kernel
def first_scored(machine: Machine, queue: ScoredQueue) -> int:
    """Returns the queued job of the lowest score, of which there is one."""
    place = 0
    for i in range(1, machine.clock[0].queued):
        if queue.score[i] < queue.score[place]:
            place = i
    return queue.job[place]


@part_of_kernel
def next_scored(machine: Machine, queue: ScoredQueue) -> int:
    """Returns the next candidate that may start beside the reservation, -1 for none.

    It is the one of the lowest score, with RLScheduler's rule the first one in order of submission.
    """
    clock, jobs, best = machine.clock[0], machine.jobs, -1
    for i in range(clock.queued):
        job = queue.job[i]
        if may_start(
            jobs.size[job],
            jobs.requested[job],
            clock.now,
            clock.idle,
            clock.shadow,
            clock.longest,
            clock.widest,
            clock.extra,
        ) and (best < 0 or queue.score[i] < queue.score[best]):
            best = i
            if machine.rules.backfill == Backfilling.RLSCHEDULER:
                break
    return queue.job[best] if best >= 0 else -1
