"""Backfilling as in the published code of RLScheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hdsim.scheduling.backfill.base import Backfill, Queue, start_queued
from hdsim.scheduling.backfill.releases import ReleaseTimes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hdsim.cluster.state import Cluster


class RLScheduler(Backfill):
    """Backfilling as in the published code of RLScheduler, which its tables are based on; it differs from EASY.

    The reservation of the head is computed once, when it becomes the head. A job starts if its expected end is strictly
    before that. There are no extra cores.
    """

    serves_head = False

    def __init__(self, cluster: Cluster) -> None:
        self._ends = ReleaseTimes(cluster)
        self._head = -1
        self._earliest = 0.0
        self._freed = False  # a job has ended since the last pass

    def started(self, cluster: Cluster, job: int, placement: Any) -> None:
        self._ends.add(job, cluster.now + cluster.estimate(job, placement), cluster.size[job])

    def ended(self, cluster: Cluster) -> None:
        if cluster.ended:
            self._freed = True
            for job in cluster.ended:
                self._ends.remove(job)
        self._ends.correct()
        if cluster.node_changes:
            self._head = -1

    def backfill(self, cluster: Cluster, queue: Queue, order: Queue, head: int) -> None:
        """Starts, in order of submission, jobs that end before the first reservation of the head.

        While no job ends and the head is the same, blocked jobs stay blocked and only submitted jobs are candidates.
        """
        candidates: Iterable[int] = cluster.queue
        if self._head != head:
            self._head = head
            idle, wanted = float(cluster.n_idle), float(cluster.size[head])
            self._earliest, _ = self._ends.head_reservation(cluster.now, idle, wanted)
        elif not self._freed:
            candidates = [job for job in cluster.submitted if job in cluster.queue]
        self._freed = False
        now, earliest, size, requested = cluster.now, self._earliest, cluster.size, cluster.requested_time
        idle = cluster.n_idle
        for job in [job for job in candidates if size[job] <= idle and now + requested[job] < earliest and job != head]:
            placement = cluster.pick(job)
            if placement is not None:
                start_queued(cluster, queue, order, job, placement)
                self.started(cluster, job, placement)
