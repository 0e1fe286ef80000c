"""Tsafrir-Etsion-Feitelson model of user estimates: few round numbers, twenty of which most jobs use.

D. Tsafrir, Y. Etsion, D. G. Feitelson, "Modeling user runtime estimates", JSSPP 2005. The author's program draws from
library generators that no longer exist, so only its distributions can be reproduced.
"""

from __future__ import annotations

import math

import numpy as np

from hdsim.errors import WorkloadError
from hdsim.util.arrays import Floats, Ints
from hdsim.util.units import LONGEST_TIME
from hdsim.workload.model import Workload

_MINUTE = 60
_HOUR = 3600
#: Minimum number of jobs for the histogram.
FEWEST_JOBS = 200
#: Number of distinct estimates by number of jobs, linearly interpolated.
_BINS_OF_JOBS = ((0, 0), (20, 10), (200, 20), (1000, 35), (10_000, 90), (70_000, 340), (250_000, 565))
#: The head of the histogram: number of estimates, and share of the jobs that use them in %.
_HEAD = 20
_HEAD_PERCENT = 89.0
#: Estimates of the head in seconds: those popular in all logs, then round numbers to complete it.
_POPULAR = [minutes * _MINUTE for minutes in (5, 10, 15, 20, 30)] + [
    hours * _HOUR for hours in (1, 2, 3, 4, 5, 6, 8, 10, 12, 18)
]
_ROUND = [hours * _HOUR for hours in (200, 100, 50, 10, 5, 2, 1)] + [minutes * _MINUTE for minutes in (20, 10, 5)]
#: Popularity ranks of the estimates of the head (the longest first, then ascending) in four real logs.
_RANKS = np.array(
    [
        [3, 1, 1, 1],
        [1, 3, 4, 6],
        [4, 4, 10, 5],
        [17, 2, 14, 3],
        [13, 12, 20, 7],
        [7, 9, 2, 2],
        [8, 8, 3, 18],
        [18, 18, 7, 19],
        [2, 6, 12, 4],
        [6, 7, 6, 11],
        [16, 11, 19, 20],
        [10, 20, 5, 9],
        [5, 16, 18, 10],
        [15, 5, 16, 14],
        [14, 14, 9, 13],
        [19, 13, 17, 16],
        [11, 10, 15, 15],
        [12, 15, 13, 17],
        [9, 17, 8, 8],
        [20, 19, 11, 12],
    ]
)
#: Offsets in seconds that are tried in order if two estimates of the tail collide.
_OFFSETS = (0, 30, -30, 20, -20, 10, -10)


def with_estimates(
    workload: Workload, seed: int | np.random.SeedSequence = 0, max_estimate: float | None = None
) -> Workload:
    """Replaces the requested times of a workload by drawn ones, none below the run time of its job.

    Args:
        workload: At least 200 jobs. Run times above the longest estimate are reduced to it.
        seed: Seed of all draws.
        max_estimate: Longest estimate in seconds, at least 3600; by default that of the longest job.

    Raises:
        WorkloadError: There are too few jobs or long estimates, or the longest estimate is too short.
    """
    rng = np.random.default_rng(seed)
    longest = max(float(workload.runtime.max()), _HOUR) if max_estimate is None else max_estimate
    times, counts = histogram(len(workload), longest, rng)
    runtime = np.minimum(workload.runtime, times.max())
    return workload.replaced(runtime=runtime, requested_time=assigned(runtime, times, counts, rng))


