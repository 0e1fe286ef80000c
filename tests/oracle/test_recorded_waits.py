"""Waiting times of a replay beside those that its SWF trace recorded."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from lxml import html as dom

from hdsim.report.compare import jobs_of
from hdsim.report.recorded import Waits, waits
from hdsim.results.run_directory.manifest import read_manifest

Run = Callable[..., subprocess.CompletedProcess[str]]


def _line(job: int, submit: int, wait: int, run: int, cores: int, status: int = 1) -> str:
    return f"{job} {submit} {wait} {run} {cores} -1 -1 {cores} {run} -1 {status} 1 1 1 1 1 -1 -1\n"


#: Four cores: job 2 waits 90 s behind job 1 and job 3 behind both. Job 4 was cancelled before it started, job 5 has no
#: recorded waiting time, and the number 3 comes twice.
TRACE = (
    _line(1, 0, 30, 100, 4)
    + _line(2, 10, 500, 50, 4)
    + _line(3, 20, 0, 10, 4)
    + _line(4, 25, 7, 0, 4, 5)
    + _line(5, 30, -1, 5, 4)
    + _line(3, 1000, 61, 10, 4)
)


@pytest.fixture
def replay(hdsim: Run, tmp_path: Path) -> Callable[..., Path]:
    """Replays the trace by FCFS on four cores; returns the run directory."""
    trace = tmp_path / "trace.swf"
    trace.write_text(TRACE)

    def run(name: str, *overrides: str) -> Path:
        done = hdsim(
            "run",
            "platform.path=four_cores.json",
            f"workload.path={trace}",
            "agent=fcfs",
            "contention=none",
            f"hydra.run.dir={name}",
            *overrides,
        )
        assert done.returncode == 0, done.stderr
        return tmp_path / name

    processor = {"cores": 4, "clock_rate": 1.0, "dpflops_per_cycle": 1, "power": 100}
    platform = {
        "name": "four",
        "clusters": [{"id": "c", "nodes": [{"type": "n", "number": 1}]}],
        "types": {"node": {"n": {"processors": [{"type": "p", "number": 1}]}}, "processor": {"p": processor}},
    }
    (tmp_path / "four_cores.json").write_text(json.dumps(platform))
    return run


def of(directory: Path) -> Waits | None:
    return waits(directory, read_manifest(directory), jobs_of(directory))


def test_waits_by_hand(replay: Callable[..., Path]) -> None:
    # FCFS: job 1 at 0, job 2 at 100, job 3 at 150, job 5 at 160, the second job 3 at 1000.
    found = of(replay("run"))
    assert found is not None
    np.testing.assert_allclose(found.simulated, [0, 90, 130, 0])
    np.testing.assert_allclose(found.recorded, [30, 500, 0, 61])
    # Job 1 differs by 30 s; 90 and 500, 130 and 0, 0 and 61 are neither within 60 s nor within a factor of two.
    assert found.near == 0.25


@pytest.mark.parametrize(
    ("simulated", "recorded", "near"), [(0, 0, 1), (0, 60, 1), (0, 61, 0), (100, 200, 1), (100, 201, 0), (201, 100, 0)]
)
def test_near(simulated: float, recorded: float, near: float) -> None:
    assert Waits(np.array([float(simulated)]), np.array([float(recorded)])).near == near


@pytest.mark.ci
def test_a_window_and_ignored_status(replay: Callable[..., Path]) -> None:
    window = of(replay("window", "workload.start=1", "workload.jobs=2"))
    assert window is not None
    np.testing.assert_allclose(window.recorded, [500, 0])
    all_lines = of(replay("all", "workload.status=ignore"))
    assert all_lines is not None
    np.testing.assert_allclose(all_lines.recorded, [30, 500, 0, 7, 61])


@pytest.mark.parametrize("override", ["workload.arrival_factor=0.5", "workload.runtime=requested"])
def test_jobs_that_are_not_those_of_the_trace_have_none(replay: Callable[..., Path], override: str) -> None:
    assert of(replay("changed", override)) is None


def test_a_generator_in_the_place_of_a_trace_has_none(
    replay: Callable[..., Path], root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert of(replay("drawn", f"workload.path={root / 'examples/plugins/poisson.py'}")) is None
    assert "recorded waiting times" not in caplog.text


def test_a_trace_without_waits_has_none(replay: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "trace.swf").write_text(_line(1, 0, -1, 100, 4))
    assert of(replay("unknown")) is None


def test_the_trace_is_found_from_any_folder(
    replay: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path in the manifest begins in the working directory of the run."""
    run = replay("run", "workload.path=trace.swf")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert waits(run, read_manifest(run), jobs_of(run)) is not None


def test_a_changed_trace_is_left_out_with_a_warning(
    replay: Callable[..., Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = replay("run")
    (tmp_path / "trace.swf").write_text(TRACE.replace("500", "400"))
    assert of(directory) is None
    assert "is not the file that was replayed" in caplog.text
    (tmp_path / "trace.swf").unlink()
    assert of(shutil.copytree(directory, tmp_path / "copy")) is None


@pytest.mark.ci
def test_report_and_compare_show_them(replay: Callable[..., Path], hdsim: Run, tmp_path: Path) -> None:
    first = replay("a")
    replay("b", "agent=greedy")
    told = hdsim("report", "a")
    assert told.returncode == 0, told.stderr
    line = next(line for line in told.stdout.splitlines() if line.startswith("recorded"))
    assert line.split()[1:3] == ["147.75", "45.50"]
    assert "4 jobs have a recorded waiting time, 25% of them within 60 s or a factor of 2" in told.stdout
    page = dom.fromstring((first / "report.html").read_text())
    rows = {row.findtext("th"): [cell.text_content() for cell in row.findall("td")] for row in page.iter("tr")}
    exact = {row.findtext("th"): row.xpath("td/span/@title") for row in page.iter("tr")}
    assert rows["simulated"][:2] == ["55 s", "45 s"]
    assert rows["recorded"][:2] == ["2 min 28 s", "45.5 s"]
    assert exact["recorded"][:2] == ["147.75 s", "45.50 s"]
    compared = hdsim("compare", "a", "b")
    assert compared.returncode == 0, compared.stderr
    assert "waiting time beside the recorded one (s)" in compared.stdout
    line = next(line for line in compared.stdout.splitlines() if line.startswith("fcfs") and line.endswith("25%"))
    assert line.split()[1:4] == ["4", "55", "147.75"]
    page = dom.fromstring((tmp_path / "compare.html").read_text())
    (table,) = page.xpath("//section[h2='Waiting time beside the recorded one']//table")
    cells = next([cell.text_content() for cell in row] for row in table.iter("tr") if row[0].text_content() == "fcfs")
    assert [cell for cell in cells if cell][:4] == ["fcfs", "4", "55 s", "2 min 28 s"]
