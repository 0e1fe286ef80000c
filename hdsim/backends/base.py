"""The backend interface; backends by name, by file, by class and by installed package."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakMethod

import numpy as np

from hdsim.errors import ConfigError
from hdsim.platform.model import Platform
from hdsim.results.moment import Shown
from hdsim.results.result import Result
from hdsim.scheduling.agent import Agent
from hdsim.simulation.replay import ReplayBackend as ReplayBackend
from hdsim.simulation.replay import carry_out, replay
from hdsim.simulation.setup import (
    Model,
    ReplaySetup,
    make_model,
    model_settings,
    quantities_faults,
    set_up,
)
from hdsim.simulation.terminal import ReplayBar
from hdsim.util.plugins import PluginType, installed, snake_case
from hdsim.workload.model import Workload

if TYPE_CHECKING:
    from hdsim.power import PowerManagement
    from hdsim.simulation.simulation import Simulation


@dataclass(frozen=True)
class Capabilities:
    """Capabilities of a backend, known before time 0."""

    contention: Collection[str] | None = ()  # names of the supported contention models besides ``none``; None: all
    network: Collection[str] | None = ()  # names of the supported network models besides ``none``; None: all
    failures: bool = False  # support for failure models
    power: bool = False  # support for power management: nodes that sleep and wake
    gpus: bool = False  # support for jobs that request GPUs
    supersteps: bool = False  # support for jobs with supersteps
    gangs: bool = False  # jobs whose CPU a controller changes between supersteps
    kills: bool = True  # support for ``cluster.kill``
    requeues: bool = False  # support for ``cluster.requeue``
    suspends: bool = False  # support for ``cluster.suspend``, of jobs whose executor can
    resizes: bool = False  # support for ``cluster.resize``
    sets_speed: bool = False  # support for ``cluster.set_speed``
    sets_frequency: bool = False  # support for ``cluster.set_frequency``
    confirms_starts: bool = False  # the backend confirms or refuses starts; otherwise started jobs run at once
    core_ids: bool = True  # placements consist of core ids, otherwise of quantities per node
    known_jobs: bool = True  # all jobs are in the workload before time 0
    checked: bool = False  # support for ``check=true``: hdsim's state is that of the backend at every instant


class Backend:
    """Base class of backends, which execute jobs.

    The settings of ``conf/backend/NAME.yaml`` are the arguments of the constructor. `run` calls `check` and `open`,
    then `advance` and `apply` alternately until `advance` returns False, and `close` in any case.

    Attributes:
        name: Name in messages, by default that of the class: ``my_cloud`` for ``MyCloud``.
        capabilities: Capabilities of the backend.
        episodes: Settings of the replays of a training, None for a backend that cannot train.
        kill_at_walltime: Whether jobs are killed at their walltimes, which forks then assume.
        brings_jobs: Whether the jobs of an episode of a training are those that come to the backend, not the trace's.
        repeats: Whether the same actions lead to the same episode of a training.
    """

    name: ClassVar[str]
    capabilities: Capabilities = Capabilities()
    episodes: Mapping[str, Any] | None = None
    kill_at_walltime: bool = False
    brings_jobs: bool = False
    repeats: bool = True

    def __init_subclass__(cls) -> None:
        """Sets the default name."""
        if "name" not in vars(cls):
            cls.name = snake_case(cls.__name__)

    def read_platform(self) -> Platform:
        """Reads the platform of ``platform=cluster``; ConfigError of a backend without one of its own."""
        raise ConfigError(
            f"expected a platform file, backend {self.name} has no cluster to read", where="platform.path"
        )

    def read_workload(self, platform: Platform) -> Workload:
        """Reads the workload of ``workload=cluster``, perhaps without jobs yet; ConfigError of a backend without."""
        raise ConfigError(f"expected a workload, backend {self.name} has no cluster to read", where="workload.path")

    def faults(self, platform: Platform, workload: Workload, contention: Any, network: Any) -> list[str]:
        """Returns faults of a configuration that the capabilities do not express."""
        return []

    def power_faults(self, power: PowerManagement) -> list[str]:
        """Returns faults of power management of a backend with the capability `power`."""
        return []

    def check(
        self,
        platform: Platform,
        workload: Workload,
        *,
        contention: Model = "none",
        network: Model = "none",
        failures: Model = "none",
        power: Model = "none",
    ) -> None:
        """Checks a configuration before time 0.

        Raises:
            ConfigError: The backend does not support the configuration; all faults are listed.
        """
        can, jobs = self.capabilities, len(workload)
        model, links = make_model("contention", contention, platform), make_model("network", network, platform)
        made_power = make_model("power", power, platform)
        refused = {
            group: f"{group}: expected {' or '.join(['none', *allowed])}, got {name}"
            for group, made, allowed in (
                ("contention", model, can.contention),
                ("network", links, can.network),
                ("failures", make_model("failures", failures, platform), None if can.failures else ()),
                ("power", made_power, None if can.power else ()),
            )
            if made is not None and allowed is not None and (name := snake_case(type(made).__name__)) not in allowed
        }
        faults = list(refused.values())
        if workload.asks_for_gpus and not can.gpus:
            asking = np.count_nonzero(workload.requested_gpus)
            faults.append(f"expected jobs without GPUs; {asking} of {jobs} jobs ask for some")
        if not can.supersteps:
            stepping = sum(program is not None and program.supersteps > 0 for program in workload.program.tolist())
            if stepping:
                faults.append(f"expected jobs without supersteps; {stepping} of {jobs} have some")
        if workload.has_gangs and not can.gangs:
            faults.append("expected jobs without gangs")
        known = (None if "contention" in refused else model, None if "power" in refused else made_power)
        faults += quantities_faults(platform, workload, *known)
        faults += self.faults(platform, workload, model, links)
        if made_power is not None and can.power:
            faults += self.power_faults(made_power)
        if faults:
            raise ConfigError.many([ConfigError(fault, where=f"backend={self.name}") for fault in faults])

    def episode(self, setup: ReplaySetup) -> ReplayBackend:
        """Returns what runs the jobs of an episode of a training; `close` is called after the last one."""
        return setup.engine(**(self.episodes or {}))

    def run(
        self,
        platform: Platform,
        workload: Workload,
        agent: str | Mapping[str, Any] | Agent,
        directory: str | Path = ".",
        *,
        contention: Model = "none",
        network: Model = "none",
        failures: Model = "none",
        facility: Model = "none",
        power: Model = "none",
        seed: int = 0,
        progress: Shown = False,
        check: bool = False,
        config: Mapping[str, Any] | None = None,
    ) -> tuple[Result, dict[str, Any]]:
        """Replays a workload under an agent (see :func:`hdsim.simulation.simulation.simulate`) in a run directory.

        `seed` is that of everything random. `progress` shows a progress bar on standard error, or is a function that
        watches the replay; `check` asserts all invariants of the state at every instant (slow); `config` is stored in
        the result. Entries of the backend in the manifest are returned besides the result.

        Raises:
            ConfigError: The backend does not support the configuration.
            BackendError: The backend failed; the error has the partial `result`.
            DecisionError: A decision of the agent cannot be carried out.
            Interrupted: SIGINT or SIGTERM was received.
        """
        models: dict[str, Any] = {"contention": contention, "network": network, "failures": failures, "power": power}
        self.check(platform, workload, **models)
        can = self.capabilities
        setup = set_up(
            platform,
            workload,
            agent,
            **models,
            facility=facility,
            seed=seed,
            confirms_starts=can.confirms_starts,
            open_ended=not can.known_jobs,
            has_core_ids=can.core_ids,
        )
        cluster = setup.cluster
        cluster.can_kill, cluster.can_resize, cluster.can_set_speed = can.kills, can.resizes, can.sets_speed
        cluster.can_requeue, cluster.can_suspend = can.requeues, can.suspends
        cluster.can_set_frequency = can.sets_frequency
        self._replayed = (platform, workload, setup, {"agent": agent, **models})
        cluster.forker = WeakMethod(self._fork)

        def play(stop: list[int], bar: ReplayBar) -> None:
            try:
                self.open(setup, Path(directory), stop)
                setup.agent.begin(setup.cluster)
                replay(self, setup.cluster, setup.agent, stop, bar, check=check)
            finally:
                self.close()

        return carry_out(play, setup.cluster, progress=progress, config=config, facility=setup.facility), self.facts()

    def _fork(self, *arguments: Any, **options: Any) -> Simulation:
        """Makes the simulation whose forks the agent asks for, and the first of these."""
        from hdsim.simulation.simulation import Simulation

        self._forks = Simulation.elsewhere(*self._replayed, kill_at_walltime=self.kill_at_walltime)
        return self._forks.fork(*arguments, **options)

    def facts(self) -> dict[str, Any]:
        """Returns entries for the manifest of a run; called after `close`."""
        return {}

    def summary(self) -> str:
        """Returns a line for the terminal at the end of a run, empty for none."""
        return ""

    def open(self, setup: ReplaySetup, directory: Path, stop: Sequence[int]) -> None:
        """Starts the backend; called before the first event.

        `advance` puts events into ``setup.cluster``. `stop` are received signals: a long wait must end if there is one.
        """
        raise NotImplementedError

    def advance(self) -> bool:
        """Waits for the next instant with events and applies them to the cluster; False after the last one."""
        raise NotImplementedError

    def apply(self) -> None:
        """Carries out the decisions of the scheduler and clears ``started``, ``killed`` and ``calls`` of the cluster.

        The next `advance` applies the consequences to the cluster, also those of the same instant.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Stops the backend; called at the end, also after an error in `open`."""


_TYPE = PluginType("backend", Backend, "hdsim.Backend")


def make_backend(spec: Model) -> Backend:
    """Creates a backend from the name of a file in ``conf/backend`` or of an installed backend, or from settings.

    Raises:
        ConfigError: The backend does not exist or does not accept the settings.
    """
    packages = installed("backend")
    backend: Backend
    if isinstance(spec, str) and spec in packages.names:
        backend = _TYPE.construct(packages[spec].load(), spec)
    else:
        backend = _TYPE.make(model_settings("backend", spec))
    return backend
