"""Deep Q-learning on graphs: :mod:`hdsim.agents.dqn` with values from graph convolutions.

After the Kubernetes scheduler that hdsim's `node` action comes from: graph convolutions, then a
value for every node or queued job, or, for other actions, values from the mean over all vertices. The graph of that
scheduler has its control plane and workers, as has hdsim's on platforms of quantities
(:class:`hdsim.decisions.observations.star.StarGraph`); otherwise hdsim's has vertices for jobs, nodes, processors and
links (:class:`hdsim.decisions.observations.graph.Graph`). The weights fit every platform of one kind, and every queue.
"""

from __future__ import annotations

from dataclasses import dataclass

from hdsim.agents.dqn import DQNAgent
from hdsim.learning.settings import integer
from hdsim.learning.training.graphs import GraphAgentMixin


@dataclass(eq=False, kw_only=True)
class GNNDQNAgent(GraphAgentMixin, DQNAgent):
    """GNN-DQN: learns the value of every node, job or other action from the graph of the cluster.

    All settings of :class:`DQNAgent` and :class:`GraphAgentMixin`; graphs take more memory, so that fewer are kept.
    """

    buffer_size: int = integer(2000)

    starts_from = ("GNNImitationAgent",)
