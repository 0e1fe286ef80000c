"""The loop of a replay: the backend reports events, the agent decides, the backend carries out the decisions."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hdsim.cluster import invariants
from hdsim.cluster.job_state import STATE_OF_JOBS, FinalState, ReadOnlyError
from hdsim.cluster.state import Cluster
from hdsim.errors import DecisionError, InvariantError
from hdsim.results.moment import Moment, Shown
from hdsim.results.result import Result
from hdsim.scheduling.agent import FunctionAgent
from hdsim.simulation import watch
from hdsim.simulation.terminal import ReplayBar, collecting_less, signals_received

if TYPE_CHECKING:
    from hdsim.facility.model import Facility
    from hdsim.scheduling.agent import Agent
    from hdsim.simulation.setup import ReplaySetup

log = logging.getLogger(__name__)

#: Instants between two updates of the progress bar.
_INSTANTS_PER_UPDATE = 128


class ReplayBackend(Protocol):
    """The part of the backend interface that the loop uses."""

    def advance(self) -> bool:
        """Waits for the next instant with events and applies them to the cluster; False after the last one."""

    def apply(self) -> None:
        """Carries out the decisions of the scheduler."""


class EpisodeBackend(Protocol):
    """The part of the backend interface that an environment uses.

    Attributes:
        capabilities: See :class:`hdsim.backends.base.Capabilities`.
        kill_at_walltime, brings_jobs, repeats: See :class:`hdsim.backends.base.Backend`.
    """

    capabilities: Any
    kill_at_walltime: bool
    brings_jobs: bool
    repeats: bool

    def episode(self, setup: ReplaySetup) -> ReplayBackend:
        """Returns what runs the jobs of an episode."""


class Interrupted(KeyboardInterrupt):
    """A signal interrupted the replay.

    Attributes:
        result: The partial result.
        signal: Number of the signal.
    """

    def __init__(self, result: Result, signal_number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(signal_number).name}")
        self.result = result
        self.signal = signal_number


def carry_out(
    run: Callable[[list[int], ReplayBar], None],
    cluster: Cluster,
    *,
    progress: Shown,
    config: Mapping[str, Any] | None,
    facility: Facility | None,
    engine: Mapping[str, str] | None = None,
    agent: Agent | None = None,
) -> Result:
    """Runs a replay with a progress bar until its end or a signal, and returns its result.

    Args:
        run: The replay, with the list of received signals and the bar as arguments.
        cluster: The state that the replay changes.
        progress: Show the bar, or watch the replay.
        config: Configuration, stored in the result.
        facility: The facility around the machine, None without.
        engine: Parts of the engine in use, stored in the result.
        agent: The agent that alone decides, None beside a backend.

    Raises:
        Interrupted: SIGINT or SIGTERM was received.
        Exception: The agent or the backend failed; the attribute `result` has the partial result.
    """
    begin = time.perf_counter()

    def result(*, interrupted: bool) -> Result:
        facts = {"config": dict(config or {}), "facility": facility, "engine": dict(engine or {})}
        return Result.of(cluster, interrupted=interrupted, wall_seconds=time.perf_counter() - begin, **facts)

    with (
        collecting_less(),
        signals_received() as stop,
        closing(ReplayBar(len(cluster.workload), shown=progress)) as bar,
    ):
        try:
            run(stop, bar)
        except Exception as error:
            error.add_note(f"at {cluster.now:.6f} s of simulated time{_job(error, cluster)}")
            error.simulated_time = cluster.now  # type: ignore[attr-defined]
            # There is no partial result if the agent has damaged the state.
            with suppress(Exception):
                error.result = result(interrupted=True)  # type: ignore[attr-defined]
            raise
        try:
            invariants.check_end(cluster)
        except InvariantError as error:
            author = "the agent or the backend" if agent is None else _author(agent)
            raise DecisionError(f"{author} has changed the state of the cluster: {error}") from None
        done = result(interrupted=bool(stop))
    if stop:
        raise Interrupted(done, stop[0])
    if cluster.queue and not cluster.down:
        log.warning("%d jobs were never started by the agent", len(cluster.queue))
    if cluster.starting or cluster.held:
        log.warning("%d jobs were still starting and %d held at the end", len(cluster.starting), len(cluster.held))
    if unended := len(cluster.running) - len(cluster.starting):
        log.warning("%d jobs were still running at the end", unended)
    if coming := cluster.state.count(FinalState.NOT_SUBMITTED):
        log.warning("%d jobs had not been submitted at the end", coming)
    return done


class SchedulingPasses:
    """The scheduling passes of an agent.

    A DecisionError names the agent where it has changed what only the simulation changes: containers refuse that, the
    clock is compared after each pass, and `check`, after the last one or an error, compares the containers themselves.
    """

    def __init__(self, agent: Agent, cluster: Cluster) -> None:
        self.agent, self._decide, self._cluster = agent, agent.decide, cluster
        # The containers of the cluster that only the simulation changes.
        self._queue, self._running, self._starting = cluster.queue, cluster.running, cluster.starting
        self._starts, self._finishes, self._state = cluster.starting_time, cluster.finish_time, cluster.state
        self._requests, self._size, self._times = cluster.requests, cluster.size, cluster.requested_time

    @watch.is_pass
    def decide(self) -> None:
        """Has the agent decide."""
        cluster = self._cluster
        now = cluster.now
        try:
            self._decide(cluster)
        except ReadOnlyError as error:
            raise DecisionError(f"{_author(self.agent)} {error.change}") from error
        if cluster.now != now:
            raise DecisionError(
                f"{_author(self.agent)} has changed cluster.now from {now:g} to {cluster.now:g}: agents read the state "
                "and change it by cluster.start and the other methods"
            )

    def check(self) -> None:
        """Raises a DecisionError if the agent has replaced a container."""
        cluster = self._cluster
        # Each single step checks; a loop over the names takes three times as long.
        same = cluster.queue is self._queue and cluster.running is self._running and cluster.starting is self._starting
        same = same and cluster.starting_time is self._starts and cluster.finish_time is self._finishes
        same = same and cluster.state is self._state and cluster.requests is self._requests
        if not (same and cluster.size is self._size and cluster.requested_time is self._times):
            raise DecisionError(f"{_author(self.agent)} has replaced {STATE_OF_JOBS}, size or requested_time")


def _author(agent: Agent) -> str:
    return agent.function.__name__ if isinstance(agent, FunctionAgent) else f"{type(agent).__name__}.decide"


def _job(error: BaseException, cluster: Cluster) -> str:
    """The job that the innermost function with a variable `job` was about, for a note."""
    values = [frame.f_locals["job"] for frame, _ in walk_tb(error.__traceback__) if "job" in frame.f_locals]
    known = bool(values) and isinstance(values[-1], int | np.integer) and 0 <= values[-1] < len(cluster.workload)
    return f", job {cluster.workload.job_id[values[-1]]}" if known else ""


def replay(
    backend: ReplayBackend, cluster: Cluster, agent: Agent, stop: list[int], bar: ReplayBar, *, check: bool = False
) -> None:
    """Runs a backend to its end or until there is a signal in `stop`; with `check` invariants hold at every instant."""
    advance, apply = backend.advance, backend.apply

    def moment() -> Moment:
        jobs, running = cluster.workload, list(cluster.running)
        cores = float(jobs.requested_cores[running] @ jobs.cpu[running])
        return Moment(cluster.now, len(cluster.placements) - len(running), len(cluster.queue), len(running), cores)

    passes = SchedulingPasses(agent, cluster)
    decide = passes.decide
    watch.start()
    try:
        while True:
            for _ in range(_INSTANTS_PER_UPDATE):
                if not advance():
                    return
                decide()
                apply()
                if check:
                    invariants.check(cluster)
                if stop:
                    return
            bar.update(len(cluster.placements) - len(cluster.running), cluster.now, moment)
    finally:
        passes.check()
