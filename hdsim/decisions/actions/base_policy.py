"""Base of the actions that leave the order of the queue to a base policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hdsim.cluster.policies import CORE_POLICIES
from hdsim.decisions.base import Action, one_of
from hdsim.scheduling.backfill.easy import Easy
from hdsim.scheduling.orders import ORDERS, job_order

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.decisions.wait_queue import WaitQueue


class UnderBasePolicy(Action):
    """Decisions beside a base order, with the reservation of EASY for its head."""

    fixed_policy = True

    def __init__(self, job_policy: str, core_policy: str) -> None:
        self._order = job_order(one_of("job_policy", job_policy, ORDERS))
        self.core_policy = one_of("core_policy", core_policy, CORE_POLICIES)

    def begin(self, cluster: Cluster, wait_queue: WaitQueue) -> None:
        self._cluster, self._wait_queue = cluster, wait_queue
        self._queue = wait_queue.in_order(self._order)
        self._easy = Easy(cluster)

    def on_instant(self) -> None:
        self._easy.ended(self._cluster)
        self._queue.refresh(self._cluster)

    def _start(self, job: int, placement: object) -> None:
        """Starts a queued job."""
        self._cluster.start(job, placement)
        self._wait_queue.remove(job)
        self._easy.started(self._cluster, job, placement)
        if self._order.after_start:
            self._queue.refresh(self._cluster)


class ProposedByBasePolicy(UnderBasePolicy):
    """Decisions about the jobs that a base order, perhaps with EASY backfilling, starts one after the other."""

    def __init__(self, job_policy: str, core_policy: str, backfill: str) -> None:
        super().__init__(job_policy, core_policy)
        self._backfill = one_of("backfill", backfill, ("none", "easy")) == "easy"
        self._passed_over: set[int] = set()

    def _proposed(self) -> int | None:
        """The next job that the base policy starts now."""
        cluster, head = self._cluster, self._queue.head()
        if head is None or cluster.fits(head):
            return head
        if not self._backfill:
            return None
        rest = (job for job in self._queue.jobs if job != head and job not in self._passed_over)
        return next((job for job in rest if self._easy.placement(cluster, head, job) is not None), None)

    def _cores(self, job: int) -> Any:
        """Returns the cores that a proposed job gets: those of the core policy, or such as do not delay the head."""
        head = self._queue.head()
        if job == head or head is None:
            return self._cluster.pick(job)
        return self._easy.placement(self._cluster, head, job)
