"""`hdsim tune`: what is searched for, that the best is the best and can be repeated, that nothing is lost."""

from __future__ import annotations

import contextlib
import csv
import itertools
import json
import math
import os
import sqlite3
import statistics
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hdsim.errors import ConfigError

pytestmark = pytest.mark.requires("optuna")

Hdsim = Callable[..., "subprocess.CompletedProcess[str]"]
GRID = (
    "platform=teaching",
    "workload=lublin",
    "workload.generate.jobs=200",
    "seed=1,2",
    "tune.space.agent.job_policy=fcfs,sjf,saf",
    "tune.space.agent.backfill=none,easy,bogus",
    "hydra.run.dir=tuned",
)
TRAINING = (
    "agent=ppo",
    "platform=teaching",
    "workload.jobs=400",
    "train.steps=96",
    "train.evaluate_every=32",
    "train.checkpoint_every=32",
    "train.validation=1",
    "train.test=1",
    "env.jobs=20",
    "agent.num_envs=2",
    "agent.num_steps=16",
    "train.tensorboard=false",
    "train.baselines=[]",
    "tune.space.agent.learning_rate=log(1e-3,1)",
    "tune.space.agent.hidden=choice([4],[8,4])",
    "hydra.run.dir=tuned",
)
#: An agent of a user whose best setting is known: the bounded slowdown grows with the distance of `guard` from 30.
GUARDED = """
from hdsim.agents.classic import ClassicAgent


class Guarded(ClassicAgent):
    def __init__(self, guard):
        super().__init__(job_policy="first" if abs(guard - 30) > 20 else "shortest")
        if guard > 90:
            raise RuntimeError("a guard of more than 90")
"""

FAILING = """
from hdsim.agents.classic import ClassicAgent


class Failing(ClassicAgent):
    def __init__(self, guard):
        super().__init__()

    def decide(self, cluster):
        raise RuntimeError("no decision")
"""
REPLAY = ("platform=teaching", "workload.jobs=20")


def table(folder: Path) -> list[dict[str, str]]:
    with (folder / "tune.csv").open() as file:
        return list(csv.DictReader(file))


def ok(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def results(folder: Path) -> dict[str, bytes]:
    """Bytes of the files of a search that do not depend on wall time."""
    files = (
        path for pattern in ("*.csv", "metrics.json", "best.yaml", "*.safetensors") for path in folder.rglob(pattern)
    )
    timed = ("progress.csv", "runs.csv", "state.safetensors")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files if path.name not in timed}


def metric_of(run: Path) -> float:
    return json.loads((run / "metrics.json").read_text())["mean_bounded_slowdown"]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("fcfs,sjf", {"fcfs", "sjf"}),
        ("choice([16],[32,16])", {"[16]", "[32,16]"}),
        ("range(1,10,3)", {1, 4, 7}),
        ("range(0.0,1.0,0.25)", {0.0, 0.25, 0.5, 0.75}),
        ("int(interval(1,3))", {1, 2, 3}),
        ("int(log(1,2))", {1, 2}),
        ("interval(0.9,1)", (0.9, 1.0)),
        ("log(1e-4,1e-2)", (1e-4, 1e-2)),
        ("tag(log, interval(1e-4, 1e-2))", (1e-4, 1e-2)),
    ],
)
def test_a_space_has_the_values_of_the_grammar(text: str, values: Any) -> None:
    import optuna

    from hdsim.runs.tuning.space import SearchSpace

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space = SearchSpace.parse({"agent.x": text})
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    drawn = [study.ask(dict(space.distributions)).params["agent.x"] for _ in range(60)]
    assert space.first()["agent.x"] in drawn or isinstance(values, tuple)
    if isinstance(values, set):
        assert set(drawn) == values
    else:
        assert all(values[0] <= value <= values[1] for value in drawn) and len(set(drawn)) == len(drawn)
        middle = math.sqrt(values[0] * values[1])
        assert ("log" not in text) or 15 < sum(value < middle for value in drawn) < 45


