"""Observation of the queue job by job that tells what waiting for each of them would take."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hdsim.cores import Floats, Ints
from hdsim.decisions.jobs import FEATURES, Jobs, scaled_time

if TYPE_CHECKING:
    from hdsim.decisions.waiting import Waiting
    from hdsim.state import Cluster

_SHADOW, _EXTRA = len(FEATURES), len(FEATURES) + 1


class JobsShadow(Jobs):
    """(queue_size, 10): as `Jobs`, and the reservation that backfilling would make for each job if it were waited for.

    Shadow time, on the scale of the waited time, is how long it takes until enough cores are idle if all that runs ends
    when the time it asked for is over: 0 if they are idle now, 1 if nobody knows. Extra cores, as a share of all, are
    left over then. Names as in EASY (Lifka 1995); cores alone are counted, on whichever nodes they are.

    Args:
        queue_size: Rows.
    """

    features = (*FEATURES, "shadow_time", "extra_cores")

    def begin(self, cluster: Cluster, waiting: Waiting) -> None:
        """See :meth:`Observer.begin`."""
        super().begin(cluster, waiting)
        self._sizes = cluster.workload.requested_cores

    def fill(self, seen: NDArray[np.float32]) -> None:
        """See :meth:`Jobs.fill`."""
        super().fill(seen)
        cluster = self._cluster
        jobs, _ = self._waiting.look(self._queue_size)
        if len(jobs):
            waits, idle = self._steps()
            sizes = self._sizes[jobs]
            first = idle.searchsorted(sizes)
            rows = seen[: len(jobs)]
            rows[:, _SHADOW] = scaled_time(waits)[first]
            rows[:, _EXTRA] = np.maximum(idle.take(first, mode="clip") - sizes, 0) / cluster.platform.n_cpu_cores

    def _steps(self) -> tuple[Floats, Ints]:
        """Seconds from now of expected ends, the first of them now and the last never, and idle cores from then on."""
        cluster = self._cluster
        now, started, size, estimate = cluster.now, cluster.starting_time, cluster.size, cluster.estimate
        running = cluster.running.items()
        ends = sorted([(started[job] + estimate(job, placement), size[job]) for job, placement in running])
        waits, idle = [0.0], [cluster.n_idle]
        total = idle[0]
        for end, cores in ends:
            total += cores
            wait = end - now
            if wait > waits[-1]:
                waits.append(wait)
                idle.append(total)
            else:
                idle[-1] = total
        waits.append(math.inf)
        return np.array(waits), np.array(idle)
