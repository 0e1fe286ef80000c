"""Action that selects the jobs that are backfilled under a base order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hdsim.decisions.actions.base_policy import UnderBasePolicy
from hdsim.decisions.base import Mask, positive_int

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.decisions.wait_queue import WaitQueue
    from hdsim.platform.model import Platform


class BackfillAction(UnderBasePolicy):
    """Starts one of the first queued jobs, in order of submission, behind a head that does not fit.

    A base order serves the heads of the queue. While the head is blocked, each decision starts another job or ends the
    pass, as in RLBackfilling (Kolker-Hicks et al., 2023). The last action ends the pass and is always legal.

    Args:
        queue_size: Number of jobs to choose from.
        job_policy: Base order.
        core_policy: Core policy.
        reserve: Only jobs that do not delay the expected start of the head are legal, as under EASY; false: all jobs
            that fit.
    """

    has_void = True

    def __init__(
        self,
        queue_size: int = 128,
        job_policy: str = "first",
        core_policy: str = "high_gflops",
        reserve: bool = True,
    ) -> None:
        super().__init__(job_policy, core_policy)
        self.queue_size = positive_int("queue_size", queue_size)
        self._reserve = reserve

    def size(self, platform: Platform) -> int:
        return self.queue_size + 1

    def begin(self, cluster: Cluster, wait_queue: WaitQueue) -> None:
        super().begin(cluster, wait_queue)
        self._head: int | None = None
        self._mask = np.zeros(self.queue_size + 1, bool)

    def on_instant(self) -> None:
        """Starts the heads that fit."""
        super().on_instant()
        cluster, queue = self._cluster, self._queue
        while (head := queue.head()) is not None and (placement := cluster.pick(head)) is not None:
            self._start(head, placement)
        self._head = head
        self._find_legal()

    def pending(self) -> bool:
        return bool(self._mask[:-1].any())

    def mask(self) -> Mask:
        return self._mask

    def act(self, action: int) -> None:
        if action == self.queue_size:
            self._mask[:] = False
            return
        cluster, job = self._cluster, self._wait_queue.jobs[action]
        assert self._head is not None
        self._start(job, self._easy.placement(cluster, self._head, job) if self._reserve else cluster.pick(job))
        self._find_legal()

    def _find_legal(self) -> None:
        cluster, head, mask = self._cluster, self._head, self._mask
        mask[:] = False
        if head is None:
            return
        jobs, fits = self._wait_queue.peek(self.queue_size)
        for place in np.flatnonzero(fits & (jobs != head)).tolist():
            mask[place] = not self._reserve or self._easy.placement(cluster, head, int(jobs[place])) is not None
        mask[-1] = True
