"""EASY backfilling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hdsim.scheduling.backfill.base import Queue, ReleaseTimes, start_queued
from hdsim.scheduling.backfill.reservation import HeadReservation, NodeHeadReservation

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster


class Easy:
    """EASY: only the head has a reservation; jobs that do not delay it start at once."""

    serves_head = False

    def __init__(self, cluster: Cluster) -> None:
        self._ends = ReleaseTimes()
        platform = cluster.platform
        fastest = platform.gflops[~platform.is_gpu].max()
        self._fastest = 1.0 if cluster.uniform_speed else float(fastest / platform.reference_gflops)
        self._head = -1
        self._reservation: HeadReservation | NodeHeadReservation | None = None

    def started(self, cluster: Cluster, job: int, placement: Any) -> None:
        """See :meth:`Backfill.started`."""
        self._ends.add(job, cluster.now + cluster.estimate(job, placement))
        self._head = -1

    def ended(self, cluster: Cluster) -> None:
        """See :meth:`Backfill.ended`."""
        ended = cluster.ended
        if ended:
            self._head = -1
            for job in ended:
                self._ends.remove(job)
        if cluster.node_changes:
            self._head = -1

    def backfill(self, cluster: Cluster, queue: Queue, order: Queue, head: int) -> None:
        """Starts the jobs that do not delay the head.

        While no job ends and the head is the same, blocked jobs stay blocked and only submitted jobs are candidates.
        """
        idle, size, requested = cluster.n_idle, cluster.size, cluster.requested_time
        # Without core ids a job may take no CPU at all.
        if not idle and cluster.has_core_ids:
            return
        if self._head == head and not self._ends.overdue(cluster.now):
            candidates = order.sort([job for job in cluster.submitted if job in cluster.queue])
        else:
            candidates = order.jobs
            self._reservation = (HeadReservation if cluster.only_counts else NodeHeadReservation)(
                cluster, self._ends, head
            )
            self._head = head
        reservation = self._reservation
        assert reservation is not None
        now, shadow, extra, counts = cluster.now, reservation.shadow, reservation.extra, cluster.only_counts
        # An upper bound with a margin for rounding; the estimates below decide.
        longest = (shadow - now) * self._fastest * (1 + 1e-9) if shadow > now else 0.0
        # Jobs that are neither short enough at the highest speed nor narrow enough are never admitted below.
        possible = [
            job for job in candidates if size[job] <= idle and (requested[job] <= longest or size[job] <= extra)
        ]
        for job in possible:
            # If only counts of cores matter, enough idle cores suffice.
            if size[job] > idle or job == head or not (counts or cluster.fits(job)):
                continue
            placement = cluster.pick(job)
            end = now + cluster.estimate(job, placement)
            if end > shadow and not reservation.admit(cluster, job, placement):
                continue
            start_queued(cluster, queue, order, job, placement)
            self._ends.add(job, end)
            idle = cluster.n_idle
            if not idle and cluster.has_core_ids:
                break
