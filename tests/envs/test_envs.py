"""The Gymnasium environment: its contract, rewards against a second, slow reading, episodes, vectors."""

import copy
import gc
import itertools
import logging
import pickle
import subprocess
import sys
import time
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from decision_kinds import ACTIONS, OBSERVATIONS
from decision_oracle import Oracle, snapshot
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from test_decisions import PLATFORM, Player, environment, workload
from tiers import ALL, nightly

import hdsim
import hdsim.envs
from hdsim.cluster import invariants
from hdsim.decisions.kinds import OBJECTIVES
from hdsim.envs.episodes import Episodes, make_traces
from hdsim.envs.scheduling import SchedulingEnv
from hdsim.errors import BackendError, ConfigError, DecisionError

KINDS = list(itertools.product(ACTIONS, OBSERVATIONS))
RATES = [
    "avg_job_slowdown",
    "avg_bounded_slowdown",
    "avg_job_completion",
    "avg_utilization",
    "makespan",
    "energy_consumption",
]


# The contract


@pytest.mark.parametrize(("action", "observation"), KINDS)
def test_gymnasium_finds_no_fault(action: str, observation: str) -> None:
    env = gymnasium.make(
        "hdsim/Scheduling-v0", platform=PLATFORM, workload=workload(), action=action, observation=observation
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*(render|spec).*")
        check_env(env.unwrapped)


@pytest.mark.requires("stable-baselines3")
@pytest.mark.parametrize(("action", "observation"), KINDS)
def test_stable_baselines_finds_no_fault(action: str, observation: str) -> None:
    from sb3_contrib.common.maskable.utils import get_action_masks, is_masking_supported
    from stable_baselines3.common.env_checker import check_env as check
    from stable_baselines3.common.vec_env import DummyVecEnv

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*unconventional shape.*")
        check(environment(action, observation))
    vector = DummyVecEnv([lambda: environment(action, observation)])
    vector.reset()
    assert is_masking_supported(vector)
    assert get_action_masks(vector).shape == (1, vector.action_space.n)


@pytest.mark.parametrize(
    "statements",
    [
        "import gymnasium; import hdsim",
        "import hdsim; import gymnasium; hdsim.Platform",
        "import hdsim.envs, gymnasium",
        "import gymnasium; from hdsim import load_platform",
    ],
)
def test_gymnasium_knows_it(statements: str) -> None:
    script = f"import sys; {statements}; print('hdsim/Scheduling-v0' in gymnasium.registry, 'torch' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert shown.stdout.split() == ["True", "False"]


def test_autoreset_mode_is_declared() -> None:
    assert environment("job", "jobs").metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP


@pytest.mark.parametrize("action", ACTIONS)
def test_masked_random_play_makes_no_invalid_move(action: str) -> None:
    steps, rng = 33_400 if ALL else 4_000, np.random.default_rng(1)
    settings = {"job": {"void": True, "queue_size": 16}, "node": {"void": True}}.get(action, {})
    env = environment(action, "minimal", workload(2, 400), contention="threshold", jobs=100, **settings)
    _, info = env.reset(seed=1)
    draws = rng.random(steps)
    for i in range(steps):
        allowed = info["action_mask"].nonzero()[0]
        *_, over, truncated, info = env.step(allowed[int(draws[i] * len(allowed))])
        assert not info["invalid_action"]
        assert not truncated
        if i % 997 == 0:
            invariants.check(env.cluster)
        if over:
            assert info["metrics"]["jobs_completed"] == 100
            _, info = env.reset()


def test_an_invalid_move_counts_as_the_first_valid_one() -> None:
    env = environment("job", "jobs", queue_size=4)
    _, info = env.reset(seed=0)
    while info["action_mask"].all():
        *_, info = env.step(0)
    wrong, right = int(info["action_mask"].argmin()), int(info["action_mask"].argmax())
    job = list(env.cluster.queue)[right]
    *_, info = env.step(wrong)
    assert info["invalid_action"]
    assert job not in env.cluster.queue


@pytest.mark.parametrize(("action", "observation"), [("policy_pair", "normal"), ("job", "jobs"), ("node", "graph")])
def test_a_seed_repeats_an_episode(action: str, observation: str) -> None:
    def play(env: SchedulingEnv, seed: int | None) -> list[object]:
        told: list[object] = [env.reset(seed=seed)[0]]
        over = False
        rng = np.random.default_rng(0)
        while not over:
            observed, reward, over, _, _ = env.step(int(rng.choice(env.action_masks().nonzero()[0])))
            told += [observed, reward]
        return told

    def equal(one: list[object], other: list[object]) -> bool:
        return pickle.dumps(one) == pickle.dumps(other)

    env = environment(action, observation, workload(1, 120), jobs=25, reward="integrated", contention="threshold")
    first, second = play(env, 4), play(env, None)
    assert equal(
        play(
            environment(action, observation, workload(1, 120), jobs=25, reward="integrated", contention="threshold"), 4
        ),
        first,
    )
    assert equal(play(env, 4), first)
    assert equal(play(env, None), second)
    assert not equal(play(env, 5), first)


def test_an_episode_ends_with_its_metrics() -> None:
    env = environment("policy_pair", "minimal", workload(1, 30))
    env.reset(seed=0)
    over, steps = False, 0
    while not over:
        assert env.result is None
        *_, over, truncated, info = env.step(7)
        steps += 1
        assert ("metrics" in info) == over
    assert not truncated
    assert info["metrics"]["jobs_completed"] == 30
    assert info["action_mask"].all()
    assert env.result.metrics == info["metrics"]

    env = environment("policy_pair", "minimal", workload(1, 30), max_steps=steps - 5)
    env.reset(seed=0)
    for left in reversed(range(steps - 5)):
        *_, over, truncated, info = env.step(7)
        assert (over, truncated) == (False, left == 0)
    assert info["metrics"]["jobs_unfinished"] > 0
    # An episode that ends at its last permitted step has ended.
    env = environment("policy_pair", "minimal", workload(1, 30), max_steps=steps)
    env.reset(seed=0)
    for _ in range(steps):
        *_, over, truncated, info = env.step(7)
    assert (over, truncated) == (True, False)


def test_void_is_forbidden_when_nothing_else_would_happen() -> None:
    jobs = hdsim.Workload.from_columns(submission_time=[0, 10], runtime=[3, 3], requested_cores=[1, 1])
    env = environment("policy_pair", "minimal", jobs)
    _, info = env.reset()
    assert info["action_mask"][36]  # another job is to come
    *_, info = env.step(36)
    assert env.cluster.now == 10
    assert not info["action_mask"][36]
    *_, over, _, info = env.step(36)
    assert info["invalid_action"]
    assert over


@pytest.mark.parametrize("action", ACTIONS)
def test_nodes_may_fail(action: str) -> None:
    failures = {"_target_": "hdsim.failures.Exponential", "mtbf": 400.0, "mttr": 30.0}
    for observation in OBSERVATIONS:
        env = environment(action, observation, workload(1, 60), failures=failures, objective="avg_job_slowdown")
        observed, info = env.reset(seed=2)
        over, rng = False, np.random.default_rng(0)
        while not over:
            assert env.observation_space.contains(observed)
            observed, _, over, _, info = env.step(int(rng.choice(info["action_mask"].nonzero()[0])))
            assert not info["invalid_action"]
        assert env.cluster.outages


# Rewards


@pytest.mark.parametrize("contention", ["threshold", *nightly("none")])
@pytest.mark.parametrize("objective", RATES)
@pytest.mark.parametrize("action", ACTIONS)
def test_sampled_rates(action: str, objective: str, contention: str) -> None:
    jobs = workload(12, 30)
    env = environment(action, "minimal", jobs, objective=objective, contention=contention, reward_scale=0.5)
    player, oracle = Player(env), Oracle(PLATFORM, jobs)
    taken = []
    act = env.problem.act

    def acted(choice: int) -> None:
        act(choice)
        taken.append(snapshot(env.cluster))

    env.problem.act = acted
    while not player.over:
        reward = player.step()
        assert reward == pytest.approx(0.5 * oracle.rate(objective, taken[-1], contention == "threshold"))


@pytest.mark.parametrize("contention", ["none", "threshold"])
@pytest.mark.parametrize("objective", [*RATES, "edp"])
def test_integrated_rates(objective: str, contention: str) -> None:
    jobs = workload(13, 30)
    env = environment("job", "minimal", jobs, objective=objective, contention=contention, reward="integrated")
    player, oracle = Player(env), Oracle(PLATFORM, jobs)
    rewards, times = [], [env.cluster.now]
    while not player.over:
        rewards.append(player.step())
        times.append(env.cluster.now)
    history = player.history

    def integral(rate: str, until: float) -> float:
        ends = [*[at.now for at in history[1:]], times[-1]]
        return sum(
            oracle.rate(rate, at, contention == "threshold") * (min(end, until) - at.now)
            for at, end in zip(history, ends, strict=True)
            if at.now < until
        )

    if objective == "edp":
        at_times = [integral("energy_consumption", time) * time for time in times]
        assert sum(rewards) == pytest.approx(-env.result.metrics["edp"])
    else:
        at_times = [integral(objective, time) for time in times]
    assert np.diff(at_times) == pytest.approx(np.array(rewards), rel=1e-9, abs=1e-6)
    if objective == "energy_consumption":
        assert sum(rewards) == pytest.approx(-env.result.energy_joules)


@pytest.mark.parametrize("reward", ["sampled", "integrated"])
def test_bounded_slowdown(reward: str) -> None:
    jobs = workload(14, 30)
    env = environment("job", "minimal", jobs, objective="bounded_slowdown", reward=reward)
    player = Player(env)
    rewards = []
    while not player.over:
        ended = [job for job in range(30) if not np.isnan(env.cluster.finish_time[job])]
        rewards.append(player.step())
        newly = [job for job in range(30) if not np.isnan(env.cluster.finish_time[job]) and job not in ended]
        start, finish = np.array(env.cluster.starting_time)[newly], np.array(env.cluster.finish_time)[newly]
        slowdown = np.maximum((finish - jobs.submission_time[newly]) / np.maximum(finish - start, 10), 1)
        if reward == "integrated":
            assert rewards[-1] == pytest.approx(-slowdown.sum() / 30)
    assert sum(rewards) == pytest.approx(-env.result.metrics["mean_bounded_slowdown"])
    assert reward == "integrated" or not any(rewards[:-1])


def test_cluster_balance() -> None:
    jobs = workload(15, 60).replaced(requested_cores=1)
    env = environment("node", "nodes", jobs, objective="cluster_balance", void=True)
    player = Player(env)
    chosen: list[int] = []
    act = env.problem.act
    expected = []

    def acted(node: int) -> None:
        act(node)
        if node == PLATFORM.n_nodes:
            expected.append(0.0)
            return
        at = snapshot(env.cluster)
        shares = []
        for other in range(PLATFORM.n_nodes):
            cores = [core.job for core in at.cores if core.node == other]
            shares.append(sum(job is not None for job in cores) / len(cores))
        mean = sum(shares) / len(shares)
        v = (sum((share - mean) ** 2 for share in shares) / len(shares)) ** 0.5
        balance = 1 - 2 * (v / (v + 1))
        if chosen and chosen[-1] == node:
            expected.append(max(-1.0, -balance))
        else:
            expected.append(balance / (chosen.count(node) + 1) ** 0.5)
        chosen.append(node)

    env.problem.act = acted
    rewards = []
    while not player.over:
        rewards.append(player.step())
    assert rewards == pytest.approx(expected)
    assert min(expected) < 0 < max(expected)


def test_balance_counts_what_a_half_placed_job_will_hold() -> None:
    jobs = hdsim.Workload.from_columns(submission_time=[0], runtime=[5], requested_cores=[8])
    platform = hdsim.Platform.homogeneous(nodes=2, cores_per_node=4)
    env = SchedulingEnv(platform, jobs, "node", "nodes", "cluster_balance")
    env.reset()
    assert env.step(0)[1] == pytest.approx(1 - 2 * (0.5 / 1.5))  # shares of 1 and 0
    assert env.step(1)[1] == pytest.approx(1.0)


# Episodes


def test_windows_of_several_traces_are_equally_likely() -> None:
    traces = [workload(1, 30), workload(2, 60)]
    episodes = Episodes(traces, jobs=20)
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(3000):
        jobs = episodes.draw(rng)
        window = episodes.window
        drawn.append((window.trace, window.first))
        part = traces[window.trace][window.first : window.first + 20]
        assert len(jobs) == 20
        assert np.array_equal(jobs.runtime, part.runtime)
        assert jobs.submission_time[0] == 0
    found, counts = np.unique(drawn, axis=0, return_counts=True)
    assert len(found) == 11 + 41
    assert counts.max() < 3 * counts.min()


def test_held_out_windows_share_no_job_with_an_episode() -> None:
    traces = [workload(1, 100), workload(2, 50)]
    episodes = Episodes(traces, jobs=10, held_out=[(20, 30), (1, 0, 25)])
    rng = np.random.default_rng(0)
    seen: tuple[set[int], set[int]] = (set(), set())
    for _ in range(2000):
        episodes.draw(rng)
        window = episodes.window
        seen[window.trace].update(range(window.first, window.first + window.jobs))
    assert seen[0] == set(range(20)) | set(range(50, 100))
    assert seen[1] == set(range(25, 50))


def test_growing_windows() -> None:
    episodes = Episodes([workload(1, 100)], 50, curriculum="growing", curriculum_episodes=10, curriculum_start=0.2)
    rng = np.random.default_rng(0)
    assert [len(episodes.draw(rng)) for _ in range(13)] == [10, 14, 18, 22, 26, 30, 34, 38, 42, 46, 50, 50, 50]


def test_easy_windows_first() -> None:
    trace = workload(1, 200)
    episodes = Episodes([trace], 20, curriculum="easy_first", curriculum_episodes=400, curriculum_start=0.1)
    rng = np.random.default_rng(0)

    def load(first: int) -> float:
        part = trace[first : first + 20]
        return float(part.runtime @ part.requested_cores) / max(float(part.submission_time[-1]), 1.0)

    ranked = sorted(map(load, range(181)))
    loads = []
    for _ in range(800):
        episodes.draw(rng)
        loads.append(load(episodes.window.first))
    assert max(loads[:10]) <= ranked[21]
    assert max(loads[400:]) > ranked[170]


def test_sources_of_traces() -> None:
    gaia = hdsim.load_platform("platforms/gaia.json")
    traces = make_traces(["lublin_4000", {"model": "lublin", "jobs": 50, "seed": 3}, workload()], gaia)
    assert [len(trace) for trace in traces] == [4000, 50, 40]
    assert traces[1].requested_cores.max() <= gaia.n_cores
    env = gymnasium.make("hdsim/Scheduling-v0", platform="gaia", workload={"model": "lublin", "jobs": 30}).unwrapped
    assert env.platform.n_cores == gaia.n_cores


def test_a_workload_may_be_named_at_reset() -> None:
    env = environment("job", "jobs", workload(1, 50), jobs=10)
    other = workload(2, 5)
    env.reset(options={"workload": other})
    assert env.cluster.workload is other


def test_the_queue_is_scaled_by_whole_traces_only_where_asked_for() -> None:
    trace = workload(1, 100)
    assert "scales" not in environment("policy_pair", "minimal", trace, jobs=5).problem.settings
    env = environment("policy_pair", "minimal", trace, jobs=5, scale="workload")
    assert env.problem.settings["scales"]["requested_time"] == np.percentile(trace.requested_time, 99)


# Vectors


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_gymnasium_makes_vectors(mode: str) -> None:
    vector = gymnasium.make_vec(
        "hdsim/Scheduling-v0",
        num_envs=2,
        vectorization_mode=mode,
        platform=PLATFORM,
        workload=workload(1, 60),
        jobs=10,
        action="job",
        observation="jobs",
        queue_size=8,
    )
    try:
        observed, info = vector.reset(seed=3)
        assert observed.shape == (2, 8, 8)
        ends = 0
        for _ in range(60):
            observed, _, over, _, info = vector.step(info["action_mask"].argmax(axis=1))
            ends += over.sum()
        assert ends >= 4
    finally:
        vector.close()


@pytest.mark.parametrize("contention", ["none", "fair_share"])
@pytest.mark.parametrize("failures", ["none", "frequent"])
def test_expected_completion_adds_up_to_turnaround_times(contention: str, failures: str) -> None:
    outages = {"_target_": "hdsim.failures.Exponential", "mtbf": "300s", "mttr": "50s"}
    settings = {"contention": contention, "failures": outages if failures == "frequent" else "none"}
    player = Player(environment("node", "nodes", workload(3, 40), objective="expected_completion", **settings))
    total = 0.0
    while not player.over:
        total += player.step()
    assert player.env.result is not None
    assert total == pytest.approx(-player.env.result.jobs["turnaround_time"].sum())


def test_expected_completion_pays_for_a_start_and_what_it_costs_others_at_once() -> None:
    jobs = hdsim.Workload.from_columns(
        submission_time=[0, 50], runtime=[100, 100], requested_cores=[1, 1], memory_bandwidth=40
    )
    env = SchedulingEnv("eight_nodes", jobs, "node", "nodes_bandwidth", "expected_completion", contention="fair_share")
    env.reset(seed=0)
    # The second job halves the speed of the first, 50 s before its end, and expects 200 s; 50 s of it come back.
    assert [env.step(3)[1], env.step(3)[1]] == [-100.0, -(50.0 + 200.0 - 50.0)]
    env.reset(seed=0)
    assert [env.step(3)[1], env.step(4)[1]] == [-100.0, -100.0]


# Mistakes


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"objective": "speed"}, "env.objective"),
        ({"objective": "cluster_balance"}, "env.action=node"),
        ({"reward": "mean"}, "env.reward"),
        ({"reward_scale": "big"}, "env.reward_scale"),
        ({"jobs": 0}, "env.jobs"),
        ({"jobs": 41}, "longest trace has 40"),
        ({"jobs": 10, "held_out": [(0, 40)]}, "env.jobs"),
        ({"jobs": 10, "held_out": [(35, 10)]}, "env.held_out"),
        ({"held_out": [(0, 4)]}, "env.jobs"),
        ({"jobs": 10, "curriculum": "hard"}, "env.curriculum"),
        ({"jobs": 10, "curriculum_start": 0}, "env.curriculum_start"),
        ({"max_steps": 0}, "env.max_steps"),
        ({"contention": "thresh"}, "did you mean 'threshold'"),
        ({"render_mode": "human"}, "env.render_mode"),
        ({"wokload": 3}, "unknown setting"),
        ({"workload": []}, "at least one trace"),
        ({"workload": {"model": "poisson"}}, "workload.generate.model"),
        ({"workload": {"model": "lublin", "jops": 3}}, "jops"),
        ({"workload": "lublin_400"}, "did you mean 'lublin_4000'"),
        ({"platform": "gaja"}, "did you mean 'gaia'"),
    ],
)
def test_settings_that_cannot_be(settings: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SchedulingEnv(**{"platform": PLATFORM, "workload": workload(), **settings})


def test_every_objective_runs_with_every_action_it_is_for() -> None:
    cases = itertools.product(ACTIONS, OBJECTIVES.classes().items(), ["sampled", "integrated"])
    for action, (name, kind), reward in cases:
        if kind.only_action in (None, action):
            paid = {} if kind.signal is None else {"facility": {kind.signal: 0.2}}
            player = Player(environment(action, "minimal", workload(1, 12), objective=name, reward=reward, **paid))
            while not player.over:
                assert np.isfinite(player.step())


# Shared memory


@pytest.mark.parametrize("observation", ["jobs", "graph"])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_environments_in_several_processes_are_those_in_one(workers: int, observation: str) -> None:
    settings = {
        "platform": PLATFORM,
        "workload": workload(1, 60),
        "jobs": 8,
        "action": "job",
        "observation": observation,
        "queue_size": 6,
    }
    vector = gymnasium.make_vec(
        "hdsim/Scheduling-v0", num_envs=5, vectorization_mode="vector_entry_point", workers=workers, **settings
    )
    singles = [SchedulingEnv(**settings) for _ in range(5)]
    try:
        assert vector.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
        observed, info = vector.reset(seed=7)
        seen = [env.reset(seed=7 + i) for i, env in enumerate(singles)]
        over = [False] * 5
        ends = 0
        for _ in range(40):
            assert vector.observation_space.contains(observed)
            actions = []
            for i, (single, told) in enumerate(seen):
                for name, array in single.items() if isinstance(single, dict) else [("", single)]:
                    assert np.array_equal(observed[name][i] if name else observed[i], array)
                assert np.array_equal(info["action_mask"][i], told["action_mask"])
                actions.append(int(told["action_mask"].argmax()))
            observed, rewards, terminated, truncated, info = vector.step(np.array(actions))
            for i, env in enumerate(singles):
                if over[i]:
                    seen[i], reward, over[i] = env.reset(), 0.0, False
                else:
                    single, reward, over[i], _, told = env.step(actions[i])
                    seen[i] = single, told
                assert (rewards[i], terminated[i], truncated[i]) == (reward, over[i], False)
                if over[i]:
                    ends += 1
                    assert info["_metrics"][i]
                    assert info["metrics"]["makespan"][i] == seen[i][1]["metrics"]["makespan"]
        assert ends > 5
    finally:
        vector.close()


@pytest.mark.parametrize("workers", [1, 2])
def test_what_a_vector_returned_stays_as_it_was(workers: int) -> None:
    vector = gymnasium.make_vec(
        "hdsim/Scheduling-v0",
        num_envs=3,
        vectorization_mode="vector_entry_point",
        workers=workers,
        platform=PLATFORM,
        workload=workload(1, 60),
        jobs=8,
        objective="edp",
    )
    try:
        observed, info = vector.reset(seed=1)
        kept, copies = [], []
        for _ in range(10):
            kept.append((observed, info["action_mask"]))
            copies.append((observed.copy(), info["action_mask"].copy()))
            assert np.array_equal(vector.unwrapped.action_masks(), info["action_mask"])
            observed, *_, info = vector.step(info["action_mask"].argmax(axis=1))
        for then, now in zip(copies, kept, strict=True):
            assert all(np.array_equal(a, b) for a, b in zip(then, now, strict=True))
        assert len({array.tobytes() for array, _ in copies}) > 1
        with pytest.raises(DecisionError, match="3 whole numbers"):
            vector.step([0, 0])
    finally:
        vector.close()


def test_after_a_fault_a_vector_goes_on() -> None:
    vector = gymnasium.make_vec(
        "hdsim/Scheduling-v0",
        num_envs=3,
        vectorization_mode="vector_entry_point",
        workers=3,
        platform=PLATFORM,
        workload=workload(),
        objective="edp",
    )
    try:
        first, info = vector.reset(seed=0)
        actions = info["action_mask"].argmax(axis=1)
        second = vector.step(actions)[0]
        with pytest.raises(ConfigError, match="expected the key workload"):
            vector.reset(seed=0, options={"seed": 1})
        assert np.array_equal(vector.reset(seed=0)[0], first)
        assert np.array_equal(vector.step(actions)[0], second)
        # What happens nowhere but in one process.
        vector._others[0].call("reset", [None], {"seed": 1})
        with pytest.raises(ConfigError, match="expected the key workload"):
            vector._others[0].outcome()
        assert np.array_equal(vector.reset(seed=0)[0], first)
    finally:
        vector.close()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_an_idle_vector_sleeps() -> None:
    vector = gymnasium.make_vec(
        "hdsim/Scheduling-v0",
        num_envs=2,
        vectorization_mode="vector_entry_point",
        workers=2,
        platform=PLATFORM,
        workload=workload(),
        objective="edp",
    )
    try:
        _, info = vector.reset(seed=0)
        vector.step(info["action_mask"].argmax(axis=1))
        process = vector._others[0]._vector.processes[0]
        # Fields 14 and 15, ticks of 10 ms in user and in system mode; the name in field 2 holds no blank.
        ticks = [sum(map(int, Path(f"/proc/{process.pid}/stat").read_text().split()[13:15]))]
        time.sleep(1.0)
        ticks.append(sum(map(int, Path(f"/proc/{process.pid}/stat").read_text().split()[13:15])))
        assert ticks[1] - ticks[0] < 30
    finally:
        vector.close()
    assert not process.is_alive()


@pytest.mark.ci
def test_the_death_of_a_process_is_told() -> None:
    vector = gymnasium.make_vec(
        "hdsim/Scheduling-v0",
        num_envs=2,
        vectorization_mode="vector_entry_point",
        workers=2,
        platform=PLATFORM,
        workload=workload(),
        objective="edp",
    )
    try:
        vector.reset(seed=0)
        vector._others[0]._vector.processes[0].kill()
        with pytest.raises(BackendError, match="died with status -9"):
            vector.step(np.zeros(2, int))
    finally:
        vector.close()


def test_a_script_ends_without_closing_its_processes() -> None:
    script = (
        "import hdsim\n"
        "trace = {'model': 'lublin', 'jobs': 20}\n"
        "vector = hdsim.make_vec(2, platform='teaching', workload=trace, objective='edp', workers=2)\n"
        "vector.reset(seed=0)\n"
        "print(len(vector._others))\n"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert (shown.stdout, shown.returncode) == ("1\n", 0), shown.stderr


def test_processes_end_without_a_word_when_their_parent_is_killed() -> None:
    script = (
        "import hdsim, os\n"
        "trace = {'model': 'lublin', 'jobs': 20}\n"
        "vector = hdsim.make_vec(3, platform='teaching', workload=trace, objective='edp', workers=3)\n"
        "vector.reset(seed=0)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    # The pipes to this process are closed once the last process has ended.
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert (shown.stdout, shown.stderr, shown.returncode) == ("", "", -9)


# Faults of the caller, copies


def test_a_rejected_job_counts_neither_in_the_metric_nor_in_the_reward() -> None:
    jobs = hdsim.Workload.from_columns(submission_time=[0, 5, 6], runtime=[60, 30, 10], requested_cores=[10**6, 1, 1])
    for reward in ("sampled", "integrated"):
        player = Player(environment("job", "jobs", jobs, objective="bounded_slowdown", reward=reward))
        total = 0.0
        while not player.over:
            total += player.step()
        assert total == -player.env.result.metrics["mean_bounded_slowdown"] == -1.0


@pytest.mark.parametrize("reward", ["sampled", "integrated"])
def test_a_truncated_episode_pays_for_the_jobs_that_have_ended(reward: str) -> None:
    # Four jobs of 100 s one after the other on all cores: waits 0, 100, 200, 300 s. The third action starts the third.
    jobs = hdsim.Workload.from_columns(submission_time=[0] * 4, runtime=[100] * 4, requested_cores=[4] * 4)
    chosen = {"platform": "one_node", "workload": jobs, "action": "job", "observation": "jobs", "max_steps": 3}
    chosen["platform"] = hdsim.Platform.homogeneous(nodes=1, cores_per_node=4, gflops_per_core=1.0)
    env = SchedulingEnv(**chosen, objective="bounded_slowdown", reward=reward)
    vector = hdsim.make_vec(1, **chosen, objective="bounded_slowdown", reward=reward)
    env.reset(seed=1)
    vector.reset(seed=1)
    total = compiled = 0.0
    for step in range(3):
        _, paid, over, truncated, _ = env.step(0)
        total += paid
        compiled += float(vector.step([0])[1][0])
        assert (over, truncated) == (False, step == 2)
    vector.close()
    # The first three jobs have ended when the fourth is to be decided on.
    assert total == compiled == pytest.approx(-(1 + 2 + 3) / 4)


@pytest.mark.parametrize("action", [-1, 10**6, 0.0, 1.5, True, "0", None, [0, 1], []])
def test_an_action_is_a_number_of_one(action: object) -> None:
    env = environment("job", "jobs", workload())
    vector = hdsim.make_vec(2, platform=PLATFORM, workload=workload(), action="job", observation="jobs")
    env.reset(seed=1)
    vector.reset(seed=1)
    with pytest.raises(DecisionError, match="expected"):
        env.step(action)
    # Beside a number, a truth value is one to NumPy.
    if action is not True:
        with pytest.raises(DecisionError, match="expected"):
            vector.step([0, action])
    vector.close()


@pytest.mark.parametrize("number", [0, np.int64(0), np.array(0), np.array([0]), np.uint8(0)])
def test_whole_numbers_of_numpy_are_actions(number: object) -> None:
    env = environment("job", "jobs", workload())
    env.reset(seed=1)
    assert np.isfinite(env.step(number)[1])


def test_after_an_action_that_is_none_no_environment_has_stepped() -> None:
    chosen = {"platform": PLATFORM, "workload": workload(), "objective": "edp"}
    vector, other = (hdsim.make_vec(3, workers=3, **chosen) for _ in range(2))
    try:
        for each in (vector, other):
            each.reset(seed=3)
        with pytest.raises(DecisionError, match="expected actions from 0"):
            vector.step([0, 0, 10**6])
        for _ in range(5):
            for mine, theirs in zip(vector.step([0] * 3)[:4], other.step([0] * 3)[:4], strict=True):
                assert np.array_equal(mine, theirs)
    finally:
        vector.close()
        other.close()


def test_steps_belong_to_an_episode() -> None:
    env = environment("job", "jobs", workload(1, 4))
    with pytest.raises(DecisionError, match=r"expected reset\(\) first"):
        env.step(0)
    player = Player(env)
    while not player.over:
        player.step()
    with pytest.raises(DecisionError, match=r"expected reset\(\) after the end of an episode"):
        env.step(0)
    with pytest.raises(ConfigError, match="hdsim report"):
        env.render()
    for workers, objective in ((1, "avg_job_completion"), (2, "edp")):
        vector = hdsim.make_vec(2, workers=workers, platform=PLATFORM, workload=workload(), objective=objective)
        with pytest.raises(DecisionError, match=r"expected reset\(\) first"):
            vector.step([0, 0])
        with pytest.raises(DecisionError, match=r"expected reset\(\) first"):
            vector.action_masks()
        vector.reset(seed=1)
        vector.close()
        with pytest.raises(DecisionError, match="open environments"):
            vector.step([0, 0])


def test_a_mask_that_is_written_to_allows_nothing() -> None:
    chosen = {"platform": PLATFORM, "workload": workload(), "action": "job", "observation": "jobs"}
    env, vector = SchedulingEnv(**chosen), hdsim.make_vec(2, **chosen)
    _, info = env.reset(seed=1)
    _, told = vector.reset(seed=1)
    masks = env.action_masks(), vector.action_masks()
    illegal = int(np.flatnonzero(~masks[0])[0])
    info["action_mask"][:] = told["action_mask"][:] = True
    env.action_masks()[:] = vector.action_masks()[:] = True
    assert np.array_equal(env.action_masks(), masks[0])
    assert np.array_equal(vector.action_masks(), masks[1])
    assert env.step(illegal)[-1]["invalid_action"]
    assert vector.step([illegal, 0])[-1]["invalid_action"][0]
    vector.close()


@pytest.mark.parametrize("mode", [AutoresetMode.DISABLED, "next_step"])
def test_other_modes_of_reset_are_refused(mode: object) -> None:
    with pytest.raises(ConfigError, match="expected NEXT_STEP or SAME_STEP"):
        hdsim.make_vec(2, platform=PLATFORM, workload=workload(), autoreset_mode=mode)


def test_settings_may_be_numbers_of_numpy() -> None:
    chosen = {"platform": PLATFORM, "workload": workload(), "action": "job", "observation": "jobs"}
    env = SchedulingEnv(
        **chosen, jobs=np.int64(20), max_steps=np.int32(5), queue_size=np.int64(8), reward_scale=np.float32(2)
    )
    env.reset(seed=np.int64(3))
    assert np.isfinite(env.step(np.int64(0))[1])
    assert hdsim.make_vec(np.int64(2), **chosen).num_envs == 2


@pytest.mark.parametrize(
    ("action", "observation", "contention"),
    [
        ("policy_pair", "normal", "none"),
        ("job", "jobs", "threshold"),
        ("node", "graph", "none"),
        ("backfill", "jobs", "none"),
    ],
)
def test_a_copy_of_an_environment_has_the_same_future(action: str, observation: str, contention: str) -> None:
    env = SchedulingEnv(
        PLATFORM,
        workload(),
        action,
        observation,
        jobs=20,
        objective="bounded_slowdown",
        contention=contention,
        curriculum="growing",
        curriculum_episodes=3,
    )
    fresh = copy.deepcopy(env)
    env.reset(seed=2)
    rng, over = np.random.default_rng(5), False

    def act(*environments: SchedulingEnv) -> bool:
        """Acts alike in all; they must agree."""
        action = int(rng.choice(environments[0].action_masks().nonzero()[0]))
        outcomes = [each.reset() if over else each.step(action) for each in environments]
        for outcome in outcomes[1:]:
            np.testing.assert_equal(outcome, outcomes[0])
        return not over and (outcomes[0][2] or outcomes[0][3])

    for _ in range(30):
        over = act(env)
    copies = [copy.deepcopy(env), env.fork(), env.fork().fork()]
    for _ in range(60):
        over = act(env, *copies)
    other = copy.deepcopy(fresh)
    np.testing.assert_equal(fresh.reset(seed=2), other.reset(seed=2))


def test_the_environments_of_a_vector_share_what_was_read_once(tmp_path: Path) -> None:
    # Processes that are forked write to the same file.
    told, log = logging.FileHandler(tmp_path / "log"), logging.getLogger("hdsim")
    log.addHandler(told)
    try:
        settings = {"platform": "eight_nodes", "workload": "lublin_4000", "jobs": 8}
        vector = hdsim.make_vec(4, workers=2, action="node", observation="nodes", **settings)
        vector.reset(seed=1)
        vector.close()
    finally:
        log.removeHandler(told)
        told.close()
    assert (tmp_path / "log").read_text().count("dropped 1065 of 4000 jobs") == 1


def test_a_vector_that_is_dropped_ends_its_processes() -> None:
    vector = hdsim.make_vec(2, workers=2, platform=PLATFORM, workload=workload(), objective="edp")
    vector.reset(seed=1)
    process = vector._others[0]._vector.processes[0]
    del vector
    gc.collect()
    assert not process.is_alive()
