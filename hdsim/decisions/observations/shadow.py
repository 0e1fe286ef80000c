"""Observation with one row per queued job and the EASY reservation of each."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hdsim.decisions.observations.jobs import FEATURES, JobsObserver, scaled_time

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.decisions.wait_queue import WaitQueue

_SHADOW, _EXTRA = len(FEATURES), len(FEATURES) + 1


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
