"""A learning agent: ``hdsim train agent.path=bandit.py agent.step_size=0.2``."""

from dataclasses import dataclass

import numpy as np

from hdsim.learning.agent import LearningAgent, draw
from hdsim.learning.settings import number


@dataclass(eq=False, kw_only=True)
class Bandit(LearningAgent):
    """Gradient bandit (Sutton and Barto 2018, 2.8): prefers actions whose rewards are above average, whatever it sees.

    Args:
        step_size: How far a reward moves the preferences.
    """

    weights = ("preferences",)
    progress = ("mean",)

    step_size: float = number(0.1)

    def build(self, shapes):
        self.preferences = np.zeros(shapes.actions)
        self.mean = 0.0

    def probabilities(self, observations, masks):
        weights = np.where(masks, np.exp(self.preferences - self.preferences.max()), 0.0)
        return weights / weights.sum(axis=1, keepdims=True)

    def explore(self, observations, masks):
        return draw(self.probabilities(observations, masks), self.rng)

    def learn(self, step):
        chosen = np.eye(len(self.preferences))[step.actions]
        surprise = step.rewards - self.mean
        policy = self.probabilities(step.observations, step.masks)
        self.preferences += self.step_size * (surprise[:, None] * (chosen - policy)).mean(axis=0)
        self.mean += 0.01 * surprise.mean()
        return {"loss": float(np.square(surprise).mean())}
