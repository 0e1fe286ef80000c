"""The model against its published statistics, closed forms and a plain scalar form of its arrival process."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdsim.errors import WorkloadError
from hdsim.workload.generators import lublin
from hdsim.workload.model import COLUMNS, Workload

MILLION = 1_000_000


@pytest.fixture(scope="module")
def typed() -> Workload:
    return lublin.generate(MILLION, seed=1, cores=128)


@pytest.fixture(scope="module")
def typeless() -> Workload:
    return lublin.generate(MILLION, seed=1, cores=128, typed=False)


def mean_is(values: np.ndarray, expected: float, slack: float = 0.0) -> bool:
    """Whether the mean is within five standard errors, and the spread of the two reference programs, of a value."""
    return abs(values.mean() - expected) <= 5 * values.std() / len(values) ** 0.5 + slack


def test_batch_jobs(typed: Workload) -> None:
    batch = typed.queue == 1
    size, runtime = typed.requested_cores[batch], typed.runtime[batch]
    assert batch.mean() == pytest.approx(0.1485, abs=0.008)
    assert mean_is(size, 13.87, slack=0.07)
    assert mean_is(size == 1, 0.2927)
    assert mean_is(runtime, 9514, slack=13)
    assert np.median(runtime) == pytest.approx(819, abs=30)
    assert np.quantile(runtime, 0.9) == pytest.approx(27720, rel=0.01)


def test_interactive_jobs(typed: Workload) -> None:
    interactive = typed.queue == 0
    size, runtime = typed.requested_cores[interactive], typed.runtime[interactive]
    assert mean_is(size, 8.055)
    assert mean_is(size == 1, 0.1541)
    assert mean_is(runtime, 240.3)
    assert np.median(runtime) == 13
    assert np.quantile(runtime, 0.99) == pytest.approx(3510, rel=0.03)


def test_typed_arrivals(typed: Workload) -> None:
    assert typed.submission_time[-1] / MILLION == pytest.approx(525, rel=0.03)
    assert typed.offered_load == pytest.approx(0.40, abs=0.025)


def test_typeless_jobs(typeless: Workload) -> None:
    assert set(typeless.queue) == {-1}
    assert mean_is(typeless.requested_cores, 12.13)
    assert mean_is(typeless.runtime, 4346, slack=3)
    assert np.median(typeless.runtime) == pytest.approx(108, abs=1)
    assert typeless.submission_time[-1] / MILLION == pytest.approx(911, rel=0.01)
    assert typeless.offered_load == pytest.approx(0.72, abs=0.015)


def test_no_run_time_is_longer_than_e_to_the_12(typed: Workload) -> None:
    assert 160_000 < typed.runtime.max() <= 162_754
    assert typed.requested_cores.max() == 128
    assert (typed.requested_cores >= 1).all()


def test_arrivals_follow_the_daily_cycle(typeless: Workload) -> None:
    bucket = (typeless.original_submission_time // lublin.BUCKET_SECONDS % lublin.BUCKETS).astype(int)
    observed = np.bincount(bucket, minlength=lublin.BUCKETS) / (MILLION / lublin.BUCKETS)
    # Gaps are heavy-tailed: arrivals come in bursts, and a bucket's count spreads more than a Poisson count.
    assert np.allclose(observed, lublin.daily_weights(lublin.ALL), atol=0.1)


@pytest.mark.parametrize(
    ("job_class", "low", "high"),
    [
        (lublin.BATCH, (0.2354, 9), (1.6659, 26)),
        (lublin.INTERACTIVE, (0.1187, 10), (1.8810, 28)),
        (lublin.ALL, (0.1649, 10), (1.8331, 27)),
    ],
)
def test_daily_weights(job_class: lublin.JobClass, low: tuple[float, int], high: tuple[float, int]) -> None:
    weights = lublin.daily_weights(job_class)
    assert (round(weights.min(), 4), weights.argmin()) == low
    assert (round(weights.max(), 4), weights.argmax()) == high
    assert weights.mean() == pytest.approx(1)


@given(
    st.lists(st.floats(1e-6, 300), min_size=1, max_size=50),
    st.lists(st.floats(0.05, 5), min_size=48, max_size=48),
)
def test_arrival_times_against_a_walk_through_the_buckets(gaps: list[float], weights: list[float]) -> None:
    weights = (np.array(weights) / np.mean(weights)).tolist()
    bucket, points, part, time = 0, 0.0, 0.0, 0.0
    expected = []
    for gap in gaps:
        points += gap
        step = 0.0
        while points > weights[bucket]:
            points -= weights[bucket]
            bucket = (bucket + 1) % 48
            step += 1800
        now = points / weights[bucket]
        time += step + 1800 * (now - part)
        part = now
        expected.append(time)
    assert np.allclose(lublin.arrival_times(np.array(gaps), np.array(weights)), expected, rtol=1e-9, atol=1e-6)


def test_times_are_whole_seconds_in_order(typed: Workload) -> None:
    for column in (typed.submission_time, typed.runtime):
        assert np.array_equal(column, np.floor(column))
    assert (np.diff(typed.submission_time) >= 0).all()


def test_same_seed_same_workload() -> None:
    first, again, other = (lublin.generate(300, seed, 64, estimates="tsafrir", memory=[1, 2]) for seed in (5, 5, 6))
    for key in COLUMNS:
        assert np.array_equal(getattr(first, key), getattr(again, key)), key
    assert not np.array_equal(first.runtime, other.runtime)


@given(st.integers(1, 5000), st.booleans())
def test_any_size_of_machine(cores: int, typed: bool) -> None:
    workload = lublin.generate(200, seed=cores, cores=cores, typed=typed)
    assert workload.requested_cores.min() >= 1
    assert workload.requested_cores.max() <= cores
    assert workload.cluster_cores == cores


@pytest.mark.parametrize("job_class", [lublin.BATCH, lublin.INTERACTIVE, lublin.ALL])
def test_fit_to_a_machine(job_class: lublin.JobClass) -> None:
    assert job_class.fitted(128) == job_class
    larger = job_class.fitted(1024)
    assert larger.high == job_class.high + 3
    assert larger.high - larger.medium == pytest.approx(job_class.high - job_class.medium)
    assert 1.5 <= larger.high - larger.medium <= 3.5
    smallest = job_class.fitted(1)
    assert 0 <= smallest.low <= smallest.medium <= smallest.high


def test_powers_of_two() -> None:
    workload = lublin.generate(100_000, seed=2, cores=100, typed=False)
    size = workload.requested_cores
    power = (size & (size - 1)) == 0
    assert ((size == 1).mean()) == pytest.approx(0.244, abs=0.01)
    assert power.mean() >= 0.244 + 0.576 - 0.01
    assert size.max() <= 100 and size[power].max() == 64


def test_arrival_factor_and_memory_and_own_classes() -> None:
    slow, fast = (lublin.generate(500, seed=3, arrival_factor=factor) for factor in (1.0, 0.5))
    assert np.allclose(fast.submission_time, slow.submission_time / 2, atol=1)
    assert np.array_equal(fast.runtime, slow.runtime)
    drawn = lublin.generate(500, seed=3, memory=[100, 250.5])
    assert set(drawn.memory) == {100, 250.5}
    assert np.array_equal(drawn.runtime, slow.runtime)
    only = lublin.generate(500, seed=3, classes=[lublin.BATCH])
    assert set(only.queue) == {1}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"jobs": 0}, "jobs: expected 1 to 10000000, got 0"),
        ({"cores": 0}, "cores: expected 1 to 100000000, got 0"),
        ({"estimates": "guess"}, "estimates: expected none or tsafrir, got 'guess'"),
        ({"memory": []}, r"memory: expected finite MB >= 0, got \[\]"),
        ({"memory": [-1]}, r"memory: expected finite MB >= 0, got \[-1\]"),
        ({"arrival_factor": float("nan")}, "arrival_factor: expected a finite number >= 0, got nan"),
        ({"arrival_factor": 1e308}, "expected a finite number, got inf"),
        ({"max_estimate": 7200.0}, "max_estimate: expected none without estimates=tsafrir"),
    ],
)
def test_options_out_of_range(options: dict[str, object], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        lublin.generate(**{"jobs": 10, **options})  # type: ignore[arg-type]
