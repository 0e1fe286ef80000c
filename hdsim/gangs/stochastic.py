"""Stochastic model predictive control: plans for the expected duration over scenarios of the workloads."""

from __future__ import annotations

import dataclasses
from collections import deque

import numpy as np

from hdsim.gangs.controllers import DynamicMpc, GangState, places, spans
from hdsim.gangs.minimize import DurationTable, Windows
from hdsim.gangs.planner import ExactPlanner, Plans, in_millicores
from hdsim.util.arrays import Floats, Ints
from hdsim.util.rules import integers_from, require

#: Horizon where the predictions are certain.
_CERTAIN_HORIZON = 10
#: Number of workload sizes in the table of durations.
_SIZES = 401
#: Steps of :meth:`Windows.minimize`, and its smoothing: scenarios are smooth already.
_ROUNDS, _SMOOTHING = 12, (0.15, 0.02)


class Correction:
    """Correction of predictions by the errors of earlier ones: bias, scale and spread for each task and lead.

    The corrected size is an affine function of the predicted one, by ridge regression towards no correction. Until
    errors are known, the standard deviation of the error is that of a random walk. `leads` is the number of supersteps
    that are predicted, this one included.
    """

    #: Weight of no correction, in observations; scale and middle of the sizes in the regression.
    ridge, scale, middle = 10.0, 10.0, 30.0
    #: Standard deviation before any error is known, for the first lead, and its weight in observations.
    deviation, weight = 2.5, 10.0

    def __init__(self, leads: int, tasks: int) -> None:
        self._moments = np.zeros((leads, tasks, 2, 2)) + self.ridge * np.eye(2)
        self._products = np.zeros((leads, tasks, 2))
        lead = np.arange(1.0, leads + 1.0)[:, None]
        self._squares = np.repeat(self.weight * self.deviation**2 * lead, tasks, axis=1)
        self._count = np.full((leads, 1), self.weight)
        self._latest: deque[tuple[Floats, Floats]] = deque(maxlen=leads)

    def predict(self, sizes: Floats) -> Floats:
        """Corrects the (leads, J) sizes that are predicted at the next row."""
        regressors = self._regressors(sizes)
        weights = np.linalg.solve(self._moments, self._products[..., None])[..., 0]
        corrected = sizes + self.scale * (weights * regressors).sum(axis=-1)
        self._latest.appendleft((sizes, corrected))
        return corrected

    def learn(self, executed: Floats) -> None:
        """Takes the (J,) sizes that were executed at the row of the latest prediction."""
        known = len(self._latest)
        sizes, corrected = (np.stack([pair[i][lead] for lead, pair in enumerate(self._latest)]) for i in (0, 1))
        regressors = self._regressors(sizes)
        self._moments[:known] += regressors[..., :, None] * regressors[..., None, :]
        self._products[:known] += regressors * ((executed - sizes) / self.scale)[..., None]
        self._squares[:known] += (executed - corrected) ** 2
        self._count[:known] += 1.0

    def deviations(self) -> Floats:
        """(leads, J) standard deviations of the errors of corrected predictions."""
        return np.sqrt(self._squares / self._count)

    def _regressors(self, sizes: Floats) -> Floats:
        return np.stack([np.ones_like(sizes), (sizes - self.middle) / self.scale], axis=-1)


