"""Advantage actor-critic on graphs: :mod:`hdsim.agents.actor_critic` with graph convolutions.

Policy and value take a graph of jobs, nodes, processors and links (:class:`hdsim.decisions.observations.graph.Graph`),
or on platforms of quantities of jobs, nodes and the control plane.
The policy scores every node or queued job, or, for other actions, the mean over all vertices. The value is computed
from that mean, as in the Kubernetes scheduler that hdsim's `node` action comes from. The weights fit every platform and
queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hdsim.agents.actor_critic import ActorCriticAgent
from hdsim.learning.agent import TensorShapes
from hdsim.learning.settings import integer, layer_widths
from hdsim.learning.training.graphs import GraphAgentMixin, graph_scorer, graph_valuer
from hdsim.learning.training.networks import ActorCritic


@dataclass(eq=False, kw_only=True)
class GNNActorCriticAgent(GraphAgentMixin, ActorCriticAgent):
    """GNN-A2C: policy gradient with a learned value, both from the graph of the cluster.

    All settings of :class:`ActorCriticAgent` and:

    Args:
        convolutions: Widths of the graph convolutions.
        kernel: Widths of the hidden layers of the perceptron that scores every job or node.
        hidden: Widths of the hidden layers of the perceptron behind the mean over the vertices.
    """

    starts_from = ("GNNImitationAgent",)

    num_envs: int = integer(8)
    convolutions: Sequence[int] = layer_widths(32, 32)
    hidden: Sequence[int] = layer_widths(64)
    kernel: Sequence[int] = layer_widths(32)

    def networks(self, shapes: TensorShapes) -> ActorCritic:
        """See :class:`ActorCriticAgent`."""
        return ActorCritic(
            graph_scorer(shapes, self.problem, self.convolutions, self.kernel, self.hidden),
            graph_valuer(shapes, self.convolutions, self.hidden),
        )
