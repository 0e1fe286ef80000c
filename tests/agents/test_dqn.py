"""What deep Q-learning begins with: exploration by a heuristic, and a replay buffer filled from a recording."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training_setups import make_setup

import hdsim
from hdsim.errors import ConfigError

pytestmark = pytest.mark.requires("torch")

#: Pods of one core on eight nodes, most of them busy.
NODES = (
    "platform=eight_nodes",
    "workload.path=even_1000",
    "workload.jobs=300",
    "workload.memory_bandwidth=none",
    "workload.arrival_factor=0.1",
    "env=kubernetes",
    "env.jobs=40",
    "train.validation=0",
    "train.test=1",
    "train.baselines=[]",
    "train.tensorboard=false",
    "train.scale_rewards=false",
    "train.metric=mean_waiting_time",
)
JOBS = (*NODES, "env=rlscheduler", "env.jobs=40", "env.queue_size=8")


def ready(*overrides: str) -> tuple[Any, Any]:
    """An agent and its environments, as training begins with them."""
    from hdsim.learning.training.environments import Environments

    setup = make_setup(*overrides)
    setup.agent.begin_training(setup.environments[0].problem, setup.platform, 1)
    setup.agent.attach(setup.environments, setup.evaluation)
    return setup.agent, Environments(setup.vector(), 1)


def busy(environment: Any) -> np.ndarray:
    """Share of the cores of each node that are busy, those of the job that is being placed among them."""
    partial = environment.problem.wait_queue.partial
    cores = environment.platform.node_cpu_cores
    return 1 - (environment.cluster.cores.node_idle - partial.chosen * partial.cpu_per_chunk) / cores


@pytest.mark.parametrize("agent", ["dqn", "gnn_dqn"])
def test_all_of_exploration_can_take_the_least_loaded_node(agent: str) -> None:
    graph = ("env.observation=graph",) if agent == "gnn_dqn" else ()
    learner, environments = ready(
        *NODES,
        f"agent={agent}",
        "agent.heuristic_exploration=1",
        "agent.decay_e=1",
        "agent.num_envs=2",
        "agent.learning_starts=1000",
        *graph,
    )
    different = 0
    for _ in range(60):
        actions = learner.explore(environments.observations, environments.masks)
        for environment, mask, action in zip(learner.environments, environments.masks, actions, strict=True):
            load = busy(environment)
            assert mask[action] and load[action] == load[mask].min()
            different += len(set(load[mask])) > 1
        learner.learn(environments.step(actions))
    assert different > 60


def test_the_share_of_the_heuristic_is_the_one_asked_for() -> None:
    learner, environments = ready(*NODES, "agent=dqn", "agent.heuristic_exploration=0.5", "agent.decay_e=1")
    (environment,) = learner.environments
    for _ in range(30):
        environments.step(np.array([int(environments.masks[0].argmax())]))
    load, mask = busy(environment), environments.masks[0]
    least = mask & (load == load[mask].min())
    assert 0 < least.sum() < mask.sum()
    draws = 2000
    taken = [learner.explore(environments.observations, environments.masks)[0] for _ in range(draws)]
    # Half of the draws take one of those nodes on purpose, the other half as often as chance has it.
    expected = 0.5 + 0.5 * least.sum() / mask.sum()
    assert np.mean(least[taken]) == pytest.approx(expected, abs=4 * np.sqrt(expected * (1 - expected) / draws))
    learner.epsilon = 0.0
    assert len({int(learner.explore(environments.observations, environments.masks)[0]) for _ in range(20)}) == 1


@pytest.mark.parametrize(("problem", "policy"), [(NODES, "first-spread"), (JOBS, "sjf")])
def test_the_buffer_is_filled_with_what_the_recording_did(problem: tuple[str, ...], policy: str) -> None:
    learner, environments = ready(
        *problem,
        "agent=dqn",
        f"agent.replay_from={policy}",
        "agent.replay_steps=100",
        "agent.buffer_size=300",
        "agent.n_step=1",
    )
    weights = [parameter.clone() for parameter in learner.network.parameters()]
    (environment,) = learner.environments
    seen, actions, rewards, finished = [], [], [], []
    while learner.steps < 100:
        action = learner.explore(environments.observations, environments.masks)
        window = environment.cluster.workload
        seen.append(environments.observations[0])
        step = environments.step(action)
        assert learner.learn(step) == {}
        actions.append(int(action[0]))
        rewards.append(float(step.rewards[0]))
        finished += [(window, metrics) for _, _, metrics in environments.finished]
    assert learner.epsilon == 1.0 and len(learner.buffer) == 100
    assert all((one == other).all() for one, other in zip(weights, learner.network.parameters(), strict=True))
    held = learner.buffer.state_dict()["columns"]
    assert held["actions"].tolist() == actions and any(rewards)
    np.testing.assert_allclose(held["rewards"], rewards, rtol=1e-6)
    np.testing.assert_array_equal(held["observations"], seen)
    # An episode that followed the recording to its end is the replay of the policy.
    assert finished
    fixed = {"job_policy": "sjf", "commit_head": True} if policy == "sjf" else {"core_policy": "spread"}
    for window, metrics in finished:
        replay = hdsim.simulate(environment.platform, window, fixed)
        assert metrics["mean_waiting_time"] == pytest.approx(replay.metrics["mean_waiting_time"])
    learner.learn(environments.step(learner.explore(environments.observations, environments.masks)))
    assert learner.epsilon < 1.0


def test_a_run_directory_fills_the_buffer(tmp_path: Path, hdsim: Any) -> None:
    from hdsim.results.run_directory.reader import read

    done = hdsim(
        "run",
        "platform=eight_nodes",
        "workload.path=even_1000",
        "workload.jobs=300",
        "workload.memory_bandwidth=none",
        "workload.arrival_factor=0.1",
        "agent=classic",
        "agent.core_policy=spread",
        "hydra.run.dir=recorded",
    )
    assert done.returncode == 0, done.stderr
    learner, environments = ready(
        *NODES, "agent=dqn", f"agent.replay_from={tmp_path / 'recorded'}", "agent.replay_steps=50"
    )
    (environment,) = learner.environments
    run = read(tmp_path / "recorded")
    nodes = np.searchsorted(run.platform.node_first_core, run.segments.cores, side="right") - 1
    parts = np.split(nodes, np.cumsum(run.segments.sizes)[:-1])
    of_job = {str(run.jobs["job_id"][job]): part for job, part in zip(run.segments.job, parts, strict=True)}
    agreed = 0
    while learner.steps < 50:
        job = str(environment.cluster.workload.job_id[environment.problem.wait_queue.partial.job])
        actions = learner.explore(environments.observations, environments.masks)
        agreed += actions[0] in of_job[job]
        learner.learn(environments.step(actions))
    assert agreed > 25  # where the node had room


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ((*JOBS, "agent.heuristic_exploration=0.5"), r"agent\.heuristic_exploration: expected 0 with env\.action=job"),
        ((*NODES, "agent.heuristic_exploration=2"), r"agent\.heuristic_exploration: expected a number from 0 to 1"),
        ((*NODES, "agent.replay_from=runs/nothing"), r"runs/nothing: expected a run directory"),
        ((*NODES, "agent.replay_from=frist"), r"agent\.replay_from: expected an agent such as .*did you mean 'first'"),
        (("agent.replay_from=sjf", "workload.jobs=4000"), r"agent\.replay_from: expected one of the actions"),
    ],
)
def test_mistakes_are_explained(overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ready(*overrides, "agent=dqn")
