"""Graph networks: batches as single graphs, what is not there changes nothing, and weights fit other platforms."""

from __future__ import annotations

import copy
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
    from hdsim.agents.gnn_ppo import GNNPPOAgent

    agent = {"dqn": GNNDQNAgent, "actor_critic": GNNActorCriticAgent, "ppo": GNNPPOAgent}[name]()
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
@pytest.mark.parametrize("name", ["dqn", "actor_critic", "ppo"])
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
        if "x" in observation:
            changed = {key: array[None].copy() for key, array in observation.items()}
            changed["x"][changed["node_mask"] == 0] = 0.7
            changed["edge_index"][:, :, observation["edge_mask"] == 0] = 0
            np.testing.assert_allclose(scores(agent, changed)[0], row, atol=1e-5)


def recorded(agent: Any, platform: hdsim.Platform) -> dict[str, np.ndarray]:
    """A batch of the observations of a replay."""
    workload = hdsim.load_workload(
        folder("workloads") / "even_1000.swf", platform=platform, jobs=40, arrival_factor=0.2, memory_bandwidth=[1, 9]
    )
    recorder = Recorder(agent)
    hdsim.simulate(platform, workload, recorder)
    return {key: np.stack([observation[key] for observation, _ in recorder.seen]) for key in recorder.seen[0][0]}


