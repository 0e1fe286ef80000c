"""Slack of jobs: drawn, or declared by columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hdsim
from hdsim.errors import ConfigError
from hdsim.workload.load import part_of
from hdsim.workload.slack import slack_of, with_slack


def jobs(count: int = 2000, **columns: Any) -> hdsim.Workload:
    rng = np.random.default_rng(3)
    return hdsim.Workload.from_columns(
        submission_time=np.arange(count),
        runtime=rng.exponential(1000, count),
        requested_cores=rng.integers(1, 9, count),
        requested_time=5000,
        **columns,
    )


def test_jobs_with_slack_have_the_share_of_the_work() -> None:
    plain = jobs()
    assert slack_of(plain) is None and with_slack(plain, None, "24h", seed=1) is plain
    for share in (0.0, 0.33, 1.0):
        made = with_slack(plain, share, ["6h", 86400], seed=1)
        slack = slack_of(made)
        work = plain.runtime * plain.requested_cores
        if share == 0:
            assert slack is None
            continue
        assert slack is not None
        has = ~np.isnan(slack)
        largest = work.max() / work.sum()
        assert share <= work[has].sum() / work.sum() <= share + largest
        assert slack[has].min() >= 6 * 3600 and slack[has].max() <= 86400
        again = slack_of(with_slack(plain, share, ["6h", 86400], seed=1))
        assert np.array_equal(slack, again, equal_nan=True)  # type: ignore[arg-type]
    other = slack_of(with_slack(plain, 0.33, 100, seed=2))
    assert not np.array_equal(np.isnan(other), np.isnan(slack_of(with_slack(plain, 0.33, 100, seed=1))))


def test_columns_declare_slack_or_deadlines() -> None:
    slack = [60.0, float("nan"), -5.0]
    declared = slack_of(jobs(3, extra={"slack": slack}))
    assert np.array_equal(declared, [60, np.nan, np.nan], equal_nan=True)  # type: ignore[arg-type]
    deadline = slack_of(jobs(3, extra={"deadline": [5100.0, 5101.0, 6000.0]}))
    assert deadline is not None and deadline.tolist() == [100, 100, 998]
    # One that not even a start at once meets leaves no slack, and is missed by any later start; -1 is none.
    early = slack_of(jobs(3, extra={"deadline": [10.0, -1.0, float("nan")]}))
    assert np.array_equal(early, [0, np.nan, np.nan], equal_nan=True)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="expected numbers of seconds in the column slack"):
        slack_of(jobs(3, extra={"slack": ["a", "b", "c"]}))


def test_deadlines_are_on_the_clock_of_the_trace() -> None:
    """Whatever part of it is replayed, and however its arrivals are scaled."""
    made = hdsim.Workload.from_columns(
        submission_time=[1e9, 1e9 + 100, 1e9 + 200],
        runtime=[10, 10, 10],
        requested_cores=[1, 1, 1],
        extra={"deadline": [1e9 + 50, 1e9 + 500, 1e9 + 230]},
    )
    for workload, expected in ((made, [40, 390, 20]), (part_of(made, start=1), [390, 20])):
        for factor in (1.0, 2.0):
            slack = slack_of(part_of(workload, arrival_factor=factor))
            assert slack is not None and slack.tolist() == expected


@pytest.mark.parametrize(
    ("share", "time", "told"),
    [
        (1.5, "24h", "workload.slack.share: expected a number from 0 to 1, got 1.5"),
        (0.3, "1 day", "workload.slack.time: expected a duration"),
        (0.3, -1, "workload.slack.time: expected seconds >= 0"),
        (0.3, ["2h", "1h"], r"workload.slack.time: expected a time or \[low, high\]"),
    ],
)
def test_faults_of_settings(share: float, time: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        with_slack(jobs(3), share, time, seed=0)


def test_metrics_tell_of_late_jobs_and_of_the_others() -> None:
    work = hdsim.Workload.from_columns(
        submission_time=[0, 0, 0, 0],
        runtime=[100, 100, 100, 100],
        requested_cores=[1, 1, 1, 1],
        extra={"slack": [0.0, 100.0, 150.0, float("nan")]},
    )
    result = hdsim.simulate(hdsim.Platform.homogeneous(nodes=1, cores_per_node=1), work, "fcfs")
    # Starts are at 0, 100, 200 and 300 s.
    assert result.metrics["deadlines_missed"] == 1
    assert result.metrics["waiting_time_without_slack"] == 300
