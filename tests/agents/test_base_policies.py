"""Decisions under a base policy: which jobs are backfilled, and which starts are delayed."""

import math

import numpy as np
import pytest
from test_decisions import PLATFORM, replay_seed, same, workload

import hdsim
from hdsim.envs.scheduling import SchedulingEnv
from hdsim.scheduling.orders import job_order
from hdsim.workload.generators.lublin import generate

MACHINE = hdsim.Platform.homogeneous(nodes=64, cores_per_node=4)


def played(env: SchedulingEnv, choose, seed: int = 0) -> SchedulingEnv:
    _, info = env.reset(seed=seed)
    over = False
    while not over:
        _, _, over, truncated, info = env.step(choose(env, info["action_mask"]))
        assert not truncated
        assert not info["invalid_action"]
    return env


def first_in(order: str):
    """The first legal job in an order."""

    def choose(env: SchedulingEnv, mask: np.ndarray) -> int:
        legal = np.flatnonzero(mask[:-1])
        queued = np.array(env.problem.wait_queue.jobs)[legal]
        return int(legal[np.argmin(job_order(order).score(env.cluster.workload)[queued])])

    return choose


@pytest.mark.parametrize("contended", [False, True])
@pytest.mark.parametrize(("base", "by"), [("first", "first"), ("saf", "saf"), ("first", "sjf"), ("f1", "saf")])
def test_backfilling_the_first_candidate_is_easy(base: str, by: str, contended: bool) -> None:
    platform, jobs = (PLATFORM, workload(5, 150)) if contended else (MACHINE, generate(300, seed=3, arrival_factor=0.5))
    settings = {"contention": "threshold"} if contended else {}
    env = SchedulingEnv(platform, jobs, "backfill", "jobs", job_policy=base, queue_size=300, **settings)
    played(env, first_in(by))
    agent = {"job_policy": base, "backfill": "easy", "backfill_order": by}
    same(env, hdsim.simulate(platform, jobs, agent, seed=replay_seed(0), **settings))
    assert len(env._actions) >= 8


@pytest.mark.parametrize("base", ["first", "wfp3", "tetris"])
def test_backfilling_nothing_is_the_base_order(base: str) -> None:
    jobs = workload(6, 100)
    env = played(SchedulingEnv(PLATFORM, jobs, "backfill", "jobs", job_policy=base), lambda env, mask: len(mask) - 1)
    same(env, hdsim.simulate(PLATFORM, jobs, {"job_policy": base}, seed=replay_seed(0)))
    assert len(env._actions) > 5


def test_without_a_reservation_the_first_candidate_is_greedy() -> None:
    jobs = workload(6, 100)
    env = played(SchedulingEnv(PLATFORM, jobs, "backfill", "jobs", job_policy="sjf", reserve=False), first_in("sjf"))
    same(env, hdsim.simulate(PLATFORM, jobs, "greedy-sjf", seed=replay_seed(0)))


def earliest(idle: int, releases: list[tuple[float, int]], cores: int) -> float:
    """Time at which that many cores are idle."""
    for end, freed in sorted(releases):
        if idle >= cores:
            break
        idle, at = idle + freed, end
    return at if idle >= cores else math.inf


def test_legal_jobs_are_those_that_do_not_delay_the_head() -> None:
    env = SchedulingEnv(MACHINE, generate(400, seed=8, arrival_factor=0.5), "backfill", "jobs", queue_size=64)
    rng, refused = np.random.default_rng(1), [0]

    def choose(env: SchedulingEnv, mask: np.ndarray) -> int:
        cluster = env.cluster
        queue, jobs = list(cluster.queue), cluster.workload
        head, now, idle = queue[0], cluster.now, cluster.n_idle
        releases = [
            (max(now, cluster.starting_time[job] + jobs.requested_time[job]), int(jobs.requested_cores[job]))
            for job in cluster.running
        ]
        cores = jobs.requested_cores
        before = earliest(idle, releases, cores[head])
        for place, job in enumerate(queue[:64]):
            legal = False
            if place and cores[job] <= idle:
                after = [*releases, (now + jobs.requested_time[job], int(cores[job]))]
                legal = earliest(idle - cores[job], after, cores[head]) <= before
                refused[0] += not legal
            assert mask[place] == legal
        assert mask[-1]
        return int(rng.choice(np.flatnonzero(mask)))

    played(env, choose)
    assert len(env._actions) > 100
    assert refused[0] > 20


