"""The reservation of the head of the queue."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from hdsim.cluster.requests import Chunk, FreeNodes
    from hdsim.cluster.state import Cluster
    from hdsim.scheduling.backfill.base import ReleaseTimes
    from hdsim.util.arrays import Ints


class HeadReservation:
    """Reservation of the head if only the number of cores matters.

    Attributes:
        shadow: Shadow time: earliest expected start of the head, seconds; infinite if unknown.
        extra: Extra cores: idle cores beside the head at that time.
    """

    def __init__(self, cluster: Cluster, ends: ReleaseTimes, head: int) -> None:
        missing = cluster.size[head] - cluster.n_idle
        self.shadow = math.inf
        now = cluster.now
        for end, job in ends.order:
            date = end if end > now else now
            if missing <= 0 and date > self.shadow:
                break
            missing -= cluster.size[job]
            self.shadow = date
        if missing > 0:
            self.shadow = math.inf
        self.extra = -missing

    def admit(self, cluster: Cluster, job: int, placement: Any) -> bool:
        """Reserves extra cores for a job that ends after the shadow time; False if there are too few."""
        if cluster.size[job] > self.extra:
            return False
        self.extra -= cluster.size[job]
        return True


class NodeHeadReservation:
    """Reservation of the head if memory or GPUs of nodes matter, in chunks of the head on each node."""

    def __init__(self, cluster: Cluster, ends: ReleaseTimes, head: int) -> None:
        self._free: FreeNodes = cluster.cores.free_nodes()
        self._chunk = cluster.requests.chunk(head)
        self.shadow = math.inf
        self._margin = float(self._free.capacity(self._chunk).sum()) - self._chunk.number
        for end, job in ends.order:
            date = max(end, cluster.now)
            if self._margin >= 0 and date > self.shadow:
                break
            held = cluster.running[job]
            self._margin += self._change(held.nodes, held.node_counts, cluster.requests.chunk(job))
            self.shadow = date
        if self._margin < 0:
            self.shadow = math.inf
        # An upper bound: admission also depends on the nodes of the cores.
        self.extra = float(np.maximum(self._free.idle, 0).sum()) - cluster.size[head]

    def _change(self, nodes: Ints, counts: Ints, chunk: Chunk) -> float:
        """Releases the resources of a job on nodes and returns the increase of the head's capacity in chunks."""
        before = self._free.capacity(self._chunk, nodes).sum()
        self._free.add(nodes, counts, chunk)
        return float(self._free.capacity(self._chunk, nodes).sum() - before)

    def admit(self, cluster: Cluster, job: int, placement: Any) -> bool:
        """Reserves the cores of a job that ends after the shadow time; False if the head does not fit beside it."""
        chunk = cluster.requests.chunk(job)
        change = self._change(placement.nodes, -placement.node_counts, chunk)
        if self._margin + change < 0:
            self._free.add(placement.nodes, placement.node_counts, chunk)
            return False
        self._margin += change
        self.extra -= cluster.size[job]
        return True
