"""Planning and control of BSP gangs in plain loops, written from the description of Kube_Gang_Scheduling's arithmetic.

Durations come from two cubic splines with not-a-knot ends, one along the shares and one along the sizes.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable
from functools import cache
from pathlib import Path

from scipy.interpolate import CubicSpline

START, INCREMENT, TOTAL, CAP = 1000, 100, 24000, 8000
COLUMNS, DECAY, PENALTY = 20, 0.95, 15.0
#: duration(task, size, share) in s
Duration = Callable[[int, float, float], float]


def read_profile(path: Path, tasks: list[str]) -> Duration:
    measured: dict[str, dict[tuple[float, float], float]] = {task: {} for task in tasks}
    with path.open() as file:
        next(file)
        for task, size, share, duration in csv.reader(file, skipinitialspace=True):
            measured[task][float(size), float(share)] = float(duration)
    return surface([measured[task] for task in tasks])


def surface(measured: list[dict[tuple[float, float], float]]) -> Duration:
    sizes = sorted({size for size, _ in measured[0]})
    shares = sorted({share for _, share in measured[0]})

    @cache
    def at_share(task: int, share: float) -> CubicSpline:
        column = [float(CubicSpline(shares, [measured[task][size, s] for s in shares])(share)) for size in sizes]
        return CubicSpline(sizes, column)

    @cache
    def duration(task: int, size: float, share: float) -> float:
        share = min(max(share, shares[0]), shares[-1])
        return float(at_share(task, float(share))(min(max(size, sizes[0]), sizes[-1])))

    return duration


def read_series(path: Path) -> list[list[float]]:
    """Rows of a series, each column scaled to 10..50."""
    with gzip.open(path, "rt") as file:
        rows = [[float(text) for text in line.split(",")] for line in file if not line.startswith("#")]
    columns = []
    for column in zip(*rows, strict=True):
        factor = 40.0 / (max(column) - min(column))
        shift = 10.0 - min(column) * factor
        columns.append([value * factor + shift for value in column])
    return [list(row) for row in zip(*columns, strict=True)]


class Reference:
    """The system: sizes[t][c][j] are predictions, actual[t][j] is executed."""

    def __init__(self, duration: Duration, sizes: list[list[list[float]]], actual: list[list[float]]) -> None:
        self.duration, self.sizes, self.actual = duration, sizes, actual
        self.tasks = len(actual[0])

    def slowest(self, shares: list[int], row: int, column: int) -> tuple[int, float]:
        times = [self.duration(j, self.sizes[row][column][j], shares[j]) for j in range(self.tasks)]
        return times.index(max(times)), max(times)

    def predicted(self, shares: list[int], row: int, first: int, width: int) -> float:
        return sum(self.slowest(shares, row, column)[1] for column in range(first, first + width))

    @cache  # noqa: B019 - one object per test
    def greedy(self, row: int, first: int, width: int) -> list[int]:
        shares = [START] * self.tasks
        for _ in range((TOTAL - START * self.tasks) // INCREMENT):
            gains: dict[int, float] = {}
            for i in range(width):
                j, time = self.slowest(shares, row, first + i)
                after = self.duration(j, self.sizes[row][first + i][j], shares[j] + INCREMENT)
                gains[j] = gains.get(j, 0.0) + DECAY**i * (time - after)
            shares[max(gains, key=lambda j: gains[j])] += INCREMENT
        return shares

    def exppo(self) -> list[int]:
        shares = [START] * self.tasks
        for _ in range((TOTAL - START * self.tasks) // INCREMENT):
            below = [j for j in range(self.tasks) if shares[j] < CAP]
            shares[max(below, key=lambda j: self.duration(j, 30.0, shares[j]))] += INCREMENT
        return shares

    def static(self, steps: int) -> tuple[float, int]:
        shares = self.exppo()
        return sum(self.executed(shares, t) for t in range(steps)), 0

    def executed(self, shares: list[int], t: int) -> float:
        return max(self.duration(j, self.actual[t][j], shares[j]) for j in range(self.tasks))

    def run(self, choose: Callable[[int, list[int]], int], steps: int) -> tuple[float, int]:
        shares, total, checkpoints = [START] * self.tasks, 0.0, 0
        for t in range(steps):
            width = choose(t, shares)
            if width:
                shares = self.greedy(t, 0, width)
                checkpoints += t > 0
            total += self.executed(shares, t)
        return total, checkpoints

    def static_window(self, width: int, steps: int) -> tuple[float, int]:
        return self.run(lambda t, _: 0 if t % width else width, steps)

    def dynamic_programming(self, t: int, horizon: int, punishment: float, steps: int) -> tuple[list[float], list[int]]:
        costs, widths = [0.0] * (horizon + 1), [0] * (horizon + 1)
        for s in range(min(horizon, steps - t) - 1, -1, -1):
            best = None
            for width in range(1, min(horizon - s, steps - t, COLUMNS - 5) + 1):
                cost = self.predicted(self.greedy(t, s, width), t, s, width) * punishment**width
                if s + width < horizon:
                    cost += costs[s + width] + PENALTY
                if best is None or cost < best:
                    best, costs[s], widths[s] = cost, cost, width
        return costs, widths

    def dynamic_mpc(self, horizon: int, steps: int, punishment: float = 1.02) -> tuple[float, int]:
        def choose(t: int, shares: list[int]) -> int:
            costs, widths = self.dynamic_programming(t, horizon, punishment, steps)
            kept = []
            for k in range(1, min(horizon, steps - t) + 1):
                cost = self.predicted(shares, t, 0, k) * punishment**k
                kept.append(cost + (costs[k] + PENALTY if k < horizon else 0.0))
            return 0 if min(kept) < costs[0] + (PENALTY if t else 0.0) else widths[0]

        return self.run(choose, steps)

    def dynamic_window(self, horizon: int, steps: int, punishment: float = 1.02) -> tuple[float, int]:
        following = 0

        def choose(t: int, _: list[int]) -> int:
            nonlocal following
            if t < following:
                return 0
            width = self.dynamic_programming(t, horizon, punishment, steps)[1][0]
            following = t + width
            return width

        return self.run(choose, steps)
