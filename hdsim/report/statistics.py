"""Bootstrap confidence intervals of means."""

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
    """An estimate with its confidence interval, whose bounds are NaN where there is none.

    Attributes:
        value: The mean.
        low: Lower bound.
        high: Upper bound.
        count: Values that the mean was taken over.
    """

    value: float
    low: float
    high: float
    count: int


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
    than a few hundred resamples are.

    Args:
        values: The sample; a single value has no interval.
        statistic: Function of an array and an axis, by default the mean.
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
