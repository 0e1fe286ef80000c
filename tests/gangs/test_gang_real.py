"""Real runs of gangs: real ZooKeeper, real stress-ng, real faults."""

from __future__ import annotations

import csv
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Warm
from tiers import nightly

from hdsim.errors import ConfigError
from hdsim.gangs.real.journal import Journal
from hdsim.gangs.real.server import Server
from hdsim.gangs.real.session import Closed, DoubleBarrier, KazooSession, Queue

ROOT = Path(__file__).resolve().parents[2]
TASKS = ("bsearch", "cap", "vecmath")
SCALE = "stressors.scale=0.3"
PATIENCE = 120.0  # s, until a wait has failed

# One worker of pytest runs them all: it measures the profile once, and two gangs would want more than two cores.
pytestmark = [pytest.mark.requires("zookeeper", "stress-ng"), pytest.mark.xdist_group("real gangs")]


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory, warm_replays: Warm) -> Path:
    """A profile of this machine as it is now."""
    folder = tmp_path_factory.mktemp("profile")
    arguments = [
        "bsp",
        "profile",
        f"tasks=[{','.join(TASKS)}]",
        "sizes=[10,23,37,50]",
        "shares=[250,350,450,600]",
        "tries=1",
        SCALE,
        "hydra.run.dir=run",
    ]
    subprocess.run([*warm_replays.command("hdsim"), *arguments], cwd=folder, check=True, capture_output=True)
    return folder / "run" / "profile.csv"


def arguments(profile: Path, *overrides: str) -> list[str]:
    """A run whose tasks get 1.2 cores together, so that other load of two cores does not take their shares away."""
    series = "{bsearch: nyc_taxi_1, cap: nyc_taxi_2, vecmath: nyc_taxi_3}"
    return [
        "bsp",
        "run",
        "runner=processes",
        f"profile={profile}",
        "~tasks",
        f"+tasks={series}",
        SCALE,
        "shares.start=250",
        "shares.increment=50",
        "shares.total=1200",
        "supersteps=20",
        "penalty=0.05",
        "forecasts=actual",
        "hydra.run.dir=run",
        *overrides,
    ]


