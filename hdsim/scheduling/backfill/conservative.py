"""Conservative backfilling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hdsim.scheduling.backfill.base import Queue, ReleaseTimes, start_queued
from hdsim.scheduling.backfill.profile import AvailabilityProfile, NodeAvailabilityProfile, NodeSpeeds

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster


class Conservative:
    """Conservative backfilling: every queued job has a reservation.

    The profile is recomputed after an unexpected end. While jobs end as expected and new jobs are last in the order, a
    new profile would be equal, so the old one is extended. A profile of nodes is recomputed at every end, since jobs
    start on other nodes than reserved.
    """

    serves_head = True

    def __init__(self, cluster: Cluster) -> None:
        self._ends = ReleaseTimes()
        self._profile: AvailabilityProfile | NodeAvailabilityProfile | None = None
        self._reserved: dict[int, float] = {}
        by_count = cluster.only_counts and cluster.uniform_speed
        self._speeds = None if by_count else NodeSpeeds(cluster.platform)

    def started(self, cluster: Cluster, job: int, placement: Any) -> None:
        """See :meth:`Backfill.started`."""
        self._ends.add(job, cluster.now + cluster.estimate(job, placement))

    def ended(self, cluster: Cluster) -> None:
        """See :meth:`Backfill.ended`; an unexpected end invalidates the profile."""
        now = cluster.now
        if cluster.node_changes:
            self._profile = None
        for job in cluster.ended:
            # A job of zero duration has an expected end just after its start and ends before it.
            expected = self._ends.remove(job) == now and cluster.starting_time[job] != now
            if not expected or isinstance(self._profile, NodeAvailabilityProfile):
                self._profile = None

    def backfill(self, cluster: Cluster, queue: Queue, order: Queue, head: int) -> None:
        """Reserves a start for each queued job in order and starts the jobs whose reserved start is now."""
        jobs = order.jobs.copy()
        overdue = self._ends.overdue(cluster.now)
        planned = len(self._reserved)
        if self._profile is not None and not overdue and list(self._reserved) == jobs[:planned]:
            self._profile.forward(cluster.now)
            due = [job for job, start in self._reserved.items() if start <= cluster.now]
            for job in due:
                self._start(cluster, queue, order, job, cluster.pick(job))
            jobs = jobs[planned:]
        else:
            if self._speeds is None:
                self._profile = AvailabilityProfile(cluster, self._ends)
            else:
                self._profile = NodeAvailabilityProfile(cluster, self._ends, self._speeds)
            self._reserved.clear()
        for job in jobs:
            start, placement = self._profile.reserve(cluster, job)
            self._reserved[job] = start
            if start <= cluster.now:
                self._start(cluster, queue, order, job, placement)

    def _start(self, cluster: Cluster, queue: Queue, order: Queue, job: int, placement: Any) -> None:
        start_queued(cluster, queue, order, job, placement)
        del self._reserved[job]
        self.started(cluster, job, placement)
