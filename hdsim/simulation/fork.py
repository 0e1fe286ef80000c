"""Forks: independent copies of a simulation, which continue with assumed run times and arrivals.

`LiveJobs` takes the place of the simulation if another backend runs the jobs.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from hdsim.errors import ConfigError
from hdsim.scheduling.agent import Agent
from hdsim.simulation.engine import Engine
from hdsim.simulation.setup import make_rigid_executor
from hdsim.workload.model import Workload

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.simulation.executor import Executor
    from hdsim.simulation.setup import ReplaySetup

T = TypeVar("T")


def require_fork(env: Engine | LiveJobs, runtimes: object, arrivals: object, processes: str) -> None:
    """Checks that a simulation can be copied with some settings; see ``Simulation.fork``.

    Raises:
        ConfigError: It cannot.
    """
    if not callable(runtimes) and runtimes not in ("requested", "actual"):
        raise ConfigError(f"expected requested, actual or a function, got {runtimes!r}", where="fork: runtimes")
    if not isinstance(arrivals, Workload) and arrivals not in ("none", "actual"):
        raise ConfigError(f"expected none, actual or a Workload, got {arrivals!r}", where="fork: arrivals")
    if isinstance(env, LiveJobs):
        if env.cluster.node_states is not None:
            raise ConfigError("expected power=none where another backend runs the jobs", where="fork")
        for key, value in (("runtimes", runtimes), ("arrivals", arrivals)):
            if isinstance(value, str) and value == "actual":
                raise ConfigError(
                    f"expected other {key} than actual, which only backend=sim knows before time", where=f"fork: {key}"
                )
    if processes not in ("refused", "dropped"):
        raise ConfigError(f"expected refused or dropped, got {processes!r}", where="fork: processes")
    if env.cluster.workload.has_gangs:
        raise ConfigError("expected jobs without gangs, whose controllers cannot be copied", where="fork")
    if processes == "refused" and env.user_processes:
        raise ConfigError(
            f"expected a simulation without processes of the user, which cannot be copied: {env.user_processes} "
            "(processes='dropped' leaves them out)",
            where="fork",
        )
    if env.active_process is not None:
        raise ConfigError("expected a call between two instants or by the agent, not by a process", where="fork")


def fork_engine(
    env: Engine | LiveJobs,
    memo: dict[int, Any],
    runtimes: str | Callable[[int], float],
    arrivals: str | Workload,
    *,
    calls: bool,
) -> Engine:
    """Returns a copy of an engine, with its cluster; see ``Simulation.fork``.

    Raises:
        ConfigError: See ``Simulation.fork``.
    """
    if isinstance(arrivals, Workload):
        env.cluster.requests.grow(memo, env.cluster.platform, arrivals)
    fork = _copied(
        lambda: env.fork(memo, to_come=arrivals == "actual", calls=calls),
        "the failure model; expected outages that copy.deepcopy can copy",
    )
    # Starts of the present pass.
    fork.apply()
    if runtimes != "actual":
        fork.assume(None if isinstance(runtimes, str) else runtimes)
    if isinstance(arrivals, Workload):
        fork.add(arrivals)
    return fork


def copied_agent(agent: Agent, memo: dict[int, Any]) -> Agent:
    """Returns a copy of an agent, with the copy of the cluster in place of the cluster.

    Raises:
        ConfigError: It cannot be copied.
    """
    return _copied(
        lambda: deepcopy(agent, memo), f"{type(agent).__name__}; expected another agent, or one with __deepcopy__"
    )


def _copied(make: Callable[[], T], what: str) -> T:
    try:
        return make()
    except TypeError as error:
        raise ConfigError(f"cannot copy {what}: {error}", where="fork") from error


class LiveJobs:
    """Takes the place of the engine where another backend runs the jobs; all it has is copies, which are engines.

    A copy knows what a scheduler sees, and takes for granted that running jobs have been on their present cores at the
    present speed of these since their starts, or since the requests to start them if they are STARTING; that jobs start
    at once; that nodes that are down stay down and held jobs stay held. Programs are left out.

    Attributes:
        cluster: The state.
        deciding: Whether copies begin with a scheduling pass.
        user_processes: Signs of processes of the user: none.
        active_process: The process of the user that runs now.
    """

    deciding, user_processes, active_process = True, "", None

    def __init__(self, setup: ReplaySetup, *, kill_at_walltime: bool) -> None:
        self.cluster = setup.cluster
        self._contention, self._kill_at_walltime = setup.contention, kill_at_walltime

    def fork(self, memo: dict[int, Any], *, to_come: bool, calls: bool) -> Engine:
        """Returns an engine with a copy of the cluster; see :meth:`hdsim.simulation.engine.Engine.fork`."""
        cluster = deepcopy(self.cluster, memo)
        cluster.calls.clear()
        cluster.start_at_once()
        executor = make_rigid_executor(cluster, self._contention)
        _continue_jobs(cluster, executor)
        engine = Engine(cluster, executor, kill_at_walltime=self._kill_at_walltime)
        engine.drop_arrivals()
        return engine


def _continue_jobs(cluster: Cluster, executor: Executor) -> None:
    """Starts the running jobs in an executor, but for those that the present pass has started."""
    if cluster.core_speed is not None:
        executor.set_speed(np.arange(cluster.platform.n_cores), cluster.core_speed, 0.0)
    starts = cluster.starting_time
    for job in sorted(set(cluster.running).difference(cluster.started), key=starts.__getitem__):
        executor.start(job, cluster.running[job], starts[job])
        if job in cluster.allocations.begin:
            executor.resize({job: cluster.running[job]}, starts[job])
        # The dates are those of assumed run times.
        list(executor.settle(starts[job]))
