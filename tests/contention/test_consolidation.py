"""Jobs on few nodes and on many: the shipped experiment, what runs keep of contention and messages, their reports."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest

import hdsim as package
from hdsim.errors import ConfigError
from hdsim.report import panels
from hdsim.report.charts import Lines
from hdsim.report.figures import write_schedules
from hdsim.results import series
from hdsim.results.run_directory import writers
from hdsim.results.run_directory.directory import RunDirectory
from hdsim.results.run_directory.reader import Run, read
from hdsim.util.resources import resolve

NEW_PANELS = {"contention", "communication", "slowdown_factor", "slowdown_factor_by_size", "barriers"}


def run_of(path: Path, workload: str | package.Workload, agent: str, platform: Any = None, **options: Any) -> Any:
    """Result and run directory, read back, of a replay."""
    platform = platform or package.load_platform(resolve("platforms", "sixteen_nodes"))
    if isinstance(workload, str):
        workload = package.load_workload(resolve("workloads", workload), platform=platform, memory_bandwidth="trace")
    options = {"contention": "fair_share", "network": "fluid"} | options
    directory = RunDirectory(path)
    directory.start({"seed": 1, "agent": agent, **options}, platform, workload)
    result = package.simulate(platform, workload, agent, seed=1, **options)
    directory.finish(result)
    return result, read(path)


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Any]:
    """The four runs of the experiment, as (result, run)."""
    directory = tmp_path_factory.mktemp("runs")
    return {
        (workload, policy): run_of(directory / f"{workload}-{policy}", workload, f"fcfs-{policy}")
        for workload in ("memory_bound", "communication_bound")
        for policy in ("pack", "spread")
    }


def execution_times(shipped: dict[tuple[str, str], Any], workload: str) -> tuple[np.ndarray, np.ndarray]:
    packed, scattered = (shipped[workload, policy][0].jobs["execution_time"] for policy in ("pack", "spread"))
    return packed, scattered


def test_memory_bound_jobs_run_twice_as_fast_scattered(shipped: dict[tuple[str, str], Any]) -> None:
    packed, scattered = execution_times(shipped, "memory_bound")
    assert packed.mean() >= 2 * scattered.mean()
    assert (packed >= 2 * scattered).all()


def test_communication_bound_jobs_run_half_as_fast_again_consolidated(shipped: dict[tuple[str, str], Any]) -> None:
    packed, scattered = execution_times(shipped, "communication_bound")
    assert scattered.mean() >= 1.5 * packed.mean()
    assert (scattered >= 1.5 * packed).all()


def test_nobody_waits_in_the_queue_of_the_experiment(shipped: dict[tuple[str, str], Any]) -> None:
    for result, _ in shipped.values():
        assert result.metrics["max_waiting_time"] == 0
        assert result.metrics["jobs_completed"] == 40


def test_the_shipped_workloads_are_what_the_example_makes(tmp_path: Path, root: Path) -> None:
    subprocess.run([sys.executable, root / "examples/consolidation_workloads.py", tmp_path], check=True)
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (root / "workloads" / path.name).read_bytes()


@pytest.mark.nightly
def test_compare_names_the_best_policy_of_each_workload(
    tmp_path: Path, hdsim: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    done = hdsim("run", "experiment=consolidation", "hydra.sweep.dir=runs")
    assert done.returncode == 0, done.stderr
    done = hdsim("compare", "runs", "--metric", "mean_execution_time", "--schedules", "-o", "out")
    assert done.returncode == 0, done.stderr
    best = done.stdout[done.stdout.index("\nbest\n") :].splitlines()
    assert "  mean_execution_time with workload=memory_bound: first-spread" in best
    assert "  mean_execution_time with workload=communication_bound: first-pack" in best
    assert "figure  out/schedules.png" in done.stdout
    with (tmp_path / "out/compare.csv").open(newline="") as file:
        means = {(row["scenario"], row["configuration"]): float(row["mean"]) for row in csv.DictReader(file)}
    assert means["workload=memory_bound", "first-pack"] >= 2 * means["workload=memory_bound", "first-spread"]
    scattered = means["workload=communication_bound", "first-spread"]
    assert scattered >= 1.5 * means["workload=communication_bound", "first-pack"]
    assert len(np.unique(matplotlib.image.imread(tmp_path / "out/schedules.png").reshape(-1, 4), axis=0)) > 50


def test_too_many_schedules_are_refused(
    tmp_path: Path, hdsim: Callable[..., subprocess.CompletedProcess[str]], shipped: dict[tuple[str, str], Any]
) -> None:
    result, _ = shipped["memory_bound", "spread"]
    for number in range(9):
        directory = RunDirectory(tmp_path / f"runs/{number}")
        directory.start({"seed": number, "agent": "fcfs"}, result.platform, result.workload)
        directory.finish(result)
    done = hdsim("compare", "runs", "--schedules", "-o", "out")
    assert done.returncode == 2
    assert "--schedules: expected at most 8 runs to draw, got 9" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["png", "svg"])
@pytest.mark.ci
def test_schedules_of_runs_with_much_and_with_nothing(
    kind: str, tmp_path: Path, shipped: dict[tuple[str, str], Any]
) -> None:
    never = package.Workload.from_columns(submission_time=[0], runtime=[5], requested_cores=[999])
    runs = {policy: shipped["communication_bound", policy][1] for policy in ("pack", "spread")}
    runs["never"] = run_of(tmp_path / "run", never, "fcfs")[1]
    first, again = (write_schedules(runs, tmp_path / f"{name}.{kind}").read_bytes() for name in ("first", "again"))
    assert first == again
    if kind == "svg":
        for text in (b"Mean execution time", b"Mean slow-down factor", b"spread", b"never"):
            assert text in first


# What a run keeps


def test_contention_and_messages_by_hand(tmp_path: Path) -> None:
    """Two jobs of two tasks on a processor of 10 GB/s; then the messages of one between two nodes."""
    platform = package.Platform.homogeneous(
        nodes=2, cores_per_node=4, gflops_per_core=1.0, mem_bw=10.0, bandwidth="1GBps", latency="0us"
    )
    profile = {"type": "bsp", "supersteps": 2, "cpu": 10e9, "com": 4e9, "pattern": "ring", "mem_bw": 5}
    content = {
        "nb_res": 8,
        "jobs": [
            {"id": 0, "subtime": 0, "res": 2, "profile": "p"},
            {"id": 1, "subtime": 5, "res": 2, "profile": "p"},
        ],
        "profiles": {"p": profile},
    }
    (tmp_path / "w.json").write_text(json.dumps(content))
    workload = package.load_workload(tmp_path / "w.json", platform=platform, memory_bandwidth="trace")
    result, run = run_of(tmp_path / "packed", workload, "fcfs-pack", platform)
    # Two tasks take all the bandwidth: four lose half, which is two cores' worth. Job 0 has 20 s to compute and job 1
    # joins at 5 s: both are slow from then until job 0 is done at 35 s, and job 1 has 5 s left.
    assert result.finish_time.tolist() == pytest.approx([35, 40])
    for replay in (result, run):
        lost = series.lost_cores(replay)
        assert (lost.times.tolist(), lost.values.tolist()) == ([0, 5, 35], [0, 2, 0])
        assert not series.exchanging_tasks(replay).values.any()
    assert run.metrics["contention_loss"] == pytest.approx(60)
    # Scattered, each of the two tasks of a job is on a node of its own; 4 GB take 4 s. Job 0 sends from 10 to 14 s and
    # from 24 to 28 s, job 1 from 15 to 19 s and from 29 to 33 s; nobody shares anything.
    result, run = run_of(tmp_path / "scattered", workload, "fcfs-spread", platform)
    assert result.finish_time.tolist() == pytest.approx([28, 33])
    for replay in (result, run):
        sending = series.exchanging_tasks(replay)
        assert sending.times.tolist() == pytest.approx([0, 10, 14, 15, 19, 24, 28, 29, 33])
        assert sending.values.tolist() == [0, 2, 0, 2, 0, 2, 0, 2, 0]
        assert not series.lost_cores(replay).values.any()


def test_a_run_directory_has_the_curves_of_the_replay(shipped: dict[tuple[str, str], Any]) -> None:
    for result, run in shipped.values():
        for curve in (series.lost_cores, series.exchanging_tasks):
            exact, kept = curve(result), curve(run)
            assert kept.values == pytest.approx(exact.values, abs=1e-6)
            assert kept.times == pytest.approx(exact.times, abs=1e-6)
            assert (exact.values >= 0).all()
            assert exact.values[-1] == 0
        assert run.metrics["contention_loss"] == pytest.approx(series.lost_cores(result).integral())


def test_long_curves_are_thinned_and_keep_their_peaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shipped: dict[tuple[str, str], Any]
) -> None:
    monkeypatch.setattr(writers, "_CONTENTION_STEPS", 100)
    result, _ = shipped["communication_bound", "spread"]
    directory = RunDirectory(tmp_path / "run")
    directory.start({"seed": 1, "agent": "fcfs"}, result.platform, result.workload)
    directory.finish(result)
    kept = series.exchanging_tasks(read(tmp_path / "run"))
    assert len(kept.times) <= 100
    assert kept.values.max() == series.exchanging_tasks(result).values.max()


def test_a_damaged_file_is_refused(tmp_path: Path, shipped: dict[tuple[str, str], Any]) -> None:
    run_of(tmp_path / "run", shipped["memory_bound", "spread"][0].workload, "fcfs-spread")
    (tmp_path / "run/contention.csv").write_text("time,value\n0,1\n")
    with pytest.raises(ConfigError, match=r"contention\.csv: expected rows of time,lost_cores,exchanging_tasks"):
        read(tmp_path / "run")


# The report


def views(run: Run) -> dict[str, Any]:
    return {view.key: view.chart for panel in panels.panels(run) for view in panel.views}


def test_panels_of_what_there_was(shipped: dict[tuple[str, str], Any]) -> None:
    shown = {pair: NEW_PANELS & views(run).keys() for pair, (_, run) in shipped.items()}
    factors = {"slowdown_factor", "slowdown_factor_by_size"}
    assert shown["memory_bound", "pack"] == {"contention", "barriers"} | factors
    assert shown["memory_bound", "spread"] == {"communication", "barriers"}
    assert shown["communication_bound", "pack"] == {"barriers"}
    assert shown["communication_bound", "spread"] == {"communication", "barriers"} | factors


def test_rigid_jobs_have_no_panels_of_messages(tmp_path: Path) -> None:
    workload = package.Workload.from_columns(
        submission_time=[0, 1], runtime=[50, 50], requested_cores=[4, 4], memory_bandwidth=[20.0, 20.0]
    )
    platform = package.load_platform(resolve("platforms", "sixteen_nodes"))
    _, run = run_of(tmp_path / "alone", workload, "fcfs-spread", platform)
    assert not NEW_PANELS & views(run).keys()
    assert not (tmp_path / "alone/contention.csv").exists()
    _, run = run_of(tmp_path / "packed", workload, "fcfs-pack", platform)
    assert NEW_PANELS & views(run).keys() == {"slowdown_factor", "slowdown_factor_by_size"}


def test_distributions_of_slowdown_and_barriers(shipped: dict[tuple[str, str], Any]) -> None:
    result, run = shipped["memory_bound", "pack"]
    charts = views(run)
    (line,) = charts["slowdown_factor"].lines
    factors = result.jobs["slowdown_factor"]
    for x, share in zip(line.x, line.y, strict=True):
        assert share == pytest.approx(100 * np.mean(factors <= x + 1e-6))
    by_size: Lines = charts["slowdown_factor_by_size"]
    high, median = by_size.lines
    # 8 tasks are in the class of 5 to 8, 12 and 16 in that of 9 to 16.
    assert median.x.tolist() == [4, 8, 16]
    sizes = result.jobs["requested_number_of_resources"]
    assert median.y[:2] == pytest.approx([np.median(factors[sizes == 8]), np.median(factors[sizes > 8])], abs=1e-6)
    assert high.y[1] == pytest.approx(np.percentile(factors[sizes > 8], 95), abs=1e-6)
    sending, waiting = charts["barriers"].lines
    assert (sending.label, waiting.label) == ("messages", "barriers")
    shares = 100 * result.jobs["barrier_waiting_time"] / result.jobs["execution_time"]
    assert waiting.y[-1] == 100
    for x, share in zip(waiting.x, waiting.y, strict=True):
        assert share == pytest.approx(100 * np.mean(shares <= x + 1e-5), abs=1e-9)
