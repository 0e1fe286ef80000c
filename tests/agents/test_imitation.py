"""Imitation: a recording is followed to the instant, what it did is learned, and others begin with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training_setups import make_setup, run, train, train_whole_and_cut

import hdsim
from hdsim.decisions import DecisionProblem
from hdsim.errors import ConfigError
from hdsim.results.run_directory.directory import RunDirectory
from hdsim.results.run_directory.reader import read
from hdsim.scheduling.agent import Agent
from hdsim.util.resources import folder

pytestmark = pytest.mark.requires("torch")

PICKING = (
    "platform=homogeneous_256",
    "workload.jobs=1500",
    "env=rlscheduler",
    "env.queue_size=32",
    "env.jobs=64",
    "train.validation=0",
    "train.test=4",
    "train.tensorboard=false",
)


class Follower(Agent):
    """Does what a demonstration does."""

    def __init__(self, problem: DecisionProblem, demonstration: Any) -> None:
        self.problem, self.demonstration = problem, demonstration
        self.core_policy, self.fixed_policy = problem.core_policy, problem.fixed_policy

    def begin(self, cluster: Any) -> None:
        self.problem.begin(cluster)

    def decide(self, cluster: Any) -> None:
        while self.problem.pending():
            self.problem.act(self.demonstration.action(self.problem, cluster))


@pytest.fixture(scope="module")
def platform() -> hdsim.Platform:
    return hdsim.load_platform(folder("platforms") / "eight_nodes.json")


@pytest.fixture(scope="module")
def workload(platform: hdsim.Platform) -> hdsim.Workload:
    rng = np.random.default_rng(5)
    runtime = rng.uniform(10, 200, 150)
    return hdsim.Workload.from_columns(
        submission_time=np.sort(rng.uniform(0, 2000, 150)),
        runtime=runtime,
        requested_time=runtime * 1.5,
        requested_cores=rng.integers(1, platform.n_cores // 3, 150),
        memory=np.zeros(150),
        memory_bandwidth=np.zeros(150),
    )


@pytest.mark.parametrize(
    ("teacher", "settings"),
    [
        ({"job_policy": "sjf"}, {"action": "job", "observation": "jobs", "void": True}),
        ({"job_policy": "f1", "backfill": "easy"}, {"action": "job", "observation": "jobs", "void": True}),
        ({"job_policy": "sjf", "commit_head": True}, {"action": "job", "observation": "jobs", "commit": True}),
        ({"core_policy": "spread"}, {"action": "node", "observation": "nodes", "void": True, "core_policy": "spread"}),
        ({"core_policy": "pack"}, {"action": "node", "observation": "nodes"}),
    ],
)
def test_a_recording_is_followed(
    platform: hdsim.Platform, workload: hdsim.Workload, teacher: dict[str, Any], settings: dict[str, Any]
) -> None:
    from hdsim.learning.training.demonstrations import Demonstration

    recorded = hdsim.simulate(platform, workload, teacher)
    followed = hdsim.simulate(
        platform, workload, Follower(DecisionProblem(**settings), Demonstration.of(recorded, exact=True))
    )
    np.testing.assert_allclose(followed.starting_time, recorded.starting_time)
    if teacher == {"core_policy": "pack"}:  # `node` gives a node all it can take
        nodes = [
            np.searchsorted(platform.node_first_core, result.segments.cores, side="right")
            for result in (recorded, followed)
        ]
        np.testing.assert_array_equal(np.sort(nodes[0]), np.sort(nodes[1]))


@pytest.mark.parametrize("observation", ["nodes", "graph"])
def test_a_recording_of_quantities_is_followed(
    platform: hdsim.Platform, workload: hdsim.Workload, tmp_path: Path, observation: str
) -> None:
    from hdsim.learning.training.demonstrations import Demonstration

    platform = platform.of_kind("quantities")
    jobs = workload.replaced(requested_cores=np.ones(150, np.int64), memory=np.full(150, 500.0))
    recorded = hdsim.simulate(platform, jobs, "least_allocated")
    run_directory = RunDirectory(tmp_path)
    run_directory.start({}, platform, jobs)
    run_directory.finish(recorded)
    for source, exact in ((recorded, True), (read(tmp_path), False)):
        problem = DecisionProblem("node", observation, skip_blocked=True, job_policy="priority")
        followed = hdsim.simulate(platform, jobs, Follower(problem, Demonstration.of(source, exact=exact)))
        assert followed.starting_time.tolist() == recorded.starting_time.tolist()
        assert followed.jobs["allocated_resources"].tolist() == recorded.jobs["allocated_resources"].tolist()


@pytest.fixture(scope="module")
def imitated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The checkpoint of an agent that has watched the shortest job being served first, and its scores."""
    directory = tmp_path_factory.mktemp("imitation")
    setup = make_setup(
        *PICKING,
        "agent=imitation",
        "train.steps=1500",
        "train.baselines=[fcfs]",
        "agent.train_frequency=2",
        "agent.learning_rate=3e-3",
    )
    facts = run(setup, directory)
    return directory, facts


def test_what_was_watched_is_learned(imitated: tuple[Path, dict[str, Any]]) -> None:
    directory, facts = imitated
    progress = np.genfromtxt(directory / "progress.csv", delimiter=",", names=True)
    assert progress["agreement"][-1] > 0.6
    assert facts["means"]["final"] < facts["means"]["fcfs"]


