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
from hdsim.kernels.learned_scores import add_to_sums
from hdsim.kernels.play_outs import Scenarios, Situation, mean_cost
from hdsim.kernels.profiles import add_release
from hdsim.kernels.scored_replay import CHANGES, IDLE, ScoredReplay, scored_replay

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Ahead(NamedTuple):
    """A replay from the present on.

    Attributes:
        replay: The replay, with the jobs that have been submitted and space for A arrivals; see
            :func:`hdsim.scheduling.learned.make_replay`.
        rows: (N,) its jobs: the running ones, the queued ones and the arrivals.
    """

    replay: ScoredReplay
    rows: Ints


@kernel
def draw(ahead: Ahead, jobs: Scenarios, scenario: int) -> None:
    """Writes the run times and the arrivals of a scenario to the jobs of the replay."""
    replay, rows = ahead.replay, ahead.rows
    for i in range(len(rows)):
        replay.runtime[rows[i]] = jobs.runtime[scenario, i]
    for i in range(jobs.running + jobs.queued, len(rows)):
        job, requested, size = rows[i], jobs.requested[scenario, i], jobs.size[scenario, i]
        replay.submission[job] = replay.arrival[job] = jobs.submission[scenario, i]
        replay.requested[job], replay.size[job] = requested, size
        add_to_sums(replay.sums, job, requested, size)


@kernel
def pass_behind(ahead: Ahead, situation: Situation, head: int, jobs: Scenarios) -> None:
    """Takes a replay back to the present, where a queued job is the head, and simulates the present instant."""
    replay, rows, numbers = ahead.replay, ahead.rows, ahead.replay.numbers
    replay.ends.length[0] = replay.releases.length[0] = 0
    for start in range(jobs.running):
        job = rows[start]
        replay.started[start], replay.starting_time[job] = job, jobs.started[start]
        push(replay.ends, jobs.started[start] + replay.runtime[job], start)
        add_release(replay.releases, jobs.started[start] + replay.requested[job], job, float(replay.size[job]))
    for i in range(jobs.running, len(rows)):
        replay.arriving[i - jobs.running] = rows[i]
        if i < jobs.running + jobs.queued:
            # All waiting jobs come at once.
            replay.arrival[rows[i]] = situation.now
        replay.starting_time[rows[i]] = replay.finish_time[rows[i]] = math.nan
    numbers[ARRIVED] = numbers[QUEUED] = numbers[CHANGES] = 0
    numbers[STARTED], numbers[HEAD], numbers[RESERVED], numbers[IDLE] = jobs.running, rows[head], -1, situation.idle
    replay.rules[BATCH] = True
    scored_replay(replay, 1)
    replay.rules[BATCH] = situation.batch


@kernel
def network_first_starts(ahead: Ahead, situation: Situation, heads: Ints, jobs: Scenarios) -> NDArray[np.bool_]:
    """Returns the (C, Q) queued jobs that start now; see :func:`hdsim.kernels.play_outs.first_starts`."""
    started = np.zeros((len(heads), jobs.queued), np.bool_)
    draw(ahead, jobs, 0)
    for c in range(len(heads)):
        pass_behind(ahead, situation, jobs.running + heads[c], jobs)
        for place in range(jobs.queued):
            started[c, place] = not math.isnan(ahead.replay.starting_time[ahead.rows[jobs.running + place]])
    return started


@kernel
def network_play_outs(
    objective: int, ahead: Ahead, situation: Situation, heads: Ints, jobs: Scenarios, first: int, last: int
) -> Floats:
    """Returns the (C, last - first) mean costs; see :func:`hdsim.kernels.play_outs.play_outs`."""
    cost, replay, rows = np.empty((len(heads), last - first)), ahead.replay, ahead.rows
    for s in range(first, last):
        draw(ahead, jobs, s)
        for c in range(len(heads)):
            pass_behind(ahead, situation, jobs.running + heads[c], jobs)
            # Every job arrives, starts and ends once.
            scored_replay(replay, 3 * len(rows))
            start, finish = replay.starting_time[rows], replay.finish_time[rows]
            cost[c, s - first] = mean_cost(objective, jobs.submission[s], start, finish)
    return cost
