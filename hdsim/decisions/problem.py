"""A decision problem: one kind of action joined with one kind of observation."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

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
        self.core_policy = self.action.core_policy
        self.fixed_policy = self.action.fixed_policy and not self.observer.sees_cores
        self.core_policies = () if self.observer.sees_cores else self.action.core_policies

    def n_actions(self, platform: Platform) -> int:
        """A, the number of actions on a platform."""
        return self.action.size(platform)

    def arrays(self, platform: Platform) -> Array | dict[str, Array]:
        """Shape, type and range of an observation on a platform."""
        return self._observer.on(platform).arrays(platform)

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
        return self.observer.observe()

    def mask(self) -> Mask:
        """(A,) legal actions."""
        return self.action.mask()

    def act(self, action: int) -> None:
        """Carries out an action; a decision must be pending.

        Raises:
            DecisionError: The mask does not allow the action.
        """
        mask = self.action.mask()
        if not (0 <= action < len(mask) and mask[action]):
            allowed = mask.nonzero()[0].tolist()
            raise DecisionError(f"expected an action that the mask allows, one of {allowed}, got {action}")
        self.observer.before_action()
        self.action.act(int(action))
