"""Actions that place jobs on nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hdsim.cluster.selection import CORE_POLICIES
from hdsim.decisions.parts import Action, Mask, checked, goes_on
from hdsim.decisions.waiting import Placing
from hdsim.scheduling.orders import ORDERS, job_order
from hdsim.scheduling.queue import FixedQueue, MovingQueue

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.decisions.waiting import Waiting
    from hdsim.platform.model import Platform


class PlaceJob(Action):
    """Gives the next job to nodes, one node a decision.

    The node takes as many of the job's cores as it can; while some are left another node is to be chosen, and the job
    starts when none is. Only jobs that fit come up, so that a placement can always be completed.

    Args:
        job_policy: Order of the queue.
        core_policy: Which idle cores of the chosen nodes the job gets.
        skip_blocked: A job that does not fit is passed over, as Kubernetes does; otherwise it holds up the queue.
        void: A last action that leaves the rest of the queue for this instant; not while a job is half placed.
    """

    def __init__(
        self,
        job_policy: str = "first",
        core_policy: str = "high_gflops",
        skip_blocked: bool = False,
        void: bool = False,
    ) -> None:
        self._order = job_order(checked("job_policy", job_policy, ORDERS))
        self.core_policy = checked("core_policy", core_policy, CORE_POLICIES)
        self._skip_blocked = skip_blocked
        self._void = void

    def size(self, platform: Platform) -> int:
        """See :meth:`Action.size`."""
        return platform.n_nodes + self._void

    def begin(self, cluster: Cluster, waiting: Waiting) -> None:
        """See :meth:`Action.begin`."""
        self._cluster, self._waiting = cluster, waiting
        self._queue: FixedQueue | MovingQueue = (
            MovingQueue(cluster, self._order) if self._order.moving else waiting.by(self._order.name)
        )
        self._nodes = cluster.platform.n_nodes
        self._over = False

    def news(self) -> None:
        """See :meth:`Action.news`."""
        self._over = False
        self._queue.refresh(self._cluster)

    def pending(self) -> bool:
        """See :meth:`Action.pending`."""
        if not self._over and self._waiting.placing is None:
            self._waiting.placing = self._next()
            self._over = self._waiting.placing is None
        return not self._over

    def mask(self) -> Mask:
        """See :meth:`Action.mask`."""
        mask = np.zeros(self._nodes + self._void, bool)
        placing = self._waiting.placing
        if placing is not None:
            mask[: self._nodes] = placing.room > 0
            if self._void:
                mask[-1] = placing.chunks == placing.total and goes_on(self._cluster)
        return mask

    def act(self, action: int) -> None:
        """See :meth:`Action.act`."""
        waiting, cluster = self._waiting, self._cluster
        placing = waiting.placing
        assert placing is not None
        if action == self._nodes:
            waiting.placing, self._over = None, True
            return
        placing.choose(action)
        if placing.chunks:
            return
        job, waiting.placing = placing.job, None
        cluster.start(job, cluster.pick(job, limit=placing.chosen))
        waiting.remove(job)
        if isinstance(self._queue, MovingQueue):
            self._queue.remove(job)
            if self._order.after_start:
                self._queue.refresh(cluster)

    def _next(self) -> Placing | None:
        """The first job of the queue that fits; without skipping, the head or none."""
        cluster = self._cluster
        if not cluster.n_idle or not cluster.queue:
            return None
        head = self._queue.head()
        candidates = self._queue.jobs(cluster.n_idle) if self._skip_blocked else [] if head is None else [head]
        return next((placing for job in candidates if (placing := Placing(cluster, job)).fits), None)
