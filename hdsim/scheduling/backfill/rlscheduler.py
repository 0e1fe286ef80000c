"""The backfilling of RLScheduler's published code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hdsim.scheduling.backfill.base import Queue, ReleaseTimes, start_queued
from hdsim.scheduling.backfill.reservation import HeadReservation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hdsim.cluster.state import Cluster


class RLScheduler:
    """The backfilling of RLScheduler's published code: not EASY, but what its tables were made with.

    The head is reserved a start once, when it becomes the head; a job may start if it is expected to end strictly
    before that. There are no extra cores.
    """

    serves_head = False

    def __init__(self, cluster: Cluster) -> None:
        self._ends = ReleaseTimes()
        self._head = -1
        self._earliest = 0.0
        self._freed = False  # since the queue was gone through

    def started(self, cluster: Cluster, job: int, placement: Any) -> None:
        """Notes when a started job is expected to end."""
        self._ends.add(job, cluster.now + cluster.estimate(job, placement))

    def ended(self, cluster: Cluster) -> None:
        """Forgets the jobs that have ended."""
        if cluster.ended:
            self._freed = True
            for job in cluster.ended:
                self._ends.remove(job)
        if cluster.node_changes:
            self._head = -1

    def backfill(self, cluster: Cluster, queue: Queue, order: Queue, head: int) -> None:
        """Starts, in order of submission, what ends before the head's first reservation.

        While nothing has ended and the head is the same, jobs that had to wait still have to: only new ones are tried.
        """
        candidates: Iterable[int] = cluster.queue
        if self._head != head:
            self._head = head
            self._earliest = HeadReservation(cluster, self._ends, head).shadow
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
