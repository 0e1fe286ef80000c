"""Kinds of machines and loads: distributions, loads, cycles, sessions, requests, failures, files."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import hdsim
from hdsim.errors import ConfigError
from hdsim.results.run_directory.inputs import digest
from hdsim.simulation.window_sets import WindowSet
from hdsim.simulation.windows import machine
from hdsim.util.resources import bundled
from hdsim.workload.generators.distributions import distribution
from hdsim.workload.generators.kinds import DAYS, HOUR, WEEKS, LoadKind, draw_kind, kind_of, kinds, read_kind

KINDS = sorted(bundled("kinds"))
CLASS = {"cores": 1, "runtime": 100}


def kind(load: float = 0.7, cores: int = 64, **classes: Any) -> LoadKind:
    """A kind of one class or of several."""
    document = {"version": 1, "about": "test", "machine": {"cores": cores}, "load": load, "classes": classes}
    return kind_of(document, "test", "test")


def lomax(low: float, alpha: float, high: float) -> Any:
    """CDF of the bounded Pareto distribution."""
    return lambda x: (1 - (low / x) ** alpha) / (1 - (low / high) ** alpha)


@pytest.mark.parametrize(
    ("spec", "cdf"),
    [
        ({"uniform": {"low": 2, "high": 5}}, stats.uniform(2, 3).cdf),
        ({"loguniform": {"low": 2, "high": 500}}, stats.loguniform(2, 500).cdf),
        ({"exponential": {"mean": 7}}, stats.expon(scale=7).cdf),
        ({"lognormal": {"median": 600, "sigma": 1.5}}, stats.lognorm(1.5, scale=600).cdf),
        ({"weibull": {"scale": 3, "shape": 0.5}}, stats.weibull_min(0.5, scale=3).cdf),
        ({"pareto": {"low": 10, "alpha": 0.55, "high": 5e5}}, lomax(10, 0.55, 5e5)),
        (
            {"mixture": [{"weight": 3, "exponential": {"mean": 1}}, {"weight": 1, "uniform": {"low": 0, "high": 9}}]},
            lambda x: 0.75 * stats.expon().cdf(x) + 0.25 * stats.uniform(0, 9).cdf(x),
        ),
    ],
)
def test_draws_have_the_distribution(spec: dict[str, Any], cdf: Any) -> None:
    drawn = distribution(spec, "test").draw(np.random.default_rng(1), 20_000)
    assert stats.kstest(drawn, cdf).pvalue > 0.01


def test_discrete_distributions() -> None:
    rng = np.random.default_rng(1)
    powers = distribution({"powers_of_2": {"low": 3, "high": 70}}, "test").draw(rng, 8000)
    assert stats.chisquare(np.unique(powers, return_counts=True)[1]).pvalue > 0.01
    assert set(powers.tolist()) == {4, 8, 16, 32, 64}
    chosen = distribution({"choice": {"values": [5, 1], "weights": [1, 3]}}, "test").draw(rng, 8000)
    assert (chosen == 1).mean() == pytest.approx(0.75, abs=0.02)
    cut = distribution({"exponential": {"mean": 10}, "least": 5, "most": 20}, "test").draw(rng, 8000)
    assert (cut == 5).mean() == pytest.approx(1 - np.exp(-0.5), abs=0.02)
    assert (cut == 20).mean() == pytest.approx(np.exp(-2), abs=0.02)


@pytest.mark.parametrize("name", KINDS)
def test_traces_of_bundled_kinds(name: str) -> None:
    own = read_kind(name)
    drawn = [hdsim.draw_workload(name, seed, 2000) for seed in range(3)]
    for trace in drawn:
        assert len(trace) == 2000 and trace.cluster_cores in own.cores
        assert trace.requested_cores.max() <= trace.cluster_cores
        # Within 2 %, also where users wait for their jobs.
        assert own.load[0] * 0.98 <= trace.offered_load <= own.load[1] * 1.02
        assert (trace.submission_time % 1 == 0).all() and (trace.runtime >= 1).all()
        shares = np.array([each.share for each in own.classes])
        assert np.bincount(trace.queue) / 2000 == pytest.approx(shares / shares.sum(), abs=0.001)
        late = trace.requested_time < trace.runtime
        assert not late[~np.array([each.under for each in own.classes])[trace.queue]].any()
    assert len({digest(trace) for trace in drawn}) == 3
    assert digest(hdsim.draw_workload(name, 1, 2000)) == digest(drawn[1])
    assert digest(hdsim.draw_workload(name, 1, 2000, split="test")) != digest(drawn[1])


def test_training_and_held_out_kinds_differ() -> None:
    assert sum(each.held_out for each in kinds().values()) == 4
    assert sum(not each.held_out for each in kinds().values()) == 7


@pytest.mark.parametrize("load", [0.3, 0.9, 1.4])
def test_the_offered_load_is_the_one_asked_for(load: float) -> None:
    batch = {**CLASS, "runtime": {"lognormal": {"median": 300, "sigma": 1.5}}, "arrivals": {"day": "office"}}
    trace = draw_kind(kind(load, batch=batch), 3000, 5)
    assert trace.offered_load == pytest.approx(load, rel=0.005)
    trace = draw_kind(kind(batch=batch), 3000, 5, load=load, cores=32)
    assert trace.offered_load == pytest.approx(load, rel=0.005) and trace.cluster_cores == 32


def test_tails_of_run_times_are_power_laws() -> None:
    heavy = {"cores": 1, "runtime": {"pareto": {"low": 10, "alpha": 0.8, "high": 1e8}}}
    runtime = draw_kind(kind(heavy=heavy), 30_000, 2).runtime
    # Hill's estimator of the exponent of the tail, from the largest 1,000 of them.
    top = np.sort(runtime)[-1001:]
    assert 1 / np.mean(np.log(top[1:] / top[0])) == pytest.approx(0.8, abs=0.08)
    assert np.sort(runtime)[-300:].sum() > 0.5 * runtime.sum()


def test_sessions_start_in_the_cycles_of_day_and_week() -> None:
    batch = {**CLASS, "arrivals": {"day": "office", "week": "working"}}
    trace = draw_kind(kind(0.01, batch=batch), 40_000, 3)
    hour = (trace.original_submission_time // HOUR).astype(int) % 168
    expected = np.outer(WEEKS["working"], DAYS["office"]).ravel()
    weeks = trace.submission_time[-1] / 604800
    assert weeks > 5
    found = np.bincount(hour, minlength=168) / len(trace)
    assert np.corrcoef(found, expected)[0, 1] > 0.98
    # The first and the last week are not whole.
    assert found == pytest.approx(expected / expected.sum(), abs=0.15 * expected.max() / expected.sum())
    assert np.bincount(hour, minlength=168)[5 * 24 + 3] < np.bincount(hour, minlength=168)[2 * 24 + 10] / 10


def test_gaps_are_those_of_the_distribution() -> None:
    batch = {**CLASS, "arrivals": {"gaps": {"weibull": {"scale": 1, "shape": 0.5}}}}
    gaps = np.diff(draw_kind(kind(0.002, batch=batch), 20_000, 4).submission_time)
    expected = stats.weibull_min(0.5, scale=gaps.mean() / 2)
    # Times are whole seconds, and their mean is some thousands.
    assert gaps.mean() > 500 and stats.kstest(gaps, expected.cdf).statistic < 0.04


def test_arrays_and_campaigns_keep_jobs_together() -> None:
    arrays = {
        "cores": {"powers_of_2": {"low": 1, "high": 16}},
        "runtime": {"lognormal": {"median": 100, "sigma": 2}},
        "array": {"jobs": 20, "gap": 2, "spread": 0.1},
        "session": {"submissions": 5, "think": 600, "repeat": 1},
    }
    trace = draw_kind(kind(arrays=arrays), 4000, 6)
    submission, session = trace.further["submission"], trace.further["session"]
    assert np.bincount(submission).tolist() == [20] * 200 and np.bincount(session).tolist() == [100] * 40
    for each in range(0, 200, 7):
        rows = np.flatnonzero(submission == each)
        assert len(set(trace.requested_cores[rows].tolist())) == 1
        assert np.diff(trace.submission_time[rows]).tolist() == [2] * 19
        assert np.log(trace.runtime[rows]).std() < 0.25
    for each in range(40):
        assert len(set(trace.requested_cores[session == each].tolist())) == 1
        first = [trace.submission_time[submission == one].min() for one in set(submission[session == each].tolist())]
        pauses = np.diff(np.sort(first))
        # A session that is under way at the begin of the trace has its other part at the end.
        assert (pauses == 600).sum() >= 3


def test_sessions_and_arrays_are_as_long_as_the_trace_at_most() -> None:
    for longest in ({"session": {"submissions": 10**19}}, {"array": {"jobs": 10**19}}):
        trace = draw_kind(kind(jobs={"cores": 1, "runtime": 10, **longest}), 40, 1)
        assert len(trace) == 40 and set(trace.further["session"].tolist()) == {trace.further["session"][0]}


def test_users_of_closed_sessions_wait_for_their_jobs() -> None:
    closed = {
        "cores": {"powers_of_2": {"low": 1, "high": 32}},
        "runtime": {"lognormal": {"median": 400, "sigma": 1.3}},
        "session": {"submissions": 6, "think": {"exponential": {"mean": 90}}, "after": "end"},
        "array": {"jobs": 3, "gap": 1},
    }
    trace = draw_kind(kind(0.8, closed=closed, batch={"cores": 4, "runtime": 500}), 3000, 7)
    assert trace.offered_load == pytest.approx(0.8, rel=0.02)
    # The simulator replays what the generator has assumed: jobs start in order of submission where they fit.
    ends = hdsim.simulate(machine(64), trace, "greedy-fcfs").finish_time
    submission, session, think = (trace.further[name] for name in ("submission", "session", "think_time"))
    waited = 0
    for each in np.unique(session[trace.queue == 0]):
        own = np.unique(submission[session == each])
        for before, after in pairwise(own):
            begin = trace.submission_time[submission == after].min()
            assert begin == ends[submission == before].max() + think[submission == after][0]
            waited += 1
    assert waited > 300


@pytest.mark.parametrize(
    ("request_of", "check"),
    [
        ({"shape": "exact"}, lambda asked, ran: (asked == ran).all()),
        ({"shape": "limit"}, lambda asked, ran: (asked == 5000).all() and ran.max() == 5000),
        (
            {"shape": "factor", "of": 3},
            # Run times are rounded, the level that the user knows is not.
            lambda asked, ran: (abs(asked - 3 * ran) <= 3)[ran < 1500].all(),
        ),
        (
            {"shape": "factor", "of": {"uniform": {"low": 1, "high": 9}}, "round": [600, 3600, 7200]},
            lambda asked, ran: set(asked.tolist()) == {600, 3600, 7200} and (asked >= ran).all(),
        ),
        (
            {"shape": "drawn", "of": {"loguniform": {"low": 60, "high": 5000}}, "under": True},
            lambda asked, ran: abs(np.corrcoef(asked, ran)[0, 1]) < 0.05 and (asked < ran).mean() > 0.2,
        ),
    ],
)
def test_requested_times(request_of: dict[str, Any], check: Any) -> None:
    batch = {"cores": 2, "runtime": {"lognormal": {"median": 500, "sigma": 2}}, "limit": 5000, "request": request_of}
    trace = draw_kind(kind(batch=batch), 5000, 8)
    assert check(trace.requested_time, trace.runtime)


def test_jobs_fail_early_in_long_requests() -> None:
    batch = {
        "cores": 1,
        "runtime": 80_000,
        "limit": 86_400,
        "request": {"shape": "limit"},
        "failures": {"share": 0.3, "after": {"exponential": {"mean": 120}}},
    }
    trace = draw_kind(kind(batch=batch), 5000, 9)
    failed = trace.status == 0
    assert failed.mean() == pytest.approx(0.3, abs=0.02)
    assert trace.runtime[failed].mean() == pytest.approx(120, rel=0.1) and (trace.runtime[~failed] == 80_000).all()
    assert (trace.requested_time == 86_400).all() and (trace.return_code[failed] == 1).all()


def test_sizes_as_shares_of_the_machine() -> None:
    hero = {"machine_share": {"choice": {"values": [0.25, 0.6, 1]}}, "multiple": 32, "runtime": 100, "scaling": 0.5}
    trace = draw_kind(kind(hero=hero, cores=512), 300, 1)
    assert set(trace.requested_cores.tolist()) == {128, 320, 512}
    assert np.array_equal(trace.runtime, np.round(100 * np.sqrt(trace.requested_cores)))


def test_users_have_sessions_by_zipf() -> None:
    batch = {**CLASS, "users": {"number": 5, "activity": 1}}
    trace = draw_kind(kind(batch=batch, other={**CLASS, "users": {"number": 3}}), 20_000, 2)
    counts = np.bincount(trace.user[trace.queue == 0])[1:]
    assert counts / counts.sum() == pytest.approx((1 / np.arange(1, 6)) / np.sum(1 / np.arange(1, 6)), abs=0.02)
    assert set(trace.user[trace.queue == 1].tolist()) == {6, 7, 8}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 2}, "kind.version: expected 1, got 2"),
        ({"lode": 1}, "kind.lode: unknown key .did you mean 'load'"),
        ({"load": [2, 1]}, r"kind.load: expected a number > 0 or \[low, high\]"),
        ({"machine": {}}, "kind.machine.cores: expected a whole number >= 1"),
        ({"classes": {"a": {"runtime": 1}}}, "kind.classes.a: expected cores or machine_share, one of them"),
        ({"classes": {"a": {"cores": 1}}}, "kind.classes.a.runtime: expected a distribution, got none"),
        (
            {"classes": {"a": {**CLASS, "runtime": {"lognormal": {"median": 3}}}}},
            "kind.classes.a.runtime.lognormal.sigma: expected a number, got none",
        ),
        (
            {"classes": {"a": {**CLASS, "runtime": {"lognromal": {}}}}},
            "kind.classes.a.runtime: expected one of .* got 'lognromal' .did you mean 'lognormal'",
        ),
        (
            {"classes": {"a": {**CLASS, "users": {"number": 1e9}}}},
            "kind.classes.a.users.number: expected a whole number from 1 to 10,000,000",
        ),
        ({"classes": {"a": {**CLASS, "array": {"job": 3}}}}, "kind.classes.a.array.job: unknown key"),
        (
            {"classes": {"a": {**CLASS, "request": {"shape": "limit"}}}},
            "kind.classes.a.limit: expected a number > 0 with the request's shape limit",
        ),
        (
            {"classes": {"a": {**CLASS, "request": {"shape": "factor"}}}},
            "kind.classes.a.request.of: expected a distribution .requested time / run time. with shape factor",
        ),
        (
            {"classes": {"a": {**CLASS, "failures": {"share": 0.1}}}},
            "failures.after: expected a distribution, got none",
        ),
        (
            {"classes": {"a": {**CLASS, "arrivals": {"day": "offce"}}}},
            "arrivals.day: expected flat, office, night or 24",
        ),
    ],
)
def test_wrong_files(changes: dict[str, Any], message: str) -> None:
    document = {"version": 1, "about": "test", "machine": {"cores": 8}, "load": 0.5, "classes": {"a": CLASS}}
    with pytest.raises(ConfigError, match=message):
        kind_of({**document, **changes}, "kind", "kind")


def test_a_kind_is_a_file_a_generator_and_a_source_of_windows(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("{version: 1, about: mine, machine: {cores: 16}, load: 0.8, classes: {a: {cores: 2, runtime: 60}}}")
    drawn = hdsim.draw_workload(str(path), 4, 300, split="validation")
    platform = hdsim.Platform.homogeneous(nodes=4, cores_per_node=4, gflops_per_core=1.0)
    spec = {"model": "kind", "kind": str(path), "jobs": 300, "split": "validation"}
    loaded = hdsim.load_workload(spec, platform=platform, seed=4, memory_bandwidth="none")
    assert digest(loaded) == digest(drawn) and loaded.further["session"].tolist() == drawn.further["session"].tolist()
    held = WindowSet(str(path), "validation", traces=2, count=1, jobs=100, warmup=50)
    assert [len(window.workload) for window in held.windows] == [150, 150]
    with pytest.raises(ConfigError, match=r"workload.kind.serial: unknown key; allowed: load, cores"):
        hdsim.draw_workload(str(path), 4, 300, serial=0.5)
    with pytest.raises(ConfigError, match=r"workload.kind: expected a file or a bundled name, got '.*mien.yaml'"):
        read_kind(tmp_path / "mien.yaml")
