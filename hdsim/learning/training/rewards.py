"""Scaling of rewards: objectives differ by ten orders of magnitude, networks need numbers around 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


class RewardScale:
    """Divides rewards by the root mean square of their discounted sums so far.

    NormalizeReward of Gymnasium uses the standard deviation, which is 0 at first and can be far below the sums, so that
    values would be far from 1.

    Args:
        environments: Number of environments.
        gamma: Discount factor of the sums.
    """

    def __init__(self, environments: int, gamma: float) -> None:
        self._gamma = gamma
        self._sums = np.zeros(environments)
        self._count, self._squares = 0, 0.0

    def __call__(self, rewards: NDArray[np.float64], over: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Records the rewards of a step and returns them scaled.

        Args:
            rewards: (E,) rewards.
            over: (E,) the episode ended.
        """
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
