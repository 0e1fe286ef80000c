"""A gang and its run: supersteps one after the other, with the shares that a controller chooses."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from hdsim.errors import DecisionError
from hdsim.gangs.controllers import Controller, GangState
from hdsim.gangs.planner import Budget, Planner
from hdsim.util.arrays import Floats, Ints

#: Supersteps whose durations are computed together.
_AHEAD = 8


@dataclass(frozen=True, eq=False)
class Gang:
    """A gang before its run."""

    planner: Planner  # planner of the controller
    actual: Floats  # (R, J) executed workload sizes at each row of the series
    controller: Controller  # chooses the shares; it belongs to this gang alone
    start: int  # row of the first superstep
    supersteps: int  # number N of supersteps, at most R - start
    penalty: float  # cost of a change of the shares in seconds; the first shares are free
    certain: bool = False  # whether the predictions are what is executed
    seed: int = 1  # seed of the controller

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the J tasks."""
        return self.planner.profile.tasks

    @property
    def budget(self) -> Budget:
        """The CPU shares of the gang."""
        return self.planner.budget

    @property
    def least(self) -> int:
        """Shares of all tasks together before the first plan, in millicores."""
        return self.budget.start * len(self.tasks)

    @property
    def fingerprint(self) -> bytes:
        """Bytes that are equal for gangs that differ in their controllers only."""
        rows = slice(self.start, self.start + self.supersteps)
        parts = (self.planner.profile.durations, self.actual[rows], self.planner.predictions[rows])
        numbers = (self.budget, self.start, self.penalty, self.certain, self.seed)
        return sha256(b"".join(map(np.ndarray.tobytes, parts)) + repr(numbers).encode()).digest()


@dataclass(frozen=True)
class GangRun:
    """Supersteps of a gang."""

    tasks: tuple[str, ...]  # names of the J tasks
    start: int  # row of the series of the first superstep
    penalty: float  # cost of a change of the shares in seconds
    sizes: Floats  # (N, J) workload sizes
    shares: Ints  # (N, J) CPU shares in millicores
    replanned: NDArray[np.bool_]  # (N,) whether the shares were planned before the superstep
    durations: Floats  # (N, J) durations of the tasks in seconds
    lower_bound: float | None = None  # total that no plan for these workloads falls below, in seconds, if known

    @cached_property
    def metrics(self) -> dict[str, float]:
        """Duration without checkpoints in seconds, number of checkpoints, the total in seconds, and its lower bound."""
        duration, checkpoints = float(self.durations.max(axis=1).sum()), int(self.replanned[1:].sum())
        metrics = {"duration": duration, "checkpoints": checkpoints, "total": duration + self.penalty * checkpoints}
        return metrics if self.lower_bound is None else metrics | {"lower_bound": self.lower_bound}


class RunningGang:
    """A gang during its run: `plan` and `execute` alternate."""

    def __init__(self, gang: Gang) -> None:
        count, tasks = gang.supersteps, len(gang.tasks)
        #: held: Present shares of all tasks together in millicores.
        #: planned: Number of planned supersteps.
        self.gang, self.planned, self.held = gang, 0, gang.least
        self._shares, self._durations = np.empty((count, tasks), np.int64), np.empty((count, tasks))
        self._replanned = np.zeros(count, bool)
        self._known = 0  # supersteps whose durations with the present shares are known
        present, start = np.full(tasks, gang.budget.start), gang.start
        self._state = GangState(
            gang.planner, start, 0, count, present, gang.penalty, gang.actual[:start], gang.certain, gang.seed
        )

    @property
    def over(self) -> bool:
        """Whether no superstep is left to be planned."""
        return self.planned == self.gang.supersteps

    @property
    def shares(self) -> Ints:
        """(J,) present shares in millicores."""
        return self._state.shares

    def plan(self, total: int) -> bool:
        """Lets the controller choose shares of the next superstep, `total` millicores at most; returns whether it did.

        Raises:
            DecisionError: The controller returns shares that the gang cannot have.
        """
        gang, state, superstep = self.gang, self._state, self.planned
        if total != state.planner.budget.total:
            budget = dataclasses.replace(gang.budget, total=total)
            state.planner = type(gang.planner)(gang.planner.profile, budget, gang.planner.predictions)
        row = gang.start + superstep
        state.superstep, state.row, state.executed = superstep, row, gang.actual[:row]
        if not superstep:
            gang.controller.begin(state)
        chosen = gang.controller.decide(state)
        if chosen is not None:
            state.shares = _checked(chosen, len(gang.tasks), total, superstep)
            self.held = int(state.shares.sum())
            self._replanned[superstep] = True
        self._shares[superstep] = state.shares
        self.planned += 1
        return chosen is not None

    def execute(self) -> float:
        """Executes the superstep that was planned last; returns its duration in seconds."""
        gang, superstep = self.gang, self.planned - 1
        if self._replanned[superstep] or superstep == self._known:
            # The next supersteps as well, since shares often stay.
            self._known = min(superstep + _AHEAD, gang.supersteps)
            sizes = gang.actual[gang.start + superstep : gang.start + self._known]
            self._durations[superstep : self._known] = gang.planner.profile.at(sizes, self._shares[superstep])
        return float(self._durations[superstep].max())

    def run(self, *, complete: bool = True) -> GangRun:
        """Returns the executed supersteps; the one that was planned last may not be complete."""
        gang, count = self.gang, max(self.planned - (not complete), 0)
        return GangRun(
            gang.tasks,
            gang.start,
            gang.penalty,
            gang.actual[gang.start : gang.start + count],
            self._shares[:count],
            self._replanned[:count],
            self._durations[:count],
        )


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
