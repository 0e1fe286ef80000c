"""Comparisons of runs against sums done by hand; which runs belong together; what is refused."""

from __future__ import annotations

import csv
import json
import math
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hdsim as package
from hdsim.errors import ConfigError
from hdsim.report import compare_figures
from hdsim.report.compare import Comparison, Row, compare
from hdsim.report.compare_figures import write_figure, write_windows
from hdsim.report.compare_output import table, write_csv, write_latex
from hdsim.report.pairing import finished, other_sources, run_directories
from hdsim.report.relative import relative
from hdsim.report.statistics import bootstrap, interquartile_mean
from hdsim.results.run_directory.directory import RunDirectory

PLATFORM = package.Platform.homogeneous(nodes=4, cores_per_node=1)


def made(path: Path, agent: str, /, seed: int = 1, **settings: Any) -> package.Result:
    """A run directory of a small random trace that depends on the seed."""
    rng = np.random.default_rng(seed)
    workload = package.Workload.from_columns(
        submission_time=np.cumsum(rng.integers(0, 9, 40)),
        runtime=rng.integers(1, 40, 40),
        requested_cores=rng.integers(1, 5, 40),
    )
    result = package.simulate(PLATFORM, workload, agent)
    run = RunDirectory(path)
    run.start({"agent": {"job_policy": agent}, "seed": seed, **settings}, PLATFORM, workload)
    run.finish(result)
    return result


def row(comparison: Comparison, metric: str, configuration: str, scenario: str = "") -> Row:
    (found,) = (
        row
        for row in comparison.rows
        if (row.metric, row.configuration, row.scenario) == (metric, configuration, scenario)
    )
    return found


def test_a_sweep_is_averaged_over_seeds_and_paired_by_them(tmp_path: Path) -> None:
    waits: dict[str, list[float]] = {"fcfs": [], "sjf": []}
    for seed in (1, 2, 3):
        for agent, values in waits.items():
            values.append(made(tmp_path / f"{agent}-{seed}", agent, seed).metrics["mean_waiting_time"])
    comparison = compare([tmp_path])
    assert comparison.sample == "runs"
    first, second = (row(comparison, "mean_waiting_time", agent) for agent in waits)
    assert first.baseline and math.isnan(first.difference) and not first.pairs
    assert (first.mean, second.mean) == pytest.approx((np.mean(waits["fcfs"]), np.mean(waits["sjf"])))
    differences = np.subtract(waits["sjf"], waits["fcfs"])
    assert second.difference == pytest.approx(differences.mean())
    assert (second.pairs, second.paired_by, second.runs) == (3, "run", 3)
    assert (
        differences.min() <= second.difference_low <= second.difference <= second.difference_high <= differences.max()
    )
    assert [first.best, second.best] == [first.mean < second.mean, second.mean < first.mean]


def test_only_runs_of_the_same_seed_are_paired(tmp_path: Path) -> None:
    base = [made(tmp_path / f"a{seed}", "fcfs", seed).metrics["makespan"] for seed in (1, 2, 3)]
    other = [made(tmp_path / f"b{seed}", "sjf", seed).metrics["makespan"] for seed in (2, 3, 4)]
    found = row(compare([tmp_path], ["makespan"]), "makespan", "sjf")
    assert found.pairs == 2
    assert found.difference == pytest.approx(np.mean(np.subtract(other[:2], base[1:])))


def test_two_single_runs_are_paired_by_job(tmp_path: Path) -> None:
    base, other = made(tmp_path / "a", "fcfs"), made(tmp_path / "b", "sjf")
    comparison = compare([tmp_path / "a", tmp_path / "b"], ["mean_waiting_time", "p95_waiting_time"])
    assert comparison.sample == "jobs"
    found = row(comparison, "mean_waiting_time", "sjf")
    differences = other.jobs["waiting_time"] - base.jobs["waiting_time"]
    assert (found.pairs, found.paired_by) == (40, "job")
    assert found.difference == pytest.approx(differences.mean())
    assert found.difference_low < found.difference < found.difference_high
    assert found.low < found.mean < found.high
    tail = row(comparison, "p95_waiting_time", "sjf")
    assert tail.difference == pytest.approx(other.metrics["p95_waiting_time"] - base.metrics["p95_waiting_time"])
    assert tail.paired_by == "run" and math.isnan(tail.difference_low) and math.isnan(tail.low)


