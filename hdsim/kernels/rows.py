"""Rows of queued jobs and quantiles of the queue, as agents observe them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Numbers = NDArray[np.float32]
#: A table of two axes, (R, F).
Table = NDArray[np.float32]
#: Columns of every row.
COLUMNS = 8
#: Columns of a row that change with time.
WAITED, IDLE, FITS = 0, 5, 6
#: Upper end of the logarithmic scale of times, seconds.
LONGEST = 7 * 86400.0
LOG_LONGEST = math.log1p(LONGEST)
QUARTILES = 4


@kernel
def write_rows(
    jobs: Ints,
    fits: Flags,
    table: Numbers,
    submission: Floats,
    origin: float,
    now: float,
    idle: float,
    out: Numbers,
) -> None:
    """Writes one row for each queued job, and zeros behind them.

    Args:
        jobs: (Q,) the jobs.
        fits: (Q,) whether each fits now.
        table: (J, F) rows of all jobs, of which the columns that do not change with time count.
        submission: (J,) submission times in seconds.
        origin: Submission time of the first job of the episode, seconds.
        now: Present time in seconds since then.
        idle: Idle cores as a share of all.
        out: (rows x F,) the rows, one after the other.
    """
    count, width = len(jobs), table.shape[1]
    for i in range(count):
        job, at = jobs[i], i * width
        # A constant number of columns is copied at once.
        for column in range(COLUMNS):
            out[at + column] = table[job, column]
        for column in range(COLUMNS, width):
            out[at + column] = table[job, column]
        # As exact in single precision as log1p, in half of its time.
        out[at + WAITED] = min(math.log(1.0 + (now - (submission[job] - origin))) / LOG_LONGEST, 1.0)
        out[at + IDLE] = idle
        out[at + FITS] = fits[i]
    out[count * width :] = 0.0


@kernel
def write_processors(busy: Ints, cores: Ints, free: Floats, capacity: Floats, limit: Floats, out: Table) -> None:
    """Writes the columns of processors that change with time.

    Args:
        busy: (P,) allocated cores.
        cores: (P,) all cores.
        free: (P,) free bandwidth in GB/s.
        capacity: (P,) bandwidth in GB/s, infinite for no limit.
        limit: (P,) free bandwidth below which a processor is oversubscribed, GB/s.
        out: (P, F) rows of the processors, of which columns 0, 1 and 5 are written: idle cores and free bandwidth as
            shares, and oversubscription.
    """
    for p in range(len(busy)):
        out[p, 0] = 1.0 - busy[p] / cores[p]
        out[p, 1] = max(free[p] / capacity[p], 0.0) if capacity[p] < math.inf else 1.0
        out[p, 5] = free[p] < limit[p]


@kernel
def write_quantiles(values: Floats, queue: Ints, ranked: Ints, scale: float, out: Numbers) -> None:
    """Writes minimum, quartiles and maximum of an attribute of queued jobs, as shares of a scale of at most 1.

    Args:
        values: (J,) the attribute of all jobs.
        queue: (Q,) ascending ranks of the queued jobs, at least one, by the attribute.
        ranked: (J,) the job of each rank.
        scale: The value that counts as 1; 0 if all are 0.
        out: (5,) the numbers; quartiles by linear interpolation.
    """
    last = len(queue) - 1
    for k in range(QUARTILES + 1):
        low, part = divmod(k * last, QUARTILES)
        at = _share(values[ranked[queue[low]]], scale)
        if part:
            at += part / QUARTILES * (_share(values[ranked[queue[low + 1]]], scale) - at)
        out[k] = at


@kernel
def _share(value: float, scale: float) -> float:
    return min(value / scale, 1.0) if scale > 0 else 0.0


@kernel
def percentile(values: Floats) -> float:
    """99th percentile of at least one number, with linear interpolation as NumPy's."""
    ascending = np.sort(values)
    place = 0.99 * (len(values) - 1)
    low = int(place)
    high = min(low + 1, len(values) - 1)
    return ascending[low] + (place - low) * (ascending[high] - ascending[low])
