"""Imitation: behaviour cloning of the recorded decisions of a classic policy (Pomerleau 1989), as a start for others.

The agent follows a recording in the episodes of the training and fits a policy to the recorded decisions. The network
is the policy of ppo, actor_critic and reinforce, and the values of dqn: with ``agent.start=CHECKPOINT`` one of them
starts with the weights of imitation. :mod:`hdsim.agents.gnn_imitation` is the variant for graphs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from hdsim.learning.agent import TensorShapes, Transitions
from hdsim.learning.settings import integer, layer_widths, number
from hdsim.learning.training.buffer import ReplayBuffer
from hdsim.learning.training.demonstrations import Demonstrations
from hdsim.learning.training.networks import SoftmaxAgent, score_network


@dataclass(eq=False, kw_only=True)
class ImitationAgent(SoftmaxAgent):
    """Behaviour cloning: the cross-entropy between the policy and the recorded decisions.

    Args:
        num_envs: Environments stepped together.
        teacher: Classic policy whose replay of each episode is the recording.
        recording: Run directory whose schedule is the recording instead, jobs being selected in the order of their
            recorded starts and placed on their recorded nodes; or a file of ``hdsim kwok record``, whose pods are then
            the jobs of all episodes.
        learning_rate: Of Adam.
        buffer_size: Number of stored decisions.
        batch_size: Decisions of an update.
        train_frequency: Steps between two updates.
        max_grad_norm: Gradients are scaled down to this norm.
        hidden: Widths of the perceptron's hidden layers.
        kernel: Widths of the kernel's layers.
    """

    weights = ("network",)
    progress = ("optimizer", "buffer", "steps")

    num_envs: int = integer(4)
    teacher: str = "sjf"
    recording: str | None = None
    learning_rate: float = number(1e-3)
    buffer_size: int = integer(20_000)
    batch_size: int = integer(256)
    train_frequency: int = integer(8)
    max_grad_norm: float = number(0.5)
    hidden: Sequence[int] = layer_widths(64, 64)
    kernel: Sequence[int] = layer_widths(32, 16, 8)

    def build(self, shapes: TensorShapes) -> None:
        """Creates the policy, Adam and an empty buffer."""
        self.any_size = shapes.row_per_action
        self.network = self.scoring_network(shapes).to(self.torch_device)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=self.learning_rate)
        self.buffer = ReplayBuffer(self.buffer_size, gamma=1.0)
        self.steps = 0

    def scoring_network(self, shapes: TensorShapes) -> nn.Module:
        """Network that scores each action."""
        return score_network(shapes, self.hidden, self.kernel)

    def policy_network(self) -> nn.Module:
        """See :class:`LearningAgent`."""
        return self.network

    # ---- demonstrations

    def attach(self, environments: Sequence[Any], evaluation: Any) -> None:
        """Creates the demonstrations.

        Raises:
            ConfigError: The teacher has no decisions of this kind of action.
        """
        where = "agent.teacher" if self.recording is None else "agent.recording"
        self._demonstrations = Demonstrations(
            environments, evaluation, teacher=self.teacher, recording=self.recording, where=where
        )

    def explore(self, observations: Any, masks: np.ndarray) -> np.ndarray:
        """Returns the recorded actions of the current episodes."""
        return self._demonstrations.actions()

    # ---- learning

    def learn(self, step: Transitions) -> dict[str, float]:
        """Stores the decisions; fits the policy to a batch of them at its interval."""
        self.buffer.add(step)
        before, self.steps = self.steps, self.steps + len(step.actions)
        if self.steps // self.train_frequency == before // self.train_frequency:
            return {}
        batch = self.buffer.sample(self.batch_size, self.rng)
        actions = self.tensors(batch.actions)
        log_probs = self.policy(self.tensors(batch.observations), self.tensors(batch.masks))
        loss = nn.functional.nll_loss(log_probs, actions)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), self.max_grad_norm)
        self.optimizer.step()
        agreement = (log_probs.argmax(dim=1) == actions).float().mean()
        return {"loss": loss.item(), "agreement": agreement.item()}