def table(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def check_supersteps(run: Path, count: int) -> None:
    """Checks that each superstep counts once and that the times of the tasks are those of a barrier."""
    lines = [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]
    assert [line["superstep"] for line in lines if "tasks" in line] == list(range(count))
    # Replaced processes get the sizes and shares of their tasks.
    assert all(list(line["tasks"]) == list(TASKS) for line in lines if "tasks" in line)
    supersteps = table(run / "supersteps.csv")
    assert [int(row["superstep"]) for row in supersteps] == list(range(count))
    barriers = table(run / "barriers.csv")
    assert len(barriers) == count * len(TASKS)
    finished = 0.0
    for superstep in supersteps:
        rows = [row for row in barriers if row["superstep"] == superstep["superstep"]]
        assert {row["task"] for row in rows} == set(TASKS)
        assert {row["attempt"] for row in rows} == {superstep["attempts"]}
        entered, began, ended = ([float(row[key]) for row in rows] for key in ("entered", "began", "ended"))
        assert finished <= min(entered)  # No task begins before all tasks have ended the superstep before,
        assert max(entered) <= min(began)  # nor before all have entered this one.
        assert all(first < last for first, last in zip(began, ended, strict=True))
        finished = max(ended)
        assert float(superstep["duration"]) == pytest.approx(
            max(last - first for first, last in zip(began, ended, strict=True)), abs=1e-5
        )


@pytest.mark.parametrize("controller", ["static_window", *nightly("dynamic_mpc")])
@pytest.mark.ci
def test_supersteps_meet_at_barriers_and_take_the_predicted_time(
    controller: str, profile: Path, hdsim: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    done = hdsim(*arguments(profile, f"controller={controller}"))
    assert done.returncode == 0, done.stderr
    run = tmp_path / "run"
    check_supersteps(run, 20)
    supersteps = table(run / "supersteps.csv")
    assert len({tuple(row[f"shares_{task}"] for task in TASKS) for row in supersteps}) > 1  # shares changed in place
    errors = [abs(float(row["predicted"]) / float(row["duration"]) - 1) for row in supersteps]
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["prediction_error"] == pytest.approx(statistics.median(errors), abs=1e-4)
    # Other load of the machine makes all supersteps longer than those of the profile.
    slower = [float(row["duration"]) / float(row["predicted"]) for row in supersteps]
    load = statistics.median(slower)
    assert 0.5 < load < 3, slower
    assert statistics.median(abs(each / load - 1) for each in slower) < 0.25, slower
    assert metrics["duration"] == pytest.approx(sum(float(row["duration"]) for row in supersteps), abs=1e-4)
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["stressors"].startswith("stress-ng") and manifest["zookeeper"]["version"]
    assert not left_over(run)


def left_over(run: Path) -> list[int]:
    """Process ids of tasks and servers of a run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(run) in path.read_text():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


class Started:
    """A run in the background, and the faults that happen to it.

    Args:
        folder: Its working directory.
        command: Arguments of ``hdsim``.
    """

    def __init__(self, folder: Path, command: list[str]) -> None:
        self.run = folder / "run"
        self._errors = (folder / "errors").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hdsim", *command],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
        )

    def told(self) -> str:
        self._errors.seek(0)
        return self._errors.read()

    def wait_for(self, supersteps: int) -> None:
        """Waits until supersteps are finished."""
        deadline = time.monotonic() + PATIENCE
        journal = self.run / "journal.jsonl"
        while not journal.exists() or journal.read_text().count('"tasks"') < supersteps:
            assert self.process.poll() is None and time.monotonic() < deadline, self.told()
            time.sleep(0.02)

    def wait_to_read(self, words: str) -> None:
        """Waits for words on standard error."""
        deadline = time.monotonic() + PATIENCE
        while words not in self.told():
            assert self.process.poll() is None and time.monotonic() < deadline, self.told()
            time.sleep(0.02)

    def pid(self, *words: str) -> int:
        """The process whose arguments have all words, beside the folder of the run."""
        for pid in left_over(self.run):
            line = Path(f"/proc/{pid}/cmdline").read_text()
            if pid != self.process.pid and all(word in line for word in words):
                return pid
        raise AssertionError(f"no process with {words}: {self.told()}")


@pytest.fixture
def started(tmp_path: Path, profile: Path) -> Iterator[Started]:
    run = Started(tmp_path, arguments(profile, "controller=static_window", "supersteps=12", "timeouts.session=2"))
    yield run
    run.process.kill()
    run.process.wait()


@pytest.mark.ci
def test_faults_repeat_a_superstep_and_a_killed_controller_is_resumed(
    started: Started, hdsim: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    started.wait_for(2)
    os.kill(started.pid("hdsim.gangs.real.task", "--member=cap-1"), signal.SIGKILL)
    started.wait_to_read("cap-1 was killed by SIGKILL")
    started.wait_for(4)
    server = started.pid("zoo.cfg")
    os.kill(server, signal.SIGKILL)
    started.wait_to_read("ZooKeeper was killed by SIGKILL")
    started.wait_for(6)
    assert started.pid("zoo.cfg") != server
    # A process that hangs keeps its connection, but its session ends.
    hung = started.pid("hdsim.gangs.real.task", "--member=vecmath")
    os.kill(hung, signal.SIGSTOP)
    started.wait_for(8)
    assert hung not in left_over(started.run)
    started.process.kill()
    started.process.wait()
    deadline = time.monotonic() + PATIENCE
    while left_over(started.run):  # The kernel ends tasks and ZooKeeper with their controller.
        assert time.monotonic() < deadline
        time.sleep(0.02)

    finished = (started.run / "journal.jsonl").read_text().count('"tasks"')
    done = hdsim("bsp", "run", "resume=true", "hydra.run.dir=run")
    assert done.returncode == 0, done.stderr
    assert f"{finished} supersteps are finished" in done.stderr
    check_supersteps(started.run, 12)
    faults = Counter(row["fault"].split("-")[0] for row in table(started.run / "faults.csv"))
    assert faults["cap"] >= 1 and faults["vecmath"] >= 1
    assert json.loads((started.run / "manifest.json").read_text())["starts"] == 2
    again = hdsim("bsp", "run", "resume=true", "hydra.run.dir=run")
    assert again.returncode == 0 and "finished before" in again.stdout


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("zookeeper")
    with Server(folder / "data", folder / "log") as server:
        yield server.address


@pytest.mark.ci
def test_a_member_of_an_earlier_attempt_cannot_enter(address: str) -> None:
    with KazooSession(address, timeout=5, patience=30) as session:
        first, second = (DoubleBarrier(session, f"/late/0-{n}", ["a", "b"], lambda: None) for n in (1, 2))
        first.open()
        with pytest.raises(TimeoutError) as missing:
            first.enter("a", 0.2)
        assert missing.value.args == ("b",)
        first.close()
        second.open()
        with pytest.raises(Closed):
            first.enter("b", 0.2)
        with pytest.raises(Closed):
            first.leave("b")
        assert session.children("/late/0-2/entered") == set()


@pytest.mark.ci
def test_a_member_that_dies_has_not_left(address: str) -> None:
    with KazooSession(address, timeout=5, patience=30) as session:
        barrier = DoubleBarrier(session, "/dead/0-1", ["a", "b"], lambda: None)
        barrier.open()
        with KazooSession(address, timeout=5, patience=30) as other:
            DoubleBarrier(other, "/dead/0-1", ["b"], lambda: None).enter("b", 30)
            barrier.enter("a", 30)
        barrier.leave("a", b"done")
        with pytest.raises(TimeoutError) as missing:
            barrier.gather(["a", "b"], 0.3)
        assert missing.value.args == ("b",)
        assert barrier.gather(["a"], 30) == {"a": b"done"}


def test_a_queue_keeps_the_order_of_its_messages(address: str) -> None:
    with KazooSession(address, timeout=5, patience=30) as session:
        session.create("/queue", makepath=True)
        queue = Queue(session, "/queue")
        for message in (b"1", b"2", b"3"):
            queue.put(message)
        assert [queue.get(lambda: None, 30) for _ in range(3)] == [b"1", b"2", b"3"]
        with pytest.raises(TimeoutError):
            queue.get(lambda: None, 0.1)


def test_a_journal_drops_the_line_that_a_killed_process_had_begun(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, resume=False)
    journal.start(time=0.0, root="/hdsim/x")
    journal.finish(superstep=0, tasks={})
    journal.close()
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"superstep": 1, "ta')
    resumed = Journal(path, resume=True)
    resumed.finish(superstep=1, tasks={})
    resumed.close()
    assert path.read_bytes() == whole + b'{"superstep": 1, "tasks": {}}\n'
    path.write_bytes(whole + whole)
    with pytest.raises(ConfigError, match="each once and in order"):
        Journal(path, resume=True)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["runner.limits=none"], "expected auto, cgroup, affinity, got 'none'"),
        (["runner=procesess"], "(did you mean 'processes'?)"),
        (["runner.limit=auto"], "runner.limit"),
        (["attempts=0"], "attempts: expected a whole number >= 1, got 0"),
        (["timeouts.session=0"], "timeouts.session: expected a number > 0, got 0"),
        (["shares.start=10"], "expected at least 50 millicores"),
        (["zookeeper=127.0.0.1:9", "timeouts.connection=0.5"], "ZooKeeper at 127.0.0.1:9 has not answered for 0.5 s"),
    ],
)
def test_a_mistake_is_one_message(
    overrides: list[str], message: str, hdsim: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    rows = [f"{task},{10 * z},{100 * s},1" for task in TASKS for z in range(1, 5) for s in range(1, 5)]
    (tmp_path / "profile.csv").write_text("\n".join(["Task Name, Workload Size, CPU Shares, Duration", *rows]))
    done = hdsim(*arguments(Path("profile.csv"), *overrides))
    assert done.returncode in (1, 2) and message in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def test_a_simulated_run_is_not_resumed(
    hdsim: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    assert hdsim("bsp", "run", "supersteps=3", "controller=static", "hydra.run.dir=run").returncode == 0
    done = hdsim("bsp", "run", "resume=true", "supersteps=3", "controller=static", "hydra.run.dir=other")
    assert done.returncode == 2 and "resume: expected the run directory of a run that has begun" in done.stderr
