"""Deep Q-learning: target network, replay buffer, double estimates (Mnih et al. 2015; van Hasselt et al. 2016).

The defaults are those of the Kubernetes scheduler that hdsim's `node` action comes from, except that rewards of five
steps are summed and 10,000 transitions kept: with single steps and 2,000 transitions, the values of rarely taken
actions are forgotten. Observations with a row for each job or node are valued by one small network for every row,
which fits any number of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from hdsim.decisions.actions.place_job import PlaceJob
from hdsim.errors import ConfigError
from hdsim.learning.agent import LearningAgent, TensorShapes, Transitions, draw, one_hot
from hdsim.learning.settings import integer, layer_widths, number
from hdsim.learning.training.buffer import ReplayBuffer
from hdsim.learning.training.demonstrations import Demonstrations
from hdsim.learning.training.networks import descend, score_network

#: Columns of transitions that an update reads.
_USED = ("observations", "actions", "rewards", "next_observations", "next_masks", "discounts")


@dataclass(eq=False, kw_only=True)
class DQNAgent(LearningAgent):
    """DQN: learns the value of every action from replayed transitions, and acts greedily on it.

    Args:
        num_envs: Environments stepped together.
        learning_rate: Of Adam.
        gamma: Discount factor.
        buffer_size: Transitions kept for replay.
        batch_size: Transitions of an update.
        learning_starts: Steps before the first update.
        train_frequency: Steps between two updates.
        target_network_frequency: Steps between two copies of the network to the target network.
        start_e: Initial share of random actions (epsilon).
        end_e: Final epsilon.
        decay_e: Factor of epsilon at every step.
        heuristic_exploration: Share of random actions that choose a least loaded node instead, for action `node`.
        replay_from: Source of the initial replay buffer: a classic policy that decides in the first episodes, a run
            directory, or a file of ``hdsim kwok record``, such as one of the default scheduler.
        replay_steps: Steps taken from it; updates and the decay of epsilon begin after them.
        double: Choose the next action with the network and evaluate it with the target network.
        n_step: Rewards summed up before the next value is estimated.
        max_grad_norm: Gradients are scaled down to this norm.
        hidden: Widths of the perceptron's hidden layers.
        kernel: Widths of the kernel's layers.
    """

    weights = ("network",)
    progress = ("target", "optimizer", "buffer", "epsilon", "steps")
    starts_from = ("ImitationAgent",)

    num_envs: int = integer(1)
    learning_rate: float = number(1e-3)
    gamma: float = number(0.99, high=1)
    buffer_size: int = integer(10_000)
    batch_size: int = integer(200)
    learning_starts: int = integer(200, low=0)
    train_frequency: int = integer(25)
    target_network_frequency: int = integer(50)
    start_e: float = number(1.0, high=1)
    end_e: float = number(0.01, high=1)
    decay_e: float = number(0.995, high=1)
    heuristic_exploration: float = number(0.0, high=1)
    replay_from: str | None = None
    replay_steps: int = integer(2000)
    double: bool = True
    n_step: int = integer(5)
    max_grad_norm: float = number(10.0)
    hidden: Sequence[int] = layer_widths(128, 64)
    kernel: Sequence[int] = layer_widths(32, 16, 8)

    def build(self, shapes: TensorShapes) -> None:
        """Creates the network, its target network, Adam and an empty buffer."""
        self.any_size = shapes.row_per_action
        self.network = self.scorer(shapes, gain=1.0).to(self.torch_device)
        self.target = deepcopy(self.network)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=self.learning_rate)
        self.buffer = ReplayBuffer(self.buffer_size, self.gamma, self.n_step)
        self.epsilon = self.start_e
        self.steps = 0
        self.environments: Sequence[Any] = ()
        self.demonstrations: Demonstrations | None = None

    def scorer(self, shapes: TensorShapes, gain: float = 0.01) -> nn.Module:
        """Estimator of the value Q of each action."""
        return score_network(shapes, self.hidden, self.kernel, gain)

    def load_start(self, path: str) -> None:
        super().load_start(path)
        self.target.load_state_dict(self.network.state_dict())

    @property
    def reads_environments(self) -> bool:
        return self.heuristic_exploration > 0 or self.replay_from is not None

    def attach(self, environments: Sequence[Any], evaluation: Any) -> None:
        """Checks the settings of exploration and of the replay buffer.

        Raises:
            ConfigError: The problem has no nodes to choose, or the recording is missing.
        """
        self.environments = environments
        problem = environments[0].problem
        if self.heuristic_exploration and not isinstance(getattr(problem, "action", None), PlaceJob):
            raise ConfigError(
                f"expected 0 with env.action={problem.settings.get('action')}; only with env.action=node there is a "
                "least loaded node to take",
                where="agent.heuristic_exploration",
            )
        if self.replay_from is not None:
            path = Path(self.replay_from)
            recording = self.replay_from if path.exists() or len(path.parts) > 1 else None
            self.demonstrations = Demonstrations(
                environments,
                evaluation,
                teacher=self.replay_from,
                recording=recording,
                steps=self.replay_steps,
                where="agent.replay_from",
            )

    # ---- choosing

    @torch.no_grad()
    def probabilities(self, observations: Any, masks: np.ndarray) -> np.ndarray:
        """1 for the best legal action."""
        values = self.network(self.tensors(observations)).cpu().numpy()
        return one_hot(np.where(masks, values, -np.inf).argmax(axis=1), masks.shape[1])

    def explore(self, observations: Any, masks: np.ndarray) -> np.ndarray:
        """Epsilon-greedy among the legal actions; at first the demonstrated actions, if there is a recording."""
        if self.demonstrations is not None and self.steps < self.replay_steps:
            return self.demonstrations.actions()
        greedy, random = self.probabilities(observations, masks), masks / masks.sum(axis=1, keepdims=True)
        if self.heuristic_exploration:
            least = np.stack([least_loaded(env, mask) for env, mask in zip(self.environments, masks, strict=True)])
            random = self.heuristic_exploration * least + (1 - self.heuristic_exploration) * random
        return draw(self.epsilon * random + (1 - self.epsilon) * greedy, self.rng)

    # ---- learning

    def learn(self, step: Transitions) -> dict[str, float]:
        """Stores a step; updates the network and the target network at their intervals."""
        self.buffer.add(step)
        before, self.steps = self.steps, self.steps + len(step.actions)
        if self.demonstrations is not None and before < self.replay_steps:
            return {}
        self.epsilon = max(self.end_e, self.epsilon * self.decay_e ** len(step.actions))
        losses = {}
        if self.steps >= self.learning_starts and len(self.buffer):
            updates = self.steps // self.train_frequency - before // self.train_frequency
            for _ in range(updates):
                losses = self._update()
        if self.steps // self.target_network_frequency > before // self.target_network_frequency:
            self.target.load_state_dict(self.network.state_dict())
        return losses

    def _update(self) -> dict[str, float]:
        drawn = self.buffer.sample(self.batch_size, self.rng)
        batch = drawn._replace(**{name: self.tensors(getattr(drawn, name)) for name in _USED})
        with torch.no_grad():
            target_values = self.target(batch.next_observations)
            judge = self.network(batch.next_observations) if self.double else target_values
            best = judge.masked_fill(~batch.next_masks, -torch.inf).argmax(dim=1, keepdim=True)
            td_target = batch.rewards + batch.discounts * target_values.gather(1, best).squeeze(1)
        old_value = self.network(batch.observations).gather(1, batch.actions[:, None]).squeeze(1)
        loss = nn.functional.smooth_l1_loss(old_value, td_target)
        descend(loss, self.network, self.optimizer, self.max_grad_norm)
        return {"loss": loss.item(), "mean_value": old_value.mean().item(), "epsilon": self.epsilon}


def least_loaded(environment: Any, mask: np.ndarray) -> np.ndarray:
    """(A,) equal probabilities of the legal nodes with the smallest share of busy cores, 0 for others."""
    cluster, partial = environment.cluster, environment.problem.wait_queue.partial
    cores = cluster.node_cpu
    idle = cluster.cores.node_idle - partial.chosen * partial.cpu_per_chunk
    legal = mask[: len(cores)]
    load = np.where(legal, 1.0 - idle / np.where(cores > 0, cores, 1), np.inf)
    least = np.zeros(len(mask))
    least[: len(cores)] = legal & (load == load.min())
    return least / least.sum()
