"""Play-outs whose base order is the network of :mod:`hdsim.kernels.learned_scores`, as replays from the present on.

The jobs of a replay are those that have been submitted, for the network sees the recent past, and behind them the
arrivals of a scenario.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import kernel
from hdsim.kernels.counted_replay import ARRIVED, BATCH, HEAD, QUEUED, RESERVED, STARTED
from hdsim.kernels.heap import push
from hdsim.kernels.learned_scores import LOG_TIME, add_to_sums
from hdsim.kernels.play_outs import Decision, Scenario, Situation, make_scenario, mean_cost, set_scenario
from hdsim.kernels.profiles import add_release
from hdsim.kernels.scenarios import Future
from hdsim.kernels.scored_replay import CHANGES, IDLE, ScoredReplay, scored_replay

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Ahead(NamedTuple):
    """A replay from the present on.

    Attributes:
        replay: The replay, with the jobs that have been submitted and space for A arrivals; see
            :func:`hdsim.scheduling.learned.make_replay`.
        rows: (N,) its jobs: the running ones, the queued ones and the arrivals.
        latest: (K, 6) the last two jobs of each kind that have ended, see :mod:`hdsim.kernels.like_jobs`.
    """

    replay: ScoredReplay
    rows: Ints
    latest: Floats


@kernel
def draw(ahead: Ahead, jobs: Scenario) -> None:
    """Writes the run times and the arrivals of a scenario to the jobs of the replay."""
    replay, rows = ahead.replay, ahead.rows
    for i in range(len(rows)):
        replay.runtime[rows[i]] = jobs.runtime[i]
    for i in range(jobs.running + jobs.queued, len(rows)):
        job, requested, size = rows[i], jobs.requested[i], jobs.size[i]
        replay.submission[job] = replay.arrival[job] = jobs.submission[i]
        replay.requested[job], replay.size[job] = requested, size
        add_to_sums(replay.sums, job, requested, size)


@kernel
def pass_behind(ahead: Ahead, situation: Situation, head: int, jobs: Scenario) -> None:
    """Takes a replay back to the present, where a queued job is the head, and simulates the present instant."""
    replay, rows, numbers = ahead.replay, ahead.rows, ahead.replay.numbers
    replay.ends.length[0] = replay.releases.length[0] = 0
    replay.latest[:] = ahead.latest
    for start in range(jobs.running):
        job = rows[start]
        replay.started[start], replay.starting_time[job] = job, jobs.start[start]
        push(replay.ends, jobs.start[start] + replay.runtime[job], start)
        add_release(replay.releases, jobs.start[start] + replay.requested[job], job, float(replay.size[job]))
    for i in range(jobs.running, len(rows)):
        replay.arriving[i - jobs.running] = rows[i]
        if i < jobs.running + jobs.queued:
            # All waiting jobs come at once.
            replay.arrival[rows[i]] = situation.now
        replay.starting_time[rows[i]] = replay.finish_time[rows[i]] = math.nan
        replay.expected[rows[i]] = replay.requested[rows[i]]
        replay.sums[rows[i], LOG_TIME] = math.log(max(replay.requested[rows[i]], 1.0))
    numbers[ARRIVED] = numbers[QUEUED] = numbers[CHANGES] = 0
    numbers[STARTED], numbers[HEAD], numbers[RESERVED], numbers[IDLE] = jobs.running, rows[head], -1, situation.idle
    replay.rules[BATCH] = True
    scored_replay(replay, 1)
    replay.rules[BATCH] = situation.batch


@kernel
def network_first_starts(ahead: Ahead, situation: Situation, heads: Ints, decision: Decision) -> NDArray[np.bool_]:
    """Returns the (C, Q) queued jobs that start now; see :func:`hdsim.kernels.play_outs.first_starts`."""
    jobs = make_scenario(decision, 0)
    started = np.zeros((len(heads), jobs.queued), np.bool_)
    draw(ahead, jobs)
    for c in range(len(heads)):
        pass_behind(ahead, situation, jobs.running + heads[c], jobs)
        for place in range(jobs.queued):
            started[c, place] = not math.isnan(ahead.replay.starting_time[ahead.rows[jobs.running + place]])
    return started


@kernel
def network_play_outs(
    objective: int, ahead: Ahead, situation: Situation, heads: Ints, decision: Decision, future: Future,
    first: int, last: int,
) -> Floats:  # fmt: skip
    """Returns the (C, last - first) mean costs; see :func:`hdsim.kernels.play_outs.play_outs`."""
    jobs, replay, rows = make_scenario(decision, future.drawn.shape[1]), ahead.replay, ahead.rows
    cost = np.empty((len(heads), last - first))
    for s in range(first, last):
        set_scenario(jobs, decision, future, s, situation.now)
        draw(ahead, jobs)
        for i in range(future.drawn.shape[1]):
            replay.kind[rows[jobs.running + jobs.queued + i]] = replay.kind[future.drawn[s, i]]
        for c in range(len(heads)):
            pass_behind(ahead, situation, jobs.running + heads[c], jobs)
            # Every job arrives, starts and ends once.
            scored_replay(replay, 3 * len(rows))
            start, finish = replay.starting_time[rows], replay.finish_time[rows]
            cost[c, s - first] = mean_cost(objective, jobs.submission, start, finish)
    return cost
