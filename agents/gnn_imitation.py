"""Imitation on graphs: :mod:`hdsim.agents.imitation` with graph convolutions.

The network is the policy of gnn_actor_critic and the values of gnn_dqn: ``agent.start=CHECKPOINT`` lets one of them
begin where the teacher left off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from hdsim.agents.imitation import ImitationAgent
from hdsim.learning.agent import TensorShapes
from hdsim.learning.settings import integer, layer_widths
from hdsim.learning.training.graphs import GraphAgentMixin, graph_scorer


@dataclass(eq=False, kw_only=True)
class GNNImitationAgent(GraphAgentMixin, ImitationAgent):
    """Behaviour cloning of a policy that sees the graph of the cluster.

    All settings of :class:`ImitationAgent` and:

    Args:
        convolutions: Widths of the graph convolutions.
        kernel: Widths of the hidden layers of the perceptron that scores every job or node.
        hidden: Widths of the hidden layers of the perceptron behind the mean over the vertices.
    """

    num_envs: int = integer(4)
    convolutions: Sequence[int] = layer_widths(32, 32)
    hidden: Sequence[int] = layer_widths(64)
    kernel: Sequence[int] = layer_widths(32)

    def scoring_network(self, shapes: TensorShapes) -> nn.Module:
        """See :class:`ImitationAgent`."""
        return graph_scorer(shapes, self.problem, self.convolutions, self.kernel, self.hidden)
