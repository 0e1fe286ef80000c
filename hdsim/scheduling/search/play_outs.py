"""Play-outs of a decision: the rest of a replay on interchangeable cores for each candidate in each scenario.

The schedule is that of :mod:`hdsim.scheduling.machine.loop` from a chosen head on. Queues are short sorted arrays, so
that a play-out of a hundred jobs takes a few microseconds.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import kernel, lean_kernel
from hdsim.kernels.heap import Heap
from hdsim.kernels.references import by_reference
from hdsim.scheduling.kernels.profiles import Releases, add_release
from hdsim.scheduling.machine.loop import next_instant, schedule
from hdsim.scheduling.machine.short_queue import LINE, ShortQueue, Table, fill_short
from hdsim.scheduling.machine.state import CLOCK, JobColumns, Machine, Rules
from hdsim.scheduling.rules import TAU, Backfilling
from hdsim.scheduling.search.scenarios import Future

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
#: A plan of no orders.
NO_PLAN, NO_KEYS = np.zeros(0, np.int64), np.zeros((0, 0))
#: Costs of a job of which the mean is taken.
BOUNDED_SLOWDOWN, WAITING_TIME, TURNAROUND_TIME = range(3)
#: The means by metric.
MEAN_COSTS = {
    "mean_bounded_slowdown": BOUNDED_SLOWDOWN,
    "mean_waiting_time": WAITING_TIME,
    "mean_turnaround_time": TURNAROUND_TIME,
}


class Decision(NamedTuple):
    """The jobs that run and wait, and what is known of them and of earlier ones.

    Attributes:
        running: (R,) running jobs in order of their starts.
        started: (R,) starts of these in seconds.
        queued: (Q,) queued jobs in order of submission.
        submission: (J,) seconds.
        requested: (J,) seconds.
        size: (J,) cores.
        score: (J,) score in the order of the queue, ties in order of the jobs.
    """

    running: Ints
    started: Floats
    queued: Ints
    submission: Floats
    requested: Floats
    size: Ints
    score: Floats


class Situation(NamedTuple):
    """The present and the rules.

    Attributes:
        backfill: A number of :data:`hdsim.scheduling.rules.HEAD_ALONE`.
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


class Scenario(NamedTuple):
    """The jobs of a play-out: R running ones, then Q queued ones, then arrivals; N in all.

    Attributes:
        running: Number of running jobs.
        queued: Number of queued jobs.
        submission: (N,) seconds, ascending for arrivals, which are later than now.
        runtime: (N,) seconds, above 0; of a running job the whole run time, so that its end is later than now.
        requested: (N,) seconds.
        size: (N,) cores.
        key: (N,) score in the order of the queue, ties in order of the jobs.
        order: (Q,) queued jobs in order.
        last: (R,) running jobs, those that end last first.
        releases: Expected ends of the running jobs.
        start: (N,) seconds, those of the others by play-outs, NaN before the start.
        finish: (N,) seconds, likewise.
    """

    running: int
    queued: int
    submission: Floats
    runtime: Floats
    requested: Floats
    size: Ints
    key: Floats
    order: Ints
    last: Ints
    releases: Releases
    start: Floats
    finish: Floats


class Space(NamedTuple):
    """Space for play-outs.

    Attributes:
        machine: State of a machine for the jobs of a scenario.
        queue: Their queue.
    """

    machine: Machine
    queue: ShortQueue


@kernel
def make_space(jobs: Scenario, situation: Situation) -> Space:
    """Returns space for play-outs of the jobs of a scenario, of which starts and finishes take the results."""
    n = len(jobs.size)
    columns = JobColumns(jobs.submission, jobs.runtime, jobs.requested, np.empty(0), np.empty(0, np.bool_), jobs.size)
    rules = Rules(situation.backfill, situation.commit, situation.batch, True, 0, 0)
    clock, line = np.zeros(1, CLOCK), np.zeros(1, LINE)
    expected = n if situation.backfill != Backfilling.NONE else 0
    machine = Machine(
        rules,
        clock,
        columns,
        np.arange(n),
        jobs.start,
        jobs.finish,
        np.zeros(n, np.bool_),
        np.empty(0, np.int64),
        Heap(np.empty(n), np.empty(n, np.int64), np.zeros(1, np.int64)),
        Releases(np.empty(expected), np.empty(expected, np.int64), np.empty(expected), np.zeros(1, np.int64)),
    )
    queue = ShortQueue(
        line,
        np.empty(2 * n, np.int64),
        np.empty(2 * n),
        np.empty(n, np.int64),
        jobs.key,
        np.empty(0, np.int64),
        np.empty((0, 0)),
    )
    return Space(machine, queue)


