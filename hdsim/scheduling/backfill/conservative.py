"""Conservative backfilling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hdsim.scheduling.backfill.base import Backfill, Queue, start_queued
from hdsim.scheduling.backfill.profile import CorePlan, NodePlan, Plan
from hdsim.scheduling.backfill.releases import ReleaseTimes

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster


class Conservative(Backfill):
    """Conservative backfilling: every queued job has a reservation.

    The profile is recomputed after an unexpected end. While jobs end as expected and new jobs are last in the order, a
    new profile would be equal, so the old one is extended. A profile of nodes is recomputed at every end, since jobs
    start on other nodes than reserved.
    """

    serves_head = True

    def __init__(self, cluster: Cluster) -> None:
        self._ends = ReleaseTimes(cluster)
        self._plan: Plan = CorePlan() if cluster.only_counts and cluster.uniform_speed else NodePlan(cluster)
        self._valid = False
        self._reserved: dict[int, float] = {}
        self._queued: list[int] = []  # after the last pass

    def started(self, cluster: Cluster, job: int, placement: Any) -> None:
        """See :meth:`Backfill.started`."""
        self._ends.add(job, cluster.now + cluster.estimate(job, placement), cluster.size[job])

    def ended(self, cluster: Cluster) -> None:
        """See :meth:`Backfill.ended`; an unexpected end invalidates the profile."""
        now = cluster.now
        if cluster.node_changes:
            self._valid = False
        for job in cluster.ended:
            # A job of zero duration has an expected end just after its start and ends before it.
            expected = self._ends.remove(job) == now and cluster.starting_time[job] != now
            if not expected or isinstance(self._plan, NodePlan):
                self._valid = False
        if self._ends.correct():
            self._valid = False

    def backfill(self, cluster: Cluster, queue: Queue, order: Queue, head: int) -> None:
        """Reserves a start for each queued job in order and starts the jobs whose reserved start is now."""
        jobs = order.jobs.copy()
        overdue = self._ends.overdue(cluster.now)
        if self._valid and not overdue and self._queued == jobs[: len(self._queued)]:
            planned = len(self._reserved)
            self._plan.forward(cluster.now)
            due = [job for job, start in self._reserved.items() if start <= cluster.now]
            for job in due:
                self._start(cluster, queue, order, job, cluster.pick(job))
            jobs = jobs[planned:]
        else:
            self._plan.begin(cluster, self._ends)
            self._reserved.clear()
            self._valid = True
        for job, placement in self._plan.reserve(cluster, jobs, self._reserved):
            self._start(cluster, queue, order, job, placement)
        self._queued = order.jobs.copy()
        if overdue:
            # With one pass per event, a job whose end is due may end at this instant, before its end in the plan.
            self._valid = False

    def _start(self, cluster: Cluster, queue: Queue, order: Queue, job: int, placement: Any) -> None:
        start_queued(cluster, queue, order, job, placement)
        del self._reserved[job]
        self.started(cluster, job, placement)
