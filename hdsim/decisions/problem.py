"""A decision problem: one kind of action joined with one kind of observation."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.decisions.base import Action, Array, Mask, Observation, Observer
from hdsim.decisions.episode_settings import check_names
from hdsim.decisions.kinds import ACTIONS, OBSERVATIONS
from hdsim.decisions.wait_queue import WaitQueue
from hdsim.errors import ConfigError, DecisionError
from hdsim.util.rules import texts

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.platform.model import Platform


class DecisionProblem:
    """The actions and observations of an agent.

    A replay calls ``begin``, then at every instant with events::

        while problem.pending():
            problem.act(choose(problem.observe(), problem.mask()))

    `pending` must be called at every instant until it returns False: it updates the wait queue and the observer.

    Attributes:
        settings: All settings; ``DecisionProblem(**problem.settings)`` is an equal problem.
        action: The kind of action.
        observer: The kind of observation.
        core_policy: Core policy the cluster must have.
        wait_queue: The queue shared by action and observer.
        fixed_policy: See :class:`hdsim.cluster.state.Cluster`.
        core_policies: See :class:`hdsim.cluster.state.Cluster`.

    Args:
        action: A name, file or class of :data:`hdsim.decisions.kinds.ACTIONS`.
        observation: A name, file or class of :data:`hdsim.decisions.kinds.OBSERVATIONS`.
        **settings: Settings of action and observation. A setting of both (``queue_size``) has one value, by default the
            action's.

    Raises:
        ConfigError: A kind or setting is unknown, or settings exclude each other.
    """

    def __init__(self, action: str = "policy_pair", observation: str = "minimal", **settings: Any) -> None:
        action, observation = texts(action), texts(observation)
        check_names({"action": action, "observation": observation, **settings})
        makers = ACTIONS.find(action), OBSERVATIONS.find(observation)
        known = [inspect.signature(maker).parameters for maker in makers]
        for key in known[0].keys() & known[1].keys():
            settings.setdefault(key, known[0][key].default)
        self.settings: dict[str, Any] = {"action": action, "observation": observation, **settings}
        given = [{key: settings[key] for key in keys if key in settings} for keys in known]
        self.action: Action = ACTIONS.construct(makers[0], action, **given[0])
        self.observer: Observer = OBSERVATIONS.construct(makers[1], observation, **given[1])
        if self.observer.needs_site and not self.action.needs_site:
            expected = " or ".join(name for name, each in ACTIONS.classes().items() if each.needs_site)
            raise ConfigError(f"expected {expected} with observation {observation}, got {action}", where="env.action")
        if self.action.needs_site and observation in OBSERVATIONS.bundled and not self.observer.needs_site:
            expected = " or ".join(name for name, each in OBSERVATIONS.classes().items() if each.needs_site)
            raise ConfigError(f"expected {expected} with action {action}, got {observation}", where="env.observation")
        self._observer = self.observer
        # Kinds of a user's own, whose returned arrays are checked.
        self._own_action, self._own_observation = action not in ACTIONS.bundled, observation not in OBSERVATIONS.bundled
        self.core_policy = self.action.core_policy
        self.fixed_policy = self.action.fixed_policy and not self.observer.sees_cores
        self.core_policies = () if self.observer.sees_cores else self.action.core_policies

    def n_actions(self, platform: Platform) -> int:
        """A, the number of actions on a platform."""
        number: Any = self.action.size(platform)
        if type(number) is bool or not isinstance(number, int | np.integer) or number < 1:
            told = f"expected a number of actions from {type(self.action).__name__}.size, got {number!r}"
            raise ConfigError(told, where="env.action")
        return int(number)

    def arrays(self, platform: Platform) -> Array | dict[str, Array]:
        """Shape, type and range of an observation on a platform."""
        observer = self._observer.on(platform)
        arrays: Any = observer.arrays(platform)
        each = arrays.values() if isinstance(arrays, dict) else [arrays]
        if not all(isinstance(one, Array) and all(length >= 0 for length in one.shape) for one in each):
            told = f"expected an Array, or a dict of them, from {type(observer).__name__}.arrays, got {arrays!r}"
            raise ConfigError(told, where="env.observation")
        return arrays

    def begin(self, cluster: Cluster) -> None:
        """Prepares a replay; called before its first event, or where an agent takes over.

        Raises:
            ConfigError: The backend's cores have no ids, which the observation needs.
        """
        self.observer = self._observer.on(cluster.platform)
        if self.observer.needs_core_ids and not cluster.has_core_ids:
            usable = ", ".join(name for name, each in OBSERVATIONS.classes().items() if not each.needs_core_ids)
            raise ConfigError(
                f"expected one of {usable} on a backend without core ids, got {self.settings['observation']}",
                where="env.observation",
            )
        self.wait_queue = WaitQueue(cluster)
        self._cluster = cluster
        self._expected = self.arrays(cluster.platform) if self._own_observation else {}
        self._actions = self.n_actions(cluster.platform) if self._own_action else 0
        self._at_instant = False
        self.action.begin(cluster, self.wait_queue)
        self.observer.begin(cluster, self.wait_queue)

    def pending(self) -> bool:
        """Whether a decision is due at this instant."""
        if not self._at_instant:
            self._at_instant = True
            self._observed_starts = 0
            self.wait_queue.on_instant()
            self.observer.on_instant()
            self.action.on_instant()
        self._at_instant = self.action.pending()
        started = self._cluster.started
        if len(started) > self._observed_starts:
            self.observer.started(started[self._observed_starts :])
            self._observed_starts = len(started)
        if not self._at_instant:
            self.observer.end_of_pass()
        return self._at_instant

    def observe(self) -> Observation:
        """The present observation: a float32 array, or a dict of arrays."""
        found = self.observer.observe()
        return self._checked(found) if self._own_observation else found

    def mask(self) -> Mask:
        """(A,) legal actions.

        Raises:
            ConfigError: An action of a user's own does not say of each whether it is legal.
        """
        mask = self.action.mask()
        if not self._own_action:
            return mask
        found = np.asarray(mask)
        if found.shape != (self._actions,) or found.dtype.kind not in "biuf":
            told = f"expected {self._actions} truth values from {type(self.action).__name__}.mask, got {mask!r}"
            raise ConfigError(told, where="env.action")
        return found.astype(bool)

    def act(self, action: int) -> None:
        """Carries out an action; a decision must be pending.

        Raises:
            DecisionError: The mask does not allow the action.
        """
        mask = self.mask()
        if not (0 <= action < len(mask) and mask[action]):
            allowed = mask.nonzero()[0].tolist()
            raise DecisionError(f"expected an action that the mask allows, one of {allowed}, got {action}")
        self.observer.before_action()
        self.action.act(int(action))

    def _checked(self, found: Any) -> Observation:
        """Returns an observation of a user's own in the types that it has announced.

        Raises:
            ConfigError: It has other arrays, or numbers that are not finite.
        """
        name, expected = type(self.observer).__name__, self._expected
        if not isinstance(expected, dict):
            return _array_of(found, expected, name)
        if not isinstance(found, dict) or found.keys() != expected.keys():
            told = f"expected arrays {', '.join(expected)} from {name}.observe, got {found!r}"
            raise ConfigError(told, where="env.observation")
        return {key: _array_of(found[key], array, f"{name}: {key}") for key, array in expected.items()}


def _array_of(found: Any, expected: Array, name: str) -> np.ndarray:
    """Returns an array of an observation, whose numbers are finite; ConfigError if it has another shape."""
    try:
        # A copy: an observer may write its next state into the same array.
        array: np.ndarray = np.array(found, expected.dtype)
    except (TypeError, ValueError):
        array = np.full((), np.nan)
    if array.shape != tuple(expected.shape) or not np.isfinite(array).all():
        told = f"expected finite numbers of shape {tuple(expected.shape)} from {name}, got {found!r}"
        raise ConfigError(told, where="env.observation")
    return array
