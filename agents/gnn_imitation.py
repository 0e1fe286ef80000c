"""Imitation on graphs: :mod:`hdsim.agents.imitation` with graph convolutions.

The network is the policy of gnn_actor_critic and the values of gnn_dqn: ``agent.start=CHECKPOINT`` lets one of them
begin where the teacher left off.
"""

from __future__ import annotations

from dataclasses import dataclass

from hdsim.agents.imitation import ImitationAgent
from hdsim.learning.settings import integer
from hdsim.learning.training.graphs import GraphAgentMixin


@dataclass(eq=False, kw_only=True)
class GNNImitationAgent(GraphAgentMixin, ImitationAgent):
    """Behaviour cloning of a policy that sees the graph of the cluster.

    All settings of :class:`ImitationAgent` and :class:`GraphAgentMixin`.
    """

    num_envs: int = integer(4)
