"""The reservation of the head of the queue."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hdsim.cluster.requests import Chunk, FreeNodes
    from hdsim.cluster.state import Cluster
    from hdsim.scheduling.backfill.base import ReleaseTimes
    from hdsim.util.arrays import Ints


class HeadReservation:
    """Reservation of the head where only the number of cores matters.

    Attributes:
        shadow: When the head can start, s; infinite if nobody knows.
        extra: Cores left over at that time.
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
        """Gives the job extra cores to keep past the shadow time, if there are enough."""
        if cluster.size[job] > self.extra:
            return False
        self.extra -= cluster.size[job]
        return True


class NodeHeadReservation:
    """Reservation of the head where memory or GPUs of nodes matter.

    What is free at the shadow time is kept by node, the head's reservation in its chunks.
    """

    def __init__(self, cluster: Cluster, ends: ReleaseTimes, head: int) -> None:
        self._free: FreeNodes = cluster.cores.free_nodes()
        self._slot = cluster.requests.chunk(head)
        self.shadow = math.inf
        self._spare = float(self._free.capacity(self._slot).sum()) - self._slot.number
        for end, job in ends.order:
            date = max(end, cluster.now)
            if self._spare >= 0 and date > self.shadow:
                break
            held = cluster.running[job]
            self._spare += self._change(held.nodes, held.node_counts, cluster.requests.chunk(job))
            self.shadow = date
        if self._spare < 0:
            self.shadow = math.inf
        # Whether a job may keep cores depends on where they are, but more than these never.
        self.extra = int(self._free.idle.sum()) - self._slot.number * self._slot.cores

    def _change(self, nodes: Ints, counts: Ints, chunk: Chunk) -> float:
        """Gives nodes back what a job has there; returns by how many chunks the head's room has grown."""
        before = self._free.capacity(self._slot, nodes).sum()
        self._free.add(nodes, counts, chunk)
        return float(self._free.capacity(self._slot, nodes).sum() - before)

    def admit(self, cluster: Cluster, job: int, placement: Any) -> bool:
        """Lets the job keep its cores past the shadow time, if the head still fits beside it then."""
        chunk = cluster.requests.chunk(job)
        change = self._change(placement.nodes, -placement.node_counts, chunk)
        if self._spare + change < 0:
            self._free.add(placement.nodes, placement.node_counts, chunk)
            return False
        self._spare += change
        self.extra -= cluster.size[job]
        return True
