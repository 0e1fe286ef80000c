"""Simulated means against the closed forms of queueing theory.

Every replication is a fresh run from an empty system whose first part is left out, with a seed of its own; the closed
form must lie within the confidence interval of Student's t over the replications. The seeds are fixed, so that a test
which passes once passes always; the intervals are at 99.9 %, so that of all these tests hardly one would fail by chance
for another choice of seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate, stats
from tiers import ALL

from hdsim import Platform, Workload, simulate
from hdsim.results.result import Result

REPLICATIONS = 16 if ALL else 10
CONFIDENCE = 0.999
Draw = Callable[[np.random.Generator, int], NDArray[np.float64]]


def erlang_c(servers: int, load: float) -> float:
    """Probability of having to wait in M/M/c, for an offered load in erlangs."""
    terms = [load**k / math.factorial(k) for k in range(servers)]
    last = load**servers / math.factorial(servers) * servers / (servers - load)
    return last / (sum(terms) + last)


def exponential(rng: np.random.Generator, jobs: int) -> NDArray[np.float64]:
    """Service times of mean 1 and squared coefficient of variation 1."""
    return rng.exponential(1.0, jobs)


def deterministic(rng: np.random.Generator, jobs: int) -> NDArray[np.float64]:
    """Service times of 1."""
    return np.ones(jobs)


def erlang_4(rng: np.random.Generator, jobs: int) -> NDArray[np.float64]:
    """Service times of mean 1 and squared coefficient of variation 1/4."""
    return rng.gamma(4.0, 0.25, jobs)


def hyperexponential(rng: np.random.Generator, jobs: int) -> NDArray[np.float64]:
    """Service times of mean 1 and squared coefficient of variation 2."""
    # Two exponential kinds, one job in five of the longer: 0.2 a + 0.8 b = 1 and 2 (0.2 a^2 + 0.8 b^2) = 1 + 2.
    a, b = 1 + math.sqrt(2), 1 - math.sqrt(2) / 4
    return rng.exponential(np.where(rng.random(jobs) < 0.2, a, b))


def _replicate(
    servers: int, utilisation: float, draw: Draw, jobs: int, agent: str, measure: Callable[[Result], float]
) -> NDArray[np.float64]:
    """One figure of each replication of a queue with Poisson arrivals."""
    platform = Platform.homogeneous(nodes=servers, cores_per_node=1)
    figures = []
    for seed in np.random.SeedSequence([servers, round(100 * utilisation), jobs]).spawn(REPLICATIONS):
        rng = np.random.default_rng(seed)
        workload = Workload.from_columns(
            submission_time=rng.exponential(1 / (utilisation * servers), jobs).cumsum(),
            runtime=draw(rng, jobs),
            requested_cores=np.ones(jobs),
        )
        figures.append(measure(simulate(platform, workload, agent)))
    return np.array(figures)


def _mean_wait(result: Result) -> float:
    """Mean wait without the first tenth, in which the queue has not settled."""
    return float(result.jobs["waiting_time"][len(result.workload) // 10 :].mean())


def _assert_mean(figures: NDArray[np.float64], expected: float) -> None:
    half = stats.t.ppf((1 + CONFIDENCE) / 2, len(figures) - 1) * figures.std(ddof=1) / math.sqrt(len(figures))
    assert abs(figures.mean() - expected) <= half, f"{figures.mean():.5g} +- {half:.2g}, expected {expected:.5g}"
    assert half < 0.15 * expected, "too few jobs to tell anything"


@pytest.mark.parametrize("agent", ["fcfs", "easy", "conservative", "lcfs"])
def test_no_order_that_ignores_length_changes_the_mean_wait_of_m_m_1(agent: str) -> None:
    """Serial jobs on one core: any order that knows nothing of run times has the mean wait rho / (1 - rho)."""
    jobs = 10_000 if agent == "conservative" else 20_000
    _assert_mean(_replicate(1, 0.6, exponential, jobs, agent, _mean_wait), 0.6 / 0.4)


@pytest.mark.parametrize(
    ("servers", "utilisation"),
    [(1, 0.5), (1, 0.8), (2, 0.7), (5, 0.8), (16, 0.85), pytest.param(32, 0.9, marks=pytest.mark.nightly)],
)
def test_mean_wait_of_m_m_c(servers: int, utilisation: float) -> None:
    expected = erlang_c(servers, utilisation * servers) / (servers * (1 - utilisation))
    _assert_mean(_replicate(servers, utilisation, exponential, 2_000 * servers + 40_000, "fcfs", _mean_wait), expected)


@pytest.mark.parametrize(("servers", "utilisation"), [(1, 0.5), (5, 0.8), (16, 0.9)])
def test_share_of_jobs_that_wait_in_m_m_c(servers: int, utilisation: float) -> None:
    """Erlang's C formula."""

    def share(result: Result) -> float:
        return float((result.jobs["waiting_time"][len(result.workload) // 10 :] > 0).mean())

    figures = _replicate(servers, utilisation, exponential, 20_000, "fcfs", share)
    _assert_mean(figures, erlang_c(servers, utilisation * servers))


@pytest.mark.parametrize(("servers", "utilisation"), [(1, 0.5), (5, 0.8), (16, 0.9)])
def test_utilisation_of_m_m_c(servers: int, utilisation: float) -> None:
    """The busy share of the cores over the run; its end, when the last jobs drain, is short beside it."""
    figures = _replicate(
        servers, utilisation, exponential, 20_000, "fcfs", lambda result: result.metrics["utilization"]
    )
    _assert_mean(figures, utilisation)


@pytest.mark.parametrize(
    ("draw", "variation"),
    [(deterministic, 0.0), (erlang_4, 0.25), (exponential, 1.0), (hyperexponential, 2.0)],
    ids=["M/D/1", "M/E4/1", "M/M/1", "M/H2/1"],
)
@pytest.mark.parametrize("utilisation", [0.5, 0.8])
def test_pollaczek_khinchine(draw: Draw, variation: float, utilisation: float) -> None:
    """Mean wait of M/G/1: rho (1 + c^2) / (2 (1 - rho)) mean service times."""
    expected = utilisation * (1 + variation) / (2 * (1 - utilisation))
    _assert_mean(_replicate(1, utilisation, draw, 40_000, "fcfs", _mean_wait), expected)


def test_shortest_job_first_in_m_m_1() -> None:
    """Mean wait of non-preemptive SJF: W0 times the mean over x of 1 / (1 - rho(x))^2 (Phipps 1956).

    W0 = rho is the mean remaining service met on arrival, and rho(x) = rho (1 - e^-x (1 + x)) is the load of the jobs
    shorter than x.
    """
    utilisation = 0.7
    x = np.linspace(0, 60, 600_001)
    shorter = utilisation * (1 - np.exp(-x) * (1 + x))
    expected = utilisation * float(integrate.trapezoid(np.exp(-x) / (1 - shorter) ** 2, x))
    _assert_mean(_replicate(1, utilisation, exponential, 40_000, "sjf", _mean_wait), expected)


def test_littles_law() -> None:
    """The time-average queue length is the arrival rate times the mean wait, in every single run."""
    rng = np.random.default_rng(7)
    jobs = 5_000
    workload = Workload.from_columns(
        submission_time=rng.exponential(1.0, jobs).cumsum(),
        runtime=rng.exponential(6.0, jobs),
        requested_cores=rng.integers(1, 5, jobs),
    )
    result = simulate(Platform.homogeneous(nodes=20, cores_per_node=1), workload, "fcfs")
    arrive, start = np.sort(workload.submission_time), np.sort(result.starting_time)
    times = np.sort(np.concatenate([arrive, start]))
    queue = np.searchsorted(arrive, times, "right") - np.searchsorted(start, times, "right")
    area = float((queue[:-1] * np.diff(times)).sum())
    assert area == pytest.approx(float(result.jobs["waiting_time"].sum()), rel=1e-9)
