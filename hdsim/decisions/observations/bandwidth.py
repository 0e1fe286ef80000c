"""Observation with one row per node that also shows the demands on its memory bandwidth."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from hdsim.decisions.base import Array
from hdsim.decisions.kernels.rows import write_supply
from hdsim.decisions.observations.nodes import FEATURES, NodesObserver
from hdsim.util.arrays import Floats

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hdsim.cluster.state import Cluster
    from hdsim.decisions.wait_queue import PartialPlacement, WaitQueue
    from hdsim.platform.model import Platform

#: Columns of a node, then columns of the next job.
BANDWIDTH_FEATURES = ("supply", "supply_with_job", "even_share", "job_bandwidth", "speed_so_far", "queued", "running")
_FIRST = len(FEATURES)
#: Jobs that count as 1 on the logarithmic scale of their number, and the scale.
_MANY = 1000
_SCALED_NUMBER: list[float] = np.minimum(np.log1p(np.arange(_MANY + 1.0)) / math.log1p(_MANY), 1.0).tolist()


class NodesBandwidth(NodesObserver):
    """(N, 17): the rows of `NodesObserver`, and what the next job and the others would get of the memory bandwidth.

    Columns: bandwidth of the node's processors over the demands of its busy cores; the same with as many cores of the
    job as the node would get; an equal part of the bandwidth for each core that is then busy over the demand of a core
    of the job. All are at most 1, and 1 without a limit or a demand. The second and the third bound the speed of the
    job there from above and below if bandwidth is shared max-min fairly. Columns of the next job, equal in all rows:
    demand of a core as a share of the largest bandwidth per core of any node; lowest product of speed and supply of
    the nodes that are assigned to it, 1 before the first.
    """

    needs_core_ids = True

    def arrays(self, platform: Platform) -> Array:
        return Array((platform.n_nodes, _FIRST + len(BANDWIDTH_FEATURES)))

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
