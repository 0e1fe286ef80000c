"""Draws of run times and arrivals from the past of a replay, for the scenarios of a search."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Ended jobs among which the run time of a job, relative to the requested one, is drawn.
ALIKE = 64
#: Resolution of drawn run times in seconds, a power of two, so that sums of dates are exact.
TICK = 2.0**-10


@kernel
def draw_runtimes(uniform: Floats, requested: Floats, worked: Floats, ended: Floats) -> Floats:
    """Returns (S, P) run times that are longer than the jobs have worked.

    Run times relative to requested times are those of the ended jobs whose requested times are nearest in rank. A job
    that has exceeded them all is expected to last as long as requested.

    Args:
        uniform: (S, P) numbers from 0 to 1.
        requested: (P,) seconds.
        worked: (P,) seconds.
        ended: (2, E) with E > 0; requested times of ended jobs in seconds, ascending, and run times relative to them.
    """
    scenarios, jobs = uniform.shape
    alike = min(ALIKE, ended.shape[1])
    lasting, factors = np.empty((scenarios, jobs)), np.empty(alike)
    for job in range(jobs):
        low, high = np.searchsorted(ended[0], requested[job]), np.searchsorted(ended[0], requested[job], side="right")
        first, count = min(max((low + high - alike) // 2, 0), ended.shape[1] - alike), 0
        for place in range(first, first + alike):
            if ended[1, place] * requested[job] > worked[job]:
                factors[count] = ended[1, place]
                count += 1
        factors[:count].sort()
        for s in range(scenarios):
            factor = factors[int(uniform[s, job] * count)] if count else 1.0
            lasting[s, job] = math.ceil(factor * requested[job] / TICK) * TICK
    return lasting


@kernel
def draw_arrivals(
    first: Ints, number: int, seen: Ints, gaps: Floats, runtime: Floats, present: Ints, lasting: Floats
) -> tuple[Ints, Floats, Floats]:
    """Returns (S, A) jobs that arrivals are like, seconds until they arrive, and their run times in seconds.

    They are consecutive jobs with the gaps before them, so that bursts are kept; behind the last one the first follows.

    Args:
        first: (S,) gap before the first arrival.
        number: Arrivals of a scenario.
        seen: (N,) jobs that have been submitted, at least two where there are arrivals.
        gaps: (N - 1,) seconds between them.
        runtime: (N,) seconds.
        present: (J,) place of each job among those that run or wait, -1 for others.
        lasting: (S, P) run times of these in seconds.
    """
    shape = len(first), number
    drawn, offset, duration = np.empty(shape, np.int64), np.empty(shape), np.empty(shape)
    for s in range(len(first)):
        date = 0.0
        for i in range(number):
            gap = (first[s] + i) % len(gaps)
            job = seen[gap + 1]
            date += gaps[gap]
            seconds = lasting[s, present[job]] if present[job] >= 0 else runtime[gap + 1]
            drawn[s, i], offset[s, i] = job, max(date, TICK)
            duration[s, i] = max(math.ceil(seconds / TICK) * TICK, TICK)
    return drawn, offset, duration
