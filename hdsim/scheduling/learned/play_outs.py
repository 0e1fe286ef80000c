"""Play-outs whose base order is the network of :mod:`hdsim.scheduling.learned.network`, as replays from the present on.

The jobs of a replay are those that have been submitted, for the network sees the recent past, and behind them the
arrivals of a scenario.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import kernel
from hdsim.kernels.heap import push
from hdsim.scheduling.kernels.profiles import add_release
from hdsim.scheduling.learned.network import LOG_TIME, add_to_sums
from hdsim.scheduling.learned.queue import ScoredQueue
from hdsim.scheduling.machine.loop import Replay, advance
from hdsim.scheduling.search.play_outs import Decision, Scenario, Situation, make_scenario, mean_cost, set_scenario
from hdsim.scheduling.search.scenarios import Future

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Ahead(NamedTuple):
    """A replay from the present on.

    Attributes:
        replay: The replay, with the jobs that have been submitted and space for A arrivals; see
            :func:`hdsim.scheduling.learned.order.make_replay`.
        present: The same replay with one pass per instant.
        queue: Its queue.
        rows: (N,) its jobs: the running ones, the queued ones and the arrivals.
        latest: (K, 6) the last two jobs of each kind that have ended, see :mod:`hdsim.scheduling.learned.like_jobs`.
    """

    replay: Replay
    present: Replay
    queue: ScoredQueue
    rows: Ints
    latest: Floats


@kernel
def draw(ahead: Ahead, jobs: Scenario) -> None:
    """Writes the run times and the arrivals of a scenario to the jobs of the replay."""
    columns, queue, rows = ahead.replay.machine.jobs, ahead.queue, ahead.rows
    for i in range(len(rows)):
        columns.runtime[rows[i]] = jobs.runtime[i]
    for i in range(jobs.running + jobs.queued, len(rows)):
        job, requested, size = rows[i], jobs.requested[i], jobs.size[i]
        queue.submission[job] = columns.arrival[job] = jobs.submission[i]
        columns.requested[job], columns.size[job] = requested, size
        add_to_sums(queue.sums, job, requested, size)


@kernel
def pass_behind(ahead: Ahead, situation: Situation, head: int, jobs: Scenario) -> None:
    """Takes a replay back to the present, where a queued job is the head, and simulates the present instant."""
    machine, queue, rows = ahead.replay.machine, ahead.queue, ahead.rows
    clock, columns = machine.clock[0], machine.jobs
    machine.ends.length[0] = machine.releases.length[0] = 0
    queue.latest[:] = ahead.latest
    for start in range(jobs.running):
        job = rows[start]
        machine.log[start], machine.starting_time[job] = job, jobs.start[start]
        push(machine.ends, jobs.start[start] + columns.runtime[job], start)
        add_release(machine.releases, jobs.start[start] + columns.requested[job], job, float(columns.size[job]))
    for i in range(jobs.running, len(rows)):
        job = rows[i]
        machine.arriving[i - jobs.running] = job
        if i < jobs.running + jobs.queued:
            # All waiting jobs come at once.
            columns.arrival[job] = situation.now
        machine.starting_time[job] = machine.finish_time[job] = math.nan
        queue.expected[job] = columns.requested[job]
        queue.sums[job, LOG_TIME] = math.log(max(columns.requested[job], 1.0))
    clock.arrived = clock.queued = 0
    clock.events, clock.head, clock.reserved, clock.idle = jobs.running, rows[head], -1, situation.idle
    advance(ahead.present, 1)


@kernel
def network_first_starts(ahead: Ahead, situation: Situation, heads: Ints, decision: Decision) -> NDArray[np.bool_]:
    """Returns the (C, Q) queued jobs that start now; see :func:`hdsim.scheduling.search.play_outs.first_starts`."""
    jobs = make_scenario(decision, 0)
    started = np.zeros((len(heads), jobs.queued), np.bool_)
    draw(ahead, jobs)
    for c in range(len(heads)):
        pass_behind(ahead, situation, jobs.running + heads[c], jobs)
        for place in range(jobs.queued):
            begin = ahead.replay.machine.starting_time[ahead.rows[jobs.running + place]]
            started[c, place] = not math.isnan(begin)
    return started


@kernel
def network_play_outs(
    objective: int,
    ahead: Ahead,
    situation: Situation,
    heads: Ints,
    decision: Decision,
    future: Future,
    first: int,
    last: int,
) -> Floats:
    """Returns the (C, last - first) mean costs; see :func:`hdsim.scheduling.search.play_outs.play_outs`."""
    jobs, machine, rows = make_scenario(decision, future.drawn.shape[1]), ahead.replay.machine, ahead.rows
    cost, kind = np.empty((len(heads), last - first)), ahead.queue.kind
    for s in range(first, last):
        set_scenario(jobs, decision, future, s, situation.now)
        draw(ahead, jobs)
        for i in range(future.drawn.shape[1]):
            kind[rows[jobs.running + jobs.queued + i]] = kind[future.drawn[s, i]]
        for c in range(len(heads)):
            pass_behind(ahead, situation, jobs.running + heads[c], jobs)
            # Every job arrives, starts and ends once.
            advance(ahead.replay, 3 * len(rows))
            start, finish = machine.starting_time[rows], machine.finish_time[rows]
            cost[c, s - first] = mean_cost(objective, jobs.submission, start, finish)
    return cost
