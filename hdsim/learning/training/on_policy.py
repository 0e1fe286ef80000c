"""Base of agents that learn from rollouts of their present policy: PPO and A2C."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hdsim.learning.agent import TensorShapes, Transitions, draw, map_arrays, set_row
from hdsim.learning.kernels.row_networks import Packed
from hdsim.learning.training.networks import ActorCritic, SoftmaxAgent, descend, numpy_actor_critic
from hdsim.learning.training.row_networks import RowKernel, Rows, packed_rows


class RolloutAgent(SoftmaxAgent):
    """Policy (actor) and value (critic), updated after every rollout of all environments."""

    weights = ("network",)
    progress = ("optimizer", "rollout", "filled", "steps")
    starts_from = ("ImitationAgent",)

    # Settings, which are fields of subclasses.
    num_steps: int
    gamma: float
    gae_lambda: float  # 1: returns to the end of the rollout
    max_grad_norm: float
    hidden: Sequence[int]
    kernel: Sequence[int]

    # ---- defined by the algorithm

    @abstractmethod
    def optimizer_of(self, parameters: Iterator[nn.Parameter]) -> torch.optim.Optimizer:
        """The optimizer of policy and value."""

    @abstractmethod
    def losses(
        self, observations: Any, masks: Tensor, actions: Tensor, log_probs: Tensor, advantages: Tensor, returns: Tensor
    ) -> dict[str, Tensor]:
        """The loss of a batch of B steps, and its terms.

        Args:
            observations: As policy and value take them.
            masks: (B, A) legal actions.
            actions: (B,) actions.
            log_probs: (B,) logarithms of their probabilities when they were drawn.
            advantages: (B,) generalised advantage estimates.
            returns: (B,) targets of the value.
        """

    def batches(self, steps: int) -> Iterator[np.ndarray]:
        """Batches of the steps of a rollout, each for one step of the optimizer: all steps at once."""
        yield np.arange(steps)

    # ---- choosing

    def build(self, shapes: TensorShapes) -> None:
        """Creates policy, value, their optimizer, and an empty rollout."""
        self.any_size = shapes.row_per_action
        self.network = self.networks(shapes).to(self.torch_device)
        self.optimizer = self.optimizer_of(self.network.parameters())
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
        return self.network.actor

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
        return self._update(*self._advantages(self._outputs(step.next_observations)[1]))

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
        for chosen in self.batches(returns.size):
            # The order within a batch is of no importance, but memory is read faster in its own order.
            rows = self.tensors(np.sort(chosen))
            some = map_arrays(itemgetter(rows), observations)
            losses = self.losses(some, **{name: column.index_select(0, rows) for name, column in columns.items()})
            descend(losses["loss"], self.network, self.optimizer, self.max_grad_norm)
            self.latest = {name: loss.item() for name, loss in losses.items()}
            sums.update(self.latest)
            updates += 1
        return {name: total / updates for name, total in sums.items()}

    @torch.no_grad()
    def _outputs(self, observations: Any) -> tuple[np.ndarray, np.ndarray]:
        """(B, A) logits and (B,) values."""
        logits, values = self.network(self.inputs(observations))
        return logits.cpu().numpy(), values.cpu().numpy()

    def _put(self, name: str, values: Any) -> None:
        """Writes the values of E environments at this step into the rollout, (T, E, ...)."""
        if name not in self.rollout:
            self.rollout[name] = map_arrays(lambda v: np.zeros((self.num_steps, *v.shape), v.dtype), values)
        set_row(self.rollout[name], self.filled, values)
