"""The loop of a replay: a backend tells what happened, the agent decides, the backend carries it out."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from hdsim.cluster import invariants
from hdsim.cluster.state import Cluster
from hdsim.results.result import Result
from hdsim.simulation.terminal import ReplayBar, collecting_later, replay_bar, signals_received

if TYPE_CHECKING:
    from hdsim.scheduling.agent import Agent

log = logging.getLogger(__name__)

#: Instants between two updates of the progress bar.
_INSTANTS_PER_UPDATE = 512


class Backend(Protocol):
    """What runs the jobs: the engine, a Batsim, a Kubernetes API server."""

    def advance(self) -> bool:
        """Waits for the next news and puts them into the cluster; False when there will be none."""

    def apply(self) -> None:
        """Carries out what the scheduler decided on them."""


class Interrupted(KeyboardInterrupt):
    """The replay was stopped by a signal.

    Attributes:
        result: What had happened until then.
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
    progress: bool,
    config: Mapping[str, Any] | None,
    engine: Mapping[str, str] | None = None,
) -> Result:
    """Carries out a replay under a progress bar, stops it when a signal comes, and collects its result.

    Args:
        run: The replay, given the list of signals received so far and the bar.
        cluster: The state that the replay changes.
        progress: Show the bar.
        config: Settings to keep in the result.
        engine: Which parts of the engine the replay uses, to keep in the result.

    Raises:
        Interrupted: SIGINT or SIGTERM came.
        Exception: The agent or the backend failed; what was done so far is in the attribute `result`.
    """
    begin = time.perf_counter()

    def result(*, interrupted: bool) -> Result:
        seconds = time.perf_counter() - begin
        return Result(cluster, config=config, wall_seconds=seconds, interrupted=interrupted, engine=engine)

    with collecting_later(), signals_received() as stop, replay_bar(cluster, shown=progress) as bar:
        try:
            run(stop, bar)
        except Exception as error:
            error.add_note(f"at {cluster.now:.6f} s of simulated time")
            # What was done until then is kept, unless the agent has damaged the state.
            with suppress(Exception):
                error.result = result(interrupted=True)  # type: ignore[attr-defined]
            raise
        done = result(interrupted=bool(stop))
    if stop:
        raise Interrupted(done, stop[0])
    if cluster.queue and not cluster.down:
        log.warning("%d jobs were never started by the agent", len(cluster.queue))
    if cluster.starting or cluster.held:
        log.warning("%d jobs were still starting and %d held at the end", len(cluster.starting), len(cluster.held))
    return done


def replay(
    backend: Backend,
    cluster: Cluster,
    agent: Agent,
    stop: list[int],
    bar: ReplayBar,
    *,
    check: bool = False,
) -> None:
    """Runs a backend to its end.

    Args:
        backend: Where the events come from.
        cluster: The state the backend keeps.
        agent: Who decides; it has begun.
        stop: Signals received so far; the replay ends when there is one.
        bar: Progress bar.
        check: Assert the invariants at every instant.
    """
    advance, apply, decide = backend.advance, backend.apply, agent.decide
    instants = 0
    while advance():
        decide(cluster)
        apply()
        if check:
            invariants.check(cluster)
        if stop:
            return
        instants += 1
        if instants % _INSTANTS_PER_UPDATE == 0:
            bar.update()
