"""A graph network of one's own: messages between jobs and nodes, for clusters of any size.

hdsim train experiment=spread_or_pack env.action=node env.observation=graph '~env.scale' '~env.pairs' \
    agent.path=examples/graph_network.py agent.gamma=0.95 train.steps=3000
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from hdsim.learning.agent import TensorShapes

sys.path.insert(0, str(Path(__file__).parent))
from policy_gradient import PolicyGradient


class Messages(torch.nn.Module):
    """Scores of nodes from two rounds of messages along the edges "job fits node", batched as dense matrices.

    `hdsim.decisions.observations.graph.COLUMNS` names the columns, `to_hetero_data` makes graphs of PyTorch Geometric.
    """

    def __init__(self, job: int, node: int, width: int) -> None:
        super().__init__()
        self.job, self.node = torch.nn.Linear(job, width), torch.nn.Linear(node, width)
        self.to_job, self.to_node = torch.nn.Linear(2 * width, width), torch.nn.Linear(2 * width, width)
        self.score = torch.nn.Linear(width, 1)

    def forward(self, seen: dict[str, torch.Tensor]) -> torch.Tensor:
        """(E, N) scores of (E, J, ...) jobs and (E, N, ...) nodes; rows without a job have no edges."""
        edges = seen["fits"].to(torch.float32)
        jobs, nodes = torch.relu(self.job(seen["job"])), torch.relu(self.node(seen["node"]))
        at_job = edges @ nodes / edges.sum(dim=2, keepdim=True).clamp(min=1)
        jobs = torch.relu(self.to_job(torch.cat([jobs, at_job], dim=2)))
        at_node = edges.transpose(1, 2) @ jobs / edges.sum(dim=1)[..., None].clamp(min=1)
        nodes = torch.relu(self.to_node(torch.cat([nodes, at_node], dim=2)))
        return self.score(nodes)[..., 0]


@dataclass(eq=False, kw_only=True)
class GraphNetwork(PolicyGradient):
    """The policy gradient with a graph network in place of the perceptron; an action is a node."""

    # The weights fit every number of nodes, so a replay may be on another cluster.
    any_size = True

    def make_network(self, shapes: TensorShapes) -> torch.nn.Module:
        """A network for the columns of jobs and nodes, whatever their number."""
        assert isinstance(shapes.observation, dict), "expected env.observation=graph"
        return Messages(shapes.observation["job"][1], shapes.observation["node"][1], self.width)