@kernel
def make_scenario(decision: Decision, arrivals: int) -> Scenario:
    """Returns the jobs of a decision, with space for arrivals; no job ends before a scenario is set."""
    running, known = len(decision.running), len(decision.running) + len(decision.queued)
    n = known + arrivals
    submission, runtime, requested, key = np.empty(n), np.full(n, math.inf), np.empty(n), np.empty(n)
    start, finish, size = np.empty(n), np.full(n, math.inf), np.empty(n, np.int64)
    releases = Releases(np.empty(running), np.empty(running, np.int64), np.empty(running), np.zeros(1, np.int64))
    for i in range(known):
        job = decision.running[i] if i < running else decision.queued[i - running]
        submission[i], requested[i], size[i] = decision.submission[job], decision.requested[job], decision.size[job]
        key[i] = decision.score[job]
    for i in range(running):
        start[i] = decision.started[i]
        add_release(releases, start[i] + requested[i], i, float(size[i]))
    order = running + np.argsort(key[running:known], kind="mergesort")
    return Scenario(
        running,
        known - running,
        submission,
        runtime,
        requested,
        size,
        key,
        order,
        np.arange(running),
        releases,
        start,
        finish,
    )


@lean_kernel
def set_scenario(jobs: Scenario, decision: Decision, future: Future, scenario: int, now: float) -> None:
    """Writes run times and arrivals of a scenario, but not the keys of the arrivals.

    Args:
        jobs: The jobs.
        decision: The jobs that run and wait.
        future: The scenarios.
        scenario: Which one.
        now: Present time in seconds.
    """
    running, known, last = jobs.running, jobs.running + jobs.queued, jobs.last
    for i in range(known):
        jobs.runtime[i] = future.remaining[scenario, i]
    for i in range(running):
        jobs.runtime[i] += now - jobs.start[i]
        jobs.finish[i] = jobs.start[i] + jobs.runtime[i]
        # Ends at one date are in order of starts.
        place = i
        while place > 0 and jobs.finish[last[place - 1]] <= jobs.finish[i]:
            last[place] = last[place - 1]
            place -= 1
        last[place] = i
    for i in range(future.drawn.shape[1]):
        job, arrival = future.drawn[scenario, i], known + i
        jobs.submission[arrival] = now + future.offset[scenario, i]
        jobs.runtime[arrival] = future.runtime[scenario, i]
        jobs.requested[arrival], jobs.size[arrival] = decision.requested[job], decision.size[job]


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


@kernel
def first_starts(situation: Situation, heads: Ints, decision: Decision) -> Bools:
    """Returns the (C, Q) queued jobs that start now behind each of (C,) heads, which are places in the queue."""
    jobs = make_scenario(decision, 0)
    space, started = make_space(jobs, situation), np.zeros((len(heads), jobs.queued), np.bool_)
    for c in range(len(heads)):
        play_out(situation, jobs.running + heads[c], NO_PLAN, NO_KEYS, jobs, space, False)
        for place in range(jobs.queued):
            started[c, place] = not math.isnan(jobs.start[jobs.running + place])
    return started


@kernel
def play_outs(
    objective: int, situation: Situation, heads: Ints, decision: Decision, future: Future, keys: Floats, first: int
) -> Floats:
    """Returns the (C, S) mean costs of candidates in some scenarios.

    Args:
        objective: See :func:`mean_cost`.
        situation: The present.
        heads: (C,) candidates, places among the queued jobs.
        decision: The jobs.
        future: Scenarios, more than those that are played out.
        keys: (S, A) scores of the arrivals in the order of the queue.
        first: First scenario that is played out.
    """
    jobs = make_scenario(decision, keys.shape[1])
    space, cost = make_space(jobs, situation), np.empty((len(heads), len(keys)))
    for s in range(len(keys)):
        set_scenario(jobs, decision, future, first + s, situation.now)
        jobs.key[jobs.running + jobs.queued :] = keys[s]
        for c in range(len(heads)):
            play_out(situation, jobs.running + heads[c], NO_PLAN, NO_KEYS, jobs, space, True)
            cost[c, s] = mean_cost(objective, jobs.submission, jobs.start, jobs.finish)
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


@lean_kernel
def play_out(
    situation: Situation, head: int, plan: Ints, keys: Table, jobs: Scenario, space: Space, whole: bool
) -> None:
    """Fills starts and finishes, or only the starts of the present instant.

    Behind the first head, each order of the plan chooses heads until one that it chose has started; then the order of
    the queue does.
    """
    machine, running, count = by_reference(space.machine), jobs.running, len(jobs.size)
    state, line, line_key, early, key = space.queue[:5]
    queue = by_reference(ShortQueue(state, line, line_key, early, key, plan, keys))
    clock, ends, releases = machine.clock[0], machine.ends, machine.releases
    for place in range(running):
        job = jobs.last[place]
        ends.key[place], ends.item[place] = jobs.finish[job], job
    ends.length[0] = running
    if len(releases.end):
        for place in range(running):
            releases.end[place], releases.job[place] = jobs.releases.end[place], jobs.releases.job[place]
            releases.cores[place] = jobs.releases.cores[place]
        releases.length[0] = running
    for job in range(running, count):
        jobs.start[job] = jobs.finish[job] = math.nan
    clock.now, clock.idle, clock.head, clock.reserved = situation.now, situation.idle, head, -1
    clock.queued, clock.arrived = jobs.queued, running + jobs.queued
    fill_short(queue, running, jobs.order)
    # Functions with one call are inlined.
    while True:
        schedule(machine, None, None, queue, None, None, None, None, None)
        if not whole or not (clock.queued or clock.arrived < count):
            break
        next_instant(machine, None, None, queue, None, None, None, None, None)
