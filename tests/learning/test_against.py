"""Scores against those of a baseline on windows of traces."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from hdsim.report.statistics import against, two_stage


def slow_intervals(scores: np.ndarray, baseline: np.ndarray, traces: np.ndarray, resamples: int) -> np.ndarray:
    """(4, 2) bounds by loops over resampled trainings, traces and windows."""
    rng = np.random.default_rng(42)
    names = np.unique(traces)
    found = []
    for _ in range(resamples):
        runs = rng.integers(len(scores), size=len(scores))
        chosen = []
        for trace in rng.choice(names, len(names)):
            own = np.flatnonzero(traces == trace)
            chosen += rng.choice(own, len(own)).tolist()
        ours, base = scores[np.ix_(runs, chosen)], baseline[chosen]
        ratios = ours / base
        wins = np.where(ours < base, 1.0, np.where(ours == base, 0.5, 0.0))
        middle = stats.trim_mean(ratios, 0.25, axis=None)
        found.append((ours.mean() / base.mean(), stats.gmean(ratios, axis=None), middle, wins.mean()))
    return np.quantile(found, (0.025, 0.975), axis=0).T


@pytest.mark.ci
def test_intervals_agree_with_loops() -> None:
    rng = np.random.default_rng(3)
    traces = np.repeat(np.arange(12), rng.integers(1, 5, 12))
    level = np.exp(rng.normal(3, 0.5, 12))[traces]
    baseline = level * np.exp(rng.normal(0, 0.3, len(traces)))
    scores = baseline * np.exp(rng.normal(-0.1, 0.2, (12, 1))[traces].T + rng.normal(0, 0.2, (3, len(traces))))
    scores[0, 3] = baseline[3]
    found = against(scores, baseline, traces)
    slow = slow_intervals(scores, baseline, traces, 2000)
    intervals = (found.ratio, found.geometric, found.middle, found.improvement)
    for interval, bounds in zip(intervals, slow, strict=True):
        width = bounds[1] - bounds[0]
        assert interval.low == pytest.approx(bounds[0], abs=0.12 * width)
        assert interval.high == pytest.approx(bounds[1], abs=0.12 * width)
        assert interval.low < interval.value < interval.high
    ratios = scores / baseline
    assert found.ratio.value == pytest.approx(scores.mean() / baseline.mean())
    assert found.geometric.value == pytest.approx(stats.gmean(ratios, axis=None))
    whole = np.repeat(ratios.ravel(), 4)  # A quarter of them is a whole number.
    assert found.middle.value == pytest.approx(stats.trim_mean(whole, 0.25))
    assert found.improvement.value == pytest.approx(((scores < baseline) + 0.5 * (scores == baseline)).mean())


def test_variance_of_two_stages() -> None:
    # Var of a resampled mean: s_b^2 / T between means of traces, s_w^2 / (T n) within (Davison and Hinkley, 3.8).
    values = np.array([[1.0, 5.0], [2.0, 2.0], [9.0, 7.0], [4.0, 0.0]])
    weights = two_stage(np.repeat(np.arange(4), 2), 200_000, np.random.default_rng(1))
    assert (weights.sum(axis=1) == 8).all()
    means = (weights * values.ravel()).sum(axis=1) / 8
    within = values.var(axis=1).mean() / (4 * 2)
    assert means.mean() == pytest.approx(values.mean(), abs=0.01)
    assert means.var() == pytest.approx(values.mean(axis=1).var() / 4 + within, rel=0.02)


def test_windows_of_one_trace_say_little() -> None:
    rng = np.random.default_rng(5)
    baseline = np.ones(60)
    shared = np.exp(rng.normal(0, 0.5, 6)).repeat(10)[np.newaxis]
    by_trace = against(shared, baseline, np.repeat(np.arange(6), 10)).ratio
    by_window = against(shared, baseline, np.arange(60)).ratio
    assert by_trace.high - by_trace.low > 2 * (by_window.high - by_window.low)


def test_one_window_has_no_interval() -> None:
    found = against(np.array([[2.0], [4.0]]), np.array([6.0]), [0])
    assert found.ratio.value == found.middle.value == 0.5
    assert np.isnan(found.ratio.low)
    assert np.isnan(found.improvement.high)


def test_equal_scores() -> None:
    found = against(np.full((2, 4), 3.0), np.full(4, 3.0), [0, 0, 1, 1])
    assert (found.ratio.low, found.ratio.high) == (1.0, 1.0)
    assert (found.improvement.value, found.improvement.low) == (0.5, 0.5)
