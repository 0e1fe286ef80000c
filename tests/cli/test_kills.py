"""kill -9 at any point, a full disk, a directory that cannot be written: no result is lost, and none is another."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from conftest import Warm
from tiers import ci, nightly

#: Kills the process at one of the operations on files below a folder: each is counted in a file by a byte.
KILLER = """
import os, signal, sys

folder, last, log = (os.environ[f"KILL_{name}"] for name in ("IN", "AT", "LOG"))
log = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
process = os.getpid()


def count(event, args):
    if event in ("open", "os.mkdir", "os.rename", "os.remove", "os.truncate", "sqlite3.connect"):
        if os.path.abspath(os.fspath(args[0]) if not isinstance(args[0], int) else "/").startswith(folder):
            os.write(log, b".")
            if os.getpid() == process and 0 < int(last) <= os.fstat(log).st_size:
                os.kill(process, signal.SIGKILL)


sys.addaudithook(count)
"""
REPLAY = ("platform=teaching", "workload.jobs=60", "contention=fair_share")
TRAINING = (
    "platform=teaching",
    "workload.jobs=300",
    "train.steps=96",
    "train.evaluate_every=32",
    "train.checkpoint_every=16",
    "train.log_every=32",
    "train.validation=1",
    "train.test=1",
    "env.jobs=20",
    "agent.num_envs=2",
    "agent.num_steps=8",
    "train.tensorboard=false",
    "train.baselines=[]",
)


#: A study of two runs.
STUDY = """
title: Two orders
question: Which order is better?
commands:
  orders: run -m platform=teaching workload.jobs=60 agent=fcfs,sjf
tables:
  orders: {compare: orders, metrics: [makespan]}
