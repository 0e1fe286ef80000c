"""CPU shares that minimize the duration of windows of supersteps: the sum of the durations of their slowest tasks.

One superstep: bisection over its duration; a task needs the smallest share at which it is as fast, also where its
durations are not monotone in the shares. The result is exact for durations that are linear between grid points.

Several supersteps: the maximum over the tasks becomes a smooth one, with the weight p_j ~ exp(d_j / tau) of task j in a
superstep. At the minimum the shares of the tasks are proportional to the sums of p_j times the elasticity of d_j, so
the shares move towards these sums by exponentiated gradient steps while tau decreases.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hdsim.gangs.profile import DurationProfile
from hdsim.util.arrays import Floats, Ints

#: Distance in millicores between the shares of a table.
SPACING = 50.0
#: Number of grid points in both directions that a slope is taken over, as measured durations are noisy.
_REACH = 8
#: Smallest elasticity of a duration, so that a task on a plateau keeps its weight.
_LEAST_ELASTICITY = 0.2
#: Step of the shares relative to tau: larger ones oscillate.
_STEP = 0.5
#: Halvings of the interval of a duration.
_BISECTIONS = 50


@dataclass(frozen=True)
class DurationTable:
    """Durations at ascending shares of equal distance, linear in between."""

    shares: Floats  # (L,) shares in millicores
    values: Floats  # (J, R, L) durations of each task for each of R workload sizes

    @classmethod
    def of(cls, profile: DurationProfile, sizes: Floats, low: float) -> DurationTable:
        """Makes a table for (R, J) workload sizes and the shares from a lowest one to the largest of the profile."""
        steps = max(int(np.ceil((profile.shares[-1] - low) / SPACING)), 1)
        shares = low + SPACING * np.arange(steps + 1, dtype=float)
        return cls(shares, np.ascontiguousarray(profile.table(sizes, shares)))

    @cached_property
    def slopes(self) -> Floats:
        """(J, R, L) seconds that a millicore saves."""
        last = len(self.shares) - 1
        below, above = (np.clip(np.arange(last + 1) + reach, 0, last) for reach in (-_REACH, _REACH))
        slopes = (self.values[:, :, below] - self.values[:, :, above]) / (self.shares[above] - self.shares[below])
        return np.ascontiguousarray(slopes)

    def at(self, rows: Ints, shares: Floats) -> tuple[Floats, Floats]:
        """Returns (J, E) durations and (J, E) slopes in E supersteps.

        `rows` are the (J, E) rows of the table, `shares` (J, E) millicores, at least the first of the table.
        """
        place = (np.minimum(shares, self.shares[-1]) - self.shares[0]) / SPACING
        level = np.minimum(place.astype(np.int64), len(self.shares) - 2)
        tasks, count, levels = self.values.shape
        cell = ((np.arange(tasks) * count)[:, None] + rows) * levels + level
        values = self.values.ravel()
        left = values[cell]
        return left + (place - level) * (values[cell + 1] - left), self.slopes.ravel()[cell]


@dataclass(frozen=True)
class Windows:
    """Windows of supersteps whose shares are planned together."""

    table: DurationTable
    rows: Ints  # (J, E) rows of the table in the supersteps of all windows, one window after the other
    width: Ints  # (B,) number of supersteps of each window
    weight: Floats  # (E,) weight of each superstep, such as the probability of a scenario
    total: float  # shares of all tasks together

    @cached_property
    def begin(self) -> Ints:
        """(B,) first superstep of each window."""
        return np.cumsum(self.width) - self.width

    @cached_property
    def window(self) -> Ints:
        """(E,) window of each superstep."""
        return np.repeat(np.arange(len(self.width)), self.width)

    def costs(self, shares: Floats) -> Floats:
        """(B,) durations of the windows with (B, J) shares."""
        durations, _ = self.table.at(self.rows, shares.T[:, self.window])
        return np.add.reduceat(self.weight * durations.max(axis=0), self.begin)

    def minimize(self, shares: Floats, rounds: int, smoothing: tuple[float, float]) -> tuple[Floats, Floats]:
        """Improves (B, J) shares of all windows, which are scaled to the total first.

        `rounds` is the number of steps, `smoothing` the first and the last tau, relative to the duration of a
        superstep. The (B,) durations of the windows and the shares are returned, the best of all rounds.
        """
        shares = self._allowed(shares)
        costs, best = np.full(len(self.width), np.inf), shares.copy()
        for tau in [*np.geomspace(*smoothing, rounds), 0.0]:
            held = shares.T[:, self.window]
            durations, slopes = self.table.at(self.rows, held)
            slowest = durations.max(axis=0)
            cost = np.add.reduceat(self.weight * slowest, self.begin)
            better = cost < costs
            costs[better], best[better] = cost[better], shares[better]
            if tau:
                blame = np.exp((durations - slowest) / (tau * slowest))
                blame *= np.maximum(slopes * held, _LEAST_ELASTICITY * durations) * (self.weight / blame.sum(axis=0))
                target = np.add.reduceat(blame, self.begin, axis=1).T
                target += 1e-3 * target.sum(axis=1, keepdims=True)
                step = target / shares * (shares.sum(axis=1) / target.sum(axis=1))[:, None]
                shares = self._allowed(shares * step ** (_STEP * tau))
        return costs, best

    def _allowed(self, shares: Floats) -> Floats:
        """Scales shares to the total within the limits of the table."""
        low, high = self.table.shares[0], self.table.shares[-1]
        for _ in range(3):
            shares = np.clip(shares * (self.total / shares.sum(axis=1))[:, None], low, high)
        above = shares - low
        given = np.maximum(above.sum(axis=1), 1e-9)
        return low + above * np.minimum((self.total - low * shares.shape[1]) / given, 1.0)[:, None]


def equalize(table: DurationTable, rows: Ints, total: float) -> tuple[Floats, Floats]:
    """Minimizes the durations of n supersteps one by one; returns them, (n,), and (n, J) shares in millicores.

    `rows` are the (J, n) rows of the table in the supersteps. The total of the shares is at least the first share of
    the table for each task.
    """
    durations = table.values[np.arange(len(rows))[:, None], rows]
    lows = np.minimum.accumulate(durations, axis=2)
    low, high = lows[:, :, -1].max(axis=0), lows[:, :, 0].max(axis=0)

    def whole(limit: Floats) -> Floats:
        return np.ceil(needed(table.shares, durations, lows, limit) - 1e-9)

    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        enough = whole(middle).sum(axis=0) <= total
        high, low = np.where(enough, middle, high), np.where(enough, low, middle)
    return high, whole(high).T


def needed(shares: Floats, durations: Floats, lows: Floats, limit: Floats) -> Floats:
    """Returns the (J, n) smallest of (L,) shares with which tasks need no longer than (n,) limits, else infinity.

    `durations` are (J, n, L), for each share, `lows` (J, n, L), the smallest ones with any share up to each one.
    """
    level = (lows > limit[:, None]).sum(axis=2)
    before, last = np.maximum(level - 1, 0), np.minimum(level, len(shares) - 1)
    left, right = (np.take_along_axis(durations, place[..., None], axis=2)[..., 0] for place in (before, last))
    part = np.where(left > right, (left - limit) / np.where(left > right, left - right, 1.0), 0.0)
    return np.where(level == len(shares), np.inf, shares[before] + (shares[last] - shares[before]) * part)
