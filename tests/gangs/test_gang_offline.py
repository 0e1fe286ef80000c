"""Offline plans of gangs: the one-time plan in plain loops, brute force for two tasks, the lower bound."""

from __future__ import annotations

import numpy as np
import pytest
from gang_inputs import PENALTY, noisy, random_generators, run
from gang_reference import Reference, surface
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

from hdsim.gangs.bound import lower_bound
from hdsim.gangs.offline import OneTime, PlannedSegments, shortest
from hdsim.gangs.planner import Budget, ExactPlanner, GreedyPlanner
from hdsim.gangs.profile import DurationProfile
from hdsim.gangs.workloads import Workloads


def certain(profile: DurationProfile, sizes: np.ndarray, *, exact: bool, budget: Budget | None = None) -> float:
    """Total of the one-time plan."""
    ahead = np.repeat(sizes[:, None], 20, axis=1)  # predictions beyond the row itself are not read
    kind = ExactPlanner if exact else GreedyPlanner
    workloads = Workloads(sizes, ahead, certain=True)
    return run(profile, workloads, OneTime(), supersteps=len(sizes), kind=kind, budget=budget).metrics["total"]


@given(rng=random_generators, tasks=st.integers(1, 4), supersteps=st.integers(1, 18))
@examples(5, 10)
def test_the_greedy_plan_agrees_with_the_plain_loops(rng: np.random.Generator, tasks: int, supersteps: int) -> None:
    profile, sizes = noisy(rng, tasks), rng.uniform(10.0, 50.0, (supersteps, tasks))
    measured = [
        {(z, s): grid[i, k] for i, z in enumerate(profile.sizes) for k, s in enumerate(profile.shares)}
        for grid in profile.durations
    ]
    reference = Reference(surface(measured), [sizes.tolist()], sizes.tolist())
    costs, widths = [0.0] * (supersteps + 1), [0] * supersteps
    for s in range(supersteps - 1, -1, -1):
        totals = []
        for width in range(1, min(supersteps - s, 15) + 1):
            cost = reference.predicted(reference.greedy(0, s, width), 0, s, width) * 1.02**width
            totals.append(cost + (costs[s + width] + PENALTY if s + width < supersteps else 0.0))
        costs[s], widths[s] = min(totals), totals.index(min(totals)) + 1
    total, s = -PENALTY, 0
    while s < supersteps:
        total += reference.predicted(reference.greedy(0, s, widths[s]), 0, s, widths[s]) + PENALTY
        s += widths[s]
    assert certain(profile, sizes, exact=False) == pytest.approx(total, rel=1e-9)


def optimum(profile: DurationProfile, sizes: np.ndarray, budget: Budget) -> float:
    """Smallest total of two tasks, over all whole shares and all divisions into segments."""
    first = np.arange(budget.start, budget.total - budget.start + 1, dtype=float)
    durations = profile.table(sizes, first)
    both = np.maximum(durations[0], durations[1][:, ::-1])  # the other task has the rest
    best = np.zeros(len(sizes) + 1)
    for s in reversed(range(len(sizes))):
        best[s] = min(
            both[s:end].sum(axis=0).min() + (best[end] + PENALTY if end < len(sizes) else 0.0)
            for end in range(s + 1, len(sizes) + 1)
        )
    return float(best[0])


@given(rng=random_generators, supersteps=st.integers(1, 8), scale=st.sampled_from([0.3, 1.0, 3.0]))
@examples(5, 12)
def test_plan_and_bound_enclose_the_optimum_of_two_tasks(
    rng: np.random.Generator, supersteps: int, scale: float
) -> None:
    smooth = noisy(rng, 2)
    profile = DurationProfile(smooth.tasks, smooth.sizes, smooth.shares, smooth.durations * scale)
    budget, sizes = Budget(total=6000), rng.uniform(10.0, 50.0, (supersteps, 2))
    # All shares are used in the brute force; with a profile that is not monotone fewer may be better.
    monotone = DurationProfile(profile.tasks, profile.sizes, profile.shares, decreasing(profile))
    best = optimum(monotone, sizes, budget)
    segments = PlannedSegments(monotone, budget, sizes)
    bound = lower_bound(segments, PENALTY)
    plan = shortest(segments.costs, PENALTY)[0][0]
    assert bound <= best * (1 + 1e-9)
    assert bound >= best * 0.99
    assert best * (1 - 1e-3) <= plan <= best * 1.005
    assert certain(monotone, sizes, exact=True, budget=budget) >= bound


def decreasing(profile: DurationProfile) -> np.ndarray:
    """Durations that shrink with the shares between the measured ones as well."""
    work = profile.durations[:, :, :1] * profile.shares[0]
    return work / profile.shares * np.linspace(1.0, 1.2, len(profile.shares))


@given(rng=random_generators, tasks=st.integers(1, 5), supersteps=st.integers(1, 6))
@examples(10)
def test_no_plan_falls_below_the_bound(rng: np.random.Generator, tasks: int, supersteps: int) -> None:
    profile, sizes = noisy(rng, tasks), rng.uniform(10.0, 50.0, (supersteps, tasks))
    budget = Budget(total=3000 * tasks)
    segments = PlannedSegments(profile, budget, sizes)
    bound = lower_bound(segments, PENALTY)
    for _ in range(200):
        total, shares = -PENALTY, np.zeros(tasks)
        for superstep in range(supersteps):
            if superstep == 0 or rng.random() < 0.4:
                shares = budget.start + rng.dirichlet(np.full(tasks, 3.0)) * (budget.total - budget.start * tasks)
                total += PENALTY
            total += profile.at(sizes[superstep : superstep + 1], shares).max()
        assert total >= bound
    assert certain(profile, sizes, exact=False, budget=budget) >= bound
    assert certain(profile, sizes, exact=True, budget=budget) >= bound


def test_the_plan_of_the_published_workloads(profile: DurationProfile, perfect: Workloads) -> None:
    assert run(profile, perfect, OneTime(), kind=ExactPlanner).metrics["total"] <= 44_100


@pytest.mark.parametrize("supersteps", [40, pytest.param(400, marks=pytest.mark.nightly)])
def test_the_bound_of_the_published_workloads_is_within_half_a_percent(
    profile: DurationProfile, perfect: Workloads, supersteps: int
) -> None:
    controller = OneTime()
    controller.segments = PlannedSegments(profile, Budget(), perfect.actual[:supersteps])
    bound = lower_bound(controller.segments, PENALTY)
    found = run(profile, perfect, controller, supersteps=supersteps, kind=ExactPlanner)
    assert bound <= found.metrics["total"] <= bound * 1.005


def test_uncertain_predictions_are_planned_as_far_as_they_reach(profile: DurationProfile, forecast: Workloads) -> None:
    found = run(profile, forecast, OneTime(), start=30, supersteps=50)
    assert found.replanned[:20].sum() > 1 and not found.replanned[20:].any()


def test_equal_costs_are_divided_into_the_shorter_segment() -> None:
    left, widths = shortest([np.array([1.0, 1.0, 1.0]), np.array([2.0, 2.0])], 0.0)
    assert left.tolist() == [3.0, 2.0, 1.0, 0.0] and widths.tolist() == [1, 1, 1]
