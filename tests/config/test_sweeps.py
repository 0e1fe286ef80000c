"""Sweeps: composition, directories, processes, shards, kills and interruptions, tables."""

from __future__ import annotations

import csv
import importlib.metadata
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest
from hydra.types import RunMode
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from tiers import ci, examples, nightly

from hdsim.config.composer import Composer, plain
from hdsim.errors import ConfigError
from hdsim.results.run_directory import manifest
from hdsim.results.run_directory.manifest import read_manifest, versions
from hdsim.runs.plan import Sweep, plan
from hdsim.runs.table import read_table, write_table
from hdsim.util.files import exclusive
from hdsim.util.resources import folder

Hdsim = Callable[..., "subprocess.CompletedProcess[str]"]
SMALL = ("platform=teaching", "workload.jobs=20")
# Each replay adds a line to the file "journal". Policy "boom" fails on two platforms.
JOURNAL = """
import os
from pathlib import Path

from hdsim.agents.classic import ClassicAgent


class Journal(ClassicAgent):
    def __init__(self, policy="fcfs", seed=0):
        super().__init__(job_policy="fcfs" if policy == "boom" else policy)
        self.line = f"{policy} {{}} {seed}\\n"
        self.booms = policy == "boom"

    def begin(self, cluster):
        super().begin(cluster)
        self.platform = cluster.platform.name
        file = os.open(Path(__file__).with_name("journal"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, self.line.format(self.platform).encode())
        os.close(file)

    def decide(self, cluster):
        if self.booms and self.platform in ("teaching", "one_node") and cluster.now > 3000.0:
            raise RuntimeError("boom")
        super().decide(cluster)
"""
# Serves the queue in order once the file "wait" is gone.
SLOW = """
import time
from pathlib import Path

from hdsim.agents.classic import ClassicAgent


class Slow(ClassicAgent):
    def decide(self, cluster):
        if Path(__file__).with_name("wait").exists():
            time.sleep(0.05)
        super().decide(cluster)
"""


def status(run: Path) -> str:
    path = run / "manifest.json"
    return json.loads(path.read_text())["status"] if path.exists() else "none"


