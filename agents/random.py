"""Random legal actions: a baseline for all agents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hdsim.learning.agent import LearningAgent, TensorShapes, Transitions, draw


@dataclass(eq=False, kw_only=True)
class RandomAgent(LearningAgent):
    """Draws uniformly among the legal actions."""

    weights = ()
    progress = ()
    trainable = False

    sample: bool = True

    def build(self, shapes: TensorShapes) -> None:
        """Without networks."""

    def probabilities(self, observations: Any, masks: np.ndarray) -> np.ndarray:
        """Equal probabilities of the legal actions."""
        return masks / masks.sum(axis=1, keepdims=True)

    def explore(self, observations: Any, masks: np.ndarray) -> np.ndarray:
        """Draws from the policy."""
        return draw(self.probabilities(observations, masks), self.rng)

    def learn(self, step: Transitions) -> dict[str, float]:
        """Without updates."""
        return {}
