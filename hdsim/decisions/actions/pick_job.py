"""Action that selects one of the queued jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.cluster.policies import CORE_POLICIES
from hdsim.decisions.base import Action, Mask, more_events, one_of, positive_int
from hdsim.errors import ConfigError
from hdsim.scheduling.backfill import find_backfill
from hdsim.scheduling.rules import HEAD_ALONE_NUMBERS

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.decisions.wait_queue import WaitQueue
    from hdsim.platform.model import Platform


class PickJob(Action):
    """Starts one of the first queued jobs in order of submission, on cores selected by a core policy.

    Several jobs may be started at one instant, one decision each.

    Attributes:
        backfilling: Name of the backfilling.

    Args:
        queue_size: Number of jobs to choose from.
        core_policy: Core policy.
        void: A last action leaves the rest of the queue for this instant.
        commit: RLScheduler's protocol: every job may be selected; the selected job is reserved until it starts, without
            further decisions.
        backfill: Backfilling while a job is reserved: ``none``, ``easy`` or ``rlscheduler``.
    """

    def __init__(
        self,
        queue_size: int = 128,
        core_policy: str = "high_gflops",
        void: bool = False,
        commit: bool = False,
        backfill: str = "none",
    ) -> None:
        self.queue_size = positive_int("queue_size", queue_size)
        self.core_policy = one_of("core_policy", core_policy, CORE_POLICIES)
        self.backfilling = one_of("backfill", backfill, HEAD_ALONE_NUMBERS)
        if backfill != "none" and not commit:
            raise ConfigError("expected env.commit=true with backfilling, which is for jobs waited for", where="env")
        if void and commit:
            raise ConfigError("expected env.void=false with env.commit=true: any job can be picked", where="env")
        self.fixed_policy = True
        self.has_void = void
        self.commit = commit

    def size(self, platform: Platform) -> int:
        return self.queue_size + self.has_void

    def begin(self, cluster: Cluster, wait_queue: WaitQueue) -> None:
        self._cluster, self._wait_queue = cluster, wait_queue
        self._backfill = find_backfill(self.backfilling)[2](cluster)
        self._committed: int | None = None
        self._left = False
        self._mask: Mask | None = None

    def on_instant(self) -> None:
        """Starts the reserved job if it fits now; otherwise backfills."""
        if self._committed in self._cluster.withdrawn:
            self._committed = None
        job = self._committed
        self._left = False
        self._mask = None
        if self._backfill is not None:
            self._backfill.ended(self._cluster)
        if job is not None:
            self._committed = None
            self._serve(job)

    def pending(self) -> bool:
        if self._left or not self._cluster.queue:
            return False
        if self.commit:
            return self._committed is None
        return self._wait_queue.any_fits(self.queue_size)

    def mask(self) -> Mask:
        if self._mask is None:
            self._mask = np.zeros(self.queue_size + self.has_void, bool)
            jobs, fits = self._wait_queue.peek(self.queue_size)
            self._mask[: len(jobs)] = True if self.commit else fits
            if self.has_void:
                self._mask[-1] = more_events(self._cluster)
        return self._mask

    def act(self, action: int) -> None:
        self._mask = None
        if action == self.queue_size:
            self._left = True
        else:
            self._serve(self._wait_queue.jobs[action])

    def _serve(self, job: int) -> None:
        cluster, wait_queue, backfill = self._cluster, self._wait_queue, self._backfill
        placement: Any = cluster.pick(job)
        if placement is None:
            self._committed = job
            if backfill is not None:
                backfill.backfill(cluster, wait_queue, wait_queue, job)
            return
        cluster.start(job, placement)
        wait_queue.remove(job)
        if backfill is not None:
            backfill.started(cluster, job, placement)
