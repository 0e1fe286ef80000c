"""Fair sharing of capacities among activities, re-solved only where something has changed.

An activity uses resources in fixed proportions: at rate x it takes ``usage[r] * x`` of resource r, in claims of at
most ``claim[r] * x`` each. A flow has usage and claim 1 on every link of its path, so its rate is in byte/s. A parallel
task uses as many bytes of a link as it sends over it, its claim is its largest message there, and its rate is the part
of itself that it does per second.

The allocation is the one in which every activity runs at its own bound or has a *bottleneck*: a resource that is used
up and on which nobody's claim gets more (per unit of share). For flows that is max-min fairness, found by progressive
filling (Bertsekas and Gallager, Data Networks, 6.5.2); for activities whose claims differ from resource to resource it
is bottleneck max fairness (Bonald and Roberts, Multi-resource fairness: objectives, algorithms and performance,
SIGMETRICS 2015).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heapreplace
from typing import Any

import numpy as np
from numpy.typing import NDArray

# A sum within this of a capacity, relatively, is taken to fit: sums are kept by adding and subtracting.
_SLACK = 1e-9
# A rate that moves by less than this, relatively, has not changed: the same component filled in another order.
_SAME = 1e-12
# Levels are refined until a set of bottlenecks proves right, which takes a few sweeps.
_SWEEPS = 200


class Activity:
    """Something that uses resources at one rate; made by :meth:`MaxMin.add`.

    Attributes:
        owner: What the caller attached.
        resources: Resources in use.
        usages: Usage of each of them at rate 1.
        slopes: Rate per level of each of them: what its claim there gets when a claim of share 1 gets 1.
        bound: Largest rate, whatever the resources.
        rate: Present rate; 0 until solved.
        limit: Rate that it would have alone.
        slope: The one slope that holds for each of its resources, 0 where they differ.
    """

    __slots__ = ("bound", "limit", "owner", "rate", "resources", "slope", "slopes", "usages")

    def __init__(
        self, owner: Any, resources: Sequence[int], usages: Sequence[float], slopes: Sequence[float], bound: float
    ) -> None:
        self.owner = owner
        self.resources = resources
        self.usages = usages
        self.slopes = slopes
        self.bound = bound
        self.rate = 0.0
        self.limit = 0.0
        self.slope = slopes[0] if slopes and slopes.count(slopes[0]) == len(slopes) else 0.0


class MaxMin:
    """Resources and the activities that share them.

    Args:
        capacities: Capacity of each resource, above 0; a resource of infinite capacity must not be used.
        rounds: Divide resources as SimGrid does by default for parallel tasks, which is not fair but reproduces it.
    """

    def __init__(self, capacities: Iterable[float], *, rounds: bool = False) -> None:
        self.capacity: list[float] = [float(capacity) for capacity in capacities]
        for resource, capacity in enumerate(self.capacity):
            if not capacity > 0:
                raise ValueError(f"expected a capacity above 0, got {capacity} for resource {resource}")
        count = len(self.capacity)
        #: Amount of each resource in use.
        self.load = [0.0] * count
        self._users: list[dict[Activity, float]] = [{} for _ in range(count)]
        # What the users of a resource would take if each were alone in the system. Where that fits, the resource
        # slows nobody down and does not tie its users together.
        self._wanted = [0.0] * count
        self._tight = [False] * count
        self._rounds = rounds
        self._touched: dict[int, None] = {}
        self._new: dict[Activity, None] = {}

    def add(
        self,
        owner: Any,
        resources: Sequence[int],
        usages: Sequence[float],
        *,
        claims: Sequence[float] | None = None,
        share: float = 1.0,
        bound: float = math.inf,
    ) -> Activity:
        """Adds an activity; :meth:`solve` gives it a rate.

        Args:
            owner: Anything, kept with the activity.
            resources: Resources in use, each once.
            usages: Usage of each of them at rate 1, above 0.
            claims: Largest part of each usage that competes as one, by default the whole usage.
            share: Weight in the division of a resource: a claim of share 2 gets twice what one of share 1 gets.
            bound: Largest rate.
        """
        slopes = tuple(share / claim for claim in (usages if claims is None else claims))
        activity = Activity(owner, resources, usages, slopes, bound)
        for resource, usage in zip(resources, usages, strict=True):
            self._users[resource][activity] = usage
            self._touched[resource] = None
        self._set_limit(activity, bound)
        return activity

    def remove(self, activity: Activity) -> None:
        """Removes an activity."""
        for resource, usage in zip(activity.resources, activity.usages, strict=True):
            users = self._users[resource]
            del users[activity]
            self._touched[resource] = None
            if users:
                self._wanted[resource] -= usage * activity.limit
                self.load[resource] -= usage * activity.rate
            else:
                # What adding and subtracting has left over ends here.
                self._wanted[resource] = self.load[resource] = 0.0
        self._new.pop(activity, None)

    def set_bound(self, activity: Activity, bound: float) -> None:
        """Changes the largest rate of an activity."""
        for resource in activity.resources:
            self._touched[resource] = None
        self._set_limit(activity, bound)

    def solve(self) -> list[Activity]:
        """Brings all rates up to date; returns the activities whose rate has changed, in a fixed order.

        Only activities tied to a changed one by a chain of resources that slow somebody down are looked at.
        """
        seeds = list(self._new)
        tight = self._tight
        for resource in self._touched:
            now = self._rounds or self._wanted[resource] > self.capacity[resource] * (1.0 + _SLACK)
            if now or tight[resource]:
                tight[resource] = now
                seeds.extend(self._users[resource])
        self._touched.clear()
        self._new.clear()
        changed: list[Activity] = []
        seen: set[Activity] = set()
        for seed in seeds:
            if seed in seen:
                continue
            seen.add(seed)
            resources = [resource for resource in seed.resources if tight[resource]]
            if resources:
                activities = self._component(seed, resources, seen)
                if self._rounds:
                    rates = self._climb(activities, resources)
                elif all(activity.slope for activity in activities):
                    rates = self._fill(activities, resources)
                else:
                    rates = self._balance(activities, resources)
                for activity, rate in zip(activities, rates, strict=True):
                    self._set_rate(activity, rate, changed)
            else:
                self._set_rate(seed, seed.limit, changed)
        return changed

    def _set_limit(self, activity: Activity, bound: float) -> None:
        before, limit = activity.limit, bound
        for resource, usage in zip(activity.resources, activity.usages, strict=True):
            limit = min(limit, self.capacity[resource] / usage)
        activity.bound, activity.limit = bound, limit
        for resource, usage in zip(activity.resources, activity.usages, strict=True):
            self._wanted[resource] += usage * (limit - before)
        self._new[activity] = None

    def _set_rate(self, activity: Activity, rate: float, changed: list[Activity]) -> None:
        before = activity.rate
        if rate == before or abs(rate - before) <= _SAME * before:
            return
        activity.rate = rate
        load = self.load
        for resource, usage in zip(activity.resources, activity.usages, strict=True):
            load[resource] += usage * (rate - before)
        changed.append(activity)

    def _component(self, seed: Activity, resources: list[int], seen: set[Activity]) -> list[Activity]:
        """Returns the activities tied to `seed`; extends `resources` to all that tie them and marks them as seen."""
        tight, found = self._tight, [seed]
        known = set(resources)
        for resource in resources:  # grows on the way
            for activity in self._users[resource]:
                if activity not in seen:
                    seen.add(activity)
                    found.append(activity)
                    for other in activity.resources:
                        if tight[other] and other not in known:
                            known.add(other)
                            resources.append(other)
        return found

    def _fill(self, activities: list[Activity], resources: list[int]) -> list[float]:
        """Progressive filling: raise the level of all activities together, stop those whose resource is used up."""
        position = {activity: i for i, activity in enumerate(activities)}
        rates = [-1.0] * len(activities)
        left = {resource: self.capacity[resource] for resource in resources}
        climbing = {resource: len(self._users[resource]) for resource in resources}
        weight = {
            resource: math.fsum(usage * user.slope for user, usage in self._users[resource].items())
            for resource in resources
        }
        levels = [(left[resource] / weight[resource], resource) for resource in resources]
        heapify(levels)
        limits = sorted((activity.limit / activity.slope, i) for i, activity in enumerate(activities))
        next_limit = 0
        while next_limit < len(limits):
            limit, i = limits[next_limit]
            if rates[i] >= 0.0:
                next_limit += 1
                continue
            # A stored level is at most the true one: a resource gains room when one of its users stops elsewhere.
            while levels and levels[0][0] < limit:
                level, resource = levels[0]
                if not climbing[resource]:
                    heappop(levels)
                    continue
                true = left[resource] / weight[resource]
                if true <= level:
                    break
                heapreplace(levels, (true, resource))
            if levels and levels[0][0] < limit:
                level, resource = heappop(levels)
                stopping = [user for user in self._users[resource] if rates[position[user]] < 0.0]
            else:
                level, stopping = limit, [activities[i]]
            for activity in stopping:
                rate = min(level * activity.slope, activity.limit)
                rates[position[activity]] = rate
                for used, usage in zip(activity.resources, activity.usages, strict=True):
                    if used in left:
                        left[used] = max(left[used] - usage * rate, 0.0)
                        weight[used] -= usage * activity.slope
                        climbing[used] -= 1
        return rates

    def _climb(self, activities: list[Activity], resources: list[int]) -> list[float]:
        """SimGrid's default rule for parallel tasks, ``fairbottleneck``.

        In each round, a resource offers what is left of it in equal parts to the claims that still climb on it, and
        every activity climbs by the least that it is offered. A used-up resource stops its activities. SimGrid goes on
        charging a stopped activity for its last step, which leaves some resources partly idle; so does this.
        """
        rates = dict.fromkeys(activities, 0.0)
        steps: dict[Activity, float] = {}
        climbing = dict.fromkeys(activities)
        left = {resource: self.capacity[resource] for resource in resources}
        while climbing:
            offers: dict[int, float] = {}
            for resource in list(left):
                width = 0.0
                for activity, usage in self._users[resource].items():
                    if activity in climbing:
                        width += usage * activity.slopes[activity.resources.index(resource)]
                if width:
                    offers[resource] = left[resource] / width
                else:
                    del left[resource]
            stopped = []
            for activity in climbing:
                room = activity.bound - rates[activity]
                step = min(offers[r] * slope for r, slope in zip(activity.resources, activity.slopes, strict=True))
                steps[activity] = step = min(step, room)
                rates[activity] += step
                if step >= room * (1.0 - _SAME):
                    stopped.append(activity)
            for resource in list(left):
                users = self._users[resource]
                left[resource] -= sum(usage * steps[activity] for activity, usage in users.items())
                if left[resource] <= _SAME * self.capacity[resource]:
                    del left[resource]
                    stopped.extend(users)
            for activity in stopped:
                climbing.pop(activity, None)
        return list(rates.values())

    def _balance(self, activities: list[Activity], resources: list[int]) -> list[float]:
        """Bottleneck max fairness for activities whose slopes differ between resources.

        Each resource has a level, the most that a claim of share 1 may take of it. Levels are set one after the other
        so that the resource is just used up; as soon as the bottlenecks found that way are the right ones, a linear
        system gives the exact levels.
        """
        column = {resource: j for j, resource in enumerate(resources)}
        usage = np.zeros((len(activities), len(resources)))
        slope = np.full(usage.shape, math.inf)  # stays inf where a resource is not used
        for i, activity in enumerate(activities):
            for resource, amount, ratio in zip(activity.resources, activity.usages, activity.slopes, strict=True):
                if resource in column:
                    usage[i, column[resource]] = amount
                    slope[i, column[resource]] = ratio
        limit = np.array([activity.limit for activity in activities])
        capacity = np.array([self.capacity[resource] for resource in resources])
        users = [np.flatnonzero(usage[:, j]) for j in range(len(resources))]
        # The lowest levels there can be: an equal part for every claim.
        level = np.array([capacity[j] / (usage[on, j] @ slope[on, j]) for j, on in enumerate(users)])
        for _ in range(_SWEEPS):
            for j, on in enumerate(users):
                others = slope[on] * level
                others[:, j] = math.inf
                wishes = np.minimum(limit[on], others.min(axis=1)) / slope[on, j]
                level[j] = _water_level(wishes, usage[on, j] * slope[on, j], capacity[j])
            rates = _exact_rates(usage, slope, limit, capacity, level)
            if rates is not None:
                return list(rates.tolist())
        rates = np.minimum(limit, (slope * level).min(axis=1))
        rates /= max(1.0, float((rates @ usage / capacity).max()))
        return list(rates.tolist())


def _water_level(wishes: NDArray[np.float64], width: NDArray[np.float64], capacity: float) -> float:
    """Returns the level f at which the sum of ``width * min(wishes, f)`` is `capacity`, inf if all wishes fit."""
    order = np.argsort(wishes, kind="stable")
    wishes, width = wishes[order], width[order]
    taken = np.concatenate(([0.0], np.cumsum(width * wishes)))
    if taken[-1] <= capacity:
        return math.inf
    climbing = np.cumsum(width[::-1])[::-1]
    levels = (capacity - taken[:-1]) / climbing
    return float(levels[np.flatnonzero(levels <= wishes)[0]])


def _exact_rates(
    usage: NDArray[np.float64],
    slope: NDArray[np.float64],
    limit: NDArray[np.float64],
    capacity: NDArray[np.float64],
    level: NDArray[np.float64],
) -> NDArray[np.float64] | None:
    """Returns the (n,) rates for the bottlenecks that `level` suggests, None if these are not the right ones.

    Args:
        usage: (n, m) usage of activity i on resource j.
        slope: (n, m) rate of an activity per level of a resource, inf where it does not use it.
        limit: (n,) rate of each activity alone.
        capacity: (m,) capacity of each resource.
        level: (m,) approximate levels, inf for a resource that is not used up.
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
