"""Offline plans: known workloads are divided into segments of supersteps, each with the same shares throughout."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hdsim.gangs.controllers import UNUSED, Controller, GangState
from hdsim.gangs.minimize import DurationTable, Windows
from hdsim.gangs.planner import Budget, ExactPlanner, Planner, in_millicores
from hdsim.gangs.profile import DurationProfile
from hdsim.util.arrays import Floats, Ints
from hdsim.util.rules import NULL, POSITIVE, require

#: Most supersteps of a segment.
WIDEST = 12
#: Steps and smoothing of the first plans, and of plans that begin with good shares.
_COARSE = (60, (0.2, 5e-4))
_FINE = (40, (0.02, 5e-4))


class PlannedSegments:
    """Plans for all segments of up to WIDEST supersteps with (N, J) workload sizes."""

    def __init__(self, profile: DurationProfile, budget: Budget, sizes: Floats) -> None:
        self.profile, self.budget, self.sizes = profile, budget, sizes
        self._table = DurationTable.of(profile, sizes, budget.start)
        count, tasks = sizes.shape
        widths = range(1, min(WIDEST, count) + 1)
        #: Durations of the segments of each width, from 1 on, by first superstep.
        self.costs = [np.full(count - width + 1, np.inf) for width in widths]
        self.shares = [np.full((count - width + 1, tasks), budget.total / tasks) for width in widths]  # their shares
        for width in widths:
            self.improve(width, np.arange(count - width + 1), self.shares[width - 1], _COARSE)
        for skipped in (0, 1):
            # Shares that are good for a segment are good for one with a superstep more, after or before it.
            for width in widths[1:]:
                first = np.arange(count - width + 1)
                self.improve(width, first, self.shares[width - 2][first + skipped], _FINE)

    def windows(self, width: int, first: Ints) -> Windows:
        """Returns the segments of a width that begin with the (n,) supersteps `first`."""
        superstep = (first[:, None] + np.arange(width)).ravel()
        rows = np.broadcast_to(superstep, (self.sizes.shape[1], len(superstep)))
        weight, total = np.ones(len(superstep)), float(self.budget.total)
        return Windows(self._table, rows, np.full(len(first), width), weight, total)

    def improve(
        self, width: int, first: Ints, shares: Floats, settings: tuple[int, tuple[float, float]] = _FINE
    ) -> None:
        """Plans segments of a width again and keeps what is better.

        The segments begin with the (n,) supersteps `first`, the same one several times if need be, and with (n, J)
        shares; `settings` are steps and smoothing of :meth:`Windows.minimize`.
        """
        costs, found = self.windows(width, first).minimize(shares, *settings)
        for place in np.argsort(-costs, kind="stable").tolist():  # the best of a segment comes last
            if costs[place] < self.costs[width - 1][first[place]]:
                self.costs[width - 1][first[place]] = costs[place]
                self.shares[width - 1][first[place]] = found[place]


def shortest(costs: Sequence[Floats], penalty: float) -> tuple[Floats, Ints]:
    """Divides N supersteps into segments by dynamic programming.

    `costs` are those of the segments of each width, from 1 on, by first superstep; `penalty` is that of a change. The
    (N + 1,) smallest costs from each superstep to the end are returned, and the (N,) widths of the segments there.
    """
    count = len(costs[0])
    left, widths = np.zeros(count + 1), np.zeros(count, np.int64)
    for first in reversed(range(count)):
        totals = [
            cost[first] + left[first + width] + (penalty if first + width < count else 0.0)
            for width, cost in enumerate(costs, 1)
            if first + width <= count
        ]
        left[first], widths[first] = min(totals), 1 + int(np.argmin(totals))
    return left, widths


class OneTime(Controller):
    """Plans all supersteps before the first one.

    With certain predictions the plan reaches to the end, otherwise as far as the predictions of the first row;
    the last shares stay.

    Args:
        length_punishment: Factor on the predicted duration of a segment for each of its supersteps; None: 1.02 with the
            greedy planner, 1 with the exact one.
    """

    #: Plans of the exact planner; they are made before the first superstep unless they are there.
    segments: PlannedSegments | None = None

    def __init__(self, length_punishment: float | None = None) -> None:
        require("controller", {"length_punishment": POSITIVE | NULL}, {"length_punishment": length_punishment})
        self.length_punishment = length_punishment
        self._plan: dict[int, Ints] = {}

    def begin(self, state: GangState) -> None:
        """Plans the segments."""
        planner, end = state.planner, state.row + state.supersteps
        sizes = planner.predictions[state.row : end, 0] if state.certain else state.predicted[: state.supersteps]
        if isinstance(planner, ExactPlanner):
            segments = self.segments or PlannedSegments(planner.profile, planner.budget, sizes)
            costs, shares, punishment = segments.costs, [in_millicores(plans) for plans in segments.shares], 1.0
        else:
            widest = min(len(sizes), state.predicted.shape[0] - UNUSED)
            costs, shares = _windows(planner, sizes, max(widest, 1))
            punishment = 1.02
        punishment = self.length_punishment or punishment
        _, widths = shortest([cost * punishment**width for width, cost in enumerate(costs, 1)], state.penalty)
        self._plan, superstep = {}, 0
        while superstep < len(widths):
            width = int(widths[superstep])
            self._plan[superstep] = shares[width - 1][superstep]
            superstep += width

    def decide(self, state: GangState) -> Ints | None:
        """Follows the plan."""
        return self._plan.get(state.superstep)


def _windows(planner: Planner, sizes: Floats, widest: int) -> tuple[list[Floats], list[Ints]]:
    """Durations and shares of all windows of each width, by first superstep."""
    plans = []
    for width in range(1, widest + 1):
        first = np.arange(len(sizes) - width + 1)
        plans.append(planner.allocate(sizes, first, np.full(len(first), width)))
    return [plan.durations for plan in plans], [plan.shares for plan in plans]
