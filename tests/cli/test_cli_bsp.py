"""The command ``hdsim bsp``: run directories of gangs, and mistakes."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Warm

ROOT = Path(__file__).resolve().parents[2]


def bsp(warm: Warm, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*warm.command("hdsim"), "bsp", *arguments], cwd=folder, capture_output=True, text=True)


@pytest.mark.ci
def test_a_run_directory_is_complete_and_repeats_itself(warm: Warm, tmp_path: Path) -> None:
    for name in ("one", "two"):
        done = bsp(warm, tmp_path, "run", "controller.horizon=4", "supersteps=30", f"hydra.run.dir={name}")
        assert done.returncode == 0, done.stderr
    one, two = tmp_path / "one", tmp_path / "two"
    for file in ("metrics.json", "supersteps.csv"):
        assert (one / file).read_bytes() == (two / file).read_bytes()
    metrics = json.loads((one / "metrics.json").read_text())
    rows = list(csv.DictReader((one / "supersteps.csv").open()))
    assert len(rows) == 30
    assert sum(float(row["duration"]) for row in rows) == pytest.approx(metrics["duration"], abs=1e-4)
    assert sum(int(row["replanned"]) for row in rows) - 1 == metrics["checkpoints"]
    assert metrics["total"] == metrics["duration"] + 15 * metrics["checkpoints"]
    for row in rows:
        times = {name.removeprefix("duration_"): float(row[name]) for name in row if name.startswith("duration_")}
        assert times[row["slowest_task"]] == max(times.values()) == float(row["duration"])
    end = float(rows[-1]["begin"]) + float(rows[-1]["duration"])
    assert end == pytest.approx(metrics["total"], abs=1e-4)
    manifest = json.loads((one / "manifest.json").read_text())
    assert manifest["status"] == "finished" and manifest["config"]["controller"]["horizon"] == 4


@pytest.mark.ci
def test_a_sweep_skips_what_is_finished_unless_a_series_has_changed(warm: Warm, tmp_path: Path) -> None:
    for kind in ("actual", "forecasts"):
        (tmp_path / kind).mkdir()
        rows = "\n".join(",".join(str((7 * row + 3 * column) % 11) for column in range(20)) for row in range(12))
        (tmp_path / kind / f"x_{kind}.csv").write_text(f"# t\n{rows}\n")
    arguments = (
        "run",
        "-m",
        "controller=static,static_window",
        "actual=actual",
        "forecasts=forecasts",
        "supersteps=5",
        "~tasks",
        "+tasks={cap: x, zero: x}",
        "hydra.sweep.dir=sweep",
    )
    first, second = (bsp(warm, tmp_path, *arguments) for _ in range(2))
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    assert "checkpoints" in first.stdout and "finished before" not in first.stdout
    assert "2 of 2 runs finished before" in second.stdout
    file = tmp_path / "forecasts" / "x_forecasts.csv"
    file.write_text(file.read_text().replace("3", "4"))
    third = bsp(warm, tmp_path, *arguments)
    assert "finished with another content of forecasts" in third.stdout + third.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["planner=greedi"], "planner: expected greedy or exact, got 'greedi' (did you mean 'greedy'?)"),
        (
            ["supersteps=1001"],
            "supersteps: expected start + supersteps of at most 1000, the rows of the series, got 1001",
        ),
        (["start=990", "supersteps=20"], "got 1010"),
        (["profile=nope"], "profile: expected a file or a bundled name, got 'nope'"),
        (["scaling=actuall"], "scaling: expected columns, actual or none, got 'actuall' (did you mean 'actual'?)"),
        (["scaling=none"], "scaling: expected columns or actual, as generated series are no sizes, got none"),
        (["actual=nope"], "forecasts: expected a folder or actual"),
        (["actual=nope", "forecasts=actual"], "nope: expected nyc_taxi_1_actual.csv or nyc_taxi_1_actual.csv.gz"),
        (["+tasks.nope=x"], "tasks: expected a task of the profile (affinity,"),
        (["tasks=3"], "tasks"),
        (["shares.total=7000"], "shares.total: expected at least 8000 millicores, 1000 for each of 8 tasks, got 7000"),
        (["controller.horizon=0"], "controller.horizon: expected a whole number >= 1, got 0"),
        (["controller.horizon=21", "supersteps=30"], "controller.horizon: expected at most 20"),
        (["controller=dynamic_mcp"], "(did you mean 'dynamic_mpc'?)"),
        (["controller.widow=3"], "controller.widow: unknown key"),
        (["penalty=-1"], "penalty: expected a number from 0 to 1e+12, got -1"),
        (["penalty=1e308"], "penalty: expected a number from 0 to 1e+12, got 1e+308"),
        (["runner._target_=[]"], "runner._target_: expected a text or null, got []"),
        (["platform=gaia"], "'platform'"),
    ],
)
def test_a_mistake_is_one_message(warm: Warm, tmp_path: Path, arguments: list[str], message: str) -> None:
    done = bsp(warm, tmp_path, "run", *arguments, "hydra.run.dir=run")
    assert done.returncode == 2, done.stderr
    assert message in done.stderr and "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.ci
def test_a_plan_has_a_lower_bound(warm: Warm, tmp_path: Path) -> None:
    done = bsp(warm, tmp_path, "plan", "supersteps=15", "hydra.run.dir=plan")
    assert done.returncode == 0, done.stderr
    metrics = json.loads((tmp_path / "plan" / "metrics.json").read_text())
    assert 0.99 * metrics["total"] <= metrics["lower_bound"] <= metrics["total"]
    assert "lower bound of every plan" in done.stdout
    best = bsp(warm, tmp_path, "plan", "supersteps=15", "controller=best", "forecasts=generated", "hydra.run.dir=best")
    assert best.returncode == 0, best.stderr
    assert json.loads((tmp_path / "best" / "metrics.json").read_text())["total"] >= metrics["lower_bound"]


@pytest.mark.ci
def test_runs_are_compared_by_controller_with_parts_as_replications(warm: Warm, tmp_path: Path) -> None:
    sweep = bsp(
        warm,
        tmp_path,
        "run",
        "-m",
        "controller=dynamic_mpc,best",
        "controller.horizon=3",
        "start=100,400",
        "seed=1,2",
        "supersteps=12",
        "hydra.sweep.dir=sweep",
    )
    assert sweep.returncode == 0, sweep.stderr
    done = subprocess.run([*warm.command("hdsim"), "compare", "sweep"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader((tmp_path / "compare.csv").open()))
    assert {row["metric"] for row in rows} == {"duration", "checkpoints", "total"}
    totals = {row["configuration"]: row for row in rows if row["metric"] == "total"}
    assert len(totals) == 2 and all(row["runs"] == "4" for row in totals.values())
    (other,) = (row for row in totals.values() if row["pairs"] != "0")
    assert other["pairs"] == "4" and other["unit"] == "s"


def test_the_group_does_not_import_its_subcommands() -> None:
    script = "import sys; import hdsim.cli.bsp; print('numpy' in sys.modules, 'hydra' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True).stdout
    assert found.split() == ["False", "False"]
