"""Observation with one row per node and the columns of the next job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hdsim.decisions.base import Array, Observer, relative_to_largest
from hdsim.decisions.kernels.rows import NodeLimits, write_free, write_room
from hdsim.decisions.observations.jobs import scaled_time
from hdsim.util.arrays import Floats
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


class NodesObserver(Observer):
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
        return Array((platform.n_nodes, len(FEATURES)))

    def begin(self, cluster: Cluster, wait_queue: WaitQueue) -> None:
        self._cluster, self._wait_queue = cluster, wait_queue
        platform = cluster.platform
        first = platform.node_first_processor[:-1]
        memory, pods = in_bytes(platform.memory), platform.node_pods
        self._memory_of_largest = float(memory.max())
        parts, bounds = platform.mem_bw, platform.node_first_processor.astype(np.int64)
        if not cluster.has_core_ids:
            parts, bounds = pods, np.arange(len(pods) + 1, dtype=np.int64)
        self._limits = NodeLimits(cluster.node_cpu.astype(np.float64), memory, parts, bounds)
        self.fixed = np.zeros((platform.n_nodes, len(FEATURES)), np.float32)
        owned = platform.cores_per_processor
        total = np.add.reduceat(owned, first)
        self.fixed[:, 3] = relative_to_largest(np.add.reduceat(platform.gflops * owned, first) / total)
        self.fixed[:, 4] = relative_to_largest(np.add.reduceat(platform.power * owned, first) / total)
        self.fixed[:, 5] = relative_to_largest(self._limits.cores)

    def observe(self) -> NDArray[np.float32]:
        seen, cluster, cores = self.fixed.copy(), self._cluster, self._cluster.cores
        parts = cores.free_bandwidth
        if not cluster.has_core_ids:
            parts = cluster.platform.node_pods if cores.node_pods is None else cores.node_pods
        idle = np.asarray(cores.node_idle, np.float64)
        write_free(self._limits, idle, cores.node_memory, parts, seen)
        partial = self._wait_queue.next_job()
        if partial is not None:
            self._write_next_job(partial, idle, seen)
        return seen

    def _write_next_job(self, partial: PartialPlacement, idle: Floats, seen: NDArray[np.float32]) -> None:
        """Writes the columns that depend on the next job; `idle`: (N,) idle cores."""
        write_room(partial.chunks, partial.total, partial.capacity, partial.chosen, self._job_numbers(partial), seen)

    def _job_numbers(self, partial: PartialPlacement) -> Floats:
        cluster, job = self._cluster, partial.job
        numbers = np.array(
            [
                partial.chunks / partial.total,
                min(cluster.requests.memory[job] / self._memory_of_largest, 1.0),
                cluster.requested_time[job],
                cluster.now - cluster.workload.submission_time[job],
            ]
        )
        numbers[2:] = scaled_time(numbers[2:])
        return numbers
