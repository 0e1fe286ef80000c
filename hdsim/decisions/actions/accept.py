"""Action that accepts or delays the jobs that a base policy starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hdsim.decisions.actions.base_policy import ProposedByBasePolicy
from hdsim.decisions.base import Mask, more_events, positive_int

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.decisions.wait_queue import WaitQueue
    from hdsim.platform.model import Platform


class Accept(ProposedByBasePolicy):
    """Accepts (0) or delays (1) each job that a base policy is about to start.

    As in SchedInspector (Zhang et al., HPDC 2022), a delayed head ends the pass of this instant. A delayed candidate
    for backfilling is passed over.

    Args:
        job_policy: Order of the base policy.
        core_policy: Core policy.
        backfill: Backfilling of the base policy: ``none`` or ``easy``.
        max_delays: Delays of a job after which it starts without a decision.
    """

    def __init__(
        self,
        job_policy: str = "first",
        core_policy: str = "high_gflops",
        backfill: str = "none",
        max_delays: int = 72,
    ) -> None:
        super().__init__(job_policy, core_policy, backfill)
        self._max_delays = positive_int("max_delays", max_delays)

    def size(self, platform: Platform) -> int:
        return 2

    def begin(self, cluster: Cluster, wait_queue: WaitQueue) -> None:
        super().begin(cluster, wait_queue)
        self._passed_over: set[int] = set()
        self._over = False

    def on_instant(self) -> None:
        super().on_instant()
        self._passed_over.clear()
        self._over = False

    def pending(self) -> bool:
        wait_queue = self._wait_queue
        while not self._over and wait_queue.proposed is None:
            job = self._proposed()
            if job is None:
                self._over = True
            elif wait_queue.delays.get(job, 0) >= self._max_delays:
                self._start(job, self._cores(job))
            else:
                wait_queue.proposed = job
        return not self._over

    def mask(self) -> Mask:
        """See :meth:`Action.mask`; a delay is legal while further events will occur."""
        return np.array([True, more_events(self._cluster)])

    def act(self, action: int) -> None:
        wait_queue = self._wait_queue
        job, wait_queue.proposed = wait_queue.proposed, None
        assert job is not None
        if action == 0:
            self._start(job, self._cores(job))
        else:
            wait_queue.delays[job] = wait_queue.delays.get(job, 0) + 1
            self._passed_over.add(job)
            self._over = job == self._queue.head()
