"""Proximal policy optimisation on graphs: :mod:`hdsim.agents.ppo` with graph convolutions.

Policy and value take a graph of jobs, nodes and clusters (:class:`hdsim.decisions.observations.graph.Graph`), or on
platforms of quantities of jobs, nodes and the control plane.
"""

from __future__ import annotations

from dataclasses import dataclass

from hdsim.agents.ppo import PPOAgent
from hdsim.learning.settings import integer
from hdsim.learning.training.graphs import GraphAgentMixin


@dataclass(eq=False, kw_only=True)
class GNNPPOAgent(GraphAgentMixin, PPOAgent):
    """GNN-PPO: clipped policy updates with policy and value from the graph of the cluster.

    All settings of :class:`PPOAgent` and :class:`GraphAgentMixin`.
    """

    starts_from = ("GNNImitationAgent",)

    num_envs: int = integer(8)
