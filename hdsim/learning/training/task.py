"""The tasks of trainings: windows, their scores, and the begin of learning."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from hdsim.envs.vector import ShareVectorEnv
from hdsim.errors import ConfigError
from hdsim.learning.agent import LearningAgent
from hdsim.learning.training.environments import Environments
from hdsim.learning.training.evaluation import Evaluation
from hdsim.learning.training.learner import AgentLearner, Learner
from hdsim.scheduling.agent import make_agent


class Task(ABC):
    """Base class of the tasks of trainings, made from a configuration."""

    average: ClassVar[str] = "mean"  # kind of mean that the score on the validation windows is

    config: Mapping[str, Any]
    traces: Sequence[Any]  # traces that are learned from; of a gang its series
    validation: Sequence[Any]  # windows of the evaluations during training, which select the best checkpoint
    test: Sequence[Any]  # windows of the evaluation after the training
    evaluation: Evaluation
    baselines: Mapping[str, Any]  # classic policies to compare with, by name; of a gang controllers
    actions: Sequence[str]  # names of the actions; empty without decisions

    @abstractmethod
    def learner(self) -> Learner:
        """Begins to learn."""

    @abstractmethod
    def trained(self, file: Path) -> Any:
        """The agent of a file that the learner has kept."""

    @abstractmethod
    def about(self, file: Path) -> dict[str, Any]:
        """The agent of a file and the inputs of its training besides traces, for the model card."""

    @abstractmethod
    def described(self, trace: Any) -> dict[str, Any]:
        """A trace or a window, for the model card."""

    def score(self, agent: Any) -> float:
        """The score of an agent on the validation windows."""
        return float(self.evaluation.scores(agent, self.validation).mean())

    def close(self) -> None:  # noqa: B027 - only a backend has something to release
        """Releases what the training used."""


class EpisodeTask(Task):
    """Base class of tasks in episodes."""

    agent: LearningAgent  # untrained
    environments: Sequence[Any]  # like those it is trained in; these themselves where the agent reads their state
    vector: Callable[[], ShareVectorEnv]  # makes the environments of the training, which are stepped together

    def learner(self) -> AgentLearner:
        """Begins the first episodes."""
        environments = Environments(self.vector(), self.config["seed"])
        scale_rewards = self.config["train"]["scale_rewards"]
        return AgentLearner(self.agent, environments, self.evaluation.metric, scale_rewards=scale_rewards)

    def trained(self, file: Path) -> Any:
        return make_agent({**self.config["agent"], "checkpoint": str(file)})

    def about(self, file: Path) -> dict[str, Any]:
        agent = self.agent
        return {
            "agent": type(agent).__name__,
            "settings": agent.settings(),
            "task": agent.problem.settings,
            "parameters": agent.n_parameters(),
            **self.sources(),
        }

    @abstractmethod
    def sources(self) -> dict[str, Any]:
        """The inputs besides traces, for the model card."""


def untrained_agent(config: Mapping[str, Any]) -> LearningAgent:
    """Makes the agent of a training.

    Raises:
        ConfigError: The agent does not learn, or has learned already.
    """
    agent = make_agent(config["agent"])
    if not isinstance(agent, LearningAgent):
        raise ConfigError(
            f"expected an agent that learns, got {type(agent).__name__}; `hdsim run` replays it", where="agent"
        )
    if agent.checkpoint is not None:
        raise ConfigError("expected null; resume=true continues a training", where="agent.checkpoint")
    return agent


def check_patience(train: Mapping[str, Any]) -> None:
    """Checks that a training with patience has evaluations.

    Raises:
        ConfigError: It has none.
    """
    if train["patience"] and train["validation"] is not None and not train["validation"]:
        raise ConfigError(
            f"expected null with train.validation={train['validation']}, as there are no evaluations, got "
            f"{train['patience']}",
            where="train.patience",
        )
