"""The command ``hdsim bsp profile`` with real stress-ng."""

from __future__ import annotations

import csv
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hdsim.gangs.profile import read_profile

ROOT = Path(__file__).resolve().parents[2]
GRID = ("tasks=[cap,vecmath]", "sizes=[1,2,3,4]", "shares=[500,600,800,1000]", "tries=1", "hydra.run.dir=run")
Hdsim = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.requires("stress-ng")
@pytest.mark.ci
def test_a_killed_measurement_goes_on_and_measures_no_point_twice(tmp_path: Path, hdsim: Hdsim) -> None:
    points = tmp_path / "run" / "points.csv"
    command = [sys.executable, "-m", "hdsim", "bsp", "profile", *GRID]
    with subprocess.Popen(command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}) as killed:
        until = time.monotonic() + 120
        while (not points.exists() or points.read_text().count("\n") < 4) and time.monotonic() < until:
            time.sleep(0.005)
        killed.kill()
    before = points.read_text().splitlines()
    assert 4 <= len(before) < 33
    with points.open("a") as file:
        file.write("vecmath,4.0,1000")  # as if it had been killed during a write

    other = hdsim("bsp", "profile", *GRID, "stressors.scale=2")
    assert other.returncode == 2 and len(other.stderr.splitlines()) == 1
    assert '"scale": 1.0' in other.stderr and '"scale": 2' in other.stderr and "new hydra.run.dir" in other.stderr

    done = hdsim("bsp", "profile", *GRID)
    assert done.returncode == 0, done.stderr
    assert "goes on" in done.stderr and "measured points         32" in done.stdout
    assert points.read_text().splitlines()[: len(before)] == before
    rows = list(csv.DictReader(points.open()))
    grid = itertools.product(("cap", "vecmath"), (1.0, 2.0, 3.0, 4.0), (500, 600, 800, 1000))
    assert [(row["task"], float(row["size"]), int(row["shares"])) for row in rows] == [*grid]

    # A second try keeps the first one.
    more = hdsim("bsp", "profile", *GRID[:-2], "tries=2", GRID[-1], "tasks=[vecmath]")
    assert more.returncode == 0, more.stderr
    assert "variation of the tries" in more.stdout
    assert points.read_text().count("\n") == 33 + 16
    rows = list(csv.DictReader(points.open()))
    profile = read_profile(tmp_path / "run" / "profile.csv")
    assert profile.tasks == ("vecmath",)
    tries = [
        float(row["duration"]) for row in rows if (row["task"], row["size"], row["shares"]) == ("vecmath", "3.0", "800")
    ]
    assert len(tries) == 2 and profile.durations[0, 2, 2] == pytest.approx(np.mean(tries), rel=1e-12)
    conditions = json.loads((tmp_path / "run" / "manifest.json").read_text())["conditions"]
    assert conditions["program"].startswith("stress-ng ") and conditions["cpu"] and conditions["limits"]


@pytest.mark.requires("stress-ng")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tasks=[cap,sine]"], "tasks: expected a stressor of stress-ng"),
        (["tasks=[cpu]"], "stressors.operations: expected the operations per unit of workload of cpu, got none"),
        (["shares=[200,100,300,400]"], "shares: expected a list of at least four growing whole millicores"),
        (["sizes=[1,2,3]"], "sizes: expected a list of at least four growing sizes"),
        (
            ["shares=[500,700,900,1100]"],
            "shares: expected at most 1000 millicores, all that a task with",
        ),
        (["limits=affinity"], "shares: expected at least 1000 millicores in steps of 1000 with CPU affinity, got 150"),
        (["limits=kubernetes"], "limits: expected auto, cgroup, affinity, got 'kubernetes'"),
        (["stressors.operations.cap=0"], "stressors.operations: expected numbers > 0 by task"),
        (["stressors=long"], "stressors: expected one of kube_gang_scheduling, short, got 'long'"),
        (["tries=0"], "tries: expected a whole number >= 1, got 0"),
        (["controller=best"], "controller"),
    ],
)
def test_a_mistake_is_one_message(hdsim: Hdsim, arguments: list[str], message: str) -> None:
    done = hdsim("bsp", "profile", *arguments)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr and "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.requires("stress-ng")
@pytest.mark.ci
def test_a_workload_that_is_not_executed_has_no_duration(hdsim: Hdsim, tmp_path: Path) -> None:
    """stress-ng itself reports success, after a timeout of its own and for stressors that a machine cannot run."""
    slow = hdsim("bsp", "profile", *GRID, "stressors.scale=1000", "timeout=0.2")
    assert slow.returncode == 2
    assert "timeout: expected at most 0.2 s, got more: cap, size 1, 500 millicores" in slow.stderr
    skipped = hdsim("bsp", "profile", *GRID[1:-1], "tasks=[apparmor]", "+stressors.operations.apparmor=1")
    assert skipped.returncode == 1
    assert "expected 1 operations of stress-ng --apparmor, got 0, status 0" in skipped.stderr


@pytest.mark.ci
def test_without_stress_ng_the_error_says_what_to_install(hdsim: Hdsim, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hdsim", "bsp", "profile"]
    environment = {"PYTHONPATH": str(ROOT), "PATH": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "hdsim: error: expected the program stress-ng, found none: apt install stress-ng\n"
