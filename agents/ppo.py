"""Proximal policy optimisation with masked actions (Schulman et al. 2017; Huang and Ontañón 2022 for the masks).

If the observation has a row for every job or node to choose from, policy and value are RLScheduler's kernel: one
small network for every row, which fits any number of rows and so any platform and queue (Zhang et al., SC 2020).
Anything else goes through a perceptron.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from hdsim.kernels.row_networks import Packed
from hdsim.learning.agent import TensorShapes, Transitions, draw, map_arrays
from hdsim.learning.settings import integer, layer_widths, number
from hdsim.learning.training.networks import ActorCritic, SoftmaxAgent, masked_log_softmax, numpy_actor_critic
from hdsim.learning.training.row_networks import RowKernel, Rows, packed_rows


@dataclass(eq=False, kw_only=True)
class PPOAgent(SoftmaxAgent):
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

    weights = ("network",)
    progress = ("optimizer", "rollout", "filled", "steps")
    starts_from = ("ImitationAgent",)

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

    def build(self, shapes: TensorShapes) -> None:
        """Creates policy (actor) and value (critic), Adam, and an empty rollout."""
        self.any_size = shapes.row_per_action
        self.network = self.networks(shapes).to(self.torch_device)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=self.learning_rate, eps=1e-5, fused=True)
        self.rollout: dict[str, Any] = {}
        self.rows: list[Packed] = []  # of the observations of the rollout, if compiled layers take them
        takes_rows = isinstance(self.network.actor, RowKernel) and self.torch_device.type == "cpu"
        self.outputs_of_rows = numpy_actor_critic(self.network) if takes_rows else None
        self.filled = 0  # steps of the rollout that have been taken
        self.steps = 0  # steps of all environments so far

    def networks(self, shapes: TensorShapes) -> ActorCritic:
        """Policy and value."""
        return ActorCritic.of(shapes, self.hidden, self.kernel)

    def policy_network(self) -> nn.Module:
        """See :class:`LearningAgent`."""
        return self.network.actor

    # ---- choosing

    def explore(self, observations: Any, masks: np.ndarray) -> np.ndarray:
        """Draws from the policy, and stores the step for the update."""
        if self.outputs_of_rows is None:
            logits, values = self._outputs(observations)
        else:
            self.rows.append(packed_rows(observations))
            logits, values = self.outputs_of_rows(self.rows[-1], observations.shape[1])
        logits = np.where(masks, logits, -np.inf)
        logits -= logits.max(axis=1, keepdims=True)
        shares = np.exp(logits, dtype=np.float64)
        actions = draw(shares, self.rng)
        chosen = logits[np.arange(len(actions)), actions] - np.log(shares.sum(axis=1)).astype(np.float32)
        step = {"observations": observations, "masks": masks, "actions": actions, "log_probs": chosen, "values": values}
        for name, column in step.items():
            self._put(name, column)
        return actions

    # ---- learning

    def learn(self, step: Transitions) -> dict[str, float]:
        """Adds a step to the rollout, and updates the networks when it is full."""
        # The value of a truncated episode is added to its last reward.
        rewards = step.rewards.astype(np.float32)
        if step.truncated.any():
            rewards = rewards + self.gamma * step.truncated * self._outputs(step.next_observations)[1]
        self._put("rewards", rewards)
        self._put("over", step.terminated | step.truncated)
        self.filled += 1
        self.steps += len(rewards)
        if self.filled < self.num_steps:
            return {}
        self.filled = 0
        losses = self._update(*self._advantages(self._outputs(step.next_observations)[1]))
        if self.anneal:
            self.optimizer.param_groups[0]["lr"] = self.learning_rate * max(0.0, 1 - self.steps / self.anneal)
        return losses

    def _advantages(self, next_values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Generalised advantage estimates and returns, (T, E) each."""
        values, rewards = self.rollout["values"], self.rollout["rewards"]
        goes_on, advantages = 1 - self.rollout["over"].astype(np.float32), np.empty_like(rewards)
        estimate = np.zeros_like(next_values)
        for t in reversed(range(self.num_steps)):
            error = rewards[t] + self.gamma * goes_on[t] * next_values - values[t]
            advantages[t] = estimate = error + self.gamma * self.gae_lambda * goes_on[t] * estimate
            next_values = values[t]
        return advantages, advantages + values

    def _update(self, advantages: np.ndarray, returns: np.ndarray) -> dict[str, float]:
        def flat(arrays: Any) -> Any:
            """Joins the first two axes, of steps and environments."""
            return map_arrays(lambda array: array.reshape(-1, *array.shape[2:]), arrays)

        taken = {name: self.rollout[name] for name in ("masks", "actions", "log_probs")}
        columns = self.tensors(flat(taken | {"advantages": advantages, "returns": returns}))
        # A training that was resumed has to find the rows of its rollout again.
        kept, self.rows = self.rows, []
        whole = len(kept) == self.num_steps
        seen = flat(self.rollout["observations"])
        observations = Rows.joined(kept, seen.shape[1], self.torch_device) if whole else self.inputs(seen)
        sums: Counter[str] = Counter()
        updates = 0
        for _ in range(self.update_epochs):
            for chosen in np.array_split(self.rng.permutation(returns.size), min(self.num_minibatches, returns.size)):
                # The order within a minibatch is of no importance, but memory is read faster in its own order.
                rows = self.tensors(np.sort(chosen))
                some = map_arrays(lambda column, rows=rows: column[rows], observations)
                losses = self._losses(some, **{name: column.index_select(0, rows) for name, column in columns.items()})
                self.optimizer.zero_grad()
                losses["loss"].backward()
                nn.utils.clip_grad_norm_(self.network.parameters(), self.max_grad_norm)
                self.optimizer.step()
                latest = {name: loss.item() for name, loss in losses.items()}
                sums.update(latest)
                updates += 1
            if self.target_kl and latest["approx_kl"] > self.target_kl:
                break
        return {name: total / updates for name, total in sums.items()}

    def _losses(
        self,
        observations: Any,
        masks: torch.Tensor,
        actions: torch.Tensor,
        log_probs: torch.Tensor,
        advantages: torch.Tensor,
        returns: torch.Tensor,
    ) -> dict[str, torch.Tensor]:
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

    @torch.no_grad()
    def _outputs(self, observations: Any) -> tuple[np.ndarray, np.ndarray]:
        """(B, A) logits and (B,) values."""
        logits, values = self.network(self.inputs(observations))
        return logits.cpu().numpy(), values.cpu().numpy()

    def _put(self, name: str, values: Any) -> None:
        """Writes the values of E environments at this step into the rollout, (T, E, ...)."""
        if name not in self.rollout:
            self.rollout[name] = map_arrays(lambda v: np.zeros((self.num_steps, *v.shape), v.dtype), values)
        column = self.rollout[name]
        if isinstance(column, dict):
            for key, array in column.items():
                array[self.filled] = values[key]
        else:
            column[self.filled] = values
