"""Accounting of the seconds between a lower bound of every plan and the total of a run.

Let T(S) be the total when the controller gets, for each task in S, the workloads that are executed in place of
their predictions; T(none) is the run. With all tasks in S the controller still takes its inputs for predictions; C is
its total when they are marked as certain, E the same with exact plans, O the total of the offline plan and B the
bound. Then

    T(none) = B + (O - B) + (E - O) + (C - E) + (T(all) - C) + sum_j phi_j,

where the Shapley value phi_j (Shapley 1953) is the mean of T(S) - T(S + j) over orders of the tasks, S being the tasks
before j in an order. The differences of one order add up to T(none) - T(all), and so do their means over any
orders. All orders are taken where they are few; otherwise random ones, each with its reverse (antithetic sampling,
Mitchell et al., JMLR 2022).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from hdsim.util.arrays import Floats


@dataclass(frozen=True)
class Knowledge:
    """Knowledge of the controller in a run."""

    known: frozenset[int] = frozenset()  # numbers of the tasks whose predictions are what is executed
    certain: bool = False  # whether predictions are marked as certain
    exact: bool = False  # whether plans are exact, whatever the planner


@dataclass(frozen=True)
class Item:
    """Part of the total of a run."""

    cause: str
    seconds: float  # its contribution to the total in seconds
    duration: float = math.nan  # part of it in durations of supersteps, NaN where it is not known
    penalty: float = math.nan  # part of it in penalties, NaN where it is not known
    error: float = 0.0  # standard error of `seconds` over the orders of tasks, 0 where there is none


def account(
    costs: Callable[[Knowledge], Floats],
    tasks: Sequence[str],
    offline: Floats,
    bound: float,
    *,
    orders: int = 4,
    certain: bool = False,
) -> list[Item]:
    """Accounts for the total of a run of some tasks; returns items whose seconds add up to it.

    `costs` simulates the run with other knowledge: (2,) duration and penalties in seconds. At most 4 + orders x (J - 1)
    and at most 2 + 2^J of its arguments are different. `offline` are (2,) those of the offline plan, `bound` is a lower
    bound of the total of every plan in seconds, `orders` the number of orders of the tasks, and `certain` says whether
    the predictions of the run are certain.
    """
    everything = frozenset(range(len(tasks)))
    exact = costs(Knowledge(everything, certain=True, exact=True))
    told = costs(Knowledge(everything, certain=True))
    items = [
        Item("lower bound of every plan", bound),
        Item("offline plan above the bound", float(offline.sum()) - bound),
        _item("horizon: online in place of offline plans", exact - offline),
        _item("planner in place of exact plans", told - exact),
    ]
    if certain:
        return items
    untold = costs(Knowledge(everything))
    shares, errors = shapley(lambda known: costs(Knowledge(known)), len(tasks), orders)
    items.append(_item("right predictions taken for uncertain ones", untold - told))
    items += (
        _item(f"errors of the predictions of {task}", share, error)
        for task, share, error in zip(tasks, shares, errors.tolist(), strict=True)
    )
    return items


def shapley(costs: Callable[[frozenset[int]], Floats], count: int, orders: int) -> tuple[Floats, Floats]:
    """Divides the difference of the costs of no player and of all players among the players.

    `costs` returns the (K,) costs of a coalition and is called for every prefix of every order. The number of orders is
    rounded up to an even one; all orders are taken if there are as few.

    Returns:
        (count, K) decreases of the costs by each player, and (count,) standard errors of their sums over K; NaN for
        a single pair of orders, 0 for all orders.
    """
    decreases = np.array([_decreases(costs, order) for order in _orders(count, orders)])
    if math.factorial(count) <= orders:
        return decreases.mean(axis=0), np.zeros(count)
    pairs = decreases.reshape(-1, 2, *decreases.shape[1:]).mean(axis=1).sum(axis=-1)
    several = len(pairs) > 1
    errors = pairs.std(axis=0, ddof=1) / math.sqrt(len(pairs)) if several else np.full(count, np.nan)
    return decreases.mean(axis=0), errors


def _orders(count: int, orders: int) -> Iterable[tuple[int, ...]]:
    if math.factorial(count) <= orders:
        return itertools.permutations(range(count))
    rng = np.random.default_rng(0)
    drawn = (tuple(rng.permutation(count).tolist()) for _ in range(-(-orders // 2)))
    return [each for order in drawn for each in (order, order[::-1])]


def _decreases(costs: Callable[[frozenset[int]], Floats], order: Sequence[int]) -> Floats:
    """(count, K) decreases of the costs when the players join in an order."""
    values = np.array([costs(frozenset(order[:size])) for size in range(len(order) + 1)])
    decreases = np.empty_like(values[1:])
    decreases[list(order)] = values[:-1] - values[1:]
    return decreases


def _item(cause: str, parts: Floats, error: float = 0.0) -> Item:
    duration, penalty = parts.tolist()
    return Item(cause, duration + penalty, duration, penalty, error)
