"""REINFORCE: Monte-Carlo policy gradient with a baseline (Williams 1992; Sutton and Barto 2018, 13.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from hdsim.learning.agent import TensorShapes, Transitions, concatenated, row, stacked
from hdsim.learning.settings import integer, layer_widths, number
from hdsim.learning.training.networks import SoftmaxAgent, descend, score_network


@dataclass(eq=False, kw_only=True)
class ReinforceAgent(SoftmaxAgent):
    """REINFORCE: one update of the policy for every few complete episodes.

    An episode that is cut off counts as complete, without the value of what would follow.

    Args:
        num_envs: Environments stepped together.
        learning_rate: Of Adam.
        gamma: Discount factor.
        episodes_per_update: Complete episodes of an update.
        ent_coef: Weight of the entropy bonus.
        max_grad_norm: Gradients are scaled down to this norm.
        hidden: Widths of the perceptron's hidden layers.
        kernel: Widths of the kernel's layers.
    """

    weights = ("network",)
    progress = ("optimizer", "episodes", "finished")
    starts_from = ("ImitationAgent",)

    num_envs: int = integer(4)
    learning_rate: float = number(1e-3)
    gamma: float = number(0.99, high=1)
    episodes_per_update: int = integer(4)
    ent_coef: float = number(0.0)
    max_grad_norm: float = number(0.5)
    hidden: Sequence[int] = layer_widths(64, 64)
    kernel: Sequence[int] = layer_widths(32, 16, 8)

    def build(self, shapes: TensorShapes) -> None:
        """Creates the policy, Adam and an empty list of episodes."""
        self.any_size = shapes.row_per_action
        self.network = score_network(shapes, self.hidden, self.kernel).to(self.torch_device)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=self.learning_rate)
        self.episodes: list[list[dict[str, Any]]] = [[] for _ in range(self.num_envs)]  # under way
        self.finished: list[dict[str, Any]] = []  # wait for their update

    # ---- learning

    def learn(self, step: Transitions) -> dict[str, float]:
        """Adds a step to every episode; updates after enough complete episodes."""
        for env, episode in enumerate(self.episodes):
            episode.append(
                {
                    "observations": row(step.observations, env),
                    "masks": row(step.masks, env),
                    "actions": step.actions[env],
                    "returns": float(step.rewards[env]),
                }
            )
            if step.terminated[env] or step.truncated[env]:
                self.finished.append(self._complete(episode))
                self.episodes[env] = []
        return self._update() if len(self.finished) >= self.episodes_per_update else {}

    def _complete(self, episode: list[dict[str, Any]]) -> dict[str, Any]:
        """Stacks the steps of an episode, with the discounted return of each step."""
        following = 0.0
        for moment in reversed(episode):
            following = moment["returns"] = moment["returns"] + self.gamma * following
        return {name: stacked([moment[name] for moment in episode]) for name in episode[0]}

    def _update(self) -> dict[str, float]:
        observations = concatenated([episode["observations"] for episode in self.finished])
        masks, actions, returns = (
            np.concatenate([episode[name] for episode in self.finished]) for name in ("masks", "actions", "returns")
        )
        self.finished = []
        # The mean return is the baseline, and the standard deviation the unit: the update does not depend on the scale
        # of the objective.
        advantage = (returns - returns.mean()) / (returns.std() + 1e-8)
        log_probs = self.policy(self.tensors(observations), self.tensors(masks))
        taken = log_probs.gather(1, self.tensors(actions)[:, None]).squeeze(1)
        policy_loss = -(self.tensors(advantage) * taken).mean()
        entropy = -(log_probs.exp() * log_probs).sum(dim=1).mean()
        loss = policy_loss - self.ent_coef * entropy
        descend(loss, self.network, self.optimizer, self.max_grad_norm)
        return {"loss": loss.item(), "policy_loss": policy_loss.item(), "entropy": entropy.item()}
