"""Ratios of configurations to the baseline over seeds, traces and windows, against matrices made by hand."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from test_compare import made, trained

from hdsim.report.compare import compare
from hdsim.report.compare_output import summary, table, write_csv
from hdsim.report.compare_page import render
from hdsim.report.ratios import Ratio, ratios
from hdsim.report.statistics import against
from hdsim.results import claims


def numbers(ratio: Ratio) -> list[float]:
    return [number for one in (ratio.ratio, ratio.geometric, ratio.middle, ratio.improvement) for number in one.numbers]


def test_trainings_have_windows_and_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    classic = {"fcfs": [9.0, 9.0, 9.0, 8.0], "sjf": [5.0, 7.0, 6.0, 4.0]}
    scores = np.array([[4.0, 4.0, 6.0, 5.0], [3.0, 5.0, 5.0, 5.0]])
    for seed in (1, 2):
        trained(tmp_path / str(seed), seed, {"best": scores[seed - 1].tolist(), **classic})
    comparison = compare([tmp_path], ["makespan"])
    found = {one.configuration: one for one in ratios(comparison)}
    assert set(found) == {"ppo(best)", "fcfs"}
    ours, base = found["ppo(best)"], np.array(classic["sjf"])
    assert (ours.baseline, ours.seeds, ours.traces, ours.windows) == ("sjf", 2, 1, 4)
    assert ours.ratio.value == pytest.approx(scores.mean() / base.mean())
    assert ours.geometric.value == pytest.approx(stats.gmean(scores / base, axis=None))
    assert ours.middle.value == pytest.approx(np.sort((scores / base).ravel())[2:6].mean())
    assert ours.improvement.value == pytest.approx(5.5 / 8)
    assert ours.ratio.low < ours.ratio.value < ours.ratio.high and ours.improvement.high <= 1
    assert (found["fcfs"].seeds, found["fcfs"].improvement.value) == (2, 0.0)
    text = table(comparison, ratios=ratios(comparison))
    assert "makespan relative to sjf" in text and "4 of 1 trace, 2 seeds" in text
    page = render(comparison, (), tmp_path, ratios=ratios(comparison))
    assert "Relative to the baseline" in page and "4 of 1 trace, 2 seeds" in page
    missing = "not enough for a claim: expected at least 100 windows of 20 traces, got 4 of 1"
    short = summary(comparison, ratios=ratios(comparison))
    assert f"\n{missing}" in text and f"\n{missing}" in short and f"This is {missing}." in page
    monkeypatch.setattr(claims, "FEWEST_WINDOWS", 4)
    monkeypatch.setattr(claims, "FEWEST_TRACES", 1)
    assert "claim" not in table(comparison, ratios=ratios(comparison)) + summary(comparison, ratios=ratios(comparison))
    assert "claim" not in render(comparison, (), tmp_path, ratios=ratios(comparison))


def test_scenarios_replay_the_windows_of_one_trace(tmp_path: Path) -> None:
    values = {}
    for load in (0.5, 0.7, 0.9):
        for start in (0, 100):
            for agent in ("fcfs", "sjf"):
                workload = {"arrival_factor": load, "start": start}
                metrics = made(tmp_path / f"{agent}-{load}-{start}", agent, int(10 * load) + start, workload=workload)
                values[agent, load, start] = metrics.metrics
    for path in tmp_path.glob("*/manifest.json"):  # One seed, whose jobs are those of load and start.
        manifest = json.loads(path.read_text())
        manifest["config"]["seed"] = 1
        path.write_text(json.dumps(manifest))
    comparison = compare([tmp_path], ["mean_turnaround_time", "utilization"], tmp_path / "fcfs-0.5-0")
    found = {one.metric: one for one in ratios(comparison)}
    for metric, higher in (("mean_turnaround_time", False), ("utilization", True)):
        ours, base = (
            np.array([values[agent, load, start][metric] for load in (0.5, 0.7, 0.9) for start in (0, 100)])
            for agent in ("sjf", "fcfs")
        )
        one = found[metric]
        assert (one.configuration, one.seeds, one.traces, one.windows) == ("sjf", 1, 1, 6)
        expected = against(ours[np.newaxis], base, [0] * 6, [0, 1] * 3, higher=higher)
        told = [
            (each.value, each.low, each.high)
            for each in (expected.ratio, expected.geometric, expected.middle, expected.improvement)
        ]
        assert numbers(one) == pytest.approx([number for each in told for number in each])
        wins = np.where(ours == base, 0.5, (ours > base) == higher)
        assert one.improvement.value == pytest.approx(wins.mean())
    write_csv(ratios(comparison), tmp_path / "ratios.csv")
    with (tmp_path / "ratios.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert float(rows[0]["geometric"]) == found["mean_turnaround_time"].geometric.value and rows[0]["traces"] == "1"


def test_seeds_that_draw_jobs_are_traces_and_others_are_trainings(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        for agent in ("fcfs", "sjf"):
            made(tmp_path / "drawn" / f"{agent}-{seed}", agent, seed)
            for start in (0, 100):
                run = tmp_path / "fixed" / f"{agent}-{seed}-{start}"
                made(run, agent, 1 + start, workload={"start": start})
                manifest = json.loads((run / "manifest.json").read_text())
                manifest["config"]["seed"] = seed
                (run / "manifest.json").write_text(json.dumps(manifest))
    (drawn,) = ratios(compare([tmp_path / "drawn"], ["makespan"]))
    assert (drawn.seeds, drawn.traces, drawn.windows) == (1, 3, 3)
    (fixed,) = ratios(compare([tmp_path / "fixed"], ["makespan"]))
    assert (fixed.seeds, fixed.traces, fixed.windows) == (3, 1, 2)


def test_what_has_no_ratios(tmp_path: Path) -> None:
    trained(tmp_path / "zero", 1, {"best": [0.0, 4.0], "sjf": [5.0, 7.0]})
    assert ratios(compare([tmp_path / "zero"], ["makespan"])) == ()
    trained(tmp_path / "nan", 1, {"best": [math.nan, 4.0], "sjf": [5.0, 7.0]})
    assert ratios(compare([tmp_path / "nan"], ["makespan"])) == ()
    trained(tmp_path / "one", 1, {"best": [3.0], "sjf": [5.0]})
    assert ratios(compare([tmp_path / "one"], ["makespan"])) == ()
    for agent in ("fcfs", "sjf"):
        made(tmp_path / "runs" / agent, agent)
    assert ratios(compare([tmp_path / "runs"], ["makespan"])) == ()


def test_scaled_copies_of_a_trace_are_no_further_traces() -> None:
    """Ten traces at four loads: the interval is that of ten, as of resampling the traces by hand."""
    rng = np.random.default_rng(3)
    trace = rng.normal(0, 0.4, 10)
    scores = np.exp(np.concatenate([trace + rng.normal(0, 0.02, 10) for _ in range(4)]))
    base, traces = np.ones(40), np.tile(np.arange(10), 4)
    found = against(scores[np.newaxis], base, traces, np.zeros(40, int)).ratio
    drawn = rng.integers(10, size=(20_000, 10))
    means = np.mean([scores.reshape(4, 10)[:, chosen].mean() for chosen in drawn.tolist()])
    sample = scores.reshape(4, 10).mean(axis=0)[drawn].mean(axis=1)
    assert means == pytest.approx(found.value, rel=0.02)
    assert (found.low, found.high) == pytest.approx(np.quantile(sample, [0.025, 0.975]), rel=0.02)
    alone = against(scores[np.newaxis], base, np.arange(40)).ratio
    assert found.high - found.low > 1.6 * (alone.high - alone.low)
