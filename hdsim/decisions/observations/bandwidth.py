"""Observation with one row per node that also shows the demands on its memory bandwidth."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from hdsim.decisions.base import Array
from hdsim.decisions.observations.nodes import FEATURES, Nodes
from hdsim.util.arrays import Floats

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hdsim.cluster.state import Cluster
    from hdsim.decisions.wait_queue import PartialPlacement, WaitQueue
    from hdsim.platform.model import Platform

#: Columns of a node, then columns of the next job.
BANDWIDTH_FEATURES = ("supply", "supply_with_job", "even_share", "job_bandwidth", "speed_so_far", "queued", "running")
_FIRST = len(FEATURES)
#: Jobs that count as 1 on the logarithmic scale of their number.
_LOG_MANY = math.log1p(1000)


class NodesBandwidth(Nodes):
    """(N, 17): the rows of `Nodes`, and what the next job and the others would get of the memory bandwidth.

    Columns: bandwidth of the node's processors over the demands of its busy cores; the same with as many cores of the
    job as the node would get; an equal part of the bandwidth for each core that is then busy over the demand of a core
    of the job. All are at most 1, and 1 without a limit or a demand. The second and the third bound the speed of the
    job there from above and below if bandwidth is shared max-min fairly. Columns of the next job, equal in all rows:
    demand of a core as a share of the largest bandwidth per core of any node; lowest product of speed and supply of
    the nodes that are assigned to it, 1 before the first.
    """

    needs_core_ids = True

    def arrays(self, platform: Platform) -> Array:
        """See :meth:`Observer.arrays`."""
        return Array((platform.n_nodes, _FIRST + len(BANDWIDTH_FEATURES)))

    def begin(self, cluster: Cluster, wait_queue: WaitQueue) -> None:
        """See :meth:`Observer.begin`."""
        super().begin(cluster, wait_queue)
        bandwidth = cluster.platform.mem_bw
        self._limited = np.isfinite(bandwidth)
        self._of_node: Floats = np.add.reduceat(bandwidth, self._first_processor)
        per_core = self._of_node / np.maximum(self._cores, 1.0)
        self._most_per_core = float(np.max(per_core, where=np.isfinite(per_core), initial=0.0))
        self.fixed = np.pad(self.fixed, ((0, 0), (0, len(BANDWIDTH_FEATURES))))

    def observe(self) -> NDArray[np.float32]:
        """See :meth:`Observer.observe`."""
        seen = self.fixed.copy()
        partial = self._wait_queue.next_job()
        self.fill(seen, partial)
        if partial is not None:
            seen[:, len(FEATURES) - 4 : _FIRST] = self._job_numbers(partial)
            self._fill_bandwidth(seen, partial)
        return seen

    def _fill_bandwidth(self, seen: NDArray[np.float32], partial: PartialPlacement) -> None:
        cluster = self._cluster
        used = np.subtract(
            cluster.platform.mem_bw, cluster.cores.free_bandwidth, out=np.zeros(len(self._limited)), where=self._limited
        )
        demand: Floats = np.add.reduceat(used, self._first_processor)
        wanted = float(cluster.workload.memory_bandwidth[partial.job])
        cores = np.where(partial.chosen > 0, partial.chosen, np.minimum(partial.capacity, partial.chunks))
        cores = cores * partial.cpu_per_chunk
        busy = self._cores - cluster.cores.node_idle + cores
        seen[:, _FIRST] = self._supply(demand)
        supply = seen[:, _FIRST + 1] = self._supply(demand + cores * wanted)
        seen[:, _FIRST + 2] = self._supply(busy * wanted)
        seen[:, _FIRST + 3] = min(wanted / self._most_per_core, 1.0) if self._most_per_core else 0.0
        chosen = partial.chosen > 0
        counts = np.array([len(cluster.queue), len(cluster.running)])
        seen[:, _FIRST + 5 :] = np.minimum(np.log1p(counts) / _LOG_MANY, 1.0)
        seen[:, _FIRST + 4] = (seen[chosen, 3] * supply[chosen]).min(initial=1.0)

    def _supply(self, demand: Floats) -> Floats:
        """(N,) bandwidth over a demand, at most 1."""
        enough = demand <= self._of_node
        ratio: Floats = np.divide(self._of_node, demand, out=np.ones(len(demand)), where=~enough)
        return ratio
