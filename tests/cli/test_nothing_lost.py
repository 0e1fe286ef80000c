"""Results, inputs and files of the user survive other runs, power cuts, other hosts and foreign files."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tiers import nightly

import hdsim
from hdsim.errors import ConfigError
from hdsim.results.run_directory.lock import Lock, owner
from hdsim.util.files import replacing

QUICK = ("platform=teaching", "workload.path=even_1000", "workload.jobs=10")


def manifests(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*/manifest.json"))]


@pytest.mark.ci
def test_runs_of_one_second_have_directories_of_their_own(hdsim: Callable, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda seed: hdsim("run", *QUICK, f"seed={seed}"), range(8)))
    assert [each.returncode for each in done] == [0] * 8
    seeds = [manifest["config"]["seed"] for manifest in manifests(tmp_path / "runs")]
    assert sorted(seeds) == list(range(8))


@pytest.mark.parametrize("name", ["profile.csv", "jobs.csv", "progress.csv"])
def test_a_run_takes_no_folder_with_files_of_the_user(name: str, hdsim: Callable, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / name).write_text("mine")
    done = hdsim("run", *QUICK, "hydra.run.dir=mine")
    assert done.returncode == 2
    assert f"or one of an earlier run (with manifest.json), got one with {name}" in done.stderr
    assert [(path.name, path.read_text()) for path in (tmp_path / "mine").iterdir()] == [(name, "mine")]
    with pytest.raises(ConfigError, match="expected an empty directory"):
        saved().save(tmp_path / "mine")


@pytest.mark.ci
def test_other_files_in_the_folder_of_a_run_stay(hdsim: Callable, tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r/slurm-7.out").write_text("mine")
    for _ in range(2):
        assert hdsim("run", *QUICK, "hydra.run.dir=r").returncode == 0
    assert (tmp_path / "r/slurm-7.out").read_text() == "mine"


def saved() -> Any:
    return hdsim.simulate("teaching", hdsim.load_workload("even_1000", jobs=10), "fcfs")


@pytest.mark.ci
def test_a_run_replaces_none_of_its_inputs(hdsim: Callable, tmp_path: Path) -> None:
    assert hdsim("run", *QUICK, "hydra.run.dir=first").returncode == 0
    platform = (tmp_path / "first/platform.json").read_bytes()
    done = hdsim("run", *QUICK[1:], "platform.path=first/platform.json", "hydra.run.dir=first")
    assert done.returncode == 2 and "which the results would replace" in done.stderr
    assert (tmp_path / "first/platform.json").read_bytes() == platform
    assert hdsim("run", *QUICK[1:], "platform.path=first/platform.json", "hydra.run.dir=second").returncode == 0


@pytest.mark.ci
def test_damaged_results_of_a_sweep_are_made_again(hdsim: Callable, tmp_path: Path) -> None:
    sweep = ("run", "-m", *QUICK, "seed=1,2,3,4,5", "hydra.sweep.dir=s")
    assert hdsim(*sweep).returncode == 0
    before = {path: path.read_bytes() for path in (tmp_path / "s").glob("*/jobs.csv")}
    whole = (tmp_path / "s/seed=2/jobs.csv").read_bytes()
    (tmp_path / "s/seed=1/jobs.csv").write_bytes(b"")
    (tmp_path / "s/seed=2/jobs.csv").write_bytes(bytes(len(whole)))
    (tmp_path / "s/seed=3/jobs.csv").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "s/seed=4/metrics.json").unlink()
    done = hdsim(*sweep)
    assert done.returncode == 0
    assert "1 of 5 runs finished before" in done.stdout
    assert "finished, but jobs.csv is damaged" in done.stdout and "metrics.json is damaged" in done.stdout
    assert {path: path.read_bytes() for path in before} == before
    assert "5 of 5 runs finished before" in hdsim(*sweep).stdout


def test_damaged_results_are_told_where_they_are_read(hdsim: Callable, tmp_path: Path) -> None:
    assert hdsim("run", *QUICK, "hydra.run.dir=r").returncode == 0
    lines = (tmp_path / "r/schedule.csv").read_text().splitlines(keepends=True)
    (tmp_path / "r/schedule.csv").write_text("".join(lines[:1]))
    done = hdsim("report", "r")
    assert "schedule.csv: not what the run has written" in done.stderr


@pytest.mark.requires("optuna")
def test_a_search_notices_that_its_trace_has_changed(hdsim: Callable, tmp_path: Path) -> None:
    trace = tmp_path / "w.swf"
    trace.write_text(
        "".join(f"{job} {5 * job} 0 {20 + job} 2 -1 -1 2 60 -1 1 1 1 1 1 1 -1 -1\n" for job in range(1, 9))
    )
    search = (
        "tune",
        "platform=teaching",
        "workload.path=w.swf",
        "tune.space.agent.job_policy=choice(fcfs,sjf)",
        "hydra.run.dir=t",
    )
    first = hdsim(*search, "tune.trials=2")
    assert first.returncode == 0, first.stderr
    trace.write_text(trace.read_text().replace(" 60 ", " 61 "))
    again = hdsim(*search, "tune.trials=3")
    assert again.returncode == 2 and "inputs differs" in again.stderr


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_lock_that_hdsim_did_not_make_is_refused(kind: str, hdsim: Callable, tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "victim.txt").write_text("mine")
    if kind == "link":
        (tmp_path / "r/.lock").symlink_to("../victim.txt")
    else:
        os.mkfifo(tmp_path / "r/.lock")
    done = hdsim("run", *QUICK, "hydra.run.dir=r", timeout=120)
    assert done.returncode == 2 and "expected a file that hdsim made, got a link, a pipe or a device" in done.stderr
    assert (tmp_path / "victim.txt").read_text() == "mine"
    assert owner(tmp_path / "r") is None


def test_a_lock_of_another_origin_sends_no_escape_sequences(hdsim: Callable, tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    facts = {"host": "\x1b]0;mine\x07", "pid": 1, "start": "\x1b[2J"}
    (tmp_path / "r/.lock").write_text(json.dumps(facts))
    done = hdsim("run", *QUICK, "hydra.run.dir=r", timeout=120)
    assert done.returncode == 2 and r"process 1 on host \x1b]0;mine\x07 since \x1b[2J" in done.stderr
    assert "\x1b" not in done.stderr and "\x07" not in done.stderr


@pytest.mark.ci
def test_the_lock_comes_before_anything_is_written(hdsim: Callable, tmp_path: Path) -> None:
    assert hdsim("run", *QUICK, "seed=1", "hydra.run.dir=r").returncode == 0
    before = {path: path.read_bytes() for path in (tmp_path / "r/.hydra").iterdir()}
    lock = Lock(tmp_path / "r")
    refused = subprocess.run(
        [sys.executable, "-m", "hdsim", "run", *QUICK, "seed=2", "hydra.run.dir=r"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(hdsim_root()))},
    )
    lock.release()
    assert refused.returncode == 2 and "that no other process uses" in refused.stderr
    assert {path: path.read_bytes() for path in (tmp_path / "r/.hydra").iterdir()} == before


def test_a_reader_of_the_state_does_not_take_the_lock_from_a_worker(tmp_path: Path) -> None:
    # A sweep that goes on looks at directories that its workers are about to use.
    (tmp_path / "r").mkdir()
    (tmp_path / "r/.lock").write_text("{}")  # of a process that was killed
    looking = """if True:
        import sys, time
        from pathlib import Path
        from hdsim.results.run_directory.lock import owner
        print(flush=True)
        while True:
            owner(Path(sys.argv[1]))
            time.sleep(0.0002)
    """
    with subprocess.Popen([sys.executable, "-c", looking, tmp_path / "r"], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline()
            for _ in range(300):
                Lock(tmp_path / "r")._close()  # the file stays, as after a kill
        finally:
            process.kill()


def hdsim_root() -> Path:
    return Path(hdsim.__file__).parents[1]


def test_temporary_files_of_others_stay_and_old_ones_go(tmp_path: Path) -> None:
    """Process ids say nothing about processes of other hosts and containers; locks and the age of files do."""
    path, hour_ago = tmp_path / "runs.csv", time.time() - 3600
    young, old, written = (tmp_path / f".runs.csv.{name}.tmp" for name in ("young", "old", "written"))
    for each in (young, old, written):
        each.write_text("x")
    for each in (old, written):
        os.utime(each, (hour_ago, hour_ago))
    with written.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with replacing(path) as mine:
            mine.write("a,b\n")
            assert len(list(tmp_path.glob(".runs.csv.*.tmp"))) == 3
    assert path.read_text() == "a,b\n"
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted([young.name, written.name, path.name])


def compiled(tmp_path: Path, code: str = "") -> subprocess.CompletedProcess[str]:
    script = code + "import numpy as np\nfrom hdsim.kernels.heap import make_heap, push\n"
    script += "heap = make_heap(8)\npush(heap, 2.0, 1)\nprint(heap.length[0])\n"
    environment = {**os.environ, "HDSIM_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(hdsim_root())}
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env=environment)


@pytest.mark.parametrize("suffix", ["nbi", *nightly("nbc")])
@pytest.mark.parametrize("content", [b"", *nightly(bytes(200), None)])
@pytest.mark.ci
def test_damaged_machine_code_is_compiled_again(suffix: str, content: bytes | None, tmp_path: Path) -> None:
    assert compiled(tmp_path).stdout == "1\n"
    files = list((tmp_path / "cache").rglob(f"*.{suffix}"))
    assert files
    for file in files:
        file.write_bytes(file.read_bytes()[:100] if content is None else content)
    for _ in range(2):
        done = compiled(tmp_path)
        assert (done.stdout, done.returncode) == ("1\n", 0), done.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="gives files to another user, as root alone may")
@pytest.mark.ci
def test_machine_code_of_another_user_is_not_executed(tmp_path: Path) -> None:
    assert compiled(tmp_path).stdout == "1\n"
    for path in [tmp_path / "cache", *(tmp_path / "cache").rglob("*")]:
        os.chown(path, 65534, 65534)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.nb?")}
    done = compiled(tmp_path)
    assert done.stdout == "1\n" and "belongs to another user" in done.stderr
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.nb?")} == before
