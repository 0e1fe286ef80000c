"""Advantage actor-critic, the synchronous form of A3C (Mnih et al. 2016), with updates from short rollouts.

It is PPO with one pass over a rollout as one batch, in which no ratio is clipped, and RMSprop (Huang et al., A2C is a
special case of PPO, 2022).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hdsim.learning.settings import integer, layer_widths, number
from hdsim.learning.training.networks import masked_log_softmax
from hdsim.learning.training.on_policy import RolloutAgent


@dataclass(eq=False, kw_only=True)
class ActorCriticAgent(RolloutAgent):
    """A2C: policy gradient with a learned value as its baseline and bootstrap.

    Args:
        num_envs: Environments stepped together.
        num_steps: Steps of each of them in an update.
        learning_rate: Of RMSprop.
        gamma: Discount factor.
        ent_coef: Weight of the entropy bonus.
        vf_coef: Weight of the value's loss.
        normalize_advantage: Whether the advantages of an update are shifted to mean 0 and scaled to deviation 1.
        max_grad_norm: Gradients are scaled down to this norm.
        hidden: Widths of the perceptron's hidden layers.
        kernel: Widths of the kernel's layers.
    """

    #: Returns up to the end of the rollout.
    gae_lambda = 1.0

    num_envs: int = integer(8)
    num_steps: int = integer(16)
    learning_rate: float = number(7e-4)
    gamma: float = number(0.99, high=1)
    ent_coef: float = number(0.01)
    vf_coef: float = number(0.5)
    normalize_advantage: bool = True
    max_grad_norm: float = number(0.5)
    hidden: Sequence[int] = layer_widths(64, 64)
    kernel: Sequence[int] = layer_widths(32, 16, 8)

    def optimizer_of(self, parameters: Iterator[nn.Parameter]) -> torch.optim.Optimizer:
        """RMSprop."""
        return torch.optim.RMSprop(parameters, lr=self.learning_rate, alpha=0.99, eps=1e-5)

    def losses(
        self, observations: Any, masks: Tensor, actions: Tensor, log_probs: Tensor, advantages: Tensor, returns: Tensor
    ) -> dict[str, Tensor]:
        """The loss of a rollout, and its terms."""
        logits, values = self.network(observations)
        all_log_probs = masked_log_softmax(logits, masks)
        taken = all_log_probs.gather(1, actions[:, None]).squeeze(1)
        if self.normalize_advantage:
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        policy_loss = -(advantages * taken).mean()
        value_loss = (returns - values).square().mean()
        entropy = -(all_log_probs.exp() * all_log_probs).sum(dim=1).mean()
        return {
            "loss": policy_loss + self.vf_coef * value_loss - self.ent_coef * entropy,
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
        }
