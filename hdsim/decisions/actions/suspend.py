"""Actions that set the time after which idle nodes are switched off."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from hdsim.decisions.actions.base_policy import ProposedByBasePolicy
from hdsim.decisions.actions.pick_job import PickJob
from hdsim.decisions.base import Mask
from hdsim.errors import ConfigError
from hdsim.util.rules import duration

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.decisions.wait_queue import WaitQueue
    from hdsim.platform.model import Platform

_WHERE = "env.timeouts"
#: Times of the bundled actions; None stands for nodes that stay on.
TIMEOUTS = (0, "1min", "5min", "10min", "30min", "2h", None)


class TimeoutChoice:
    """The choice of an idle time-out: one at each instant at which a node that can be switched off is idle.

    Attributes:
        seconds: Time-outs, infinite for nodes that stay on.

    Args:
        timeouts: Times, seconds or with a unit; None: idle nodes stay on.

    Raises:
        ConfigError: It is no list of at least one such time.
    """

    def __init__(self, timeouts: Iterable[float | str | None]) -> None:
        if isinstance(timeouts, str) or not isinstance(timeouts, Iterable):
            raise ConfigError(f"expected a list of times such as [0, 10min, null], got {timeouts!r}", where=_WHERE)
        self.seconds = [math.inf if each is None else duration(each, _WHERE, zero=True) for each in timeouts]
        if not self.seconds:
            raise ConfigError("expected at least one time, got none", where=_WHERE)

    def begin(self, cluster: Cluster) -> None:
        """Called before the first event of a replay.

        Raises:
            ConfigError: Nodes do not sleep.
        """
        if cluster.node_states is None:
            raise ConfigError("expected power=states or suspend, with which nodes sleep, got none", where="power")
        self._cluster, self._made = cluster, False
        self._sleepers = np.flatnonzero(cluster.platform.can_sleep)

    def on_instant(self) -> None:
        """Called once per instant."""
        self._made = False

    def pending(self) -> bool:
        """Whether the choice is due."""
        return not self._made and bool(self._cluster.cores.idle_nodes(self._sleepers).size)

    def make(self, place: int) -> None:
        """Sets a time-out by its place in the list."""
        self._made = True
        self._cluster.set_suspend_time(self.seconds[place])


class Suspend(ProposedByBasePolicy):
    """Sets, from a list, the time after which idle nodes go down; a base policy starts the jobs.

    A decision is due once at each instant with events at which a node that can be switched off is up and idle after
    the starts. It holds for all idle nodes until the next one. The same action throughout is ``power=suspend`` with
    that ``power.suspend_time`` (0 s: from the first decision on).

    Args:
        timeouts: Times, one for each action: seconds or with a unit (``10min``); None: idle nodes stay on.
        job_policy: Order of the base policy.
        core_policy: Core policy.
        backfill: Backfilling of the base policy: ``none`` or ``easy``.
    """

    needs_power = True

    def __init__(
        self,
        timeouts: Iterable[float | str | None] = TIMEOUTS,
        job_policy: str = "first",
        core_policy: str = "high_gflops",
        backfill: str = "easy",
    ) -> None:
        super().__init__(job_policy, core_policy, backfill)
        self.choice = TimeoutChoice(timeouts)

    def size(self, platform: Platform) -> int:
        return len(self.choice.seconds)

    def begin(self, cluster: Cluster, wait_queue: WaitQueue) -> None:
        super().begin(cluster, wait_queue)
        self.choice.begin(cluster)
        self._mask = np.ones(len(self.choice.seconds), bool)

    def on_instant(self) -> None:
        """Starts the jobs of the base policy."""
        super().on_instant()
        self.choice.on_instant()
        while (job := self._proposed()) is not None:
            self._start(job, self._cores(job))

    def pending(self) -> bool:
        return self.choice.pending()

    def mask(self) -> Mask:
        """All time-outs are legal."""
        return self._mask

    def act(self, action: int) -> None:
        self.choice.make(action)


class JobSuspend(PickJob):
    """Starts queued jobs as `PickJob` does and then, at the same instant, sets a time-out as `Suspend` does.

    The first actions are the queued jobs, the next one, with `void`, leaves the rest of the queue, the last ones are
    the time-outs. Jobs are legal while one fits and is not left, time-outs after that.

    Args:
        queue_size: Number of jobs to choose from.
        timeouts: Times, one for each of the last actions: seconds or with a unit; None: idle nodes stay on.
        core_policy: Core policy.
        void: An action leaves the rest of the queue for this instant.
    """

    needs_power = True

    def __init__(
        self,
        queue_size: int = 128,
        timeouts: Iterable[float | str | None] = TIMEOUTS,
        core_policy: str = "high_gflops",
        void: bool = False,
    ) -> None:
        super().__init__(queue_size, core_policy, void)
        self.choice = TimeoutChoice(timeouts)

    def size(self, platform: Platform) -> int:
        return super().size(platform) + len(self.choice.seconds)

    def begin(self, cluster: Cluster, wait_queue: WaitQueue) -> None:
        super().begin(cluster, wait_queue)
        self.choice.begin(cluster)

    def on_instant(self) -> None:
        super().on_instant()
        self.choice.on_instant()

    def pending(self) -> bool:
        return super().pending() or self.choice.pending()

    def mask(self) -> Mask:
        starts = super().pending()
        jobs = super().mask()
        times = np.full(len(self.choice.seconds), not starts)
        return np.concatenate([jobs if starts else np.zeros_like(jobs), times])

    def act(self, action: int) -> None:
        first = self.queue_size + self.has_void
        if action < first:
            super().act(action)
        else:
            self.choice.make(action - first)