"""

#: Files of a site with three jobs.
SITE = {
    "slurm.conf": "ClusterName=two\nNodeName=n[1-2] CPUs=4 RealMemory=1000\n"
    "PartitionName=main Nodes=ALL Default=YES MaxTime=1-0\n",
    "sacct.txt": "JobID|User|Partition|State|Submit|Start|End|Timelimit|ReqCPUS|NCPUS|NNodes|NodeList\n"
    "1|ann|main|COMPLETED|2026-03-02T10:00:00|2026-03-02T10:00:05|2026-03-02T10:30:05|01:00:00|4|4|1|n1\n"
    "2|bob|main|COMPLETED|2026-03-02T10:00:10|2026-03-02T10:00:15|2026-03-02T11:30:15|02:00:00|4|4|1|n2\n"
    "3|ann|main|FAILED|2026-03-02T10:01:00|2026-03-02T10:30:06|2026-03-02T10:40:06|01:00:00|2|2|1|n1\n",
}


class Case(NamedTuple):
    """A command that ends in a folder `out`, however often it is killed."""

    command: tuple[str, ...]
    again: tuple[str, ...] = ()  # Options of the command that goes on.
    inputs: tuple[tuple[str, ...], ...] = ()  # Commands that make the folder `in`, which it reads,
    files: Mapping[str, str] = {}  # beside these files.


RUNS = tuple(("run", *REPLAY, f"agent={agent}", f"hydra.run.dir=in/{agent}") for agent in ("fcfs", "sjf"))
CASES = {
    "run": Case(("run", *REPLAY, "hydra.run.dir=out")),
    "sweep": Case(("run", "-m", *REPLAY, "agent=fcfs,easy,random", "hydra.sweep.dir=out")),
    "train": Case(("train", *TRAINING, "hydra.run.dir=out"), ("resume=true",)),
    "study": Case(("study", "in/own.yaml", "-o", "out"), files={"own.yaml": STUDY}),
    "rerun": Case(("rerun", "in/fcfs", "-o", "out/again"), inputs=RUNS[:1]),
    "generate": Case(("workload", "generate", "--jobs", "300", "-o", "out/w.swf.gz")),
    "import a site": Case(("site", "import", "in", "-o", "out"), files=SITE),
    "what if": Case(
        ("whatif", "in/site", "partition.main.max_time=2h", "--html", "out/page.html"),
        inputs=(("site", "import", "in", "-o", "in/site"),),
        files=SITE,
    ),
    "report": Case(("report", "in/fcfs", "-o", "out/page.html"), inputs=RUNS),
    "figures": Case(("report", "in/fcfs", "--figures", "out"), inputs=RUNS),
    "compare": Case(("compare", "in", "-o", "out"), inputs=RUNS),
    "convert": Case(("workload", "convert", "lublin_4000", "-o", "out/w.json.gz")),
    "convert a platform": Case(("platform", "convert", "gaia", "-o", "out/gaia.xml")),
    "gang": Case(("bsp", "run", "supersteps=60", "hydra.run.dir=out")),
    "tune": Case(
        (
            "tune",
            *REPLAY,
            "seed=1,2",
            "tune.space.agent.job_policy=fcfs,sjf",
            "tune.space.agent.backfill=none,easy",
            "tune.trials=4",
            "hydra.run.dir=out",
        )
    ),
    "tune trainings": Case(
        (
            "tune",
            "agent=ppo",
            *TRAINING,
            "tune.space.agent.learning_rate=log(1e-3,1)",
            "tune.trials=2",
            "hydra.run.dir=out",
        )
    ),
    "sweep --jobs 2": Case(("run", "-m", "--jobs", "2", *REPLAY, "agent=fcfs,easy,random", "hydra.sweep.dir=out")),
    "tune --jobs 2": Case(
        (
            "tune",
            "--jobs",
            "2",
            *REPLAY,
            "agent=classic",
            "tune.space.agent.job_policy=fcfs,sjf",
            "tune.space.agent.backfill=none,easy",
            "tune.trials=4",
            "hydra.run.dir=out",
        )
    ),
}
#: Files that depend on wall time, or of which only the content counts.
TIMED = {
    "manifest.json",
    "runs.csv",
    "runs.parquet",
    "progress.csv",
    "state.safetensors",
    "study.db",
    "history.png",
    "model_card.json",
    "hydra.yaml",
    "study.json",
    "study.html",
}


class Place:
    """A working directory for a case.

    Args:
        folder: The directory.
        warm: Runs its commands.
        case: The case.
    """

    def __init__(self, folder: Path, warm: Warm, case: Case) -> None:
        self.folder, self.case, self._warm = folder, case, warm
        (folder / "killer").mkdir(parents=True)
        (folder / "out").mkdir()
        (folder / "killer/sitecustomize.py").write_text(KILLER)

    def start(self, *options: str, at: int = 0, killer: bool = True) -> subprocess.Popen[str]:
        """Starts the command, which is killed at operation `at`, 0 for never."""
        root = Path(__file__).parents[2]
        environment = {
            **os.environ,
            "PYTHONPATH": f"{root}:{self.folder / 'killer'}" if killer else str(root),
            "KILL_IN": str(self.folder / "out"),
            "KILL_AT": str(at),
            "KILL_LOG": str(self.folder / "log"),
        }
        return subprocess.Popen(
            [*self._warm.command("hdsim"), *self.case.command, *options],
            cwd=self.folder,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def finish(self) -> str:
        """Lets the command go on to its end."""
        process = self.start(*self.case.again, killer=False)
        output = process.communicate()[0]
        if self.case.again and "without resume=true one begins there" in output:
            process = self.start(killer=False)
            output = process.communicate()[0]
        assert process.returncode == 0, output
        assert "Traceback" not in output, output
        return output

    def results(self) -> dict[str, bytes]:
        """Bytes of the files, all of them by name, those that depend on wall time empty."""
        out = self.folder / "out"
        return {
            str(path.relative_to(out)): b"" if path.name in TIMED else path.read_bytes()
            for path in out.rglob("*")
            if path.is_file()
        }

    def operations(self) -> int:
        """Number of operations on files so far."""
        return (self.folder / "log").stat().st_size


def check(name: str, points: int, tmp_path: Path, warm: Warm) -> None:
    """Kills a command at random points, each in a new directory, and compares what comes of it in the end."""
    case = CASES[name.removesuffix(" --jobs 2")]
    whole = Place(tmp_path / "whole", warm, case)
    for file, text in case.files.items():
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / file).write_text(text)
    for command in case.inputs:
        made = subprocess.run([*warm.command("hdsim"), *command], cwd=tmp_path, capture_output=True, text=True)
        assert made.returncode == 0, made.stderr
    if (tmp_path / "in").exists():
        shutil.copytree(tmp_path / "in", whole.folder / "in")
    output = whole.start().communicate()[0]
    expected, operations = whole.results(), whole.operations()
    assert expected and operations > 1, output
    parallel = "--jobs" in name
    rng = random.Random(f"{name} {points}")
    for number in range(points):
        place = Place(tmp_path / f"killed{number}", warm, CASES[name])
        if (tmp_path / "in").exists():
            shutil.copytree(tmp_path / "in", place.folder / "in")
        at = rng.randint(1, operations)
        process = place.start(at=at)
        assert "Traceback" not in process.communicate()[0]
        assert parallel or process.returncode == 137, (name, at)
        place.finish()
        # Left may be the lock of a run that was finished when it was killed, which the operating system has released,
        # and a temporary file, which a later writer removes when it is a minute old.
        found = {file: content for file, content in place.results().items() if Path(file).suffix != ".tmp"}
        found = {file: content for file, content in found.items() if Path(file).name != ".lock"}
        if "tune --jobs" in name:
            # The order in which trials end has a part in the next ones.
            assert len((place.folder / "out/tune.csv").read_text().splitlines()) == 5, (name, at)
            continue
        assert sorted(found) == sorted(expected), (name, at)
        different = [file for file in expected if found[file] != expected[file]]
        assert not different, (name, at, different)


@pytest.mark.requires("optuna")
@pytest.mark.parametrize(
    "name",
    [
        "run",
        *ci("sweep", "convert", "import a site"),
        *nightly("gang", "report", "compare", "study", "tune", "rerun", "generate", "what if"),
    ],
)
def test_a_killed_command_ends_with_the_same_files(name: str, tmp_path: Path, warm_replays: Warm) -> None:
    check(name, 1, tmp_path, warm_replays)


@pytest.mark.requires("torch", "optuna")
@pytest.mark.ci
def test_a_killed_training_ends_with_the_same_files(tmp_path: Path, warm_learning: Warm) -> None:
    check("train", 1, tmp_path, warm_learning)


@pytest.mark.nightly
@pytest.mark.requires("torch", "optuna")
@pytest.mark.parametrize("name", CASES)
def test_commands_killed_at_fifty_points(name: str, tmp_path: Path, warm_learning: Warm) -> None:
    points = {
        "run": 12,
        "gang": 8,
        "study": 4,
        "report": 3,
        "figures": 3,
        "compare": 3,
        "convert": 3,
        "convert a platform": 3,
        "rerun": 3,
        "generate": 3,
        "import a site": 3,
        "what if": 3,
        "sweep": 10,
        "train": 10,
        "tune": 8,
        "tune trainings": 4,
        "sweep --jobs 2": 3,
        "tune --jobs 2": 3,
    }
    check(name, points[name], tmp_path, warm_learning)


@pytest.fixture
def small_disk(tmp_path: Path, root: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs ``hdsim`` with a file system of a size, mounted on the folder `disk`, whose files are in `kept` afterwards.

    The mount is one of a user's own name space; where there are none the test is skipped.
    """
    disk = tmp_path / "disk"
    disk.mkdir()
    spaces = ["unshare", "--user", "--map-root-user", "--mount"]

    def run(options: str, *args: str) -> subprocess.CompletedProcess[str]:
        script = f'mount -t tmpfs -o {options} tmpfs disk; "$@"; status=$?; cp -r disk kept; exit $status'
        command = [*spaces, "sh", "-c", script, "sh", sys.executable, "-m", "hdsim", *args]
        environment = {**os.environ, "PYTHONPATH": str(root)}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)

    try:
        mounted = subprocess.run([*spaces, "mount", "-t", "tmpfs", "tmpfs", disk], capture_output=True).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("no mounts in name spaces of users")
    return run


