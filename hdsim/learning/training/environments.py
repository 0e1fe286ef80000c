"""Environments stepped together, whose state can be saved and restored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hdsim.learning.agent import Masks, Observations, Transitions, stacked


class Environments:
    """Equal environments; after the end of an episode an environment begins the next one.

    An environment draws an episode from its generator at the start of the episode, and is deterministic from then on.
    Its state is the generator's state before the episode and the actions since; replaying them restores it.

    Args:
        environments: Gymnasium environments of hdsim, perhaps in wrappers of Gymnasium.
        seed: Seed of the episodes.

    Attributes:
        observations: (E, ...) present observations.
        masks: (E, A) legal actions.
        finished: Return, number of steps and metrics of the episodes that ended in the latest step.
    """

    def __init__(self, environments: Sequence[Any], seed: int) -> None:
        self._environments = list(environments)
        for environment, child in zip(
            self._environments, np.random.SeedSequence(seed).spawn(len(environments)), strict=True
        ):
            environment.np_random = np.random.default_rng(child)
        self._episodes = [self._begin(environment) for environment in self._environments]
        self.finished: list[tuple[float, int, Mapping[str, float]]] = []
        self._observe()

    def __len__(self) -> int:
        return len(self._environments)

    def step(self, actions: NDArray[np.int64]) -> Transitions:
        """Carries out one action in every environment."""
        before, legal = self.observations, self.masks
        rewards = np.zeros(len(self))
        terminated, truncated = np.zeros(len(self), bool), np.zeros(len(self), bool)
        after: list[tuple[Any, NDArray[np.bool_]]] = []
        self.finished = []
        for index, (environment, action) in enumerate(zip(self._environments, actions.tolist(), strict=True)):
            episode = self._episodes[index]
            seen, reward, terminated[index], truncated[index], info = environment.step(action)
            rewards[index] = reward
            episode.actions.append(action)
            episode.total += float(reward)
            episode.seen, episode.mask = seen, info["action_mask"]
            after.append((seen, episode.mask))
            if terminated[index] or truncated[index]:
                self.finished.append((episode.total, len(episode.actions), info.get("metrics", {})))
                self._episodes[index] = self._begin(environment)
        self._observe()
        return Transitions(
            observations=before,
            masks=legal,
            actions=actions,
            rewards=rewards,
            next_observations=stacked([seen for seen, _ in after]) if self.finished else self.observations,
            next_masks=np.stack([mask for _, mask in after]) if self.finished else self.masks,
            terminated=terminated,
            truncated=truncated,
        )

    def state(self) -> list[dict[str, Any]]:
        """State of every environment, for a checkpoint."""
        return [
            {"drawn": episode.drawn, "source": episode.source, "actions": np.array(episode.actions, np.int64)}
            for episode in self._episodes
        ]

    def load_state(self, state: Sequence[Mapping[str, Any]]) -> None:
        """Restores the state of every environment."""
        for index, (environment, kept) in enumerate(zip(self._environments, state, strict=True)):
            environment.np_random.bit_generator.state = kept["source"]
            environment.unwrapped.episodes.drawn = kept["drawn"]
            episode = self._episodes[index] = self._begin(environment)
            for action in kept["actions"].tolist():
                episode.seen, reward, _, _, info = environment.step(action)
                episode.mask = info["action_mask"]
                episode.total += float(reward)
                episode.actions.append(action)
        self._observe()

    def _begin(self, environment: Any) -> _Episode:
        drawn, source = environment.unwrapped.episodes.drawn, environment.np_random.bit_generator.state
        seen, info = environment.reset()
        return _Episode(drawn, source, seen, info["action_mask"])

    def _observe(self) -> None:
        self.observations: Observations = stacked([episode.seen for episode in self._episodes])
        self.masks: Masks = np.stack([episode.mask for episode in self._episodes])


class _Episode:
    """A running episode."""

    def __init__(self, drawn: int, source: Mapping[str, Any], seen: Any, mask: NDArray[np.bool_]) -> None:
        self.drawn = drawn  # episodes before it
        self.source = source  # state of the generator before it
        self.seen = seen
        self.mask = mask
        self.actions: list[int] = []
        self.total = 0.0
