"""Advantage actor-critic on graphs: :mod:`hdsim.agents.actor_critic` with graph convolutions.

Policy and value take a graph of jobs, nodes, processors and links (:class:`hdsim.decisions.observations.graph.Graph`),
or on platforms of quantities of jobs, nodes and the control plane.
The policy scores every node or queued job, or, for other actions, the mean over all vertices. The value is computed
from that mean, as in the Kubernetes scheduler that hdsim's `node` action comes from. The weights fit every platform and
queue.
"""

from __future__ import annotations

from dataclasses import dataclass

from hdsim.agents.actor_critic import ActorCriticAgent
from hdsim.learning.settings import integer
from hdsim.learning.training.graphs import GraphAgentMixin


@dataclass(eq=False, kw_only=True)
class GNNActorCriticAgent(GraphAgentMixin, ActorCriticAgent):
    """GNN-A2C: policy gradient with a learned value, both from the graph of the cluster.

    All settings of :class:`ActorCriticAgent` and :class:`GraphAgentMixin`.
    """

    starts_from = ("GNNImitationAgent",)

    num_envs: int = integer(8)
