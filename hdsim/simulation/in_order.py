"""A faster mode of the engine for agents that only serve the queue strictly in a static order.

On interchangeable cores without contention, the replay of such an agent is list scheduling with known durations. The
schedule is that of the event-driven mode, core by core, which tests verify, at several times its speed.
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

#: Instants between two checks for signals.
_INSTANTS = 4096


def in_order(cluster: Cluster) -> bool:
    """Returns whether the store of a cluster allocates cores in a static order."""
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
    """Replays the workload of a cluster to its end; the cluster then has the final state.

    Args:
        cluster: State before the first event, with cores in a static order.
        order: A static order of the queue.
        refused: Infeasible jobs.
        stop: Received signals; the replay ends if there is one.
        tell: Updates the progress bar.
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
    """Returns the duration and the final state of each job on cores of the reference speed without contention."""
    finals = completed(workload)
    if not kill_at_walltime:
        return workload.runtime, finals
    runtime, walltime = workload.runtime, workload.walltime
    # At a run time equal to the walltime a delay is killed and a computation completes.
    reached = np.where(workload.ends_in_delay, runtime >= walltime, runtime > walltime)
    finals[reached] = FinalState.COMPLETED_WALLTIME_REACHED
    return np.minimum(runtime, walltime), finals


def _settle(cluster: Cluster, finals: NDArray[np.int8], refused: NDArray[np.int64], until: float) -> None:
    """Sets the state of each job from its start and end; jobs submitted by `until` have arrived."""
    start, finish = np.array(cluster.starting_time), np.array(cluster.finish_time)
    arrived = cluster.workload.submission_time <= until
    state = np.where(arrived, FinalState.QUEUED, FinalState.NOT_SUBMITTED).astype(np.int8)
    state[refused[arrived[refused]]] = FinalState.REJECTED
    state[~np.isnan(start)] = FinalState.RUNNING
    ended = ~np.isnan(finish)
    state[ended] = finals[ended]
    cluster.state = state.tolist()
    cluster.queue = dict.fromkeys(np.flatnonzero(state == FinalState.QUEUED).tolist())
