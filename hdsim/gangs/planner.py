"""Planners: CPU shares for windows of supersteps whose workloads are predicted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hdsim.errors import ConfigError
from hdsim.gangs import greedy
from hdsim.gangs.minimize import DurationTable, Windows, equalize
from hdsim.gangs.profile import DurationProfile
from hdsim.util.arrays import Floats, Ints

#: A window of supersteps: the first one, counted from the present row, and how many.
Span = tuple[int, int]
#: Rows that are planned together: windows of one row are too few for array operations to be fast.
_ROWS = 25


@dataclass(frozen=True)
class Budget:
    """CPU shares of a gang in millicores."""

    start: int = 1000  # shares that each task has at least
    increment: int = 100  # step in which shares are planned
    total: int = 24000  # shares of all tasks together
    cap: int = 8000  # largest shares of a task under EXPPO

    def check(self, tasks: int) -> None:
        """Checks that the shares suffice for a number of tasks, or raises ConfigError."""
        if self.start * tasks > self.total:
            message = f"expected at least {self.start * tasks} millicores, {self.start} for each of {tasks} tasks"
            raise ConfigError(f"{message}, got {self.total}", where="shares.total")

    def increments(self, tasks: int) -> int:
        """Returns the number of increments that are distributed over the tasks."""
        return (self.total - self.start * tasks) // self.increment


@dataclass(frozen=True)
class Plans:
    """Plans for the windows of one row."""

    shares: Ints  # (W, J) CPU shares of each window in millicores
    durations: Floats  # (W,) predicted durations of the windows in seconds: sums of the durations of the slowest tasks


class Planner(ABC):
    """Base class of planners.

    Predictions are (R, F, J) workload sizes, at each row for this row and those after it.
    """

    def __init__(self, profile: DurationProfile, budget: Budget, predictions: Floats) -> None:
        self.profile, self.budget, self.predictions = profile, budget, predictions
        self._plans: dict[Sequence[Span], dict[int, Plans]] = {}

    @abstractmethod
    def allocate(self, sizes: Floats, first: Ints, width: Ints) -> Plans:
        """Plans the shares of B windows of supersteps with (n, J) workload sizes.

        The windows begin with (B,) supersteps `first` and have (B,) numbers of supersteps `width`.
        """

    def plans(self, row: int, spans: Sequence[Span], stride: int = 1) -> Plans:
        """Plans the shares of windows, each from the predictions made at one row.

        Rows until the next call with these windows (`stride`) are planned in advance, each from its own predictions.
        """
        known = self._plans.setdefault(spans, {})
        if row not in known:
            rows = range(row, len(self.predictions), stride)[:_ROWS]
            known.update(zip(rows, self._block(rows, spans), strict=True))
        return known[row]

    def _block(self, rows: range, spans: Sequence[Span]) -> list[Plans]:
        starts, widths = (np.array(column) for column in zip(*spans, strict=True))
        columns = int((starts + widths).max())
        sizes = self.predictions[rows.start : rows.stop : rows.step, :columns]
        first = (np.arange(len(rows))[:, None] * columns + starts).ravel()
        plans = self.allocate(sizes.reshape(-1, sizes.shape[2]), first, np.tile(widths, len(rows)))
        shares = plans.shares.reshape(len(rows), len(spans), -1)
        durations = plans.durations.reshape(len(rows), len(spans))
        return [Plans(*plan) for plan in zip(shares, durations, strict=True)]


class GreedyPlanner(Planner):
    """Rule of largest improvement (Kube_Gang_Scheduling)."""

    decay = 0.95  # weight of a superstep of a window relative to the superstep before it

    def allocate(self, sizes: Floats, first: Ints, width: Ints) -> Plans:
        """Plans the shares of windows, see :meth:`Planner.allocate`."""
        budget = self.budget
        highest = max(self.profile.shares[-1], budget.start)
        levels = np.arange(budget.start, highest + budget.increment, budget.increment)
        table = self.profile.table(sizes, levels)
        given = greedy.allocate(table, first, width, budget.increments(sizes.shape[1]), self.decay)
        begin = np.cumsum(width) - width
        window = np.repeat(np.arange(len(width)), width)
        superstep = first[window] + np.arange(len(window)) - begin[window]
        level = np.minimum(given, len(levels) - 1)[window]
        slowest = table[np.arange(len(table)), superstep[:, None], level].max(axis=1)
        return Plans(budget.start + budget.increment * given, np.add.reduceat(slowest, begin))


class ExactPlanner(Planner):
    """Shares in whole millicores that minimize the predicted duration of a window.

    The minimum is exact for windows of one superstep; for longer ones :meth:`Windows.minimize` approximates it.
    Durations are linear between shares of a distance of 50 millicores.
    """

    rounds = 40  # steps of that approximation
    smoothing = (0.2, 5e-4)  # its first and last tau

    def allocate(self, sizes: Floats, first: Ints, width: Ints) -> Plans:
        """Plans the shares of windows, see :meth:`Planner.allocate`."""
        tasks, total = sizes.shape[1], float(self.budget.total)
        table = DurationTable.of(self.profile, sizes, self.budget.start)
        begin = np.cumsum(width) - width
        window = np.repeat(np.arange(len(width)), width)
        superstep = first[window] + np.arange(len(window)) - begin[window]
        windows = Windows(
            table, np.broadcast_to(superstep, (tasks, len(superstep))), width, np.ones(len(window)), total
        )
        _, shares = windows.minimize(np.full((len(width), tasks), total / tasks), self.rounds, self.smoothing)
        single = width == 1
        if single.any():
            shares[single] = equalize(table, np.broadcast_to(first[single], (tasks, single.sum())), total)[1]
        whole = in_millicores(shares)
        return Plans(whole, windows.costs(whole.astype(float)))


def in_millicores(shares: Floats) -> Ints:
    """Rounds (B, J) shares to whole millicores with the same sum, as far as whole ones have it: largest remainders."""
    whole = np.floor(shares + 1e-6)
    left = np.floor((shares - whole).sum(axis=1) + 1e-6)
    rank = (whole - shares).argsort(axis=1, kind="stable").argsort(axis=1)
    return (whole + (rank < left[:, None])).astype(np.int64)


def static_shares(profile: DurationProfile, budget: Budget, size: float) -> Ints:
    """Returns the (J,) shares of EXPPO, which plans once for one workload size of all tasks."""
    tasks = len(profile.tasks)
    levels = np.arange(budget.start, budget.cap + budget.increment, budget.increment, dtype=float)
    durations = profile.table(np.full((1, tasks), size), levels)[:, 0]
    most = (budget.cap - budget.start) // budget.increment
    increments = min(budget.increments(tasks), most * tasks)
    return budget.start + budget.increment * greedy.exppo(durations, increments, most)


#: Planners by name.
PLANNERS: dict[str, type[Planner]] = {"greedy": GreedyPlanner, "exact": ExactPlanner}
