"""Caps on power: cases by hand, a closed form, a second replay, and that no start and no boot breaks a hard one."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import power_reference
import pytest
from scipy import stats
from tiers import ALL

from hdsim import Agent, FinalState, Platform, Workload, simulate
from hdsim.errors import ConfigError, DecisionError
from hdsim.results import series
from hdsim.results.result import Result

BUSY, IDLE = 10.0, 0.5


def nodes(number: int, cores: int = 1, **states: Any) -> Platform:
    return Platform.homogeneous(number, cores, power_per_core=BUSY, states=states or None)


def jobs(*rows: tuple[float, float, int], requested: list[float] | None = None) -> Workload:
    """Jobs as (submission, run time, cores)."""
    submission, runtime, cores = zip(*rows, strict=True)
    more = {} if requested is None else {"requested_time": requested}
    return Workload.from_columns(submission_time=submission, runtime=runtime, requested_cores=cores, **more)


def capped(cap: Any, kind: str = "hard", **keys: Any) -> dict[str, Any]:
    return {"_target_": "hdsim.power.PowerManagement", "cap": cap, "cap_kind": kind, **keys}


def steps(path: Path, *rows: tuple[float, float]) -> str:
    path.write_text("time,watts\n" + "".join(f"{time},{watts}\n" for time, watts in rows))
    return str(path)


def check(result: Result) -> None:
    """No cap is broken at any instant."""
    assert result.caps
    for cap in result.caps:
        assert not series.above(result, cap).values.any()
    assert result.metrics["seconds_above_cap"] == result.metrics["joules_above_cap"] == 0


@pytest.mark.parametrize("agent", ["fcfs", "easy", "greedy"])
def test_jobs_wait_for_power(agent: str) -> None:
    """Two of four nodes may be busy: 2 x 10 W + 2 x 0.5 W."""
    workload = jobs(*((0, 100, 1) for _ in range(4)), (10, 5, 1))
    result = simulate(nodes(4), workload, agent, power=capped(21), check=True)
    assert result.starting_time.tolist() == [0, 0, 100, 100, 200]
    check(result)
    assert series.power(result).values.max() == pytest.approx(21)


def test_an_idle_core_beside_a_busy_one_counts() -> None:
    """A node of two cores: 12.5 W with one busy core, 20 W with two, 1 W with none."""
    workload = jobs((0, 50, 1), (0, 50, 1), (0, 50, 1), (0, 50, 1))
    # 20 + 12.5 W; a fourth job would make it 40 W.
    result = simulate(nodes(2, 2), workload, "fcfs", power=capped(32.5), check=True)
    assert result.starting_time.tolist() == [0, 0, 0, 50]
    # 20 + 1 W: both cores of one node, then again; the other node would draw 12.5 W.
    result = simulate(nodes(2, 2), workload, "fcfs", power=capped(21.0), check=True)
    assert result.starting_time.tolist() == [0, 0, 50, 50]
    check(result)


def test_a_cap_that_falls_bounds_the_jobs_that_run_then(tmp_path: Path) -> None:
    file = steps(tmp_path / "cap.csv", (0, 30), (100, 11), (200, 30))
    workload = jobs((0, 60, 1), (0, 150, 1), (0, 150, 1), (0, 30, 1), requested=[100, 150, 150, 100])
    result = simulate(nodes(3), workload, "greedy", power=capped(file), check=True)
    # From 100 s to 200 s one node may be busy: one of the long jobs; the short ones are over by then.
    assert result.starting_time.tolist() == [0, 0, 150, 0]
    check(result)
    # In order of arrival the second long job holds up the last one until the cap rises.
    assert simulate(nodes(3), workload, "fcfs", power=capped(file)).starting_time.tolist() == [0, 0, 150, 200]


def test_the_simulation_waits_for_a_cap_to_rise(tmp_path: Path) -> None:
    file = steps(tmp_path / "cap.csv", (0, 2), (500, 30))
    result = simulate(nodes(2), jobs((0, 10, 1), (5, 10, 2)), "easy", power=capped(file), check=True)
    assert result.starting_time.tolist() == [500, 510]


def test_easy_leaves_the_reserved_job_its_power() -> None:
    """Job 1 waits for the power of two nodes until 100 s; job 3 would take it beyond that, and job 2 ends before."""
    workload = jobs((0, 100, 2), (1, 50, 3), (2, 90, 1), (3, 200, 1))
    platform = nodes(6)
    # Three nodes may be busy.
    result = simulate(platform, workload, "easy", power=capped(3 * BUSY + 3 * IDLE), check=True)
    assert result.starting_time.tolist() == [0, 100, 2, 150]
    greedy = simulate(platform, workload, "greedy", power=capped(3 * BUSY + 3 * IDLE))
    assert greedy.starting_time.tolist() == [0, 292, 2, 92]
    check(result)
    check(greedy)


def test_caps_of_clusters_and_racks_send_jobs_elsewhere() -> None:
    document = nodes(1).to_dict()
    document["clusters"] = [
        {"id": "a", "nodes": [{"type": "homogeneous", "number": 2, "labels": {"rack": "r1"}}]},
        {"id": "b", "nodes": [{"type": "homogeneous", "number": 2, "labels": {"rack": "r2"}}]},
    ]
    platform = Platform.from_dict(document)
    workload = jobs(*((0, 10, 1) for _ in range(4)))
    for caps in ({"a": 10.5}, {"rack=r1": 10.5}, {"rack=r1": 10.5, "machine": 1.0}):
        result = simulate(platform, workload, "fcfs", power=capped(caps), check=True)
        assert [held.min for held in result.allocations] == [0, 2, 3, 0]
        check(result)
    with pytest.raises(ConfigError, match=r"power.cap.rack=r3: expected names of machine, a, b, rack=r1, rack=r2, got"):
        simulate(platform, workload, "fcfs", power=capped({"rack=r3": 10.5}))


def test_jobs_that_can_never_run_are_named_and_rejected(caplog: pytest.LogCaptureFixture) -> None:
    workload = jobs((0, 10, 1), (0, 10, 4), (1, 10, 2))
    with caplog.at_level(logging.WARNING):
        result = simulate(nodes(4), workload, "fcfs", power=capped(21), check=True)
    assert FinalState(result.state[1]) == FinalState.REJECTED
    assert result.starting_time[[0, 2]].tolist() == [0, 10]
    assert "1 of 3 jobs can never run under the caps; the first is job 1" in caplog.text


def test_a_soft_cap_is_measured() -> None:
    workload = jobs((0, 100, 1), (50, 100, 1))
    result = simulate(nodes(2), workload, "fcfs", power=capped(15, "soft"))
    assert result.starting_time.tolist() == [0, 50]
    # 20 W from 50 s to 100 s.
    assert result.metrics["seconds_above_cap"] == 50
    assert result.metrics["joules_above_cap"] == pytest.approx(50 * 5)
    assert "seconds_above_cap" not in simulate(nodes(2), workload, "fcfs").metrics


def test_a_share_is_one_of_the_highest_power() -> None:
    states = {"on": {"watts": 5}, "idle": {"watts": 2}}
    result = simulate(nodes(4, **states), jobs((0, 1, 1)), "fcfs", power=capped(0.5))
    assert result.caps[0].watts.tolist() == [0.5 * 4 * (BUSY + 5)]


def test_agents_that_start_jobs_all_the_same_are_refused() -> None:
    class Pushes(Agent):
        def decide(self, cluster: Any) -> None:
            for core, job in enumerate(list(cluster.queue)):
                cluster.start_on(job, [core])

    with pytest.raises(DecisionError, match="job 2 cannot be started: its power would break a cap"):
        simulate(nodes(4), jobs(*((0, 10, 1) for _ in range(3))), Pushes(), power=capped(21))


@pytest.mark.parametrize(
    ("keys", "agent", "message"),
    [
        ({"cap": 1.5}, "fcfs", r"power.cap: expected at least the power of the idle nodes, 2 W, got 1.5 W"),
        ({"cap": -3}, "fcfs", r"power.cap: expected watts, a share up to 1 or a CSV file of time,watts, got -3"),
        ({"cap": "none.csv"}, "fcfs", r"power.cap: expected a CSV file .* found no file 'none.csv'"),
        ({"cap": 0.8, "cap_kind": "firm"}, "fcfs", r"power.cap_kind: .*hard.*soft.*firm"),
        ({"cap": 0.8}, "conservative", r"agent.backfill: expected none, easy or greedy under a hard cap"),
        ({"cap": 0.8}, "hybrid4", r"agent.backfill: expected none, easy or greedy under a hard cap"),
    ],
)
def test_what_is_refused(keys: dict[str, Any], agent: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        simulate(nodes(4), jobs((0, 1, 1)), agent, power={"_target_": "hdsim.power.PowerManagement", **keys})


@pytest.mark.parametrize("name", ["portfolio.Portfolio"])
def test_agents_that_plan_without_caps_are_refused(name: str) -> None:
    agent, kind = {"_target_": f"hdsim.agents.{name}"}, name.partition(".")[0]
    with pytest.raises(ConfigError, match=f"power.cap: expected no hard cap with {kind}, which plans without it"):
        simulate(nodes(4), jobs((0, 1, 1)), agent, power=capped(21))
    result = simulate(nodes(4), jobs((0, 1, 1)), agent, power=capped(21, "soft"))
    assert result.starting_time.tolist() == [0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("watts,time\n1,2\n", "expected the header time,watts and rows"),
        ("time,watts\n0,20\n0,30\n", "cap.csv:3: expected ascending times"),
        ("time,watts\n0,much\n", "cap.csv:2: expected two numbers"),
    ],
)
def test_series_with_faults(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "cap.csv").write_text(text)
    with pytest.raises(ConfigError, match=message):
        simulate(nodes(4), jobs((0, 1, 1)), "fcfs", power=capped(str(tmp_path / "cap.csv")))


def test_a_cap_makes_a_queue_of_fewer_servers() -> None:
    """Of five nodes three may be busy: M/M/3, with the mean wait of Erlang's C formula."""
    servers, load, count, replications = 3, 0.5, 6_000, 16 if ALL else 10
    offered = servers * load
    terms = [offered**k / math.factorial(k) for k in range(servers)]
    last = offered**servers / math.factorial(servers) * servers / (servers - offered)
    expected = last / (sum(terms) + last) / (servers * (1 - load))
    found = []
    for seed in np.random.SeedSequence(5).spawn(replications):
        rng = np.random.default_rng(seed)
        workload = Workload.from_columns(
            submission_time=rng.exponential(1 / offered, count).cumsum(),
            runtime=rng.exponential(1.0, count),
            requested_cores=np.ones(count),
        )
        result = simulate(nodes(5), workload, "fcfs", power=capped(servers * BUSY + 2 * IDLE))
        found.append(result.jobs["waiting_time"][count // 10 :].mean())
    half = stats.t.ppf(0.9995, replications - 1) * np.std(found, ddof=1) / math.sqrt(replications)
    assert abs(np.mean(found) - expected) <= half < 0.15 * expected


@pytest.mark.parametrize("seed", range(100 if ALL else 25))
def test_the_obvious_program_has_the_same_starts(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    number, count = int(rng.integers(2, 6)), int(rng.integers(5, 25))
    runtime = rng.integers(1, 60, count)
    requested = runtime + rng.integers(0, 40, count) * rng.integers(0, 2, count)
    busy = rng.integers(1, number + 1, int(rng.integers(1, 8)))
    changes = np.append(0, rng.integers(1, 80, len(busy) - 1).cumsum())
    limits = busy * BUSY + (number - busy) * IDLE
    rows = list(zip(changes.tolist(), limits.tolist(), strict=True))
    workload = Workload.from_columns(
        submission_time=np.sort(rng.integers(0, 200, count)),
        runtime=runtime,
        requested_time=requested,
        requested_cores=np.ones(count),
    )
    result = simulate(nodes(number), workload, "fcfs", power=capped(steps(tmp_path / "cap.csv", *rows)), check=True)
    starts = power_reference.capped(
        workload.submission_time.tolist(),
        runtime.tolist(),
        requested.tolist(),
        number,
        busy=BUSY,
        idle=IDLE,
        steps=rows,
    )
    assert result.starting_time.tolist() == starts
    check(result)


@pytest.mark.parametrize("seed", range(60 if ALL else 15))
@pytest.mark.parametrize("agent", ["easy", "greedy", "easy-sjf-low_power"])
def test_no_start_and_no_boot_breaks_a_hard_cap(seed: int, agent: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    watts = sorted(rng.integers(0, 8, 2).tolist())
    states = {
        "idle": {"watts": watts[0]},
        "on": {"watts": watts[1]},
        "off": {"watts": int(rng.integers(0, 3))},
        "going_down": {"watts": int(rng.integers(0, 60)), "seconds": int(rng.integers(0, 40))},
        "booting": {"watts": int(rng.integers(0, 90)), "seconds": int(rng.integers(0, 60))},
    }
    number, width, count = int(rng.integers(2, 6)), int(rng.integers(1, 5)), 40
    platform = nodes(number, width, **states)
    highest = number * (width * BUSY + watts[1])
    idle = number * (width * IDLE + watts[0])
    limits = np.maximum(rng.uniform(0.4, 1.0, int(rng.integers(1, 8))) * highest, idle + 1)
    changes = np.append(0, rng.integers(50, 800, len(limits) - 1).cumsum())
    rows = [*zip(changes.tolist(), limits.tolist(), strict=True), (float(changes[-1]) + 500, float(limits.max()))]
    file = steps(tmp_path / "cap.csv", *rows)
    runtime = rng.integers(1, 200, count)
    workload = Workload.from_columns(
        submission_time=np.sort(rng.integers(0, 5000, count)),
        runtime=runtime,
        requested_time=runtime + rng.integers(0, 100, count),
        requested_cores=rng.integers(1, number * width + 1, count),
    )
    settings = capped(file, suspend_time=float(rng.integers(0, 100)), suspend_rate=None, resume_rate=None)
    result = simulate(platform, workload, agent, power=settings, check=True)
    check(result)
    again = simulate(platform, workload, agent, power=settings)
    assert again.finish_time.tolist() == pytest.approx(result.finish_time.tolist(), nan_ok=True)
    assert not (result.state == FinalState.QUEUED).any()
