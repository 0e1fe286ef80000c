"""The only loop: a backend tells what happened, the agent decides, the backend carries it out."""

from __future__ import annotations

import gc
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster import invariants
from hdsim.cluster.state import Cluster, FinalState, completed
from hdsim.cluster.stores.ordered import OrderedCores
from hdsim.contention import Contention
from hdsim.errors import ConfigError, WorkloadError, nearest
from hdsim.failures import Failures
from hdsim.network import Network
from hdsim.results.result import Result
from hdsim.scheduling.agent import Agent, make_agent
from hdsim.simulation.bsp_jobs import BspJobs
from hdsim.simulation.contended import contended
from hdsim.simulation.engine import Engine
from hdsim.simulation.executor import Executor, Uncontended
from hdsim.simulation.strict import replay_in_order
from hdsim.util.plugins import PluginType
from hdsim.util.resources import folder
from hdsim.workload.feasibility import infeasible_jobs

if TYPE_CHECKING:
    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload

log = logging.getLogger(__name__)

#: Which of the streams of random numbers of a seed the outages of nodes have.
_OUTAGES = 1
#: Instants between two looks at the progress bar's clock.
_INSTANTS_PER_LOOK = 512


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


def simulate(
    platform: Platform,
    workload: Workload,
    agent: str | Mapping[str, Any] | Agent = "fcfs",
    *,
    contention: str | Mapping[str, Any] = "none",
    network: str | Mapping[str, Any] = "none",
    failures: str | Mapping[str, Any] = "none",
    seed: int = 0,
    kill_at_walltime: bool = False,
    batch_events: bool = True,
    progress: bool = False,
    check: bool = False,
    config: Mapping[str, Any] | None = None,
) -> Result:
    """Replays a workload on a platform under an agent.

    Args:
        platform: The platform.
        workload: The jobs.
        agent: An agent object, a name or settings; see :func:`hdsim.scheduling.agent.make_agent`.
        contention: Name of a file in ``conf/contention``, or its content as a mapping.
        network: Name of a file in ``conf/network``, or its content as a mapping.
        failures: Name of a file in ``conf/failures``, or its content as a mapping.
        seed: Seed of everything random in the replay.
        kill_at_walltime: Kill jobs at their walltime.
        batch_events: One scheduling pass an instant; otherwise one for every event of it, arrivals first.
        progress: Show a progress bar on standard error.
        check: Assert all invariants of the state at every instant (slow).
        config: Settings to keep in the result.

    Returns:
        The result.

    Raises:
        ConfigError: An unknown agent, policy, contention, network or failure model.
        DecisionError: The agent asked for something impossible.
        WorkloadError: There is no job.
        Interrupted: SIGINT or SIGTERM came (main thread only); what was done so far is in its `result`.
    """
    stage = set_stage(platform, workload, agent, contention=contention, network=network, failures=failures, seed=seed)
    cluster, order = stage.cluster, stage.agent.strict_order

    def play(stop: list[int], bar: ReplayBar) -> None:
        listed = isinstance(cluster.cores, OrderedCores) and cluster.cores.in_order
        if listed and order is not None and batch_events and not check:
            durations, finals = _outcomes(workload, kill_at_walltime=kill_at_walltime)

            def look() -> bool:
                bar.update()
                return bool(stop)

            replay_in_order(cluster, cluster.cores, order, durations, finals, stage.infeasible, look)
        else:
            backend = stage.backend(kill_at_walltime=kill_at_walltime, batch_events=batch_events)
            replay(backend, cluster, stage.agent, stop, bar, check=check)

    return perform(play, cluster, progress=progress, config=config)


