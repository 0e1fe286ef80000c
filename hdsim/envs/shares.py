"""Environments of one process, stepped one after the other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from hdsim.errors import DecisionError
from hdsim.util.arrays import Flags, Ints


def action_numbers(actions: Any, count: int, size: int) -> Ints:
    """Returns the actions of environments as an array (count,).

    Args:
        actions: (count,) whole numbers, or an array that has that many.
        count: Number of environments.
        size: Number of actions of each.

    Raises:
        DecisionError: There are more or fewer, or one is no number from 0 to `size` - 1.
    """
    try:
        given = np.asarray(actions)
    except ValueError:  # rows of different lengths
        given = np.zeros(0)
    if given.dtype.kind not in "iu" or given.size != count:
        some = "a whole number" if count == 1 else f"{count} whole numbers"
        raise DecisionError(f"expected {some} from 0 to {size - 1} as action, got {actions!r}")
    numbers = given.astype(np.int64, copy=False).reshape(count)
    # Negative numbers are large ones without their sign.
    if numbers.view(np.uint64).max() >= size:
        raise DecisionError(f"expected actions from 0 to {size - 1}, got {numbers.tolist()}")
    return numbers


#: Arrays of an outcome by name; the names of observations begin with `SEEN`.
Views = dict[str, NDArray[Any]]
MASK, SEEN = "action_mask", "obs:"


def layout_of(environment: Any, num_envs: int) -> dict[str, tuple[tuple[int, ...], Any]]:
    """Shape and type of every array of an outcome."""
    space = environment.observation_space
    seen = space.spaces if isinstance(space, spaces.Dict) else {"": space}
    layout: dict[str, tuple[tuple[int, ...], Any]] = {
        SEEN + name: ((num_envs, *(one.shape or ())), one.dtype) for name, one in seen.items()
    }
    layout[MASK] = ((num_envs, environment.action_space.n), np.bool_)
    layout["reward"] = ((num_envs,), np.float64)
    for name in ("terminated", "truncated", "invalid_action"):
        layout[name] = ((num_envs,), np.bool_)
    return layout


class Ended(NamedTuple):
    """An episode that has ended."""

    metrics: Mapping[str, float]  # metrics of the replay
    observation: Any = None  # the last observation, None where the next episode begins with the next step
    mask: Any = None  # the last legal actions


class Share(Protocol):
    """Environments of one process; the outcome of environment i is written to row i of arrays."""

    def reset(self, views: Views, seeds: Sequence[int | None], options: Mapping[str, Any] | None) -> None:
        """Begins an episode in each."""

    def step(self, views: Views, actions: Ints) -> dict[int, Ended]:
        """Carries out one action per environment; returns the episodes that ended."""

    def state(self) -> list[Mapping[str, Any]]:
        """Number of episodes and state of the generator before the present episode of each."""

    def load_state(self, views: Views, state: Sequence[Mapping[str, Any]]) -> None:
        """Begins the episodes of a state again and repeats the actions in each."""

    def close(self) -> None:
        """Releases threads."""


class RemoteShare(ABC):
    """Environments `first` to `last` - 1 in another process; a command is started first and awaited later.

    Attributes:
        results: Arrays of the latest outcome, a row for each of them.
    """

    results: Views

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, last

    def __len__(self) -> int:
        return self.last - self.first

    @abstractmethod
    def step(self, actions: Ints) -> None:
        """Starts the actions of its environments among those of all."""

    @abstractmethod
    def call(self, method: str, *arguments: Any) -> None:
        """Starts a method of its share."""

    @abstractmethod
    def outcome(self) -> Any:
        """Waits until it is done; returns what its share did, an empty dictionary for nothing.

        Raises:
            BackendError: The process is lost or silent.
        """

    @abstractmethod
    def close(self) -> None:
        """Ends the process."""


class LocalShare(Share):
    """Environments that this process steps one after the other.

    Args:
        environments: Environments of hdsim, perhaps in wrappers of Gymnasium.
        same_step: The next episode begins in the step that ends the one before, otherwise with the next step.
    """

    def __init__(self, environments: Sequence[Any], same_step: bool) -> None:
        self._environments = environments
        self._same_step = same_step
        self._over = [False] * len(environments)
        self._before: list[Mapping[str, Any]] = [{}] * len(environments)

    def reset(self, views: Views, seeds: Sequence[int | None], options: Mapping[str, Any] | None) -> None:
        for i, seed in enumerate(seeds):
            self._begin(views, i, seed=seed, options=options)

    def step(self, views: Views, actions: Ints) -> dict[int, Ended]:
        ended: dict[int, Ended] = {}
        for i, (environment, action) in enumerate(zip(self._environments, actions.tolist(), strict=True)):
            if self._over[i]:
                self._begin(views, i)
                continue
            seen, views["reward"][i], terminated, truncated, info = environment.step(action)
            views["terminated"][i], views["truncated"][i] = terminated, truncated
            views["invalid_action"][i] = info.get("invalid_action", False)
            if not (terminated or truncated):
                _show(views, i, seen, info[MASK])
            elif self._same_step:
                ended[i] = Ended(info.get("metrics", {}), seen, info[MASK])
                _show(views, i, *self._reset(i))
            else:
                ended[i] = Ended(info.get("metrics", {}))
                self._over[i] = True
                _show(views, i, seen, info[MASK])
        return ended

    def state(self) -> list[Mapping[str, Any]]:
        return self._before

    def load_state(self, views: Views, state: Sequence[Mapping[str, Any]]) -> None:
        for i, (environment, kept) in enumerate(zip(self._environments, state, strict=True)):
            environment.np_random.bit_generator.state = kept["source"]
            environment.unwrapped.episodes.drawn = kept["drawn"]
            self._begin(views, i)
            for action in kept["actions"].tolist():
                seen, *_, info = environment.step(action)
                _show(views, i, seen, info[MASK])

    def close(self) -> None:
        """Does nothing: there are no threads."""

    def _begin(self, views: Views, i: int, **arguments: Any) -> None:
        self._over[i] = False
        views["reward"][i] = 0.0
        views["terminated"][i] = views["truncated"][i] = views["invalid_action"][i] = False
        _show(views, i, *self._reset(i, **arguments))

    def _reset(self, i: int, seed: int | None = None, options: Any = None) -> tuple[Any, Flags]:
        environment = self._environments[i]
        if seed is not None:
            environment.unwrapped.np_random = np.random.default_rng(seed)
        self._before[i] = {
            "drawn": environment.unwrapped.episodes.drawn,
            "source": environment.np_random.bit_generator.state,
        }
        seen, info = environment.reset(options=options)
        return seen, info[MASK]


def _show(views: Views, i: int, seen: Any, mask: Flags) -> None:
    views[MASK][i] = mask
    if isinstance(seen, dict):
        for name, array in seen.items():
            views[SEEN + name][i] = array
    else:
        views[SEEN][i] = seen
