"""Incremental fair sharing of resources among activities.

An activity uses resources in fixed proportions: at rate x it uses ``usage[r] * x`` of resource r, in claims of at most
``claim[r] * x`` each. A flow has usage and claim 1 on each link of its path, and its rate is in byte/s. The usage of a
link by a parallel task is the bytes that it sends there, its claim is its largest message there, and its rate is the
share of the task per second.

In the allocation, each activity has its maximum rate or a *bottleneck*: a saturated resource on which no claim is
larger (per unit of share). For flows this is max-min fairness, computed by progressive filling (Bertsekas and Gallager,
Data Networks, 6.5.2). For activities with different claims per resource it is bottleneck max fairness (Bonald and
Roberts, Multi-resource fairness: objectives, algorithms and performance, SIGMETRICS 2015).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Relative tolerance of sums against capacities, since sums are updated by additions and subtractions.
_SLACK = 1e-9
# Relative tolerance of rates, which depend on the order of additions.
_SAME = 1e-12
# Upper limit for the sweeps over the levels of a component, which takes few sweeps.
_SWEEPS = 200


class Demand:
    """The usage of resources by an activity, created by :meth:`MaxMin.demand` and shared by equal activities.

    Attributes:
        uses: For each resource in use: (resource, usage at rate 1, slope). The slope is the rate per level of the
            resource.
        entries: For each resource in use: (resource, (usage at rate 1, the other resources)).
        slope: The common slope of its resources, 0 if they differ.
        peak: Maximum rate on otherwise idle resources; inf without resources.
    """

    __slots__ = ("entries", "peak", "slope", "uses")

    def __init__(self, uses: tuple[tuple[int, float, float], ...], peak: float) -> None:
        self.uses = uses
        self.entries = tuple(
            [(resource, (usage, tuple([use[0] for use in uses if use[0] != resource]))) for resource, usage, _ in uses]
        )
        slopes = {slope for _, _, slope in uses}
        self.slope = slopes.pop() if len(slopes) == 1 else 0.0 if slopes else 1.0
        self.peak = peak


class Activity:
    """An activity that uses resources at one rate, created by :meth:`MaxMin.add`.

    Attributes:
        owner: Object of the caller.
        demand: Usage of resources.
        bound: Maximum rate, independent of the resources.
        rate: Current rate; 0 until solved.
        limit: Rate on otherwise idle resources.
    """

    __slots__ = ("bound", "demand", "limit", "owner", "rate", "slope", "top", "uses")

    def __init__(self, owner: Any, demand: Demand, bound: float) -> None:
        self.owner = owner
        self.demand = demand
        self.uses = demand.uses
        self.slope = demand.slope
        self.rate = 0.0
        self.set_bound(bound)

    def set_bound(self, bound: float) -> None:
        """Changes the maximum rate."""
        self.bound = bound
        self.limit = min(bound, self.demand.peak)
        #: Level of the limit.
        self.top = self.limit / self.slope if self.slope else math.inf


class MaxMin:
    """Resources and the activities that share them.

    Args:
        capacities: Capacity of each resource, above 0; a resource of infinite capacity must not be used.
        rounds: Use SimGrid's default rule for parallel tasks, which is not fair.
    """

    def __init__(self, capacities: Iterable[float], *, rounds: bool = False) -> None:
        self.capacity: list[float] = [float(capacity) for capacity in capacities]
        for resource, capacity in enumerate(self.capacity):
            if not capacity > 0:
                raise ValueError(f"expected a capacity above 0, got {capacity} for resource {resource}")
        count = len(self.capacity)
        #: Amount of each resource in use.
        self.load = [0.0] * count
        # Activities on each resource: usage, and the other resources of the activity.
        self._users: list[dict[Activity, tuple[float, tuple[int, ...]]]] = [{} for _ in range(count)]
        # Level of each resource: maximum usage by a claim of share 1, inf if the resource is not saturated.
        self._level = [math.inf] * count
        # Usage of a resource if all its activities had their limits. If that fits, the resource is not saturated and
        # does not connect its activities.
        self._wanted = [0.0] * count
        self._tight = [False] * count
        self._rounds = rounds
        # Number of activities with different slopes, and resources without levels because of such activities.
        self._uneven = 0
        self._rough: set[int] = set()
        self._touched: dict[int, None] = {}
        self._new: dict[Activity, None] = {}

    def demand(
        self,
        resources: Sequence[int],
        usages: Sequence[float],
        *,
        claims: Sequence[float] | None = None,
        share: float = 1.0,
    ) -> Demand:
        """Makes a demand.

        Args:
            resources: Resources in use, each once.
            usages: Usage of each of them at rate 1, above 0.
            claims: Largest part of each usage that competes as one, by default the whole usage.
            share: Weight in the division of a resource: a claim of share 2 gets twice what one of share 1 gets.
        """
        slopes = [share / claim for claim in (usages if claims is None else claims)]
        uses = tuple(zip(resources, usages, slopes, strict=True))
        peak = min([self.capacity[resource] / usage for resource, usage, _ in uses], default=math.inf)
        return Demand(uses, peak)

    def add(self, owner: Any, demand: Demand, bound: float = math.inf) -> Activity:
        """Adds an activity; :meth:`solve` gives it a rate.

        Args:
            owner: Object of the caller.
            demand: Usage of resources.
            bound: Maximum rate.
        """
        activity = Activity(owner, demand, bound)
        limit, touched, wanted, users = activity.limit, self._touched, self._wanted, self._users
        for resource, entry in demand.entries:
            users[resource][activity] = entry
            wanted[resource] += entry[0] * limit
            touched[resource] = None
        self._new[activity] = None
        self._uneven += not activity.slope
        return activity

    def remove(self, activity: Activity) -> None:
        """Removes an activity."""
        limit, rate = activity.limit, activity.rate
        for resource, usage, _ in activity.uses:
            users = self._users[resource]
            del users[activity]
            self._touched[resource] = None
            if users:
                self._wanted[resource] -= usage * limit
                self.load[resource] -= usage * rate
            else:
                # Removes the rounding errors of additions and subtractions.
                self._wanted[resource] = self.load[resource] = 0.0
        self._new.pop(activity, None)
        self._uneven -= not activity.slope

    def set_bound(self, activity: Activity, bound: float) -> None:
        """Changes the maximum rate of an activity."""
        before = activity.limit
        activity.set_bound(bound)
        for resource, usage, _ in activity.uses:
            self._touched[resource] = None
            self._wanted[resource] += usage * (activity.limit - before)
        self._new[activity] = None

    def solve(self) -> list[Activity]:
        """Updates all rates; returns the activities with changed rates in a deterministic order.

        Only activities that are connected to a change by saturated resources are updated.
        """
        changed: list[Activity] = []
        touched, self._touched = self._touched, {}
        new, self._new = self._new, {}
        for resource in touched:
            self._tight[resource] = self._rounds or self._wanted[resource] > self.capacity[resource] * (1.0 + _SLACK)
        solved: set[Activity] = set()
        if self._rounds or self._uneven or self._rough:
            self._solve_components(touched, new, solved, changed)
        self._solve_levels(touched, new, solved, changed)
        return changed

    def _solve_levels(
        self, touched: dict[int, None], new: dict[Activity, None], solved: set[Activity], changed: list[Activity]
    ) -> None:
        """Updates the levels of resources until they agree, beginning with `touched`, without activities in `solved`.

        A resource divides its capacity among its activities, each limited by the levels of its other resources; a
        changed level updates these. The lowest level is final after its first update, then the lowest of the rest, and
        so on, so that the result is max-min fair
        (Bertsekas and Gallager, 6.5.2; Charny, Clark and Jain, Congestion control with explicit rate indication, 1995).
        """
        levels, users, tight, inf = self._level, self._users, self._tight, math.inf
        waiting, queued = deque(touched), set(touched)
        affected = new
        while waiting:
            resource = waiting.popleft()
            queued.discard(resource)
            before = levels[resource]
            level = self._level_of(resource) if tight[resource] else inf
            if level == before or abs(level - before) <= _SAME * before < inf:
                continue
            levels[resource] = level
            lower = min(level, before)
            for activity, (_, others) in users[resource].items():
                if activity in solved:
                    continue
                affected[activity] = None
                for other in others:
                    # An activity with a lower level elsewhere before and after does not depend on this one.
                    if other not in queued and (
                        lower < levels[other] if levels[other] < inf else level > before and tight[other]
                    ):
                        queued.add(other)
                        waiting.append(other)
        for activity in affected:
            level = activity.top
            for resource, _, _ in activity.uses:
                if levels[resource] < level:
                    level = levels[resource]
            rate = level * activity.slope if level < activity.top else activity.limit
            if rate != activity.rate:
                self._set_rate(activity, rate, changed)

    def _level_of(self, resource: int) -> float:
        """Returns the level of a resource for the current levels of all others."""
        levels, capacity = self._level, self.capacity[resource]
        demands = []
        width = wanted = 0.0
        lowest = math.inf
        for activity, (usage, others) in self._users[resource].items():
            demand = activity.top
            for other in others:
                if levels[other] < demand:
                    demand = levels[other]
            if demand < lowest:
                lowest = demand
            claim = usage * activity.slope
            width += claim
            wanted += claim * demand
            demands.append((demand, claim))
        if wanted <= capacity * (1.0 + _SAME):
            return math.inf
        if lowest * width >= capacity:
            return capacity / width
        demands.sort()
        for demand, claim in demands:
            if demand * width >= capacity:
                return capacity / width
            capacity -= demand * claim
            width -= claim
        # All demands fit except for rounding.
        return math.inf

    def _solve_components(
        self, touched: dict[int, None], new: dict[Activity, None], solved: set[Activity], changed: list[Activity]
    ) -> None:
        """Solves components that levels cannot solve and moves them from `touched` and `new` to `solved`."""
        tight, seen = self._tight, set[Activity]()
        self._rough.difference_update([resource for resource in touched if not tight[resource]])
        for seed in [*new, *(user for resource in touched for user in self._users[resource])]:
            if seed in seen:
                continue
            seen.add(seed)
            resources = [resource for resource, _, _ in seed.uses if tight[resource]]
            activities = self._component(seed, resources, seen) if resources else [seed]
            if self._rounds and resources:
                rates = self._climb(activities, resources)
            elif all(activity.slope for activity in activities):
                touched.update(dict.fromkeys(self._rough.intersection(resources)))
                new.update(dict.fromkeys(activities))
                self._rough.difference_update(resources)
                continue
            else:
                rates = self._balance(activities, resources) if resources else [seed.limit]
                self._rough.update(resources)
            for resource in resources:
                touched.pop(resource, None)
            solved.update(activities)
            for activity, rate in zip(activities, rates, strict=True):
                new.pop(activity, None)
                if rate != activity.rate:
                    self._set_rate(activity, rate, changed)

    def _set_rate(self, activity: Activity, rate: float, changed: list[Activity]) -> None:
        before = activity.rate
        if abs(rate - before) <= _SAME * before:
            return
        activity.rate = rate
        load, more = self.load, rate - before
        for resource, usage, _ in activity.uses:
            load[resource] += usage * more
        changed.append(activity)

    def _component(self, seed: Activity, resources: list[int], seen: set[Activity]) -> list[Activity]:
        """Returns the component of `seed`, extends `resources` to those of the component and marks it as seen."""
        tight, found = self._tight, [seed]
        known = set(resources)
        for resource in resources:  # grows during the loop
            for activity in self._users[resource]:
                if activity not in seen:
                    seen.add(activity)
                    found.append(activity)
                    for other, _, _ in activity.uses:
                        if tight[other] and other not in known:
                            known.add(other)
                            resources.append(other)
        return found

    def _climb(self, activities: list[Activity], resources: list[int]) -> list[float]:
        """SimGrid's default rule for parallel tasks, ``fairbottleneck``.

        In each round, a resource offers its remaining capacity in equal parts to its active claims, and each activity
        increases its rate by the minimum of its offers. A saturated resource stops its activities. As in SimGrid, the
        last increase of a stopped activity is counted again in later rounds, which leaves some resources partly idle.
        """
        rates = dict.fromkeys(activities, 0.0)
        steps: dict[Activity, float] = {}
        active = dict.fromkeys(activities)
        left = {resource: self.capacity[resource] for resource in resources}
        while active:
            widths = dict.fromkeys(left, 0.0)
            for activity in active:
                for resource, usage, slope in activity.uses:
                    if resource in left:
                        widths[resource] += usage * slope
            left = {resource: headroom for resource, headroom in left.items() if widths[resource]}
            offers = {resource: headroom / widths[resource] for resource, headroom in left.items()}
            stopped = []
            for activity in active:
                headroom = activity.bound - rates[activity]
                step = min(offers[resource] * slope for resource, _, slope in activity.uses)
                steps[activity] = step = min(step, headroom)
                rates[activity] += step
                if step >= headroom * (1.0 - _SAME):
                    stopped.append(activity)
            for resource in list(left):
                users = self._users[resource]
                left[resource] -= sum(usage * steps[activity] for activity, (usage, _) in users.items())
                if left[resource] <= _SAME * self.capacity[resource]:
                    del left[resource]
                    stopped.extend(users)
            for activity in stopped:
                active.pop(activity, None)
        return list(rates.values())

    def _balance(self, activities: list[Activity], resources: list[int]) -> list[float]:
        """Bottleneck max fairness for activities with different slopes per resource.

        Each level in turn is set to saturate its resource. Once the resulting bottlenecks are correct, a linear system
        gives the exact levels.
        """
        column = {resource: j for j, resource in enumerate(resources)}
        usage = np.zeros((len(activities), len(resources)))
        slope = np.full(usage.shape, math.inf)  # stays inf where a resource is not used
        for i, activity in enumerate(activities):
            for resource, amount, ratio in activity.uses:
                if resource in column:
                    usage[i, column[resource]] = amount
                    slope[i, column[resource]] = ratio
        limit = np.array([activity.limit for activity in activities])
        capacity = np.array([self.capacity[resource] for resource in resources])
        users = [np.flatnonzero(usage[:, j]) for j in range(len(resources))]
        # Lower bounds of the levels: an equal part for each claim.
        level = np.array([capacity[j] / (usage[on, j] @ slope[on, j]) for j, on in enumerate(users)])
        for _ in range(_SWEEPS):
            for j, on in enumerate(users):
                others = slope[on] * level
                others[:, j] = math.inf
                demands = np.minimum(limit[on], others.min(axis=1)) / slope[on, j]
                level[j] = _water_level(demands, usage[on, j] * slope[on, j], capacity[j])
            rates = _exact_rates(usage, slope, limit, capacity, level)
            if rates is not None:
                return list(rates.tolist())
        rates = np.minimum(limit, (slope * level).min(axis=1))
        rates /= max(1.0, float((rates @ usage / capacity).max()))
        return list(rates.tolist())


def _water_level(demands: NDArray[np.float64], width: NDArray[np.float64], capacity: float) -> float:
    """Returns the level f at which the sum of ``width * min(demands, f)`` is `capacity`, inf if all demands fit."""
    order = np.argsort(demands, kind="stable")
    demands, width = demands[order], width[order]
    taken = np.concatenate(([0.0], np.cumsum(width * demands)))
    if taken[-1] <= capacity:
        return math.inf
    active = np.cumsum(width[::-1])[::-1]
    levels = (capacity - taken[:-1]) / active
    return float(levels[np.flatnonzero(levels <= demands)[0]])


def _exact_rates(
    usage: NDArray[np.float64],
    slope: NDArray[np.float64],
    limit: NDArray[np.float64],
    capacity: NDArray[np.float64],
    level: NDArray[np.float64],
) -> NDArray[np.float64] | None:
    """Returns the (n,) rates for the bottlenecks of approximate levels, None if these are not the correct ones.

    Args:
        usage: (n, m) usage of activity i on resource j.
        slope: (n, m) rate of an activity per level of a resource, inf where it does not use it.
        limit: (n,) limit of each activity.
        capacity: (m,) capacity of each resource.
        level: (m,) approximate levels, inf for a resource that is not saturated.
    """
    rows = np.arange(len(limit))
    bottleneck = (slope * level).argmin(axis=1)
    free = limit <= slope[rows, bottleneck] * level[bottleneck]
    used = np.unique(bottleneck[~free])
    exact = np.full(len(capacity), math.inf)
    if len(used):
        held, at = rows[~free], np.searchsorted(used, bottleneck[~free])
        matrix = np.zeros((len(used), len(used)))
        np.add.at(matrix.T, at, usage[held][:, used] * slope[held, bottleneck[held]][:, None])
        try:
            exact[used] = np.linalg.solve(matrix, capacity[used] - limit[free] @ usage[free][:, used])
        except np.linalg.LinAlgError:
            return None
    if not (exact > 0).all():
        return None
    rates = np.minimum(limit, (slope * exact).min(axis=1))
    promised = np.where(free, limit, slope[rows, bottleneck] * exact[bottleneck])
    right = (np.abs(rates - promised) <= _SAME * promised).all() and (rates @ usage <= capacity * (1 + _SLACK)).all()
    return rates if right else None
