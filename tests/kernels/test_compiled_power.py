"""Caps and nodes that sleep in compiled code: the results of the engine, byte by byte."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sleeping_nodes import STATES
from tiers import ci, examples

from hdsim import FinalState, Platform, Result, Simulation, Workload
from hdsim.errors import ConfigError
from hdsim.platform.node_state import NodeState
from hdsim.results.metrics import full
from hdsim.workload.load import load_workload

CLASS = "hdsim.power.PowerManagement"
#: Files of a run directory that tell the schedule.
FILES = ("jobs.csv", "node_states.csv", "machine_states.csv", "schedule.csv")


def power(**settings: Any) -> dict[str, Any]:
    return {"_target_": CLASS, **settings}


def both(*given: Any, **options: Any) -> tuple[Result, Result]:
    """The results in compiled code and in the engine, where a simulation goes on that has begun there."""
    compiled, engine = (Simulation(*given, **options) for _ in range(2))
    assert engine.env.cluster.now == 0
    results = compiled.run(), engine.run()
    assert [each.engine["mode"] for each in results] == ["compiled", "events"]
    states, others = (each.cluster.node_states for each in (compiled, engine))
    assert states is not None
    assert others is not None
    now = engine.cluster.now
    assert states.all_spans(now) == others.all_spans(now)
    assert states.state.tolist() == others.state.tolist()
    return results


def check_equal(results: tuple[Result, Result], folder: Path | None = None) -> None:
    """Every column, metric and state of a node is the same to its last digit, and so are the files of a run."""
    one, other = results
    for name in other.jobs:
        np.testing.assert_array_equal(one.jobs[name], other.jobs[name], err_msg=name)
    assert one.node_states is not None
    assert other.node_states is not None
    for name in ("node", "state", "begin", "end"):
        np.testing.assert_array_equal(getattr(one.node_states, name), getattr(other.node_states, name))
    assert one.latest.job.tolist() == other.latest.job.tolist()
    metrics, others = full(one), full(other)
    assert metrics.keys() == others.keys()
    np.testing.assert_equal({**metrics, "jobs_per_second": 0}, {**others, "jobs_per_second": 0})
    if folder is not None:
        first, second = (each.save(folder / name) for each, name in ((one, "compiled"), (other, "engine")))
        for file in FILES:
            assert (first / file).read_bytes() == (second / file).read_bytes(), file


def random_platform(rng: np.random.Generator) -> Platform:
    """One or two types of nodes of one or two processors, some with GPUs; watts that have no exact sums among them."""
    types: dict[str, Any] = {}
    for name in ("thin", "fat")[: int(rng.integers(1, 3))]:
        states = {key: dict(value) for key, value in STATES.items()}
        states["on"]["watts"] = float(rng.choice([60, 40, 47.3]))
        states["going_down"]["seconds"], states["booting"]["seconds"] = rng.choice([0, 1, 7, 30, 180], 2).tolist()
        processors = [{"type": "cpu", "number": int(rng.integers(1, 3))}]
        if rng.random() < 0.3:
            processors.append({"type": "gpu", "number": int(rng.integers(1, 3))})
        types[name] = {"processors": processors, "states": states}
    nodes = [{"type": name, "number": int(rng.integers(1, 7))} for name in types]
    cpu = {"cores": int(rng.integers(1, 6)), "clock_rate": 1, "dpflops_per_cycle": 1, "power": 100}
    cpu["power"] = float(rng.choice([100, 33.3, 8.1]))
    gpu = {"type": "GPU", "cores": 1, "clock_rate": 1, "dpflops_per_cycle": 9, "power": 77}
    kinds = {"node": types, "processor": {"cpu": cpu, "gpu": gpu}}
    return Platform.from_dict({"name": "random", "clusters": [{"id": "main", "nodes": nodes}], "types": kinds})


def random_jobs(rng: np.random.Generator, cores: int) -> Workload:
    """Jobs of many equal times, some of which exceed what they request, or have no duration, or do not fit."""
    jobs = int(rng.integers(5, 120))
    pauses = [0, 0, 1, 5, 30, 60, 400] if rng.random() < 0.7 else [0, 1, 2]
    submission = np.cumsum(rng.choice(pauses, jobs)).astype(float)
    runtime = rng.choice([0, 1, 5, 30, 60, 200, 301], jobs).astype(float)
    requested = np.maximum(runtime * rng.choice([1, 1, 1.5, 3, 0.5], jobs) + rng.choice([0, 0, 30], jobs), 1)
    widest = np.where(rng.random(jobs) < 0.6, max(1, cores // 3), cores + 1)
    return Workload.from_columns(
        submission_time=submission - submission[0],
        runtime=runtime,
        requested_cores=np.minimum(rng.integers(1, cores + 1 + int(rng.random() < 0.1), jobs), widest),
        requested_time=requested,
    )


def random_agent(rng: np.random.Generator) -> dict[str, Any]:
    order, backfill = rng.choice(["fcfs", "sjf", "saf"]), rng.choice(["none", "easy", "easy", "greedy"])
    return {"job_policy": str(order), "backfill": str(backfill)}


@examples(200, 3000, deadline=None)
@given(seed=st.integers(0, 1 << 31), share=st.sampled_from([1.0, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5]))
def test_random_cases_under_a_cap(seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    platform = random_platform(rng)
    workload, agent, kills = random_jobs(rng, platform.n_cpu_cores), random_agent(rng), bool(rng.random() < 0.5)
    try:
        results = both(platform, workload, agent, power=power(cap=share), kill_at_walltime=kills)
    except ConfigError as error:
        assert "power of the idle nodes" in str(error)
        return
    check_equal(results)


@examples(200, 3000, deadline=None)
@given(
    seed=st.integers(0, 1 << 31),
    timeout=st.sampled_from([1, 5, 30, 60, 200, 1000]),
    rates=st.tuples(st.sampled_from([None, 1, 2, 60]), st.sampled_from([None, 1, 2, 300])),
)
def test_random_cases_of_nodes_that_sleep(seed: int, timeout: float, rates: tuple[int | None, int | None]) -> None:
    rng = np.random.default_rng(seed)
    platform = random_platform(rng)
    workload, agent, kills = random_jobs(rng, platform.n_cpu_cores), random_agent(rng), bool(rng.random() < 0.5)
    if agent["backfill"] == "easy":
        agent |= {"backfill_order": str(rng.choice(["fcfs", "sjf"])), "commit_head": bool(rng.random() < 0.5)}
    settings = power(suspend_time=timeout, suspend_rate=rates[0], resume_rate=rates[1])
    if len(platform.node_type_names) > 1 and rng.random() < 0.3:
        settings["exclude"] = ["fat"]
    check_equal(both(platform, workload, agent, power=settings, kill_at_walltime=kills))


def sleeping(nodes: int, cores: int) -> Platform:
    return Platform.homogeneous(nodes, cores, power_per_core=80 / cores, states=STATES)


@pytest.mark.parametrize(
    ("agent", "settings"),
    [
        ("easy", {"cap": 0.7}),
        ("fcfs", {"suspend_time": 3600, "suspend_rate": 4, "resume_rate": 8}),
        ("easy-sjbf", {"suspend_time": 60}),
        ("easy", {"cap": 0.5, "cap_kind": "soft"}),
        *ci(("easy-saf", {"cap": 0.9}), ("greedy", {"cap": 0.8}), ("easy", {"suspend_time": 600})),
        *ci(("fcfs", {"cap": 0.8}), ("greedy", {"suspend_time": 600}), ("easy", {})),
    ],
)
def test_thousands_of_jobs(agent: str, settings: Mapping[str, Any], tmp_path: Path) -> None:
    """Long queues, beside which nodes go down at night, on 64 nodes of 4 cores; the files of a run are the same."""
    platform = sleeping(64, 4)
    workload = load_workload("lublin_4000", platform)[:2500]
    results = both(platform, workload, agent, power=power(**settings), kill_at_walltime=True)
    check_equal(results, tmp_path)
    if "suspend_time" in settings:
        assert results[0].metrics["boots"] > 50


@pytest.mark.parametrize(
    ("trace", "nodes", "cores"),
    [("NASA-iPSC-1993-3.1-cln.swf.gz", 128, 1), *ci(("RICC-2010-2.swf.gz", 1024, 8))],
)
@pytest.mark.parametrize("settings", [{"cap": 0.8}, {"suspend_time": 600}], ids=["cap", "suspend"])
def test_traces(shared_data: Path, trace: str, nodes: int, cores: int, settings: Mapping[str, Any]) -> None:
    platform = sleeping(nodes, cores)
    workload = load_workload(str(shared_data / "traces" / trace), platform)[3000:6000]
    check_equal(both(platform, workload, "easy", power=power(**settings)))


def test_an_interruption_finds_jobs_that_wait_for_nodes() -> None:
    platform, workload = (
        sleeping(4, 2),
        Workload.from_columns(submission_time=[0, 0, 700], runtime=[100, 900, 50], requested_cores=[2, 2, 6]),
    )
    simulation = Simulation(platform, workload, "fcfs", power=power(suspend_time=30))
    compiled = simulation._compiled
    assert compiled is not None
    while compiled.now < 700:
        compiled._advance(1)
    result = compiled.result(interrupted=True)
    assert FinalState(result.state[2]) == FinalState.STARTING
    assert np.isnan(result.starting_time[2])
    assert result.latest.job.tolist() == [0, 1]
    assert result.node_states is not None
    assert set(result.node_states.state[result.node_states.end == 700].tolist()) == {NodeState.OFF}


@pytest.mark.parametrize(
    ("settings", "options", "why"),
    [
        ({"suspend_time": 60, "spare": 1}, {}, "spare nodes"),
        ({"suspend_time": 60, "boot_failure": 0.1}, {}, "a failure model"),
        ({"suspend_time": 60, "cap": 0.9}, {}, "nodes that sleep and a hard cap"),
        ({"suspend_time": 0}, {}, "without a time-out"),
        ({"cap": {"homogeneous": 0.9, "machine": 0.95}}, {}, "one constant limit"),
        ({"cap": 0.9}, {"agent": "easy-sjbf"}, "another order of candidates"),
        ({"suspend_time": 60}, {"agent": "conservative"}, "the agent is not static"),
        ({"suspend_time": 60}, {"agent": "wfp3"}, "the agent is not static"),
        ({"suspend_time": 60}, {"failures": "external"}, "a failure model"),
        ({"suspend_time": 60}, {"batch_events": False}, "a pass for each event"),
        ({"suspend_time": 60}, {"agent": {"job_policy": "fcfs", "core_policy": "spread"}}, "not interchangeable"),
        ({"suspend_time": 60, "_target_": "hdsim.power.PredictiveSuspend"}, {}, "a policy of its own"),
    ],
)
def test_the_log_tells_what_the_engine_replays(
    settings: dict[str, Any], options: dict[str, Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    platform, given = sleeping(4, 2), {"agent": "easy", **options}
    if "_target_" in settings:
        del settings["suspend_time"]
    workload = Workload.from_columns(submission_time=[0, 5], runtime=[10, 10], requested_cores=[1, 2])
    with caplog.at_level(logging.INFO):
        result = Simulation(platform, workload, power=power(**settings), **given).run()
    assert result.engine["mode"] == "events"
    assert caplog.text.count("replayed by events") == 1
    assert why in caplog.text


def test_nodes_that_have_served_a_job_until_the_rate_allows_more_stay_up() -> None:
    """Node 2, idle since 0, might go down 60 s after node 1, but its job has just ended then."""
    platform = sleeping(3, 1)
    workload = Workload.from_columns(submission_time=[0, 40, 200], runtime=[200, 50, 1], requested_cores=[1, 1, 1])
    results = both(platform, workload, "fcfs", power=power(suspend_time=30, suspend_rate=1))
    spans = results[1].node_states
    assert spans is not None
    down = spans.state == NodeState.GOING_DOWN
    assert sorted(zip(spans.node[down].tolist(), spans.begin[down].tolist(), strict=True)) == [(1, 30), (2, 120)]
    check_equal(results)
