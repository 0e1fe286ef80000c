"""The replay buffer of off-policy agents."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.learning.agent import Observations, Transitions, map_arrays, row, set_row
from hdsim.util.arrays import Flags, Ints


class TransitionBatch(NamedTuple):
    """Transitions over n steps, drawn from a buffer; B of them."""

    observations: Observations  # (B, ...) observations at the start of the transitions
    masks: Flags  # (B, A) legal actions there
    actions: Ints  # (B,) actions taken there
    rewards: NDArray[np.float32]  # (B,) discounted sums of the rewards of the n steps
    next_observations: Observations  # (B, ...) observations at the end of the transitions
    next_masks: Flags  # (B, A) legal actions there
    discounts: NDArray[np.float32]  # (B,) factors of the values at the end: gamma^n, 0 after the end of the episode


class ReplayBuffer:
    """The latest transitions of one or several environments, drawn uniformly (Lin 1992, Mnih et al. 2015).

    Rewards are kept unscaled and are scaled when they are drawn, all of them by the scale of the latest step.

    Args:
        capacity: Number of transitions kept.
        gamma: Discount factor.
        n_step: Rewards summed up before the next value is estimated (Sutton 1988); the last transitions of an episode
            are shorter.
    """

    def __init__(self, capacity: int, gamma: float, n_step: int = 1) -> None:
        self._capacity, self._gamma, self._n_step = capacity, gamma, n_step
        self._columns: dict[str, Any] = {}
        self._next = 0
        self._size = 0
        self._scale = 1.0
        # Transitions of each environment with fewer than n rewards so far.
        self._open: list[deque[dict[str, Any]]] = []

    def __len__(self) -> int:
        return self._size

    def add(self, step: Transitions) -> None:
        """Adds one step of every environment."""
        if not self._open:
            self._open = [deque() for _ in step.actions]
        self._scale, rewards = step.scale, (step.rewards * step.scale).tolist()
        for env, waiting in enumerate(self._open):
            ends = {"next_observations": row(step.next_observations, env), "next_masks": step.next_masks[env]}
            terminated = bool(step.terminated[env])
            waiting.append(
                {
                    "observations": row(step.observations, env),
                    "masks": step.masks[env],
                    "actions": step.actions[env],
                    "rewards": 0.0,
                    "discounts": 1.0,
                }
            )
            for transition in waiting:
                transition["rewards"] += transition["discounts"] * rewards[env]
                transition["discounts"] *= self._gamma
            over = terminated or bool(step.truncated[env])
            while waiting and (over or len(waiting) == self._n_step):
                transition = waiting.popleft()
                self._put(transition | ends | ({"discounts": 0.0} if terminated else {}))

    def sample(self, size: int, rng: np.random.Generator) -> TransitionBatch:
        """Draws transitions, with replacement."""
        rows = rng.integers(self._size, size=size)
        drawn = {name: map_arrays(lambda array: array[rows], column) for name, column in self._columns.items()}
        return TransitionBatch(**drawn | {"rewards": drawn["rewards"] / self._scale})

    def state_dict(self) -> dict[str, Any]:
        """State for a checkpoint."""
        kept = {name: map_arrays(lambda array: array[: self._size], column) for name, column in self._columns.items()}
        waiting = [list(transitions) for transitions in self._open]
        return {"columns": kept, "next": self._next, "open": waiting, "scale": self._scale}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the state of a buffer of the same capacity."""
        self._columns = {name: map_arrays(self._grown, column) for name, column in state["columns"].items()}
        self._next, self._scale = state["next"], state["scale"]
        self._size = len(state["columns"]["actions"]) if state["columns"] else 0
        self._open = [deque(dict(transition) for transition in waiting) for waiting in state["open"]]

    def _put(self, transition: Mapping[str, Any]) -> None:
        if not self._columns:
            self._columns = {name: map_arrays(self._column, value) for name, value in transition.items()}
        for name, value in transition.items():
            set_row(self._columns[name], self._next, value)
        self._next = (self._next + 1) % self._capacity
        self._size = min(self._size + 1, self._capacity)

    def _column(self, value: Any) -> NDArray[Any]:
        """A column for values like this one; floats in single precision."""
        value = np.asarray(value)
        dtype = np.float32 if value.dtype.kind == "f" else value.dtype
        return np.zeros((self._capacity, *value.shape), dtype)

    def _grown(self, array: NDArray[Any]) -> NDArray[Any]:
        grown = np.zeros((self._capacity, *array.shape[1:]), array.dtype)
        grown[: len(array)] = array
        return grown
