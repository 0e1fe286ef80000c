"""The evaluation of agents on windows: rows of the table, choice of the baseline, log of test sets."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hdsim
from hdsim.errors import ConfigError
from hdsim.report.statistics import Interval
from hdsim.simulation.window_sets import WindowSet
from hdsim.simulation.windows import machine
from hdsim.studies.measures import test_sets
from hdsim.studies.measures.windows import measure
from hdsim.workload.swf import write_swf

#: Small sets.
SHAPE = {"traces": "3", "windows": "2", "jobs": "40", "warmup": "30", "validation_traces": "2"}
SMALL = {**SHAPE, "orders": "sjf saf f1", "rules": "easy"}
MINE = """
from hdsim.agents.classic import ClassicAgent


class Mine(ClassicAgent):
    def __init__(self):
        super().__init__(job_policy="{order}", backfill="easy")
"""


@pytest.fixture
def evaluate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)

    def evaluated(**settings: str) -> Mapping[str, Mapping[str, Any]]:
        return measure(tmp_path / "study/runs", tmp_path, **{"sources": "home", **SMALL, **settings})

    return evaluated


def test_files_are_logged_without_their_folders(root: Path) -> None:
    path = root / "workloads/lublin_4000.swf"
    chosen = WindowSet(str(path), "validation", traces=1, count=1, jobs=50, warmup=0, arrival_factor=0.5)
    assert chosen.described()["source"] == "lublin_4000.swf with arrivals x 0.5"
    log = test_sets.read(root / "research/test_sets.md")
    assert any("RICC-2010-2.swf.gz" in entry.set for entry in log)
    assert not [entry.set for entry in log if "/" in entry.set]


def test_rows_are_families_and_agents(evaluate: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE.format(order="saf"))
    rows = evaluate(sources="home\nsmall\n", agents="mine: custom path=mine.py\ngreedy: greedy-saf")
    assert list(rows) == [
        f"{family}: {name}"
        for family in ("home", "small")
        for name in ("mine", "greedy", "easy-sjf", "easy-saf", "easy-f1")
    ]
    own = rows["home: mine"]
    assert own["remark"] == "not enough for a claim: expected at least 100 windows of 20 traces, got 6 of 3"
    # The agent is SAF with EASY, replayed by the engine.
    assert own["mean_bounded_slowdown"] == rows["home: easy-saf"]["mean_bounded_slowdown"]
    windows = WindowSet("home", "validation", traces=3, count=2, jobs=40, warmup=30).windows
    expected = [window.score("easy-saf") for window in windows]
    assert own["mean_bounded_slowdown"] == np.mean(expected)
    with (tmp_path / "study/scores/home_easy.csv").open() as file:
        found = [float(row["score"]) for row in csv.DictReader(file) if row["agent"] == "mine"]
    assert found == expected
    assert not (tmp_path / "test_sets.md").exists()


def test_the_baseline_is_the_best_order_of_the_validation_traces(evaluate: Any) -> None:
    rows = evaluate(number="3")
    held = WindowSet("home", "validation", 0, traces=2, count=2, jobs=40, warmup=30)
    means = {
        order: np.mean([window.score(f"easy-{order}") for window in held.windows]) for order in ("sjf", "saf", "f1")
    }
    best = min(means, key=lambda order: means[order])
    told = {name: cells["ratio of means"] for name, cells in rows.items()}
    assert told.pop(f"home: easy-{best}") == "best on validation"
    base = rows[f"home: easy-{best}"]["mean_bounded_slowdown"]
    for name, ratio in told.items():
        assert isinstance(ratio, Interval) and ratio.low <= ratio.value <= ratio.high
        assert ratio.value == pytest.approx(rows[name]["mean_bounded_slowdown"] / base)


def test_of_several_rules_the_best_order_of_each_is_shown_and_the_best_of_all_is_the_baseline(evaluate: Any) -> None:
    rows = evaluate(rules="strict greedy easy", orders="sjf saf", agents="mine: easy-f1", number="3")
    names = {rule: [rule + order for order in ("sjf", "saf")] for rule in ("", "greedy-", "easy-")}
    held = WindowSet("home", "validation", 0, traces=2, count=2, jobs=40, warmup=30)
    means = {name: np.mean([w.score(name) for w in held.windows]) for own in names.values() for name in own}
    best = {min(own, key=lambda name: means[name]) for own in names.values()}
    assert set(rows) == {"home: mine", *(f"home: {name}" for name in best)}
    base = min(means, key=lambda name: means[name])
    windows = WindowSet("home", "validation", 3, traces=3, count=2, jobs=40, warmup=30).windows
    ratios = [window.score("easy-f1") / window.score(base) for window in windows]
    mine = rows["home: mine"]
    assert mine["worst ratio"] == max(ratios)
    assert mine["95th percentile of ratios"] == pytest.approx(np.quantile(ratios, 0.95))
    assert rows[f"home: {base}"]["worst ratio"] == "best on validation"
    waits = []
    for window in windows:
        start, _ = window.starts("easy-f1")
        waits += (start - window.workload.submission_time[window.warmup :]).tolist()
    assert mine["mean_waiting_time"] == pytest.approx(np.mean(waits)) and mine["max_waiting_time"] == max(waits) > 0
    assert mine["p95_waiting_time"] == pytest.approx(np.quantile(waits, 0.95))


def test_the_last_part_of_a_file_that_nothing_is_trained_on(root: Path) -> None:
    path = str(root / "workloads/lublin_4000.swf")
    length = len(hdsim.load_workload("lublin_4000", memory_bandwidth="none", memory="none", status="ignore"))
    shape: Any = {"traces": 99, "count": 1, "jobs": 50, "warmup": 50, "since": 0.6}
    test, before = (WindowSet(path, split, **shape).windows for split in ("test", "validation"))
    first = [int(window.workload.job_id[0]) for window in (*before, *test)]
    assert first[0] == 1 and len(set(first)) == len(first)
    assert int(before[-1].workload.job_id[-1]) <= round(0.6 * length) < int(test[0].workload.job_id[0])
    assert length - int(test[-1].workload.job_id[-1]) < 100


def test_rlschedulers_rule_has_a_pass_for_each_event(evaluate: Any) -> None:
    rows = evaluate(rules="rlscheduler", warmup="0", jobs="70", windows="1", orders="f1")
    settings = {"job_policy": "f1", "backfill": "rlscheduler", "commit_head": True}
    windows = WindowSet("home", "validation", traces=3, count=1, jobs=70, warmup=0).windows
    scores = [
        hdsim.simulate(machine(256), window.workload, settings, batch_events=False).metrics["mean_bounded_slowdown"]
        for window in windows
    ]
    assert rows["home: rlscheduler-f1"]["mean_bounded_slowdown"] == pytest.approx(np.mean(scores))


@pytest.mark.ci
def test_a_test_set_is_used_once(evaluate: Any, tmp_path: Path) -> None:
    log, agents = tmp_path / "test_sets.md", "mine: custom path=mine.py"
    (tmp_path / "mine.py").write_text(MINE.format(order="saf"))
    rows = evaluate(agents=agents, split="test")
    assert "recorded in test_sets.md" in rows["home: mine"]["remark"]
    assert log == tmp_path / test_sets.log_file("")
    (entry,) = test_sets.read(log)
    assert entry.study == "study, easy" and entry.weights.startswith("mine.py ")
    assert entry.sha256 == WindowSet("home", "test", traces=3, count=2, jobs=40, warmup=30).digest
    assert entry.set == "home, number 0: 6 windows of 40 jobs of 3 traces, warm, 30 jobs under easy"
    before = log.read_text()

    # The same again is a reproduction.
    rows = evaluate(agents=agents, split="test")
    assert "home: reproduces the evaluation of" in rows["home: mine"]["remark"]
    assert log.read_text() == before

    # Other weights need another set, or to say so.
    (tmp_path / "mine.py").write_text(MINE.format(order="f1"))
    with pytest.raises(ConfigError, match=r"home: expected a test set that test_sets.md does not have: on \d"):
        evaluate(agents=agents, split="test")
    assert log.read_text() == before
    evaluate(agents=agents, split="test", number="1")
    evaluate(agents=agents, split="test", again="yes")
    assert log.read_text().startswith(before) and len(test_sets.read(log)) == 3

    # The order learned has weights of its own, and several trainings of it are several seeds.
    both = "learned: easy-learned\nseeds: classic backfill=easy job_policy=[learned.json,learned.json]"
    rows = evaluate(agents=both, split="test", number="2")
    assert test_sets.read(log)[-1].weights.startswith("learned.json ")
    one, two = (rows[f"home: {agent}"]["mean_bounded_slowdown"] for agent in ("learned", "seeds"))
    assert two == pytest.approx(one)

    # Other scores of the same weights are an error.
    log.write_text(before.replace(entry.scores, "0" * 12))
    (tmp_path / "mine.py").write_text(MINE.format(order="saf"))
    with pytest.raises(ConfigError, match="expected the scores 000000000000 of"):
        evaluate(agents=agents, split="test")

    # A log in a folder of documentation is used where there is one.
    (tmp_path / "docs").mkdir()
    assert str(test_sets.log_file("")) == "test_sets.md"
    (tmp_path / "docs/test_sets.md").touch()
    assert str(test_sets.log_file("")) == "docs/test_sets.md"
    (tmp_path / "docs/test_sets.md").unlink()

    # A later row corrects it.
    log.write_text(log.read_text() + before.splitlines(keepends=True)[-1])
    rows = evaluate(agents=agents, split="test")
    assert "home: reproduces the evaluation of" in rows["home: mine"]["remark"]


def test_files_and_their_settings(evaluate: Any, tmp_path: Path) -> None:
    write_swf(hdsim.draw_workload("home", 1, 1000), tmp_path / "log.swf")
    rows = evaluate(sources="log.swf arrival_factor=0.5 whole=true", orders="sjf")
    expected = [
        window.score("easy-sjf")
        for window in WindowSet(
            str(tmp_path / "log.swf"),
            "validation",
            traces=3,
            count=2,
            jobs=40,
            warmup=30,
            arrival_factor=0.5,
            whole=True,
        ).windows
    ]
    assert rows["log.swf: easy-sjf"]["mean_bounded_slowdown"] == np.mean(expected)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rules": "esay"}, "rules: expected one of strict, greedy, easy, conservative, committed, .*, got 'esay'"),
        ({"rules": "easy committed"}, "rules: expected one rule or more, committed and rlscheduler without others"),
        (
            {"sources": "home since=0.5"},
            "expected a trace file for arrival_factor, whole, since and like, got a family",
        ),
        ({"sources": "lublin_256 since=2"}, "expected a share between 0 and 1 without whole, got since=2"),
        ({"agents": "sjf"}, "agents: expected NAME: AGENT KEY=VALUE"),
        ({"agents": "a: sjf core_policy=x"}, "agents: expected settings of one of"),
        ({"sources": "home factor=2"}, "sources: home factor=2: expected arrival_factor=NUMBER, whole=true, since="),
        ({"sources": "hoem"}, "expected a file or a bundled name, got 'hoem'"),
        ({"split": "tests"}, "split: expected one of train, validation, test"),
    ],
)
def test_mistakes(evaluate: Any, settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        evaluate(**settings)
