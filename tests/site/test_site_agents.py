"""Agents in the passes of a site's scheduler: what they may start, what they see, and what a training is worth."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_site_replay import make_jobs, make_site

from hdsim.agents.slurm import SlurmAgent
from hdsim.cli import main
from hdsim.cluster import invariants
from hdsim.decisions.observations.site import FEATURES
from hdsim.errors import ConfigError
from hdsim.platform.model import Platform
from hdsim.results.result import Result
from hdsim.simulation.simulation import simulate
from hdsim.site.model import Site
from hdsim.site.platform import platform_document
from hdsim.workload.model import Workload

KINDS = [("site_job", "site_jobs"), ("site_priority", "site_queue"), ("site_priority", "site_jobs")]


def environment(site: Site, jobs: Workload, action: str = "site_job", **settings: Any) -> Any:
    """An environment whose episodes are all jobs."""
    from hdsim.envs.scheduling import SchedulingEnv

    observation = settings.pop("observation", "site_jobs" if action == "site_job" else "site_queue")
    settings = {"objective": "avg_bounded_slowdown", "reward": "integrated", **settings}
    return SchedulingEnv(Platform.from_dict(platform_document(site), "test"), jobs, action, observation, **settings)


def busy_site() -> tuple[Site, Workload]:
    """A site with every kind of rule that keeps jobs from starting, and jobs that meet them."""
    site = make_site(
        qos={"priority": 10, "limits": {"max_jobs": 2}},
        account_limits={"grp_tres": {"cpu": 7}},
        licenses={"matlab": 1},
        priority={"type": "multifactor", "weight_age": 100, "weight_qos": 50, "max_age": 3600},
        partitions={"main": {"nodes": "ALL", "default": True}, "one": {"nodes": "n1", "max_time": 500}},
        reservations={"r": {"start": 300.0, "end": 600.0, "nodes": "n2", "users": ["u2"]}},
    )
    rng = np.random.default_rng(5)
    jobs: list[dict[str, Any]] = []
    for number in range(60):
        job: dict[str, Any] = {
            "id": str(number + 1),
            "at": float(rng.integers(0, 1500)),
            "runtime": float(rng.integers(10, 200)),
            "limit": float(rng.integers(200, 400)),
            "cpus": int(rng.choice([1, 2, 4])),
            "user": f"u{rng.integers(1, 3)}",
            "partition": "one" if rng.random() < 0.3 else "main",
            "licenses": "matlab:1" if rng.random() < 0.3 else None,
            "dependency": None,
        }
        jobs.append(job)
    jobs.sort(key=lambda job: job["at"])
    for before, job in zip(jobs[:-5:7], jobs[5::7], strict=False):
        job["dependency"] = f"afterany:{before['id']}"
    return site, make_jobs(site, jobs)


def play(env: Any, seed: int, watch: Any = None) -> tuple[list[bytes], Result]:
    """Plays an episode with random legal actions; returns what was seen and the replay."""
    rng = np.random.default_rng(seed)
    observation, info = env.reset(seed=1)
    seen, over = [observation.tobytes()], False
    while not over:
        if watch is not None:
            watch(env, observation, info["action_mask"])
        invariants.check(env.cluster)
        observation, _, over, _, info = env.step(int(rng.choice(np.flatnonzero(info["action_mask"]))))
        assert env.observation_space.contains(observation)
        assert not info["invalid_action"]
        seen.append(observation.tobytes())
    return seen, env.result


@pytest.mark.parametrize(("action", "observation"), KINDS)
def test_gymnasium_finds_no_fault(action: str, observation: str) -> None:
    from gymnasium.utils.env_checker import check_env

    env = environment(*busy_site(), action, observation=observation)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*(render|spec).*")
        check_env(env)


@pytest.mark.parametrize(("action", "observation"), KINDS)
def test_equal_seeds_give_equal_episodes(action: str, observation: str) -> None:
    site, jobs = busy_site()
    one, other = (play(environment(site, jobs, action, observation=observation), 3) for _ in range(2))
    assert one[0] == other[0] and len(one[0]) > 5
    np.testing.assert_array_equal(one[1].starting_time, other[1].starting_time)
    different = play(environment(site, jobs, action, observation=observation), 4)
    assert different[0] != one[0]


def test_jobs_that_may_start_are_those_that_the_main_loop_starts() -> None:
    site, jobs = busy_site()
    reasons: set[str] = set()

    def watch(env: Any, observation: Any, mask: Any) -> None:
        own = env.problem.wait_queue.site
        offered, may_start = own.offered
        now = own.begin + env.cluster.now
        assert mask[: len(offered)].tolist() == may_start.tolist() and not mask[len(offered) :].any()
        # Jobs that may not start: the main loop does not start them either, and says why.
        for job in offered[~may_start].tolist():
            assert own.scheduler.main(now, only=job) == []
            (reason,) = own.scheduler.reasons_of([job])
            assert reason not in ("None", "Priority"), reason
            reasons.add(reason)
        # Jobs whose dependencies are not fulfilled are not pending.
        started = {job for job in range(len(jobs)) if env.cluster.starting_time[job] == env.cluster.starting_time[job]}
        for job in offered.tolist():
            dependency = jobs.further["dependency"][job]
            if dependency:
                other = jobs.job_id.tolist().index(dependency.split(":")[1])
                assert other in started and other not in env.cluster.running
        row = FEATURES.index("may_start")
        assert observation[: len(offered), row].tolist() == may_start.tolist()

    _, result = play(environment(site, jobs), 0, watch)
    assert {"Resources", "Licenses", "QOSMaxJobsPerUserLimit", "AssocGrpCpuLimit", "ReqNodeNotAvail"} <= reasons
    assert result.metrics["jobs_completed"] == len(jobs)
    begin, end = result.starting_time, result.finish_time
    for moment in begin.tolist():
        runs = (begin <= moment) & (end > moment)
        assert np.bincount(jobs.user[runs]).max() <= 2
        assert jobs.requested_cores[runs].sum() <= 7
        assert sum(jobs.further["licenses"][job] is not None for job in np.flatnonzero(runs)) <= 1
    on_clock = begin + jobs.original_submission_time[0]
    inside = (on_clock < 600.0) & (on_clock + jobs.requested_time > 300.0)
    reserved = [name == "n2" or "n[1-2]" in name for name in result.columns["nodes"]]
    assert not (inside & np.array(reserved)).any()


def test_the_ranking_of_the_site_is_the_schedule_of_the_site() -> None:
    site, jobs = busy_site()
    env = environment(site, jobs, "site_priority", rankings=["site", "small"], every=60.0)
    env.reset(seed=1)
    over = False
    while not over:
        _, _, over, _, _ = env.step(0)
    expected = simulate(env.platform, jobs, SlurmAgent(site))
    np.testing.assert_array_equal(env.result.starting_time, expected.starting_time)
    assert list(env.result.columns["reason"]) == list(expected.columns["reason"])


def test_priorities_decide_which_job_is_first() -> None:
    site = make_site(priority={"type": "multifactor", "weight_age": 100, "max_age": 3600})
    asked = [
        {"cpus": 8, "runtime": 100.0},
        {"at": 1.0, "cpus": 8, "limit": 3000.0},
        {"at": 2.0, "cpus": 8, "limit": 300.0},
    ]
    for ranking, order in (("site", [0, 1, 2]), ("short", [0, 2, 1])):
        env = environment(site, make_jobs(site, [dict(job) for job in asked]), "site_priority", rankings=[ranking])
        env.reset(seed=1)
        over = False
        while not over:
            _, _, over, _, _ = env.step(0)
        assert np.argsort(env.result.starting_time).tolist() == order


def test_rankings_without_weight_are_masked() -> None:
    site, jobs = busy_site()
    env = environment(site, jobs, "site_priority", rankings=["site", "age", "fair_share", "short"])
    _, info = env.reset(seed=1)
    assert info["action_mask"].tolist() == [True, True, False, True]


def test_jobs_wait_for_the_next_pass_after_void() -> None:
    site = make_site()
    env = environment(site, make_jobs(site, [{"cpus": 4}, {"at": 50.0, "cpus": 4}]), void=True, queue_size=4)
    _, info = env.reset(seed=1)
    assert info["action_mask"].tolist() == [True, False, False, False, True]
    _, _, _, _, info = env.step(4)
    assert env.cluster.now == 50.0
    assert info["action_mask"].tolist() == [True, True, False, False, False]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"action": "site_job", "observation": "jobs"}, "expected site_jobs or site_queue with action site_job"),
        ({"action": "job"}, "expected site_job or site_priority with observation site_queue"),
        ({"action": "site_priority", "rankings": ["oldest"]}, r"env\.rankings: expected one of site, age"),
        ({"action": "site_priority", "every": 0}, r"env\.every: expected"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        environment(*busy_site(), **settings)


def test_jobs_of_no_site_and_preemption_are_refused() -> None:
    site, _ = busy_site()
    with pytest.raises(ConfigError, match=r"env\.action: expected jobs of a site"):
        environment(site, Workload.from_columns(submission_time=[0], runtime=[1], requested_cores=[1])).reset()
    other = make_site(preemption={"type": "qos", "mode": "CANCEL"}, qos={"lo": {}, "hi": {"preempt": ["lo"]}})
    with pytest.raises(ConfigError, match="expected a site without preemption, got PreemptType=qos"):
        environment(other, make_jobs(other, [{"qos": "lo"}])).reset()


# Trainings


def write_log(folder: Path, jobs: int, days: int) -> None:
    """Writes slurm.conf and sacct.txt of a small site whose jobs come in bursts, short and long ones together."""
    rng = np.random.default_rng(11)
    folder.mkdir()
    (folder / "slurm.conf").write_text(
        "ClusterName=lab\nSelectTypeParameters=CR_Core\nSchedulerParameters=bf_interval=30\n"
        "PriorityType=priority/basic\nNodeName=n[1-2] CPUs=4\nPartitionName=main Nodes=ALL Default=YES MaxTime=1-0\n"
    )
    rows = ["JobID|User|Account|Partition|Submit|Start|End|ElapsedRaw|TimelimitRaw|State|ReqTRES|AllocTRES|NodeList"]
    begin = np.datetime64("2026-03-02T00:00:00")
    for number in range(jobs):
        at = begin + np.timedelta64(int(days * 86_400 * (number // 20) / (jobs / 20)) + number % 20, "s")
        minutes = int(rng.choice([1, 2, 60, 120]))
        start, end = at + np.timedelta64(5, "s"), at + np.timedelta64(5 + 60 * minutes, "s")
        tres = f"cpu={rng.choice([1, 4])},node=1"
        times = f"{at}|{start}|{end}|{60 * minutes}|{minutes + 1}"
        rows.append(f"{number + 1}|u{number % 3}|a|main|{times}|COMPLETED|{tres}|{tres}|n1")
    (folder / "sacct.txt").write_text("\n".join(rows) + "\n")


def command(*words: str) -> None:
    """Runs a command of hdsim that succeeds."""
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    assert ended.value.code in (0, None)


@pytest.mark.parametrize(
    ("command_of", "more", "kept"),
    [
        ("train", [], True),
        ("train", ["env=slurm"], True),
        ("train", ["env=rlscheduler"], False),
        ("config", [], True),
        ("config", ["agent=easy"], False),
        ("config", ["agent=ppo", "agent.checkpoint=best.safetensors"], True),
    ],
)
def test_cancelled_jobs_are_for_those_that_take_them_out_of_the_queue(
    command_of: str, more: list[str], kept: bool
) -> None:
    from hdsim.config.composer import Composer

    given = Composer(config_name=command_of).overrides(["site=lab", *more])
    assert ("workload.status=queued" in given) == kept


@pytest.mark.requires("torch")
def test_a_trained_agent_is_better_than_a_random_one_on_held_out_weeks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from hdsim.agents.random import RandomAgent
    from hdsim.config.composer import Composer
    from hdsim.runs.trainings import build_training

    monkeypatch.chdir(tmp_path)
    write_log(tmp_path / "dump", 400, 42)
    command("site", "import", "dump", "-o", "lab")
    overrides = (
        *("site=lab", "agent=ppo", "train.validation=1", "train.test=2", "env.jobs=40", "env.queue_size=32"),
        *("agent.gamma=0.9", "agent.gae_lambda=0.8", "agent.learning_rate=3e-3", "agent.num_envs=4"),
        *("agent.num_steps=64", "train.steps=4096", "train.evaluate_every=2048", "train.tensorboard=false"),
    )
    composer = Composer(config_name="train")
    task = build_training(composer.compose(composer.overrides(overrides)))
    first, second = (float(part.original_submission_time[0]) for part in task.test)
    assert 6 < (second - first) / 86_400 < 8, "windows are weeks"
    assert sum(len(part) for part in task.test) == pytest.approx(400 * 2 / 6, abs=40)
    capsys.readouterr()
    command("train", *overrides, "hydra.run.dir=run", "-q")
    words = [line.split() for line in capsys.readouterr().out.splitlines()]
    table = {line[0]: float(line[1]) for line in words if line and line[0] in ("best", "slurm")}
    random = [
        simulate(task.platform, part, RandomAgent(task=task.agent.problem.settings), seed=seed)
        for part in task.test
        for seed in range(3)
    ]
    assert table["best"] < 0.7 * np.mean([result.metrics["mean_bounded_slowdown"] for result in random])
    assert table["best"] < 0.7 * table["slurm"]
    rules = [simulate(task.platform, part, SlurmAgent("lab")).metrics["mean_bounded_slowdown"] for part in task.test]
    assert table["slurm"] == pytest.approx(np.mean(rules), rel=1e-5)
    checkpoint = "agent.checkpoint=run/checkpoints/best.safetensors"
    command("run", "site=lab", "agent=ppo", checkpoint, "hydra.run.dir=replay")
    assert "reason" in (tmp_path / "replay" / "jobs.csv").read_text().splitlines()[0]
