"""Simulation of a gang: its supersteps one after the other, with the shares that a controller chooses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hdsim.errors import DecisionError
from hdsim.gangs.controllers import Controller, GangState
from hdsim.gangs.planner import Planner

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class GangRun:
    """Supersteps of a gang.

    Attributes:
        tasks: Names of the J tasks.
        start: Row of the series of the first superstep.
        penalty: Cost of a change of the shares in seconds.
        sizes: (N, J) workload sizes.
        shares: (N, J) CPU shares in millicores.
        replanned: (N,) whether the shares were planned before the superstep.
        durations: (N, J) durations of the tasks in seconds.
        lower_bound: Total that no plan for these workloads falls below, in seconds, if known.
    """

    tasks: tuple[str, ...]
    start: int
    penalty: float
    sizes: Floats
    shares: Ints
    replanned: NDArray[np.bool_]
    durations: Floats
    lower_bound: float | None = None

    @cached_property
    def metrics(self) -> dict[str, float]:
        """Duration without checkpoints in seconds, number of checkpoints, the total in seconds, and its lower bound."""
        duration, checkpoints = float(self.durations.max(axis=1).sum()), int(self.replanned[1:].sum())
        metrics = {"duration": duration, "checkpoints": checkpoints, "total": duration + self.penalty * checkpoints}
        return metrics if self.lower_bound is None else metrics | {"lower_bound": self.lower_bound}


def decisions(
    planner: Planner,
    actual: Floats,
    controller: Controller,
    *,
    start: int,
    supersteps: int,
    penalty: float,
    certain: bool = False,
    seed: int = 1,
) -> Iterator[tuple[Ints, bool]]:
    """Yields the shares of each superstep, and whether they were planned before it.

    Args:
        planner: Planner of the controller.
        actual: (R, J) executed workload sizes at each row of the series.
        controller: Chooses the shares.
        start: Row of the first superstep.
        supersteps: Number N of supersteps, at most R - start.
        penalty: Cost of a change of the shares in seconds.
        certain: Whether the predictions are what is executed.
        seed: Seed of the controller.

    Raises:
        DecisionError: The controller returns shares that the gang cannot have.
    """
    tasks, budget = planner.profile.tasks, planner.budget
    present = np.full(len(tasks), budget.start)
    state = GangState(planner, start, 0, supersteps, present, penalty, actual[:start], certain, seed)
    controller.begin(state)
    for superstep in range(supersteps):
        state.superstep, state.row, state.executed = superstep, start + superstep, actual[: start + superstep]
        chosen = controller.decide(state)
        if chosen is not None:
            state.shares = _checked(chosen, len(tasks), budget.total, superstep)
        yield state.shares.copy(), chosen is not None  # the controller may change its array


def simulate(
    planner: Planner,
    actual: Floats,
    controller: Controller,
    *,
    start: int,
    supersteps: int,
    penalty: float,
    **settings: Any,
) -> GangRun:
    """Simulates supersteps of a gang; the arguments are those of :func:`decisions`.

    Raises:
        DecisionError: The controller returns shares that the gang cannot have.
    """
    decided = decisions(planner, actual, controller, start=start, supersteps=supersteps, penalty=penalty, **settings)
    shares, replanned = zip(*decided, strict=True)
    profile, sizes, levels = planner.profile, actual[start : start + supersteps], np.array(shares)
    return GangRun(profile.tasks, start, penalty, sizes, levels, np.array(replanned), profile.at(sizes, levels))


def _checked(chosen: Ints, tasks: int, total: int, superstep: int) -> Ints:
    shares = np.asarray(chosen)
    if shares.shape != (tasks,) or not np.issubdtype(shares.dtype, np.integer) or (shares < 1).any():
        raise DecisionError(
            f"superstep {superstep}: expected {tasks} shares in whole millicores of at least 1, got {chosen}"
        )
    if shares.sum() > total:
        raise DecisionError(
            f"superstep {superstep}: expected shares of at most {total} millicores together, got {shares.sum()}"
        )
    return shares