@pytest.mark.parametrize("agent", ["ppo", "actor_critic", "reinforce", "dqn", "evolution"])
def test_others_begin_with_it(imitated: tuple[Path, dict[str, Any]], tmp_path: Path, agent: str) -> None:
    start = imitated[0] / "checkpoints" / "final.safetensors"
    setup = make_setup(*PICKING, f"agent={agent}", f"agent.start={start}", "train.steps=1")
    setup.agent.begin_training(setup.environments[0].problem, setup.platform, 1)
    teacher = hdsim.scheduling.agent.make_agent(
        {"_target_": "hdsim.agents.imitation.ImitationAgent", "checkpoint": str(start)}
    )
    observations, masks = np.random.default_rng(1).random((50, 32, 8), np.float32), np.ones((50, 32), bool)
    chosen, taught = (one.probabilities(observations, masks).argmax(axis=1) for one in (setup.agent, teacher))
    np.testing.assert_array_equal(chosen, taught)


def test_a_start_that_does_not_fit_is_explained(imitated: tuple[Path, dict[str, Any]]) -> None:
    start = imitated[0] / "checkpoints" / "final.safetensors"
    for override, message in (
        (
            "agent.kernel=[8,8]",
            "agent.start: expected a usable checkpoint; .* does not fit: RuntimeError: .*size mismatch",
        ),
        ("agent.start=nothing", "agent.start: expected a checkpoint, found no file 'nothing'"),
    ):
        with pytest.raises(ConfigError, match=message):
            make_setup(*PICKING, "agent=ppo", f"agent.start={start}", override)


def test_a_run_directory_is_a_recording(tmp_path: Path, hdsim: Any) -> None:
    done = hdsim("run", "platform=homogeneous_256", "workload.jobs=1500", "agent=f1", "hydra.run.dir=recorded")
    assert done.returncode == 0, done.stderr
    setup = make_setup(
        *PICKING,
        "agent=imitation",
        f"agent.recording={tmp_path / 'recorded'}",
        "train.steps=600",
        "train.baselines=[fcfs]",
    )
    (tmp_path / "out").mkdir()
    run(setup, tmp_path / "out")
    progress = np.genfromtxt(tmp_path / "out" / "progress.csv", delimiter=",", names=True)
    assert progress["agreement"][-1] > 0.4


def test_a_teacher_must_be_able_to_decide_what_the_task_decides() -> None:
    with pytest.raises(ConfigError, match=r"agent\.teacher: expected one of the actions"):
        make_setup("agent=imitation", "train.validation=0", "workload.jobs=4000")


SEARCHING = (
    *PICKING,
    "agent=imitation",
    "agent.teacher=rollout",
    "agent.search.scenarios=8",
    "agent.search.arrivals=8",
    "agent.iteration=160",
    "agent.train_frequency=2",
    "agent.learning_rate=3e-3",
    "train.test=1",
    "train.baselines=[fcfs]",
)


@pytest.mark.parametrize("backfill", ["none", "easy", "rlscheduler"])
def test_the_decisions_of_a_search_are_followed(backfill: str) -> None:
    from hdsim.agents.imitation import Searcher
    from hdsim.learning.training.demonstrations import Demonstration

    homogeneous = hdsim.load_platform("homogeneous_256")
    jobs = hdsim.load_workload("lublin_4000", homogeneous, memory_bandwidth="none", start=700, jobs=120)
    problem = DecisionProblem("job", "jobs", queue_size=32, commit=True, backfill=backfill)

    def latest(observation: Any, mask: Any) -> int:
        return int(mask.nonzero()[0][-1])

    starts = []
    for advice in (None, latest):
        searcher = Searcher(problem, advice, scenarios=8, arrivals=8)
        replay = hdsim.simulate(homogeneous, jobs, searcher)
        heads = jobs.job_id[searcher.heads].tolist()
        shown = Demonstration(heads, range(len(heads)), [np.zeros(0, np.int64)] * len(heads), exact=False)
        followed = hdsim.simulate(homogeneous, jobs, Follower(DecisionProblem(**problem.settings), shown))
        assert (followed.starting_time == replay.starting_time).all()
        starts.append(replay.starting_time)
    assert (starts[0] != starts[1]).any()


def test_a_search_is_learned_from_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    overrides = (
        *SEARCHING,
        "train.steps=480",
        "train.log_every=96",
        "train.checkpoint_every=120",
        "train.validation=1",
    )
    whole, _, setup = train_whole_and_cut(tmp_path, *overrides, crash_after=400, monkeypatch=monkeypatch)
    shown, fresh = setup.agent.buffer.sample(400, np.random.default_rng(1)), make_setup(*overrides).agent
    before, after = (
        (agent.probabilities(shown.observations, shown.masks).argmax(axis=1) == shown.actions).mean()
        for agent in (fresh, setup.agent)
    )
    assert after > before + 0.05
    student, first = setup.agent.student.state_dict(), fresh.network.state_dict()
    assert any((student[key] != first[key]).any() for key in first)

    train(tmp_path / "once", *overrides, "agent.iteration=0")
    final = "checkpoints/final.safetensors"
    assert (tmp_path / "once" / final).read_bytes() != (whole / final).read_bytes()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["env.commit=false"], r"agent\.teacher: expected env\.action=job and env\.commit=true with a search"),
        (["agent.search.budget_ms=5"], r"agent\.search\.budget_ms: unknown key"),
        (["agent.search.scenarios=0"], r"agent\.search: rollout: expected an integer of at least 1, got 0"),
        (
            ["agent.teacher=sjf"],
            r"agent\.iteration: expected 0 without a search as teacher, agent\.teacher=rollout, got 160",
        ),
    ],
)
def test_a_search_that_cannot_teach_is_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_setup(*SEARCHING, *overrides)