def graphs_of(batch: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    return [dict(zip(batch, arrays, strict=True)) for arrays in zip(*batch.values(), strict=True)]


def two_clusters() -> hdsim.Platform:
    """Three nodes of a cluster and two of another."""
    node = {"processors": [{"type": "p", "number": 1}], "memory": {"capacity": 8}}
    clusters = [
        {"id": name, "nodes": [{"type": "n", "number": count}], "local_links": {"type": "e", "latency": "5us"}}
        for name, count in (("a", 3), ("b", 2))
    ]
    processor = {"cores": 4, "clock_rate": 2.5, "dpflops_per_cycle": 4, "mem_bw": 20, "power": 80}
    types = {"network": {"e": {"bandwidth": "10Gbps"}}, "node": {"n": node}, "processor": {"p": processor}}
    links = {"type": "e", "latency": "20us"}
    return hdsim.Platform.from_dict({"name": "two", "clusters": clusters, "global_links": links, "types": types})


@pytest.mark.parametrize("aggregation", ["mean", "attention"])
def test_layers_are_heterogeneous_convolutions(aggregation: str) -> None:
    """Products of matrices against the layers of PyTorch Geometric, on lists of edges from its loader."""
    import torch
    from torch_geometric.loader import DataLoader
    from torch_geometric.nn import SAGEConv

    from hdsim.agents.gnn_ppo import GNNPPOAgent
    from hdsim.decisions.observations.graph import EDGE_TYPES, VERTEX_TYPES, to_hetero_data

    platform = two_clusters()
    agent = GNNPPOAgent(convolutions=[7, 5], aggregation=aggregation)
    agent.begin_training(DecisionProblem(**SETTINGS["node"]), platform, 3)
    batch = recorded(agent, platform)
    network = agent.policy_network()
    batch["fits"] *= np.random.default_rng(5).random(batch["fits"].shape) < 0.4
    assert (batch["fits"].sum(axis=1) == 0).any()  # nodes without edges to jobs
    (graphs,) = DataLoader([to_hetero_data(graph) for graph in graphs_of(batch)], batch_size=len(batch["fits"]))
    seen = {kind: [graphs[kind].x] for kind in VERTEX_TYPES}
    for maps in network.layers:
        present = {kind: steps[-1] for kind, steps in seen.items()}
        received = {kind: maps[kind](present[kind]) for kind in VERTEX_TYPES}
        for source, relation, target in EDGE_TYPES:
            edges = graphs[source, relation, target].edge_index
            if aggregation == "attention" and relation in ("fits", "takes"):
                received[target] = received[target] + attended(maps, present, (source, relation, target), edges)
                continue
            convolution = SAGEConv((present[source].shape[1], 1), maps[relation].out_features, root_weight=False)
            convolution.lin_l.weight.data, convolution.lin_l.bias.data = (
                maps[relation].weight,
                torch.zeros(len(maps[relation].weight)),
            )
            received[target] = received[target] + convolution((present[source], present[target]), edges)
        for kind, sums in received.items():
            seen[kind].append(sums.relu())
    expected = network.score(torch.cat(seen["node"], dim=1)).view(len(batch["fits"]), -1)
    with torch.no_grad():
        found = network(agent.tensors(batch))[:, :-1]
    np.testing.assert_allclose(found, expected.detach(), atol=2e-6)


def test_nodes_that_are_alike_are_one_vertex() -> None:
    from hdsim.learning.training.graphs import merged

    rng, batch, size = np.random.default_rng(1), 6, 50
    graphs = {
        "job": np.zeros((batch, 5, 8), np.float32),
        "node": np.zeros((batch, size, 22), np.float32),
        "cluster": np.zeros((batch, 2, 3), np.float32),
        "fits": np.zeros((batch, 5, size), np.int8),
        "node_cluster": np.tile(rng.integers(2, size=size), (batch, 1)),
    }
    graphs["node"][:, :, [0, 21]] = rng.integers(3, size=(batch, size, 2)) / 3
    for b in range(batch):
        graphs["job"][b, : b % 4, -1] = 1
        graphs["fits"][b, : b % 4] = rng.random((b % 4, size)) < 0.7
    found = merged(graphs)
    assert found["to_nodes"].shape[2] == 2 + 3
    belong = np.concatenate([graphs["node_cluster"][:, None] == np.arange(2)[:, None], graphs["fits"][:, :3]], axis=1)
    for b in range(batch):
        vertex, nodes = found["vertex"][b], np.concatenate([graphs["node"][b].T, belong[b]]).T
        alike = (nodes[:, None] == nodes).all(axis=2)
        np.testing.assert_array_equal(vertex[:, None] == vertex, alike)
        np.testing.assert_array_equal(found["node"][b][vertex], graphs["node"][b])
        copies = np.bincount(vertex, minlength=found["node"].shape[1])
        np.testing.assert_allclose(found["node_share"][b, 0], copies / size)
        # What a hub receives from each node and sends to it.
        sent = found["from_nodes"][b][:, vertex] / copies[vertex]
        np.testing.assert_allclose(sent, belong[b] / np.maximum(belong[b].sum(axis=1), 1)[:, None], rtol=1e-6)
        fits = belong[b, 2:]
        np.testing.assert_allclose(found["to_nodes"][b][vertex, 2:].T, fits / np.maximum(fits.sum(axis=0), 1))
        np.testing.assert_array_equal(found["to_nodes"][b][vertex, :2].T, belong[b, :2])


@pytest.mark.parametrize("name", ["job", "node", "policy_pair"])
@pytest.mark.parametrize("aggregation", ["mean", "attention"])
def test_every_weight_of_a_relational_network_has_a_gradient(aggregation: str, name: str) -> None:
    import torch

    from hdsim.agents.gnn_ppo import GNNPPOAgent

    platform, task = two_clusters(), SETTINGS[name] | {"void": True}
    agent = GNNPPOAgent(convolutions=[7, 5], aggregation=aggregation)
    agent.begin_training(DecisionProblem(**task), platform, 3)
    graphs = agent.tensors(recorded(agent, platform))
    for network in (agent.network.actor, agent.network.critic):
        gradients = torch.autograd.grad(network(graphs).square().sum(), list(network.parameters()))
        for (key, _), gradient in zip(network.named_parameters(), gradients, strict=True):
            assert gradient.any(), key


@pytest.mark.parametrize("name", ["job", "node", "policy_pair"])
def test_few_graphs_have_the_outputs_of_the_present_weights(name: str) -> None:
    """Without gradients they go through NumPy, with gradients through PyTorch."""
    import torch

    from hdsim.agents.gnn_ppo import GNNPPOAgent

    agent = GNNPPOAgent(convolutions=[7, 5])
    platform, task = two_clusters(), SETTINGS[name] | {"void": name != "policy_pair"}
    agent.begin_training(DecisionProblem(**task), platform, 3)
    graphs = agent.tensors({key: array[::9] for key, array in recorded(agent, platform).items()})
    before = None
    for network in (agent.network.actor, agent.network.critic, copy.deepcopy(agent.network.actor)):
        for _ in range(2):
            with torch.no_grad():
                found = network(graphs)
            expected = network(graphs).detach()
            np.testing.assert_allclose(found, expected, atol=1e-6)
            assert before is None or not np.allclose(found.mean(), before, atol=1e-6)
            before = found.mean()
            with torch.no_grad():
                for parameter in network.parameters():
                    parameter.mul_(1.5)


def attended(maps: Any, present: dict[str, Any], kind: tuple[str, str, str], edges: Any) -> Any:
    """(V, F) what each target receives: the softmax of the dot products with its neighbours, edge by edge."""
    from torch_geometric.utils import scatter, softmax

    source, relation, target = kind
    sent, (start, end) = maps[relation](present[source]), edges
    keys = {name: maps[f"{name}_key"](present[name]) for name in ("job", "node")}
    alike = (keys[source][start] * keys[target][end]).sum(dim=1) / sent.shape[1] ** 0.5
    weights = softmax(alike, end, num_nodes=len(present[target]))
    return scatter(weights[:, None] * sent[start], end, dim_size=len(present[target]))


@pytest.mark.parametrize("name", ["dqn", "actor_critic"])
def test_sums_over_stars_are_graph_convolutions(name: str) -> None:
    import torch

    from hdsim.decisions.observations.graph import to_data

    platform = hdsim.Platform.homogeneous(5, 4, memory_gb_per_node=8.0).of_kind("quantities")
    agent = agent_for(name, DecisionProblem(**SETTINGS["node"]), platform)
    batch = recorded(agent, platform)
    assert (batch["node_mask"] == 0).any()
    network, found = agent.policy_network(), scores(agent, batch)
    for graph, row in zip(graphs_of(batch), found, strict=True):
        data = to_data(graph)
        seen = [torch.cat([data.x, torch.nn.functional.one_hot(data.node_type, 4)], dim=1)]
        for convolution in network.convolutions:
            seen.append(convolution(seen[-1], data.edge_index).relu())
        embedded = torch.cat(seen, dim=1)
        expected = [*network.score(embedded[data.node_type == 1]).squeeze(1), network.pooled(embedded.mean(dim=0))[0]]
        np.testing.assert_allclose(row, torch.stack(expected).detach(), atol=2e-5)


def test_other_observations_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"env\.observation: expected graph for an agent with a graph network"):
        agent_for("dqn", DecisionProblem("node", "nodes"), hdsim.Platform.homogeneous(3, 4))
