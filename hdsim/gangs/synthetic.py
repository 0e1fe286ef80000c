"""Generated series of workloads: daily and weekly cycles, drift and noise, in half hours, and forecasts of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Values of a day, the period of the forecasts.
DAY = 48
#: Rows and columns of the tables, as in those of measured series.
ROWS, COLUMNS = 1000, 20
_WEEK = 7 * DAY
_HARMONICS = 3
_PERSISTENCE = 0.9


def series(seed: int, number: int, length: int = 2 * _WEEK + ROWS + COLUMNS - 1) -> Floats:
    """Generates a series.

    Args:
        seed: Seed.
        number: Number of the series; different numbers give independent series.
        length: Number of values.

    Returns:
        (length,) values: a daily cycle, smaller at weekends, and autoregressive noise of the order 1. Series of an odd
        number have a weak cycle and much noise.
    """
    rng = np.random.default_rng((seed, number))
    cycle, noise = (1.0, 0.25) if number % 2 == 0 else (0.4, 0.5)
    time = np.arange(length)
    phases = rng.uniform(0.0, 2.0 * np.pi, _HARMONICS)
    daily = sum(np.sin(2.0 * np.pi * (k + 1) * time / DAY + phases[k]) / (k + 1) ** 2 for k in range(_HARMONICS))
    weekend = np.where(time % _WEEK >= 5 * DAY, rng.uniform(0.5, 1.0), 1.0)
    shocks = rng.normal(0.0, np.sqrt(1.0 - _PERSISTENCE**2), length)
    drift = np.empty(length)
    drift[0] = rng.normal()
    for t in range(1, length):
        drift[t] = _PERSISTENCE * drift[t - 1] + shocks[t]
    return cycle * daily * weekend + noise * drift


def actual_table(values: Floats) -> Floats:
    """(R, F) values of the last rows of a series and of the F - 1 rows after each."""
    return np.lib.stride_tricks.sliding_window_view(values, COLUMNS)[-ROWS:]


def forecast_table(values: Floats) -> Floats:
    """(R, F) forecasts of :func:`actual_table`, each made from the values before its row.

    The forecast is the value of a day before (seasonal naive) plus the latest difference from that, which decays.
    """
    origin = np.arange(len(values) - ROWS - COLUMNS + 1, len(values) - COLUMNS + 1)[:, None]
    ahead = np.arange(COLUMNS)
    latest = values[origin - 1] - values[origin - 1 - DAY]
    return values[origin + ahead - DAY] + _PERSISTENCE ** (ahead + 1) * latest
