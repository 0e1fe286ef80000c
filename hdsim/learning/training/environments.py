"""Environments stepped together, whose state can be saved and restored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hdsim.envs.vector import ShareVectorEnv
from hdsim.learning.agent import Masks, Observations, Transitions, map_arrays, set_row
from hdsim.util.arrays import Ints


class Environments:
    """Equal environments; after the end of an episode an environment begins the next one.

    An environment draws an episode from its generator at the start of the episode, and is deterministic from then on.
    Its state is the generator's state before the episode and the actions since; repeating them restores it. By the
    clock on the wall the same actions do not lead to the same episode: another one begins.

    Attributes:
        observations: (E, ...) present observations.
        masks: (E, A) legal actions.
        finished: Return, number of steps and metrics of the episodes that ended in the latest step.
    """

    def __init__(self, vector: ShareVectorEnv, seed: int) -> None:
        self._vector = vector
        self.observations: Observations
        self.masks: Masks
        self.finished: list[tuple[float, int, Mapping[str, float]]] = []
        sources = np.random.SeedSequence(seed).spawn(len(self))
        generators = [np.random.default_rng(source).bit_generator.state for source in sources]
        none = np.zeros(0, np.int64)
        self.load_state([{"drawn": 0, "source": source, "actions": none, "total": 0.0} for source in generators])

    def __len__(self) -> int:
        return self._vector.num_envs

    def step(self, actions: Ints) -> Transitions:
        """Carries out one action in every environment."""
        before, legal = self.observations, self.masks
        info: dict[str, Any]
        self.observations, rewards, terminated, truncated, info = self._vector.step(actions)
        self.masks = info["action_mask"]
        for taken, action in zip(self._actions, actions.tolist(), strict=True):
            taken.append(action)
        self._totals += rewards
        after, masks = self.observations, self.masks
        self.finished = []
        if "final_obs" in info:
            after, masks = map_arrays(np.copy, after), info["final_info"]["action_mask"]
            for i in (terminated | truncated).nonzero()[0].tolist():
                set_row(after, i, info["final_obs"][i])
                metrics = {name: float(values[i]) for name, values in info["metrics"].items()}
                self.finished.append((float(self._totals[i]), len(self._actions[i]), metrics))
                self._actions[i], self._totals[i] = [], 0.0
        return Transitions(
            observations=before,
            masks=legal,
            actions=actions,
            rewards=rewards,
            next_observations=after,
            next_masks=masks,
            terminated=terminated,
            truncated=truncated,
        )

    def state(self) -> list[dict[str, Any]]:
        """State of every environment, for a checkpoint."""
        if not self._vector.repeats:
            return [{**begin, "actions": np.zeros(0, np.int64), "total": 0.0} for begin in self._vector.state()]
        return [
            {**begin, "actions": np.array(actions, np.int64), "total": float(total)}
            for begin, actions, total in zip(self._vector.state(), self._actions, self._totals, strict=True)
        ]

    def load_state(self, state: Sequence[Mapping[str, Any]]) -> None:
        """Restores the state of every environment."""
        self._actions: list[list[int]] = [kept["actions"].tolist() for kept in state]
        self._totals = np.array([kept["total"] for kept in state], np.float64)
        self.finished = []
        self.observations, info = self._vector.load_state(state)
        self.masks = info["action_mask"]

    def close(self) -> None:
        """Ends threads and processes."""
        self._vector.close()
