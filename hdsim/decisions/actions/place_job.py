"""Action that places a job on nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hdsim.cluster.policies import CORE_POLICIES
from hdsim.cluster.power_budget import refuse_hard_caps
from hdsim.decisions.base import Action, Mask, more_events, one_of
from hdsim.decisions.wait_queue import PartialPlacement
from hdsim.scheduling.kinds import JobKinds
from hdsim.scheduling.orders import ORDERS, job_order

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.decisions.wait_queue import WaitQueue
    from hdsim.platform.model import Platform


class PlaceJob(Action):
    """Places the next job on nodes, one node per decision.

    The node takes as many cores of the job as fit; further nodes are chosen until the job is complete and starts. Only
    jobs that fit are offered, so every placement can be completed.

    Args:
        job_policy: Order of the queue.
        core_policy: Order of the idle cores of the chosen nodes.
        skip_blocked: Skip jobs that do not fit, as Kubernetes does; otherwise the head blocks the queue.
        void: A last action leaves the rest of the queue for this instant; not allowed within a placement.
    """

    def __init__(
        self,
        job_policy: str = "first",
        core_policy: str = "high_gflops",
        skip_blocked: bool = False,
        void: bool = False,
    ) -> None:
        self._order = job_order(one_of("job_policy", job_policy, ORDERS))
        self.core_policy = one_of("core_policy", core_policy, CORE_POLICIES)
        self._skip_blocked = skip_blocked
        self.has_void = void

    def size(self, platform: Platform) -> int:
        return platform.n_nodes + self.has_void

    def begin(self, cluster: Cluster, wait_queue: WaitQueue) -> None:
        """Starts with the queue of a cluster.

        Raises:
            ConfigError: There is a hard cap.
        """
        refuse_hard_caps(cluster.budget, "place_job")
        self._cluster, self._wait_queue = cluster, wait_queue
        self._queue = wait_queue.in_order(self._order)
        self._kinds = JobKinds(cluster)
        self._nodes = cluster.platform.n_nodes
        self._over = False

    def on_instant(self) -> None:
        self._over = False
        self._queue.refresh(self._cluster)
        if self._skip_blocked:
            self._kinds.on_instant()
            self._kinds.update(self._queue)

    def pending(self) -> bool:
        if not self._over and self._wait_queue.partial is None:
            self._wait_queue.partial = self._next()
            self._over = self._wait_queue.partial is None
        return not self._over

    def mask(self) -> Mask:
        mask = np.zeros(self._nodes + self.has_void, bool)
        partial = self._wait_queue.partial
        if partial is not None:
            mask[: self._nodes] = partial.capacity > 0
            if self.has_void:
                mask[-1] = partial.chunks == partial.total and more_events(self._cluster)
        return mask

    def act(self, action: int) -> None:
        wait_queue, cluster = self._wait_queue, self._cluster
        partial = wait_queue.partial
        assert partial is not None
        if action == self._nodes:
            wait_queue.partial, self._over = None, True
            return
        partial.choose(action)
        if partial.chunks:
            return
        job, wait_queue.partial = partial.job, None
        cluster.start(job, cluster.pick(job, limit=partial.chosen))
        wait_queue.remove(job)
        if self._order.after_start:
            self._queue.refresh(cluster)
            if self._skip_blocked:
                self._kinds.update(self._queue)

    def _next(self) -> PartialPlacement | None:
        """A placement of the first job that fits; without skipping, of the head only."""
        cluster = self._cluster
        while (job := self._kinds.next() if self._skip_blocked else self._queue.head()) is not None:
            if not (cluster.has_core_ids and cluster.size[job] > cluster.n_idle):
                partial = PartialPlacement(cluster, job)
                if partial.fits:
                    return partial
            if not self._skip_blocked:
                break
            self._kinds.block()
        return None
