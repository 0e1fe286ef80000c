"""Observations with one row per queued job, one of them with the EASY reservation of each."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hdsim.decisions.base import Array, Observer, positive_int
from hdsim.decisions.kernels.rows import LOG_LONGEST, write_rows

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.decisions.wait_queue import WaitQueue
    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload

#: Columns of a row.
FEATURES = ("waited", "requested_time", "cores", "memory", "bandwidth", "idle_cores", "fits", "present")
_SHADOW, _EXTRA = len(FEATURES), len(FEATURES) + 1


class JobsObserver(Observer):
    """(queue_size, 8): the first queued jobs in order of submission, one per row; unused rows are zero.

    Columns: waiting time and requested time, log(1 + s) / log(1 + one week), at most 1; cores, memory and bandwidth of
    all its cores as shares of the platform's (0 where the platform is unlimited); idle cores as a share of all; fits
    now (0 or 1); 1 for a job.

    Attributes:
        features: Names of the columns.

    Args:
        queue_size: Rows.
    """

    features: ClassVar[tuple[str, ...]] = FEATURES

    def __init__(self, queue_size: int = 128) -> None:
        self.queue_size = positive_int("queue_size", queue_size)

    def arrays(self, platform: Platform) -> Array:
        return Array((self.queue_size, len(self.features)))

    def begin(self, cluster: Cluster, wait_queue: WaitQueue) -> None:
        self._cluster, self._wait_queue = cluster, wait_queue
        self._table = self.columns(cluster.workload, cluster.platform)
        self._times, self._powers = np.empty(self.queue_size), np.empty(self.queue_size, np.int64)
        self._submission = cluster.workload.submission_time.copy()

    def columns(self, jobs: Workload, platform: Platform) -> NDArray[np.float32]:
        """(J, 8) columns of the jobs that do not change with time."""
        cores = jobs.requested_cores
        table = np.zeros((len(jobs), len(FEATURES)), np.float32)
        table[:, 1] = scaled_time(jobs.requested_time)
        table[:, 2] = np.minimum(cores * jobs.cpu / platform.n_cpu_cores, 1.0)
        table[:, 3] = np.minimum(cores * jobs.memory / platform.memory.sum(), 1.0)
        table[:, 4] = np.minimum(cores * jobs.memory_bandwidth / platform.mem_bw.sum(), 1.0)
        table[:, 7] = 1.0
        return table

    def observe(self) -> NDArray[np.float32]:
        seen = np.empty((self.queue_size, len(self.features)), np.float32)
        self.fill(seen)
        return seen

    def fill(self, seen: NDArray[np.float32]) -> None:
        """Writes the rows of the queued jobs into an array, and zeros behind them."""
        cluster = self._cluster
        jobs, fits = self._wait_queue.peek(self.queue_size)
        known = cluster.workload
        if len(self._table) < len(known):
            table = self.columns(known.rows(len(self._table)), cluster.platform)
            self._table = np.concatenate([self._table, table])
            self._submission = known.submission_time.copy()
        idle = cluster.n_idle / cluster.platform.n_cpu_cores
        write_rows(
            jobs,
            fits,
            self._table.reshape(-1),
            self._submission,
            0.0,
            cluster.now,
            idle,
            self._times,
            self._powers,
            seen.reshape(-1),
        )


class JobsShadow(JobsObserver):
    """(queue_size, 10): as `JobsObserver`, with the shadow time and the extra cores of a reservation for each job.

    The shadow time, on the scale of the waiting time, is the time until enough cores are idle if all running jobs end
    at their requested times: 0 if the cores are idle now, 1 if unknown. The extra cores, as a share of all, are those
    left over at the shadow time. Names as in EASY (Lifka 1995); only the number of cores counts, not their nodes.

    Args:
        queue_size: Rows.
    """

    needs_core_ids = True

    features = (*FEATURES, "shadow_time", "extra_cores")

    def begin(self, cluster: Cluster, wait_queue: WaitQueue) -> None:
        super().begin(cluster, wait_queue)
        # Expected ends in ascending order between -inf and inf, and the job and the cores that become idle at each but
        # the last; those of -inf are idle now. Equal ends are in order of the starts.
        self._ends = [-math.inf, math.inf]
        self._ending, self._freed = [-1], [0]
        self._end: dict[int, float] = {}
        self.started(cluster.running)

    def on_instant(self) -> None:
        for job in self._cluster.ended:
            place = self._ending.index(job, bisect_left(self._ends, self._end.pop(job)))
            del self._ends[place], self._ending[place], self._freed[place]

    def started(self, jobs: Iterable[int]) -> None:
        cluster = self._cluster
        for job in jobs:
            begin = cluster.starting.get(job, cluster.starting_time[job])
            end = self._end[job] = begin + cluster.estimate(job, cluster.running[job])
            place = bisect_right(self._ends, end)
            self._ends.insert(place, end)
            self._ending.insert(place, job)
            self._freed.insert(place, cluster.size[job])

    def fill(self, seen: NDArray[np.float32]) -> None:
        rows = np.empty((self.queue_size, len(FEATURES)), np.float32)
        super().fill(rows)
        seen[:, : len(FEATURES)], seen[:, len(FEATURES) :] = rows, 0.0
        cluster = self._cluster
        jobs, _ = self._wait_queue.peek(self.queue_size)
        if len(jobs):
            self._freed[0] = cluster.n_idle
            idle, waits = np.array(self._freed).cumsum(), np.maximum(np.array(self._ends) - cluster.now, 0.0)
            sizes = cluster.workload.requested_cores[jobs]
            enough = idle.searchsorted(sizes)
            rows = seen[: len(jobs)]
            rows[:, _SHADOW] = scaled_time(waits)[enough]
            rows[:, _EXTRA] = np.maximum(idle.take(enough, mode="clip") - sizes, 0) / cluster.platform.n_cpu_cores


def scaled_time(seconds: Any) -> Any:
    """Maps seconds to a logarithmic scale of 0..1, with one week at 1."""
    return np.minimum(np.log1p(seconds) / LOG_LONGEST, 1.0)
