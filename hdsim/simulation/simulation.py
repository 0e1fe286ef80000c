"""Simulations that run stepwise, up to a date, or to their end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from copy import copy
from dataclasses import replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakMethod

import numpy as np

from hdsim.cluster import invariants
from hdsim.errors import ConfigError, DecisionError
from hdsim.results.moment import Shown
from hdsim.results.result import Result
from hdsim.scheduling.agent import Agent, make_agent
from hdsim.simulation import watch
from hdsim.simulation.arguments import inputs, settings
from hdsim.simulation.compiled import CompiledReplay, compiled_cores, interchangeable_cores
from hdsim.simulation.compiled_nodes import compiled_nodes
from hdsim.simulation.compiled_power import compiled_power
from hdsim.simulation.continued import continued_replay
from hdsim.simulation.replay import Interrupted, SchedulingPasses, carry_out, replay
from hdsim.simulation.setup import Model, ReplaySetup, set_up
from hdsim.simulation.terminal import ReplayBar, signals_received

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.platform.model import Platform
    from hdsim.simulation.engine import Engine
    from hdsim.simulation.terminal import ReplayBar
    from hdsim.workload.model import Workload


#: Numbers of replays, which an agent keeps as long as it serves one.
_REPLAYS = count()


class Simulation:
    """A simulation of jobs on a platform under an agent.

    `env` is a SimPy environment in which processes of the user run beside the jobs; see
    :class:`hdsim.simulation.engine.Engine`.

    Attributes:
        platform: The platform.
        workload: The jobs.
        agent: The agent.
        setup: Models and seed.

    Args:
        platform: The platform, its file, or the name of a bundled one.
        workload: The jobs, their file, or the name of a bundled trace or of a generator; these are read for the
            platform with `seed`, as by :func:`hdsim.workload.load.load_workload`.
        agent: An agent object, a name or settings; see :func:`hdsim.scheduling.agent.make_agent`.
        contention: Name of a file in ``conf/contention``, or its content as a mapping.
        network: Name of a file in ``conf/network``, or its content as a mapping.
        failures: Name of a file in ``conf/failures``, or its content as a mapping; ``external`` for outages by
            processes of the user.
        facility: Name of a file in ``conf/facility``, or some of its content as a mapping.
        power: Name of a file in ``conf/power``, or its content as a mapping.
        seed: Seed of everything random in the replay.
        kill_at_walltime: Kill jobs at their walltime.
        batch_events: One scheduling pass per instant; otherwise one per event, arrivals first.
        open_ended: Jobs may be added, see :meth:`hdsim.simulation.engine.Engine.add`.
        check: Assert all invariants of the state at every instant (slow).
        tells_infeasible: Warn of jobs that fit on no nodes.

    Raises:
        ConfigError: An agent, policy or model does not exist or its settings are not allowed.
        WorkloadError: The workload is empty.
    """

    _compiled: CompiledReplay | None = None
    _known_passes: SchedulingPasses | None = None
    _replay = -1

    def __init__(
        self,
        platform: Platform | str | Path,
        workload: Workload | str | Path,
        agent: Model | Agent = "fcfs",
        *,
        contention: Model = "none",
        network: Model = "none",
        failures: Model = "none",
        facility: Model = "none",
        power: Model = "none",
        seed: int = 0,
        kill_at_walltime: bool = False,
        batch_events: bool = True,
        open_ended: bool = False,
        check: bool = False,
        tells_infeasible: bool = True,
    ) -> None:
        platform, workload = inputs(platform, workload, seed)
        models = {"contention": contention, "network": network, "failures": failures, "power": power}
        given: dict[str, Any] = {"agent": agent, **models}
        if facility != "none":
            given["facility"] = facility
        setup = set_up(platform, workload, **given, seed=seed, open_ended=open_ended, tells_infeasible=tells_infeasible)
        events = {"kill_at_walltime": kill_at_walltime, "batch_events": batch_events}
        self._prepare(platform, workload, setup, given, events, check=check)
        if not (check or open_ended):
            for compiled in (compiled_cores, compiled_power, compiled_nodes):
                self._compiled = self._compiled or compiled(platform, workload, setup, **events)
        if self._compiled is None:
            self.cluster = self._made_cluster()

    def _prepare(
        self,
        platform: Platform,
        workload: Workload,
        setup: ReplaySetup,
        given: Mapping[str, Any],
        events: Mapping[str, bool],
        *,
        check: bool,
    ) -> None:
        """Sets the attributes before the first event."""
        self.platform, self.workload, self.agent, self.setup = platform, workload, setup.agent, setup
        self._given, self._events, self._check = given, events, check
        self._begun = self._over = self._takes_over = False
        self._jobs = len(workload)

    @classmethod
    def elsewhere(
        cls,
        platform: Platform,
        workload: Workload,
        setup: ReplaySetup,
        given: Mapping[str, Any],
        *,
        kill_at_walltime: bool,
    ) -> Simulation:
        """Returns what makes the forks of a cluster whose jobs another backend runs, for as long as it is referred to.

        It has no events of its own; see :class:`hdsim.simulation.fork.LiveJobs` for what forks know.
        """
        from hdsim.simulation.fork import LiveJobs

        events = {"kill_at_walltime": kill_at_walltime, "batch_events": True}
        simulation = cls.__new__(cls)
        simulation._prepare(platform, workload, setup, given, events, check=False)
        simulation.cluster = simulation._made_cluster()
        simulation.env = LiveJobs(setup, kill_at_walltime=kill_at_walltime)  # type: ignore[assignment]
        return simulation

    @cached_property
    def cluster(self) -> Cluster:
        """The state; a simulation that is run to its end in compiled code makes it when it is asked for."""
        return self._made_cluster()

    @cached_property
    def env(self) -> Engine:
        """The engine; a simulation that is run to its end in compiled code needs none."""
        return self.setup.engine(**self._events)

    @property
    def _is_final(self) -> bool:
        """Whether compiled code has simulated to the end, after which there is no engine."""
        return self._over and "env" not in vars(self)

    @property
    def batch_events(self) -> bool:
        """Whether there is one scheduling pass per instant."""
        return bool(self._events["batch_events"])

    @property
    def counts_cores(self) -> bool:
        """Whether dates depend on numbers of cores alone, by :func:`hdsim.simulation.compiled.interchangeable_cores`.

        Nothing slows, interrupts or kills a job then.
        """
        setup, policy = self.setup, self.agent.core_policy
        models = setup.contention, setup.failures, setup.power
        plain = all(model is None for model in models) and not self._events["kill_at_walltime"]
        plain = plain and self.cluster.only_counts
        return plain and interchangeable_cores(self.platform, self.workload, policy) is not None

    def __repr__(self) -> str:
        made = vars(self).get("cluster")
        state = "not begun" if made is None or not self._begun else f"at {made.now:,.6g} s"
        state = "at its end" if self._over else state
        jobs, agent = f"{self._jobs:,} jobs of {Path(self.workload.source).name}", type(self.agent).__name__
        return f"<Simulation of {jobs} on {self.platform.name} with {agent}: {state}>"

    @property
    def now(self) -> float:
        """Seconds since the first submission."""
        return self.cluster.now

    def step(self) -> bool:
        """Simulates the next instant with its scheduling pass; False at the end of the simulation.

        Raises:
            DecisionError: A decision of the agent cannot be carried out.
        """
        return self.run_until(math.inf, most=1)

    def run_until(self, time: float, *, most: float = math.inf) -> bool:
        """Simulates all instants up to a time, which is `now` afterwards if it is finite.

        Args:
            time: Time in seconds.
            most: Maximum number of instants.

        Returns:
            False at the end of the simulation.

        Raises:
            DecisionError: A decision of the agent cannot be carried out, it has begun another simulation, or the time
                is no number.
        """
        try:
            is_time = time <= math.inf
        except TypeError:
            is_time = False
        if not is_time:
            raise DecisionError(f"run_until: expected a time in seconds, got {time!r}")
        if self._is_final:
            return False
        env = self.env
        self._begin()
        passes = self._passes()
        try:
            while most > 0:
                if not env.advance(time):
                    self._over = env.over
                    break
                self._pass(passes)
                most -= 1
            else:
                return True
        finally:
            passes.check()
        if time < math.inf:
            env.wait_until(time)
        return not self._over

    def run(self, *, progress: Shown = False, config: Mapping[str, Any] | None = None) -> Result:
        """Simulates to the end.

        Args:
            progress: Show a progress bar on standard error, or a function that is given moments of the replay.
            config: Configuration, stored in the result; by default the arguments of the simulation in this form.

        Raises:
            DecisionError: A decision of the agent cannot be carried out.
            Interrupted: SIGINT or SIGTERM was received (main thread only); it has the partial `result`.
        """
        if config is None:
            backend = {"_target_": "hdsim.backends.sim.Sim", **self._events}
            seed = self.setup.seed
            config = settings(
                self.platform, self.workload, **self._given, seed=seed, backend=backend, check=self._check
            )
        known = vars(self)
        if self._takes_over and not self._check:
            continued = continued_replay(self.setup, self.env, **self._events)
            if continued is not None:
                del known["cluster"], known["env"]
                self._compiled = continued
        if self._compiled is not None and not ("env" in known or ("cluster" in known and self.cluster.calls)):
            return self._run_compiled(self._compiled, progress=progress, config=config)
        cluster = self.cluster

        def run(stop: list[int], bar: ReplayBar) -> None:
            self._begin()
            replay(self.env, cluster, self.agent, stop, bar, check=self._check)

        parts = {"cores": type(cluster.cores).__name__, "mode": "events", "executor": self.env.executor}
        facts: dict[str, Any] = {"config": config, "facility": self.setup.facility, "engine": parts}
        return carry_out(run, cluster, progress=progress, agent=self.agent, **facts)

    def fork(
        self,
        agent: Model | Agent | None = None,
        seed: int | None = None,
        *,
        runtimes: str | Callable[[int], float] = "requested",
        arrivals: str | Workload = "none",
        processes: str = "refused",
    ) -> Simulation:
        """Returns an independent copy of the simulation, by default without knowledge of the future.

        With `runtimes` and `arrivals` both ``"actual"`` and no other agent and seed, the copy continues exactly as this
        simulation. Within a scheduling pass, or under another agent, the copy begins with a scheduling pass at the
        present instant, in which all queued jobs count as submitted at this instant and running jobs are those of the
        cluster; calls that the previous agent has asked for are dropped.

        Args:
            agent: Agent of the copy, by default a copy of the agent.
            seed: Seed of the draws of the copy from ``cluster.rng``; by default they are those of this simulation.
            runtimes: ``"requested"``: running and queued jobs last as long as requested, running ones at least until
                now; ``"actual"``: as in the workload; or a function that returns the remaining run time of a job of
                the queue or of a running job in reference seconds. Jobs that arrive later last as long as requested,
                and jobs with programs become rigid jobs, unless they are ``"actual"``.
            arrivals: ``"none"``: no further job arrives, and no further node fails; ``"actual"``: those of the workload
                and of the failure model; or jobs that arrive instead, with submission times from now on.
            processes: ``"dropped"``: the copy has no processes of the user; ``"refused"``: there may be none.

        Raises:
            ConfigError: A setting is not allowed, the agent or the failure model cannot be copied, there are gangs or
                processes of the user, or the workload of arrivals requests resources that no job has requested so far.
        """
        from hdsim.simulation.fork import copied_agent, fork_engine, require_fork

        if self._is_final:
            raise ConfigError("expected a simulation that has not ended", where="fork")
        env = self.env
        require_fork(env, runtimes, arrivals, processes)
        takes_over = env.deciding or (self._begun and agent is not None)
        memo: dict[int, Any] = {id(self.cluster.forker): None}
        if seed is not None:
            memo[id(self.cluster.rng)] = np.random.default_rng(seed)
        copied = fork_engine(env, memo, runtimes, arrivals, calls=not takes_over)
        fork = copy(self)
        fork.env, fork.cluster, fork._known_passes = copied, copied.cluster, None
        fork.agent = make_agent(agent) if agent is not None else copied_agent(self.agent, memo)
        fork.setup = replace(self.setup, agent=fork.agent, make_cluster=lambda: copied.cluster)
        fork.cluster.forker = WeakMethod(fork.fork)
        if agent is not None:
            fork._given = {**self._given, "agent": agent}
            fork.cluster.forget_expected()
            fork.cluster.use_policies(fork.agent.core_policy, fork.agent.fixed_policy, fork.agent.core_policies)
        if takes_over:
            fork._begun, fork._takes_over = False, True
            fork.cluster.next_instant(fork.cluster.now)
            fork.cluster.submitted.extend(fork.cluster.queue)
        return fork

    def _pass(self, passes: SchedulingPasses) -> None:
        """One scheduling pass."""
        passes.decide()
        self.env.apply()
        if self._check:
            invariants.check(self.cluster)

    def _passes(self) -> SchedulingPasses:
        """Returns the scheduling passes of the agent, made once, and has those of this thread watched."""
        watch.start()
        passes = self._known_passes
        if passes is None or passes.agent is not self.agent:
            passes = self._known_passes = SchedulingPasses(self.agent, self.cluster)
        return passes

    def _run_compiled(self, compiled: CompiledReplay, *, progress: Shown, config: Mapping[str, Any] | None) -> Result:
        begin = time.perf_counter()
        with signals_received() as stop, closing(ReplayBar(self._jobs, shown=progress)) as bar:
            compiled.run(stop, bar)
        seconds, parts = time.perf_counter() - begin, dict(compiled.engine)
        facts = {
            "config": dict(config or {}),
            "wall_seconds": seconds,
            "engine": parts,
            "facility": self.setup.facility,
        }
        result = compiled.result(interrupted=bool(stop), **facts)
        self._over = True
        if "cluster" in vars(self):
            compiled.fill(self.cluster)
        if stop:
            raise Interrupted(result, stop[0])
        return result

    def _made_cluster(self) -> Cluster:
        cluster = self.setup.cluster
        cluster.forker = WeakMethod(self.fork)
        if self._over and self._compiled is not None:
            self._compiled.fill(cluster)
        return cluster

    def _begin(self) -> None:
        known = vars(self.agent)
        if not self._begun:
            self._begun, self._replay = True, next(_REPLAYS)
            known["_replay"] = self._replay
            self.agent.begin(self.cluster)
        elif known.get("_replay") != self._replay and not self._over and type(self.agent).begin is not Agent.begin:
            # The state that it has prepared in `begin` is for another cluster.
            raise DecisionError(
                f"{self!r}: the agent has begun another simulation meanwhile; make an agent for each simulation"
            )
        # Carries out decisions of the user between two instants.
        self.env.apply()
        if self._takes_over:
            self._takes_over, passes = False, self._passes()
            try:
                self._pass(passes)
            finally:
                passes.check()


def simulate(
    platform: Platform | str | Path,
    workload: Workload | str | Path,
    agent: Model | Agent = "fcfs",
    *,
    progress: Shown = False,
    config: Mapping[str, Any] | None = None,
    **options: Any,
) -> Result:
    """Replays a workload on a platform under an agent.

    Args:
        platform: See :class:`Simulation`, also for the next two: ``simulate("gaia", "lublin_4000", "easy")``.
        workload: See there.
        agent: See there.
        progress: See :meth:`Simulation.run`.
        config: Configuration, stored in the result.
        **options: See :class:`Simulation`: contention, network, failures, power, facility, seed, kill_at_walltime,
            batch_events, check.

    Returns:
        The result.

    Raises:
        HdsimError: See :class:`Simulation` and :meth:`Simulation.run`.
        Interrupted: SIGINT or SIGTERM was received (main thread only); it has the partial `result`.
    """
    return Simulation(platform, workload, agent, **options).run(progress=progress, config=config)
