"""Advantage actor-critic, the synchronous form of A3C (Mnih et al. 2016), with updates from short rollouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from hdsim.learning.agent import TensorShapes, Transitions, map_arrays, stacked
from hdsim.learning.settings import integer, layer_widths, number
from hdsim.learning.training.networks import ActorCritic, SoftmaxAgent, masked_log_softmax


@dataclass(eq=False, kw_only=True)
class ActorCriticAgent(SoftmaxAgent):
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

    weights = ("network",)
    progress = ("optimizer", "rollout")
    starts_from = ("ImitationAgent",)

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

    def build(self, shapes: TensorShapes) -> None:
        """Policy (actor) and value (critic), RMSprop, and an empty rollout."""
        self.any_size = shapes.row_per_action
        self.network = self.networks(shapes).to(self.torch_device)
        self.optimizer = torch.optim.RMSprop(self.network.parameters(), lr=self.learning_rate, alpha=0.99, eps=1e-5)
        self.rollout: list[dict[str, Any]] = []

    def networks(self, shapes: TensorShapes) -> ActorCritic:
        """Policy and value."""
        return ActorCritic.of(shapes, self.hidden, self.kernel)

    def policy_network(self) -> nn.Module:
        """See :class:`LearningAgent`."""
        return self.network.actor

    # ---- learning

    def learn(self, step: Transitions) -> dict[str, float]:
        """Adds a step to the rollout; updates the networks when it is full."""
        rewards = step.rewards.astype(np.float32)
        if step.truncated.any():
            rewards = rewards + self.gamma * step.truncated * self._values(step.next_observations)
        self.rollout.append(
            {
                "observations": step.observations,
                "masks": step.masks,
                "actions": step.actions,
                "rewards": rewards,
                "continues": 1.0 - (step.terminated | step.truncated).astype(np.float32),
            }
        )
        return self._update(step.next_observations) if len(self.rollout) == self.num_steps else {}

    def _update(self, next_observations: Any) -> dict[str, float]:
        returns = self._values(next_observations)
        targets = []
        for moment in reversed(self.rollout):
            returns = moment["rewards"] + self.gamma * moment["continues"] * returns
            targets.insert(0, returns)
        observations, masks, actions = (
            map_arrays(
                lambda array: array.reshape(-1, *array.shape[2:]), stacked([moment[name] for moment in self.rollout])
            )
            for name in ("observations", "masks", "actions")
        )
        self.rollout = []
        logits, values = self.network(self.inputs(observations))
        log_probs = masked_log_softmax(logits, self.tensors(masks))
        advantage = self.tensors(np.concatenate(targets)) - values
        taken = log_probs.gather(1, self.tensors(actions)[:, None]).squeeze(1)
        weight = advantage.detach()
        if self.normalize_advantage:
            weight = (weight - weight.mean()) / (weight.std() + 1e-8)
        policy_loss = -(weight * taken).mean()
        value_loss = advantage.square().mean()
        entropy = -(log_probs.exp() * log_probs).sum(dim=1).mean()
        loss = policy_loss + self.vf_coef * value_loss - self.ent_coef * entropy
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), self.max_grad_norm)
        self.optimizer.step()
        return {
            "loss": loss.item(),
            "policy_loss": policy_loss.item(),
            "value_loss": value_loss.item(),
            "entropy": entropy.item(),
        }

    @torch.no_grad()
    def _values(self, observations: Any) -> np.ndarray:
        values: np.ndarray = self.network(self.inputs(observations))[1].cpu().numpy()
        return values
