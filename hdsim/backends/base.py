"""What a backend is, what it can do, and how one is found by name, by file, by class or by an installed package."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hdsim.errors import ConfigError
from hdsim.simulation.replay import carry_out, replay
from hdsim.simulation.setup import make_contention, make_failures, make_network, model_settings, set_up
from hdsim.simulation.terminal import ReplayBar
from hdsim.util.plugins import PluginType, installed

if TYPE_CHECKING:
    from hdsim.platform.model import Platform
    from hdsim.results.result import Result
    from hdsim.scheduling.agent import Agent
    from hdsim.simulation.setup import Setup
    from hdsim.workload.model import Workload

Model = str | Mapping[str, Any]


@dataclass(frozen=True)
class Capabilities:
    """What a backend can do, known before time 0.

    Attributes:
        contention: Names of the contention models that it follows beside ``none``; None: all.
        network: The same for network models.
        failures: Nodes fail as a failure model says.
        gpus: Jobs may ask for GPUs.
        supersteps: Jobs may consist of supersteps.
        kills: ``cluster.kill`` is carried out.
        resizes: ``cluster.resize`` is carried out.
        sets_speed: ``cluster.set_speed`` is carried out.
        confirms_starts: A start is a request that the backend confirms or refuses; otherwise started jobs run at once.
        core_ids: Jobs get cores that have ids; otherwise amounts of nodes, such as half a core.
        known_jobs: All jobs are in the workload before time 0.
    """

    contention: Collection[str] | None = ()
    network: Collection[str] | None = ()
    failures: bool = False
    gpus: bool = False
    supersteps: bool = False
    kills: bool = True
    resizes: bool = False
    sets_speed: bool = False
    confirms_starts: bool = False
    core_ids: bool = True
    known_jobs: bool = True


class Backend:
    """Base class of what runs the jobs: the simulation, a Batsim, a Kubernetes API server.

    The settings of ``conf/backend/NAME.yaml`` are the constructor's arguments. `run` calls `check`, `open`, then
    `advance` and `apply` in turn until `advance` returns False, and `close` in any case.

    Attributes:
        name: What messages call the backend, by default the name of the class: ``my_cloud`` for ``MyCloud``.
        capabilities: What the backend can do.
        episodes: Settings of the environments in which agents learn for this backend, None where it is not simulated.
    """

    name: ClassVar[str]
    capabilities: ClassVar[Capabilities] = Capabilities()
    episodes: Mapping[str, Any] | None = None

    def __init_subclass__(cls) -> None:
        """Names the class."""
        if "name" not in vars(cls):
            cls.name = _snake_case(cls.__name__)

    def faults(self, platform: Platform, workload: Workload, contention: Any, network: Any) -> list[str]:
        """What the backend cannot do beyond what its capabilities say, given models or None."""
        return []

    def check(
        self,
        platform: Platform,
        workload: Workload,
        *,
        contention: Model = "none",
        network: Model = "none",
        failures: Model = "none",
    ) -> None:
        """Finds out before time 0 whether the backend can do what is asked for.

        Raises:
            ConfigError: It cannot; one message with all reasons.
        """
        can, jobs = self.capabilities, len(workload)
        model, links = make_contention(contention, platform), make_network(network, platform)
        faults = []
        for group, made, allowed in (
            ("contention", model, can.contention),
            ("network", links, can.network),
            ("failures", make_failures(failures, platform), None if can.failures else ()),
        ):
            name = _snake_case(type(made).__name__)
            if made is not None and allowed is not None and name not in allowed:
                faults.append(f"{group}: expected {' or '.join(['none', *allowed])}, got {name}")
        if workload.asks_for_gpus and not can.gpus:
            asking = np.count_nonzero(workload.requested_gpus)
            faults.append(f"expected jobs without GPUs; {asking} of {jobs} jobs ask for some")
        if not can.supersteps:
            stepping = sum(program is not None and program.supersteps > 0 for program in workload.program.tolist())
            if stepping:
                faults.append(f"expected jobs without supersteps; {stepping} of {jobs} have some")
        faults += self.faults(platform, workload, model, links)
        if faults:
            raise ConfigError.many([ConfigError(fault, where=f"backend={self.name}") for fault in faults])

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
        seed: int = 0,
        progress: bool = False,
        check: bool = False,
        config: Mapping[str, Any] | None = None,
    ) -> tuple[Result, dict[str, Any]]:
        """Replays a workload under an agent.

        Args:
            platform: The platform.
            workload: The jobs.
            agent: See :func:`hdsim.simulation.simulation.simulate`.
            directory: The run directory, for files of the backend's own.
            contention: Contention model, as there; the two below likewise.
            network: Network model.
            failures: Failure model.
            seed: Seed of everything random.
            progress: Show a progress bar on standard error.
            check: Assert all invariants of the state at every instant (slow).
            config: Settings to keep in the result.

        Returns:
            The result, and what the manifest of the run tells of the backend.

        Raises:
            ConfigError: The backend cannot do what is asked for.
            BackendError: It failed; what was done until then is in the error's `result`.
            DecisionError: The agent asked for something impossible.
            Interrupted: SIGINT or SIGTERM came.
        """
        models: dict[str, Any] = {"contention": contention, "network": network, "failures": failures}
        self.check(platform, workload, **models)
        can = self.capabilities
        setup = set_up(
            platform,
            workload,
            agent,
            **models,
            seed=seed,
            confirms_starts=can.confirms_starts,
            open_ended=not can.known_jobs,
            has_core_ids=can.core_ids,
        )
        cluster = setup.cluster
        cluster.can_kill, cluster.can_resize, cluster.can_set_speed = can.kills, can.resizes, can.sets_speed

        def play(stop: list[int], bar: ReplayBar) -> None:
            try:
                self.open(setup, Path(directory), stop)
                setup.agent.begin(setup.cluster)
                replay(self, setup.cluster, setup.agent, stop, bar, check=check)
            finally:
                self.close()

        return carry_out(play, setup.cluster, progress=progress, config=config), self.facts()

    def facts(self) -> dict[str, Any]:
        """What the manifest of a run tells of the backend; asked for after `close`."""
        return {}

    def open(self, setup: Setup, directory: Path, stop: Sequence[int]) -> None:
        """Called before the first event.

        Args:
            setup: Cluster, agent and models; `advance` puts events into ``setup.cluster``.
            directory: The run directory, for files of the backend's own.
            stop: Signals received so far; a wait that is not over soon has to end when there is one.
        """
        raise NotImplementedError

    def advance(self) -> bool:
        """Waits for the next instant with news and puts them into the cluster; False when there will be none."""
        raise NotImplementedError

    def apply(self) -> None:
        """Carries out what the scheduler decided, and empties ``started``, ``killed`` and ``calls`` of the cluster.

        What comes of it, even at once, is put into the cluster by the next `advance`.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Called at the end, also after an error in `open`."""


_TYPE = PluginType("backend", Backend, "hdsim.Backend")


def make_backend(spec: Model) -> Backend:
    """Makes a backend from the name of its file in ``conf/backend``, of an installed one, or from settings.

    Raises:
        ConfigError: There is no such backend, or it does not take the settings.
    """
    packages = installed("backend")
    backend: Backend
    if isinstance(spec, str) and spec in packages.names:
        backend = _TYPE.construct(packages[spec].load(), spec)
    else:
        backend = _TYPE.make(model_settings("backend", spec))
    return backend


def _snake_case(name: str) -> str:
    """A class's name as configurations spell it: ``fair_share`` for ``FairShare``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