@pytest.mark.parametrize(
    "metric", ["mean_waiting_time", "mean_turnaround_time", "mean_slowdown", "mean_bounded_slowdown"]
)
def test_means_over_jobs_agree_with_the_metrics(metric: str, tmp_path: Path) -> None:
    base, other = made(tmp_path / "a", "fcfs"), made(tmp_path / "b", "ljf")
    found = row(compare([tmp_path], [metric]), metric, "ljf")
    assert found.mean == pytest.approx(other.metrics[metric])
    assert found.difference == pytest.approx(other.metrics[metric] - base.metrics[metric], rel=1e-6)


def test_runs_of_different_jobs_are_not_paired_by_job(tmp_path: Path) -> None:
    made(tmp_path / "a", "fcfs", workload={"path": "x"})
    made(tmp_path / "b", "sjf", seed=2, workload={"path": "y"})
    found = next(row for row in compare([tmp_path], ["mean_waiting_time"]).rows if not row.baseline)
    assert (found.pairs, found.paired_by) == (1, "run")


def test_other_settings_make_scenarios_with_a_baseline_each(tmp_path: Path) -> None:
    makespans = {}
    for load in (0.5, 1.0):
        for agent in ("fcfs", "sjf"):
            name = f"{agent}-{load}"
            seed = int(10 * load)
            makespans[agent, load] = made(tmp_path / name, agent, seed, workload={"arrival_factor": load})
    comparison = compare([tmp_path], ["mean_waiting_time"])
    for load in (0.5, 1.0):
        found = row(comparison, "mean_waiting_time", "sjf", f"arrival_factor={load}")
        means = [makespans[agent, load].metrics["mean_waiting_time"] for agent in ("sjf", "fcfs")]
        assert found.difference == pytest.approx(means[0] - means[1], rel=1e-6)
        assert row(comparison, "mean_waiting_time", "fcfs", f"arrival_factor={load}").baseline
    assert sum(row.best for row in comparison.rows) == 2


def test_without_the_baseline_in_every_scenario_there_is_one_table(tmp_path: Path) -> None:
    made(tmp_path / "a", "fcfs", contention={"_target_": None})
    made(tmp_path / "b", "sjf", contention={"_target_": "hdsim.contention.threshold.Threshold"})
    rows = compare([tmp_path], ["makespan"]).rows
    assert [row.configuration for row in rows] == ["fcfs contention=none", "sjf contention=threshold"]
    assert rows[1].pairs == 1


def test_agents_of_several_classes_go_by_their_names(tmp_path: Path) -> None:
    settings = {"backfill": "none", "core_policy": "high_gflops", "commit_head": False}
    made(tmp_path / "a", "fcfs", agent={"job_policy": "fcfs", **settings})
    made(tmp_path / "b", "sjf", agent={"job_policy": "sjf", **settings, "backfill": "easy"})
    learned = {"_target_": "hdsim.agents.dqn.DQNAgent", "checkpoint": "kubernetes_dqn"}
    made(tmp_path / "c", "saf", agent=learned)
    made(tmp_path / "d", "f1", agent=learned | {"checkpoint": "other"})
    made(tmp_path / "e", "f2", agent={"path": "mine/own.py", "width": 3})
    expected = [
        "fcfs",
        "easy-sjf",
        "dqn(kubernetes_dqn)",
        "dqn(other)",
        "own",
    ]
    assert [row.configuration for row in compare([tmp_path], ["makespan"]).rows] == expected


def test_models_go_by_their_names_and_bring_their_settings_along(tmp_path: Path) -> None:
    none, fair = {"_target_": None}, {"_target_": "hdsim.contention.fair_share.FairShare", "memory_bound_fraction": 1.0}
    made(tmp_path / "a", "fcfs", contention=none)
    made(tmp_path / "b", "fcfs", contention=fair)
    found = {row.configuration for row in compare([tmp_path], ["makespan"]).rows}
    assert found == {"contention=none", "contention=fair_share"}
    made(tmp_path / "c", "fcfs", contention=fair | {"memory_bound_fraction": 0.5})
    made(tmp_path / "d", "fcfs", contention={"path": "models/crowd.py"})
    found = {row.configuration for row in compare([tmp_path], ["makespan"]).rows}
    assert found == {
        "contention=none",
        "contention=fair_share(memory_bound_fraction=1.0)",
        "contention=fair_share(memory_bound_fraction=0.5)",
        "contention=crowd",
    }


