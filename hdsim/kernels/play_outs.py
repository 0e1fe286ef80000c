"""Play-outs of a decision: the rest of a replay on interchangeable cores for each candidate in each scenario.

The schedule is that of :mod:`hdsim.kernels.counted_replay` from a chosen head on. Only dates are kept, no core ids, and
queues are short sorted arrays, so that a play-out of a hundred jobs takes a few microseconds.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import kernel, lean_kernel
from hdsim.kernels.profiles import Releases, add_release, head_reservation, longest_before, remove_release
from hdsim.kernels.rules import TAU, Backfilling
from hdsim.kernels.scenarios import Future

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
#: Scores of jobs in O orders, (O, N).
Table = NDArray[np.float64]

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
        backfill: A number of :data:`hdsim.kernels.rules.HEAD_ALONE`.
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
    """Space for a play-out of N jobs.

    Attributes:
        ending: (N,) running jobs, those that end last first.
        end: (N,) their ends in seconds.
        releases: Their expected ends.
        line: (2 N,) waiting jobs in order.
        line_key: (2 N,) their scores.
        early: (N,) waiting jobs in order of submission.
    """

    ending: Ints
    end: Floats
    releases: Releases
    line: Ints
    line_key: Floats
    early: Ints


@kernel
def make_space(n: int) -> Space:
    """Returns space for a play-out of `n` jobs."""
    releases = Releases(np.empty(n), np.empty(n, np.int64), np.empty(n), np.zeros(1, np.int64))
    return Space(
        np.empty(n, np.int64), np.empty(n), releases, np.empty(2 * n, np.int64), np.empty(2 * n), np.empty(n, np.int64)
    )


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
        running, known - running, submission, runtime, requested, size, key, order, np.arange(running), releases,
        start, finish,
    )  # fmt: skip


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
    space, started = make_space(len(jobs.size)), np.zeros((len(heads), jobs.queued), np.bool_)
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
    space, cost = make_space(len(jobs.size)), np.empty((len(heads), len(keys)))
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
def first_of(key: Floats, line: Ints, first: int, last: int) -> int:
    """Returns the job of `line[first:last]` of the least key, ties in order of the jobs."""
    found = line[first]
    for place in range(first + 1, last):
        job = line[place]
        if key[job] < key[found] or (key[job] == key[found] and job < found):
            found = job
    return found


@lean_kernel
def play_out(
    situation: Situation, head: int, plan: Ints, keys: Table, jobs: Scenario, space: Space, whole: bool
) -> None:
    """Fills starts and finishes, or only those of the present instant.

    Behind the first head, each order of the plan chooses heads until one that it chose has started; then the order of
    the queue does. Waiting jobs are `line[first:last]` in order of the queue and `early[:waiting]` in order of
    submission; the latter are those that RLScheduler's backfilling tries.
    """
    backfill, commit, batch, now, idle = situation
    ending, end, releases, line, line_key, early = space
    submission, runtime, requested, size, key = jobs.submission, jobs.runtime, jobs.requested, jobs.size, jobs.key
    start, finish, running = jobs.start, jobs.finish, jobs.running
    n, coming, strict = len(size), running + jobs.queued, backfill == Backfilling.RLSCHEDULER
    for place in range(running):
        ending[place] = jobs.last[place]
        end[place] = finish[ending[place]]
        releases.end[place], releases.job[place] = jobs.releases.end[place], jobs.releases.job[place]
        releases.cores[place] = jobs.releases.cores[place]
    releases.length[0] = running
    for job in range(running, n):
        start[job] = finish[job] = math.nan
    for place in range(jobs.queued):
        early[place], line[n + place] = running + place, jobs.order[place]
        line_key[n + place] = key[jobs.order[place]]
    first, last, waiting, reserved, shadow, extra, begun = n, n + jobs.queued, jobs.queued, -1, 0.0, 0.0, running
    longest, chosen, stage, planned, untried = 0.0, True, 0, -1, 0
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
                        head = planned = first_of(keys[plan[stage]], line, first, last)
                    else:
                        head = line[first]
                if size[head] > idle:
                    if backfill == Backfilling.NONE:
                        break
                    overdue = releases.length[0] > 0 and releases.end[0] <= now
                    if reserved != head or (backfill == Backfilling.EASY and overdue):
                        shadow, extra = head_reservation(releases, now, float(idle), float(size[head]))
                        reserved, untried = head, 0
                    longest = longest_before(shadow, now, 1.0)
                    place = untried if strict else max(first, untried)
                    continue
                job, head, chosen = head, -1, False
                if backfill == Backfilling.EASY:
                    reserved = -1
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
                    if now + requested[job] > shadow:
                        extra -= size[job]
            # A start.
            at = first if serving or strict else place
            while line[at] != job:
                at += 1
            for i in range(at, first, -1):
                line[i], line_key[i] = line[i - 1], line_key[i - 1]
            first += 1
            if strict:
                at = 0
                while early[at] != job:
                    at += 1
                waiting -= 1
                for i in range(at, waiting):
                    early[i] = early[i + 1]
            elif not serving:
                place += 1
            idle -= size[job]
            start[job], finish[job] = now, now + runtime[job]
            at = running
            while at > 0 and end[at - 1] <= finish[job]:
                end[at], ending[at] = end[at - 1], ending[at - 1]
                at -= 1
            end[at], ending[at] = finish[job], job
            running += 1
            begun += 1
            if backfill != Backfilling.NONE:
                add_release(releases, now + requested[job], job, float(size[job]))
        if begun == n or not whole:
            return
        arrival = submission[coming] if coming < n else math.inf
        now = min(arrival, end[running - 1]) if running else arrival
        # Jobs that have been tried can start only after an end, or before another head.
        untried = 2 * n
        while running and end[running - 1] == now:
            running -= 1
            job, untried = ending[running], 0
            idle += size[job]
            if backfill != Backfilling.NONE:
                remove_release(releases, start[job] + requested[job], job)
                if backfill == Backfilling.EASY:
                    reserved = -1
            if not batch:
                # Arrivals at this instant have a pass of their own.
                arrival = math.inf
                break
        while arrival == now:
            # The shorter part of the line makes room.
            if first < last and key[coming] < line_key[(first + last) // 2]:
                first, at, untried = first - 1, first - 1, untried if strict else untried - 1
                while line_key[at + 1] <= key[coming]:
                    line[at], line_key[at] = line[at + 1], line_key[at + 1]
                    at += 1
            else:
                at, last = last, last + 1
                while at > first and line_key[at - 1] > key[coming]:
                    line[at], line_key[at] = line[at - 1], line_key[at - 1]
                    at -= 1
            line[at], line_key[at] = coming, key[coming]
            early[waiting] = coming
            untried = min(untried, waiting if strict else at)
            waiting += 1
            coming += 1
            arrival = submission[coming] if batch and coming < n else math.inf