@pytest.mark.parametrize(
    "text", ["3", "[1,2]", "choise(1,2)", "range(3,3)", "log(0,1)", "interval(2,1)", "log(a,b)", ""]
)
def test_what_is_no_range_is_refused(text: str) -> None:
    from hdsim.runs.tuning.space import SearchSpace

    with pytest.raises(ConfigError, match=r"tune\.space\.agent\.x: expected choice\(a,b\), range"):
        SearchSpace.parse({"agent.x": text})


def test_the_best_trial_is_the_best_and_is_repeated_exactly(hdsim: Hdsim, tmp_path: Path) -> None:
    told = ok(hdsim("tune", *GRID, "tune.trials=9"))
    rows, tuned = table(tmp_path / "tuned"), tmp_path / "tuned"
    assert [row["trial"] for row in rows] == [str(number) for number in range(9)]
    failed = [row for row in rows if row["agent.backfill"] == "bogus"]
    assert failed and all(
        row["state"] == "fail" and "agent.backfill: expected one of" in row["error"] for row in failed
    )
    complete = {row["trial"]: float(row["mean_bounded_slowdown"]) for row in rows if row["state"] == "complete"}
    for trial, value in complete.items():
        runs = list(tuned.glob(f"trials/{int(trial):04}/*/metrics.json"))
        twin = [row for row in rows if int(row["trial"]) < int(trial)]
        assert value == statistics.fmean(metric_of(run.parent) for run in sorted(runs)) if runs else twin
    best = min(complete, key=complete.__getitem__)
    assert f"trial {best} is the best of 9" in told
    lines = (tuned / "experiment/best.yaml").read_text().splitlines()
    assert lines[1] == "# hdsim run --config-dir tuned experiment=best"
    ok(hdsim(*lines[1].split()[2:], "hydra.sweep.dir=again"))
    again = sorted((tmp_path / "again").glob("*/metrics.json"))
    assert len(again) == 2 and statistics.fmean(metric_of(run.parent) for run in again) == complete[best]
    assert (tuned / "history.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.ci
def test_equal_searches_are_equal_and_go_on_where_they_stopped(hdsim: Hdsim, tmp_path: Path) -> None:
    for folder, counts in (("a", (5,)), ("b", (2, 5))):
        (tmp_path / folder).mkdir()
        for count in counts:
            done = ok(hdsim("tune", *GRID, f"tune.trials={count}", cwd=tmp_path / folder))
    assert "2 trials finished before" in done and "[2/5]" not in done
    assert results(tmp_path / "a") == results(tmp_path / "b")
    other = hdsim("tune", *GRID, "tune.trials=8", "workload.jobs=100", cwd=tmp_path / "a")
    assert other.returncode == 2 and "expected the search that began there, overrides differs" in other.stderr


@pytest.mark.ci
def test_a_finite_space_is_gone_through_once(hdsim: Hdsim, tmp_path: Path) -> None:
    space = ("tune.space.agent.job_policy=fcfs,sjf", "tune.space.workload.jobs=range(5,8)")
    for trials in (3, 50):
        done = hdsim("tune", "platform=teaching", *space, f"tune.trials={trials}", "hydra.run.dir=out")
        assert done.returncode == 0, done.stderr
    with (tmp_path / "out/tune.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    tried = [(row["agent.job_policy"], row["workload.jobs"]) for row in rows]
    assert sorted(tried) == sorted(itertools.product(("fcfs", "sjf"), ("5", "6", "7")))


@pytest.mark.nightly
def test_several_processes_evaluate_each_trial_once(hdsim: Hdsim, tmp_path: Path) -> None:
    ok(hdsim("tune", *GRID, "tune.trials=4", "--jobs", 2))
    ok(hdsim("tune", *GRID, "tune.trials=10", "--jobs", 2))
    rows = table(tmp_path / "tuned")
    # All of the space, which has nine points.
    assert [int(row["trial"]) for row in rows] == list(range(9))
    values = {(row["agent.job_policy"], row["agent.backfill"]): row["mean_bounded_slowdown"] for row in rows}
    assert all(values[row["agent.job_policy"], row["agent.backfill"]] == row["mean_bounded_slowdown"] for row in rows)


def test_settings_of_an_own_agent(hdsim: Hdsim, tmp_path: Path) -> None:
    (tmp_path / "guarded.py").write_text(GUARDED)
    ok(
        hdsim(
            "tune",
            "agent.path=guarded.py",
            "platform=teaching",
            "workload.jobs=60",
            "tune.metric=mean_waiting_time",
            "tune.space.agent.guard=interval(0,100)",
            "tune.trials=7",
            "hydra.run.dir=tuned",
        )
    )
    rows = table(tmp_path / "tuned")
    for row in rows:
        assert (row["state"] == "fail") == (float(row["agent.guard"]) > 90), row
    values = {float(row["mean_waiting_time"]) for row in rows if row["state"] == "complete"}
    best = min((row for row in rows if row["state"] == "complete"), key=lambda row: float(row["mean_waiting_time"]))
    assert len(values) == 2 and abs(float(best["agent.guard"]) - 30) <= 20
    ok(hdsim("run", "--config-dir", "tuned", "experiment=best", "hydra.run.dir=again"))
    again = json.loads((tmp_path / "again/metrics.json").read_text())["mean_waiting_time"]
    assert again == float(best["mean_waiting_time"])


@pytest.mark.requires("torch")
@pytest.mark.parametrize("trials", [2, pytest.param(8, marks=pytest.mark.nightly)])
def test_trainings_are_judged_by_validation_and_pruned(trials: int, hdsim: Hdsim, tmp_path: Path) -> None:
    ok(hdsim("tune", *TRAINING, f"tune.trials={trials}", "tune.seed=3"))
    rows, tuned = table(tmp_path / "tuned"), tmp_path / "tuned"
    for row in rows:
        run = tuned / f"trials/{int(row['trial']):04}/run"
        manifest = json.loads((run / "manifest.json").read_text())
        with (run / "progress.csv").open() as file:
            scores = [
                float(line["validation_mean_turnaround_time"])
                for line in csv.DictReader(file)
                if line["validation_mean_turnaround_time"]
            ]
        if row["state"] == "complete":
            assert float(row["mean_turnaround_time"]) == pytest.approx(min(scores), rel=1e-8)
            assert manifest["training"]["metric"] == "mean_turnaround_time"
        else:
            assert row["state"] == "pruned" and manifest["status"] == "interrupted" and len(scores) < 4
    complete = [row for row in rows if row["state"] == "complete"]
    best = min(complete, key=lambda row: float(row["mean_turnaround_time"]))
    ok(hdsim("train", "--config-dir", "tuned", "experiment=best", "hydra.run.dir=again"))
    for name in ("best.safetensors", "final.safetensors"):
        first = tuned / f"trials/{int(best['trial']):04}/run/checkpoints" / name
        assert first.read_bytes() == (tmp_path / "again/checkpoints" / name).read_bytes()


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ((), "tune.space: expected the settings to search for"),
        (("tune.space.workload.jobs=${.x}",), "tune.space.workload.jobs: Interpolation key 'x' not found"),
        (("tune.space.agent.job_policy=fcfs,sjf", "tune.trials=0"), "tune.trials: expected a whole number >= 1, got 0"),
        (("tune.space.agent.job_policy=fcfs,sjf", "tune.trails=5"), "tune.trails: unknown key (did you mean 'trials'?"),
        (("tune.space.agent.job_polcy=fcfs,sjf",), "agent.job_polcy: unknown key (did you mean 'job_policy'?)"),
        (("tune.space.agent.job_policy=fcfs,sjf", "tune.metric=mean_nodes"), "tune.metric: expected a metric"),
        (("tune.space.agent.job_policy=fcfs,sjf", "tune.metric=mean_slowdwn"), "did you mean 'mean_slowdown'?"),
        (("tune.space.workload.arrival_factor=range(nan,1)",), "tune.space.workload.arrival_factor: expected choice"),
        (("tune.space.workload.jobs=5,6", "platform=glob(zz*)"), "expected values that make at least one run, got"),
        (("tune.space.platform=glob(zz*)",), "tune.space.platform: expected choice(a,b), range(low,high,step)"),
        (("tune.space=ppo",), "tune.space: expected settings, tune.space.KEY=choice(a,b), got 'ppo'"),
        (("tune.space.agent.job_policy=fcfs,sjf", "tune.pruner=no"), "tune.pruner: expected median or none, got 'no'"),
    ],
)
def test_mistakes(overrides: tuple[str, ...], told: str, hdsim: Hdsim, tmp_path: Path) -> None:
    done = hdsim("tune", "agent=classic", *overrides, "hydra.run.dir=tuned")
    assert done.returncode == 2 and told in done.stderr
    assert done.stderr.count("\n") == 1 and not (tmp_path / "tuned").exists()


