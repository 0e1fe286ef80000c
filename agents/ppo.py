"""Proximal policy optimisation with masked actions (Schulman et al. 2017; Huang and Ontañón 2022 for the masks).

If the observation has a row for every job or node to choose from, policy and value are RLScheduler's kernel: one
small network for every row, which fits any number of rows and so any platform and queue (Zhang et al., SC 2020).
Anything else goes through a perceptron.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from hdsim.kernels.policy_loss import ENTROPY, POLICY, VALUE, Steps, Weighting, add_up_rewards, clipped_loss
from hdsim.learning.agent import TensorShapes, Transitions, draw, map_arrays
from hdsim.learning.settings import integer, layer_widths, number
from hdsim.learning.training.compiled import CompiledPolicy
from hdsim.learning.training.networks import ActorCritic, KeptRows, SoftmaxAgent, masked_log_softmax


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
        self.compiled = CompiledPolicy.of(self.network, shapes.actions)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=self.learning_rate, eps=1e-5, fused=True)
        self.rollout: dict[str, Any] = {}
        # Rows in use of the observations of the rollout.
        self.rows: KeptRows | None = None
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
        if self.compiled is not None:
            seen = self._kept_rows(observations).put(self.filled * len(masks), observations)
            actions, chosen, values = self.compiled.draw(seen, masks, self.rng.random(len(masks)))
        else:
            with torch.no_grad():
                logits, outputs = self.network(self.inputs(observations))
            log_probs, values = masked_log_softmax(logits, self.tensors(masks)).cpu().numpy(), outputs.cpu().numpy()
            actions = draw(np.exp(log_probs, dtype=np.float64), self.rng)
            chosen = np.take_along_axis(log_probs, actions[:, None], axis=1)[:, 0]
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
            rewards = rewards + self.gamma * step.truncated * self._values(step.next_observations)
        self._put("rewards", rewards)
        self._put("over", step.terminated | step.truncated)
        self.filled += 1
        self.steps += len(rewards)
        if self.filled < self.num_steps:
            return {}
        self.filled = 0
        losses = self._update(*self._advantages(self._values(step.next_observations)))
        if self.anneal:
            self.optimizer.param_groups[0]["lr"] = self.learning_rate * max(0.0, 1 - self.steps / self.anneal)
        return losses

    def _advantages(self, next_values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Generalised advantage estimates and returns, (T, E) each."""
        values, rewards = self.rollout["values"], self.rollout["rewards"]
        advantages, decay = np.empty_like(rewards), np.array([self.gamma, self.gamma * self.gae_lambda], np.float32)
        add_up_rewards(rewards, values, self.rollout["over"], next_values, decay, advantages)
        return advantages, advantages + values

    def _update(self, advantages: np.ndarray, returns: np.ndarray) -> dict[str, float]:
        def flat(arrays: Any) -> Any:
            """Joins the first two axes, of steps and environments."""
            return map_arrays(lambda array: array.reshape(-1, *array.shape[2:]), arrays)

        taken = {name: self.rollout[name] for name in ("masks", "actions", "log_probs")}
        columns = {name: flat(x) for name, x in (taken | {"advantages": advantages, "returns": returns}).items()}
        observations = self.inputs(flat(self.rollout["observations"])) if self.rows is None else self.rows
        size = returns.size
        names = ("loss", "policy_loss", "value_loss", "entropy", "approx_kl")
        sums, updates = np.zeros(len(names)), 0
        for _ in range(self.update_epochs):
            for chosen in np.array_split(self.rng.permutation(size), min(self.num_minibatches, size)):
                # The order within a minibatch is of no importance, but memory is read faster in its own order.
                chosen.sort()
                rows = self.tensors(chosen) if self.rows is None else chosen
                part = {name: column[chosen] for name, column in columns.items()}
                advantage = part["advantages"]
                part["advantages"] = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                losses = np.zeros(len(names))
                # Compiled kernels write gradients into memory of their own, which zero_grad would take away.
                if self.compiled is None:
                    self.optimizer.zero_grad()
                for first in range(0, len(rows), self._part_size):
                    cut = slice(first, first + self._part_size)
                    seen = map_arrays(lambda column, some=rows[cut]: column[some], observations)
                    losses += self._add_gradients(seen, Steps(*(column[cut] for column in part.values())), len(rows))
                if self.compiled is None:
                    nn.utils.clip_grad_norm_(self.network.parameters(), self.max_grad_norm)
                else:
                    self.compiled.clip_gradients(self.max_grad_norm)
                self.optimizer.step()
                sums += losses
                updates += 1
            if self.target_kl and losses[-1] > self.target_kl:
                break
        return dict(zip(names, (sums / updates).tolist(), strict=True))

    def _kept_rows(self, observations: np.ndarray) -> KeptRows:
        """The rows in use of the rollout so far, which a training that was resumed has to find again."""
        if self.rows is None:
            self.rows = KeptRows((self.num_steps * len(observations), *observations.shape[1:]))
            if self.filled:
                earlier = self.rollout["observations"][: self.filled]
                self.rows.put(0, earlier.reshape(-1, *earlier.shape[2:]))
        return self.rows

    @property
    def _part_size(self) -> int:
        """Steps whose gradients are computed together: few by PyTorch on a CPU, whose caches larger tensors leave."""
        return 512 if self.compiled is None and self.torch_device.type == "cpu" else 2**30

    def _add_gradients(self, observations: Any, steps: Steps, size: int) -> np.ndarray:
        """Adds the gradients of a part of a minibatch of `size` steps; returns its terms of the losses."""
        weighting = Weighting(float(self.clip_coef), float(self.ent_coef), float(self.vf_coef), size)
        if self.compiled is not None:
            terms = self.compiled.set_gradients(observations, steps, weighting)
        else:
            outputs = self.network(observations)
            logits, values = (each.detach().cpu().numpy() for each in outputs)
            slopes, terms = (np.zeros_like(logits), np.zeros_like(values)), np.zeros(4)
            clipped_loss(logits, values, steps, weighting, *slopes, terms)
            torch.autograd.backward(outputs, [torch.from_numpy(slope).to(self.torch_device) for slope in slopes])
        weights = np.zeros(len(terms))
        weights[[POLICY, VALUE, ENTROPY]] = 1.0, self.vf_coef, -self.ent_coef
        return np.append(weights @ terms, terms)

    @torch.no_grad()
    def _values(self, observations: Any) -> np.ndarray:
        values: np.ndarray = self.network(self.inputs(observations))[1].cpu().numpy()
        return values

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
