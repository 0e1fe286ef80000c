"""Deep Q-learning on graphs: :mod:`hdsim.agents.dqn` with values from graph convolutions.

After the Kubernetes scheduler that hdsim's `node` action comes from, with its defaults: graph convolutions, then a
value for every node or queued job, or, for other actions, values from the mean over all vertices. The graph of that
scheduler has its control plane and workers; hdsim's has vertices for jobs, nodes, processors and links
(:class:`hdsim.decisions.observations.graph.Graph`). The weights fit every platform and queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from hdsim.agents.dqn import DQNAgent
from hdsim.learning.agent import TensorShapes, layer_widths
from hdsim.learning.training.graphs import GraphAgentMixin, graph_scorer


@dataclass(eq=False, kw_only=True)
class GNNDQNAgent(GraphAgentMixin, DQNAgent):
    """GNN-DQN: learns the value of every node, job or other action from the graph of the cluster.

    Args:
        num_envs: Environments stepped together.
        learning_rate: Of Adam.
        gamma: Discount factor.
        buffer_size: Transitions kept for replay.
        batch_size: Transitions of an update.
        learning_starts: Steps before the first update.
        train_frequency: Steps between two updates.
        target_network_frequency: Steps between two copies of the network to the target network.
        start_e: Share of random actions (epsilon) at first ...
        end_e: ... and in the end;
        decay_e: factor it shrinks by at every step.
        heuristic_exploration: Share of random actions that take a least loaded node instead, where nodes are chosen.
        replay_from: What fills the replay buffer before anything else: a classic policy that decides in the first
            episodes, or the run directory of a recording, such as one of the default scheduler.
        replay_steps: Steps that are taken from it; neither updates nor epsilon begin before.
        double: Choose the next action by the network and value it by the target network.
        n_step: Rewards summed up before the value of what follows is asked for.
        max_grad_norm: Gradients are scaled down to this norm.
        convolutions: Widths of the graph convolutions.
        kernel: Widths of the hidden layers of the perceptron that scores every job or node.
        hidden: Widths of the hidden layers of the perceptron behind the mean over the vertices.
    """

    starts_from = ("GNNImitationAgent",)

    convolutions: Sequence[int] = layer_widths(32, 32)
    hidden: Sequence[int] = layer_widths(64)
    kernel: Sequence[int] = layer_widths(32)

    def q_network(self, shapes: TensorShapes) -> nn.Module:
        """See :class:`DQNAgent`."""
        return graph_scorer(shapes, self.decisions, self.convolutions, self.kernel, self.hidden, gain=1.0)
