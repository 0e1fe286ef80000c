"""Lower bound of the total of every plan for known workloads.

A segment of supersteps i with durations M_i needs the share n_ij(M_i) of task j, the smallest one at which the task is
as fast. Its cost is at least

    min sum_i M_i  with  sum_j max_i n_ij(M_i) <= total,

for any profile. For weights w_ij >= 0 with sum_i w_ij = 1 for each task, and a price p >= 0, it is at
least

    sum_i min_M [M + p sum_j w_ij n_ij(M)] - p total,

which subgradient steps raise. If they do not suffice, the range of one M_i is divided (branch and bound). The
bound of a plan follows by dynamic programming. It holds for all real shares from the lowest one on: n_ij is computed
from splines lowered by the largest possible distance between a spline and its chords.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hdsim.gangs.minimize import needed
from hdsim.gangs.offline import WIDEST, PlannedSegments, shortest
from hdsim.util.arrays import Floats, Ints

#: Distance in millicores of the chords.
_CHORD = 25.0
#: Durations M relative to the shortest one of a superstep.
_RATIOS = np.concatenate([np.arange(0.0, 0.03, 5e-4), np.arange(0.03, 0.2, 1e-3), np.geomspace(0.2, 1.5, 40)])
#: Subgradient steps for a whole segment, and after a division.
_ROUNDS, _AGAIN = 50, 25
#: Nodes whose arrays are computed together, divisions one after the other, and nodes of one depth.
_BATCH, _DEPTH, _MOST = 150, 14, 20_000
#: Parts of the total by which the bound may be below the plan, in the order in which they are tried.
_GAPS = (5e-3, 4.5e-3, 4e-3)


@dataclass(frozen=True)
class _Nodes:
    """Segments of one width with ranges of the durations of their supersteps."""

    first: Ints  # (n,) first supersteps
    #: low, high: (n, W) ranges: indices of durations.
    low: Ints
    high: Ints
    weight: Floats  # (n, W, J) weights w_ij
    price: Floats  # (n,) price p in seconds per millicore
    bound: Floats  # (n,) lower bounds of the costs

    def take(self, rows: NDArray[Any]) -> _Nodes:
        return _Nodes(*(getattr(self, field.name)[rows] for field in fields(self)))

    @classmethod
    def join(cls, parts: list[_Nodes]) -> _Nodes:
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))


class _Relaxation:
    """Needs of all supersteps at all durations, and bounds of segments from them."""

    def __init__(self, segments: PlannedSegments) -> None:
        self.segments = segments
        self.total, self.least = float(segments.budget.total), float(segments.budget.start)
        shares = np.arange(self.least, max(segments.profile.shares[-1], self.least + _CHORD) + _CHORD, _CHORD)
        durations = self._lowered(shares)
        lows = np.minimum.accumulate(durations, axis=2)
        low, high = lows[:, :, -1].max(axis=0), lows[:, :, 0].max(axis=0)
        for _ in range(50):
            middle = (low + high) / 2
            enough = needed(shares, durations, lows, middle).sum(axis=0) <= self.total
            high, low = np.where(enough, middle, high), np.where(enough, low, middle)
        #: (N, K) durations of supersteps: the shortest possible one first
        self.durations = low[:, None] * (1.0 + _RATIOS)
        needs = [needed(shares, durations, lows, limit) for limit in self.durations.T[1:]]
        #: (N, J, K) needs of durations up to the next one
        self.needs = np.stack([*needs, np.full_like(needs[0], self.least)], axis=2).transpose(1, 0, 2).copy()

    def _lowered(self, shares: Floats) -> Floats:
        """(J, N, L) durations at shares, less the largest distance of the spline from its chords beside them."""
        profile, sizes = self.segments.profile, self.segments.sizes
        durations = profile.table(sizes, shares)
        curvature = np.abs(profile.table(sizes, shares, derivative=2))
        # Between neighbouring shares the second derivative is linear, as the knots are among them.
        distance = np.maximum(curvature[:, :, 1:], curvature[:, :, :-1]) * _CHORD**2 / 8.0
        below, above = (np.pad(distance, [(0, 0), (0, 0), side]) for side in ((1, 0), (0, 1)))
        return durations - np.maximum(below, above)

    def root(self, width: int) -> _Nodes:
        """All segments of a width with weights and prices of their plans."""
        segments = self.segments
        first = np.arange(len(segments.costs[width - 1]))
        windows = segments.windows(width, first)
        held = segments.shares[width - 1].T[:, windows.window]
        durations, slopes = windows.table.at(windows.rows, held)
        slowest = durations.max(axis=0)
        blame = np.exp((durations - slowest) / (0.01 * slowest))
        value = (blame / blame.sum(axis=0) * np.maximum(slopes, 1e-4)).reshape(len(durations), len(first), width)
        value = value.transpose(1, 2, 0)
        price = value.sum(axis=1).mean(axis=1)
        low, high = np.zeros((len(first), width), np.int64), np.full((len(first), width), len(_RATIOS))
        shortest_ones = sum(self.durations[first + i, 0] for i in range(width))
        return _Nodes(first, low, high, _normal(value), price, np.asarray(shortest_ones))

    def narrow(self, nodes: _Nodes, target: Floats) -> _Nodes:
        """Removes durations with which a segment cannot cost less than its target, and nodes without any others."""
        supersteps = nodes.first[:, None] + np.arange(nodes.low.shape[1])
        least = self.durations[supersteps, nodes.low]
        limit = target[:, None] - (least.sum(axis=1, keepdims=True) - least)
        nodes.high[:] = np.minimum(nodes.high, (self.durations[supersteps] < limit[..., None]).sum(axis=2))
        return nodes.take(np.flatnonzero((nodes.high > nodes.low).all(axis=1)))

    def raised(self, nodes: _Nodes, target: Floats, rounds: int) -> tuple[_Nodes, Floats]:
        """Raises the bounds of nodes up to targets; returns them and the (n, J) shares of the best weights."""
        count, width = nodes.low.shape
        least = np.full((count, self.needs.shape[1]), self.least)
        for i in range(width):
            end = nodes.high[:, i] - 1
            least = np.maximum(least, self.needs[nodes.first + i, :, end])
        bound, shares = nodes.bound.copy(), least.copy()
        weight, price = nodes.weight.copy(), nodes.price.copy()
        best_weight, best_price = weight.copy(), price.copy()
        bound[least.sum(axis=1) > self.total] = np.inf
        index = np.arange(len(_RATIOS))
        for round_ in range(rounds):
            live = np.flatnonzero(bound < target)
            if not len(live):
                break
            value, needs = -price[live] * self.total, np.empty((len(live), width, least.shape[1]))
            each = np.arange(len(live))
            for i in range(width):
                superstep = nodes.first[live] + i
                table = np.maximum(self.needs[superstep], least[live, :, None])
                costs = ((price[live, None] * weight[live, i])[:, None, :] @ table)[:, 0] + self.durations[superstep]
                costs[(index < nodes.low[live, i, None]) | (index >= nodes.high[live, i, None])] = np.inf
                place = costs.argmin(axis=1)
                value += costs[each, place]
                needs[:, i] = table[each, :, place]
            better = value > bound[live]
            rows = live[better]
            bound[rows], best_weight[rows], best_price[rows] = value[better], weight[rows], price[rows]
            shares[rows] = needs[better].max(axis=1)
            mean = (weight[live] * needs).sum(axis=1)
            step = 1.2 / (1.0 + round_ / 10.0)
            price[live] *= np.exp(step * np.clip(mean.sum(axis=1) / self.total - 1.0, -0.3, 0.3))
            growth = np.exp(10.0 * step * (needs / mean[:, None] - 1.0))
            weight[live] = _normal(weight[live] * np.clip(growth, 0.2, 5.0))
        return _Nodes(nodes.first, nodes.low, nodes.high, best_weight, best_price, bound), shares

    def divided(self, nodes: _Nodes) -> tuple[_Nodes, _Nodes]:
        """Divides the widest range of each node; returns the parts, and the nodes with no range to divide."""
        supersteps = nodes.first[:, None] + np.arange(nodes.low.shape[1])
        extent = self.durations[supersteps, nodes.high - 1] - self.durations[supersteps, nodes.low]
        possible = extent.max(axis=1) > 0.0
        rest, nodes, extent = nodes.take(~possible), nodes.take(possible), extent[possible]
        each, i = np.arange(len(extent)), extent.argmax(axis=1)
        middle = (nodes.low[each, i] + nodes.high[each, i]) // 2
        lower, upper = nodes.take(each), nodes.take(each)
        lower.high[each, i] = upper.low[each, i] = middle
        return _Nodes.join([lower, upper]), rest

    def bounds(self, width: int, target: Floats) -> Floats:
        """(n,) lower bounds of all segments of a width, raised up to a target; improves plans of segments meanwhile."""
        nodes = self.root(width)
        found = np.full(len(target), np.inf)  # smallest bound of the nodes that are not divided
        least = nodes.bound
        nodes = nodes.take(least < target)
        for depth in range(_DEPTH):
            nodes = self.narrow(nodes, target[nodes.first])
            parts = []
            for begin in range(0, len(nodes.first), _BATCH):
                part = nodes.take(np.arange(begin, min(begin + _BATCH, len(nodes.first))))
                part, shares = self.raised(part, target[part.first], _AGAIN if depth else _ROUNDS)
                left = part.bound < target[part.first]
                self.segments.improve(width, part.first[left], shares[left])
                parts.append(part.take(left))
            if not parts or len(nodes.first) > _MOST:
                break
            nodes, rest = self.divided(_Nodes.join(parts))
            np.minimum.at(found, rest.first, rest.bound)
        np.minimum.at(found, nodes.first, nodes.bound)
        return np.maximum(least, np.minimum(found, target))


def lower_bound(
    segments: PlannedSegments, penalty: float, progress: Callable[[float], object] = lambda part: None
) -> float:
    """Returns a total that no plan for known workloads falls below, in seconds.

    Plans of the segments are improved on the way; `progress` is called with the part of the work that is done. The
    penalty is the cost of a change of the shares in seconds.
    """
    relaxation = _Relaxation(segments)
    count, widths = len(segments.sizes), len(segments.costs)
    best = [np.full(len(cost), -np.inf) for cost in segments.costs]
    for number, gap in enumerate(_GAPS):
        # Segments reach a bound of (1 - gap) of the total together if each reaches the difference of these potentials.
        left, _ = shortest(segments.costs, penalty)
        potential = left - gap * left[0] * np.arange(count, -1, -1) / count
        for width in range(1, widths + 1):
            first = np.arange(count - width + 1)
            changes = penalty * ((first + width < count) & (width < WIDEST))
            target = potential[first] - potential[first + width] - changes
            best[width - 1] = np.maximum(best[width - 1], relaxation.bounds(width, target))
            progress((number + width / widths) / len(_GAPS))
    # A segment of the largest width may be part of a longer one, with the sum of the bounds of its parts: no penalty.
    costs = [cost + penalty * (np.arange(len(cost)) + width < count) for width, cost in enumerate(best, 1)]
    if widths == WIDEST:
        costs[-1] = best[-1]
    return float(shortest(costs, 0.0)[0][0])


def _normal(weight: Floats) -> Floats:
    """Positive weights with the sum 1 over the supersteps for each task."""
    weight = np.maximum(weight, 1e-7)
    return weight / weight.sum(axis=1, keepdims=True)