def test_a_search_without_any_result_keeps_its_table(hdsim: Hdsim, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(GUARDED.replace("guard > 90", "guard > -1"))
    # The check before the search makes the agent, whose fault is then told at once.
    at_once = hdsim("tune", "agent.path=bad.py", *REPLAY, "tune.space.agent.guard=range(0,5)", "hydra.run.dir=tuned")
    assert at_once.returncode != 0 and not (tmp_path / "tuned").exists()
    (tmp_path / "bad.py").write_text(FAILING)
    done = hdsim(
        "tune",
        "agent.path=bad.py",
        *REPLAY,
        "tune.space.agent.guard=range(0,5)",
        "hydra.run.dir=tuned",
        "tune.trials=2",
    )
    rows = table(tmp_path / "tuned")
    assert [row["state"] for row in rows] == ["fail", "fail"] and all("no decision" in row["error"] for row in rows)
    assert done.returncode == 2 and "all 2 have failed; see tune.csv" in done.stderr


@pytest.mark.ci
def test_one_process_at_a_time_works_on_a_search(hdsim: Hdsim, tmp_path: Path) -> None:
    from hdsim.results.run_directory.lock import Lock

    (tmp_path / "tuned").mkdir()
    lock = Lock(tmp_path / "tuned")
    second = hdsim("tune", *GRID, "tune.trials=2")
    lock.release()
    assert second.returncode == 2 and f"in use by process {os.getpid()}" in second.stderr


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("delete from trial_values", "trial 0 without a value"),
        ("delete from trial_params", "trial 0 with the settings none"),
        ("update trial_params set param_value = 99", "IndexError"),
        ("update trials set number = 0", "3 trials with 2 different numbers"),
        ("update trials set state = 'LOST'", "LookupError"),
        ("update study_user_attributes set value_json = 'x'", "JSONDecodeError"),
        ("drop table trial_params", "trial 0 with the settings none"),
        ("update study_directions set direction = 'MAXIMIZE'", "the direction maximize for mean_bounded_slowdown"),
        ("update trial_values set value = null, value_type = 'INF_NEG'", "trial 0 with the value -inf"),
        ("update study_user_attributes set value_json = '3'", "3 in the place of what was searched for"),
        ("delete from study_user_attributes", "nothing in the place of what was searched for"),
    ],
)
def test_a_changed_database_is_one_line(statement: str, found: str, hdsim: Hdsim, tmp_path: Path) -> None:
    given = (
        "tune",
        "platform=teaching",
        "workload.path=even_1000",
        "workload.jobs=10",
        "agent=classic",
        "tune.space.agent=choice(fcfs,sjf,saf)",
        "hydra.run.dir=tune",
    )
    assert hdsim(*given, "tune.trials=2").returncode == 0
    with contextlib.closing(sqlite3.connect(tmp_path / "tune/study.db")) as database:
        database.execute(statement)
        database.commit()
    done = hdsim(*given, "tune.trials=3")
    assert done.returncode != 0
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert "tune/study.db" in done.stderr and found in done.stderr


@pytest.mark.parametrize("tuned", [True, False])
def test_the_best_trial_has_a_setting_that_has_no_default(hdsim: Hdsim, tmp_path: Path, tuned: bool) -> None:
    (tmp_path / "outages.csv").write_text("node,down,up\n0,10,20\n")
    (tmp_path / "others.csv").write_text("node,down,up\n1,10,20\n")
    file = "tune.space.failures.file=outages.csv,others.csv" if tuned else "tune.space.agent=fcfs,sjf"
    given = ("platform=teaching", "workload.jobs=20", "failures=trace", "failures.file=outages.csv", file)
    ok(hdsim("tune", *given, "hydra.run.dir=tuned"))
    ok(hdsim("run", "--config-dir", "tuned", "experiment=best", "hydra.run.dir=again"))
    assert (tmp_path / "again/outages.csv").is_file()