@dataclass(frozen=True)
class Stage:
    """What every backend needs before the first event.

    Attributes:
        agent: Who decides.
        cluster: The state before the first event.
        contention: Contention model; None also where there is nothing to contend for.
        network: Network model; None also where nobody sends a message.
        failures: Failure model, None where no node fails.
        infeasible: Jobs that do not fit on the empty platform.
        seed: Seed of the replay.
    """

    agent: Agent
    cluster: Cluster
    contention: Contention | None
    network: Network | None
    failures: Failures | None
    infeasible: NDArray[np.int64]
    seed: int

    def backend(self, *, kill_at_walltime: bool, batch_events: bool) -> Engine:
        """Makes the engine; see :func:`simulate` for the arguments."""
        cluster = self.cluster
        return Engine(
            cluster,
            make_executor(cluster, self.contention, self.network),
            kill_at_walltime=kill_at_walltime,
            batch_events=batch_events,
            infeasible=self.infeasible.tolist(),
            failures=self.failures,
            # Outages have random numbers of their own, whatever the scheduler draws.
            rng=np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(_OUTAGES,))),
        )


def make_executor(cluster: Cluster, contention: Contention | None, network: Network | None) -> Executor:
    """Makes the executor that the jobs of a cluster need."""
    if cluster.workload.has_programs:
        return BspJobs(cluster.platform, cluster.workload, contention, network)
    if contention is not None:
        return contended(cluster.platform, cluster.workload, contention)
    return Uncontended(cluster)


def set_stage(
    platform: Platform,
    workload: Workload,
    agent: str | Mapping[str, Any] | Agent,
    *,
    contention: str | Mapping[str, Any],
    network: str | Mapping[str, Any] = "none",
    failures: str | Mapping[str, Any] = "none",
    seed: int,
    confirms_starts: bool = False,
    open_ended: bool = False,
    has_core_ids: bool = True,
) -> Stage:
    """Makes agent, models and cluster; see :func:`simulate` and `Cluster` for the arguments and the errors."""
    if len(workload) == 0:
        raise WorkloadError("expected at least one job, got an empty workload", where=workload.source or None)
    agent = make_agent(agent)
    model = make_contention(contention, platform)
    if model is not None and not model.applies(workload):
        model = None
    links = make_network(network, platform)
    if not workload.has_programs:
        links = None
    if links is not None and np.isinf(platform.local_bandwidth).all():
        log.warning(
            "%s says nothing about the bandwidth of its links: messages take no more than latencies", platform.name
        )
    breakdowns = make_failures(failures, platform)
    cluster = Cluster(
        platform,
        workload,
        core_policy=agent.core_policy,
        fixed_policy=agent.fixed_policy,
        core_policies=agent.core_policies,
        needs_processors=model is not None or workload.has_programs,
        nodes_fail=breakdowns is not None,
        confirms_starts=confirms_starts,
        open_ended=open_ended,
        has_core_ids=has_core_ids,
        rng=np.random.default_rng(seed),
    )
    infeasible = infeasible_jobs(platform, workload)
    if len(infeasible):
        log.warning("%d of %d jobs can never run on %s and are rejected", len(infeasible), len(workload), platform.name)
    return Stage(agent, cluster, model, links, breakdowns, infeasible, seed)


def perform(
    play: Callable[[list[int], ReplayBar], None], cluster: Cluster, *, progress: bool, config: Mapping[str, Any] | None
) -> Result:
    """Carries out a replay under a progress bar, stops it when a signal comes, and collects its result.

    Args:
        play: The replay, given the list of signals received so far and the bar.
        cluster: The state that the replay changes.
        progress: Show the bar.
        config: Settings to keep in the result.

    Raises:
        Interrupted: SIGINT or SIGTERM came.
        Exception: The agent or the backend failed; what was done so far is in the attribute `result`.
    """
    begin = time.perf_counter()

    def result(*, interrupted: bool) -> Result:
        seconds = time.perf_counter() - begin
        return Result(cluster, config=config, wall_seconds=seconds, interrupted=interrupted)

    with collecting_later(), signals_received() as stop, _bar(cluster, shown=progress) as bar:
        try:
            play(stop, bar)
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
    backend: Backend, cluster: Cluster, agent: Agent, stop: list[int], bar: ReplayBar, *, check: bool = False
) -> None:
    """Runs a backend to its end.

    Args:
        backend: Where the events come from.
        cluster: The state the backend keeps.
        agent: Who decides.
        stop: Signals received so far; the replay ends when there is one.
        bar: Progress bar.
        check: Assert the invariants at every instant.
    """
    agent.begin(cluster)
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
        if instants % _INSTANTS_PER_LOOK == 0:
            bar.update()


