"""Bootstrap confidence intervals of means, and of comparisons of scores on windows of traces."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CONFIDENCE = 0.95
_SEED = 0
_RESAMPLES = 2000
#: Number of values beyond which the interval of a mean comes from cumulants, as resamples would take seconds.
_MANY = 10_000


@dataclass(frozen=True)
class Interval:
    """An estimate, such as a mean over `count` values, with its confidence interval; without one its bounds are NaN."""

    value: float
    low: float
    high: float
    count: int

    @property
    def numbers(self) -> tuple[float, float, float]:
        """The estimate, and the lower and the upper end."""
        return self.value, self.low, self.high


NO_INTERVAL = Interval(math.nan, math.nan, math.nan, 0)


def interquartile_mean(values: Floats, axis: int = -1) -> Floats:
    """Mean without the lowest and the highest quarter (Agarwal et al., NeurIPS 2021, recommend it for few runs)."""
    from scipy import stats

    found: Floats = stats.trim_mean(values, 0.25, axis=axis)
    return found


def bootstrap(values: Sequence[float] | Floats, statistic: Callable[..., Any] = np.mean) -> Interval:
    """Mean with its percentile bootstrap interval (Efron and Tibshirani 1993, ch. 13), the same on every call.

    The interval of a mean of more than 10,000 values has the quantiles of the bootstrap distribution by the expansion
    of Cornish and Fisher (Hall, *The Bootstrap and Edgeworth Expansion*, 1992, section 2.5), which is closer to them
    than a few hundred resamples are. A single value has no interval. `statistic` takes an array and an axis.
    """
    sample = np.asarray(values, np.float64)
    if not len(sample):
        return NO_INTERVAL
    mean = float(statistic(sample, axis=-1))
    if len(sample) == 1 or math.isnan(mean):
        return Interval(mean, math.nan, math.nan, len(sample))
    if (sample == sample[0]).all():
        return Interval(mean, mean, mean, len(sample))
    from scipy import stats

    if statistic is np.mean and len(sample) > _MANY:
        low, high = (
            _quantile_of_means(sample, float(z)) for z in stats.norm.ppf(((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2))
        )
        return Interval(mean, low, high, len(sample))
    found = stats.bootstrap(
        (sample,),
        statistic,
        confidence_level=CONFIDENCE,
        n_resamples=_RESAMPLES,
        batch=max(1, 1_000_000 // len(sample)),
        method="percentile",
        random_state=np.random.default_rng(_SEED),
    ).confidence_interval
    return Interval(mean, float(found.low), float(found.high), len(sample))


def _quantile_of_means(sample: Floats, z: float) -> float:
    """Quantile of the means of resamples, from their first four cumulants; z is that of the standard normal."""
    count, mean = len(sample), sample.mean()
    apart = sample - mean
    deviation = math.sqrt((apart**2).mean())
    scaled = apart / deviation
    skewness = (scaled**3).mean() / math.sqrt(count)
    kurtosis = ((scaled**4).mean() - 3) / count
    expanded = z + (z**2 - 1) * skewness / 6 + (z**3 - 3 * z) * kurtosis / 24 - (2 * z**3 - 5 * z) * skewness**2 / 36
    return float(mean + deviation / math.sqrt(count) * expanded)


@dataclass(frozen=True)
class Against:
    """Scores compared with those of a baseline on the same windows.

    Attributes:
        ratio: Ratio of the means.
        geometric: Geometric mean of the ratios of the windows.
        middle: Mean of the ratios without the lowest and the highest quarter.
        improvement: Probability that a score is better than the baseline's on the same window, ties counted half.
    """

    ratio: Interval
    geometric: Interval
    middle: Interval
    improvement: Interval


def against(
    scores: Floats,
    baseline: Floats,
    traces: Sequence[int] | NDArray[np.int64],
    parts: Sequence[int] | NDArray[np.int64] | None = None,
    *,
    higher: bool = False,
) -> Against:
    """Compares scores above 0 with those of a baseline.

    The intervals are percentile bootstrap intervals with resamples of the trainings and, in two stages, of the traces
    and of the windows in each of them (Davison and Hinkley, *Bootstrap Methods and their Application*, 1997, section
    3.8): windows of one trace are alike, and all trainings meet the same windows.

    Args:
        scores: (S, W) scores of S trainings on W windows.
        baseline: (W,) scores of the baseline.
        traces: (W,) trace of each window.
        parts: (W,) part of the trace that each window is; the same part may be replayed in several scenarios, such as
            loads and platforms, which are no further draws. By default each window is another part.
        higher: Higher scores are better, not lower ones.
    """
    trainings, count = scores.shape
    ratios, wins = scores / baseline, (np.sign(scores - baseline if higher else baseline - scores) + 1) / 2
    rng = np.random.default_rng(_SEED)
    parts = np.arange(count) if parts is None else np.asarray(parts)
    _, first, part = np.unique(np.stack([np.asarray(traces), parts]), axis=1, return_index=True, return_inverse=True)
    weights = two_stage(np.asarray(traces)[first], _RESAMPLES, rng)[:, part.ravel()]
    runs = rng.multinomial(trainings, np.full(trainings, 1 / trainings), _RESAMPLES) / trainings
    order = np.argsort(ratios, axis=None)

    def estimates(runs: Floats, weights: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        windows = weights / weights.sum(axis=1, keepdims=True)
        means = ((runs @ scores) * windows).sum(axis=1) / (windows @ baseline)
        geometric = np.exp(((runs @ np.log(ratios)) * windows).sum(axis=1))
        middle = np.array(
            [
                _middle(ratios.flat[order], np.outer(run, window).flat[order])
                for run, window in zip(runs, windows, strict=True)
            ]
        )
        return means, geometric, middle, ((runs @ wins) * windows).sum(axis=1)

    values = estimates(np.full((1, trainings), 1 / trainings), np.ones((1, count)))
    bounds = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)
    drawn = estimates(runs, weights) if count > 1 else (np.full(1, math.nan),) * 4
    found = []
    for value, sample in zip(values, drawn, strict=True):
        low, high = np.quantile(sample, bounds)
        found.append(Interval(float(value[0]), float(low), float(high), count))
    return Against(*found)


def two_stage(traces: Sequence[int] | NDArray[np.int64], resamples: int, rng: np.random.Generator) -> Floats:
    """Resamples traces, and in each drawn trace as many windows as it has: (W,) trace of each window.

    Returns:
        (resamples, W) how often each window is drawn.
    """
    _, number, sizes = np.unique(traces, return_inverse=True, return_counts=True)
    drawn = rng.multinomial(len(sizes), np.full(len(sizes), 1 / len(sizes)), resamples)
    weights = np.empty((resamples, len(number)))
    for trace, size in enumerate(sizes.tolist()):
        weights[:, number == trace] = rng.multinomial(drawn[:, trace] * size, np.full(size, 1 / size))
    return weights


def _middle(values: Floats, weights: Floats) -> float:
    """Mean of ascending values without a quarter of the weight at either end; the weights have the sum 1."""
    above = np.cumsum(weights)
    kept = np.clip(np.minimum(above, 0.75) - np.maximum(above - weights, 0.25), 0.0, None)
    return float(kept @ values / kept.sum())
