"""Shape of the estimates histogram, and estimates that no job outlives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdsim.errors import WorkloadError
from hdsim.workload.generators import lublin, tsafrir
from hdsim.workload.model import Workload

HOUR = 3600


@pytest.mark.parametrize(
    ("jobs", "bins"),
    [(200, 20), (600, 28), (1000, 35), (5500, 63), (10_000, 90), (70_000, 340), (250_000, 565), (10**6, 565)],
)
def test_number_of_bins(jobs: int, bins: int) -> None:
    assert tsafrir.number_of_bins(jobs) == bins


def test_head_of_a_long_limit_is_popular_times_and_round_numbers() -> None:
    hours = np.array([36, 1, 2, 3, 4, 5, 6, 8, 10, 12, 18, 20, 25, 30, 35]) * HOUR
    minutes = np.array([5, 10, 15, 20, 30]) * 60
    # 36 h: multiples of 10 h (30, 20; 10 is in), then of 5 h (35, 25) complete the twenty.
    assert sorted(tsafrir.head_times(36 * HOUR)) == sorted([*hours, *minutes])
    assert tsafrir.head_times(36 * HOUR)[0] == 36 * HOUR
    assert np.all(np.diff(tsafrir.head_times(36 * HOUR)[1:]) > 0)


@given(st.integers(HOUR, 10**7))
def test_head_times(longest: int) -> None:
    head = tsafrir.head_times(longest).tolist()
    assert len(head) == len(set(head)) <= 20
    assert head[0] == longest == max(head)
    assert head[1:] == sorted(head[1:])
    assert len(head) == 20 or longest < 20 * 300 + 300
    assert all(time % 300 == 0 for time in head[1:])


def test_head_sizes() -> None:
    sizes = tsafrir.head_sizes()
    assert sizes.sum() == pytest.approx(89)
    assert np.all(np.diff(sizes) < 0)
    assert sizes[1] == pytest.approx(14.0491 * np.exp(-0.177531 * 2) + 0.462513)
    assert tsafrir.head_sizes(12).sum() == pytest.approx(89)


def test_tail_sizes() -> None:
    sizes = tsafrir.tail_sizes(100)
    assert sizes.sum() == pytest.approx(11)
    assert sizes[0] / sizes[10] == pytest.approx((31 / 21) ** 2.267)
    assert tsafrir.tail_sizes(0).tolist() == []


def test_tail_times() -> None:
    head = tsafrir.head_times(36 * HOUR)
    tail = tsafrir.tail_times(90, 36 * HOUR, head)
    a = 1 + 12.1039 * 90**-0.6026
    x = np.arange(1, 71) / 70
    assert len(tail) == 70
    assert not set(tail) & set(head)
    assert np.all((tail > 0) & (tail < 36 * HOUR))
    assert np.abs(np.sort(tail) - np.sort(36 * HOUR * (a - 1) * x / (a - x))).max() <= 60


@given(st.integers(200, 3000), st.integers(HOUR, 400_000), st.integers(0, 2**32))
def test_histogram(jobs: int, longest: int, seed: int) -> None:
    times, counts = tsafrir.histogram(jobs, longest, np.random.default_rng(seed))
    assert counts.sum() == jobs
    assert np.all(counts >= 0)
    assert np.all(np.diff(times) > 0)
    assert times[-1] == longest and times[0] > 0
    assert counts[-1] == counts.max()
    assert len(times) <= tsafrir.number_of_bins(jobs)


def test_shares_of_a_large_histogram() -> None:
    times, counts = tsafrir.histogram(MANY := 250_000, 36 * HOUR, np.random.default_rng(1))
    head = np.isin(times, tsafrir.head_times(36 * HOUR))
    assert counts[head].sum() / MANY == pytest.approx(0.89, abs=0.002)
    expected = tsafrir.head_sizes() / 100
    assert np.allclose(np.sort(counts[head])[::-1] / MANY, expected, atol=0.001)


@given(st.integers(0, 2**32))
def test_every_popularity_rank_is_given_once_and_in_time(seed: int) -> None:
    ranks = tsafrir._popularity(20, np.random.default_rng(seed)) + 1
    assert sorted(ranks) == list(range(1, 21))
    assert ranks[0] == 1
    last_row = [np.argwhere(rank == tsafrir._RANKS)[:, 0].max() for rank in range(1, 21)]
    first_row = [np.argwhere(rank == tsafrir._RANKS)[:, 0].min() for rank in range(1, 21)]
    row_of = np.argsort(ranks)
    # A rank is given no sooner than the first log that has it there; a rank that is due may have to queue.
    assert all(row_of[rank] >= first_row[rank] for rank in range(1, 20))
    assert np.mean([row_of[rank] <= last_row[rank] for rank in range(20)]) >= 0.8


def test_the_table_of_ranks_is_four_permutations() -> None:
    for column in tsafrir._RANKS.T:
        assert sorted(column) == list(range(1, 21))


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=30),
    st.integers(0, 400),
)
def test_equalised_counts(counts: list[int], jobs: int) -> None:
    result = tsafrir._equalised(np.array(counts), jobs, np.arange(len(counts)))
    assert result.sum() == jobs
    assert np.all(result >= 0)
    if jobs >= len(counts):
        assert np.all(result >= 1)


@given(st.integers(0, 1000))
def test_no_job_outlives_its_estimate(seed: int) -> None:
    workload = lublin.generate(400, seed)
    estimated = tsafrir.with_estimates(workload, seed)
    assert np.all(estimated.requested_time >= estimated.runtime)
    assert np.array_equal(estimated.runtime, workload.runtime)
    assert estimated.requested_time.max() == max(HOUR, workload.runtime.max())


@given(st.data())
def test_assignment_uses_each_estimate_as_often_as_said(data: st.DataObject) -> None:
    times = np.array(sorted(data.draw(st.sets(st.integers(1, 50), min_size=1, max_size=6))))
    counts = np.array(data.draw(st.lists(st.integers(0, 5), min_size=len(times), max_size=len(times))))
    counts[-1] += 1
    pool = np.repeat(times, counts)
    slack = data.draw(st.lists(st.integers(0, 50), min_size=len(pool), max_size=len(pool)))
    runtime = np.maximum(data.draw(st.permutations(pool.tolist())) - np.array(slack), 0).astype(float)
    estimates = tsafrir.assigned(runtime, times, counts, np.random.default_rng(data.draw(st.integers(0, 99))))
    assert sorted(estimates) == pool.tolist()
    assert np.all(estimates >= runtime)


def test_short_jobs_get_any_estimate() -> None:
    """With run times of 0 every assignment is equally likely."""
    rng = np.random.default_rng(1)
    first = [tsafrir.assigned(np.zeros(4), np.arange(1, 5), np.ones(4, int), rng)[0] for _ in range(4000)]
    assert np.allclose(np.bincount(np.array(first, int), minlength=5)[1:] / 4000, 0.25, atol=0.03)


def test_longest_estimate_cuts_run_times() -> None:
    workload = lublin.generate(1000, 1)
    limit = float(np.quantile(workload.runtime, 0.99))
    estimated = tsafrir.with_estimates(workload, 1, max_estimate=limit)
    assert estimated.requested_time.max() == np.ceil(limit)
    assert np.array_equal(estimated.runtime, np.minimum(workload.runtime, np.ceil(limit)))


def test_too_many_long_jobs() -> None:
    workload = Workload.from_columns(submission_time=np.arange(300), runtime=5000, requested_cores=1)
    with pytest.raises(WorkloadError, match=r"estimates of at least 5000 seconds for such jobs, got \d+; a longer"):
        tsafrir.with_estimates(workload)


@pytest.mark.parametrize(
    ("jobs", "longest", "message"),
    [
        (199, 7200, "expected at least 200 jobs for the model of estimates, got 199"),
        (300, 3599, "expected a longest estimate of 3600 to 1e.12 s, got 3599"),
        (300, float("nan"), "expected a longest estimate of 3600 to 1e.12 s, got nan"),
    ],
)
def test_out_of_range(jobs: int, longest: float, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        tsafrir.histogram(jobs, longest, np.random.default_rng(0))
