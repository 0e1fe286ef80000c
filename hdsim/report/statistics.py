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
#: Upper limit of drawn numbers per interval: large samples need fewer resamples.
_DRAWS = 50_000_000
_FEWEST_RESAMPLES = 500


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

    found = stats.bootstrap(
        (sample,),
        statistic,
        confidence_level=CONFIDENCE,
        n_resamples=min(_RESAMPLES, max(_FEWEST_RESAMPLES, _DRAWS // len(sample))),
        batch=max(1, 1_000_000 // len(sample)),
        method="percentile",
        random_state=np.random.default_rng(_SEED),
    ).confidence_interval
    return Interval(mean, float(found.low), float(found.high), len(sample))
