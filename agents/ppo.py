"""Proximal policy optimisation with masked actions (Schulman et al. 2017; Huang and Ontañón 2022 for the masks).

If the observation has a row for every job or node to choose from, policy and value are RLScheduler's kernel: one
small network for every row, which fits any number of rows and so any platform and queue (Zhang et al., SC 2020).
Anything else goes through a perceptron.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hdsim.learning.agent import Transitions
from hdsim.learning.settings import integer, layer_widths, number
from hdsim.learning.training.networks import masked_log_softmax
from hdsim.learning.training.on_policy import RolloutAgent


@dataclass(eq=False, kw_only=True)
class PPOAgent(RolloutAgent):
    """PPO: clipped policy updates on rollouts of several environments.

    Args:
        num_envs: Environments stepped together.
        num_steps: Steps of each of them in a rollout.
        learning_rate: Of Adam, for policy and value.
        anneal: Lower the learning rate linearly to 0 over `anneal` steps of all environments, from update to update;
            an update has the rate of the first step of its rollout; 0 = keep it.
        gamma: Discount factor.
        gae_lambda: Of the generalised advantage estimate (Schulman et al. 2016).
        update_epochs: Passes over a rollout.
        num_minibatches: Minibatches of a rollout.
        clip_coef: Maximum relative change of the probability of an action per update.
        ent_coef: Weight of the entropy bonus.
        vf_coef: Weight of the value's loss.
        max_grad_norm: Gradients are scaled down to this norm.
        target_kl: Approximate KL divergence that stops the passes; 0 = never.
        hidden: Widths of the perceptron's hidden layers.
        kernel: Widths of the kernel's layers.
    """

    num_envs: int = integer(8)
    num_steps: int = integer(128)
    learning_rate: float = number(3e-4)
    anneal: int = integer(0, low=0)
    gamma: float = number(0.99, high=1)
    gae_lambda: float = number(0.95, high=1)
    update_epochs: int = integer(4)
    num_minibatches: int = integer(4)
    clip_coef: float = number(0.2)
    ent_coef: float = number(0.0)
    vf_coef: float = number(0.5)
    max_grad_norm: float = number(0.5)
    target_kl: float = number(0.0)
    hidden: Sequence[int] = layer_widths(64, 64)
    kernel: Sequence[int] = layer_widths(32, 16, 8)

    def optimizer_of(self, parameters: Iterator[nn.Parameter]) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(parameters, lr=self.learning_rate, eps=1e-5, fused=True)

    def learn(self, step: Transitions) -> dict[str, float]:
        """Adds a step to the rollout; updates the networks, and their learning rate, when it is full."""
        losses = super().learn(step)
        if self.anneal and not self.filled:
            self.optimizer.param_groups[0]["lr"] = self.learning_rate * max(0.0, 1 - self.steps / self.anneal)
        return losses

    def batches(self, steps: int) -> Iterator[np.ndarray]:
        """Minibatches of several passes, until one has changed the policy too much."""
        for _ in range(self.update_epochs):
            yield from np.array_split(self.rng.permutation(steps), min(self.num_minibatches, steps))
            if self.target_kl and self.latest["approx_kl"] > self.target_kl:
                return

    def losses(
        self, observations: Any, masks: Tensor, actions: Tensor, log_probs: Tensor, advantages: Tensor, returns: Tensor
    ) -> dict[str, Tensor]:
        """The loss of a minibatch of B steps, its terms, and the approximate KL divergence (Schulman's estimate)."""
        logits, values = self.network(observations)
        all_log_probs = masked_log_softmax(logits, masks)
        log_ratio = all_log_probs.gather(1, actions[:, None]).squeeze(1) - log_probs
        ratio = log_ratio.exp()
        gain = (advantages - advantages.mean()) / (advantages.std(correction=0) + 1e-8)
        clipped = ratio.clamp(1 - self.clip_coef, 1 + self.clip_coef)
        policy_loss = -torch.minimum(gain * ratio, gain * clipped).mean()
        value_loss = 0.5 * (values - returns).square().mean()
        with torch.set_grad_enabled(self.ent_coef > 0):
            entropy = -(all_log_probs.softmax(dim=1) * all_log_probs).sum(dim=1).mean()
        return {
            "loss": policy_loss + self.vf_coef * value_loss - self.ent_coef * entropy,
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "approx_kl": (ratio - 1 - log_ratio).mean(),
        }