def _outcomes(workload: Workload, *, kill_at_walltime: bool) -> tuple[NDArray[np.float64], NDArray[np.int8]]:
    """Duration and final state of every job that runs undisturbed on cores of the reference speed."""
    finals = completed(workload)
    if not kill_at_walltime:
        return workload.runtime, finals
    runtime, walltime = workload.runtime, workload.walltime
    # A delay as long as the walltime reaches it, a computation completes.
    reached = np.where(workload.ends_in_delay, runtime >= walltime, runtime > walltime)
    finals[reached] = FinalState.COMPLETED_WALLTIME_REACHED
    return np.minimum(runtime, walltime), finals


def make_contention(spec: str | Mapping[str, Any], platform: Platform) -> Contention | None:
    """Makes a contention model from the name of its file in ``conf/contention`` or from that file's content.

    Raises:
        ConfigError: There is no such model.
    """
    made: Contention | None = _make_model(
        PluginType("contention", Contention, "hdsim.contention.Contention"), spec, platform
    )
    return made


def make_network(spec: str | Mapping[str, Any], platform: Platform) -> Network | None:
    """Makes a network model from the name of its file in ``conf/network`` or from that file's content.

    Raises:
        ConfigError: There is no such model.
    """
    made: Network | None = _make_model(PluginType("network", Network, "hdsim.network.Network"), spec, platform)
    return made


def make_failures(spec: str | Mapping[str, Any], platform: Platform) -> Failures | None:
    """Makes a failure model from the name of its file in ``conf/failures`` or from that file's content.

    Raises:
        ConfigError: There is no such model.
    """
    made: Failures | None = _make_model(PluginType("failures", Failures, "hdsim.failures.Failures"), spec, platform)
    return made


def _make_model(kind: PluginType, spec: str | Mapping[str, Any], platform: Platform) -> Any:
    spec = model_settings(kind.group, spec)
    if spec.get("_target_") is None and "path" not in spec:
        return None
    return kind.make(spec, platform)


def model_settings(group: str, spec: str | Mapping[str, Any]) -> Mapping[str, Any]:
    """Settings of a model: the content of a file in ``conf/GROUP`` where they are named by it.

    Raises:
        ConfigError: There is no such file.
    """
    if not isinstance(spec, str):
        return spec
    import yaml

    files = {path.stem: path for path in sorted((folder("conf") / group).glob("*.yaml"))}
    if spec not in files:
        raise ConfigError(f"expected one of {', '.join(files)}, got '{spec}'{nearest(spec, files)}", where=group)
    settings: Mapping[str, Any] = yaml.safe_load(files[spec].read_text(encoding="utf-8")) or {}
    return settings


@contextmanager
def collecting_later() -> Iterator[None]:
    """Puts off garbage collection: a replay makes a great many lasting objects and no cycles."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def signals_received() -> Iterator[list[int]]:
    """Collects the first SIGINT or SIGTERM so that a replay can stop between two instants; a second one kills."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def receive(number: int, _frame: Any) -> None:
        received.append(number)
        restore()

    for number in before:
        signal.signal(number, receive)
    try:
        yield received
    finally:
        restore()


class ReplayBar:
    """Jobs done, simulated time and jobs/s on standard error.

    Args:
        cluster: The cluster to watch.
        shown: Show the bar at all.
    """

    def __init__(self, cluster: Cluster, *, shown: bool) -> None:
        from tqdm import tqdm

        self._cluster = cluster
        self._bar = tqdm(
            total=len(cluster.workload), unit="job", desc="replay", delay=0.5, leave=False, disable=not shown
        )

    def update(self) -> None:
        """Brings the bar up to date."""
        cluster = self._cluster
        done = cluster.allocations.started - len(cluster.running)
        self._bar.set_postfix_str(f"simulated {cluster.now / 86400:.1f} d", refresh=False)
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        """Removes the bar."""
        self._bar.close()


@contextmanager
def _bar(cluster: Cluster, *, shown: bool) -> Iterator[ReplayBar]:
    bar = ReplayBar(cluster, shown=shown)
    try:
        yield bar
    finally:
        bar.close()
