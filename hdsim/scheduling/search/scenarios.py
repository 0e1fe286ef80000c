"""Draws of run times and arrivals from the past of a replay, for the scenarios of a search."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Ended jobs among which the run time of a job, relative to the requested one, is drawn.
ALIKE = 64
#: Resolution of drawn run times in seconds, a power of two, so that sums of dates are exact.
TICK = 2.0**-10


class Future(NamedTuple):
    """S scenarios of a decision, with A arrivals each.

    Attributes:
        remaining: (S, R + Q) remaining run times of the running jobs and run times of the queued ones, reference
            seconds.
        drawn: (S, A) earlier jobs that the arrivals are like.
        offset: (S, A) seconds from now to their submissions.
        runtime: (S, A) their run times in reference seconds.
    """

    remaining: Floats
    drawn: Ints
    offset: Floats
    runtime: Floats


class Seen(NamedTuple):
    """The past of a cluster.

    Attributes:
        jobs: (N,) jobs that have been submitted, in order of submission.
        requested: (E,) requested times of ended jobs in seconds, ascending.
        factor: (E,) their run times relative to them.
        factor_of: (J,) the same by job, NaN for others.
        place: (J,) space, -1 each.
    """

    jobs: Ints
    requested: Floats
    factor: Floats
    factor_of: Floats
    place: Ints


@kernel
def draw_future(
    uniform: Floats,
    first: Ints,
    arrivals: int,
    seen: Seen,
    present: Ints,
    worked: Floats,
    submission_of: Floats,
    requested_of: Floats,
) -> Future:
    """Returns S scenarios.

    Args:
        uniform: (S, P) numbers from 0 to 1.
        first: (S,) place of the first arrival behind the first job that has been submitted.
        arrivals: Arrivals of a scenario.
        seen: The past.
        present: (P,) jobs that run or wait.
        worked: (P,) seconds that they have worked.
        submission_of: (J,) submission times of all jobs in seconds.
        requested_of: (J,) requested times of all jobs in seconds.
    """
    requested = requested_of[present]
    remaining = draw_runtimes(uniform, requested, worked, seen.requested, seen.factor)
    for place in range(len(present)):
        seen.place[present[place]] = place
    drawn, offset, runtime = draw_arrivals(first, arrivals, seen, submission_of, requested_of, remaining)
    for job in present:
        seen.place[job] = -1
    for s in range(len(remaining)):
        for place in range(len(present)):
            remaining[s, place] = max(remaining[s, place] - worked[place], TICK)
    return Future(remaining, drawn, offset, runtime)


@kernel
def draw_runtimes(uniform: Floats, requested: Floats, worked: Floats, ended: Floats, factor: Floats) -> Floats:
    """Returns (S, P) run times that are longer than the jobs have worked.

    Run times relative to requested times are those of the ended jobs whose requested times are nearest in rank. A job
    that has exceeded them all is expected to last as long as requested, and so are all before any job has ended.

    Args:
        uniform: (S, P) numbers from 0 to 1.
        requested: (P,) seconds.
        worked: (P,) seconds.
        ended: (E,) requested times of ended jobs in seconds, ascending.
        factor: (E,) their run times relative to them.
    """
    scenarios, jobs = uniform.shape
    alike = min(ALIKE, len(ended))
    lasting, factors = np.empty((scenarios, jobs)), np.empty(alike)
    for job in range(jobs):
        if not alike:
            lasting[:, job] = requested[job]
            continue
        low, high = np.searchsorted(ended, requested[job]), np.searchsorted(ended, requested[job], side="right")
        first, count = min(max((low + high - alike) // 2, 0), len(ended) - alike), 0
        for place in range(first, first + alike):
            if factor[place] * requested[job] > worked[job]:
                factors[count] = factor[place]
                count += 1
        factors[:count].sort()
        for s in range(scenarios):
            drawn = factors[int(uniform[s, job] * count)] if count else 1.0
            lasting[s, job] = math.ceil(drawn * requested[job] / TICK) * TICK
    return lasting


@kernel
def draw_arrivals(
    first: Ints, number: int, seen: Seen, submission_of: Floats, requested_of: Floats, lasting: Floats
) -> tuple[Ints, Floats, Floats]:
    """Returns (S, A) jobs that arrivals are like, seconds until they arrive, and their run times in seconds.

    They are consecutive jobs with the gaps before them, so that bursts are kept; behind the last one the first follows.

    Args:
        first: (S,) gap before the first arrival.
        number: Arrivals of a scenario.
        seen: The past, with at least two jobs where there are arrivals, and with places of the jobs that run or wait.
        submission_of: (J,) submission times in seconds.
        requested_of: (J,) requested times in seconds.
        lasting: (S, P) run times of the jobs that run or wait, in seconds.
    """
    shape, jobs = (len(first), number), seen.jobs
    drawn, offset, duration = np.empty(shape, np.int64), np.empty(shape), np.empty(shape)
    for s in range(len(first)):
        date, place = 0.0, first[s] + 1
        for i in range(number):
            job = jobs[place]
            date += submission_of[job] - submission_of[jobs[place - 1]]
            if seen.place[job] >= 0:
                seconds = lasting[s, seen.place[job]]
            else:
                factor = seen.factor_of[job]
                seconds = (1.0 if math.isnan(factor) else factor) * requested_of[job]
            drawn[s, i], offset[s, i] = job, max(date, TICK)
            duration[s, i] = max(math.ceil(seconds / TICK) * TICK, TICK)
            place = place + 1 if place + 1 < len(jobs) else 1
    return drawn, offset, duration