def test_backends_go_by_their_names(tmp_path: Path) -> None:
    made(tmp_path / "a", "fcfs", backend={"_target_": "hdsim.backends.kwok.backend.Kwok", "clock": "virtual"})
    made(tmp_path / "b", "fcfs", backend={"_target_": "hdsim.backends.sim.Sim", "batch_events": True})
    assert {row.configuration for row in compare([tmp_path]).rows} == {"backend=kwok", "backend=sim"}


def test_runs_of_equal_configurations_go_by_their_directories(tmp_path: Path) -> None:
    made(tmp_path / "old/x", "fcfs")
    made(tmp_path / "new/x", "fcfs")
    rows = compare([tmp_path / "old", tmp_path / "new"], ["makespan"]).rows
    assert [row.configuration for row in rows] == ["old/x", "new/x"]
    assert rows[1].difference == 0


def test_labels_of_the_users(tmp_path: Path) -> None:
    for seed in (1, 2):
        made(tmp_path / f"a{seed}", "fcfs", seed)
        made(tmp_path / f"b{seed}", "sjf", seed)
    given = {"ours (new)": tmp_path / "b2"}
    assert [row.configuration for row in compare([tmp_path], ["makespan"], labels=given).rows] == ["fcfs", "ours (new)"]
    base = compare([tmp_path], ["makespan"], labels={"first": tmp_path / "a1"}).rows
    assert [(row.configuration, row.baseline) for row in base] == [("first", True), ("sjf", False)]
    for wrong, message in (
        ({"x": tmp_path}, "expected runs of one configuration, got fcfs, sjf"),
        ({"sjf": tmp_path / "a1"}, "expected one label for each configuration, got sjf"),
        ({"x": tmp_path / "a1", "y": tmp_path / "a2"}, "expected one label for each configuration, got x, y"),
    ):
        with pytest.raises(ConfigError, match=message):
            compare([tmp_path], ["makespan"], labels=wrong)
    made(tmp_path / "other/c", "saf")
    with pytest.raises(ConfigError, match=r"--label x=.*other: expected a run that is compared"):
        compare([tmp_path / "a1", tmp_path / "b1"], labels={"x": tmp_path / "other"})


def test_baseline_by_option(tmp_path: Path) -> None:
    made(tmp_path / "a", "fcfs")
    made(tmp_path / "b", "sjf")
    assert row(compare([tmp_path], baseline=tmp_path / "b"), "makespan", "sjf").baseline
    assert row(compare([tmp_path / "a"], baseline=tmp_path / "b"), "makespan", "sjf").baseline


def test_baseline_by_label(tmp_path: Path) -> None:
    for factor in (1.0, 2.0, 3.0):
        for agent in ("fcfs", "sjf", "saf"):
            made(tmp_path / f"{agent}{factor}", agent, arrival_factor=factor)
    by_run = compare([tmp_path], baseline=tmp_path / "sjf1.0")
    assert compare([tmp_path], baseline=Path("sjf")).rows == by_run.rows
    named = compare([tmp_path], baseline=Path("mine"), labels={"mine": tmp_path / "saf1.0"})
    assert [row.configuration for row in named.rows if row.baseline and row.metric == "makespan"] == ["mine"] * 3
    expected = (
        r"--baseline: expected a run directory or one of the labels fcfs, saf, sjf, got 'sfj' \(did you mean 'sjf'\?\)"
    )
    with pytest.raises(ConfigError, match=expected):
        compare([tmp_path], baseline=Path("sfj"))


