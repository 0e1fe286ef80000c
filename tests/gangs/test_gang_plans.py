"""Exact and stochastic plans of CPU shares: brute force, bounds by HiGHS, and the limits that they must keep."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from gang_inputs import measured_workloads, noisy, random_generators, run
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import LinearConstraint, milp
from scipy.sparse import csr_array
from tiers import examples

from hdsim.gangs.minimize import SPACING, DurationTable, Windows, equalize
from hdsim.gangs.planner import Budget, ExactPlanner, GreedyPlanner, in_millicores
from hdsim.gangs.profile import DurationProfile
from hdsim.gangs.stochastic import Correction, StochasticMpc
from hdsim.gangs.workloads import Workloads

LOW = 100.0


def random_table(rng: np.random.Generator, tasks: int, supersteps: int, levels: int, noise: float) -> DurationTable:
    """Durations that shrink with the shares, but for noise."""
    shares = LOW + SPACING * np.arange(levels)
    work = rng.uniform(500.0, 5000.0, (tasks, supersteps, 1))
    return DurationTable(shares, work / shares * rng.uniform(1.0 - noise, 1.0 + noise, (tasks, supersteps, levels)))


def together(table: DurationTable, width: int, total: float) -> Windows:
    """One window of all supersteps of a table."""
    rows = np.tile(np.arange(width), (len(table.values), 1))
    return Windows(table, rows, np.array([width]), np.ones(width), total)


@given(rng=random_generators, tasks=st.integers(1, 3), levels=st.integers(2, 4), noise=st.sampled_from([0.0, 0.2, 0.6]))
@examples(40)
def test_one_superstep_is_planned_as_by_brute_force(
    rng: np.random.Generator, tasks: int, levels: int, noise: float
) -> None:
    table = random_table(rng, tasks, 2, levels, noise)
    total = LOW * tasks + int(rng.integers(0, int(SPACING) * (levels - 1) * tasks + 20))
    durations, shares = equalize(table, np.tile(np.arange(2), (tasks, 1)), total)
    possible = np.arange(LOW, table.shares[-1] + 1.0)
    curves = np.stack([[np.interp(possible, table.shares, row) for row in task] for task in table.values])
    assert (shares.sum(axis=1) <= total).all() and (shares == shares.round()).all()
    for n in range(2):
        best = brute(curves[:, n], int(total - LOW * tasks))
        got = max(np.interp(shares[n, j], table.shares, table.values[j, n]) for j in range(tasks))
        assert got <= durations[n] * (1 + 1e-9)
        assert got == pytest.approx(best, rel=1e-9)


def brute(curves: np.ndarray, spare: int) -> float:
    """Smallest maximum over the tasks with at most `spare` millicores beyond the lowest shares."""
    reach = np.full(spare + 1, -np.inf)  # smallest maximum of the tasks so far with exactly so many millicores
    for curve in curves:
        after = np.full(spare + 1, np.inf)
        for given_, duration in enumerate(curve[: spare + 1]):
            np.minimum(after[given_:], np.maximum(reach[: spare + 1 - given_], duration), out=after[given_:])
        reach = np.minimum.accumulate(after)
    return float(reach[-1])


def program(table: DurationTable, total: float) -> tuple[np.ndarray, csr_array, np.ndarray, np.ndarray]:
    """Minimize sum_i M_i with M_i >= sum_l z_jl d_jil, sum_l z_jl = 1, sum_jl z_jl share_l <= total.

    Returns the costs, the rows and their lower and upper limits.
    """
    tasks, supersteps, levels = table.values.shape
    picks = tasks * levels
    rows, low, high = [], [], []
    for j, i in itertools.product(range(tasks), range(supersteps)):
        row = np.zeros(picks + supersteps)
        row[j * levels : (j + 1) * levels], row[picks + i] = -table.values[j, i], 1.0
        rows, low, high = [*rows, row], [*low, 0.0], [*high, np.inf]
    for j in range(tasks):
        row = np.zeros(picks + supersteps)
        row[j * levels : (j + 1) * levels] = 1.0
        rows, low, high = [*rows, row], [*low, 1.0], [*high, 1.0]
    rows.append(np.concatenate([np.tile(table.shares, tasks), np.zeros(supersteps)]))
    costs = np.concatenate([np.zeros(picks), np.ones(supersteps)])
    return costs, csr_array(np.array(rows)), np.array([*low, 0.0]), np.array([*high, total])


@given(rng=random_generators, tasks=st.integers(2, 6), width=st.integers(1, 5))
@examples(15)
def test_windows_are_close_to_the_optimum_of_highs(rng: np.random.Generator, tasks: int, width: int) -> None:
    table = random_table(rng, tasks, width, 20, 0.03)
    total = tasks * float(rng.integers(300, 900))
    costs, rows, low, high = program(table, total)
    picks = len(costs) - width
    whole = milp(
        costs, constraints=LinearConstraint(rows, low, high), integrality=np.r_[np.ones(picks), np.zeros(width)]
    )
    relaxed = milp(costs, constraints=LinearConstraint(rows, low, high))
    found = together(table, width, total).minimize(np.full((1, tasks), total / tasks), 60, (0.2, 5e-4))[0][0]
    # Shares between grid points may be better than those of the integer program, never than those of the relaxation.
    assert relaxed.fun * (1 - 1e-9) <= found <= whole.fun * 1.02


@pytest.mark.parametrize(("row", "width"), [(0, 2), (260, 3)])
def test_windows_of_the_measured_profile_are_close_to_the_optimum_of_highs(
    row: int, width: int, profile: DurationProfile, forecast: Workloads
) -> None:
    sizes, levels = forecast.actual[row : row + width], np.arange(1000.0, 8501.0, 100.0)
    plan = ExactPlanner(profile, Budget(), sizes[None]).allocate(sizes, np.array([0]), np.array([width]))
    costs, rows, low, high = program(DurationTable(levels, profile.table(sizes, levels)), 24000.0)
    whole = np.r_[np.ones(len(costs) - width), np.zeros(width)]
    best = milp(costs, constraints=LinearConstraint(rows, low, high), integrality=whole, options={"mip_rel_gap": 2e-3})
    executed = profile.at(sizes, plan.shares[0]).max(axis=1).sum()
    assert executed == pytest.approx(plan.durations[0], rel=1e-3)
    assert plan.shares.sum() <= 24000
    assert executed <= best.fun * 1.002


@given(rng=random_generators, tasks=st.integers(1, 8), supersteps=st.integers(1, 5), total=st.integers(8000, 40000))
@examples(25)
def test_shares_keep_the_budget_on_profiles_that_are_not_monotone(
    rng: np.random.Generator, tasks: int, supersteps: int, total: int
) -> None:
    total = max(total, 1000 * tasks)
    profile, sizes = noisy(rng, tasks), rng.uniform(10.0, 50.0, (supersteps, tasks))
    budget = Budget(total=total)
    first, width = np.array([0, 0]), np.array([1, supersteps])
    exact, greedy = (
        kind(profile, budget, sizes[None]).allocate(sizes, first, width) for kind in (ExactPlanner, GreedyPlanner)
    )
    assert (exact.shares.sum(axis=1) <= total).all() and (exact.shares >= budget.start).all()
    # Shares of the greedy rule are multiples of its increment; the exact ones of one superstep are never longer.
    assert exact.durations[0] <= greedy.durations[0] * (1 + 2e-3)


def test_rounding_keeps_the_sum() -> None:
    shares = np.array([[1000.4, 1000.3, 1000.3], [999.9999999, 2000.0, 1.5]])
    assert in_millicores(shares).tolist() == [[1001, 1000, 1000], [1000, 2000, 1]]


def total(
    profile: DurationProfile, workloads: Workloads, controller: StochasticMpc, supersteps: int = 400, seed: int = 1
) -> float:
    return run(profile, workloads, controller, supersteps=supersteps, seed=seed).metrics["total"]


@pytest.mark.parametrize("seeds", [[1], pytest.param([1, 2, 3, 4, 5], marks=pytest.mark.nightly)])
def test_published_forecasts_are_beaten(profile: DurationProfile, forecast: Workloads, seeds: list[int]) -> None:
    """The best published total is 49,158 s; the settings were chosen on later rows."""
    assert np.mean([total(profile, forecast, StochasticMpc(), seed=seed) for seed in seeds]) <= 48_900


def test_perfect_knowledge_online(profile: DurationProfile, shared_data: Path) -> None:
    assert total(profile, measured_workloads(shared_data, "actual"), StochasticMpc(horizon=10)) <= 44_500


def test_one_seed_gives_one_run(profile: DurationProfile, forecast: Workloads) -> None:
    one, two, other = (total(profile, forecast, StochasticMpc(), supersteps=40, seed=seed) for seed in (3, 3, 4))
    assert one == two != other


def test_a_plan_does_not_depend_on_what_comes_later(profile: DurationProfile, forecast: Workloads) -> None:
    changed = Workloads(forecast.actual.copy(), forecast.predictions.copy())
    changed.actual[40:] = 30.0
    changed.predictions[40:] = 30.0
    shares = []
    for workloads in (forecast, changed):
        shares.append(run(profile, workloads, StochasticMpc(3), 10, 60).shares[:30])
    assert (shares[0] == shares[1]).all()


def test_the_correction_finds_bias_scale_and_spread() -> None:
    rng = np.random.default_rng(5)
    correction, scale, bias, spread = (
        Correction(3, 2),
        np.array([0.5, 1.5]),
        np.array([4.0, -3.0]),
        np.array([1.0, 3.0]),
    )
    series = rng.uniform(20.0, 40.0, (4000, 2))
    for t in range(3000):
        correction.predict(series[t : t + 3])
        correction.learn(30.0 + scale * (series[t] - 30.0) + bias + spread * rng.normal(size=2))
    found = correction.predict(np.array([[20.0, 20.0], [30.0, 30.0], [40.0, 40.0]]))
    expected = 30.0 + scale * np.array([[-10.0], [0.0], [10.0]]) + bias
    assert found == pytest.approx(expected, abs=0.4)
    assert correction.deviations() == pytest.approx(np.tile(spread, (3, 1)), rel=0.12)


def test_without_errors_nothing_is_corrected() -> None:
    sizes = np.array([[20.0, 45.0], [30.0, 10.0]])
    assert (Correction(2, 2).predict(sizes) == sizes).all()
