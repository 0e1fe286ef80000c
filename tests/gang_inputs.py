"""Gangs that several test files use."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from hdsim.gangs.controllers import Controller
from hdsim.gangs.planner import Budget, GreedyPlanner, Planner
from hdsim.gangs.profile import DurationProfile, read_profile
from hdsim.gangs.simulation import Gang, GangRun
from hdsim.gangs.workloads import Workloads, read_workloads
from hdsim.simulation.alone import run_alone

TASKS = {
    "affinity": "nyc_taxi_1",
    "atomic": "nyc_taxi_2",
    "bsearch": "nyc_taxi_3",
    "cap": "nyc_taxi_4",
    "chmod": "art_daily_small_noise",
    "memcpy": "ambient_temperature_system_failure_1",
    "vecmath": "ambient_temperature_system_failure_2",
    "zero": "ambient_temperature_system_failure_3",
}
PENALTY = 15.0

random_generators = st.integers(0, 2**32 - 1).map(np.random.default_rng)


@cache
def measured_profile(data: Path) -> DurationProfile:
    return read_profile(data / "bsp" / "workload_profiling.csv").of(list(TASKS))


@cache
def measured_workloads(data: Path, forecasts: str) -> Workloads:
    """The published series with `forecasts` or, with ``actual``, perfect knowledge."""
    folder = data / "bsp"
    return read_workloads(TASKS, str(folder / "actual"), "actual" if forecasts == "actual" else str(folder / forecasts))


def noisy(rng: np.random.Generator, tasks: int) -> DurationProfile:
    """A profile that is not monotone in the shares."""
    sizes, shares = np.arange(10.0, 51.0, 8.0), np.arange(1000.0, 9000.0, 1500.0)
    work = rng.uniform(2.0, 12.0, tasks)[:, None, None] * sizes[None, :, None] / shares[None, None, :] * 1000.0
    return DurationProfile(tuple(map(str, range(tasks))), sizes, shares, work * rng.uniform(0.85, 1.15, (tasks, 6, 6)))


def run(
    profile: DurationProfile,
    workloads: Workloads,
    controller: Controller,
    start: int = 0,
    supersteps: int = 400,
    *,
    kind: type[Planner] = GreedyPlanner,
    budget: Budget | None = None,
    seed: int = 1,
) -> GangRun:
    planner = kind(profile, budget or Budget(), workloads.predictions)
    gang = Gang(planner, workloads.actual, controller, start, supersteps, PENALTY, workloads.certain, seed)
    return run_alone(gang)
