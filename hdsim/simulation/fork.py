"""Forks: independent copies of a simulation, which continue with assumed run times and arrivals."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, TypeVar

from hdsim.errors import ConfigError
from hdsim.scheduling.agent import Agent
from hdsim.simulation.engine import Engine
from hdsim.simulation.live import LiveJobs
from hdsim.workload.model import Workload

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

    Args:
        env: The engine, or what takes its place.
        memo: Copies by the id of the original, see :func:`copy.deepcopy`.
        runtimes: Run times of the jobs.
        arrivals: Jobs that arrive later.
        calls: The copy has the calls that the agent has asked for.

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
