"""Deferral of jobs with slack: to lower prices, within bounds, beside any order and backfilling."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hdsim
from hdsim.errors import ConfigError
from hdsim.scheduling.deferral import read_plan
from hdsim.workload.slack import slack_of, with_slack

AGENT = "hdsim.agents.deferring.DeferringAgent"
DAY = "2026-03-02T12:00+01:00"


def deferring(**settings: Any) -> dict[str, Any]:
    return {"_target_": AGENT, **settings}


def priced(folder: Path, prices: list[float], **settings: Any) -> dict[str, Any]:
    """A facility with a price of each hour from the first submission on."""
    file = folder / "prices.csv"
    rows = [f"{1772449200 + 3600 * hour},{price}" for hour, price in enumerate(prices)]
    file.write_text("\n".join(["time,price", *rows]) + "\n")
    return {"begin": "1772449200", "price": {"path": str(file), **settings}}


def two_jobs(slack: float) -> hdsim.Workload:
    return hdsim.Workload.from_columns(
        submission_time=[0, 0],
        runtime=[1800, 1800],
        requested_cores=[1, 1],
        extra={"slack": [slack, float("nan")]},
    )


MACHINE = hdsim.Platform.homogeneous(nodes=1, cores_per_node=2)


@pytest.mark.parametrize(
    ("slack", "horizon", "settings", "start"),
    [
        (4 * 3600, "24h", {}, 3 * 3600),  # the lowest price within reach
        (4 * 3600, "24h", {"longest": "2h"}, 3600),  # the bound of the agent
        (1800, "24h", {}, 0),  # no lower price within the slack
        (4 * 3600, "1800s", {}, 0),  # none that is known
        (4 * 3600, "3h", {}, 3 * 3600),  # seen from the second hour on
        (4 * 3600, "24h", {"gain": 0.85}, 0),  # too little to gain
    ],
)
def test_a_job_starts_at_the_lowest_price_that_it_may_wait_for(
    tmp_path: Path, slack: float, horizon: str, settings: dict[str, Any], start: float
) -> None:
    facility = priced(tmp_path, [0.5, 0.3, 0.3, 0.1, 0.2, 0.6, 0.05, 0.6], horizon=horizon)
    agent = deferring(defer="price", margin=0, **settings)
    result = hdsim.simulate(MACHINE, two_jobs(slack), agent, facility=facility, check=True)
    assert result.starting_time.tolist() == [start, 0]
    assert result.metrics["deadlines_missed"] == 0


def test_a_job_that_has_missed_its_time_is_planned_anew(tmp_path: Path) -> None:
    """Both cores are busy in the hour of 0.1 until the begin of one of 0.5: the job waits for that of 0.12."""
    facility = priced(tmp_path, [0.5, 0.1, 0.5, 0.12, 0.5, 0.5, 0.5, 0.5])
    workload = hdsim.Workload.from_columns(
        submission_time=[0, 0], runtime=[7200, 1800], requested_cores=[2, 1], extra={"slack": [float("nan"), 6 * 3600]}
    )
    result = hdsim.simulate(MACHINE, workload, deferring(defer="price", margin=0), facility=facility, check=True)
    assert result.starting_time.tolist() == [0, 3 * 3600]


def test_a_change_beyond_the_horizon_of_the_first_plan_starts_jobs_that_wait_for_it(tmp_path: Path) -> None:
    """The change at 48 h is unknown at 0 and at 20 h, and known when the job comes at 30 h."""
    prices = [0.5] * 48 + [0.1] * 48 + [0.5] * 24
    file = priced(tmp_path, prices)
    rows = (tmp_path / "prices.csv").read_text().splitlines()
    kept = [rows[0], *(rows[1 + hour] for hour in (0, 48, 96, 119))]
    (tmp_path / "prices.csv").write_text("\n".join(kept) + "\n")
    hour = 3600
    workload = hdsim.Workload.from_columns(
        submission_time=[0, 20 * hour, 30 * hour],
        runtime=[hour, hour, hour],
        requested_cores=[1, 1, 1],
        extra={"slack": [10 * hour, 2 * hour, 30 * hour]},
    )
    result = hdsim.simulate(MACHINE, workload, deferring(defer="price", margin=0), facility=file, check=True)
    assert result.starting_time.tolist() == [0, 20 * hour, 48 * hour]
    assert result.metrics["jobs_unfinished"] == 0


def study() -> Any:
    """The training of the learned plan, which has a replay of its own."""
    file = Path(__file__).parents[2] / "research" / "deferral.py"
    spec = importlib.util.spec_from_file_location("research_deferral", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.ci
@pytest.mark.parametrize("plan", ["rule", "learned"])
def test_the_replay_of_the_training_is_that_of_the_engine(plan: str) -> None:
    research = study()
    month = research.month(3, days=2.0, drain=3.0, slack="24h")
    agent = deferring(plan=plan, gain=0.1)
    result = hdsim.simulate(research.PLATFORM, month.jobs, agent, facility=month.facility, seed=3, check=True)
    training = research.Training(month)
    starts = training.starts(0.1, np.array(read_plan(plan)))
    assert result.starting_time.tolist() == starts.tolist()
    figures = [result.metrics[key] for key in research.METRICS]
    assert training.figures(starts)[1:] == pytest.approx(figures[1:])
    # Nodes that the core policy opens beside the fewest possible have idle cores of more power.
    assert 0.9 < training.figures(starts)[0] / figures[0] < 1


def test_what_lies_beyond_the_horizon_changes_no_start(tmp_path: Path) -> None:
    prices = [0.5, 0.3, 0.3, 0.1, 0.2, 0.6, 0.05, 0.6]
    starts = []
    for later in (0.0, 9.0):
        facility = priced(tmp_path, [*prices[:3], *(price + later for price in prices[3:])], horizon="90min")
        result = hdsim.simulate(MACHINE, two_jobs(7200), deferring(defer="price", margin=0), facility=facility)
        starts.append(result.starting_time.tolist())
    assert starts[0] == starts[1] == [3600, 0]


def test_nights_and_weekends() -> None:
    dated: dict[str, Any] = {"facility": {"begin": DAY, "timezone": "Europe/Berlin", "price": 0.1}}
    night = hdsim.simulate(MACHINE, two_jobs(12 * 3600), deferring(defer="night", margin=0), **dated)
    assert night.starting_time.tolist() == [10 * 3600, 0]
    # Monday, 12:00: Saturday begins 108 hours later.
    weekend = hdsim.simulate(MACHINE, two_jobs(7 * 86400), deferring(defer="weekend", margin=0), **dated)
    assert weekend.starting_time.tolist() == [108 * 3600, 0]


def load(seed: int, count: int = 250) -> hdsim.Workload:
    rng = np.random.default_rng(seed)
    runtime = rng.exponential(3000, count).round() + 1
    return hdsim.Workload.from_columns(
        submission_time=np.sort(rng.uniform(0, 2 * 86400, count)).round(),
        runtime=runtime,
        requested_cores=rng.integers(1, 9, count),
        requested_time=(runtime * rng.uniform(1, 3, count)).round(),
    )


FACILITY = {"begin": DAY, "carbon": {"mean": 300, "daily": 0.5, "weather": 0.3, "error": 0.1}}


@pytest.mark.parametrize("backfill", ["none", "easy", "conservative", "greedy", "hybrid4"])
@pytest.mark.parametrize("order", ["fcfs", "sjf", "wfp3"])
def test_every_job_starts_under_any_rules(backfill: str, order: str) -> None:
    machine, work = hdsim.Platform.homogeneous(nodes=4, cores_per_node=4), load(1)
    rules: dict[str, Any] = {"job_policy": order, "backfill": backfill}
    if backfill == "hybrid4":
        rules["backfill"] = 4
    plain = hdsim.simulate(machine, work, rules, facility=FACILITY)
    same = hdsim.simulate(machine, work, deferring(**rules), facility=FACILITY)
    # Without slack it is the classic agent.
    assert same.starting_time.tolist() == plain.starting_time.tolist()
    some = with_slack(work, 0.4, "24h", seed=2)
    result = hdsim.simulate(machine, some, deferring(**rules), facility=FACILITY, check=True)
    assert not np.isnan(result.finish_time).any()
    flexible = ~np.isnan(slack_of(some))  # type: ignore[arg-type]
    assert result.metrics["carbon_grams"] < plain.metrics["carbon_grams"]
    later = (result.starting_time - plain.starting_time)[flexible]
    assert np.median(later) > 3600


@pytest.mark.parametrize("content", ["[]", '{"weights": [1, 2]}', '{"weights": [1, 2, 3, 4, 5, 6, 7, 8, "9"]}'])
def test_files_that_have_no_weights(tmp_path: Path, content: str) -> None:
    (tmp_path / "plan.json").write_text(content)
    with pytest.raises(ConfigError, match=r"plan.json: weights: expected a list of 9 numbers, got"):
        read_plan(str(tmp_path / "plan.json"))


def test_orders_of_candidates_and_nodes_with_memory() -> None:
    machine = hdsim.Platform.homogeneous(nodes=4, cores_per_node=4, memory_gb_per_node=16)
    rng = np.random.default_rng(0)
    work = with_slack(load(2).replaced(memory=rng.uniform(100, 6000, 250)), 0.4, "24h", seed=2)
    agent = deferring(backfill_order="sjf")
    result = hdsim.simulate(machine, work, agent, facility=FACILITY, check=True)
    assert not np.isnan(result.finish_time).any()
    failing = hdsim.simulate(
        machine,
        work,
        agent,
        facility=FACILITY,
        failures={"_target_": "hdsim.failures.Exponential", "mtbf": "20h", "mttr": "1h"},
    )
    assert failing.metrics["restarts"] > 0 and not np.isnan(failing.finish_time).any()


@pytest.mark.parametrize(
    ("settings", "facility", "told"),
    [
        ({}, {}, "agent.defer: expected a facility with facility.carbon, got none"),
        ({"defer": "carbon"}, {"price": 1}, "agent.defer: expected a facility with facility.carbon"),
        ({"defer": "night"}, {"price": 1}, "facility.begin: expected the date of the first submission for the night"),
        ({"defer": "carbo"}, {}, "agent.defer: .*did you mean 'carbon'|agent.defer: expected one of carbon, price"),
        ({"margin": "6 hours"}, {}, "agent.margin: expected a duration"),
        ({"backfill": "rlscheduler"}, {}, "agent.backfill: expected another backfilling than rlscheduler"),
        ({"plan": "best"}, {}, "agent.plan: expected rule, learned or a JSON file with weights, got 'best'"),
        ({"plan": "none.json"}, {}, "none.json: expected a JSON file with weights: No such file"),
        ({"gain": 2}, {}, "agent.gain: expected a number from 0 to 1"),
        ({"estimates": "last_two"}, {}, "agent.estimates: expected requested"),
        ({"job_policy": "void"}, {}, "agent.job_policy: expected an order that starts jobs"),
        ({"job_policy": "learned"}, {}, "agent.job_policy: expected an order by a formula"),
    ],
)
def test_faults(settings: dict[str, Any], facility: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        hdsim.simulate(MACHINE, two_jobs(3600), deferring(**settings), facility=facility or "none")


def test_windows_of_more_than_a_century_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"agent.defer: expected submissions of at most 100 years .* got 127 years"):
        jobs = two_jobs(3600).replaced(submission_time=np.array([0.0, 4e9]))
        hdsim.simulate(MACHINE, jobs, deferring(defer="night"), facility={**FACILITY, "carbon": 1})
