"""Subjects of a training: an agent in its environments, or other weights."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hdsim.learning.agent import LearningAgent, checkpoint
from hdsim.learning.training.environments import Environments
from hdsim.learning.training.records import Records
from hdsim.util.arrays import Flags, Floats

#: Metrics of finished episodes in progress.csv, besides the metric of the evaluation.
_EPISODE_METRICS = ("makespan", "mean_waiting_time", "mean_bounded_slowdown", "utilization", "energy_joules")


class Learner(ABC):
    """Base class of subjects of a training."""

    agent: Any  # argument of the evaluation, in its present state
    suffix: str  # suffix of the files for replays

    @abstractmethod
    def step(self, records: Records) -> tuple[int, int]:
        """Carries out one step of the loop and records it; returns the steps it counts for and the ended episodes."""

    @abstractmethod
    def keep(self, path: Path) -> None:
        """Writes a file that replays need."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Everything that going on needs, as a tree for :mod:`hdsim.learning.checkpoint`."""

    @abstractmethod
    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restores the result of `state`, which may have further entries."""

    def after_evaluation(self) -> None:  # noqa: B027 - only networks have modes
        """Called after replays of `agent`, before the training continues."""

    def close(self) -> None:  # noqa: B027 - some have nothing to release
        """Ends threads and processes."""


class AgentLearner(Learner):
    """An agent in environments that are stepped together.

    Args:
        agent: The agent, after `begin_training`.
        environments: The environments.
        metric: Metric of the evaluation.
        scale_rewards: Divide rewards by the root mean square of their discounted sums.
    """

    suffix = ".safetensors"

    def __init__(self, agent: LearningAgent, environments: Environments, metric: str, *, scale_rewards: bool) -> None:
        self.agent: LearningAgent = agent
        self._environments = environments
        self._metrics = tuple(dict.fromkeys((*_EPISODE_METRICS, metric)))
        self._scale = RewardScale(len(environments), getattr(agent, "gamma", 1.0)) if scale_rewards else None

    def step(self, records: Records) -> tuple[int, int]:
        """Carries out one action in every environment and lets the agent learn from it."""
        environments = self._environments
        step = environments.step(self.agent.explore(environments.observations, environments.masks))
        rewards = step.rewards
        if self._scale is not None:
            scaled = self._scale(rewards, step.terminated | step.truncated)
            step = dataclasses.replace(step, rewards=scaled, scale=self._scale.scale)
        records.step(step.actions, rewards, self.agent.learn(step))
        for total, length, metrics in environments.finished:
            records.episode(total, length, {name: metrics[name] for name in self._metrics if name in metrics})
        return len(environments), len(environments.finished)

    def keep(self, path: Path) -> None:
        """Writes the agent's checkpoint."""
        checkpoint.save(path, self.agent.trained())

    def state(self) -> dict[str, Any]:
        return {
            "agent": self.agent.state(),
            "environments": self._environments.state(),
            "scale": self._scale and self._scale.state_dict(),
            "torch": torch.get_rng_state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.agent.load_state(state["agent"])
        self._environments.load_state(state["environments"])
        if self._scale is not None:
            self._scale.load_state_dict(state["scale"])
        torch.set_rng_state(torch.from_numpy(state["torch"]))

    def after_evaluation(self) -> None:
        """Sets the networks back to the mode of training."""
        self.agent.training_mode(True)

    def close(self) -> None:
        self._environments.close()


class RewardScale:
    """Divides rewards by the root mean square of their discounted sums so far.

    Objectives differ by ten orders of magnitude, and networks need numbers around 1.
    NormalizeReward of Gymnasium uses the standard deviation, which is 0 at first and can be far below the sums, so that
    values would be far from 1.
    """

    def __init__(self, environments: int, gamma: float) -> None:
        self._gamma = gamma
        self._sums = np.zeros(environments)
        self._count, self._squares = 0, 0.0

    def __call__(self, rewards: Floats, over: Flags) -> Floats:
        """Records the (E,) rewards of a step and which episodes have ended, and returns the rewards scaled."""
        self._sums = self._sums * self._gamma + rewards
        self._count += len(rewards)
        self._squares += float(self._sums @ self._sums)
        self._sums[over] = 0.0
        return rewards / self.scale

    @property
    def scale(self) -> float:
        """The divisor; 1 while all rewards were 0."""
        return (self._squares / self._count) ** 0.5 if self._squares else 1.0

    def state_dict(self) -> dict[str, Any]:
        """State for a checkpoint."""
        return {"sums": self._sums, "count": self._count, "squares": self._squares}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the state."""
        self._sums, self._count, self._squares = state["sums"], state["count"], state["squares"]
