"""Evolution strategy: members with changed weights replay whole windows, and the policy moves to the better ones.

After Salimans et al., Evolution Strategies as a Scalable Alternative to Reinforcement Learning (2017). Metrics such as
the mean bounded slowdown depend on few jobs that wait for hours because of much earlier decisions; policy gradients
estimate that from rewards of single decisions, with high variance. Here single decisions have no rewards: the score of
a member is the metric of the evaluation, on the same windows for all members of a generation.

The environments of the training replay the present policy and select the windows: a generation replays the windows that
the policy has completed. These replays do not count as steps of the training.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hdsim.learning.agent import LearningAgent, TensorShapes, Transitions, one_hot
from hdsim.learning.settings import integer, layer_widths, number
from hdsim.learning.training.evolution import EvolutionStrategy
from hdsim.learning.training.networks import numpy_policy, score_network
from hdsim.results.metrics import direction
from hdsim.simulation.replay import Interrupted
from hdsim.util.arrays import Flags, Floats, Ints

#: Lower limit of metrics: a mean wait may be 0.
_LEAST = 1e-3


@dataclass(eq=False, kw_only=True)
class Evolution(LearningAgent):
    """Evolution strategy with mirrored members, common windows, and an optimizer on the estimated gradient.

    The cost of a change is the logarithm of the ratio of its member to the mean member in the metric of the training,
    averaged over windows; the sum of the changes so weighted is the gradient that Adam follows. The action with the
    highest score is taken. Steps count the policy's own decisions; members make 2 x `pairs` times as many.

    Args:
        num_envs: Environments stepped together.
        pairs: Pairs of members of a generation; those of a pair differ from the policy by opposite changes.
        windows: Windows that every member replays.
        sigma: Standard deviation of the changes of every weight.
        learning_rate: Of the optimizer.
        anneal: Lower the learning rate linearly to 0 over `anneal` steps of all environments, from generation to
            generation, the first of which has `learning_rate`; 0 = keep it.
    """

    weights = ("network",)
    progress = ("optimizer", "played", "steps")

    num_envs: int = integer(4)
    pairs: int = integer(16)
    windows: int = integer(4)
    sigma: float = number(0.1, low=1e-6)
    learning_rate: float = number(0.05)
    anneal: int = integer(0, low=0)

    def evolve(self, network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Begins with a policy, whose weights an optimizer changes."""
        self.network, self.optimizer = network, optimizer
        self.strategy = EvolutionStrategy(list(network.parameters()), optimizer, self.pairs, self.sigma)
        self.played: list[list[int]] = []  # (trace, first job, jobs) of windows that wait for the next generation
        self.steps = 0  # steps of all environments so far

    # ---- choosing

    def probabilities(self, observations: Any, masks: Flags) -> Floats:
        """1 for the chosen action."""
        return one_hot(self._chosen(observations, masks), masks.shape[1])

    def explore(self, observations: Any, masks: Flags) -> Ints:
        """Returns the actions of the current member; members explore by their weights, not by random actions."""
        self._playing = [environment.episodes.window for environment in self._environments]
        return self._chosen(observations, masks)

    def _chosen(self, observations: Any, masks: Flags) -> Ints:
        return np.array([self.choose(*seen) for seen in zip(observations, masks, strict=True)], np.int64)

    # ---- learning

    def attach(self, environments: Sequence[Any], evaluation: Any) -> None:
        """Keeps the environments, which draw windows, and the evaluation, which replays them."""
        self._environments, self._evaluation = environments, evaluation

    def learn(self, step: Transitions) -> dict[str, float]:
        """Records completed windows; a generation replays them when there are enough."""
        self.steps += len(step.actions)
        for env in np.flatnonzero(step.terminated | step.truncated):
            window = self._playing[env]
            self.played.append([window.trace, window.first, window.jobs])
        if len(self.played) < self.windows:
            return {}
        windows, self.played = self.played[: self.windows], self.played[self.windows :]
        losses = self._generation(windows)
        if self.anneal:
            self.optimizer.param_groups[0]["lr"] = self.learning_rate * max(0.0, 1 - self.steps / self.anneal)
        return losses

    def _generation(self, windows: Sequence[Sequence[int]]) -> dict[str, float]:
        """Replays windows under all members and moves the policy towards the better ones."""
        traces = self._environments[0].episodes.traces
        jobs = [traces[trace][first : first + length] for trace, first, length in windows]
        scores = np.zeros((2 * self.pairs, len(jobs)))
        stopped: list[int] = []

        def evaluate(members: NDArray[np.float32]) -> Floats:
            for member, weights in enumerate(members):
                self.strategy.become(weights)
                for index, window in enumerate(jobs):
                    scores[member, index] = self._score(window, stopped)
            return self.costs(scores)

        self.strategy.advance(self.rng, evaluate)
        for number_ in stopped:
            # The generation is complete: the training can stop and resume here.
            signal.raise_signal(number_)
        return {"loss": float(scores.mean()), "spread": float(scores.std(axis=0).mean())}

    def costs(self, scores: Floats) -> Floats:
        """Returns what the change of each of M members costs, by the (M, W) scores of W windows."""
        return -direction(self._evaluation.metric) * relative(scores).mean(axis=1)

    def _score(self, window: Any, stopped: list[int]) -> float:
        """The metric of one replay; a signal during the replay is deferred and the replay repeated."""
        while True:
            try:
                return float(self._evaluation.scores(self, [window])[0])
            except Interrupted as interrupted:
                stopped.append(interrupted.signal)


def relative(scores: Floats) -> Floats:
    """Returns (M, W) logarithms of the scores of members relative to their mean in each of W windows.

    All windows have equal weight, whatever their scale. NaN counts as the mean.
    """
    logs = np.log(np.maximum(scores, _LEAST))
    return np.nan_to_num(logs - np.nanmean(logs, axis=0))


@dataclass(eq=False, kw_only=True)
class EvolutionAgent(Evolution):
    """Evolution of a network that scores actions, by Adam.

    Args:
        hidden: Widths of the perceptron's hidden layers.
        kernel: Widths of the kernel's layers.
    """

    starts_from = ("ImitationAgent",)

    hidden: Sequence[int] = layer_widths(64, 64)
    kernel: Sequence[int] = layer_widths(32, 16, 8)

    def build(self, shapes: TensorShapes) -> None:
        """Creates the policy and Adam."""
        self.any_size = shapes.row_per_action
        network = score_network(shapes, self.hidden, self.kernel)
        # The gradient of a generation is noisy: the second moment is averaged over the latest hundred.
        self.evolve(network, torch.optim.Adam(network.parameters(), lr=self.learning_rate, betas=(0.9, 0.99)))
        self.best = numpy_policy(network)

    def choose(self, observation: Any, mask: Flags) -> int:
        """The legal action with the highest score."""
        return self.best(observation, mask)
