"""Observation with one row per node and the columns of the next job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hdsim.decisions.base import Array, FreeShares, Observation, Observer, relative_to_largest
from hdsim.decisions.observations.jobs import scaled_time
from hdsim.util.units import in_bytes

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.decisions.wait_queue import PartialPlacement, WaitQueue
    from hdsim.platform.model import Platform

#: Columns of a node; the last two depend on the next job.
NODE_FEATURES = ("idle_cores", "free_memory", "free_bandwidth", "speed", "power", "cores", "room", "chosen")
#: Columns of the next job, equal in all rows.
JOB_FEATURES = ("job_left", "job_memory", "job_requested_time", "job_waited")
FEATURES = NODE_FEATURES + JOB_FEATURES
_ROOM, _CHOSEN, _JOB = 6, 7, 8


class Nodes(Observer):
    """(N, 12): one row per node.

    Columns: idle cores, free memory and free bandwidth (mean over its processors) as shares of the node's; mean speed
    and mean power per core and number of cores as shares of the largest of any node; share of the remaining next job
    that fits on the node, and share of the job that is assigned to it. Columns of the next job: share of its cores
    without a node yet, memory per core as a share of the largest node's, requested time and waiting time as in `Jobs`.
    The next job is the one under placement, else the head in order of submission. On platforms of quantities, where
    bandwidth is not tracked, its column has the free pods as a share of the node's limit; `room` considers all
    resources and constraints.

    Attributes:
        fixed: (N, 12) columns that do not change with time, zeros elsewhere.
    """

    sees_cores = True

    def arrays(self, platform: Platform) -> Array:
        """See :meth:`Observer.arrays`."""
        return Array((platform.n_nodes, len(FEATURES)))

    def begin(self, cluster: Cluster, wait_queue: WaitQueue) -> None:
        """See :meth:`Observer.begin`."""
        self._cluster, self._wait_queue = cluster, wait_queue
        platform = cluster.platform
        first = platform.node_first_processor[:-1]
        self._first_processor = first
        self._processors = np.diff(platform.node_first_processor)
        self._cores = cluster.node_cpu.astype(np.float64)
        memory = in_bytes(platform.memory)
        self._memory, self._bandwidth = FreeShares(memory), FreeShares(platform.mem_bw)
        self._memory_of_largest = float(memory.max())
        self._free_bandwidth = np.empty(platform.n_processors, np.float32)
        self._pods = None if cluster.has_core_ids else FreeShares(platform.node_pods)
        self.fixed = np.zeros((platform.n_nodes, len(FEATURES)), np.float32)
        owned = platform.cores_per_processor
        total = np.add.reduceat(owned, first)
        self.fixed[:, 3] = relative_to_largest(np.add.reduceat(platform.gflops * owned, first) / total)
        self.fixed[:, 4] = relative_to_largest(np.add.reduceat(platform.power * owned, first) / total)
        self.fixed[:, 5] = relative_to_largest(self._cores)

    def observe(self) -> Observation:
        """See :meth:`Observer.observe`."""
        seen = self.fixed.copy()
        partial = self._wait_queue.next_job()
        self.fill(seen, partial)
        if partial is not None:
            seen[:, _JOB:] = self._job_numbers(partial)
        return seen

    def fill(self, seen: NDArray[np.float32], partial: PartialPlacement | None) -> None:
        """Writes the columns that change with time into rows of at least `NODE_FEATURES`."""
        cores = self._cluster.cores
        np.divide(cores.node_idle, self._cores, out=seen[:, 0], where=self._cores > 0, casting="same_kind")
        self._memory.write(cores.node_memory, seen[:, 1])
        if self._pods is None:
            self._bandwidth.write(cores.free_bandwidth, self._free_bandwidth)
            seen[:, 2] = np.add.reduceat(self._free_bandwidth, self._first_processor) / self._processors
        else:
            self._pods.write(
                self._cluster.platform.node_pods if cores.node_pods is None else cores.node_pods, seen[:, 2]
            )
        if partial is not None:
            seen[:, _ROOM] = np.minimum(partial.capacity / max(partial.chunks, 1), 1.0)
            seen[:, _CHOSEN] = partial.chosen / partial.total

    def _job_numbers(self, partial: PartialPlacement) -> tuple[float, ...]:
        cluster, job = self._cluster, partial.job
        return (
            partial.chunks / partial.total,
            min(cluster.requests.memory[job] / self._memory_of_largest, 1.0),
            float(scaled_time(cluster.requested_time[job])),
            float(scaled_time(cluster.now - cluster.workload.submission_time[job])),
        )
