"""Conservative backfilling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hdsim.scheduling.backfill.base import Queue, ReleaseTimes, start_queued
from hdsim.scheduling.backfill.profile import AvailabilityProfile, NodeAvailabilityProfile, NodeSpeeds

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster


class Conservative:
    """A reservation for every queued job in order; the plan is made anew whenever an end was not where it was expected.

    While every job ends when it was expected to and new jobs come last in the order, making the plan anew would give
    the same plan, so it is only extended. A plan of nodes is made anew at every end: jobs get others than it says.
    """

    serves_head = True

    def __init__(self, cluster: Cluster) -> None:
        self._ends = ReleaseTimes()
        self._plan: AvailabilityProfile | NodeAvailabilityProfile | None = None
        self._reserved: dict[int, float] = {}
        by_count = cluster.only_counts and cluster.uniform_speed
        self._speeds = None if by_count else NodeSpeeds(cluster.platform)

    def started(self, cluster: Cluster, job: int, placement: Any) -> None:
        """Notes when a started job is expected to end."""
        self._ends.add(job, cluster.now + cluster.estimate(job, placement))

    def ended(self, cluster: Cluster) -> None:
        """Forgets the jobs that have ended; an unexpected end outdates the plan."""
        now = cluster.now
        if cluster.node_changes:
            self._plan = None
        for job in cluster.ended:
            # A job of no time is planned to end a moment after its start, and has ended sooner.
            expected = self._ends.remove(job) == now and cluster.starting_time[job] != now
            if not expected or isinstance(self._plan, NodeAvailabilityProfile):
                self._plan = None

    def backfill(self, cluster: Cluster, queue: Queue, order: Queue, head: int) -> None:
        """Plans every queued job in order and starts those whose turn is now."""
        jobs = order.jobs()
        overdue = self._ends.overdue(cluster.now)
        planned = len(self._reserved)
        if self._plan is not None and not overdue and list(self._reserved) == jobs[:planned]:
            self._plan.forward(cluster.now)
            due = [job for job, start in self._reserved.items() if start <= cluster.now]
            for job in due:
                self._start(cluster, queue, order, job, cluster.pick(job))
            jobs = jobs[planned:]
        else:
            if self._speeds is None:
                self._plan = AvailabilityProfile(cluster, self._ends)
            else:
                self._plan = NodeAvailabilityProfile(cluster, self._ends, self._speeds)
            self._reserved.clear()
        for job in jobs:
            start, placement = self._plan.reserve(cluster, job)
            self._reserved[job] = start
            if start <= cluster.now:
                self._start(cluster, queue, order, job, placement)

    def _start(self, cluster: Cluster, queue: Queue, order: Queue, job: int, placement: Any) -> None:
        start_queued(cluster, queue, order, job, placement)
        del self._reserved[job]
        self.started(cluster, job, placement)
