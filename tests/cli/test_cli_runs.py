"""Runs that meet: repeated, in one directory, killed, in other working directories, with equal results."""

from __future__ import annotations

import importlib.machinery
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hdsim.util.resources import resolve
from hdsim.workload.generators.families import draw_workload

Hdsim = Callable[..., "subprocess.CompletedProcess[str]"]
SMALL = ("platform=teaching", "workload.jobs=20")
# Serves the queue in order once the file "wait" is gone.
SLOW = """
import time
from pathlib import Path

from hdsim.agents.classic import ClassicAgent


class Slow(ClassicAgent):
    def __init__(self):
        super().__init__(job_policy="first")

    def decide(self, cluster):
        while Path(__file__).with_name("wait").exists():
            time.sleep(0.05)
        super().decide(cluster)
"""
MINE = """
from hdsim.agents.classic import ClassicAgent
from helper import POLICY


class Mine(ClassicAgent):
    def __init__(self):
        super().__init__(job_policy=POLICY, backfill="easy")
"""


def manifest(run: Path) -> dict:
    path = run / "manifest.json"
    return json.loads(path.read_text()) if path.exists() else {"status": "none"}


@pytest.fixture
def slow_run(tmp_path: Path, root: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A run in the directory ``run1`` that goes on until the file ``wait`` is removed."""
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "wait").touch()
    command = [sys.executable, "-m", "hdsim", "run", *SMALL, "agent.path=slow.py", "hydra.run.dir=run1"]
    process = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(root)})
    while manifest(tmp_path / "run1")["status"] != "running" or not (tmp_path / "run1/platform.json").exists():
        assert process.poll() is None
    yield process
    process.kill()
    process.wait()


@pytest.mark.ci
def test_a_second_run_in_a_directory_in_use_is_refused(
    slow_run: subprocess.Popen, hdsim: Hdsim, tmp_path: Path
) -> None:
    before = {path: path.read_bytes() for path in (tmp_path / "run1").rglob("*") if path.is_file()}
    # The directory is looked at before a trace is read: this one is none.
    (tmp_path / "none.swf").write_text("no trace\n")
    second = hdsim("run", *SMALL, "workload.path=none.swf", "agent=easy", "hydra.run.dir=run1")
    assert second.returncode == 2
    assert f"in use by process {slow_run.pid} on host" in second.stderr
    assert sum(line.startswith("hdsim") for line in second.stderr.splitlines()) == 1
    assert {path: path.read_bytes() for path in (tmp_path / "run1").rglob("*") if path.is_file()} == before
    (tmp_path / "wait").unlink()
    assert slow_run.wait() == 0
    assert manifest(tmp_path / "run1")["status"] == "finished"


@pytest.mark.ci
def test_a_sweep_leaves_a_run_in_use_alone(slow_run: subprocess.Popen, hdsim: Hdsim, tmp_path: Path) -> None:
    sweep = hdsim("run", "-m", *SMALL, "agent=easy,fcfs", "hydra.sweep.dir=.", "hydra.sweep.subdir=run${hydra:job.num}")
    assert sweep.returncode == 2
    assert "1 of 2 runs failed" in sweep.stderr and f"in use by process {slow_run.pid}" in sweep.stderr
    assert manifest(tmp_path / "run0")["status"] == "finished"
    assert manifest(tmp_path / "run1")["status"] == "running"


@pytest.mark.ci
def test_a_killed_run_is_told_and_run_again(slow_run: subprocess.Popen, hdsim: Hdsim, tmp_path: Path) -> None:
    for name, agent in (("a", "fcfs"), ("b", "easy")):
        assert hdsim("run", *SMALL, f"hydra.run.dir={name}", f"agent={agent}").returncode == 0
    os.kill(slow_run.pid, signal.SIGKILL)
    slow_run.wait()
    (tmp_path / "wait").unlink()
    report = hdsim("report", "run1")
    assert report.returncode == 2
    assert "got one that is dead since 20" in report.stderr and f"(process {slow_run.pid} on host" in report.stderr
    compare = hdsim("compare", "a", "b", "run1")
    assert compare.returncode == 0
    assert "1 of 3 runs are left out:" in compare.stderr and "run1: dead since 20" in compare.stderr
    again = hdsim("run", *SMALL, "agent.path=slow.py", "hydra.run.dir=run1")
    assert again.returncode == 0
    assert "run1: dead since 20" in again.stderr and "runs again" in again.stderr
    assert manifest(tmp_path / "run1")["status"] == "finished"
    assert hdsim("report", "run1").returncode == 0


@pytest.mark.ci
def test_a_changed_input_makes_a_run_of_a_sweep_run_again(hdsim: Hdsim, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "helper.py").write_text("POLICY = 'first'\n")
    command = ("run", "-m", *SMALL, "agent.path=mine.py", "hydra.sweep.dir=sweep")
    assert hdsim(*command).returncode == 0
    assert "finished before" in hdsim(*command).stdout
    (tmp_path / "mine.py").write_text(MINE.replace("easy", "none"))
    assert "finished with another content of agent 'mine.py'; runs again" in hdsim(*command).stdout
    assert "finished before" in hdsim(*command).stdout
    (tmp_path / "helper.py").write_text("POLICY = 'smallest'\n")
    assert "finished with another content of module '" in hdsim(*command).stdout
    assert "finished before" in hdsim(*command).stdout


@pytest.mark.parametrize("key", ["objective=foo", "reward=nope", "jobs=-5"])
def test_run_checks_env(key: str, hdsim: Hdsim) -> None:
    run = hdsim("run", *SMALL, f"env.{key}", "hydra.run.dir=run")
    assert run.returncode == 2
    assert f"env.{key.partition('=')[0]}: expected" in run.stderr


@pytest.mark.ci
def test_equal_runs_of_several_seeds_bring_a_warning(hdsim: Hdsim) -> None:
    sweep = hdsim("run", "-m", *SMALL, "seed=1,2,3", "hydra.sweep.dir=sweep")
    warning = "3 runs differ in the seed alone and have the same results"
    assert warning in sweep.stderr and "workload=lublin" in sweep.stderr
    assert "3 runs differ in the seed alone, and nothing in them is drawn" in sweep.stderr
    assert warning in hdsim("compare", "sweep").stderr
    drawn = hdsim("run", "-m", *SMALL, "agent=random", "seed=1,2,3", "hydra.sweep.dir=drawn")
    assert drawn.returncode == 0 and "differ in the seed" not in drawn.stderr
    assert "differ in the seed" not in hdsim("compare", "drawn").stderr


@pytest.mark.ci
def test_generated_jobs_are_replications(hdsim: Hdsim, tmp_path: Path) -> None:
    lublin = ("platform=teaching", "workload=lublin", "workload.generate.jobs=300")
    sweep = hdsim("run", "-m", *lublin, "seed=1,2", "hydra.sweep.dir=sweep")
    assert sweep.returncode == 0 and "differ in the seed" not in sweep.stderr
    first, second = sorted((tmp_path / "sweep").rglob("jobs.csv"))
    assert first.read_bytes() != second.read_bytes()
    assert hdsim("run", *lublin, "seed=1", "hydra.run.dir=again").returncode == 0
    assert (tmp_path / "again/jobs.csv").read_bytes() == first.read_bytes()
    told = manifest(tmp_path / "again")
    assert told["config"]["workload"]["generate"]["model"] == "lublin"
    # The command for files makes the same jobs.
    options = ("--jobs", 300, "--seed", 1, "--cores", told["platform"]["cores"], "--estimates", "tsafrir")
    assert hdsim("workload", "generate", *options, "-o", "x.swf").returncode == 0
    assert hdsim("run", "platform=teaching", "workload.path=x.swf", "seed=1", "hydra.run.dir=file").returncode == 0
    assert (tmp_path / "file/jobs.csv").read_bytes() == first.read_bytes()
    assert manifest(tmp_path / "file")["workload"]["sha256"] == told["workload"]["sha256"]


@pytest.mark.ci
def test_families_of_generated_jobs(hdsim: Hdsim, tmp_path: Path) -> None:
    family = ("platform=teaching", "workload=family", "workload.generate.jobs=300")
    sweep = hdsim("run", "-m", *family, "workload.family=home,wide", "hydra.sweep.dir=sweep")
    assert sweep.returncode == 0
    home, wide = (tmp_path / "sweep" / f"workload.family={name}/jobs.csv" for name in ("home", "wide"))
    assert home.read_bytes() != wide.read_bytes()
    drawn = draw_workload("wide", 1, 300, cores=manifest(wide.parent)["platform"]["cores"])
    sizes = [line.split(",")[4] for line in wide.read_text().splitlines()[1:]]
    assert sizes == drawn.requested_cores.astype(str).tolist()
    for setting, message in (("workload.family=wild", "did you mean 'wide'"), ("+workload.generate.lode=3", "'load'")):
        run = hdsim("run", *family, setting, "hydra.run.dir=run")
        assert run.returncode == 2 and message in run.stderr
    run = hdsim("run", "platform=teaching", "workload.family=wide", "hydra.run.dir=run")
    assert run.returncode == 2
    assert "workload.family: expected null without workload=family, got wide" in run.stderr


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("workload.generate.jobs=1.5", "workload.generate.jobs: expected a whole number >= 1, got 1.5"),
        ("+workload.generate.jops=3", "workload.generate.jops: unknown key (did you mean 'jobs'?)"),
        (
            "workload.generate.model=poisson",
            "workload.generate.model: expected one of lublin, family, kind, like, deployments, got 'poisson'",
        ),
        ("workload.generate.max_estimate=1e300", "expected a longest estimate of 3600 to 1e+12 s, got 1e+300"),
        ("workload.generate.memory=[1,x]", "workload.generate.memory: expected a list of MB per core"),
        ("workload.generate.estimates=good", "estimates: expected none or tsafrir, got 'good'"),
        ("workload.path=lublin_4000", "expected a trace or the settings of a generator (workload.generate), got both"),
        ("workload.generate=null", "got neither"),
    ],
)
def test_mistakes_in_a_generator(key: str, message: str, hdsim: Hdsim) -> None:
    run = hdsim("run", "platform=teaching", "workload=lublin", key, "hydra.run.dir=run")
    assert run.returncode == 2 and message in run.stderr


@pytest.mark.parametrize("sweep", [False, True])
@pytest.mark.ci
def test_paths_of_any_name_in_any_working_directory(sweep: bool, hdsim: Hdsim, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    assert hdsim("workload", "generate", "--jobs", 20, "--cores", 4, "-o", "my log.swf").returncode == 0
    (tmp_path / "plät.json").write_bytes(resolve("platforms", "teaching").read_bytes())
    where = ("-m", "seed=1,2", "hydra.sweep.dir=läufe hier") if sweep else ("hydra.run.dir=läufe hier",)
    paths = ("platform.path=plät.json", "workload.path=my log.swf", "agent.path=slow.py")
    for _ in range(2):
        run = hdsim("run", *where, *paths, "hydra.job.chdir=true")
        assert run.returncode == 0, run.stderr
    assert ("finished before" in run.stdout) == sweep
    assert len(list((tmp_path / "läufe hier").rglob("jobs.csv"))) == (2 if sweep else 1)


@pytest.mark.ci
def test_a_full_disk_is_one_line(tmp_path: Path, root: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(root)}
    # No file may have more than 64 blocks of 512 bytes.
    command = f"ulimit -f 64; exec {sys.executable} -m hdsim run platform=gaia hydra.run.dir=run"
    run = subprocess.run(
        command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    assert run.stderr == f"hdsim: error: {tmp_path}/run/jobs.csv: cannot be used: File too large\n"
    told = manifest(tmp_path / "run")
    assert told["status"] == "failed" and "File too large" in told["error"]


@pytest.mark.ci
def test_a_library_that_cannot_be_loaded_is_one_line(tmp_path: Path, root: Path) -> None:
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    for name in ("numpy", "mine"):
        (tmp_path / f"{name}{suffix}").write_bytes(b"no library")
    (tmp_path / "agent.py").write_text("import mine\n")
    environment = {**os.environ, "PYTHONPATH": f"{root}:{tmp_path}"}
    for broken, *arguments in (
        ("numpy", "workload", "show", "even_1000"),
        ("mine", "run", "agent.path=agent.py"),
        ("mine", "run", "agent._target_=mine.Agent"),
    ):
        if broken == "mine":
            (tmp_path / f"numpy{suffix}").unlink(missing_ok=True)
        command = [sys.executable, "-m", "hdsim", *arguments]
        run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert run.returncode == 1 and run.stderr.count("\n") == 1, run.stderr
        assert run.stderr.startswith(f"hdsim: error: {tmp_path}/{broken}{suffix}: cannot be loaded: "), run.stderr


def test_a_full_output_is_one_line(root: Path) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "hdsim", "platform", "show", "gaia"]
        environment = {**os.environ, "PYTHONPATH": str(root)}
        shown = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment, check=False)
    assert (shown.returncode, shown.stderr) == (1, "hdsim: error: No space left on device\n")