@pytest.mark.ci
def test_many_scenarios_fit_a_screen(hdsim: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    """Configurations by scenarios for each metric, then ratios over all of them; every detail on request."""
    for factor in (1.0, 2.0, 3.0):
        for seed in (1, 2):
            for agent in ("fcfs", "sjf", "saf"):
                made(tmp_path / f"sweep/{agent}{factor}{seed}", agent, seed, arrival_factor=factor)
    done = hdsim("compare", "sweep", "--metric", "mean_waiting_time")
    assert done.returncode == 0, done.stderr
    blocks = done.stdout.split("\n\n")
    heading, columns, *lines = blocks[0].splitlines()
    assert heading == "mean_waiting_time (s, lower is better)"
    assert columns.split() == ["arrival_factor=1.0", "arrival_factor=2.0", "arrival_factor=3.0"]
    comparison = compare([tmp_path / "sweep"], ["mean_waiting_time"])
    assert sorted(line.split()[0] for line in lines) == ["fcfs", "saf", "sjf"]
    for line in lines:
        agent, *cells = line.split()
        means = [
            row(comparison, "mean_waiting_time", agent, f"arrival_factor={load}") for load in ("1.0", "2.0", "3.0")
        ]
        assert [float(cell.rstrip("*").replace(",", "")) for cell in cells] == pytest.approx(
            [each.mean for each in means], rel=1e-3
        )
        assert [cell.endswith("*") for cell in cells] == [each.best for each in means]
    assert blocks[1].startswith("ratio of means to fcfs over ")
    assert "--details" in done.stdout and "difference" not in blocks[0]
    whole = hdsim("compare", "sweep", "--metric", "mean_waiting_time", "--details")
    assert whole.stdout.count("difference") >= 3 and "--details" not in whole.stdout


def test_the_best_has_the_highest_utilization_and_the_lowest_makespan(tmp_path: Path) -> None:
    results = {agent: made(tmp_path / agent, agent) for agent in ("fcfs", "ljf", "easy")}
    comparison = compare([tmp_path], ["utilization", "makespan"])
    for metric, choose in (("utilization", max), ("makespan", min)):
        best = choose(result.metrics[metric] for result in results.values())
        for agent, result in results.items():
            assert row(comparison, metric, agent).best == (result.metrics[metric] == best)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30))
def test_bootstrap_intervals_hold_the_mean_and_stay_inside_the_sample(values: list[float]) -> None:
    found = bootstrap(values)
    assert found == bootstrap(values) or len(values) == 1
    assert found.value == pytest.approx(np.mean(values))
    if len(values) > 1:
        slack = 1e-9 * max(map(abs, values), default=0)
        assert min(values) - slack <= found.low <= found.high <= max(values) + slack


def test_bootstrap_interval_of_a_large_normal_sample_is_the_textbooks() -> None:
    sample = np.random.default_rng(0).normal(10, 3, 20_000)
    found = bootstrap(sample)
    half = 1.96 * sample.std(ddof=1) / math.sqrt(len(sample))
    assert (found.low, found.high) == pytest.approx((found.value - half, found.value + half), abs=0.1 * half)


@pytest.mark.parametrize("draw", ["lognormal", "exponential"])
def test_bootstrap_intervals_of_large_samples_are_those_of_resampling(draw: str) -> None:
    rng = np.random.default_rng(1)
    sample = getattr(rng, draw)(size=10_001) ** 2
    means = np.sort([rng.choice(sample, len(sample)).mean() for _ in range(2000)])
    found = bootstrap(sample)
    # Standard errors of quantiles of 2,000 resamples: sqrt(p (1 - p) / n) over the density there.
    slack = 4 * math.sqrt(0.025 * 0.975 / 2000) / 0.0584 * means.std()
    assert (found.low, found.high) == pytest.approx((means[50], means[1950]), abs=slack)


def test_bootstrap_of_nothing_and_of_one() -> None:
    assert bootstrap([]).count == 0
    assert math.isnan(bootstrap([]).value)
    assert bootstrap([4.0]).value == 4.0 and math.isnan(bootstrap([4.0]).low)
    assert bootstrap([4.0, 4.0]).low == 4.0


def test_files_and_table_hold_every_row(tmp_path: Path) -> None:
    for seed in (1, 2):
        made(tmp_path / f"sweep/a{seed}", "fcfs", seed)
        made(tmp_path / f"sweep/b{seed}", "sjf", seed)
    comparison = compare([tmp_path / "sweep"])
    write_csv(comparison.rows, tmp_path / "compare.csv")
    write_figure(comparison, tmp_path / "compare.png")
    with (tmp_path / "compare.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["metric"], row["configuration"]) for row in rows] == [
        (row.metric, row.configuration) for row in comparison.rows
    ]
    assert float(rows[1]["mean"]) == comparison.rows[1].mean
    assert rows[0]["difference"] == "" and rows[0]["unit"] == "s"
    assert (tmp_path / "compare.png").read_bytes().startswith(b"\x89PNG")
    text = table(comparison)
    assert text.splitlines()[0].split() == list(comparison.metrics)
    for metric in comparison.metrics:
        assert f"\n{metric} (" in text
    assert "mean_waiting_time: sjf" in text


