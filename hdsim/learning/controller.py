"""Controller of a gang that was learned: the plan that a trained agent chooses before each superstep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hdsim.errors import ConfigError
from hdsim.gangs.controllers import Controller, GangState
from hdsim.gangs.lookahead import Lookahead
from hdsim.learning import checkpoint as checkpoints
from hdsim.learning.agent import LearningAgent, TensorShapes
from hdsim.scheduling.agent import make_agent
from hdsim.util.arrays import Ints
from hdsim.util.resources import folder

_WHERE = "controller.checkpoint"


class Learned(Controller):
    """Takes the action with the highest probability.

    Args:
        checkpoint: A trained agent: a file of ``hdsim bsp train``, or the name of a bundled one.
        agent: Class of the agent in the checkpoint if it is none of hdsim's: ``path`` or ``_target_``. Or the agent.

    Raises:
        ConfigError: The checkpoint is missing, damaged, or none for gangs, or a package that it needs is.
    """

    def __init__(self, checkpoint: str | None = None, agent: LearningAgent | Mapping[str, Any] | None = None) -> None:
        self.agent = agent if isinstance(agent, LearningAgent) else _load(checkpoint, agent)

    @property
    def problem(self) -> Lookahead:
        """Actions and observations of the agent."""
        assert isinstance(self.agent.problem, Lookahead)
        return self.agent.problem

    def begin(self, state: GangState) -> None:
        """Checks that the agent was trained for such a gang.

        Raises:
            ConfigError: It has other tasks, or its predictions are too short.
        """
        shapes = TensorShapes.of(self.problem, None)
        if self.agent.shapes != shapes:
            raise ConfigError(
                f"expected networks for observations of {shapes.observation} and {shapes.actions} actions, got "
                f"{self.agent.shapes.observation} and {self.agent.shapes.actions}",
                where=_WHERE,
            )
        self.agent.training_mode(False)
        self.problem.check(len(state.predicted), _WHERE)
        trained, tasks = self.problem.tasks, state.planner.profile.tasks
        if trained is not None and sorted(trained) != sorted(tasks):
            raise ConfigError(
                f"expected the tasks of the training, {', '.join(trained)}, got {', '.join(tasks)}", where=_WHERE
            )

    def decide(self, state: GangState) -> Ints | None:
        """Plans, and returns the plan of the action, None for action 0."""
        problem = self.problem
        seen, plans = problem.observe(state.planner, state.row, state.shares)
        action = self.agent.choose(seen.ravel(), np.ones(problem.actions, bool))
        return plans.shares[action - 1] if action else None


def _load(path: str | None, spec: Mapping[str, Any] | None) -> LearningAgent:
    if path is None:
        raise ConfigError("expected the file of a trained agent, got null; `hdsim bsp train` makes one", where=_WHERE)
    tree = checkpoints.load(path, _WHERE)
    task = tree.get("task")
    if not (isinstance(task, Mapping) and "gang" in task):
        raise ConfigError(f"expected a checkpoint of `hdsim bsp train`, '{path}' is none", where=_WHERE)
    if not spec or not (spec.get("path") or spec.get("_target_")):
        spec = {"_target_": _own(path, str(tree.get("agent")))}
    with checkpoints.usable(path, _WHERE):
        agent = make_agent({**spec, "checkpoint": path})
    assert isinstance(agent, LearningAgent)
    return agent


def _own(path: str, name: str) -> str:
    """Returns module and class of an agent of hdsim: a checkpoint cannot name other code."""
    for file in sorted(folder("agents").glob("*.py")):
        if f"\nclass {name}(" in file.read_text(encoding="utf-8"):
            return f"hdsim.agents.{file.stem}.{name}"
    raise ConfigError(
        f"expected an agent of hdsim in '{path}', got {name}; +controller.agent.path=FILE.py or "
        "+controller.agent._target_=package.Class names its class",
        where=_WHERE,
    )