def histogram(jobs: int, max_estimate: float, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Draws (B,) estimates in seconds, ascending, and (B,) numbers of jobs, which sum to `jobs`, at least 200.

    The longest estimate is at least 3600 s; it is rounded up to an integer.

    Raises:
        WorkloadError: There are too few jobs, or the longest estimate is too short.
    """
    where = "workload.estimates"
    if jobs < FEWEST_JOBS:
        raise WorkloadError(f"expected at least {FEWEST_JOBS} jobs for the model of estimates, got {jobs}", where=where)
    if not _HOUR <= max_estimate <= LONGEST_TIME:
        raise WorkloadError(
            f"expected a longest estimate of {_HOUR} to {LONGEST_TIME:g} s, got {max_estimate:g}", where=where
        )
    longest = math.ceil(max_estimate)
    bins = number_of_bins(jobs)
    head = head_times(longest)
    head_percent = head_sizes(len(head))[_popularity(len(head), rng)]
    tail = tail_times(bins, longest, head)
    tail_percent = rng.permutation(tail_sizes(len(tail)))
    times = np.concatenate([head, tail])
    percent = np.concatenate([head_percent, tail_percent])
    counts = _equalised(np.maximum(1, _rounded(percent * jobs / 100.0)), jobs, times)
    order = np.argsort(times)
    return times[order], counts[order]


def number_of_bins(jobs: int) -> int:
    """Returns the number of distinct estimates of a number of jobs."""
    points = np.array(_BINS_OF_JOBS, np.float64)
    return int(_rounded(np.interp(jobs, points[:, 0], points[:, 1])))


def head_times(longest: int) -> Ints:
    """Returns the (at most 20) popular estimates in seconds, the longest first, then ascending."""
    head = [longest, *(time for time in _POPULAR if time < longest)]
    rest = (time for unit in _ROUND for time in range(longest // unit * unit, 0, -unit))
    for time in rest:
        if len(head) == _HEAD:
            break
        if time not in head:
            head.append(time)
    return np.array([longest, *sorted(head[1:])], np.int64)


def head_sizes(bins: int = _HEAD) -> Floats:
    """Returns (bins,) shares of the jobs in % by popularity rank, with sum 89."""
    rank = np.arange(2, bins + 1)
    others = 14.0491 * np.exp(-0.177531 * rank) + 0.462513
    return np.sort(np.append(others, _HEAD_PERCENT - others.sum()))[::-1]


def _popularity(bins: int, rng: np.random.Generator) -> Ints:
    """(bins,) index by popularity of each estimate of the head.

    The ranks of a head of fewer than 20 (a longest estimate below 100 minutes) are those of the first rows, closed up.
    """
    last_row = {rank: int(np.argwhere(rank == _RANKS)[:, 0].max()) for rank in range(1, _HEAD + 1)}
    pool: list[int] = []
    ranks: list[int] = []
    for row in range(_HEAD):
        pool += [rank for rank in _RANKS[row].tolist() if rank not in ranks]
        due = [rank for rank in range(1, _HEAD + 1) if last_row[rank] <= row and rank not in ranks]
        if row == 0:
            rank = 1
        elif due:
            rank = due[0]
        else:
            rank = min(pool[rng.integers(len(pool))], pool[rng.integers(len(pool))])
        ranks.append(rank)
        pool = [other for other in pool if other != rank]
    return np.argsort(np.argsort(ranks[:bins]))


def tail_times(bins: int, longest: int, head: Ints) -> Ints:
    """Returns rare estimates in seconds, at most `bins` minus the head, without collisions."""
    wanted = bins - len(head)
    a = 1.0 + 12.1039 * bins**-0.6026
    taken = set(head.tolist())
    tail = []
    for rank in range(1, wanted + 1):
        x = rank / wanted
        minute = int(_rounded((a - 1.0) * x / (a - x) * longest / _MINUTE)) * _MINUTE
        time = next((minute + o for o in _OFFSETS if 0 < minute + o < longest and minute + o not in taken), None)
        if time is not None:
            taken.add(time)
            tail.append(time)
    return np.array(tail, np.int64)


def tail_sizes(bins: int) -> Floats:
    """Returns (bins,) shares of the jobs in % by popularity rank from 21 on, with sum 11 if not empty."""
    share = 795.6 * np.arange(_HEAD + 1, _HEAD + 1 + bins, dtype=np.float64) ** -2.267
    return share if not bins else share / share.sum() * (100.0 - _HEAD_PERCENT)


def _equalised(counts: Ints, jobs: int, times: Ints) -> Ints:
    """Adds or removes jobs, largest bin first, up to a sum: in proportion, one a bin, down to one, down to none."""
    counts = counts.copy()
    difference = jobs - int(counts.sum())
    sign = 1 if difference > 0 else -1
    left = abs(difference)
    for attempt in ("proportional", "one each", "down to one", "down to none"):
        share = left / counts.sum()
        for largest in np.lexsort((times, -counts)):
            if not left:
                return counts
            count = int(counts[largest])
            change = {
                "proportional": math.ceil(share * count),
                "one each": 1,
                "down to one": count - 1,
                "down to none": count,
            }[attempt]
            if sign < 0:
                change = min(change, count if attempt == "down to none" else count - 1)
            change = min(change, left)
            counts[largest] += sign * change
            left -= change
    return counts


def assigned(runtime: Floats, times: Ints, counts: Ints, rng: np.random.Generator) -> Floats:
    """Assigns estimates to (J,) run times, longest jobs first: a random remaining estimate that is long enough.

    There are (B,) estimates `times` in seconds and (B,) numbers of jobs of each, with sum J.

    Raises:
        WorkloadError: There are more long jobs than long estimates.
    """
    order = np.argsort(-runtime, kind="stable")
    estimates = np.sort(np.repeat(times, counts))[::-1]
    short = np.flatnonzero(runtime[order] > estimates)
    if len(short):
        longest = int(short[0])
        raise WorkloadError(
            f"expected {longest + 1} estimates of at least {runtime[order[longest]]:g} seconds for such jobs, "
            f"got {np.count_nonzero(estimates >= runtime[order[longest]])}; a longer max_estimate gives more",
            where="workload.estimates",
        )
    jobs = len(runtime)
    last = np.searchsorted(-estimates, -runtime[order], side="right") - 1
    rank = np.arange(jobs)
    chosen = (rank + np.floor(rng.random(jobs) * (last - rank + 1)).astype(np.int64)).tolist()
    pool = estimates.tolist()
    for job, choice in enumerate(chosen):
        pool[job], pool[choice] = pool[choice], pool[job]
    result = np.empty(jobs)
    result[order] = pool
    return result


def _rounded(value: Floats | float) -> Ints:
    """Rounds half up, as C does for positive numbers."""
    return np.floor(np.asarray(value) + 0.5).astype(np.int64)