def broken(path: Path, how: str) -> Path:
    made(path, "sjf")
    manifest = path / "manifest.json"
    if how == "unfinished":
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"status": "interrupted"}))
    elif how == "absent":
        shutil.rmtree(path)
    elif how == "empty":
        shutil.rmtree(path)
        path.mkdir()
    elif how == "malformed":
        manifest.write_text("{")
    elif how == "cut":
        lines = (path / "jobs.csv").read_text().splitlines(keepends=True)
        (path / "jobs.csv").write_text("".join(lines[: len(lines) // 2]))
    else:
        (path / how).unlink()
    return path


@pytest.mark.parametrize("how", ["absent", "empty"])
def test_a_path_without_runs_is_refused(how: str, tmp_path: Path) -> None:
    made(tmp_path / "good", "fcfs")
    with pytest.raises(ConfigError, match="bad: expected a run directory or a sweep, got a"):
        compare([tmp_path / "good", broken(tmp_path / "bad", how)])


UNFINISHED = [
    ("unfinished", "interrupted"),
    ("malformed", "expected JSON"),
    ("jobs.csv", "a directory without jobs.csv"),
    ("metrics.json", "metrics.json, which is missing"),
    ("cut", "finished, but jobs.csv is damaged"),
]


@pytest.mark.parametrize(("how", "reason"), UNFINISHED)
def test_an_unfinished_run_is_left_out_or_refused(how: str, reason: str, tmp_path: Path) -> None:
    made(tmp_path / "good", "fcfs")
    made(tmp_path / "fine", "ljf")
    bad = broken(tmp_path / "bad", how).resolve()
    comparison = compare([tmp_path])
    assert list(comparison.left_out) == [bad] and reason in comparison.left_out[bad]
    assert {row.configuration for row in comparison.rows} == {"fcfs", "ljf"}
    with pytest.raises(ConfigError, match=f"(?s)bad: expected a finished run, got .*{reason.split()[-1]}"):
        compare([tmp_path], strict=True)
    with pytest.raises(ConfigError, match=f"(?s)bad: expected a finished run, got .*{reason.split()[-1]}"):
        compare([tmp_path / "good", tmp_path / "fine"], baseline=bad)


def test_without_a_finished_run_all_are_listed(tmp_path: Path) -> None:
    broken(tmp_path / "bad1", "unfinished")
    broken(tmp_path / "bad2", "jobs.csv")
    with pytest.raises(ConfigError, match=r"(?s)bad1.*bad2"):
        compare([tmp_path])
    made(tmp_path / "good", "fcfs")
    with pytest.raises(ConfigError, match=r"(?s)at least two runs to compare, got .*good alone\n.*bad1.*bad2"):
        compare([tmp_path])


def test_differences_between_software_and_inputs_are_told(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        made(tmp_path / name, "fcfs")
    runs, _ = finished([tmp_path / name for name in ("a", "b", "c")])
    assert other_sources(runs) == []
    manifest = json.loads((tmp_path / "c/manifest.json").read_text())
    manifest["versions"] |= {"numpy": "0.1", "not-installed": "9"}
    manifest["inputs"] = [{"kind": "workload", "path": "x.swf", "sha256": "0" * 64}]
    (tmp_path / "c/manifest.json").write_text(json.dumps(manifest))
    manifest["inputs"][0]["sha256"] = "1" * 64
    (tmp_path / "b/manifest.json").write_text(json.dumps(manifest))
    told = compare([tmp_path]).sources
    assert told == (
        f"numpy: {np.__version__} (1 run), 0.1 (2 runs)",
        "workload x.swf: sha256 111111111111 (1 run), sha256 000000000000 (1 run)",
    )


@pytest.mark.parametrize("what", ["jobs", "platforms"])
def test_jobs_and_platforms_that_no_setting_tells_apart_are_told(what: str, tmp_path: Path) -> None:
    """Workloads and platforms that a program makes are no settings: the better agent may have had the easier ones."""
    larger = package.Platform.homogeneous(nodes=4, cores_per_node=1, gflops_per_core=20.0)
    for seed in (1, 2):
        rng = np.random.default_rng(seed)
        columns = {"runtime": rng.integers(1, 40, 30), "requested_cores": rng.integers(1, 5, 30)}
        jobs = package.Workload.from_columns(submission_time=np.arange(30), **columns)
        package.simulate(PLATFORM, jobs, "sjf", seed=seed).save(tmp_path / f"sjf{seed}")
        package.simulate(PLATFORM, jobs, "easy", seed=seed).save(tmp_path / f"easy{seed}")
        easier = jobs.scaled_arrivals(5.0) if what == "jobs" else jobs
        platform = larger if what == "platforms" else PLATFORM
        package.simulate(platform, easier, "easy", seed=seed).save(tmp_path / "other" / f"easy{seed}")
    sjf = sorted(tmp_path.glob("sjf*"))
    assert compare([*sjf, *sorted(tmp_path.glob("easy*"))]).sources == ()
    (told,) = compare([*sjf, tmp_path / "other"]).sources
    assert told.startswith(f"{what} differ in 2 of 2 replications that the settings call the same, such as {tmp_path}")


def test_one_run_and_unknown_metrics_are_refused(tmp_path: Path) -> None:
    made(tmp_path / "a", "fcfs")
    with pytest.raises(ConfigError, match="expected at least two runs"):
        compare([tmp_path, tmp_path / "a"])
    made(tmp_path / "b", "sjf")
    with pytest.raises(ConfigError, match=r"got 'makspan' \(did you mean 'makespan'\?\)"):
        compare([tmp_path], ["makspan"])


@pytest.mark.ci
def test_command(hdsim: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    for seed in (1, 2):
        made(tmp_path / f"sweep/a{seed}", "fcfs", seed)
        made(tmp_path / f"sweep/b{seed}", "sjf", seed)
    done = hdsim("compare", "sweep", "-o", "out/here", "--metric", "makespan", "--baseline", "sweep/b1")
    assert done.returncode == 0, done.stderr
    assert "makespan (s, lower is better)" in done.stdout
    assert sorted(path.name for path in (tmp_path / "out/here").iterdir()) == [
        "compare.csv",
        "compare.html",
        "compare.png",
        "compare_ratios.csv",
        "compare_windows.csv",
        "compare_windows.png",
    ]
    broken(tmp_path / "sweep/bad", "unfinished")
    options = (
        "--html",
        "pages/x.html",
        "--latex",
        "x.tex",
        "--figure-format",
        "pdf",
        "--heatmap",
        "--label",
        "mine=2=sweep/b1",
    )
    done = hdsim("compare", "sweep", "-o", "papers", *options)
    assert done.returncode == 0, done.stderr
    assert "warning: 1 of 5 runs are left out:" in done.stderr and "sweep/bad: interrupted" in done.stderr
    assert "makespan: mine=2" in done.stdout or "makespan: fcfs" in done.stdout
    assert sorted(path.name for path in (tmp_path / "papers").iterdir()) == [
        "compare.csv",
        "compare.pdf",
        "compare_heatmap.pdf",
        "compare_ratios.csv",
        "compare_windows.csv",
        "compare_windows.pdf",
    ]
    assert (tmp_path / "papers/compare.pdf").read_bytes().startswith(b"%PDF") and (tmp_path / "pages/x.html").is_file()
    assert hdsim("compare", "sweep", "-o", "none", "--strict").returncode == 2
    for wrong in ("mine", "=sweep", "mine="):
        refused = hdsim("compare", "sweep", "-o", "none", "--label", wrong)
        assert refused.returncode == 2 and "expected NAME=RUN" in refused.stderr
    refused = hdsim("compare", "sweep", "nowhere", "-o", "none")
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1 and "nowhere: expected a run directory" in refused.stderr
    assert not (tmp_path / "none").exists()


def test_runs_without_a_metric_in_common_are_one_line(
    hdsim: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    made(tmp_path / "run", "fcfs")
    assert hdsim("bsp", "run", "supersteps=2", "hydra.run.dir=gang").returncode == 0
    for pair in (("gang", "run"), ("run", "gang")):
        done = hdsim("compare", *pair, "-o", "out")
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
        assert "expected runs with a metric in common" in done.stderr and not (tmp_path / "out").exists()


def test_figures_for_papers_have_words_and_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in (1, 2):
        for agent in ("fcfs", "sjf", "ljf"):
            made(tmp_path / f"{agent} {seed}", agent, seed)
    units = {
        "makespan": {"s", "min"},
        "mean_waiting_time": {"s", "min"},
        "mean_bounded_slowdown": {""},
        "energy_joules": {"J", "kJ"},
        "peak_power_watts": {"W"},
    }
    comparison = compare([tmp_path], list(units))
    drawn: list[Any] = []
    monkeypatch.setattr(compare_figures, "save", lambda figure, path: drawn.append(figure))
    write_figure(comparison, tmp_path / "a.pdf")
    assert write_windows(comparison, tmp_path / "b.pdf")
    factors = relative(comparison, "best")
    compare_figures.write_heatmap(factors, [row.configuration for row in factors.rows], tmp_path / "c.pdf")
    means, differences, heat = drawn
    for figure in (means, differences):
        titles = [axes.get_title() for axes in figure.axes if axes.get_visible()]
        assert titles == ["makespan", "mean waiting time", "mean bounded slowdown", "energy", "peak power"]
        for axes, allowed in zip(figure.axes, units.values(), strict=False):
            assert re.sub(r" ?\(?(lower|higher) is better\)?", "", axes.get_xlabel()) in allowed
    assert not any("_" in label.get_text() for label in heat.axes[0].get_xticklabels())


def test_the_table_fits_100_columns(tmp_path: Path) -> None:
    """Whatever the length of labels and numbers."""
    for load in (0.5, 1.0):
        for width in (1, 2):
            agent = {"path": "mine/own.py", "a_long_name_of_a_setting": "x" * 30 + str(width), "width": width}
            made(tmp_path / f"{load}-{width}", "fcfs", 1, agent=agent, workload={"arrival_factor": load})
            made(tmp_path / f"{load}-{width}-2", "fcfs", 2, agent=agent, workload={"arrival_factor": load})
    comparison = compare([tmp_path])
    text = table(comparison)
    assert max(map(len, text.splitlines())) <= 100
    assert len({row.configuration for row in comparison.rows}) == 2
    names = {line.split("  ")[0] for line in text.splitlines() if line.startswith("own(")}
    assert len(names) == 2 and all(len(name) <= 40 and "…" in name for name in names)


def test_latex(tmp_path: Path) -> None:
    for load in (0.5, 1.0):
        for agent in ("fcfs", "ljf", "sjf"):
            made(tmp_path / f"{agent}-{load}", agent, workload={"arrival_factor": load})
    comparison = compare([tmp_path], labels={"100% a_b {\\~^#&$}": tmp_path / "sjf-1.0"})
    write_latex(comparison, tmp_path / "table.tex", name="orders")
    text = (tmp_path / "table.tex").read_text()
    for found in (r"\label{tab:orders}", r"\caption{", r"\emph{arrival\_factor=0.5}", "mean waiting time"):
        assert text.count(found) == 1
    escaped = r"100\% a\_b \{\textbackslash{}\textasciitilde{}\textasciicircum{}\#\&\$\}"
    assert text.count(f"\n{escaped} & ") == 2
    for name in ("table", "tabular"):
        assert text.count(rf"\begin{{{name}}}") == text.count(rf"\end{{{name}}}") == 1
    rules = [text.index(rf"\{rule}") for rule in ("toprule", "midrule", "bottomrule")]
    assert rules == sorted(rules)
    # Every line has as many cells, and braces and signs of mathematics come in pairs.
    lines = [line for line in text[rules[0] : rules[2]].splitlines() if " & " in line]
    assert {len(re.split(r"(?<!\\)&", line)) for line in lines} == {len(comparison.metrics) + 1}
    plain = re.sub(r"\\[{}$%]", "", text)
    assert plain.count("{") == plain.count("}") and all(line.count("$") % 2 == 0 for line in plain.splitlines())
    best = sum(row.best for row in comparison.rows)
    assert text.count(r"\mathbf{") == best
    engine = next(filter(None, map(shutil.which, ("tectonic", "pdflatex", "lualatex", "xelatex"))), None)
    if engine:
        (tmp_path / "paper.tex").write_text(
            "\\documentclass{article}\\usepackage{booktabs}\\begin{document}" + text + "\\end{document}"
        )
        subprocess.run([engine, "paper.tex"], cwd=tmp_path, check=True, stdin=subprocess.DEVNULL, capture_output=True)


# Windows


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40))
def test_the_interquartile_mean_leaves_out_a_quarter_at_each_end(values: list[float]) -> None:
    cut = len(values) // 4
    middle = sorted(values)[cut : len(values) - cut]
    assert float(interquartile_mean(np.array(values))) == pytest.approx(np.mean(middle), abs=1e-6)


def test_every_run_of_a_sweep_is_told(tmp_path: Path) -> None:
    values = {
        (agent, seed): made(tmp_path / f"{agent}-{seed}", agent, seed).metrics["makespan"]
        for seed in (1, 2, 3, 4)
        for agent in ("fcfs", "sjf")
    }
    comparison = compare([tmp_path], ["makespan"])
    found = {(window.configuration, window.replication): window for window in comparison.windows}
    assert len(found) == 8
    for (agent, seed), value in values.items():
        window = found[agent, f"seed={seed}"]
        assert window.value == pytest.approx(value)
        assert agent == "fcfs" or window.difference == pytest.approx(value - values["fcfs", seed])
    middle = row(comparison, "makespan", "sjf")
    assert middle.iqm == pytest.approx(np.mean(sorted(values["sjf", seed] for seed in (1, 2, 3, 4))[1:3]))
    assert middle.iqm_low <= middle.iqm <= middle.iqm_high


def trained(path: Path, seed: int, scores: dict[str, list[float]], **settings: Any) -> None:
    """The directory of a training, as far as comparisons read it."""
    made(path, "fcfs", seed, agent={"_target_": "hdsim.agents.ppo.PPOAgent"}, **settings)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["training"] = {"agent": "PPOAgent", "shipped": "best.safetensors", "best_classic": "sjf"}
    (path / "manifest.json").write_text(json.dumps(manifest))
    lines = ["agent,window,makespan"]
    lines += [f"{agent},{window},{score}" for agent, found in scores.items() for window, score in enumerate(found)]
    (path / "evaluation.csv").write_text("\n".join(lines) + "\n")


def test_trainings_are_compared_by_their_test_windows(tmp_path: Path) -> None:
    fixed = {"fcfs": [9.0, 9.0, 9.0], "sjf": [5.0, 7.0, 6.0]}
    trained(tmp_path / "one", 1, {"final": [9.0, 9.0, 9.0], "best": [4.0, 4.0, 6.0], **fixed})
    trained(tmp_path / "two", 2, {"final": [9.0, 9.0, 9.0], "best": [3.0, 5.0, 5.0], **fixed})
    comparison = compare([tmp_path], ["makespan"])
    rows = {row.configuration: row for row in comparison.rows}
    assert set(rows) == {"ppo(best)", "fcfs", "sjf"}
    ours = rows["ppo(best)"]
    assert (ours.runs, ours.pairs, ours.best, rows["sjf"].baseline) == (6, 3, True, True)
    assert (ours.mean, ours.difference) == pytest.approx((4.5, -1.5))
    assert ours.difference_high < 0
    # Two trainings on the same windows: the sample of a classic policy is still those windows.
    alone = compare([tmp_path / "one"], ["makespan"])
    both, one = rows["sjf"], {row.configuration: row for row in alone.rows}["sjf"]
    assert (both.mean, both.low, both.high) == (one.mean, one.low, one.high)
    assert {row.configuration: row.runs for row in alone.rows}["ppo(best)"] == 3
    assert "interval over windows" in table(comparison)
    assert write_windows(comparison, tmp_path / "windows.png")
    assert (tmp_path / "windows.png").stat().st_size > 5000


def test_a_training_without_classic_policies_has_no_differences_to_draw(tmp_path: Path) -> None:
    trained(tmp_path / "one", 1, {"final": [9.0, 9.0], "best": [4.0, 4.0]})
    comparison = compare([tmp_path / "one"], ["makespan"])
    assert not write_windows(comparison, tmp_path / "windows.png")
    assert not (tmp_path / "windows.png").exists()


def test_trainings_with_other_settings_are_other_configurations(tmp_path: Path) -> None:
    fixed = {"best": [4.0, 5.0], "fcfs": [9.0, 9.0], "sjf": [5.0, 7.0]}
    for gamma in (0.9, 0.99):
        trained(tmp_path / str(gamma), 1, fixed, train={"gamma": gamma})
    found = {row.configuration: row.runs for row in compare([tmp_path], ["makespan"]).rows}
    assert set(found.values()) == {2}
    assert set(found) == {"ppo(best) gamma=0.9", "ppo(best) gamma=0.99", "fcfs", "sjf"}


def test_runs_of_a_sweep_are_in_the_order_of_its_plan(tmp_path: Path) -> None:
    """Processes of a sweep may start its second run before its first one, which is the baseline all the same."""
    for number, start in enumerate(("2026-01-01T00:00:02", "2026-01-01T00:00:01", "2026-01-01T00:00:03")):
        run = tmp_path / f"{'bca'[number]}"
        (run / ".hydra").mkdir(parents=True)
        (run / ".hydra/hydra.yaml").write_text(f"hydra:\n  job:\n    id: '3'\n    num: {number}\n")
        (run / "manifest.json").write_text(json.dumps({"status": "finished", "config": {}, "start": start}))
    assert [path.name for path in run_directories(tmp_path)] == ["b", "c", "a"]
    for path in tmp_path.glob("*/.hydra/hydra.yaml"):
        path.unlink()
    assert [path.name for path in run_directories(tmp_path)] == ["c", "b", "a"]
