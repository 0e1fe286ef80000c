"""Benchmarks: seeds, baselines, submissions and their verification, Gymnasium names."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from click.testing import CliRunner, Result

import hdsim
import hdsim.envs
from hdsim.cli.bench import bench as command
from hdsim.errors import ConfigError
from hdsim.results.run_directory.inputs import digest
from hdsim.simulation.benchmarks import Benchmark, benchmarks, read_benchmark
from hdsim.simulation.window_sets import WindowSet
from hdsim.simulation.windows import Window
from hdsim.studies import bench

AGENT = """
import hdsim


class Mine(hdsim.Agent):
    def decide(self, cluster):
        for job in sorted(cluster.queue, key=lambda job: cluster.requested_time[job]):
            if cluster.fits(job):
                cluster.start(job)
"""
#: Digests of the first validation window of each case: frozen benchmarks never change.
FROZEN = {
    "hdsim/Contended-v1": {"home": "3774f5b482f8b529", "debug_production": "2195b07905a88a9a"},
    "hdsim/Home-v1": {"home": "60b8f9a186f3880e"},
    "hdsim/Mixed-v1": {
        "forecasts": "fa39efd0f0720d27",
        "opposed": "713ffbb17d41beb4",
        "pipelines": "ae82eec5f64f33c3",
        "tuning": "5983b5ec178d946b",
    },
    "hdsim/Pods-v1": {"mixed": "b93f5d8d712dbe22", "equal": "0715019c6c78076f"},
}


def small(name: str = "Home-v1") -> Benchmark:
    return replace(read_benchmark(name), jobs=60, warmup=40, validation=3, test=4)


def call(*args: object) -> Result:
    return CliRunner().invoke(command, [str(arg) for arg in args], catch_exceptions=False)


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(AGENT)
    return "mine.py"


def test_seeds_follow_the_published_rule() -> None:
    home = read_benchmark("hdsim/Home-v1")
    text = f"hdsim/Home-v1 test home 2 {home.sha256} abc"
    assert home.seeds("test", "home", 3, "abc")[2] == int(hashlib.sha256(text.encode()).hexdigest()[:12], 16)
    text = "hdsim/Home-v1 validation home 0"
    assert home.seeds("validation", "home", 1) == [int(hashlib.sha256(text.encode()).hexdigest()[:12], 16)]
    every = [home.seeds(split, "home", 100, each) for split in ("train", "validation") for each in ("a", "b")]
    assert every[0] == every[1] and every[2] == every[3]
    tests = [*home.seeds("test", "home", 100, "a"), *home.seeds("test", "home", 100, "b")]
    assert len({*every[0], *every[2], *tests}) == 400


def test_the_digest_covers_code_weights_settings_and_kinds(agent: str, tmp_path: Path) -> None:
    def of(text: str) -> str:
        contender, files = bench.agent_of(text)
        return bench.agent_digest(text, contender, files)

    first = of("mine.py")
    assert of("custom path=mine.py") == first == of(str(tmp_path / "mine.py"))
    Path("mine.py").write_text(AGENT + "\n# another line\n")
    assert of("mine.py") != first
    assert len({of("easy-saf"), of("easy-f1"), of("classic job_policy=saf"), of("classic job_policy=f1")}) == 4
    # A module beside the agent's file belongs to it.
    Path("helper_of_mine.py").write_text("ORDER = 1\n")
    Path("with_helper.py").write_text("import sys\nsys.path.insert(0, '.')\nimport helper_of_mine\n" + AGENT)
    names = set(bench.agent_of("with_helper.py")[1])
    assert {"with_helper.py", "helper_of_mine.py"} <= names


def test_results_are_those_of_the_windows() -> None:
    benchmark = small()
    found = bench.submit(benchmark, "greedy-f1", tell=lambda line: None)
    case = found.cases["home"]
    seeds = benchmark.seeds("test", "home", 4, found.digest)
    assert case.seeds == seeds and case.baseline == benchmark.cases[0].baseline
    traces = [hdsim.draw_workload("home", seed, 100, split="test") for seed in seeds]
    windows = [Window(trace, 40) for trace in traces]
    ours, theirs = (
        np.array([window.score(name) for window in windows]) for name in ("greedy-f1", benchmark.cases[0].baseline)
    )
    assert case.score == ours.mean() and case.baseline_score == theirs.mean()
    assert case.ratio[0] == pytest.approx(ours.mean() / theirs.mean())
    assert case.geometric[0] == pytest.approx(np.exp(np.log(ours / theirs).mean()))
    assert case.worst_ratio == (ours / theirs).max() and case.p95_ratio == np.quantile(ours / theirs, 0.95)
    assert case.ratio[1] <= case.ratio[0] <= case.ratio[2]
    waits = np.concatenate(
        [each.starts("greedy-f1")[0] - each.workload.submission_time[each.warmup :] for each in windows]
    )
    told = {
        "mean_waiting_time": waits.mean(),
        "p95_waiting_time": np.quantile(waits, 0.95),
        "max_waiting_time": waits.max(),
    }
    assert case.waits == pytest.approx(told)
    assert found.remark.startswith("not enough for a claim")
    same = bench.submit(benchmark, benchmark.cases[0].baseline, tell=lambda line: None)
    assert same.cases["home"].ratio == pytest.approx([1, 1, 1]) and same.cases["home"].worst_ratio == 1


def test_the_baseline_is_the_best_on_validation_windows() -> None:
    benchmark = replace(small(), plain=("fcfs", "easy-saf", "ljf"))
    best, means = bench.chosen(benchmark, benchmark.cases[0], lambda line: None)
    held = benchmark.windows(benchmark.cases[0], "validation", 3)
    expected = {name: np.mean([each.window.score(name) for each in held]) for name in benchmark.plain}
    assert means == expected and best == min(expected, key=expected.__getitem__)


@pytest.mark.parametrize("name", [name for name in benchmarks() if name != "hdsim/Home-v1"])
def test_every_benchmark_evaluates_agents(name: str) -> None:
    benchmark = read_benchmark(name)
    assert {case.baseline for case in benchmark.cases} <= set(benchmark.plain)
    changes = {} if benchmark.jobs is None else {"jobs": 60, "warmup": min(benchmark.warmup, 40)}
    found = bench.submit(replace(benchmark, **changes), benchmark.plain[0], traces=2, tell=lambda line: None)
    assert list(found.cases) == [case.name for case in benchmark.cases]
    for case in found.cases.values():
        assert case.score > 0 and len(case.seeds) == 2


@pytest.mark.parametrize("name", list(benchmarks()))
def test_windows_are_frozen(name: str) -> None:
    benchmark = read_benchmark(name)
    found = {case.name: benchmark.windows(case, "validation", 1)[0].digest[:16] for case in benchmark.cases}
    assert found == FROZEN[name]


def test_a_submission_is_verified(agent: str) -> None:
    done = call("Home-v1", "--agent", agent, "--traces", 2, "--name", "my agent")
    assert "my agent (few windows) | home |" in done.output and "verify      hdsim bench verify" in done.output
    told = json.loads(Path("submission.json").read_text())
    assert told["files"] == {"mine.py": hashlib.sha256(AGENT.encode()).hexdigest()}
    assert str(told["cases"]["home"]["seeds"][0]) in done.output
    done = call("verify", "submission.json")
    assert "submission.json: verified" in done.output
    table = call("table", "submission.json").output
    assert table.startswith("**hdsim/Home-v1**") and "| my agent (few windows) | home |" in table


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("cases.home.score", 1.0, r"cases.home.score: expected [\d.]+, got 1.0"),
        ("cases.home.workload", "0", "cases.home.workload: expected [0-9a-f]{64}, got 0"),
        ("digest", "0", "digest: expected [0-9a-f]{64}, got 0"),
        ("definition", "0", "definition: expected|: expected the sha256 [0-9a-f]{64} of hdsim/Home-v1, got 0"),
        ("hdsim", "9.9", "expected hdsim 9.9, which made the submission, got "),
        ("format", 2, "expected a submission of `hdsim bench` .format 1."),
        ("id", "hdsim/Hom-v1", "expected one of .*, got 'hdsim/Hom-v1' .did you mean 'hdsim/Home-v1'"),
        ("cases.home.extra", 1, "cases: expected results by case"),
        ("more", 1, "expected the keys format, id, .*; wrong or missing: more"),
        ("cases", [1], "submission.json: cases: expected results by case"),
        ("cases.home.score", "a", r"submission.json: cases.home.score: expected a number >= 0, got 'a'"),
        ("cases.home.ratio", [], r"cases.home.ratio: expected a list of a number, or of a number and its interval"),
        (
            "cases.home.waits",
            {"mean_waiting_time": 1},
            r"cases.home.waits: expected numbers by mean_waiting_time, p95_",
        ),
        ("name", None, r"submission.json: name: expected a text, got null"),
        ("agent", None, r"submission.json: agent: expected a text, got null"),
        ("files", "mine.py", r"submission.json: files: expected a mapping from files to their sha256, got 'mine.py'"),
        ("traces", 0, r"submission.json: traces: expected a whole number >= 1, got 0"),
    ],
)
def test_what_is_wrong_is_not_verified(agent: str, key: str, value: Any, message: str) -> None:
    call("Home-v1", "--agent", agent, "--traces", 1)
    told = json.loads(Path("submission.json").read_text())
    place = told
    *groups, last = key.split(".")
    for group in groups:
        place = place[group]
    place[last] = value
    Path("submission.json").write_text(json.dumps(told))
    with pytest.raises(ConfigError, match=message):
        call("verify", "submission.json")


def test_a_damaged_submission_is_in_no_table_and_a_name_is_one_cell(agent: str) -> None:
    call("Home-v1", "--agent", agent, "--traces", 1, "--name", "a | b")
    assert "| a \\| b (few windows) | home |" in call("table", "submission.json").output
    told = json.loads(Path("submission.json").read_text())
    told["cases"]["home"]["p95_ratio"] = math.inf
    Path("submission.json").write_text(json.dumps(told))
    with pytest.raises(ConfigError, match=r"cases.home.p95_ratio: expected a number >= 0, got inf"):
        call("table", "submission.json")


def test_modules_beside_are_those_of_each_agent(agent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(".")
    for name in ("first", "second"):
        Path(f"beside_{name}.py").write_text("VALUE = 1\n")
        Path(f"{name}.py").write_text(f"import beside_{name}\n{AGENT}")
    Path("later.py").write_text(AGENT.replace("        for job", "        import beside_first\n        for job"))
    for _ in range(2):
        assert set(bench.agent_of("first.py")[1]) == {"first.py", "beside_first.py"}
        assert set(bench.agent_of("second.py")[1]) == {"second.py", "beside_second.py"}
    assert set(bench.agent_of("later.py")[1]) == {"later.py", "beside_first.py"}
    assert set(bench.agent_of(agent)[1]) == {agent}


def test_another_agent_is_not_verified(agent: str) -> None:
    call("Home-v1", "--agent", agent, "--traces", 1)
    Path("mine.py").write_text(AGENT + "\n")
    with pytest.raises(ConfigError, match=r"expected the files of the submission, others are mine.py"):
        call("verify", "submission.json")


def test_mistakes(agent: str) -> None:
    assert "hdsim/Home-v1" in call().output
    with pytest.raises(ConfigError, match=r"hdsim bench: expected one of .*, got 'Hom-v1'"):
        call("Hom-v1", "--agent", agent)
    assert "expected --agent with an ID" in call("Home-v1").output
    assert "expected a submission file after verify" in call("verify").output
    assert "--traces: expected an ID with it, got a.json" in call("table", "a.json", "--traces", 2).output
    with pytest.raises(ConfigError, match=r"nope.json: expected a readable submission file"):
        call("verify", "nope.json")
    Path("idle.py").write_text("def idle(cluster):\n    pass\n")
    with pytest.raises(ConfigError, match="leaves jobs waiting"):
        call("Home-v1", "--agent", "idle.py", "--traces", 1)
    with pytest.raises(ConfigError, match="expected at most 1e-09 CPU seconds for the windows of home, got 0"):
        bench.submit(replace(small(), seconds=1e-9), "fcfs", traces=1, tell=lambda line: None)


@pytest.mark.parametrize("name", list(benchmarks()))
def test_every_benchmark_is_an_environment(name: str) -> None:
    env: Any = gymnasium.make(name, traces=1)
    _, info = env.reset(seed=3)
    for _ in range(20):
        _, _, over, _, info = env.step(int(np.flatnonzero(info["action_mask"])[-1]))
        if over:
            break
    benchmark = read_benchmark(name)
    trained = {digest(trace) for trace in benchmark.training_traces(2)}
    tested = [benchmark.windows(case, "test", 2, "agent") for case in benchmark.cases]
    assert not trained & {digest(each.window.workload) for held in tested for each in held}
    kinds = {case.generate.get("kind") for case in benchmark.cases} - {None}
    assert name == "hdsim/Contended-v1" or not kinds & {spec.get("kind") for spec in benchmark.environment["traces"]}


@pytest.mark.ci
def test_a_vector_of_a_benchmark() -> None:
    vector = gymnasium.make_vec("hdsim/Home-v1", 2, "vector_entry_point", traces=1)
    assert vector.reset(seed=1)[0].shape == (2, 128, 8)
    vector.close()


def test_asdict_of_results_is_what_the_file_has(agent: str) -> None:
    found = bench.submit(small(), agent, traces=2, tell=lambda line: None)
    bench.write_submission(found, Path("s.json"))
    assert bench.read_submission(Path("s.json")) == found
    assert json.loads(Path("s.json").read_text()) == asdict(found)


def test_home_has_the_windows_of_the_family() -> None:
    # The same shape of windows as in the protocol of docs/compare.md, from other traces.
    held = WindowSet("home", "validation", traces=1, count=1).windows[0]
    benchmark = read_benchmark("Home-v1")
    window = benchmark.windows(benchmark.cases[0], "validation", 1)[0].window
    assert len(window.workload) == len(held.workload) and window.warmup == held.warmup
    assert window.workload.cluster_cores == held.workload.cluster_cores == 256


def test_the_table_of_baselines_has_every_scheduler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = replace(small(), plain=("fcfs", "saf"), agents=("classic job_policy=f1",))
    monkeypatch.setattr("hdsim.simulation.benchmarks.read_benchmark", lambda name: made)
    done = call("table", "hdsim/Home-v1", "--traces", 2, "-o", tmp_path / "table.md")
    assert not done.exception
    rows = [line.split(" | ") for line in (tmp_path / "table.md").read_text().splitlines()[4:]]
    assert [row[0].strip("| ") for row in rows] == [
        f"{name} (few windows)" for name in ("fcfs", "saf", "classic job_policy=f1")
    ]
    assert {len(row) for row in rows} == {11}
