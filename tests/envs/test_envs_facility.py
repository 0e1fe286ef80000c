"""Episodes in a facility: rewards in euros, grams and kWh against the costs of the result, and what is refused."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from test_costs import BEGIN, FULL, jobs
from test_node_power import sleeping, suspend

import hdsim
from hdsim.envs.scheduling import SchedulingEnv
from hdsim.errors import ConfigError
from hdsim.results.result import Result

MACHINE = hdsim.Platform.homogeneous(nodes=4, cores_per_node=4, processors_per_node=2, mem_bw=4.0)
#: Models under which nodes and jobs change between two decisions, too.
MODELS: dict[str, dict[str, Any]] = {
    "plain": {},
    "contention": {"contention": "threshold"},
    "sleep": {"platform": sleeping(nodes=4, cores=4), "power": suspend(suspend_time=600)},
    "states": {"platform": sleeping(nodes=4, cores=4)},
    "failures": {
        "failures": {"_target_": "hdsim.failures.Exponential", "mtbf": 20_000, "mttr": 900},
    },
    "sleep and failures": {
        "platform": sleeping(nodes=4, cores=4),
        "power": suspend(suspend_time=60, boot_failure=0.2, repair=1000, resume_timeout=200),
    },
}
TEMPERATURE = {"pue": None, "pue_by_temperature": [[-10, 1.1], [30, 1.6]], "temperature": {"mean": 12, "daily": 0.3}}


def work(seed: int) -> hdsim.Workload:
    drawn = jobs(seed)
    demand = np.random.default_rng(seed).uniform(0, 3, len(drawn))
    return drawn.replaced(memory_bandwidth=demand)


def environment(objective: str, **settings: Any) -> SchedulingEnv:
    given: dict[str, Any] = {"platform": MACHINE, "workload": work(1), "facility": FULL, "action": "job", **settings}
    return SchedulingEnv(objective=objective, **given)


def played(env: SchedulingEnv, seed: int) -> float:
    """Plays an episode of random legal actions; returns the sum of its rewards."""
    rng = np.random.default_rng(seed)
    _, info = env.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        _, reward, terminated, truncated, info = env.step(int(rng.choice(np.flatnonzero(info["action_mask"]))))
        total, over = total + reward, terminated or truncated
    return total


def intensities(result: Result) -> list[float]:
    assert result.costs is not None and result.costs.facility.carbon is not None
    return result.costs.facility.carbon.at(np.arange(0.0, 9e4, 999.0)).tolist()


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("objective", "metric"), [("cost", "cost_eur"), ("carbon", "carbon_grams")])
def test_the_rewards_add_up_to_what_the_result_tells(objective: str, metric: str, model: str) -> None:
    env = environment(objective, void=True, **MODELS[model])
    total = played(env, seed=3)
    assert env.result is not None
    assert -total == pytest.approx(env.result.metrics[metric], rel=1e-9)
    assert abs(total) > 0.1
    if model == "contention":
        free = environment(objective, void=True)
        assert played(free, seed=3) != total


@pytest.mark.parametrize("objective", ["cost", "carbon"])
def test_an_outside_temperature_counts(objective: str) -> None:
    env = environment(objective, facility=FULL | TEMPERATURE)
    total = played(env, seed=0)
    assert env.result is not None
    assert -total == pytest.approx(env.result.metrics[env.objective.metric or ""], rel=1e-9)


def test_amounts_tell_of_no_time_to_come() -> None:
    env = environment("cost")
    env.reset(seed=0)
    env.step(0)
    outlook, now = env.cluster.facility, env.cluster.now
    assert now > 0 and outlook.spent(0.0, 100.0)[0] == pytest.approx(100 * now / 3.6e6)
    assert not outlook.spent(now, 100.0).any() and not outlook.spent(now + 5000, 100.0).any()


def test_a_truncated_episode_pays_until_its_last_decision() -> None:
    env = environment("cost", max_steps=9)
    total = played(env, seed=2)
    assert env.result is not None and env.result.interrupted
    assert -total == pytest.approx(env.result.metrics["cost_eur"], rel=1e-9)


@pytest.mark.parametrize("model", MODELS)
def test_energy_consumption_is_that_of_the_result(model: str) -> None:
    env = environment("energy_consumption", reward="integrated", facility="none", **MODELS[model])
    total = played(env, seed=4)
    assert env.result is not None and "cost_eur" not in env.result.metrics
    assert -total == pytest.approx(env.result.metrics["energy_joules"], rel=1e-9)


@pytest.mark.parametrize("model", ["plain", "contention", "sleep"])
@pytest.mark.parametrize("wait_of", ["cores", "jobs"])
def test_energy_under_wait_is_energy_and_weighted_waits(wait_of: str, model: str) -> None:
    env = environment("energy_under_wait", wait_weight=0.3, wait_of=wait_of, facility="none", **MODELS[model])
    total = played(env, seed=5)
    result = env.result
    assert result is not None
    waits = result.starting_time - result.workload.submission_time
    counted = result.workload.requested_cores if wait_of == "cores" else np.ones(len(waits))
    assert waits.sum() > 0
    expected = result.energy_joules / 3.6e6 + 0.3 * float(waits @ counted) / 3600
    assert -total == pytest.approx(expected, rel=1e-9)


def test_windows_have_the_dates_of_their_jobs() -> None:
    env = environment("carbon", jobs=20, facility=FULL | {"seed": 5})
    whole, begins = work(1), set()
    for seed in range(4):
        total = played(env, seed)
        assert env.result is not None and env.result.costs is not None
        window = env.episodes.window
        offset = float(whole.submission_time[window.first])
        begin = env.result.costs.facility.dates.begin
        assert begin == datetime.fromisoformat(BEGIN).timestamp() + offset
        begins.add(begin)
        # A replay of the same jobs at that date has the same series.
        date = datetime.fromtimestamp(begin, UTC).isoformat()
        jobs_of = whole[window.first : window.first + 20]
        replay = hdsim.simulate(MACHINE, jobs_of, "fcfs", facility=FULL | {"seed": 5, "begin": date})
        assert intensities(replay) == intensities(env.result)
        assert total < 0
    assert len(begins) > 1
    assert played(env.fork(), 3) == total
    env.reset(seed=1, options={"workload": whole[30:40]})
    assert env.cluster.facility.dates.begin == datetime.fromisoformat(BEGIN).timestamp()


def test_a_trace_with_dates_of_its_own_has_no_other_ones() -> None:
    since_1970 = work(1).replaced(original_submission_time=work(1).submission_time + 1.7e9)
    with pytest.raises(ConfigError, match=r"facility\.begin: expected null with windows of .*from 1970"):
        environment("cost", workload=since_1970)
    env = environment("cost", workload=since_1970, facility=FULL | {"begin": None})
    played(env, 1)
    assert env.cluster.facility.dates.begin == since_1970.original_submission_time[0]


def test_what_cannot_be_paid_is_refused() -> None:
    for objective, signal in (("cost", "price"), ("carbon", "carbon")):
        told = f"env.objective: expected a facility with facility.{signal} for {objective}, got none"
        for facility in ("none", {"begin": BEGIN, "pue": 1.2}):
            with pytest.raises(ConfigError) as refused:
                environment(objective, facility=facility)
            assert str(refused.value) == told
    with pytest.raises(ConfigError, match=r"env\.wait_weight: expected a number >= 0, got -1"):
        environment("energy_under_wait", wait_weight=-1)
    with pytest.raises(ConfigError, match=r"env\.wait_of: expected .*cores.*jobs"):
        environment("energy_under_wait", wait_of="hours")
    with pytest.raises(ConfigError, match="facility: expected a platform of kind cores"):
        environment("makespan", platform=MACHINE.of_kind("quantities"), workload=jobs(1))


def test_a_series_that_ends_within_an_episode_is_an_error(tmp_path: Any) -> None:
    file = tmp_path / "p.csv"
    file.write_text("time,price\n2026-03-28T21:10Z,1\n2026-03-29T03:10Z,2\n")
    env = environment("cost", facility={"begin": BEGIN, "price": str(file)}, void=True)
    with pytest.raises(ConfigError, match=r"facility\.price: expected a series that covers the run"):
        for seed in range(20):
            played(env, seed)


def test_vectors_with_a_facility_are_stepped_by_the_engine(caplog: pytest.LogCaptureFixture) -> None:
    settings: dict[str, Any] = {
        "platform": MACHINE,
        "workload": jobs(1),
        "jobs": 15,
        "action": "job",
        "observation": "jobs",
    }
    with caplog.at_level(logging.WARNING):
        vector = hdsim.make_vec(2, workers=1, objective="makespan", facility=FULL, **settings)
    assert "compiled ones know no facility" in caplog.text
    _, info = vector.reset(seed=1)
    for _ in range(200):
        _, _, terminated, _, info = vector.step(info["action_mask"].argmax(axis=1))
        if terminated.any():
            break
    assert info["metrics"]["carbon_grams"][terminated].min() > 0
    vector.close()