@pytest.mark.parametrize("backfill", ["none", "easy"])
@pytest.mark.parametrize("base", ["first", "f1", "wfp3"])
def test_accepting_everything_is_the_base_policy(base: str, backfill: str) -> None:
    jobs = workload(9, 120)
    env = played(SchedulingEnv(PLATFORM, jobs, "accept", "proposal", job_policy=base, backfill=backfill), lambda *_: 0)
    same(env, hdsim.simulate(PLATFORM, jobs, {"job_policy": base, "backfill": backfill}, seed=replay_seed(0)))
    assert len(env._actions) == len(jobs)


@pytest.mark.parametrize("backfill", ["none", "easy"])
def test_delayed_jobs_start_after_the_most_delays(backfill: str) -> None:
    env = SchedulingEnv(PLATFORM, workload(9, 120), "accept", "proposal", backfill=backfill, max_delays=3)
    asked: dict[int, list[float]] = {}

    def choose(env: SchedulingEnv, mask: np.ndarray) -> int:
        job = env.problem.wait_queue.proposed
        asked.setdefault(job, []).append(env.cluster.now)
        if backfill == "none":
            assert job == next(iter(env.cluster.queue))
        return int(mask[1])

    played(env, choose)
    assert all(len(set(times)) == len(times) <= 3 for times in asked.values())
    assert any(len(times) == 3 for times in asked.values())
    assert env.result.metrics["jobs_completed"] == 120


def test_proposal() -> None:
    env = SchedulingEnv(MACHINE, generate(200, seed=8, arrival_factor=0.5), "accept", "proposal", job_policy="sjf")
    observation, info = env.reset(seed=0)
    rng, delayed, over = np.random.default_rng(2), 0, False

    def log_share(seconds: float) -> float:
        return min(1.0, math.log(1 + seconds) / math.log(1 + 7 * 86400))

    while not over:
        cluster, jobs = env.cluster, env.cluster.workload
        job = env.problem.wait_queue.proposed
        others = [each for each in cluster.queue if each != job]
        cores, idle = int(jobs.requested_cores[job]), cluster.n_idle
        rates = {each: 1 / max(1.0, jobs.requested_time[each]) for each in cluster.queue}
        ends = [cluster.starting_time[each] + jobs.requested_time[each] for each in cluster.running]
        delays = env.problem.wait_queue.delays.get(job, 0)
        delayed += delays > 0
        expected = [
            log_share(cluster.now - jobs.submission_time[job]),
            log_share(jobs.requested_time[job]),
            cores / 256,
            idle / 256,
            (idle - cores) / 256,
            delays / (1 + delays),
            math.log(1 + len(others)) / math.log(1001),
            sum(jobs.requested_cores[each] <= idle for each in others) / max(1, len(others)),
            sum(jobs.requested_cores[each] <= idle - cores for each in others) / max(1, len(others)),
            rates[job] / sum(rates.values()),
            log_share(max(0.0, min(ends) - cluster.now)) if ends else 1.0,
        ]
        assert observation == pytest.approx(np.array(expected), abs=2e-6)
        observation, _, over, _, info = env.step(int(rng.choice(np.flatnonzero(info["action_mask"]))))
    assert delayed > 20


def test_an_episode_without_decisions_ends_with_its_first_step() -> None:
    jobs = hdsim.Workload.from_columns(submission_time=[0.0, 5.0], runtime=[10.0, 10.0], requested_cores=[256, 1])
    env = SchedulingEnv(MACHINE, jobs, "backfill", "jobs", objective="makespan")
    _, info = env.reset(seed=0)
    _, _, over, truncated, info = env.step(int(info["action_mask"].argmax()))
    assert (over, truncated) == (True, False)
    assert info["metrics"]["makespan"] == 20.0
