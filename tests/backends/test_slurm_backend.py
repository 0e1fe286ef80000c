"""``hdsim slurm`` and ``backend=slurm`` on a real slurmctld with emulated nodes."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from slurm_cluster import SlurmCluster, processes_of, slurm_cluster, wait_until
from tiers import ci, nightly

from hdsim.errors import ConfigError
from hdsim.slurm.emulated import Shape
from hdsim.slurm.programs import find_programs

Run = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.xdist_group("slurm")
real = pytest.mark.requires("slurm")
CLOCK = 60.0


def trace(path: Path, jobs: int = 60, seconds: tuple[int, int] = (40, 160), gap: float = 4.0) -> Path:
    """A trace in SWF with a queue on 16 nodes of 8 CPUs, of jobs of one node and of several."""
    random = np.random.default_rng(3)
    dates = np.cumsum(random.exponential(gap, jobs)).astype(int)
    sizes = random.choice([1, 2, 4, 8, 16], jobs, p=[0.3, 0.2, 0.2, 0.2, 0.1])
    with path.open("w") as file:
        for job, (date, size) in enumerate(zip(dates - dates[0], sizes, strict=True), 1):
            runtime = random.integers(*seconds)
            file.write(f"{job} {date} -1 {runtime} {size} -1 -1 {size} {2 * runtime} -1 1 1 1 1 1 -1 -1 -1\n")
    return path


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def facts(directory: Path) -> dict[str, Any]:
    return dict(json.loads((directory / "manifest.json").read_text())["backend"])


def keys(cluster: SlurmCluster, *, rest: bool = True) -> list[str]:
    socket = cluster.emulated.socket if rest else "null"
    return ["run", "backend=slurm", f"backend.conf={cluster.emulated.conf}", f"backend.socket={socket}"]


@pytest.fixture(scope="module")
def sixteen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """16 nodes of 8 CPUs, on which all jobs have ended before and after a test."""
    from conftest import require_component

    require_component("slurm")
    with slurm_cluster(tmp_path_factory.mktemp("slurm"), Shape(16, 8, CLOCK)) as cluster:
        yield cluster


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[SlurmCluster]:
    """16 nodes of 8 CPUs for one test: a slurmctld that has lost its last seconds may drain nodes and repeat ids."""
    with slurm_cluster(tmp_path / "sl", Shape(16, 8, CLOCK)) as cluster:
        yield cluster


def assert_as_decided(cluster: SlurmCluster, directory: Path, jobs: int) -> None:
    """Every job has run once, on the nodes that were asked for, in the order of the decisions up to a tick."""
    found = rows(directory / "slurm_jobs.csv")
    assert [row["state"] for row in found] == ["COMPLETED"] * jobs
    assert [row["nodes"] for row in found] == [row["asked_nodes"] for row in found]
    assert len(rows(directory / "jobs.csv")) == jobs
    # A tick of slurmctld is a second of its clock; its scheduler sleeps a tenth of a second of the wall's.
    tick = 1 + 0.1 * CLOCK
    begun = sorted(found, key=lambda row: float(row["released"]))
    assert all(float(a["started"]) <= float(b["started"]) + tick for a, b in pairwise(begun))


@real
@pytest.mark.parametrize("accounting", [False, *ci(True)])
def test_nothing_is_left_of_a_cluster(tmp_path: Path, hdsim: Run, accounting: bool) -> None:
    folder = tmp_path / "sl"
    # Measurements of other tests keep folders there as well.
    before = set(Path("/dev/shm").glob("*faketime*"))
    options = ["--nodes", 3, "--cpus", 2, "--clock", 20, *(["--accounting"] if accounting else []), "-o", folder]
    started = hdsim("slurm", "up", *options)
    assert started.returncode == 0, started.stderr
    try:
        shown = hdsim("slurm", "status", "-o", folder)
        assert "slurmd" in shown.stdout and "3 of 3 run" in shown.stdout and "idle" in shown.stdout
        again = hdsim("slurm", "up", "-o", folder)
        assert again.returncode == 2 and again.stderr.count("\n") == 1 and "hdsim slurm down" in again.stderr
        script = f". {folder}/env && sbatch --output=/dev/null --wrap='sleep 1000' && sleep 0.5 && squeue --states=R -h"
        job = subprocess.run(["sh", "-c", script], cwd="/", capture_output=True, text=True)
        assert "n1" in job.stdout, job.stderr
        names = {process.name() for process in processes_of(folder)}
        assert {"slurmctld", "slurmd", "slurmrestd", "slurmstepd", "sleep"} <= names
        listening = [
            connection.laddr.ip
            for process in processes_of(folder)
            for connection in process.net_connections("inet")
            if connection.status == "LISTEN"
        ]
        assert len(listening) >= 4 and set(listening) == {"127.0.0.1"}
    finally:
        down = hdsim("slurm", "down", "-o", folder)
    assert down.returncode == 0, down.stderr
    assert not processes_of(folder) and not folder.exists()
    assert set(Path("/dev/shm").glob("*faketime*")) <= before
    assert hdsim("slurm", "down", "-o", folder).returncode == 2


def test_missing_programs_are_named_with_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "shutil.which", lambda name, path: None if name in ("slurmctld", "faketime") else f"/bin/{name}"
    )
    with pytest.raises(ConfigError, match=r"slurmctld, faketime on the PATH.*apt-get install slurmctld faketime`$"):
        find_programs(["slurmctld", "slurmd", "faketime"])


@real
@pytest.mark.parametrize(("agent", "rest"), [("easy", True), ("sjf-least_allocated", False)])
def test_jobs_run_once_where_and_as_agents_decide(
    tmp_path: Path, hdsim: Run, sixteen: SlurmCluster, agent: str, rest: bool
) -> None:
    before = len(sixteen.allocated())
    done = hdsim(
        *keys(sixteen, rest=rest),
        f"agent={agent}",
        f"workload.path={trace(tmp_path / 't.swf')}",
        f"backend.name={agent}-{rest}",
        "hydra.run.dir=out",
    )
    assert done.returncode == 0, done.stderr
    assert_as_decided(sixteen, tmp_path / "out", 60)
    ids = [int(row["slurm_job_id"]) for row in rows(tmp_path / "out" / "slurm_jobs.csv")]
    assert sorted(sixteen.allocated()[before:]) == sorted(ids)


def assert_each_ran_once(cluster: SlurmCluster, name: str, jobs: int) -> None:
    found = cluster.of_run(name)
    assert len(found) == jobs and {state for _, state in found} == {"COMPLETED"} and set(found.values()) == {1}


@real
@pytest.mark.ci
@pytest.mark.parametrize("rest", [True, *nightly(False)])
def test_slurmctld_is_killed_in_mid_run(tmp_path: Path, fresh: SlurmCluster, rest: bool) -> None:
    name = f"controller-{rest}"
    path = trace(tmp_path / "t.swf", 40)
    settings = ["agent=easy", f"workload.path={path}", f"backend.name={name}", "backend.start_timeout=4"]
    run = start(tmp_path, *keys(fresh, rest=rest), *settings)
    try:
        wait_until(lambda: fresh.ended(name) >= 10, "the first ends")
        restart = fresh.kill("slurmctld")
        time.sleep(3.0)
        restart()
        _, told = run.communicate(timeout=120)
    finally:
        run.kill()
    assert run.returncode == 0, told
    found = rows(tmp_path / "out" / "slurm_jobs.csv")
    assert [row["nodes"] for row in found] == [row["asked_nodes"] for row in found]
    assert [row["final_state"] for row in rows(tmp_path / "out" / "jobs.csv")] == ["COMPLETED_SUCCESSFULLY"] * 40
    assert_each_ran_once(fresh, name, 40)


@real
def test_hdsim_is_killed_in_mid_run(tmp_path: Path, hdsim: Run, sixteen: SlurmCluster) -> None:
    name = "scheduler"
    path = trace(tmp_path / "t.swf", 40)
    run = start(tmp_path, *keys(sixteen), "agent=easy", f"workload.path={path}", f"backend.name={name}")
    try:
        wait_until(lambda: sixteen.ended(name) >= 10, "the first ends")
    finally:
        run.kill()
        run.communicate()
    assert 10 <= sixteen.ended(name) < 40
    other = trace(tmp_path / "other.swf", 39)
    refused = hdsim(*keys(sixteen), "agent=easy", f"workload.path={other}", f"backend.name={name}")
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1, refused.stderr
    assert "backend.name: expected the workload of the run" in refused.stderr
    again = hdsim(
        *(*keys(sixteen, rest=False), "agent=easy", f"workload.path={path}", f"backend.name={name}"),
        "hydra.run.dir=again",
    )
    assert again.returncode == 0, again.stderr
    assert f"the run {name} is continued" in again.stderr and facts(tmp_path / "again")["continued"]
    assert [row["final_state"] for row in rows(tmp_path / "again" / "jobs.csv")] == ["COMPLETED_SUCCESSFULLY"] * 40
    assert_each_ran_once(sixteen, name, 40)


@real
def test_held_jobs_of_users_are_scheduled(tmp_path: Path, sixteen: SlurmCluster) -> None:
    plain = [sixteen.submit("--hold", "--ntasks=4", "--cpus-per-task=2") for _ in range(6)]
    wide = sixteen.submit("--hold", "--ntasks=20")
    there = sixteen.submit("--hold", "--constraint=n3", "--time=10")
    alone = sixteen.submit("--hold", "--nodelist=n[3-4]", "--ntasks=16")
    large = sixteen.submit("--hold", "--ntasks=1000")
    running = sixteen.submit("--ntasks=1", seconds=3)
    run = start(
        tmp_path,
        *(*keys(sixteen), "agent=sjf-least_allocated", "workload=cluster", "backend.stop_when_idle=null"),
    )
    try:
        first = [*plain, wide, there, running]
        wait_until(lambda: all(sixteen.states()[job] == "COMPLETED" for job in first), "the first")
        blocking = sixteen.submit("--hold", "--ntasks=128", seconds=3)
        wait_until(lambda: sixteen.states()[blocking] == "RUNNING", "a job that came later")
        cancelled, killed = (sixteen.submit("--hold", "--ntasks=2", seconds=100) for _ in range(2))
        time.sleep(0.5)
        sixteen.command("scancel", cancelled)
        wait_until(lambda: sixteen.states()[killed] == "RUNNING", "a job that waited")
        sixteen.command("scancel", killed)
        sixteen.command("scontrol", "update", "nodename=n[2-16]", "state=drain", "reason=test")
        time.sleep(1.5)
        after = sixteen.submit("--hold", "--ntasks=8")
        wait_until(lambda: sixteen.states()[after] == "COMPLETED", "a job on the only node")
        assert sixteen.command("squeue", "--noheader", "--states=all", f"--jobs={after}", "--format=%N").strip() == "n1"
        sixteen.command("scontrol", "update", "nodename=n[2-16]", "state=resume")
        requeued = sixteen.submit("--hold", "--ntasks=1", seconds=2)
        wait_until(lambda: sixteen.states()[requeued] == "RUNNING", "a job to requeue")
        sixteen.command("scontrol", "requeue", requeued)
        # It may wait for a moment only.
        wait_until(lambda: "Restarts=1" in sixteen.command("scontrol", "show", "job", requeued), "the requeue")
        wait_until(lambda: sixteen.states()[requeued] == "COMPLETED", "its second run")
        run.send_signal(signal.SIGTERM)
        _, told = run.communicate(timeout=60)
    finally:
        run.kill()
        sixteen.command("scancel", "--state=PENDING")
    assert run.returncode == 0, told
    assert f"job {alone} of Slurm stays held: hdsim does not know --nodelist=n[3-4], several nodes" in told
    assert f"job {large} of Slurm stays held" in told
    assert {row["slurm_job_id"]: row["nodes"] for row in rows(tmp_path / "out" / "slurm_jobs.csv")}[str(there)] == "n3"
    found = {row["job_id"]: row for row in rows(tmp_path / "out" / "jobs.csv")}
    assert found[str(killed)]["final_state"] == "COMPLETED_KILLED"
    assert found[str(cancelled)]["final_state"] == "REJECTED"
    assert found[str(requeued)]["final_state"] == "COMPLETED_SUCCESSFULLY"
    assert "node n2 is idle+drain" in told and "node n2 is back" in told


@real
@pytest.mark.parametrize("rest", [True, *ci(False)])
def test_gpus_memory_and_constraints_of_users_hold(tmp_path: Path, hdsim: Run, rest: bool) -> None:
    with slurm_cluster(tmp_path / "sl", Shape(8, 8, gpus=4, memory=16_000)) as cluster:
        other = cluster.submit("--gres=gpu:3", "--mem=9G", "--nodelist=n1", "--ntasks=2", seconds=120)
        wait_until(lambda: cluster.states()[other] == "RUNNING", "the job of someone else")
        asked = {
            name: cluster.submit("--hold", *options.split(), seconds=0.5)
            for name, options in {
                "tasks": "--ntasks=2 --gpus-per-task=2 --mem-per-cpu=100",
                "node": "--gres=gpu:2 --mem=8G --exclude=n[3-8]",
                "again": "--gres=gpu:3 --mem=8G --exclude=n[3-8]",
                "there": "--gpus=3 --ntasks=4 --nodelist=n3",
                "feature": "--constraint=n4|n5 --mem=12G",
                "memory": "--mem=12G --nodelist=n5",
                "nodes": "--gres=gpu:1 --nodes=2 --ntasks=2",
                "kind": "--gres=gpu:k80:1",
                "list": "--nodelist=n[5-6] --ntasks=16",
                "large": "--mem=15G --nodelist=n1",
            }.items()
        }
        done = hdsim(
            *(*keys(cluster, rest=rest), "workload=cluster", "backend.stop_when_idle=8", "backend.partition=main"),
            *("agent=greedy", "hydra.run.dir=out"),
        )
        assert done.returncode == 0, done.stderr
        for name, told in (
            ("nodes", "hdsim does not know --gres=gres:gpu:1 on several nodes"),
            ("kind", "no node of the platform is in partition main and as it asks for"),
            ("list", "hdsim does not know --nodelist=n[5-6], several nodes"),
        ):
            assert f"job {asked[name]} of Slurm stays held: {told}" in done.stderr
        found = {int(row["slurm_job_id"]): row for row in rows(tmp_path / "out" / "slurm_jobs.csv")}
        ran = ("tasks", "node", "again", "there", "feature", "memory")
        for name in ran:
            row = found[asked[name]]
            assert row["nodes"] == row["asked_nodes"] and row["releases"] == "1", (name, row)
        # The first node has one GPU and 7 GiB left beside the job of someone else.
        assert {found[asked[name]]["nodes"] for name in ("node", "again")} == {"n2"}
        assert found[asked["there"]]["nodes"] == "n3" and found[asked["memory"]]["nodes"] == "n5"
        assert found[asked["feature"]]["nodes"] in ("n4", "n5")
        first, second = sorted(
            (found[asked[name]] for name in ("node", "again")), key=lambda row: float(row["started"])
        )
        assert float(second["started"]) >= float(first["finished"])
        states = cluster.states()
        assert all(states[asked[name]] == "COMPLETED" for name in ran)
        assert all(states[job] == "PENDING" for name, job in asked.items() if name not in ran)


@real
def test_jobs_of_a_trace_get_gpus(tmp_path: Path, hdsim: Run) -> None:
    job = {"subtime": 0, "profile": "p", "walltime": 100}
    asked = [{"res": 4, "gpus": 4}, {"res": 2, "gpus": 2}, {"res": 1, "gpus": 3}, {"res": 8}]
    jobs = [{**job, "id": number, **each} for number, each in enumerate(asked, 1)]
    profiles = {"p": {"type": "delay", "delay": 1}}
    (tmp_path / "t.json").write_text(json.dumps({"nb_res": 16, "jobs": jobs, "profiles": profiles}))
    with slurm_cluster(tmp_path / "sl", Shape(2, 8, gpus=4)) as cluster:
        done = hdsim(*keys(cluster), "workload.path=t.json", "agent=easy", "hydra.run.dir=out")
        assert done.returncode == 0, done.stderr
        assert_as_decided(cluster, tmp_path / "out", 4)
        shown = cluster.command("scontrol", "--oneliner", "show", "job")
        # A job of a trace with GPUs is one pod here, which is a task.
        assert all(f"TresPerTask=gres:gpu:{number} " in f"{shown} " for number in (2, 3, 4))


@real
@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (["contention=threshold"], "contention: expected none"),
        (["backend.socket=nowhere"], "backend.socket: expected the Unix socket"),
        (["backend.conf=nowhere"], "backend.conf: expected the slurm.conf"),
        (["platform=ten_nodes"], "expected the nodes of platform"),
        (["backend.name=a:b"], "backend.name: expected a text without colons"),
        (["failures=exponential"], "failures: expected none"),
    ],
)
def test_it_refuses_by_name(tmp_path: Path, hdsim: Run, sixteen: SlurmCluster, settings: list[str], told: str) -> None:
    done = hdsim(*keys(sixteen), f"workload.path={trace(tmp_path / 't.swf', 3)}", "agent=fcfs", *settings)
    assert done.returncode == 2, done.stderr
    assert told in done.stderr and "Traceback" not in done.stderr


@real
@pytest.mark.parametrize("rest", [True, *ci(False)])
def test_jobs_are_killed_by_agents_and_by_their_limits(
    tmp_path: Path, hdsim: Run, sixteen: SlurmCluster, rest: bool
) -> None:
    (tmp_path / "killer.py").write_text(
        "import hdsim\n\n\n"
        "class Killer(hdsim.Agent):\n"
        "    def decide(self, cluster):\n"
        "        for job in cluster.queue:\n"
        "            cluster.start(job)\n"
        "        if 1 in cluster.ended and 0 in cluster.running:\n"
        "            cluster.kill(0)\n"
    )
    lines = [
        f"{job} 0 -1 {runtime} 2 -1 -1 2 {requested} -1 1 1 1 1 1 -1 -1 -1\n"
        for job, runtime, requested in ((1, 9000, 9000), (2, 30, 600), (3, 600, 60))
    ]
    (tmp_path / "t.swf").write_text("".join(lines))
    done = hdsim(
        *(*keys(sixteen, rest=rest), "agent=killer.py", "workload.path=t.swf", "workload.walltime=requested"),
        *("backend.kill_at_walltime=true", f"backend.name=kills-{rest}", "hydra.run.dir=out"),
    )
    assert done.returncode == 0, done.stderr
    states = [row["final_state"] for row in rows(tmp_path / "out" / "jobs.csv")]
    assert states == ["COMPLETED_KILLED", "COMPLETED_SUCCESSFULLY", "COMPLETED_WALLTIME_REACHED"]


@real
@pytest.mark.ci
def test_a_slurmctld_that_stays_silent_is_named(tmp_path: Path, hdsim: Run) -> None:
    with slurm_cluster(tmp_path / "sl", Shape(2, 4, CLOCK)) as cluster:
        path = trace(tmp_path / "t.swf", 5, (2000, 3000))
        run = start(tmp_path, *keys(cluster, rest=False), "agent=fcfs", f"workload.path={path}", "backend.timeout=2")
        try:
            wait_until(lambda: "RUNNING" in cluster.states().values(), "a start")
            cluster.kill("slurmctld")
            _, told = run.communicate(timeout=60)
        finally:
            run.kill()
    assert run.returncode == 1 and "slurmctld has been silent for" in told, told


def start(folder: Path, *arguments: str, output: str = "out") -> subprocess.Popen[str]:
    """Starts ``hdsim`` in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "hdsim", *arguments, f"hydra.run.dir={output}"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