class StochasticMpc(DynamicMpc):
    """Model predictive control for the expected duration over scenarios.

    A scenario is the corrected prediction plus a random walk with the deviations of earlier errors. A window that
    begins some supersteps ahead is planned with the errors of one that begins now, since there are new predictions by
    then. Certain predictions have one scenario.

    Args:
        horizon: Supersteps that are looked at; None: 5, or 10 where predictions are certain.
        scenarios: Number of scenarios, an even one.
    """

    def __init__(self, horizon: int | None = None, scenarios: int = 64) -> None:
        require("controller", {"scenarios": integers_from(2)}, {"scenarios": scenarios})
        super().__init__(5 if horizon is None else horizon, length_punishment=1.0)
        self._certain_horizon = _CERTAIN_HORIZON if horizon is None else self.horizon
        self.scenarios = int(scenarios) // 2 * 2

    def begin(self, state: GangState) -> None:
        """Draws the scenarios and learns from the rows before the first superstep."""
        self._exact: ExactPlanner | None = None
        profile, budget = state.planner.profile, state.planner.budget
        if state.certain:
            self.horizon = self._certain_horizon
            self._exact = ExactPlanner(profile, budget, state.planner.predictions)
        super().begin(state)
        tasks = len(profile.tasks)
        self._limits = float(profile.sizes[0]), float(profile.sizes[-1])
        sizes = np.linspace(*self._limits, _SIZES)
        grid = np.repeat(sizes[:, None], tasks, axis=1)
        self._table = DurationTable.of(profile, grid, budget.start)
        half = np.random.default_rng(state.seed).normal(size=(self.scenarios // 2, self.horizon, tasks))
        self._steps = np.concatenate([half, -half])
        self._shares = np.full((len(spans(self.horizon)), tasks), budget.total / tasks)
        self._correction = Correction(self.horizon, tasks)
        for row in range(state.row):
            self._correction.predict(state.planner.predictions[row, : self.horizon])
            self._correction.learn(state.executed[row])

    def decide(self, state: GangState) -> Ints | None:
        """Plans for the expected duration, and keeps the present shares where that is cheaper."""
        if self._exact is not None:
            return super().decide(dataclasses.replace(state, planner=self._exact))
        if state.superstep:
            self._correction.learn(state.executed[-1])
        self._expected = self._correction.predict(state.predicted[: self.horizon])
        variances = np.diff(self._correction.deviations() ** 2, axis=0, prepend=0.0)
        self._errors = (self._steps * np.sqrt(np.maximum(variances, 0.0))).cumsum(axis=1)
        return super().decide(state)

    def plans(self, state: GangState) -> Plans:
        """Plans all windows within the horizon for the expected duration."""
        if self._exact is not None:
            return super().plans(state)
        count, all_spans = self.scenarios, spans(self.horizon)
        widths = np.array([width for _, width in all_spans])
        begins = np.repeat([begin for begin, _ in all_spans], widths)
        leads = np.concatenate([np.arange(width) for width in widths])
        sizes = self._expected[begins + leads] + self._errors[:, leads]
        windows = self._windows(sizes.transpose(1, 0, 2), widths * count, float(state.planner.budget.total))
        durations, shares = windows.minimize(self._shares, _ROUNDS, _SMOOTHING)
        # A window is one superstep nearer before the next superstep.
        index = places(self.horizon)
        self._shares = shares[[index.get((begin + 1, width), index[begin, width]) for begin, width in all_spans]]
        return Plans(in_millicores(shares), durations)

    def durations(self, state: GangState, supersteps: int) -> Floats:
        """(supersteps,) expected durations of the next supersteps with the present shares, in seconds."""
        if self._exact is not None:
            return super().durations(state, supersteps)
        sizes = self._expected[:supersteps] + self._errors[:, :supersteps]
        windows = self._windows(sizes.transpose(1, 0, 2), np.full(supersteps, self.scenarios), 0.0)
        return windows.costs(np.tile(state.shares.astype(float), (supersteps, 1)))

    def _windows(self, sizes: Floats, widths: Ints, total: float) -> Windows:
        """Windows of equally probable scenarios with (n, M, J) workload sizes of n supersteps in each scenario."""
        low, high = self._limits
        rows = np.rint((np.clip(sizes.reshape(-1, sizes.shape[2]), low, high) - low) * ((_SIZES - 1) / (high - low)))
        weight = np.full(len(rows), 1.0 / self.scenarios)
        return Windows(self._table, rows.T.astype(np.int64), widths, weight, total)
