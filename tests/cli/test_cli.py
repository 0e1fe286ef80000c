"""The command line as a user sees it: output, exit status, what is left on disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hdsim.cli import SUBCOMMANDS

Run = Callable[..., subprocess.CompletedProcess[str]]
SMALL = ("platform=teaching", "workload.jobs=50")

SLOW_AGENT = '''
import pathlib
import time

import hdsim


class Slow(hdsim.Agent):
    """First fit that takes its time, and says when it has begun."""

    def decide(self, cluster):
        for job in list(cluster.queue):
            placement = cluster.pick(job)
            if placement is not None:
                cluster.start(job, placement)
        if len(cluster.placements) > 20:
            pathlib.Path("begun").touch()
            time.sleep(0.05)
'''

FAILING_AGENT = """
import hdsim


class Failing(hdsim.Agent):
    def __init__(self, at=0):
        self.at = at

    def decide(self, cluster):
        if self.at and len(cluster.placements) >= self.at:
            raise RuntimeError("lost the plot")
        for job in list(cluster.queue):
            placement = cluster.pick(job)
            if placement is not None:
                cluster.start(job, placement)
"""


def manifest(directory: Path) -> dict:
    return json.loads((directory / "manifest.json").read_text())


def assert_mistake(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """Exit status 2 and one message without a traceback."""
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("hdsim: error: ")
    assert "Traceback" not in done.stderr
    assert done.stderr.count("hdsim: error") == 1
    for word in words:
        assert word in done.stderr


def test_help_lists_every_subcommand(hdsim: Run) -> None:
    done = hdsim("--help")
    assert done.returncode == 0
    for name, summary in SUBCOMMANDS.items():
        assert name in done.stdout and summary.split(";")[0][:30] in done.stdout


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_every_subcommand_has_help(hdsim: Run, name: str) -> None:
    done = hdsim(name, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"Usage: hdsim {name}")


def test_help_imports_nothing_heavy(root: Path) -> None:
    script = "import sys, hdsim.cli\ntry: hdsim.cli.main(['--help'])\nfinally: print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=root)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "click" in loaded
    assert not loaded & {"numpy", "hydra", "simpy", "scipy", "matplotlib", "plotly", "lxml", "procset"}


def test_version(hdsim: Run) -> None:
    import hdsim as package

    assert hdsim("--version").stdout == f"hdsim, version {package.__version__}\n"


def test_an_unknown_command_is_explained(hdsim: Run) -> None:
    assert_mistake(hdsim("rnu"), "unknown command 'rnu' (did you mean 'run'?)", "allowed: run, train, tune")


def test_an_unknown_option_is_explained(hdsim: Run) -> None:
    assert_mistake(hdsim("run", "--multrun"), "--multrun", "--multirun")


def test_run_prints_metrics_and_leaves_a_run_directory(hdsim: Run, tmp_path: Path) -> None:
    done = hdsim("run", *SMALL, "hydra.run.dir=out")
    assert done.returncode == 0, done.stderr
    assert "makespan" in done.stdout and "hdsim report out" in done.stdout
    assert {"jobs.csv", "schedule.csv", "machine_states.csv", "metrics.json", "manifest.json", ".hydra"} <= {
        path.name for path in (tmp_path / "out").iterdir()
    }
    assert manifest(tmp_path / "out")["status"] == "finished"
    assert manifest(tmp_path / "out")["config"]["workload"]["jobs"] == 50


def test_a_run_without_a_directory_goes_to_runs(hdsim: Run, tmp_path: Path) -> None:
    assert hdsim("run", *SMALL).returncode == 0
    assert next(tmp_path.glob("runs/*/jobs.csv")).parent.name[:2] == "20"


def test_the_same_seed_gives_the_same_bytes_in_two_processes(hdsim: Run, tmp_path: Path) -> None:
    arguments = ("run", *SMALL, "agent=random-random", "contention=threshold", "seed=7")
    for name in ("a", "b"):
        assert hdsim(*arguments, f"hydra.run.dir={name}").returncode == 0
    assert (tmp_path / "a/jobs.csv").read_bytes() == (tmp_path / "b/jobs.csv").read_bytes()
    hdsim("run", *SMALL, "agent=random-random", "contention=threshold", "seed=8", "hydra.run.dir=c")
    assert (tmp_path / "a/jobs.csv").read_bytes() != (tmp_path / "c/jobs.csv").read_bytes()


def test_cfg_prints_and_runs_nothing(hdsim: Run, tmp_path: Path) -> None:
    done = hdsim("run", "agent=easy", "--cfg", "job", "-p", "agent")
    assert done.returncode == 0
    assert "backfill: easy" in done.stdout
    assert not list(tmp_path.iterdir())


def test_info_prints_and_runs_nothing(hdsim: Run, tmp_path: Path) -> None:
    assert "platform" in hdsim("run", "--info", "defaults").stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["agent=fcsf"], ["agent", "'fcsf'", "did you mean 'fcfs'?"]),
        (["workload.jbos=3"], ["workload.jbos", "did you mean 'jobs'?"]),
        (["workload.jobs=abc"], ["workload.jobs", "whole number", "'abc'"]),
        (["workload.path=nowhere.swf"], ["workload.path", "nowhere.swf", "bundled"]),
        (["platform.path=gaya"], ["platform.path", "did you mean 'gaia'?"]),
        (["platform.path=broken.json"], ["broken.json"]),
        (["workload.path=broken.swf"], ["broken.swf:2"]),
        (["workload.path=empty.swf"], ["empty.swf"]),
        (["workload.start=1000000"], ["workload.start"]),
        (["agent.job_policy=shortets"], ["agent.job_policy", "did you mean 'shortest'?"]),
        (["agent.path=nowhere.py"], ["agent.path", "nowhere.py"]),
        (["agent._target_=nowhere.Agent"], ["agent._target_", "nowhere"]),
        (["contention=treshold"], ["contention", "did you mean 'threshold'?"]),
        (["-m", "agent=fcfs,sjff"], ["sjff", "did you mean 'sjf'?"]),
        (["-m", "seed=1,x"], ["seed", "whole number"]),
        (["-m", "agent.job_policy=sjf,shortets"], ["agent.job_policy", "did you mean 'shortest'?"]),
        (["-m", "platform.path=gaia,gaya"], ["platform.path", "did you mean 'gaia'?"]),
        (["study=gaia"], ["`hdsim study NAME`"]),
        (["--config-dir", "nowhere"], ["--config-dir", "nowhere"]),
        (["--config-name", "nowhere"], ["nowhere"]),
    ],
)
def test_a_mistake_leaves_nothing_behind(hdsim: Run, tmp_path: Path, overrides: list[str], words: list[str]) -> None:
    (tmp_path / "broken.json").write_text('{"clusters": [')
    (tmp_path / "broken.swf").write_text("; UnixStartTime: 0\n1 0 x\n")
    (tmp_path / "empty.swf").write_text("; nothing\n")
    before = sorted(tmp_path.rglob("*"))
    assert_mistake(hdsim("run", *overrides), *words)
    assert sorted(tmp_path.rglob("*")) == before


def test_an_own_agent_from_a_file(hdsim: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FAILING_AGENT)
    assert hdsim("run", *SMALL, "agent.path=mine.py").returncode == 0


def test_a_failing_agent_keeps_its_error_in_the_manifest(hdsim: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FAILING_AGENT)
    done = hdsim("run", *SMALL, "agent.path=mine.py", "agent.at=10", "hydra.run.dir=out")
    assert done.returncode == 1
    assert "lost the plot" in done.stderr and "mine.py" in done.stderr
    assert manifest(tmp_path / "out")["status"] == "failed"
    assert "lost the plot" in str(manifest(tmp_path / "out")["error"])


def test_a_sweep_goes_on_after_a_failure_and_lists_it(hdsim: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FAILING_AGENT)
    done = hdsim("run", "-m", *SMALL, "agent.path=mine.py", "agent.at=0,10,0.5", "hydra.sweep.dir=sweep")
    assert done.returncode == 1
    states = {path.parent.name: json.loads(path.read_text())["status"] for path in tmp_path.rglob("manifest.json")}
    assert sorted(states.values()) == ["failed", "failed", "finished"]
    assert "2 of 3 runs failed" in done.stderr
    assert done.stderr.count("lost the plot") == 2


@pytest.mark.ci
def test_a_resumed_sweep_skips_what_is_finished(hdsim: Run, tmp_path: Path) -> None:
    sweep = ("run", "-m", *SMALL, "agent=fcfs,sjf", "hydra.sweep.dir=sweep")
    assert hdsim(*sweep).returncode == 0
    tables = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("jobs.csv")}
    assert len(tables) == 2
    (stopped, kept) = sorted(tables)
    unfinished = manifest(stopped.parent) | {"status": "interrupted"}
    (stopped.parent / "manifest.json").write_text(json.dumps(unfinished))
    done = hdsim(*sweep)
    assert done.returncode == 0
    assert "finished before" in done.stdout
    assert kept.stat().st_mtime_ns == tables[kept]
    assert stopped.stat().st_mtime_ns != tables[stopped]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.ci
def test_an_interrupted_run_keeps_the_jobs_finished_so_far(root: Path, tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "slow.py").write_text(SLOW_AGENT)
    process = subprocess.Popen(
        [sys.executable, "-m", "hdsim", "run", "agent.path=slow.py", "platform=teaching", "hydra.run.dir=out"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(root), "PATH": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (tmp_path / "begun").exists():
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        time.sleep(0.05)
    process.send_signal(number)
    _, stderr = process.communicate()
    assert process.returncode == 1
    assert "interrupted" in stderr and "Traceback" not in stderr
    assert manifest(tmp_path / "out")["status"] == "interrupted"
    assert 1 < len((tmp_path / "out/jobs.csv").read_text().splitlines()) < 4000


def test_a_run_directory_that_cannot_be_made(hdsim: Run) -> None:
    done = hdsim("run", "workload.jobs=5", "hydra.run.dir=/proc/nowhere/run")
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith("hdsim: error: /proc/nowhere")


def test_a_reader_that_has_enough(root: Path) -> None:
    script = 'python -m hdsim platform show gaia --help | head -c 1; echo "${PIPESTATUS[0]}"'
    environment = {**os.environ, "PYTHONPATH": str(root), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment)
    assert "Traceback" not in done.stderr
