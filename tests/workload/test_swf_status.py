"""Which lines of an SWF file are jobs, and how they end; expected values are by hand."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import hdsim
from hdsim.errors import ConfigError, WorkloadError
from hdsim.results.run_directory import reader as run_directory
from hdsim.workload.load import validate_workload

PLATFORM = hdsim.Platform.homogeneous(nodes=1, cores_per_node=4)


def line(job: int, submit: int, wait: int, run: int, cores: int, requested: int, status: int) -> str:
    return f"{job} {submit} {wait} {run} {cores} -1 -1 {cores} {requested} -1 {status} 1 1 1 1 1 -1 -1\n"


def swf(tmp_path: Path, *lines: tuple[int, ...]) -> Path:
    path = tmp_path / "trace.swf"
    path.write_text("".join(line(*each) for each in lines))
    return path


def replay(path: Path, agent: str = "fcfs", **options: Any) -> Any:
    return hdsim.simulate(PLATFORM, hdsim.load_workload(path, PLATFORM, memory_bandwidth="none", **options), agent)


def test_a_job_cancelled_without_a_known_run_time_has_not_started(tmp_path: Path) -> None:
    path = swf(tmp_path, (1, 0, 0, 10, 1, 10, 1), (2, 0, 100, -1, 1, 10, 5))
    assert not validate_workload(path)
    assert hdsim.load_workload(path, PLATFORM, memory_bandwidth="none", strict=True).job_id.tolist() == [1]


@pytest.mark.parametrize("agent", ["fcfs", "easy", "conservative"])
def test_a_job_cancelled_before_it_started_holds_up_nobody(
    agent: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = swf(tmp_path, (1, 0, 0, 1000, 3, 1000, 1), (2, 10, 100, 0, 4, 3600, 5), (3, 20, 0, 2000, 1, 2000, 1))
    with caplog.at_level(logging.WARNING):
        result = replay(path, agent)
    assert result.jobs["job_id"].tolist() == [1, 3]
    assert result.starting_time.tolist() == [0, 20]
    assert "left out 1 of 3 lines: 1 jobs cancelled before they started" in caplog.text
    assert replay(path, agent, status="ignore").jobs["job_id"].tolist() == [1, 2, 3]


def test_failures_end_as_failures(tmp_path: Path) -> None:
    path = swf(
        tmp_path,
        (1, 0, 0, 10, 1, 100, 0),
        (2, 0, 0, 20, 1, 100, 5),
        (3, 0, 0, 30, 1, 100, 1),
        (4, 0, 0, 40, 1, 100, -1),
    )
    for agent, check in (("fcfs", False), ("fcfs", True)):
        jobs = hdsim.load_workload(path, PLATFORM, memory_bandwidth="none")
        result = hdsim.simulate(PLATFORM, jobs, agent, check=check)
        assert result.jobs["final_state"].tolist() == ["COMPLETED_FAILED"] * 2 + ["COMPLETED_SUCCESSFULLY"] * 2
        assert (result.metrics["jobs_failed"], result.metrics["jobs_completed"]) == (2, 2)
        assert result.finish_time.tolist() == [10, 20, 30, 40]
    assert replay(path, status="ignore").metrics["jobs_failed"] == 0
    assert replay(path, status="completed").jobs["job_id"].tolist() == [3, 4]


def test_partial_executions_are_no_jobs_beside_the_line_of_the_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = swf(tmp_path, (7, 0, 0, 150, 2, 200, 1), (7, 0, 0, 50, 2, 200, 2), (7, 60, 5, 100, 2, 200, 3))
    with caplog.at_level(logging.WARNING):
        result = replay(path)
    assert (result.workload.runtime @ result.workload.requested_cores, len(result.workload)) == (300, 1)
    assert "2 partial executions" in caplog.text


def test_one_number_twice_is_two_jobs_with_names_of_their_own(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = swf(tmp_path, (7, 0, 0, 50, 2, 100, 1), (7, 60, 5, 100, 2, 100, 1), (8, 70, 0, 10, 2, 100, 1))
    with caplog.at_level(logging.WARNING):
        result = replay(path)
    assert result.jobs["job_id"].tolist() == ["7", "7.1", "8"]
    assert "1 jobs have the number of an earlier one" in caplog.text
    assert validate_workload(path) == []
    read = run_directory.read(result.save(tmp_path / "run"))
    assert read.segments.job.tolist() == [0, 1, 2]


def test_other_words_are_refused(tmp_path: Path) -> None:
    with pytest.raises((WorkloadError, ConfigError), match=r"workload\.status: .*recorded"):
        hdsim.load_workload(swf(tmp_path, (1, 0, 0, 10, 1, 100, 1)), PLATFORM, status="all")
