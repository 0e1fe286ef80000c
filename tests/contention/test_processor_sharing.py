"""Fully bandwidth-bound jobs of one core share a processor as the queue M/G/1-PS does.

The processor has as much bandwidth as one core asks for and far more cores than jobs ever meet, so that n jobs run at
1/n each. Theory: a job of size x takes x / (1 - load) on average whatever the distribution of sizes, and the mean
number of jobs is load / (1 - load). Seeds are fixed and the intervals are at 99.9 %, as in test_queueing_theory.py.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from tiers import ALL

from hdsim import Platform, Workload, simulate
from hdsim.results.result import Result

REPLICATIONS = 10 if ALL else 6
CONFIDENCE = 0.999
JOBS = 4000
WARM_UP = 500
DEMAND = 8.0
Draw = Callable[[np.random.Generator], NDArray[np.float64]]

PLATFORM = Platform.homogeneous(nodes=1, cores_per_node=128, mem_bw=DEMAND)

SIZES: dict[str, Draw] = {
    "exponential": lambda rng: rng.exponential(1.0, JOBS),
    "constant": lambda rng: np.ones(JOBS),
    "uniform": lambda rng: rng.uniform(0.0, 2.0, JOBS),
    # Mean 1, squared coefficient of variation 2.25: many short jobs and a few long ones.
    "two kinds": lambda rng: np.where(rng.uniform(size=JOBS) < 0.9, 0.5, 5.5),
}


def replay(load: float, sizes: Draw, seed: int) -> Result:
    rng = np.random.default_rng(seed)
    workload = Workload.from_columns(
        submission_time=np.cumsum(rng.exponential(1 / load, JOBS)),
        runtime=sizes(rng),
        requested_cores=np.ones(JOBS, int),
        memory_bandwidth=np.full(JOBS, DEMAND),
    )
    result = simulate(PLATFORM, workload, "fcfs", contention="fair_share")
    # Otherwise there were not enough cores for all jobs to share the processor at once.
    assert (result.starting_time == workload.submission_time).all()
    return result


def assert_mean(samples: list[float], expected: float) -> None:
    """Asserts that the expected value is in the confidence interval of the replications' mean."""
    mean, error = np.mean(samples), stats.sem(samples)
    half = stats.t.ppf((1 + CONFIDENCE) / 2, len(samples) - 1) * error
    assert abs(mean - expected) < half, f"expected {expected:.4f} within {mean:.4f} +- {half:.4f}"
    assert half < 0.3 * expected, "too wide an interval to say anything"


@pytest.mark.parametrize("load", [0.3, 0.6])
@pytest.mark.parametrize("sizes", SIZES)
def test_mean_response_time_by_size(load: float, sizes: str) -> None:
    response: list[float] = []
    number: list[float] = []
    by_size: dict[int, list[float]] = {}
    for seed in range(REPLICATIONS):
        result = replay(load, SIZES[sizes], seed)
        counted = slice(WARM_UP, None)
        size = result.workload.runtime[counted]
        turnaround = (result.finish_time - result.starting_time)[counted]
        response.append(float(turnaround.mean()))
        span = result.workload.submission_time[-1] - result.workload.submission_time[WARM_UP]
        number.append(float(turnaround.sum() / span))
        # Quarters of the jobs by size; within each the mean stretch is that of all.
        quarter = np.digitize(size, np.quantile(size, [0.25, 0.5, 0.75])) if np.ptp(size) else np.zeros(len(size), int)
        for q in np.unique(quarter):
            by_size.setdefault(int(q), []).append(float(turnaround[quarter == q].sum() / size[quarter == q].sum()))
    assert_mean(response, 1 / (1 - load))
    assert_mean(number, load / (1 - load))
    for stretches in by_size.values():
        assert len(stretches) == REPLICATIONS
        assert_mean(stretches, 1 / (1 - load))


@pytest.mark.parametrize("sizes", SIZES)
def test_every_job_ends_as_in_processor_sharing(sizes: str) -> None:
    """Job by job against a virtual clock that runs at 1/n: a job ends when it has advanced by the job's size."""
    result = replay(0.8, SIZES[sizes], seed=99)
    submission, size = result.workload.submission_time, result.workload.runtime
    finish = np.full(JOBS, math.nan)
    clock, now, present = 0.0, 0.0, []
    for job in [*range(JOBS), None]:
        until = math.inf if job is None else submission[job]
        while present and now + (present[0][0] - clock) * len(present) <= until:
            now += (present[0][0] - clock) * len(present)
            clock, done = heapq.heappop(present)
            finish[done] = now
        if job is not None:
            clock += (until - now) / len(present) if present else 0.0
            now = until
            heapq.heappush(present, (clock + size[job], job))
    assert result.finish_time == pytest.approx(finish, rel=1e-9)


def test_a_partly_bound_job_suffers_partly() -> None:
    """Two jobs, a quarter of whose time is bound by memory: each runs at 1 / (3/4 + 1/4 x 2)."""
    workload = Workload.from_columns(
        submission_time=[0, 0], runtime=[100, 100], requested_cores=[1, 1], memory_bandwidth=[DEMAND] * 2
    )
    model = {"_target_": "hdsim.contention.fair_share.FairShare", "memory_bound_fraction": 0.25}
    result = simulate(PLATFORM, workload, "fcfs", contention=model)
    assert result.finish_time.tolist() == pytest.approx([125, 125])
