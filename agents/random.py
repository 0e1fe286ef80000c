"""Random legal actions: the baseline that any agent must beat, and an exerciser of every problem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hdsim.learning.agent import LearningAgent, TensorShapes, Transitions, draw


@dataclass(eq=False, kw_only=True)
class RandomAgent(LearningAgent):
    """Draws among the legal actions, each as probable as the others."""

    weights = ()
    progress = ()
    trainable = False

    sample: bool = True

    def build(self, shapes: TensorShapes) -> None:
        """Nothing to build."""

    def probabilities(self, observations: Any, masks: np.ndarray) -> np.ndarray:
        """The same for every legal action."""
        return masks / masks.sum(axis=1, keepdims=True)

    def explore(self, observations: Any, masks: np.ndarray) -> np.ndarray:
        """Draws."""
        return draw(self.probabilities(observations, masks), self.rng)

    def learn(self, step: Transitions) -> dict[str, float]:
        """Nothing to learn."""
        return {}
