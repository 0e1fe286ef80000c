"""Rankings against the published example of Demšar (2006), closed forms and counting; factors to the best."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_compare import made, row

from hdsim.report.compare import compare
from hdsim.report.compare_figures import ranks_svg, write_heatmap, write_ranks
from hdsim.report.ranking import (
    average_ranks,
    cliques,
    critical_difference,
    friedman,
    probability_of_improvement,
    standings,
)
from hdsim.report.relative import relative
from hdsim.report.statistics import Interval

# AUC of C4.5 without and with tuned m, cf, and both on 14 data sets: table 6 of Demšar (2006), where "voting" has equal
# digits and different ranks.
AUC = np.array(
    [
        [0.763, 0.768, 0.771, 0.798],
        [0.599, 0.591, 0.590, 0.569],
        [0.954, 0.971, 0.968, 0.967],
        [0.628, 0.661, 0.654, 0.657],
        [0.882, 0.888, 0.886, 0.898],
        [0.936, 0.931, 0.916, 0.931],
        [0.661, 0.668, 0.609, 0.685],
        [0.583, 0.583, 0.563, 0.625],
        [0.775, 0.838, 0.866, 0.875],
        [1.000, 1.000, 1.000, 1.000],
        [0.940, 0.962, 0.965, 0.962],
        [0.619, 0.666, 0.614, 0.669],
        [0.972, 0.981, 0.9751, 0.975],
        [0.957, 0.978, 0.946, 0.970],
    ]
)


def of_fresh_draws(blocks: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Interval:
    """The probability of improvement where every run is another draw."""
    draws = [
        tuple([(f"{block} {side} {run}", "") for run in range(len(runs))] for side, runs in enumerate(sides))
        for block, sides in enumerate(blocks)
    ]
    return probability_of_improvement(blocks, draws)


VALUES = st.integers(3, 6).flatmap(
    lambda count: st.lists(st.lists(st.integers(0, 4), min_size=count, max_size=count), min_size=5, max_size=12)
)


def test_average_ranks_of_the_published_example() -> None:
    assert average_ranks(AUC) == pytest.approx([3.143, 2.000, 2.893, 1.964], abs=5e-4)


@given(VALUES)
def test_ranks_are_places_with_ties_shared(values: list[list[int]]) -> None:
    found = average_ranks(np.array(values, float))
    for column, rank in enumerate(found):
        places = [
            sum(other > block[column] for other in block) + (sum(other == block[column] for other in block) + 1) / 2
            for block in values
        ]
        assert rank == pytest.approx(np.mean(places))


def test_friedman_of_the_published_example() -> None:
    """The paper has chi2 = 9.28 and F = 3.69 without the correction for ties."""
    from scipy import stats

    blocks, count = AUC.shape
    ranks = average_ranks(AUC)
    plain = 12 * blocks / (count * (count + 1)) * ((ranks**2).sum() - count * (count + 1) ** 2 / 4)
    assert plain == pytest.approx(9.28, abs=0.02)
    assert (blocks - 1) * plain / (blocks * (count - 1) - plain) == pytest.approx(3.69, abs=0.01)
    ties = sum(
        size**3 - size for block in AUC.tolist() for size in [block.count(value) for value in set(block)] if size > 1
    )
    chi = plain / (1 - ties / (blocks * count * (count**2 - 1)))
    f = (blocks - 1) * chi / (blocks * (count - 1) - chi)
    assert friedman(AUC) == pytest.approx((stats.chi2.sf(chi, 3), stats.f.sf(f, 3, 39)))


def test_friedman_of_equal_and_of_perfectly_ordered_configurations() -> None:
    assert friedman(np.ones((5, 3))) == (1.0, 1.0)
    ordered = np.tile([1.0, 2.0, 3.0], (5, 1))
    # chi2 = N (K - 1), so p = exp(-N) with two degrees of freedom.
    assert friedman(ordered) == pytest.approx((math.exp(-5), 0.0))


@pytest.mark.parametrize(
    ("count", "published"),
    [(2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728), (6, 2.850), (7, 2.949), (8, 3.031), (9, 3.102), (10, 3.164)],
)
def test_critical_differences_have_the_published_quantiles(count: int, published: float) -> None:
    """Table 5 (a) of Demšar (2006), two-tailed Nemenyi test at 0.05."""
    found = critical_difference(count, 10) / math.sqrt(count * (count + 1) / 60)
    assert found == pytest.approx(published, abs=1e-3)


def test_critical_difference_of_the_published_example() -> None:
    assert critical_difference(4, 14) == pytest.approx(1.25, abs=5e-3)


@given(st.lists(st.floats(1, 9), min_size=1, max_size=9), st.floats(0.1, 5))
def test_cliques_join_what_does_not_differ(ranks: list[float], difference: float) -> None:
    ranks = sorted(ranks)
    found = cliques(ranks, difference)
    for first, last in itertools.combinations(range(len(ranks)), 2):
        joined = any(low <= first and last <= high for low, high in found)
        assert joined == (ranks[last] - ranks[first] < difference)
    assert not any(a != b and b[0] <= a[0] and a[1] <= b[1] for a in found for b in found)


@given(st.lists(st.tuples(*[st.lists(st.integers(0, 3), min_size=1, max_size=5)] * 2), min_size=1, max_size=5))
def test_probability_of_improvement_counts_pairs(blocks: list[tuple[list[int], list[int]]]) -> None:
    expected = np.mean(
        [np.mean([(our > base) + (our == base) / 2 for our in ours for base in bases]) for ours, bases in blocks]
    )
    found = of_fresh_draws(blocks)
    assert found.value == pytest.approx(expected)
    assert -1e-9 <= found.low <= found.high <= 1 + 1e-9
    back = of_fresh_draws([(bases, ours) for ours, bases in blocks])
    assert back.value == pytest.approx(1 - found.value)


def test_interval_of_the_probability_of_improvement_is_that_of_resampled_runs() -> None:
    rng = np.random.default_rng(3)
    blocks = [(rng.normal(0.5, 1, 8), rng.normal(0, 1, 6)) for _ in range(3)]
    means = [
        np.mean([np.mean(rng.choice(ours, 8)[:, None] > rng.choice(base, 6)[None]) for ours, base in blocks])
        for _ in range(1500)
    ]
    found = of_fresh_draws(blocks)
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(means, (0.025, 0.975))), abs=0.03)


def test_one_trace_at_several_loads_is_one_draw() -> None:
    """Copies of the same traces make an interval no narrower; traces of their own do."""
    rng = np.random.default_rng(5)
    ours, base = rng.normal(0.5, 1, 10), rng.normal(0, 1, 10)
    traces = [(f"trace {number}", "") for number in range(10)]
    once = probability_of_improvement([(ours, base)], [(traces, traces)])
    copies = probability_of_improvement([(ours, base)] * 4, [(traces, traces)] * 4)
    assert (copies.value, copies.low, copies.high) == pytest.approx((once.value, once.low, once.high))
    alone = of_fresh_draws([(ours, base)] * 4)
    assert alone.high - alone.low < 0.7 * (copies.high - copies.low)
    # Windows of one trace are no traces.
    blocks = [([float(value)], [0.0]) for value in rng.normal(0.5, 1, 12)]
    same = [("trace", f"window {number}") for number in range(12)]
    of_four = [(f"trace {number % 4}", f"window {number}") for number in range(12)]
    plain, staged = (
        probability_of_improvement(blocks, [([draw], [draw]) for draw in draws]) for draws in (same, of_four)
    )
    assert plain.value == staged.value and (plain.low, plain.high) != (staged.low, staged.high)


@pytest.mark.ci
def test_rankings_over_loads_average_their_replications(tmp_path: Path) -> None:
    loads, agents, seeds = (0.5, 0.6, 0.7, 0.8), ("fcfs", "sjf", "ljf"), (1, 2)
    metrics = {
        (load, agent, seed): made(
            tmp_path / f"{load}-{agent}-{seed}", agent, seed + int(100 * load), workload={"arrival_factor": load}
        ).metrics
        for load in loads
        for agent in agents
        for seed in seeds
    }
    comparison = compare([tmp_path], ["mean_waiting_time", "utilization"], labels={"mine": tmp_path / "0.5-sjf-1"})
    found = {(one.metric, one.configuration): one for one in standings(comparison)}
    assert len(found) == 6 and {one.blocks for one in found.values()} == {4}
    for metric, sign in (("mean_waiting_time", 1), ("utilization", -1)):
        values = np.array(
            [[np.mean([metrics[load, agent, seed][metric] for seed in seeds]) for agent in agents] for load in loads]
        )
        ranks = (sign * values).argsort(axis=1).argsort(axis=1).mean(axis=0) + 1
        for agent, rank in zip(("fcfs", "mine", "ljf"), ranks, strict=True):
            assert found[metric, agent].average_rank == pytest.approx(rank)
        wins = [
            np.mean(
                [
                    sign * metrics[load, "ljf", a][metric] < sign * metrics[load, "fcfs", b][metric]
                    for a in seeds
                    for b in seeds
                ]
            )
            for load in loads
        ]
        assert found[metric, "ljf"].improvement.value == pytest.approx(np.mean(wins))
        assert found[metric, "fcfs"].baseline and math.isnan(found[metric, "fcfs"].improvement.value)
    write_ranks(tuple(found.values()), {name: name for name in ("fcfs", "mine", "ljf")}, tmp_path / "ranks.svg")
    assert (tmp_path / "ranks.svg").stat().st_size > 5000
    page = ranks_svg(tuple(found.values()), {"fcfs": "fcfs", "mine": "<b>&", "ljf": "ljf"})
    assert page.startswith("<div class='scroll'><svg class='figure'") and "&lt;b&gt;&amp;" in page and "<b>" not in page


def test_too_few_configurations_or_blocks_have_no_ranking(tmp_path: Path) -> None:
    for seed in range(3):
        for agent in ("fcfs", "sjf", "ljf"):
            made(tmp_path / f"{agent}-{seed}", agent, seed)
    assert standings(compare([tmp_path], ["makespan"])) == ()
    made(tmp_path / "fcfs-3", "fcfs", 3)
    made(tmp_path / "sjf-3", "sjf", 3)
    assert standings(compare([tmp_path], ["makespan"])) == ()
    made(tmp_path / "ljf-3", "ljf", 3)
    assert [one.blocks for one in standings(compare([tmp_path], ["makespan"]))] == [4, 4, 4]


def test_factors_to_the_best_and_to_the_baseline(tmp_path: Path) -> None:
    for load in (0.5, 1.0):
        for agent in ("fcfs", "sjf", "ljf"):
            made(tmp_path / f"{agent}-{load}", agent, int(10 * load), workload={"arrival_factor": load})
    comparison = compare([tmp_path], ["mean_waiting_time", "utilization", "jobs_rejected"])
    for to in ("best", "baseline"):
        found = relative(comparison, to)
        assert found.metrics == ("mean_waiting_time", "utilization", "jobs_rejected")
        for place, one in enumerate(found.rows):
            wait, use = (row(comparison, metric, one.configuration, one.scenario) for metric in found.metrics[:2])
            same = [other for other in comparison.rows if other.scenario == one.scenario]
            waits = [
                other.mean for other in same if other.metric == "mean_waiting_time" and (to == "best" or other.baseline)
            ]
            uses = [other.mean for other in same if other.metric == "utilization" and (to == "best" or other.baseline)]
            # No job is rejected anywhere: equal values are no worse, zeros included.
            expected = [wait.mean / min(waits), max(uses) / use.mean, 1.0]
            assert found.factors[place] == pytest.approx(expected)
        assert (found.factors >= 1).all() == (to == "best")
        assert np.array_equal(np.sign(found.shades), np.sign(found.factors - 1))
        assert set(found.texts[:, 2]) == {"0 %"}
        of_nothing = dataclasses.replace(found, factors=np.full(found.factors.shape, np.inf))
        assert set(of_nothing.texts.ravel()) == {"∞"} and (of_nothing.shades == 1).all()
        write_heatmap(found, [one.configuration for one in found.rows], tmp_path / f"{to}.png")
        assert (tmp_path / f"{to}.png").read_bytes().startswith(b"\x89PNG")
