"""Graph networks: batches as single graphs, what is not there changes nothing, and weights fit other platforms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hdsim
from hdsim.decisions import DecisionProblem
from hdsim.errors import ConfigError
from hdsim.util.resources import folder

pytestmark = pytest.mark.requires("torch")

SETTINGS: dict[str, dict[str, Any]] = {
    "node": {"action": "node", "observation": "graph", "queue_size": 6, "void": True},
    "job": {"action": "job", "observation": "graph", "queue_size": 6},
    "policy_pair": {"action": "policy_pair", "observation": "graph", "queue_size": 6},
}


def agent_for(name: str, problem: DecisionProblem, platform: hdsim.Platform) -> Any:
    from hdsim.agents.gnn_actor_critic import GNNActorCriticAgent
    from hdsim.agents.gnn_dqn import GNNDQNAgent

    agent = {"dqn": GNNDQNAgent, "actor_critic": GNNActorCriticAgent}[name]()
    agent.begin_training(problem, platform, 3)
    return agent


class Recorder(hdsim.Agent):
    """Keeps every observation of an agent."""

    def __init__(self, agent: Any) -> None:
        self.agent, self.seen = agent, []
        self.core_policy, self.fixed_policy = agent.core_policy, agent.fixed_policy

    def begin(self, cluster: Any) -> None:
        self.agent.begin(cluster)

    def decide(self, cluster: Any) -> None:
        problem = self.agent.problem
        while problem.pending():
            observation, mask = problem.observe(), problem.mask().copy()
            self.seen.append((observation, mask))
            problem.act(self.agent.choose(observation, mask))


def scores(agent: Any, graphs: dict[str, np.ndarray]) -> np.ndarray:
    """What the network gives every action."""
    import torch

    with torch.no_grad():
        return np.asarray(agent.policy_network()(agent.tensors(graphs)))


@pytest.mark.parametrize("of", ["cores", "quantities"])
@pytest.mark.parametrize("kind", SETTINGS)
@pytest.mark.parametrize("name", ["dqn", "actor_critic"])
def test_weights_fit_every_platform_and_batches_are_single_graphs(name: str, kind: str, of: str) -> None:
    import torch

    torch.set_num_threads(1)
    small, large = (hdsim.Platform.homogeneous(*size).of_kind(of) for size in ((3, 4), (9, 8)))
    agent = agent_for(name, DecisionProblem(**SETTINGS[kind]), small)
    workload = hdsim.load_workload(
        folder("workloads") / "even_1000.swf", platform=large, jobs=40, arrival_factor=0.2, memory_bandwidth="none"
    )
    recorder = Recorder(agent)
    assert hdsim.simulate(large, workload, recorder, check=True).metrics["jobs_completed"] == 40
    some = recorder.seen[:: max(1, len(recorder.seen) // 7)]
    batch = {key: np.stack([observation[key] for observation, _ in some]) for key in some[0][0]}
    probabilities = agent.probabilities(batch, np.stack([mask for _, mask in some]))
    assert all((row[~mask] == 0).all() for (_, mask), row in zip(some, probabilities, strict=True))
    for (observation, _), row in zip(some, scores(agent, batch), strict=True):
        (alone,) = scores(agent, {key: array[None] for key, array in observation.items()})
        np.testing.assert_allclose(alone, row, atol=1e-5)
        # What vertices that are not there look like, and where edges lead that are not there, does not matter.
        changed = {key: array[None].copy() for key, array in observation.items()}
        changed["x"][changed["node_mask"] == 0] = 0.7
        changed["edge_index"][:, :, observation["edge_mask"] == 0] = 0
        np.testing.assert_allclose(scores(agent, changed)[0], row, atol=1e-5)


@pytest.mark.parametrize("name", ["dqn", "actor_critic"])
def test_sums_over_stars_are_graph_convolutions(name: str) -> None:
    from hdsim.learning.training.graphs import GraphNetwork

    platform = hdsim.Platform.homogeneous(5, 4, memory_gb_per_node=8.0).of_kind("quantities")
    agent = agent_for(name, DecisionProblem(**SETTINGS["node"]), platform)
    workload = hdsim.load_workload(
        folder("workloads") / "even_1000.swf", platform=platform, jobs=40, arrival_factor=0.2, memory_bandwidth="none"
    )
    recorder = Recorder(agent)
    hdsim.simulate(platform, workload, recorder)
    batch = {key: np.stack([observation[key] for observation, _ in recorder.seen]) for key in recorder.seen[0][0]}
    assert (batch["node_mask"] == 0).any()
    sums = scores(agent, batch)
    for part in agent.policy_network().modules():
        if isinstance(part, GraphNetwork):
            assert part.star
            part.star = False
    np.testing.assert_allclose(scores(agent, batch), sums, atol=2e-5)


def test_other_observations_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"env\.observation: expected graph for an agent with a graph network"):
        agent_for("dqn", DecisionProblem("node", "nodes"), hdsim.Platform.homogeneous(3, 4))
