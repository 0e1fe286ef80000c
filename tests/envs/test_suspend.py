"""Actions for the time after which idle nodes go down, their observation, and the call of an agent behind them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from sleeping_nodes import sleeping, spaced
from tiers import ci

import hdsim
from hdsim.decisions.observations.node_states import FEATURES
from hdsim.envs.scheduling import SchedulingEnv
from hdsim.errors import ConfigError, DecisionError
from hdsim.platform.node_state import NodeState

TIMEOUTS = [1, "1min", 300, "20min", None]


def management(**settings: Any) -> dict[str, Any]:
    return {"_target_": "hdsim.power.PowerManagement", **settings}


def played(env: SchedulingEnv, choose: Any) -> SchedulingEnv:
    _, info = env.reset(seed=1)
    over = False
    while not over:
        _, _, over, _, info = env.step(choose(info["action_mask"]))
        assert "invalid_action" not in info or not info["invalid_action"]
    return env


def check_equal(found: hdsim.Result, expected: hdsim.Result) -> None:
    assert found.starting_time.tolist() == expected.starting_time.tolist()
    assert found.jobs["allocated_resources"].tolist() == expected.jobs["allocated_resources"].tolist()
    for name in ("node", "state", "begin", "end"):
        assert getattr(found.node_states, name).tolist() == getattr(expected.node_states, name).tolist()
    keys = [key for key in expected.metrics if not key.endswith("per_second")]
    assert [found.metrics[key] for key in keys] == [expected.metrics[key] for key in keys]


@pytest.mark.parametrize("place", range(len(TIMEOUTS)))
@pytest.mark.parametrize(
    ("base", "settings", "rates"),
    [
        ("easy", {"backfill": "easy"}, {}),
        ("sjf", {"job_policy": "sjf", "backfill": "none"}, {"suspend_rate": 1, "resume_rate": 2}),
        *ci(("easy", {"backfill": "easy"}, {"exclude": ["thin"]}), ("fcfs", {"backfill": "none"}, {"suspend_rate": 2})),
    ],
)
def test_the_same_action_throughout_is_the_stock_time_out(
    place: int, base: str, settings: dict[str, Any], rates: dict[str, Any]
) -> None:
    jobs = spaced(place, 80)
    env = SchedulingEnv(
        sleeping(), jobs, "suspend", "node_states", timeouts=TIMEOUTS, power=management(**rates), **settings
    )
    result = played(env, lambda mask: place).result
    stock = management(suspend_time=TIMEOUTS[place], **rates)
    expected = hdsim.simulate(sleeping(), jobs, base, power=stock)
    assert result is not None
    check_equal(result, expected)
    if not rates.get("exclude"):
        assert (expected.metrics["boots"] > 5) == (TIMEOUTS[place] not in (None, "20min")) or place == 3


class FirstFit(hdsim.Agent):
    """Starts every queued job that fits, in order of submission."""

    def decide(self, cluster: Any) -> None:
        for job in list(cluster.queue):
            if cluster.fits(job):
                cluster.start(job)


@pytest.mark.parametrize("place", [0, 2])
def test_jobs_and_a_constant_time_out_are_an_agent_under_the_stock_one(place: int) -> None:
    jobs, queue = spaced(7, 80), 8
    env = SchedulingEnv(
        sleeping(), jobs, "job_suspend", "jobs", queue_size=queue, timeouts=TIMEOUTS, power="states", void=True
    )

    def choose(mask: np.ndarray) -> int:
        starts, times = mask[: queue + 1], mask[queue + 1 :]
        assert starts.any() != times.any()
        return int(starts.argmax()) if starts[:queue].any() else queue + 1 + place

    result = played(env, choose).result
    assert result is not None
    check_equal(result, hdsim.simulate(sleeping(), jobs, FirstFit(), power=management(suspend_time=TIMEOUTS[place])))


class Scripted(hdsim.Agent):
    """First come, first served; sets time-outs at dates."""

    def __init__(self, times: dict[float, float]) -> None:
        self.times = times

    def begin(self, cluster: Any) -> None:
        for date in self.times.keys() - {0.0}:
            cluster.call_me_later(date)

    def decide(self, cluster: Any) -> None:
        for job in list(cluster.queue):
            cluster.start(job)
        if cluster.now in self.times:
            cluster.set_suspend_time(self.times[cluster.now])


@pytest.mark.parametrize(
    ("times", "down"),
    [
        ({0.0: 100.0}, 100.0),
        ({0.0: 100.0, 50.0: 300.0}, 300.0),  # longer: what was to come is put off
        ({0.0: 300.0, 50.0: 80.0}, 80.0),  # shorter: counts from the begin of idleness
        ({0.0: 300.0, 150.0: 80.0}, 150.0),  # over already
        ({0.0: 100.0, 50.0: math.inf}, None),
        ({0.0: math.inf, 500.0: 0.0}, 500.0),
        ({0.0: 100.0, 99.0: 300.0, 150.0: 100.0}, 150.0),
    ],
)
def test_a_new_time_out_holds_for_nodes_that_are_idle_already(times: dict[float, float], down: float | None) -> None:
    """One node serves a job of 1,000 s, the other one is idle from 0 s on."""
    jobs = hdsim.Workload.from_columns(submission_time=[0.0], runtime=[1000.0], requested_cores=[4])
    result = hdsim.simulate(sleeping(2), jobs, Scripted(times), power="states")
    assert result.node_states is not None
    begins = result.node_states.begin[result.node_states.state == NodeState.GOING_DOWN].tolist()
    assert begins == ([] if down is None else [down])


def test_a_time_out_is_a_time() -> None:
    jobs = spaced(1, 3)
    with pytest.raises(DecisionError, match=r"set_suspend_time: expected at least 0 s, got -1"):
        hdsim.simulate(sleeping(), jobs, Scripted({0.0: -1.0}), power="states")
    with pytest.raises(DecisionError, match=r"set_suspend_time: nodes sleep where there is power management only"):
        hdsim.simulate(sleeping(), jobs, Scripted({0.0: 1.0}))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"power": "none"}, "expected power=states or suspend with env.action=suspend, got none"),
        ({"timeouts": []}, "expected at least one time, got none"),
        ({"timeouts": "10min"}, "expected a list of times such as"),
        ({"timeouts": [-1]}, "env.timeouts"),
        ({"timeouts": ["soon"]}, "env.timeouts"),
    ],
)
def test_faults_of_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SchedulingEnv(sleeping(), spaced(1, 3), "suspend", "node_states", **{"power": "states", **settings})


def test_random_time_outs_keep_the_invariants_and_repeat() -> None:
    def result() -> hdsim.Result:
        rng = np.random.default_rng(3)
        env = SchedulingEnv(
            sleeping(),
            spaced(5, 80),
            "suspend",
            "node_states",
            timeouts=TIMEOUTS,
            power=management(suspend_rate=1, resume_rate=1, boot_failure=0.1),
            objective="energy_under_wait",
            reward="integrated",
        )
        found = played(env, lambda mask: int(rng.integers(len(mask)))).result
        assert found is not None
        return found

    one = result()
    assert one.metrics["jobs_completed"] == 80
    assert one.metrics["boots"] > 5
    check_equal(result(), one)


def test_the_observation_of_node_states() -> None:
    """Node 0 serves a job, node 1 is idle, node 2 goes down, node 3 boots, at 3 h."""
    jobs = hdsim.Workload.from_columns(
        submission_time=[0.0, 10800.0, 10800.0], runtime=[20000.0, 1.0, 1.0], requested_cores=[2, 2, 99]
    )
    simulation = hdsim.Simulation(sleeping(), jobs, agent=Scripted({}), power="states")
    problem = hdsim.decisions.DecisionProblem("suspend", "node_states", job_policy="first")
    cluster = simulation.cluster
    problem.begin(cluster)
    observer = problem.observer
    simulation.run_until(0.0)
    cluster.power_off([2, 3])
    simulation.env.apply()
    simulation.run_until(30.0)
    cluster.power_on([3])
    simulation.env.apply()
    simulation.run_until(40.0)
    cluster.power_on([2])
    simulation.env.apply()
    simulation.run_until(40.0)
    seen = observer.observe()
    column = {name: place for place, name in enumerate(FEATURES)}
    states = seen[:, :5].argmax(axis=1).tolist()
    assert states == [0, 1, 4, 4]
    assert seen[:, :5].sum(axis=1).tolist() == [1, 1, 1, 1]
    assert seen[:, column["idle_cores"]].tolist() == [0.5, 1.0, 1.0, 1.0]
    assert seen[:, column["can_sleep"]].tolist() == [1.0] * 4
    longest = math.log1p(7 * 86400)
    expected = [0.0, 0.0, math.log1p(180) / longest, math.log1p(170) / longest]
    assert seen[:, column["until_up"]] == pytest.approx(expected, rel=1e-6)
    assert seen[:, column["time_of_day"]] == pytest.approx([40 / 86400] * 4, rel=1e-6)
    assert seen[:, column["queued"]].tolist() == [0.0] * 4


def test_batches_of_environments_go_by_events() -> None:
    settings: dict[str, Any] = {
        "platform": sleeping(),
        "workload": spaced(5, 30),
        "action": "job_suspend",
        "observation": "jobs",
        "queue_size": 8,
        "power": "states",
    }
    vector = hdsim.make_vec(1, workers=1, **settings)
    one = SchedulingEnv(*[settings.pop(key) for key in ("platform", "workload", "action", "observation")], **settings)
    seen, info = vector.reset(seed=4)
    alone, other = one.reset(seed=4)
    for _ in range(20):
        assert np.array_equal(seen[0], alone)
        assert np.array_equal(info["action_mask"][0], other["action_mask"])
        action = int(np.flatnonzero(other["action_mask"])[-1])
        seen, _, terminated, _, info = vector.step(np.array([action]))
        alone, _, over, _, other = one.step(action)
        assert bool(terminated[0]) == over
        if over:
            break
    vector.close()


def test_expected_completion_adds_up_while_jobs_wait_for_nodes_that_boot() -> None:
    """A job whose nodes boot has no date at which it is expected to end."""
    options: dict[str, Any] = {"power": "states", "timeouts": [1, None]}
    env = SchedulingEnv(sleeping(), spaced(5, 40), "suspend", "node_states", "expected_completion", **options)
    total, over = 0.0, False
    env.reset(seed=1)
    while not over:
        _, reward, over, _, _ = env.step(0)
        total += reward
    assert env.result is not None
    assert env.result.metrics["boots"] > 0
    assert total == pytest.approx(-env.result.jobs["turnaround_time"].sum())
