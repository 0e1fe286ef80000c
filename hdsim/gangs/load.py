"""The planner and the workloads of a gang, from the names and files of a configuration."""

from __future__ import annotations

from collections.abc import Mapping

from hdsim.errors import ConfigError, nearest
from hdsim.gangs.planner import PLANNERS, Budget, Planner
from hdsim.gangs.profile import read_profile
from hdsim.gangs.workloads import Workloads, read_workloads
from hdsim.util.resources import resolve

#: Keys of a configuration that are the arguments of :func:`load_gang`.
GANG_KEYS = ("profile", "tasks", "actual", "forecasts", "scaling", "planner", "shares", "seed")


def load_gang(
    profile: str,
    tasks: Mapping[str, str] | None,
    actual: str,
    forecasts: str,
    scaling: str,
    planner: str,
    shares: Mapping[str, int],
    seed: int,
) -> tuple[Planner, Workloads]:
    """Reads or generates the parts of a gang.

    Args:
        profile: File with measured durations, or the name of a bundled one.
        tasks: The series of the workloads of each task; None: all tasks of the profile, each with a series of its own.
        actual: See :func:`hdsim.gangs.workloads.read_workloads`, also for the next two.
        forecasts: See there.
        scaling: See there.
        planner: ``greedy`` or ``exact``.
        shares: Settings of :class:`hdsim.gangs.planner.Budget`.
        seed: Seed of generated series.

    Raises:
        ConfigError: A file or a setting cannot be used.
    """
    if planner not in PLANNERS:
        message = f"expected {' or '.join(PLANNERS)}, got '{planner}'{nearest(planner, PLANNERS)}"
        raise ConfigError(message, where="planner")
    measured, budget = read_profile(resolve("profiles", profile, where="profile")), Budget(**shares)
    tasks = {task: task for task in measured.tasks} if tasks is None else tasks
    measured = measured.of(list(tasks))
    budget.check(len(tasks))
    workloads = read_workloads(tasks, actual, forecasts, seed, scaling)
    return PLANNERS[planner](measured, budget, workloads.predictions), workloads
