"""Warm-up and cool-down: means over a part of a replay, against sums over single jobs and seconds."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

import hdsim
from hdsim.errors import ConfigError
from hdsim.report.compare import jobs_of
from hdsim.results.metrics import full
from hdsim.results.period import Period
from hdsim.results.result import Result
from hdsim.results.run_directory.reader import read

Hdsim = Callable[..., "subprocess.CompletedProcess[str]"]
# Metrics that are of the whole replay.
WHOLE = (
    "makespan",
    "energy_joules",
    "edp",
    "ed2p",
    "jobs_completed",
    "jobs_failed",
    "jobs_killed",
    "jobs_rejected",
    "jobs_unfinished",
    "steady_utilization",
    "exploitation",
    "peak_power_watts",
)


def replay(submission: list[int], runtime: list[int], cores: list[int], users: list[int] | None = None) -> Result:
    workload = hdsim.Workload.from_columns(
        submission_time=submission, runtime=runtime, requested_cores=cores, user=users or [0] * len(cores)
    )
    return hdsim.simulate(hdsim.Platform.homogeneous(nodes=1, cores_per_node=4), workload, "fcfs")


def test_means_by_hand() -> None:
    # Each job takes all cores for 10 s: starts at 0, 10, 20, 30 and 40 s.
    result = replay([0, 0, 10, 20, 100], [10] * 5, [4] * 5)
    assert result.metrics["mean_waiting_time"] == (0 + 10 + 10 + 10 + 0) / 5
    steady = result.without(warmup=10, cooldown="40s")
    assert steady.period == Period(10, 60)
    found = full(steady)
    assert found["mean_waiting_time"] == 10 and found["mean_turnaround_time"] == 20
    assert found["utilization"] == (40 - 10) / 50
    assert found["throughput"] == 4 * 3600 / 50  # Finishes at 10, 20, 30 and 40 s.
    # Of the two jobs of 10 s, one waited from 10 to 20 s and one from 20 to 30 s, while no core was idle.
    assert found["loss_of_capacity"] == 0
    assert {name: found[name] for name in WHOLE} == {name: full(result)[name] for name in WHOLE}


@pytest.mark.parametrize(
    ("settings", "period"),
    [
        ({}, Period()),
        ({"warmup": 0, "cooldown": 0}, Period()),
        ({"warmup": "1min"}, Period(60, math.inf)),
        ({"warmup": "20%"}, Period(10, math.inf)),
        ({"warmup": "39.9%"}, Period(10, math.inf)),
        ({"warmup": "19.9%"}, Period()),
        ({"cooldown": "20%"}, Period(0, 90)),
        ({"warmup": "40%", "cooldown": "40%"}, Period(20, 20)),
        ({"cooldown": 100}, Period(0, 0)),
        ({"cooldown": "0%", "warmup": "0%"}, Period()),
    ],
)
def test_settings(settings: dict[str, Any], period: Period) -> None:
    times = np.array([100, 0, 10, 20, 90.0])
    assert Period.of(settings, times) == period


def test_a_period_without_jobs_loses_no_result() -> None:
    assert Period.of({"warmup": "1d"}, np.zeros(0)) == Period()
    with pytest.raises(ConfigError, match="cooldown: expected seconds"):
        Period.checked({"cooldown": "soon"}, np.zeros(0))
    result = replay([0, 10], [10, 10], [4, 4])
    result.config = {"warmup": 11}  # as on a cluster whose jobs are not known before
    assert math.isnan(result.metrics["mean_waiting_time"]) and result.metrics["makespan"] == 20


@given(st.data())
@examples(60, at_night=600)
def test_means_are_those_of_single_jobs_and_seconds(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 12))
    numbers = st.lists(st.integers(1, 12), min_size=count, max_size=count)
    cores = [min(1 + number % 4, 4) for number in data.draw(numbers)]
    result = replay(np.cumsum(data.draw(numbers)).tolist(), data.draw(numbers), cores, data.draw(numbers))
    submission, finish = result.workload.submission_time, result.finish_time
    last = int(submission.max())
    warmup = data.draw(st.integers(0, last))
    cooldown = data.draw(st.integers(0, last - warmup))
    end = last - cooldown if cooldown else math.inf
    expected = [job for job in range(count) if warmup <= submission[job] <= end]
    if not expected:
        with pytest.raises(ConfigError, match="leave jobs"):
            result.without(warmup, cooldown)
        return
    found = full(result.without(warmup, cooldown))

    def mean(values: Any) -> Any:
        return pytest.approx(sum(float(values[job]) for job in expected) / len(expected), rel=1e-12)

    assert found["mean_waiting_time"] == mean(result.starting_time - submission)
    assert found["mean_slowdown"] == mean(result.jobs["stretch"])
    assert found["max_turnaround_time"] == max((finish - submission)[expected])
    assert found["mean_nodes"] == 1
    by_user: dict[int, list[float]] = {}
    bounded = np.maximum((finish - submission) / np.maximum(finish - result.starting_time, 10), 1)
    for job in expected:
        by_user.setdefault(int(result.workload.user[job]), []).append(bounded[job])
    means = [sum(values) / len(values) for values in by_user.values()]
    assert found["worst_user_ratio"] == pytest.approx(max(means) * len(means) / sum(means))
    # All times are whole seconds, so that the state holds for a second.
    seconds = range(warmup, int(min(end, finish.max())))
    busy = [sum(c for s, f, c in zip(result.starting_time, finish, cores, strict=True) if s <= t < f) for t in seconds]
    waits = list(zip(submission, result.starting_time, cores, strict=True))
    queued = [sum(c for q, s, c in waits if q <= t < s) for t in seconds]
    lost = sum(min(4 - held, asked) for held, asked in zip(busy, queued, strict=True))
    span = 4 * len(seconds)
    assert found["utilization"] == pytest.approx(sum(busy) / span if span else 0)
    assert found["loss_of_capacity"] == pytest.approx(lost / span if span else 0)


@pytest.mark.ci
def test_runs_reports_and_comparisons_have_the_same_jobs(hdsim: Hdsim, tmp_path: Path) -> None:
    sweep = ("run", "-m", "platform=teaching", "workload.jobs=200", "hydra.sweep.dir=runs", "warmup=10%", "cooldown=1h")
    done = hdsim(*sweep, "agent=fcfs,sjf")
    assert done.returncode == 0, done.stderr
    run = read(tmp_path / "runs/agent=fcfs")
    begin, end = run.manifest["period"]
    kept = run.jobs["waiting_time"][(run.jobs["submission_time"] >= begin) & (run.jobs["submission_time"] <= end)]
    assert 0 < len(kept) <= 180
    assert run.metrics["mean_waiting_time"] == pytest.approx(kept.mean(), abs=1e-5)
    assert len(jobs_of(run.path)["job_id"]) == len(kept) == run.counted.sum()
    compared = hdsim("compare", "runs", "-o", "compared")
    assert compared.returncode == 0, compared.stderr
    assert hdsim("report", "runs/agent=fcfs").returncode == 0
    assert f"{len(kept)} jobs" in (run.path / "report.html").read_text()
    # The same settings are no difference to resume from; others are.
    assert "2 of 2 runs finished before" in hdsim(*sweep, "agent=fcfs,sjf").stdout
    other = hdsim(*sweep[:-1], "cooldown=2h", "agent=fcfs")
    assert "finished before" not in other.stdout


def test_no_period_leaves_no_trace(hdsim: Hdsim, tmp_path: Path) -> None:
    assert hdsim("run", "platform=teaching", "workload.jobs=50", "hydra.run.dir=run").returncode == 0
    assert "period" not in json.loads((tmp_path / "run/manifest.json").read_text())


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("warmup=-1", "warmup: expected seconds >= 0"),
        ("warmup=100%", "below 100%"),
        ("cooldown=1y", "a unit (s, min, h, d)"),
        ("cooldown=true", "cooldown: expected seconds >= 0"),
        ("warmup=[1]", "warmup: expected seconds >= 0"),
        ("warmup=1e9", "that leave jobs, got warmup=1000000000.0; jobs come for"),
    ],
)
def test_mistakes_are_one_line(hdsim: Hdsim, setting: str, told: str) -> None:
    done = hdsim("run", "platform=teaching", "workload.jobs=20", setting)
    assert done.returncode == 2 and done.stderr.count("error:") == 1, done.stderr
    assert told in done.stderr.splitlines()[-1] and "Traceback" not in done.stderr
