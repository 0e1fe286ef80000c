"""EASY backfilling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hdsim.scheduling.backfill.base import Queue, ReleaseTimes, start_queued
from hdsim.scheduling.backfill.reservation import HeadReservation, NodeHeadReservation

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster


class Easy:
    """One reservation, for the head; any job may start now that does not delay it."""

    serves_head = False

    def __init__(self, cluster: Cluster) -> None:
        self._ends = ReleaseTimes()
        platform = cluster.platform
        fastest = platform.gflops[~platform.is_gpu].max()
        self._fastest = 1.0 if cluster.uniform_speed else float(fastest / platform.reference_gflops)
        self._head = -1
        self._room: HeadReservation | NodeHeadReservation | None = None

    def started(self, cluster: Cluster, job: int, placement: Any) -> None:
        """Notes when a started job is expected to end."""
        self._ends.add(job, cluster.now + cluster.estimate(job, placement))
        self._head = -1

    def ended(self, cluster: Cluster) -> None:
        """Forgets the jobs that have ended."""
        ended = cluster.ended
        if ended:
            self._head = -1
            for job in ended:
                self._ends.remove(job)
        if cluster.node_changes:
            self._head = -1

    def backfill(self, cluster: Cluster, queue: Queue, order: Queue, head: int) -> None:
        """Starts what does not delay the head.

        While nothing has ended and the head is the same, jobs that had to wait still have to: only new ones are tried.
        """
        idle, size, requested = cluster.n_idle, cluster.size, cluster.requested_time
        if not idle:
            return
        if self._head == head and not self._ends.overdue(cluster.now):
            candidates = order.sort([job for job in cluster.submitted if size[job] <= idle and job in cluster.queue])
        else:
            candidates = order.jobs(idle)
            self._room = (HeadReservation if cluster.only_counts else NodeHeadReservation)(cluster, self._ends, head)
            self._head = head
        room = self._room
        assert room is not None
        now, shadow, extra, counts = cluster.now, room.shadow, room.extra, cluster.only_counts
        # Wider than exact by more than any rounding: the estimates below decide.
        longest = (shadow - now) * self._fastest * (1 + 1e-9) if shadow > now else 0.0
        # What is neither short enough at the highest speed nor narrow enough is out; cores only get fewer below.
        for job in [job for job in candidates if requested[job] <= longest or size[job] <= extra]:
            # Where only counts matter, enough idle cores are all it takes.
            if size[job] > idle or job == head or not (counts or cluster.fits(job)):
                continue
            placement = cluster.pick(job)
            end = now + cluster.estimate(job, placement)
            if end > shadow and not room.admit(cluster, job, placement):
                continue
            start_queued(cluster, queue, order, job, placement)
            self._ends.add(job, end)
            idle -= size[job]
            if not idle:
                break