def wait_until(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    while not condition():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


@pytest.fixture
def start(tmp_path: Path, root: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts ``hdsim ARGS``; at the end of the test its process is killed, and with it its workers."""
    processes = []

    def begin(*arguments: str) -> subprocess.Popen[str]:
        processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "hdsim", *arguments],
                cwd=tmp_path,
                env={**os.environ, "PYTHONPATH": str(root)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return processes[-1]

    yield begin
    for process in processes:
        process.kill()
        process.communicate()


# Composition.

SHARED = Composer()
GROUPS = {
    path.name: sorted(option.stem for option in path.glob("*.yaml"))
    for path in sorted(folder("conf").iterdir())
    if path.is_dir() and path.name in SHARED.compose([]) | {"experiment": None}
}
choices = st.sampled_from(sorted(GROUPS)).flatmap(
    lambda group: st.sampled_from(GROUPS[group]).map(lambda option: f"{group}={option}")
)
values = st.sampled_from(
    [
        "seed=7",
        "workload.jobs=12",
        "workload.jobs=null",
        "workload.start=3",
        "workload.arrival_factor=0.5",
        "workload.bsp.supersteps=[1,5]",
        "workload.runtime='a b'",
        "platform.path=x/y.json",
        "agent.window=4",
        "++agent.window=4",
        "+agent.extra={a: 1, b: [2, 3]}",
        "~agent.core_policy",
        "agent={job_policy: sjf}",
        "contention.threshold=0.5",
        "backend.speed=2",
        "hydra.run.dir=runs/x",
        "hydra.job.chdir=true",
        "+new.key=1",
        "workload.jobs=${seed}",
        "env.objective=makespan",
        "failures.mtbf=100",
        "hydra.verbose=true",
        "unknown=1",
    ]
)


def composed(compose: Callable[[], Any]) -> Any:
    """The composition with Hydra's own part, with the flags of its nodes, or the error."""
    try:
        config = compose()
    except Exception as error:
        return type(error), str(error)
    flags = [config[key]._get_flag(flag) for key in ("hydra", "workload") for flag in ("struct", "readonly")]
    try:
        checked: Any = plain(config)
    except ConfigError as error:
        checked = str(error)
    return OmegaConf.to_yaml(config), flags, config._get_flag("struct"), checked


@examples(30, 1500)
@given(st.lists(st.one_of(choices, values, values), max_size=6, unique_by=lambda text: text.partition("=")[0]))
@pytest.mark.ci
def test_a_composition_that_shares_parts_is_that_of_hydra(overrides: list[str]) -> None:
    shared = composed(lambda: SHARED._composed(overrides, RunMode.RUN))
    # A new composer has read no file.
    assert shared == composed(lambda: Composer()._by_hydra(overrides, RunMode.RUN))


# Directories.


def planned(directory: Path, *overrides: str) -> list[str]:
    composer = Composer()
    sweep = plan(composer, composer.overrides([*SMALL, *overrides, f"hydra.sweep.dir={directory}"]))
    return [run.directory.name for run in sweep.runs]


@pytest.mark.ci
def test_directories_are_named_by_what_varies(tmp_path: Path) -> None:
    assert planned(tmp_path, "agent=easy,sjf", "seed=2,3", "contention=none") == [
        "agent=easy,seed=2",
        "agent=easy,seed=3",
        "agent=sjf,seed=2",
        "agent=sjf,seed=3",
    ]
    assert planned(tmp_path, "agent=easy") == ["run"]
    assert planned(tmp_path, "seed=1,1") == ["run"]
    assert planned(tmp_path, "workload.path='a b/x.swf','c/y.swf'") == ["workload.path=x.swf", "workload.path=y.swf"]
    assert planned(tmp_path, "hydra.sweep.subdir=n${hydra.job.num}", "seed=1,2") == ["n0", "n1"]
    with pytest.raises(ConfigError, match=r"hydra\.sweep\.subdir.*'same' for two"):
        planned(tmp_path, "hydra.sweep.subdir=same", "seed=1,2")


@pytest.mark.ci
def test_names_differ_and_keep_the_keys(tmp_path: Path) -> None:
    long = [f"workload.path={'x' * 200}{number}.swf" for number in range(3)]
    texts = ",".join(text.partition("=")[2] for text in long)
    names = planned(tmp_path, f"workload.path={texts}", "seed=1,2", "workload.start=1,2")
    assert len(set(names)) == 12
    assert all(len(name) <= 120 for name in names)
    assert all(f"{key}=" in name for name in names for key in ("workload.path", "seed", "workload.start"))
    # Equal file names in two folders, and names that a file system without cases takes for equal.
    names = planned(tmp_path, "workload.path=a/x.swf,b/x.swf,b/X.swf")
    assert len({name.casefold() for name in names}) == 3


@pytest.mark.ci
def test_a_configuration_keeps_its_directory(hdsim: Hdsim, tmp_path: Path) -> None:
    sweep = ("run", "-m", *SMALL, "hydra.sweep.dir=sweep")
    assert hdsim(*sweep, "agent=easy,sjf").returncode == 0
    before = {path: path.stat() for path in tmp_path.glob("sweep/*/jobs.csv")}
    assert {path.parent.name for path in before} == {"agent=easy", "agent=sjf"}
    # More values, a further key, another order of keys.
    done = hdsim(*sweep, "seed=1,2", "contention=none,threshold", "agent=easy,sjf,saf")
    assert "2 of 12 runs finished before" in done.stdout
    assert all(path.stat() == stat for path, stat in before.items())
    assert len(list(tmp_path.glob("sweep/*/jobs.csv"))) == 12
    # Another constant: results of the other configuration remain.
    done = hdsim(*sweep, "agent=easy,sjf", "workload.start=5")
    assert done.returncode == 0 and "finished before" not in done.stdout
    assert all(path.stat() == stat for path, stat in before.items())
    assert "2 of 2 runs finished before" in hdsim(*sweep, "agent=easy,sjf", "workload.start=5").stdout
    table = read_table(tmp_path / "sweep")
    assert len(table["directory"]) == 14 and set(table["workload.start"]) == {None, 5}


# Shards.


@given(st.integers(1, 50), st.data())
def test_shards_are_disjoint_and_complete(runs: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, runs))
    sweep: Any = Sweep(Path(), tuple(range(runs)))  # type: ignore[arg-type]
    shards = [sweep.shard(number + 1, count).runs for number in range(count)]
    assert sorted(run for shard in shards for run in shard) == list(range(runs))
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


@pytest.mark.parametrize("shard", ["0/2", "3/2", "1/0", "1", "a/b", "-1/2", "1/2/3", "1.0/2", ""])
def test_nonsense_is_no_shard(shard: str, hdsim: Hdsim) -> None:
    done = hdsim("run", "-m", *SMALL, "seed=1,2", "--shard", shard)
    assert done.returncode == 2 and "expected I/N" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("shard", ["3/4", "3/3", "1/3"])
def test_more_shards_than_runs_are_one_line(shard: str, hdsim: Hdsim) -> None:
    done = hdsim("run", "-m", *SMALL, "seed=1,2", "--shard", shard)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert f"--shard: expected at most as many parts as runs, 2, got {shard}" in done.stderr


def test_a_glob_without_a_match_is_one_line(hdsim: Hdsim) -> None:
    done = hdsim("run", "-m", *SMALL, "agent=glob(zz*)")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "expected values that make at least one run, got none" in done.stderr


@pytest.mark.ci
def test_a_damaged_list_of_overrides_leaves_the_table(hdsim: Hdsim, tmp_path: Path) -> None:
    sweep = ("run", "-m", *SMALL, "agent=easy,sjf", "hydra.sweep.dir=sweep")
    assert hdsim(*sweep).returncode == 0
    (tmp_path / "sweep/agent=sjf/.hydra/overrides.yaml").write_text("42")
    (tmp_path / "sweep/runs.csv").unlink()
    done = hdsim(*sweep)
    assert done.returncode == 0, done.stderr
    with (tmp_path / "sweep/runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["directory"], row["agent"]) for row in rows] == [("agent=easy", "easy"), ("agent=sjf", "")]
    assert all(float(row["makespan"]) > 0 for row in rows)


def test_options_of_sweeps_need_a_sweep(hdsim: Hdsim) -> None:
    for option in (("--jobs", "2"), ("--shard", "1/2")):
        done = hdsim("run", *SMALL, *option)
        assert done.returncode == 2 and f"{option[0]}: expected a sweep" in done.stderr


@pytest.mark.ci
def test_shards_of_one_sweep_run_at_the_same_time(start: Callable[..., Any], tmp_path: Path) -> None:
    sweep = ("run", "-m", *SMALL, "agent=easy,sjf,saf", "seed=1,2,3", "hydra.sweep.dir=sweep")
    shards = [start(*sweep, "--shard", f"{number}/3") for number in (1, 2, 3)]
    told = [shard.communicate() for shard in shards]
    assert all(shard.returncode == 0 for shard in shards), told
    assert all("3 of 9 runs (shard " in output for output, _ in told)
    with (tmp_path / "sweep/runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len({row["directory"] for row in rows}) == len(list(tmp_path.glob("sweep/*/manifest.json"))) == 9
    assert {row["status"] for row in rows} == {"finished"}


def test_the_last_table_of_shards_has_the_last_states(hdsim: Hdsim, tmp_path: Path) -> None:
    assert hdsim("run", "-m", *SMALL, "seed=1", "hydra.sweep.dir=sweep").returncode == 0
    sweep = tmp_path / "sweep"
    path = next(sweep.glob("*/manifest.json"))
    with ThreadPoolExecutor() as pool:
        with exclusive(sweep):
            shard = pool.submit(write_table, sweep, parquet=False)
            assert not wait([shard], 0.5).done
            path.write_text(path.read_text().replace('"finished"', '"failed"'))
        shard.result()
    with (sweep / "runs.csv").open() as file:
        assert [row["status"] for row in csv.DictReader(file)] == ["failed"]


# Processes.


@pytest.mark.parametrize("number", [*ci(signal.SIGINT), *nightly(signal.SIGTERM)])
def test_two_signals_leave_no_more_than_one_line(number: int, start: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW.replace("0.05", "600"))
    (tmp_path / "wait").touch()
    arguments = ("run", "-m", "--jobs", "2", *SMALL, "agent.path=slow.py", "seed=1,2,3,4", "hydra.sweep.dir=sweep")
    sweep = start(*arguments)
    wait_until(lambda: all(status(tmp_path / f"sweep/seed={seed}") == "running" for seed in (1, 2)), sweep)
    time.sleep(0.5)  # in the replay, which waits for the agent
    for _ in range(2):
        sweep.send_signal(number)
        time.sleep(0.3)
    _, errors = sweep.communicate()
    assert sweep.returncode == 1
    # The resource tracker of multiprocessing would tell of leaked semaphores behind it.
    told = "hdsim: interrupted; the same command with hydra.sweep.dir=sweep goes on where it stopped"
    assert errors.splitlines()[-1] == told, errors


@pytest.mark.ci
def test_a_killed_worker_costs_its_own_run(start: Callable[..., Any], hdsim: Hdsim, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "wait").touch()
    arguments = ("run", "-m", "--jobs", "2", *SMALL, "agent.path=slow.py", "seed=1,2,3,4", "hydra.sweep.dir=sweep")
    sweep = start(*arguments)
    wait_until(lambda: status(tmp_path / "sweep/seed=1") == status(tmp_path / "sweep/seed=2") == "running", sweep)
    os.kill(json.loads((tmp_path / "sweep/seed=1/manifest.json").read_text())["process"]["pid"], signal.SIGKILL)
    (tmp_path / "wait").unlink()
    _, errors = sweep.communicate()
    assert sweep.returncode == 1
    assert "1 of 4 runs failed" in errors and "SIGKILL" in errors and "seed=1  killed" in errors
    assert [status(tmp_path / f"sweep/seed={seed}") for seed in (2, 3, 4)] == ["finished"] * 3
    table = read_table(tmp_path / "sweep")
    assert table["status"] == ["dead", "finished", "finished", "finished"]
    again = hdsim(*arguments)
    assert again.returncode == 0 and "3 of 4 runs finished before" in again.stdout
    assert "dead since" in again.stdout
    assert "run  " not in again.stderr, "no failures"


@pytest.mark.parametrize("number", [signal.SIGINT, *nightly(signal.SIGTERM)])
@pytest.mark.ci
def test_a_signal_interrupts_each_worker_in_order(number: int, start: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "wait").touch()
    arguments = ("run", "-m", "--jobs", "2", *SMALL, "agent.path=slow.py", "seed=1,2,3,4", "hydra.sweep.dir=sweep")
    sweep = start(*arguments)
    runs = [tmp_path / f"sweep/seed={seed}" for seed in (1, 2, 3, 4)]
    wait_until(lambda: status(runs[0]) == status(runs[1]) == "running", sweep)
    time.sleep(0.2)  # in the replay
    sweep.send_signal(number)
    _, errors = sweep.communicate()
    assert sweep.returncode == 1 and "Traceback" not in errors
    assert "the same command with hydra.sweep.dir=sweep goes on where it stopped" in errors
    assert [status(run) for run in runs] == ["interrupted", "interrupted", "none", "none"]
    assert all((run / "jobs.csv").exists() for run in runs[:2])


@pytest.mark.parametrize("number", [*ci(signal.SIGINT), *nightly(signal.SIGTERM)])
def test_an_interrupted_study_says_how_it_goes_on(number: int, start: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "wait").touch()
    (tmp_path / "own.yaml").write_text(
        "title: T\nquestion: Q?\n"
        "commands: {orders: 'run -m platform=teaching workload.jobs=20 agent.path=slow.py seed=1,2'}\n"
        "tables: {orders: {title: O, runs: orders, metrics: jobs_completed}}\n"
    )
    study = start("study", "own.yaml", "-o", "out")
    wait_until(lambda: [*tmp_path.glob("out/runs/orders/*/manifest.json")], study)
    time.sleep(0.2)  # in the replay
    study.send_signal(number)
    _, errors = study.communicate()
    (line,) = (line for line in errors.splitlines() if line.startswith("hdsim: "))
    assert study.returncode == 1 and line == "hdsim: interrupted; the same command goes on where it stopped", errors
    (tmp_path / "wait").unlink()
    again = start("study", "own.yaml", "-o", "out")
    output, errors = again.communicate()
    assert again.returncode == 0, errors
    assert "seed=2" in output


@pytest.mark.ci
def test_warnings_of_workers_are_whole_lines(hdsim: Hdsim, tmp_path: Path) -> None:
    done = hdsim("run", "-m", "--jobs", "2", *SMALL, "agent=easy,sjf", "seed=1,2", "hydra.sweep.dir=sweep")
    assert done.returncode == 0
    assert all("dropped" in line for line in done.stderr.splitlines() if "lublin_4000" in line)
    lines = [line for line in done.stdout.splitlines() if line.startswith("[")]
    assert sorted(line.partition("]")[0] for line in lines) == [f"[{number}/4" for number in (1, 2, 3, 4)]
    assert all("makespan" in line and " s  ETA " in line for line in lines)


def outputs(sweep: Path) -> dict[str, bytes]:
    files = ("jobs.csv", "schedule.csv", "metrics.json", "platform.json")
    return {
        str(path.relative_to(sweep)): path.read_bytes() for name in files for path in sorted(sweep.glob(f"*/{name}"))
    }


@pytest.mark.parametrize(
    ("policies", "platforms", "seeds"),
    [
        *ci(("fcfs,boom,smallest", "teaching,sixteen_nodes", "1,2")),
        pytest.param(
            "fcfs,sjf,saf,f1,wfp3,smallest,shortest,boom",
            "teaching,one_node,ten_nodes,sixteen_nodes",
            "1,2,3",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_a_sweep_that_is_killed_and_restarted(
    policies: str, platforms: str, seeds: str, start: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "journal.py").write_text(JOURNAL)
    journal = tmp_path / "journal"
    arguments = (
        "run",
        "-m",
        "--jobs",
        "2",
        f"platform={platforms}",
        "workload.jobs=20",
        "agent.path=journal.py",
        f"agent.policy={policies}",
        f"seed={seeds}",
        "agent.seed=${seed}",
    )
    total = len(policies.split(",")) * len(platforms.split(",")) * len(seeds.split(","))
    failing = len({"teaching", "one_node"} & set(platforms.split(","))) * len(seeds.split(","))

    def starts() -> list[str]:
        return journal.read_text().splitlines() if journal.exists() else []

    def finished() -> dict[Path, tuple[int, int]]:
        runs = [path.parent for path in tmp_path.glob("sweep/*/manifest.json") if status(path.parent) == "finished"]
        return {
            run / "jobs.csv": ((run / "jobs.csv").stat().st_ino, (run / "jobs.csv").stat().st_mtime_ns) for run in runs
        }

    kept: dict[Path, tuple[int, int]] = {}
    for _ in range(2):
        until = len(starts()) + random.randint(1, total // 3)
        sweep = start(*arguments, "hydra.sweep.dir=sweep")
        wait_until(lambda until=until: len(starts()) >= until, sweep)
        sweep.kill()
        sweep.communicate()
        assert finished().items() >= kept.items(), "finished runs are computed again"
        kept = finished()
    sweep = start(*arguments, "hydra.sweep.dir=sweep")
    _, errors = sweep.communicate()
    assert sweep.returncode == 1
    assert finished().items() >= kept.items()
    assert len(finished()) == total - failing, errors
    assert f"{failing} of {total} runs failed" in errors
    assert errors.count("RuntimeError  journal.py:") == failing
    # A start more for each run in work when the sweep was killed, that is two for each kill.
    counts = Counter(line for line in starts() if not line.startswith("boom"))
    assert sum(counts.values()) <= len(counts) + 4
    whole = start(*arguments, "hydra.sweep.dir=whole")
    whole.communicate()
    interrupted, uninterrupted = outputs(tmp_path / "sweep"), outputs(tmp_path / "whole")
    assert interrupted == uninterrupted and len(interrupted) >= 4 * (total - failing)


# The table.


@pytest.mark.requires("pandas")
@pytest.mark.ci
def test_the_table_of_runs_has_types(hdsim: Hdsim, tmp_path: Path) -> None:
    from pyarrow import parquet

    (tmp_path / "journal.py").write_text(JOURNAL)
    sweep = ("run", "-m", "workload.jobs=20", "platform=teaching", "agent.path=journal.py", "agent.policy=fcfs,boom")
    done = hdsim(*sweep, "workload.arrival_factor=1,0.5", "hydra.sweep.dir=sweep")
    assert done.returncode == 1 and "runs.parquet" in done.stdout
    table = parquet.read_table(tmp_path / "sweep/runs.parquet")
    types = {field.name: str(field.type) for field in table.schema}
    assert types["makespan"] == types["workload.arrival_factor"] == types["seconds"] == "double"
    assert types["seed"] == "int64" and types["agent.policy"] == types["jobs_sha256"] == "string"
    rows = {(row["agent.policy"], row["workload.arrival_factor"]): row for row in table.to_pylist()}
    good, bad = rows["fcfs", 0.5], rows["boom", 0.5]
    metrics = json.loads((tmp_path / "sweep" / good["directory"] / "metrics.json").read_text())
    assert {name: good[name] for name in metrics if metrics[name] is not None} == {
        name: value for name, value in metrics.items() if value is not None
    }
    assert bad["status"] == "failed" and bad["makespan"] is None
    assert bad["error_type"] == "RuntimeError" and bad["error_where"].startswith("journal.py:")
    assert bad["simulated_time"] > 3000.0
    with (tmp_path / "sweep/runs.csv").open() as file:
        assert [row["directory"] for row in csv.DictReader(file)] == table["directory"].to_pylist()


def test_the_table_is_there_while_the_sweep_runs(hdsim: Hdsim, tmp_path: Path) -> None:
    (tmp_path / "see.py").write_text(
        "from pathlib import Path\n\nfrom hdsim.agents.classic import ClassicAgent\n\n\n"
        "class See(ClassicAgent):\n"
        "    def decide(self, cluster):\n"
        "        table, copy = Path('sweep/runs.csv'), Path('seen.csv')\n"
        "        if table.exists() and not copy.exists():\n"
        "            copy.write_text(table.read_text())\n"
        "        super().decide(cluster)\n"
    )
    done = hdsim("run", "-m", "platform=teaching", "agent.path=see.py", "workload.jobs=20,21", "hydra.sweep.dir=sweep")
    assert done.returncode == 0, done.stderr
    with (tmp_path / "seen.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["status"] for row in rows] == ["finished"]
    assert float(rows[0]["makespan"]) > 0


def test_the_table_of_an_empty_folder_is_empty(tmp_path: Path) -> None:
    assert read_table(tmp_path) == {}
    write_table(tmp_path)
    assert (tmp_path / "runs.csv").read_text() == "\n"


# Start-up.


def test_packages_of_modules_are_those_of_importlib() -> None:
    manifest._packages.cache_clear()  # Other tests extend the path of imports.
    owners = importlib.metadata.packages_distributions()
    found = versions()
    loaded = {name.partition(".")[0] for name in sys.modules}
    names = {owner for module in loaded for owner in owners.get(module, ())} - {"hdsim"}
    assert {name: found[name] for name in names} == {name: importlib.metadata.version(name) for name in names}
    assert found.keys() == names | {"hdsim", "python"}


@pytest.mark.ci
def test_baselines_print_means_with_intervals_and_mark_the_best(hdsim: Hdsim, tmp_path: Path) -> None:
    """By the metrics of the single runs."""
    agents, windows = ["fcfs", "greedy-saf", "easy-multifactor", "easy++"], [0, 20, 40]
    overrides = ["platform=eight_nodes", "workload.jobs=20", f"workload.start={','.join(map(str, windows))}"]
    sweep = f"hydra.sweep.dir={tmp_path}"
    ran = hdsim("run", "experiment=baselines", f"agent={','.join(agents)}", *overrides, sweep)
    assert ran.returncode == 0, ran.stderr
    assert "Warning" not in ran.stderr
    with (tmp_path / "table.csv").open(newline="") as file:
        rows = {(row["configuration"], row["metric"]): row for row in csv.DictReader(file)}
    assert len(rows) == 6 * len(agents)
    runs = read_table(tmp_path)
    for metric in ("mean_bounded_slowdown", "utilization", "edp"):
        means = {}
        for agent in agents:
            found = [value for name, value in zip(runs["agent"], runs[metric], strict=True) if name == agent]
            assert len(found) == len(windows)
            means[agent] = sum(found) / len(found)
            row = rows[agent, metric]
            assert float(row["mean"]) == pytest.approx(means[agent])
            assert float(row["low"]) <= means[agent] * (1 + 1e-12) and float(row["high"]) >= means[agent] * (1 - 1e-12)
        best = (max if metric == "utilization" else min)(means.values())
        for agent in agents:
            assert (rows[agent, metric]["best"] == "True") == (means[agent] == pytest.approx(best, rel=1e-12))
    (line, *_) = (line for line in ran.stdout.splitlines() if line.startswith("easy++  "))
    assert "[" in line


@pytest.mark.ci
def test_a_file_is_swept_beside_names(hdsim: Hdsim, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own/mine.py").write_text(
        "import hdsim\n\n\nclass Mine(hdsim.Agent):\n    def __init__(self, most=4):\n        self.most = most\n\n"
        "    def decide(self, cluster):\n        for job in list(cluster.queue)[: self.most]:\n"
        "            if cluster.fits(job):\n                cluster.start(job)\n"
    )
    done = hdsim("run", "-m", *SMALL, "agent=fcfs,own/mine.py,../nothing.py", "hydra.sweep.dir=bad")
    assert done.returncode == 2 and "agent.path: expected a Python file with one subclass of Agent" in done.stderr
    done = hdsim("run", "-m", *SMALL, "agent=fcfs,own/mine.py", "hydra.sweep.dir=sweep")
    assert done.returncode == 0, done.stderr
    compared = hdsim("compare", "sweep").stdout
    assert re.search(r"^fcfs ", compared, re.MULTILINE) and re.search(r"^mine ", compared, re.MULTILINE)
    done = hdsim("run", *SMALL, "agent=own/mine.py", "agent.most=1", "hydra.run.dir=one")
    assert done.returncode == 0, done.stderr
    assert read_manifest(tmp_path / "one")["config"]["agent"] == {"path": "own/mine.py", "most": 1}
    done = hdsim("run", "-m", *SMALL, f"agent=fcfs,{tmp_path}/own/mine.py", "hydra.sweep.dir=absolute")
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (tmp_path / "absolute").glob("agent=*")} == {"agent=fcfs", "agent=mine.py"}


@pytest.mark.ci
def test_configurations_are_ranked_by_the_means_of_their_seeds(hdsim: Hdsim, tmp_path: Path) -> None:
    done = hdsim("run", "-m", *SMALL, "agent=random,fcfs", "seed=2,10,1", "hydra.sweep.dir=sweep")
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^\[\d/6\] agent=(\w+),seed=(\d+) ", done.stdout, re.MULTILINE) == [
        (agent, seed) for seed in ("2", "10", "1") for agent in ("random", "fcfs")
    ]
    table = read_table(tmp_path / "sweep")
    assert [row.partition("seed=")[2] for row in table["directory"]] == ["1", "2", "10"] * 2  # in numerical order
    mean = {
        agent: sum(value for value, name in zip(table["makespan"], table["agent"], strict=True) if name == agent) / 3
        for agent in ("fcfs", "random")
    }
    shown = re.findall(r"^agent=(\w+) +3 +([\d,.]+) ", done.stdout, re.MULTILINE)
    assert [name for name, _ in shown] == sorted(mean, key=lambda agent: mean[agent])
    assert [float(number.replace(",", "")) for _, number in shown] == pytest.approx(sorted(mean.values()), abs=0.01)
    done = hdsim("run", "-m", *SMALL, "agent=random", "seed=1,2", "hydra.sweep.dir=seeds")
    assert "\nseed=1 " in done.stdout or "\nagent=random,seed=1 " in done.stdout  # nothing but seeds: single runs


@pytest.mark.ci
def test_a_file_that_cannot_be_written_is_the_place_of_the_failure(hdsim: Hdsim, tmp_path: Path) -> None:
    sweep = ("run", "-m", *SMALL, "agent=fcfs,sjf", "hydra.sweep.dir=s")
    assert hdsim(*sweep).returncode == 0
    (tmp_path / "s/agent=fcfs/metrics.json").unlink()
    (tmp_path / "s/agent=fcfs/metrics.json").mkdir()
    done = hdsim(*sweep)
    line = next(line for line in done.stderr.splitlines() if "IsADirectoryError" in line)
    assert done.returncode == 1
    assert line.split()[2].endswith("s/agent=fcfs/metrics.json") and line.endswith("Is a directory")
