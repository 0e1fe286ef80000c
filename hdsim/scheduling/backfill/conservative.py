"""Backfilling with a plan of reservations: of every job (conservative) or of the first ones (hybrid)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from hdsim.scheduling.backfill.base import Backfill, Queue, start_queued
from hdsim.scheduling.backfill.profile import CorePlan, NodePlan, Plan
from hdsim.scheduling.backfill.releases import ReleaseTimes
from hdsim.scheduling.rules import TYPICAL_DEPTH, UNLIMITED
from hdsim.util.rules import integers_from, require

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
        self._depth = UNLIMITED
        self._ends = ReleaseTimes(cluster)
        counts = cluster.only_counts and cluster.uniform_speed and cluster.node_states is None
        self._plan: Plan = CorePlan() if counts else NodePlan(cluster)
        self._valid = False
        self._reserved: dict[int, float] = {}

    def started(self, cluster: Cluster, job: int, placement: Any) -> None:
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
        """Reserves a start for queued jobs in order and starts the jobs whose start is now."""
        unlimited = self._depth == UNLIMITED
        jobs = (order if unlimited else queue).jobs.copy()
        overdue, planned = self._ends.overdue(cluster.now), len(self._reserved)
        if self._valid and not overdue and list(self._reserved) == jobs[:planned]:
            self._plan.forward(cluster.now)
            due = [job for job, start in self._reserved.items() if start <= cluster.now]
            for job in due:
                self._start(cluster, queue, order, job, cluster.pick(job))
            jobs = jobs[planned:]
        else:
            self._plan.begin(cluster, self._ends)
            self._reserved.clear()
            self._valid = True
        left = self._depth
        if not unlimited:
            left -= sum(start < math.inf for start in self._reserved.values())
        for job, placement in self._plan.reserve(cluster, jobs, self._reserved, left):
            self._start(cluster, queue, order, job, placement)
        if not unlimited:
            others = [job for job in order.jobs if job not in self._reserved]
            for job, placement in self._plan.start(cluster, others):
                self._start(cluster, queue, order, job, placement)
        if overdue:
            # With one pass per event, a job whose end is due may end at this instant, before its end in the plan.
            self._valid = False

    def _start(self, cluster: Cluster, queue: Queue, order: Queue, job: int, placement: Any) -> None:
        start_queued(cluster, queue, order, job, placement)
        self._reserved.pop(job, None)
        self.started(cluster, job, placement)


class Hybrid(Conservative):
    """Backfilling with reservations of the first jobs of the queue; others start where they delay none of these.

    The algorithm of flux-sched's queue policy ``hybrid`` and of Maui's ``RESERVATIONDEPTH``. With one reservation the
    schedule on equal cores is that of EASY, with as many as there are jobs that of conservative backfilling.

    Args:
        cluster: The cluster.
        depth: Jobs that have a reservation, at least 1.

    Raises:
        ConfigError: The number is none.
    """

    def __init__(self, cluster: Cluster, depth: int = TYPICAL_DEPTH) -> None:
        super().__init__(cluster)
        require("agent.backfill", {"depth": integers_from(1)}, {"depth": depth})
        self._depth = depth
