"""A short cut through the engine for the commonest baselines: jobs served strictly in a fixed order.

Where cores are interchangeable, nothing slows a job down and the agent is nothing but an order of the queue, a replay
is list scheduling: every duration is known beforehand and each instant has one obvious outcome. This loop gives the
same schedule as the engine, core by core (tests hold the two equal), at several times its speed.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.state import Cluster, FinalState, completed
from hdsim.cluster.stores.ordered import OrderedCores
from hdsim.scheduling.orders import JobOrder
from hdsim.scheduling.queue import ranking

if TYPE_CHECKING:
    from hdsim.workload.model import Workload

#: Instants between two looks at the signals.
_INSTANTS = 4096


def in_order(cluster: Cluster) -> bool:
    """Whether the cores of a cluster are given in the order of a list, whatever the jobs."""
    return isinstance(cluster.cores, OrderedCores) and cluster.cores.in_order


def replay_in_order(
    cluster: Cluster,
    order: JobOrder,
    refused: NDArray[np.int64],
    stop: Sequence[int],
    tell: Callable[[], object],
    *,
    kill_at_walltime: bool,
) -> None:
    """Replays the workload of a cluster to its end and leaves the outcome in the cluster.

    Args:
        cluster: State before the first event, of cores that are given in order.
        order: A fixed order of the queue.
        refused: Jobs that can never start.
        stop: Signals received so far; the replay ends when there is one.
        tell: Called now and then.
        kill_at_walltime: Kill jobs at their walltime.
    """
    workload = cluster.workload
    cores: OrderedCores = cluster.cores
    durations, finals = _outcomes(workload, kill_at_walltime=kill_at_walltime)
    rank, job_of_rank = ranking(workload, order)
    size, duration = cluster.size, durations.tolist()
    arriving = np.delete(np.arange(len(workload)), refused)
    coming = zip([*workload.submission_time[arriving].tolist(), math.inf], [*arriving.tolist(), -1], strict=True)
    started, finished = cluster.starting_time, cluster.finish_time
    placements, running = cluster.placements, cluster.running
    idle, release = cores.idle, cores.release
    waiting: list[int] = []  # ranks; those before `first` have started
    first = 0
    ends: list[tuple[float, int]] = [(math.inf, -1)]
    arrival, newcomer = next(coming)
    now = 0.0
    instants = 0
    while True:
        date = ends[0][0]
        if arrival < date:
            date = arrival
        elif date == math.inf:
            until = math.inf
            break
        instants += 1
        if instants % _INSTANTS == 0:
            cluster.now = now
            tell()
            if stop:
                until = now
                break
            del waiting[:first]
            first = 0
            cluster.compact()
        now = date
        while ends[0][0] == now:
            job = heappop(ends)[1]
            release(job, running.pop(job))
            finished[job] = now
        while arrival == now:
            insort(waiting, rank[newcomer], first)
            arrival, newcomer = next(coming)
        while first < len(waiting):
            job = job_of_rank[waiting[first]]
            n = size[job]
            if n > len(idle):
                break
            first += 1
            placements[job] = running[job] = idle[: -n - 1 : -1]
            del idle[-n:]
            started[job] = now
            heappush(ends, (now + duration[job], job))
    cluster.now = now
    _settle(cluster, finals, refused, until)


def _outcomes(workload: Workload, *, kill_at_walltime: bool) -> tuple[NDArray[np.float64], NDArray[np.int8]]:
    """Duration and final state of every job that runs undisturbed on cores of the reference speed."""
    finals = completed(workload)
    if not kill_at_walltime:
        return workload.runtime, finals
    runtime, walltime = workload.runtime, workload.walltime
    # A delay as long as the walltime reaches it, a computation completes.
    reached = np.where(workload.ends_in_delay, runtime >= walltime, runtime > walltime)
    finals[reached] = FinalState.COMPLETED_WALLTIME_REACHED
    return np.minimum(runtime, walltime), finals


def _settle(cluster: Cluster, finals: NDArray[np.int8], refused: NDArray[np.int64], until: float) -> None:
    """Sets the state of every job from what is known of its start and end; those submitted by `until` have arrived."""
    start, finish = np.array(cluster.starting_time), np.array(cluster.finish_time)
    arrived = cluster.workload.submission_time <= until
    state = np.where(arrived, FinalState.QUEUED, FinalState.NOT_SUBMITTED).astype(np.int8)
    state[refused[arrived[refused]]] = FinalState.REJECTED
    state[~np.isnan(start)] = FinalState.RUNNING
    ended = ~np.isnan(finish)
    state[ended] = finals[ended]
    cluster.state = state.tolist()
    cluster.queue = dict.fromkeys(np.flatnonzero(state == FinalState.QUEUED).tolist())
