"""Sweeps by Hydra's launchers joblib, submitit and Ray: complete, whatever happens to workers and nodes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from ray_nodes import ray_nodes
from tiers import nightly

ROOT = Path(__file__).resolve().parents[2]
RUNS = ("platform=teaching", "workload=lublin", "workload.generate.jobs=200")
#: An agent that ends its process, as the operating system does for lack of memory.
DEADLY = """
import os, signal
from hdsim.agents.classic import ClassicAgent

class Deadly(ClassicAgent):
    def __init__(self, ends):
        super().__init__()
        self.ends = ends

    def decide(self, cluster):
        if self.ends:
            os.kill(os.getpid(), signal.SIGKILL)
        super().decide(cluster)
"""


def start(tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    """Starts ``hdsim run -m`` in a new interpreter, for libraries that start processes of their own."""
    command = [sys.executable, "-m", "hdsim", "run", "-m", *RUNS, "hydra.sweep.dir=s", *arguments]
    return subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finished(folder: Path) -> dict[str, str]:
    """Run directories of finished runs and when they began."""
    manifests = {path.parent.name: json.loads(path.read_text()) for path in folder.glob("*/manifest.json")}
    return {name: manifest["start"] for name, manifest in manifests.items() if manifest["status"] == "finished"}


def same_jobs(tmp_path: Path, name: str, hdsim: Callable[..., subprocess.CompletedProcess[str]]) -> bool:
    """Whether a run of the sweep has the bytes of ``hdsim run`` with its overrides."""
    alone = hdsim("run", *RUNS, *name.split(","), "hydra.run.dir=alone")
    assert alone.returncode == 0, alone.stderr
    return (tmp_path / "alone/jobs.csv").read_bytes() == (tmp_path / "s" / name / "jobs.csv").read_bytes()


@pytest.mark.requires("hydra-joblib-launcher")
@pytest.mark.nightly
def test_joblib_loses_only_the_run_that_ends_its_process(
    tmp_path: Path, hdsim: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    (tmp_path / "deadly.py").write_text(DEADLY)
    sweep = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "agent.path=deadly.py")
    process = start(tmp_path, *sweep, "agent.ends=true,false")
    _, errors = process.communicate()
    assert process.returncode == 1, errors
    assert set(finished(tmp_path / "s")) == {"agent.ends=False"}
    assert "1 of 2 runs failed" in errors
    assert "terminated" in errors


@pytest.mark.requires("hydra-joblib-launcher")
@pytest.mark.ci
def test_joblib_gives_the_bytes_of_single_runs_and_skips_what_has_finished(
    tmp_path: Path, hdsim: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    sweep = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "agent=fcfs,sjf")
    process = start(tmp_path, *sweep, "seed=1,2")
    assert process.communicate()[1] == ""
    before = finished(tmp_path / "s")
    process = start(tmp_path, *sweep, "seed=1,2,3")
    told, errors = process.communicate()
    assert process.returncode == 0, errors
    assert "4 of 6 runs finished before" in told
    after = finished(tmp_path / "s")
    assert len(after) == 6
    assert before.items() <= after.items()
    assert same_jobs(tmp_path, "agent=sjf,seed=2", hdsim)


@pytest.mark.requires("hydra-submitit-launcher")
@pytest.mark.ci
def test_submitit_on_this_machine(tmp_path: Path, hdsim: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    (tmp_path / "deadly.py").write_text(DEADLY)
    process = start(tmp_path, "hydra/launcher=submitit_local", "agent.path=deadly.py", "agent.ends=true,false")
    _, errors = process.communicate()
    assert process.returncode == 1, errors
    assert set(finished(tmp_path / "s")) == {"agent.ends=False"}
    assert "1 of 2 runs failed" in errors
    assert str(tmp_path / "s/.submitit") in errors  # Where the messages of the job are.
    assert (tmp_path / "s/agent.ends=False/.hydra/overrides.yaml").is_file()


@pytest.mark.requires("ray")
@pytest.mark.xdist_group("ray")
@pytest.mark.parametrize(
    ("runs", "sweep"),
    [
        (12, ("platform=teaching,ten_nodes", "seed=1,2,3", "agent=easy,fcfs")),
        *nightly(
            (
                96,
                (
                    "platform=teaching,eight_nodes,ten_nodes,sixteen_nodes",
                    "seed=1,2,3",
                    "agent=fcfs,sjf,easy,ljf,smallest-high_gflops,first-low_power,shortest-high_cores,random-random",
                ),
            )
        ),
    ],
)
@pytest.mark.ci
def test_ray_completes_all_runs_although_a_node_is_lost(
    runs: int, sweep: tuple[str, ...], tmp_path: Path, hdsim: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    with ray_nodes(3) as nodes:
        process = start(tmp_path, *sweep, "hydra/launcher=ray", f"hydra.launcher.address={nodes.address}")
        while len(list((tmp_path / "s").glob("*/jobs.csv"))) < runs // 5:
            assert process.poll() is None, process.communicate()
            time.sleep(0.1)
        nodes.remove()
        assert len(list((tmp_path / "s").glob("*/jobs.csv"))) < runs
        assert process.poll() is None
        told, errors = process.communicate()
    assert process.returncode == 0, errors
    assert errors == ""
    assert len(finished(tmp_path / "s")) == runs
    assert told.startswith(f"{runs} runs in ") and f"[{runs}/{runs}] " in told
    assert same_jobs(tmp_path, "agent=easy,platform=ten_nodes,seed=3", hdsim)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("--jobs", "2", "hydra/launcher=ray"), "hydra/launcher: expected basic with --jobs above 1"),
        (("hydra/launcher=slurm",), "hydra/launcher: expected one of basic, "),
        (
            ("hydra/launcher=ray", "hydra.launcher.address=127.0.0.1:1"),
            "hydra.launcher.address: expected a Ray cluster",
        ),
        (
            ("hydra.launcher._target_=a.RQLauncher",),
            "expected basic, joblib, submitit_local, submitit_slurm or ray, got RQ",
        ),
    ],
)
@pytest.mark.requires("ray")
@pytest.mark.xdist_group("ray")
def test_what_cannot_be_done_is_refused_by_name(
    overrides: tuple[str, ...], message: str, hdsim: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    refused = hdsim("run", "-m", *RUNS, "seed=1,2", *overrides)
    assert refused.returncode in (1, 2)
    assert message in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
