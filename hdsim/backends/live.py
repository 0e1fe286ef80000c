"""Base classes of backends whose jobs run elsewhere, by the clock on the wall or by a factor of it."""

from __future__ import annotations

import heapq
import math
import signal
import sys
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from hdsim.backends.base import Backend
from hdsim.platform.model import Platform
from hdsim.workload.model import Workload

if TYPE_CHECKING:
    from hdsim.results.result import Result
    from hdsim.simulation.replay import ReplayBackend
    from hdsim.simulation.setup import ReplaySetup

#: Longest wait in seconds, so that a signal is noticed.
LONGEST_WAIT = 0.2


class DueJobs(Protocol):
    """Jobs of a trace that are submitted when they are due."""

    @property
    def due(self) -> float:
        """Date of the next submission in seconds, infinite if there is none."""


class LiveBackend(Backend):
    """Base class of backends for a system of its own, from whose jobs or from a trace a run has its jobs."""

    def __init__(self) -> None:
        self._resources = ExitStack()
        # A configuration may be refused after its cluster was read.
        weakref.finalize(self, self._resources.close)
        self._session: ReplayBackend | None = None
        self._directory: Path | None = None
        self._facts: dict[str, Any] = {}

    def run(
        self, platform: Platform, workload: Workload, agent: Any, *arguments: Any, **options: Any
    ) -> tuple[Result, Any]:
        """See :meth:`Backend.run`; all jobs of a trace are known, those of the system's users are not."""
        self.capabilities = replace(self.capabilities, known_jobs=len(workload) > 0)
        return super().run(platform, workload, agent, *arguments, **options)

    def read_workload(self, platform: Platform) -> Workload:
        """Returns a workload without jobs: those of the system become known during the run."""
        return Workload.empty("<cluster>")

    def prepare(self, directory: Path) -> None:
        """Makes the run directory; torch then has one thread.

        More threads make a decision no faster, and take the processors from a system on this machine.
        """
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        if (torch := sys.modules.get("torch")) is not None:
            torch.set_num_threads(1)

    def advance(self) -> bool:
        return self._session is not None and self._session.advance()

    def apply(self) -> None:
        assert self._session is not None
        self._session.apply()

    def facts(self) -> dict[str, Any]:
        """Server, requests and latencies."""
        return self._facts


class LiveSession(ABC):
    """The jobs of a run by the clock on the wall.

    Args:
        setup: The setup of the replay.
        stop: Signals that were received.
        scale: Seconds of the system's clock in a second.
        stop_when_idle: Seconds without a job that could be placed after which the run ends, None for never.
    """

    def __init__(self, setup: ReplaySetup, stop: Sequence[int], scale: float, stop_when_idle: float | None) -> None:
        self.cluster, self._stop, self._scale, self._stop_when_idle = setup.cluster, stop, scale, stop_when_idle
        self._jobs: DueJobs | None = None  # jobs of the trace, None where others submit the jobs
        self._calls: list[float] = []
        self._called = False
        self._active = time.monotonic()

    @abstractmethod
    def clock(self) -> float:
        """Returns the seconds since the begin of the run by the system's clock."""

    def advance(self) -> bool:
        """Waits for what the scheduler acts on; False at the end."""
        cluster = self.cluster
        while not self._is_stopped():
            news = self._receive()
            cluster.next_instant(max(cluster.now, self.clock()))
            self._handle(news)
            while self._calls and self._calls[0] <= cluster.now:
                heapq.heappop(self._calls)
                self._called = True
            if cluster.submitted or cluster.ended or cluster.node_changes or cluster.withdrawn or self._called:
                self._called, self._active = False, time.monotonic()
                return True
            over = self._is_over()
            self._rest(over=over)
            if over:
                return False
        return False

    def apply(self) -> None:
        """Sends the decisions."""
        cluster = self.cluster
        for date in cluster.calls:
            heapq.heappush(self._calls, date)
        self._send(self.clock())
        for done in (cluster.started, cluster.killed, cluster.calls):
            done.clear()

    def end_open_run(self) -> None:
        """Ends a run without an end of its own; SIGTERM ends one of the system's jobs in order."""
        if self._jobs is None and list(self._stop) == [signal.SIGTERM]:
            self._stop.clear()  # type: ignore[attr-defined]
        self.cluster.open_ended = False

    def seconds_until_due(self) -> float:
        """Returns the seconds until the next call of the scheduler or the next submission, infinite without any."""
        due = min(self._calls[0] if self._calls else math.inf, self._jobs.due if self._jobs else math.inf)
        return (due - self.clock()) / self._scale

    @abstractmethod
    def _receive(self) -> Any:
        """Returns what has happened; may wait for it."""

    @abstractmethod
    def _handle(self, news: Any) -> None:
        """Applies what has happened to the cluster, whose time is set."""

    @abstractmethod
    def _send(self, now: float) -> None:
        """Sends the decisions that the cluster has, at a time of the system's clock."""

    def _is_stopped(self) -> bool:
        return bool(self._stop)

    def _is_waiting(self) -> bool:
        """Whether an answer is missing, before which the run cannot end."""
        return bool(self.cluster.starting)

    def _is_over(self) -> bool:
        cluster, idle = self.cluster, self._stop_when_idle
        if self._is_waiting():
            return False
        if self._jobs is not None:
            if self._jobs.due < math.inf or cluster.running:
                return False
            if not cluster.queue and cluster.arrived == len(cluster.state):
                return True
        return idle is not None and time.monotonic() - self._active > idle

    def _rest(self, *, over: bool) -> None:  # noqa: B027 - a session that waits in `_receive` has nothing to do
        """Is called where nothing has happened that the scheduler acts on."""
