"""Observations with one row per node and the columns of the next job, one of them with demands on bandwidth."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hdsim.decisions.base import Array, Observer, relative_to_largest
from hdsim.decisions.kernels.rows import NodeLimits, write_free, write_room, write_supply
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
#: Further columns of a node, then of the next job.
BANDWIDTH_FEATURES = ("supply", "supply_with_job", "even_share", "job_bandwidth", "speed_so_far", "queued", "running")
#: Jobs that count as 1 on the logarithmic scale of their number, and the scale.
_MANY = 1000
_SCALED_NUMBER: list[float] = np.minimum(np.log1p(np.arange(_MANY + 1.0)) / math.log1p(_MANY), 1.0).tolist()


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


class NodesBandwidth(NodesObserver):
    """(N, 19): the rows of `NodesObserver`, and what the next job and the others would get of the memory bandwidth.

    Columns: bandwidth of the node's processors over the demands of its busy cores; the same with as many cores of the
    job as the node would get; an equal part of the bandwidth for each core that is then busy over the demand of a core
    of the job. All are at most 1, and 1 without a limit or a demand. The second and the third bound the speed of the
    job there from above and below if bandwidth is shared max-min fairly. Columns of the next job, equal in all rows:
    demand of a core as a share of the largest bandwidth per core of any node; lowest product of speed and supply of
    the nodes that are assigned to it, 1 before the first.
    """

    needs_core_ids = True

    def arrays(self, platform: Platform) -> Array:
        return Array((platform.n_nodes, len(FEATURES) + len(BANDWIDTH_FEATURES)))

    def begin(self, cluster: Cluster, wait_queue: WaitQueue) -> None:
        super().begin(cluster, wait_queue)
        bandwidth = cluster.platform.mem_bw
        self._supplied: Floats = np.add.reduceat(bandwidth, self._limits.first[:-1])
        per_core = self._supplied / np.maximum(self._limits.cores, 1.0)
        self._most_per_core = float(np.max(per_core, where=np.isfinite(per_core), initial=0.0))
        self.fixed = np.pad(self.fixed, ((0, 0), (0, len(BANDWIDTH_FEATURES))))

    def _write_next_job(self, partial: PartialPlacement, idle: Floats, seen: NDArray[np.float32]) -> None:
        super()._write_next_job(partial, idle, seen)
        cluster = self._cluster
        wanted = float(cluster.workload.memory_bandwidth[partial.job])
        share = min(wanted / self._most_per_core, 1.0) if self._most_per_core else 0.0
        queued, running = (_SCALED_NUMBER[min(len(jobs), _MANY)] for jobs in (cluster.queue, cluster.running))
        write_supply(
            self._limits,
            idle,
            cluster.cores.free_bandwidth,
            self._supplied,
            partial.chunks,
            partial.cpu_per_chunk,
            partial.capacity,
            partial.chosen,
            wanted,
            (share, queued, running),
            seen,
        )
