"""Progress of jobs that slow each other down on shared processors.

C cores, P processors, J jobs. All cores of a job advance at the speed of its slowest core. A change on a processor
affects only the jobs on that processor.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import kernel, lean_kernel, part_of_kernel
from hdsim.kernels.references import by_reference
from hdsim.kernels.sums import total

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

#: Numbers of the models with kernels.
THRESHOLD, FAIR_SHARE, SMOOTHSTEP = range(1, 4)

#: Relative increase of the time of the most affected cores per further busy core, of `smoothstep`.
_CROWDING = 0.6
_NONE = -1


#: The arrays of `Shared` in a plain tuple of few, which costs the least time at calls from Python: (3, C) integers and
#: (2, C) numbers of cores, (P + 1,) integers and (2, P) numbers of processors, (3, J) integers and (5, J) numbers of
#: jobs, (8, C + P + 1) integers and (4, C) numbers to work with.
State = tuple[Ints, Floats, Ints, Floats, Ints, Floats, Ints, Floats]


class Shared(NamedTuple):
    """Running jobs on shared processors."""

    core_processor: Ints  # (C,)
    job_of_core: Ints  # (C,) -1 for an idle core
    next_core: Ints  # (C,) next core of the same job, -1 after the last one
    speed: Floats  # (C,) relative to the reference speed, under contention; that of the last job for an idle core
    share: Floats  # (C,) set share of the peak speed
    first_core: Ints  # (P + 1,)
    peak: Floats  # (P,) relative to the reference speed
    demand: Floats  # (P,) GB/s of all busy cores
    core_of_job: Ints  # (J,) first core, -1 if the job does not run
    fixed: Ints  # (J,) 1 for a fixed duration
    listed: Ints  # (J,) 1 for a job in `jobs`
    bandwidth: Floats  # (J,) GB/s per core
    left: Floats  # (J,) reference seconds at `since`
    rate: Floats  # (J,) reference seconds per second
    since: Floats  # (J,) seconds
    growth: Floats  # (J,) cores relative to requested cores
    counts: Ints  # number of `touched` processors and of `fresh` jobs
    touched: Ints  # processors with a start, an end or a set speed since the last update
    is_touched: Ints  # (P,) 1 for a touched processor
    fresh: Ints  # jobs whose rate is updated even if no speed on their processors changes, in order
    processors: Ints  # touched processors with busy cores, ascending, of the last `collect`
    offsets: Ints  # index in `busy` of the first core of each of them
    busy: Ints  # busy cores
    jobs: Ints  # affected jobs of the last `retime`
    demands: Floats  # GB/s of each of the busy cores
    totals: Floats  # GB/s on each of `processors`
    shares: Floats  # share of the peak speed of each of `processors`, or of each busy core
    dates: Floats  # end of each of `jobs`, seconds


def shared_of(state: State) -> Shared:
    """Returns views of the arrays."""
    cores, speeds, first_core, demands, of_jobs, work, ints, floats = state
    return Shared(
        *(cores[0], cores[1], cores[2], speeds[0], speeds[1], first_core, demands[0], demands[1]),
        *(of_jobs[0], of_jobs[1], of_jobs[2], work[0], work[1], work[2], work[3], work[4]),
        *(ints[0], ints[1], ints[2], ints[3], ints[4], ints[5], ints[6], ints[7]),
        *(floats[0], floats[1], floats[2], floats[3]),
    )


_shared_of = part_of_kernel(shared_of)


@lean_kernel
def affected(state: State, i: int) -> tuple[int, float]:
    """Returns an affected job of :func:`settle` and its end in seconds, see :func:`retime`."""
    shared = by_reference(_shared_of(state))
    return shared.jobs[i], shared.dates[i]


@lean_kernel
def gather(state: State) -> int:
    """See :func:`collect`."""
    return collect(by_reference(_shared_of(state)))


@lean_kernel
def apply(state: State, m: int, by_processor: bool, now: float) -> int:
    """See :func:`retime`."""
    return retime(by_reference(_shared_of(state)), m, by_processor, now)


@lean_kernel
def begin(state: State, job: int, cores: Ints, left: float, rate: float, growth: float) -> None:
    """Adds a job on ascending cores.

    Args:
        state: The jobs.
        job: The job.
        cores: Its cores.
        left: Remaining work at `since`, reference seconds.
        rate: Its rate until `retime`, 0 at its start.
        growth: Its cores relative to requested cores.
    """
    shared = by_reference(_shared_of(state))
    shared.left[job], shared.rate[job], shared.growth[job] = left, rate, growth
    after = _NONE
    for i in range(len(cores) - 1, -1, -1):
        shared.job_of_core[cores[i]] = job
        shared.next_core[cores[i]] = after
        after = cores[i]
    shared.core_of_job[job] = after
    touch(shared, job, 1.0)
    refresh(shared, job)


@lean_kernel
def finish(state: State, job: int) -> None:
    """Removes a job from its cores."""
    shared = by_reference(_shared_of(state))
    touch(shared, job, -1.0)
    core = shared.core_of_job[job]
    while core != _NONE:
        shared.job_of_core[core] = _NONE
        core = shared.next_core[core]
    shared.core_of_job[job] = _NONE
    kept = 0
    for i in range(shared.counts[1]):
        if shared.fresh[i] != job:
            shared.fresh[kept] = shared.fresh[i]
            kept += 1
    shared.counts[1] = kept


@part_of_kernel
def touch(shared: Shared, job: int, sign: float) -> None:
    """Marks the processors of a job for an update and adds its demand, or subtracts it."""
    core = shared.core_of_job[job]
    while core != _NONE:
        p = shared.core_processor[core]
        n = 0.0
        while core != _NONE and shared.core_processor[core] == p:
            n += sign
            core = shared.next_core[core]
        shared.demand[p] += n * shared.bandwidth[job]
        touch_processor(shared, p)


@part_of_kernel
def touch_processor(shared: Shared, p: int) -> None:
    """Marks a processor for an update."""
    if not shared.is_touched[p]:
        shared.is_touched[p] = 1
        shared.touched[shared.counts[0]] = p
        shared.counts[0] += 1


@part_of_kernel
def refresh(shared: Shared, job: int) -> None:
    """Marks a job for an update."""
    for i in range(shared.counts[1]):
        if shared.fresh[i] == job:
            return
    shared.fresh[shared.counts[1]] = job
    shared.counts[1] += 1


@lean_kernel
def set_speed(state: State, cores: Ints, shares: Floats) -> None:
    """Sets the speed of cores and marks the jobs on them for an update."""
    shared = by_reference(_shared_of(state))
    for i in range(len(cores)):
        shared.share[cores[i]] = shares[i]
        touch_processor(shared, shared.core_processor[cores[i]])
        if shared.job_of_core[cores[i]] != _NONE:
            refresh(shared, shared.job_of_core[cores[i]])


@part_of_kernel
def collect(shared: Shared) -> int:
    """Collects the busy cores of the touched processors; returns the number of these processors."""
    touched = shared.touched[: shared.counts[0]]
    shared.counts[0] = 0
    sort(shared.touched, 0, len(touched))
    m = k = 0
    for p in touched:
        shared.is_touched[p] = 0
        shared.processors[m] = p
        shared.offsets[m] = k
        for core in range(shared.first_core[p], shared.first_core[p + 1]):
            job = shared.job_of_core[core]
            if job != _NONE:
                shared.busy[k] = core
                shared.demands[k] = shared.bandwidth[job]
                k += 1
        if k > shared.offsets[m]:
            shared.totals[m] = shared.demand[p]
            m += 1
    shared.offsets[m] = k
    return m


@lean_kernel
def settle(state: State, model: int, parameters: Floats, now: float) -> int:
    """Updates the speeds on touched processors under a model with kernels; see `retime`.

    Args:
        state: The jobs.
        model: `THRESHOLD`, `FAIR_SHARE` or `SMOOTHSTEP`.
        parameters: (R, P) parameters of the model.
        now: Current time, seconds.
    """
    shared = by_reference(_shared_of(state))
    m = collect(shared)
    processors, first = shared.processors[:m], shared.offsets
    if model == THRESHOLD:
        threshold(parameters, processors, shared.totals, shared.shares)
    elif model == FAIR_SHARE:
        fair_share(parameters, processors, first, shared.demands, shared.shares, shared.dates)
    else:
        smoothstep(parameters, processors, first, shared.demands, shared.shares)
    return retime(shared, m, model == THRESHOLD, now)


@kernel
def sort(values: Ints, first: int, last: int) -> None:
    """Sorts some of the values, ascending (Shell, 1959)."""
    gap = 1
    while gap < (last - first) // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(first + gap, last):
            value, at = values[i], i
            while at >= first + gap and values[at - gap] > value:
                values[at] = values[at - gap]
                at -= gap
            values[at] = value
        gap //= 3


@part_of_kernel
def retime(shared: Shared, m: int, by_processor: bool, now: float) -> int:
    """Updates the rates of jobs after `collect`.

    Args:
        shared: The jobs, with the speeds of the model in `shares`.
        m: Number of touched processors.
        by_processor: `shares` has one speed for each processor.
        now: Current time, seconds.

    Returns:
        The number of affected jobs, in `jobs`: those marked for an update in order, then the others ascending. `dates`
        has the end of each in seconds: NaN if it stays, minus infinity if the rate is not above 0.
    """
    jobs, dates = shared.jobs, shared.dates
    n = fresh = shared.counts[1]
    shared.counts[1] = 0
    for i in range(fresh):
        jobs[i] = shared.fresh[i]
        shared.listed[jobs[i]] = 1
    for i in range(m):
        for k in range(shared.offsets[i], shared.offsets[i + 1]):
            core = shared.busy[k]
            speed = shared.peak[shared.processors[i]] * shared.shares[i if by_processor else k]
            if speed != shared.speed[core]:
                shared.speed[core] = speed
                job = shared.job_of_core[core]
                if not shared.listed[job]:
                    shared.listed[job] = 1
                    jobs[n] = job
                    n += 1
    sort(jobs, fresh, n)
    for i in range(n):
        job = jobs[i]
        shared.listed[job] = 0
        rate = 1.0 if shared.fixed[job] else slowest(shared, job) * shared.growth[job]
        dates[i] = math.nan
        if rate != shared.rate[job] or not rate > 0:
            shared.left[job] -= shared.rate[job] * (now - shared.since[job])
            shared.rate[job] = rate
            shared.since[job] = now
            dates[i] = now + max(shared.left[job] / rate, 0.0) if rate > 0 else -math.inf
    return n


@part_of_kernel
def slowest(shared: Shared, job: int) -> float:
    """Returns the speed of the slowest core of a running job relative to the reference speed, or one not above 0."""
    least = math.inf
    core = shared.core_of_job[job]
    while core != _NONE and least > 0:
        speed = shared.speed[core] * shared.share[core]
        least = least if speed >= least else speed
        core = shared.next_core[core]
    return least


@kernel
def threshold(parameters: Floats, processors: Ints, totals: Floats, speeds: Floats) -> None:
    """See :class:`hdsim.contention.threshold.Threshold`.

    Args:
        parameters: (2, P) largest demand in GB/s without slowdown, and the speed beyond it.
        processors: (m,) processors.
        totals: (m,) demand on each of them in GB/s.
        speeds: (m,) receives shares of the peak speed.
    """
    for i in range(len(processors)):
        p = processors[i]
        speeds[i] = parameters[1, p] if totals[i] > parameters[0, p] else 1.0


@kernel
def fair_share(
    parameters: Floats, processors: Ints, first: Ints, demands: Floats, speeds: Floats, ascending: Floats
) -> None:
    """See :class:`hdsim.contention.fair_share.FairShare`.

    With demands in ascending order, the fair share of core i is an equal part of the bandwidth that the smaller demands
    leave. The shares increase while demands are below them and decrease afterwards, so the level, which is the largest
    bandwidth of a core, is their maximum.

    Args:
        parameters: (3, P) largest demand in GB/s without slowdown, bandwidth in GB/s, and share f of the run time that
            is bound by memory bandwidth.
        processors: (m,) ascending processors.
        first: (m + 1,) index in `demands` of the first core of each of them.
        demands: (k,) GB/s of each core.
        speeds: (k,) receives shares of the peak speed.
        ascending: (k,) space.
    """
    limit, bandwidth, bound = parameters[0], parameters[1], parameters[2]
    speeds[: first[len(processors)]] = 1.0
    # Sums over all processors, since differences of sums round differently for each.
    added = 0.0
    for i in range(len(processors)):
        p, begin, end = processors[i], first[i], first[i + 1]
        for k in range(begin, end):
            at = k
            while at > begin and ascending[at - 1] > demands[k]:
                ascending[at] = ascending[at - 1]
                at -= 1
            ascending[at] = demands[k]
        level = -math.inf
        base = 0.0
        for k in range(begin, end):
            added += ascending[k]
            before = added - ascending[k]
            if k == begin:
                base = before
            level = max(level, (bandwidth[p] - (before - base)) / (end - k))
        if total(demands, begin, end) > limit[p]:
            for k in range(begin, end):
                # y / a, which is 1 for a core whose demand is at most the level.
                if demands[k] > level:
                    speeds[k] = 1 / ((1 - bound[p]) + bound[p] * (demands[k] / level))


@kernel
def smoothstep(parameters: Floats, processors: Ints, first: Ints, demands: Floats, speeds: Floats) -> None:
    """See :class:`hdsim.contention.smoothstep.Smoothstep`.

    Args:
        parameters: (7, P) constants b, c, da, db, dc and dd of each processor, and 10 to the power of the decimal
            places of speeds, 0 if they are not rounded.
        processors: See :func:`fair_share`.
        first: See :func:`fair_share`.
        demands: See :func:`fair_share`.
        speeds: See :func:`fair_share`.
    """
    for i in range(len(processors)):
        p, begin, end = processors[i], first[i], first[i + 1]
        b, c, da = parameters[0, p], parameters[1, p], parameters[2, p]
        db, dc, dd, scale = parameters[3, p], parameters[4, p], parameters[5, p], parameters[6, p]
        speeds[begin:end] = 1.0
        pressure = total(demands, begin, end)
        if pressure >= c:
            others = end - begin - 1
            crowd = _CROWDING * others
            for k in range(begin, end):
                suffering = min(max((demands[k] - (da - others * db)) / (dc - others * dd), 0.0), 1.0)
                spared = 1 - suffering * suffering * suffering * (suffering * (6 * suffering - 15) + 10)
                least = spared * (crowd / (1 + crowd)) + 1 / (1 + crowd)
                curve = max(least, b * (pressure - c) + 1)
                speeds[k] = np.rint(curve * scale) / scale if scale else curve