def errors(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Lines of standard error but notes about the trace."""
    assert "Traceback" not in done.stderr
    return [line for line in done.stderr.splitlines() if line and "dropped" not in line]


def statuses(folder: Path) -> list[str]:
    """Statuses of the runs in a folder whose results are whole."""
    manifests = [json.loads(path.read_text()) for path in sorted(folder.rglob("manifest.json"))]
    return [manifest["status"] for manifest in manifests]


@pytest.mark.nightly
def test_a_full_disk_ends_a_sweep_with_the_finished_runs_kept(
    small_disk: Callable, hdsim: Callable, tmp_path: Path
) -> None:
    sweep = ("run", "-m", "platform=teaching", "workload.jobs=400", "agent=fcfs,easy,sjf,saf", "hydra.sweep.dir=disk/s")
    done = small_disk("size=300k", *sweep)
    assert done.returncode == 1
    (line,) = errors(done)  # about the table of the sweep; failures of runs are among the lines of progress
    assert line.startswith("hdsim: error: ") and "No space left on device" in line
    assert "No space left on device" in done.stdout
    finished = statuses(tmp_path / "kept").count("finished")
    assert 1 <= finished < 4
    again = hdsim(*sweep[:-1], "hydra.sweep.dir=kept/s")
    assert again.returncode == 0 and f"{finished} of 4 runs finished before" in again.stdout


@pytest.mark.nightly
@pytest.mark.requires("optuna")
def test_a_full_disk_ends_a_search_that_goes_on_with_more_room(
    small_disk: Callable, tmp_path: Path, warm_replays: Warm
) -> None:
    case = CASES["tune"]
    done = small_disk("size=350k", *case.command[:-1], "hydra.run.dir=disk/out")
    (line,) = errors(done)
    assert done.returncode == 1
    assert line.startswith("hdsim: error: ") and ("disk is full" in line or "No space left" in line)
    whole, rest = Place(tmp_path / "whole", warm_replays, case), Place(tmp_path / "rest", warm_replays, case)
    whole.finish()
    shutil.copytree(tmp_path / "kept/out", tmp_path / "rest/out")
    assert "trials finished before" in rest.finish()
    assert (rest.folder / "out/tune.csv").read_bytes() == (whole.folder / "out/tune.csv").read_bytes()


@pytest.mark.requires("torch", "optuna")
@pytest.mark.parametrize(
    "name", ["run", "sweep", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("train", "tune"))]
)
def test_a_directory_that_cannot_be_written_is_one_line(name: str, small_disk: Callable) -> None:
    *command, _ = CASES[name].command
    key = "hydra.sweep.dir" if name == "sweep" else "hydra.run.dir"
    done = small_disk("ro", *command, f"{key}=disk/out")
    lines = errors(done)
    assert done.returncode in (1, 2) and "Read-only file system" in lines[-1]
    assert lines[0].startswith("hdsim: error: ") and len(lines) == 1


@pytest.mark.parametrize(
    "command",
    [
        command if command[0] in ("report", "bsp", "site") else nightly((command,))[0]
        for command in (
            ("report", "r", "-o", "disk/page.html"),
            ("report", "r", "--figures", "disk/figures"),
            ("compare", "r", "r2", "-o", "disk/compare"),
            ("workload", "generate", "--jobs", "3000", "-o", "disk/w.swf"),
            ("workload", "convert", "lublin_4000", "-o", "disk/w.json"),
            ("platform", "convert", "gaia", "-o", "disk/gaia.xml"),
            ("bsp", "run", "supersteps=200", "hydra.run.dir=disk/gang"),
            ("study", "own.yaml", "-o", "disk/study"),
            ("rerun", "r", "-o", "disk/again"),
            ("site", "import", "lab", "-o", "disk/site"),
            ("whatif", "site", "--html", "disk/page.html"),
        )
    ],
    ids=lambda command: " ".join(word for word in command if "/" not in word),
)
@pytest.mark.ci
def test_a_full_disk_is_no_mistake_of_the_user(
    command: tuple[str, ...], small_disk: Callable, hdsim: Callable, tmp_path: Path
) -> None:
    (tmp_path / "own.yaml").write_text(STUDY)
    (tmp_path / "lab").mkdir()
    for file, content in SITE.items():
        (tmp_path / "lab" / file).write_text(content)
    if command[0] == "whatif":
        assert hdsim("site", "import", "lab", "-o", "site").returncode == 0
    if command[0] in ("report", "compare", "rerun"):
        for agent, name in (("fcfs", "r"), ("sjf", "r2")):
            done = hdsim("run", "platform=teaching", "workload.jobs=20", f"agent={agent}", f"hydra.run.dir={name}")
            assert done.returncode == 0, done.stderr
    done = small_disk("size=12k", *command)
    (line,) = errors(done)
    assert done.returncode == 1 and line.startswith("hdsim: error: ") and "No space left on device" in line
