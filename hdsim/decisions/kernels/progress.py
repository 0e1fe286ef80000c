"""Remaining work of running jobs, and states of cores, as agents observe them.

The remaining share of a job's work is (end - now) * rate, which needs no update as time passes. A job is known by its
first core.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import kernel, lean_kernel, part_of_kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Numbers = NDArray[np.float32]

#: Rows of the cores: first core of the job on a core, and the next core of the job.
FIRST, NEXT = range(2)
#: For an idle core, and behind the last core of a job.
NONE = -1
#: Rows of the jobs: end at the present rate, in seconds; share of the work done per second; requested time in seconds;
#: whether the rate is constant.
END, RATE, REQUESTED, FIXED = range(4)
#: Rows of the processors: speed of a core at full bandwidth and under oversubscription, free bandwidth below which a
#: processor is oversubscribed; present speed, and whether it has just changed.
PEAK, SLOWED, LIMIT, SPEED, CHANGED = range(5)


@lean_kernel
def begin(cores: Ints, jobs: Floats, ids: Ints, requested: float, fixed: bool, now: float) -> None:
    """Puts a job on cores, with all of its work left.

    Args:
        cores: (2, C) rows of the cores.
        jobs: (4, C) rows of the jobs by first core.
        ids: Cores and GPUs of the job, ascending.
        requested: Requested time in seconds.
        fixed: Whether the speeds of the cores do not matter.
        now: Present time in seconds.
    """
    first, after = ids[0], NONE
    for i in range(len(ids) - 1, -1, -1):
        cores[FIRST, ids[i]], cores[NEXT, ids[i]] = first, after
        after = ids[i]
    jobs[END, first], jobs[RATE, first] = now + 1.0, 1.0 if requested > 0 else 0.0
    jobs[REQUESTED, first], jobs[FIXED, first] = requested, 1.0 if fixed else 0.0


@lean_kernel
def end(cores: Ints, first: int) -> None:
    """Removes a job from its cores; see `begin`."""
    while first != NONE:
        cores[FIRST, first] = NONE
        first = cores[NEXT, first]


@lean_kernel
def update_rates(
    cores: Ints,
    jobs: Floats,
    new: Ints,
    core_processor: Ints,
    first_core: Ints,
    processors: Floats,
    free_bandwidth: Floats,
    now: float,
) -> None:
    """Updates the rates of new jobs and of those on processors whose speed changes, and their ends at those rates.

    Args:
        cores: See `begin`, also for `jobs` and `now`.
        jobs: See there.
        new: First cores of the new jobs.
        core_processor: (C,) processor of each core.
        first_core: (P+1,) first core of each processor; the last entry is C.
        processors: (5, P) rows of the processors.
        free_bandwidth: (P,) free bandwidth in GB/s.
        now: See `begin`.
    """
    for p in range(len(free_bandwidth)):
        speed = processors[SLOWED if free_bandwidth[p] < processors[LIMIT, p] else PEAK, p]
        processors[CHANGED, p] = 1.0 if speed != processors[SPEED, p] else 0.0
        processors[SPEED, p] = speed
    for first in new:
        _update_rate(cores, jobs, first, core_processor, processors, now)
    for p in range(len(free_bandwidth)):
        if processors[CHANGED, p] > 0:
            for core in range(first_core[p], first_core[p + 1]):
                if cores[FIRST, core] != NONE:
                    _update_rate(cores, jobs, cores[FIRST, core], core_processor, processors, now)


@part_of_kernel
def _update_rate(cores: Ints, jobs: Floats, first: int, core_processor: Ints, processors: Floats, now: float) -> None:
    if jobs[REQUESTED, first] > 0:
        before, slowest, core = jobs[RATE, first], 1.0 if jobs[FIXED, first] > 0 else math.inf, first
        while core != NONE and jobs[FIXED, first] == 0:
            slowest = min(slowest, processors[SPEED, core_processor[core]])
            core = cores[NEXT, core]
        rate = slowest / jobs[REQUESTED, first]
        if rate != before:
            jobs[END, first] = now + (jobs[END, first] - now) * before / rate
            jobs[RATE, first] = rate


@lean_kernel
def write_cores(
    cores: Ints,
    jobs: Floats,
    first_core: Ints,
    processors: Floats,
    free_bandwidth: Floats,
    busy: Ints,
    states: Numbers,
    now: float,
    out: Numbers,
) -> None:
    """Writes speeds, powers and remaining work of all cores, one after the other.

    Args:
        cores: See `begin`, also for `jobs` and `now`.
        jobs: See there.
        first_core: See `update_rates`, also for `free_bandwidth` and `processors`.
        processors: See there.
        free_bandwidth: See there.
        busy: (P,) allocated cores of each processor.
        states: (2, 2) shares of the peak: speed of a busy core by oversubscription, power of an idle core by whether
            its processor has busy cores.
        now: See `begin`.
        out: (3 C,) the numbers.
    """
    count = len(cores[FIRST])
    for p in range(len(busy)):
        speed = states[0, 1 if free_bandwidth[p] < processors[LIMIT, p] else 0]
        power = states[1, 1 if busy[p] > 0 else 0]
        for core in range(first_core[p], first_core[p + 1]):
            first = cores[FIRST, core]
            if first == NONE:
                out[core], out[count + core], out[2 * count + core] = 0.0, power, 0.0
            else:
                out[core], out[count + core] = speed, 1.0
                left = (jobs[END, first] - now) * jobs[RATE, first]
                out[2 * count + core] = left if left > 0.0 else 0.0


@kernel
def busy_speed(busy: Ints, free: Floats, limit: Floats, peak: Floats, slowed: Floats) -> float:
    """Returns the sum of the speeds of busy cores.

    Args:
        busy: (P,) busy cores of each processor.
        free: (P,) free bandwidth in GB/s.
        limit: (P,) free bandwidth below which a processor is oversubscribed, GB/s.
        peak: (P,) speed of a core.
        slowed: (P,) speed of a core of an oversubscribed processor.
    """
    total = 0.0
    for p in range(len(busy)):
        total += busy[p] * (slowed[p] if free[p] < limit[p] else peak[p])
    return total
