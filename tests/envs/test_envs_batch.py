"""Environments in batches are those of the engine, step by step."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from test_decisions import PLATFORM
from test_decisions import workload as limited
from tiers import examples

import hdsim
from hdsim.decisions.kernels.rows import COLUMNS, write_rows
from hdsim.envs.batch import Batch
from hdsim.envs.scheduling import SchedulingEnv
from hdsim.envs.vector import SchedulingVectorEnv
from hdsim.errors import ConfigError, DecisionError

SMALL = hdsim.Platform.homogeneous(nodes=4, cores_per_node=2, gflops_per_core=10.0)
PAIRS = ("first-high_gflops", "shortest-low_power", "smallest-high_gflops", "low_mem_bw-high_gflops", "largest", "f1")
OBJECTIVES = (
    *("avg_job_slowdown", "avg_bounded_slowdown", "avg_job_completion"),
    *("avg_utilization", "makespan", "bounded_slowdown"),
)


def workload(seed: int, jobs: int = 40, cores: int = 8) -> hdsim.Workload:
    """Jobs that arrive together, take no time, reach their walltime, or never fit."""
    rng = np.random.default_rng(seed)
    requested = rng.integers(1, 60, jobs).astype(float)
    size = rng.integers(1, cores + 1, jobs)
    return hdsim.Workload.from_columns(
        submission_time=np.sort(rng.integers(0, rng.integers(1, 8) * jobs, jobs)) + rng.choice([0, 0.25]),
        runtime=np.floor(requested * rng.uniform(0, 1.3, jobs)),
        requested_time=requested,
        walltime=requested,
        requested_cores=np.where(np.arange(jobs) % 13 == 5, cores + 1, size),
        memory_bandwidth=rng.choice([0.0, 4.0, 8.0], jobs),
    )


JOB: list[dict[str, Any]] = [
    {},
    {"void": True},
    {"commit": True},
    {"commit": True, "backfill": "easy"},
    {"commit": True, "backfill": "rlscheduler"},
]


@st.composite
def covered(draw: st.DrawFn) -> dict[str, Any]:
    """Settings of an environment that is stepped in batches."""
    chosen: dict[str, Any] = {
        "workload": [workload(draw(st.integers(0, 999))) for _ in range(draw(st.integers(1, 2)))],
        "jobs": draw(st.integers(10, 40)),
        "objective": draw(st.sampled_from(OBJECTIVES)),
        "reward": draw(st.sampled_from(["sampled", "integrated"])),
        "reward_scale": draw(st.sampled_from([1.0, 0.3])),
        "kill_at_walltime": draw(st.booleans()),
        "batch_events": draw(st.booleans()),
        "max_steps": draw(st.none() | st.integers(3, 40)),
    }
    curriculum = draw(st.sampled_from(["none", "growing", "easy_first"]))
    chosen |= {"curriculum": curriculum, "curriculum_episodes": 4, "curriculum_start": 0.3}
    if draw(st.booleans()):
        chosen |= {"action": "job", "queue_size": draw(st.integers(1, 8)), **draw(st.sampled_from(JOB))}
    else:
        decide, void = draw(st.sampled_from(["useful", "queued", "always"])), draw(st.booleans())
        chosen |= {"action": "policy_pair", "pairs": PAIRS, "decide": decide, "void": void}
    if draw(st.booleans()):
        return chosen | {"observation": "jobs"} | ({} if chosen["action"] == "job" else {"queue_size": 5})
    scale = draw(st.sampled_from(["seen", "workload"]))
    return chosen | {"observation": "minimal", "scale": scale, "queue_sensitivity": draw(st.sampled_from([1.0, 2.5]))}


def play(chosen: dict[str, Any], steps: int, seed: int, num_envs: int = 3, workers: int = 1) -> int:
    """Holds a batch equal to single environments under random actions, some of them not legal."""
    rng = np.random.default_rng(seed)
    chosen = {"platform": SMALL, **chosen}
    vector = hdsim.make_vec(num_envs, workers=workers, **chosen)
    assert isinstance(vector._share, Batch)
    singles = [SchedulingEnv(**chosen) for _ in range(num_envs)]
    over, ends = [False] * num_envs, 0
    try:
        seen, info = vector.reset(seed=seed)
        told = [env.reset(seed=seed + i) for i, env in enumerate(singles)]
        for _ in range(steps):
            actions = np.zeros(num_envs, np.int64)
            for i, (observation, single) in enumerate(told):
                np.testing.assert_array_equal(seen[i], observation)
                np.testing.assert_array_equal(info["action_mask"][i], single["action_mask"])
                legal = single["action_mask"].nonzero()[0]
                actions[i] = rng.choice(legal) if rng.random() < 0.9 else rng.integers(len(single["action_mask"]))
            seen, rewards, terminated, truncated, info = vector.step(actions)
            for i, env in enumerate(singles):
                if over[i]:
                    told[i], outcome, invalid = env.reset(), (0.0, False, False), False
                else:
                    observation, *outcome, single = env.step(actions[i])
                    told[i], invalid = (observation, single), single["invalid_action"]
                over[i] = any(outcome[1:])
                assert (rewards[i], terminated[i], truncated[i]) == tuple(outcome)
                assert info["invalid_action"][i] == invalid
                assert over[i] == bool("metrics" in info and info["_metrics"][i])
                if over[i]:
                    ends += 1
                    metrics = {name: float(values[i]) for name, values in info["metrics"].items()}
                    np.testing.assert_equal(metrics, told[i][1]["metrics"])
    finally:
        vector.close()
    return ends


@examples(10, suppress_health_check=[HealthCheck.too_slow])
@given(chosen=covered(), seed=st.integers(0, 2**20))
def test_a_batch_does_what_the_engine_does(chosen: dict[str, Any], seed: int) -> None:
    play(chosen, 60, seed)


@st.composite
def covered_nodes(draw: st.DrawFn) -> dict[str, Any]:
    """Settings of an environment on nodes that is stepped in batches."""
    contention = draw(st.sampled_from(["none", "threshold", "fair_share", "smoothstep"]))
    traces = [limited(draw(st.integers(0, 999))) for _ in range(draw(st.integers(1, 2)))]
    return {
        "platform": PLATFORM,
        "workload": traces,
        "action": "policy_pair",
        "decide": draw(st.sampled_from(["useful", "queued", "always"])),
        "void": draw(st.booleans()),
        "observation": draw(st.sampled_from(["normal", "small", "minimal"])),
        "scale": draw(st.sampled_from(["seen", "workload"])),
        "contention": contention,
        "jobs": draw(st.integers(8, 24)),
        "objective": draw(st.sampled_from(OBJECTIVES)),
        "reward": draw(st.sampled_from(["sampled", "integrated"])),
        "kill_at_walltime": draw(st.booleans()),
        "batch_events": draw(st.booleans()),
        "max_steps": draw(st.none() | st.integers(3, 40)),
    }


@examples(8, suppress_health_check=[HealthCheck.too_slow])
@given(chosen=covered_nodes(), seed=st.integers(0, 2**20))
def test_a_batch_on_nodes_does_what_the_engine_does(chosen: dict[str, Any], seed: int) -> None:
    play(chosen, 40, seed, num_envs=2)


@pytest.mark.parametrize("workers", [1, 3])
def test_threads_step_shares_of_a_batch(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hdsim.envs.vector._PER_THREAD", 2)
    chosen = {"workload": workload(3, 60), "jobs": 8, "action": "job", "observation": "jobs", "queue_size": 6}
    assert play(chosen, 60, 5, num_envs=7, workers=workers) > 20


@given(waits=st.lists(st.floats(0, 1e12), min_size=1, max_size=40))
def test_waiting_times_in_rows_are_logarithms(waits: list[float]) -> None:
    count = len(waits)
    seen = np.empty((count, COLUMNS), np.float32)
    write_rows(
        np.arange(count),
        np.zeros(count, bool),
        np.zeros(count * COLUMNS, np.float32),
        -np.array(waits),
        0.0,
        0.0,
        0.5,
        np.empty(count),
        np.empty(count, np.int64),
        seen.reshape(-1),
    )
    exact = np.minimum(np.log1p(waits) / np.log1p(7 * 86400.0), 1.0)
    assert seen[:, 0] == pytest.approx(exact, rel=1e-7, abs=1e-9)


def test_episodes_of_given_jobs() -> None:
    chosen = {"workload": workload(1), "action": "job", "observation": "jobs", "queue_size": 4}
    other = workload(2, 70)
    vector, single = hdsim.make_vec(2, platform=SMALL, **chosen), SchedulingEnv(platform=SMALL, **chosen)
    seen, info = vector.reset(seed=1, options={"workload": other})
    assert np.array_equal(seen[0], single.reset(seed=1, options={"workload": other})[0])
    actions = info["action_mask"].argmax(axis=1)
    assert np.array_equal(vector.step(actions)[0][0], single.step(actions[0])[0])
    with pytest.raises(ConfigError, match="expected the key workload"):
        vector.reset(options={"jobs": other})
    with pytest.raises(DecisionError, match="expected actions from 0 to 3"):
        vector.step([0, 4])


@pytest.mark.parametrize("observation", ["jobs", "jobs_shadow"])
def test_the_next_episode_may_begin_in_the_same_step(observation: str) -> None:
    chosen = {"workload": workload(3, 60), "jobs": 6, "action": "job", "observation": observation, "queue_size": 4}
    same = SchedulingVectorEnv(4, platform=SMALL, autoreset_mode=AutoresetMode.SAME_STEP, **chosen)
    singles = [SchedulingEnv(platform=SMALL, **chosen) for _ in range(4)]
    try:
        seen, info = same.reset(seed=1)
        for i, env in enumerate(singles):
            env.reset(seed=1 + i)
        ends = 0
        for _ in range(25):
            actions = info["action_mask"].argmax(axis=1)
            seen, rewards, terminated, _, info = same.step(actions)
            for i, env in enumerate(singles):
                observation, reward, over, _, single = env.step(actions[i])
                assert (rewards[i], terminated[i]) == (reward, over)
                if over:
                    ends += 1
                    assert info["_final_obs"][i]
                    np.testing.assert_array_equal(info["final_obs"][i], observation)
                    assert info["final_info"]["action_mask"][i].all()
                    assert info["metrics"]["makespan"][i] == single["metrics"]["makespan"]
                    observation, single = env.reset()
                np.testing.assert_array_equal(seen[i], observation)
                np.testing.assert_array_equal(info["action_mask"][i], single["action_mask"])
        assert ends > 8
    finally:
        same.close()


@pytest.mark.parametrize(
    "chosen",
    [
        {"action": "node"},
        {"action": "job", "observation": "graph"},
        {"action": "job", "objective": "energy_consumption"},
        {"action": "job", "core_policy": "random"},
        {"action": "policy_pair", "objective": "edp"},
        {"action": "job", "platform": PLATFORM, "workload": limited()},
        {"action": "job", "failures": {"_target_": "hdsim.failures.Exponential", "mtbf": 400.0, "mttr": 30.0}},
    ],
)
def test_other_environments_are_stepped_one_by_one(chosen: dict[str, Any]) -> None:
    vector = gymnasium.make_vec(
        "hdsim/Scheduling-v0",
        num_envs=1,
        vectorization_mode="vector_entry_point",
        **{"platform": SMALL, "workload": workload(1), **chosen},
    )
    assert not isinstance(vector._share, Batch)
    vector.reset(seed=0)


@pytest.mark.requires("stable-baselines3")
def test_stable_baselines_trains_on_a_batch() -> None:
    from sb3_contrib import MaskablePPO

    from hdsim.envs.sb3 import SB3VecEnv

    chosen = {"workload": workload(3, 60), "jobs": 6, "action": "job", "observation": "jobs", "queue_size": 4}
    vector, single = SB3VecEnv(4, platform=SMALL, **chosen), SchedulingEnv(platform=SMALL, **chosen)
    try:
        vector.seed(1)
        seen = vector.reset()
        observation, info = single.reset(seed=1)
        total, ends = 0.0, 0
        for _ in range(30):
            np.testing.assert_array_equal(seen[0], observation)
            (mask,) = vector.env_method("action_masks", indices=0)
            np.testing.assert_array_equal(mask, info["action_mask"])
            actions = np.array([each.argmax() for each in vector.env_method("action_masks")])
            seen, _, over, infos = vector.step(actions)
            observation, reward, ended, _, info = single.step(actions[0])
            total += reward
            assert over[0] == ended
            if ended:
                ends += 1
                np.testing.assert_array_equal(infos[0]["terminal_observation"], observation)
                assert infos[0]["episode"]["r"] == pytest.approx(total)
                assert infos[0]["metrics"] == info["metrics"]
                observation, info = single.reset()
                total = 0.0
        assert ends > 2
        model = MaskablePPO("MlpPolicy", vector, n_steps=8, batch_size=16, seed=1).learn(64)
        assert model.num_timesteps == 64
    finally:
        vector.close()


@pytest.mark.parametrize("objective", ["avg_job_slowdown", "energy_consumption"])
def test_a_metric_that_few_episodes_define_is_nan_of_the_others(objective: str) -> None:
    """Every sixth episode has a job with slack, on compiled environments and on others."""
    slack = np.full(60, np.nan)
    slack[::15] = 3600.0
    workload = hdsim.Workload.from_columns(
        submission_time=np.arange(60.0), runtime=[30.0] * 60, requested_cores=[1] * 60, extra={"slack": slack}
    )
    vector = hdsim.make_vec(
        6,
        platform=hdsim.Platform.homogeneous(nodes=4, cores_per_node=1),
        workload=workload,
        jobs=3,
        action="job",
        observation="jobs",
        objective=objective,
        workers=1,
    )
    try:
        _, info = vector.reset(seed=1)
        missed: list[float] = []
        while len(missed) < 60:
            *_, info = vector.step(info["action_mask"].argmax(axis=1))
            if "metrics" in info:
                one = info["metrics"].get("deadlines_missed", np.full(6, np.nan))
                missed += one[info["_metrics"]].tolist()
                assert not np.isnan(info["metrics"]["makespan"][info["_metrics"]]).any()
        assert 0 < missed.count(0.0) < len(missed)
        assert np.isnan(missed).sum() == len(missed) - missed.count(0.0)
    finally:
        vector.close()
