"""Base of the actions that leave the order of the queue to a base policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
