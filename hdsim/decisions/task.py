"""A task: one kind of action joined with one kind of observation."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hdsim.decisions.hdeeprm import Minimal, Normal, Small
from hdsim.decisions.job import PickJob
from hdsim.decisions.jobs import Jobs
from hdsim.decisions.parts import Action, Array, Mask, Observation, Observer
from hdsim.decisions.policy_pair import PolicyPair
from hdsim.decisions.waiting import Waiting
from hdsim.errors import ConfigError, DecisionError, nearest

if TYPE_CHECKING:
    from hdsim.platform import Platform
    from hdsim.state import Cluster

ACTIONS: dict[str, type[Action]] = {"policy_pair": PolicyPair, "job": PickJob}
OBSERVATIONS: dict[str, type[Observer]] = {"normal": Normal, "small": Small, "minimal": Minimal, "jobs": Jobs}


class Task:
    """What an agent decides and what it sees.

    A replay goes ``begin``, then at every instant with news::

        while task.pending():
            task.act(choose(task.observe(), task.mask()))

    `pending` is to be asked until it says False, at every instant: that is how the task learns of what has happened.

    Attributes:
        settings: Everything the task was made from; ``Task(**task.settings)`` is an equal one.
        action: The kind of action.
        observer: The kind of observation.
        core_policy: Core policy the cluster must have.
        fixed_policy: The cluster may keep its cores in the quicker form (see :class:`hdsim.state.Cluster`).

    Args:
        action: ``policy_pair``, ``job`` or ``node``.
        observation: ``normal``, ``small``, ``minimal``, ``jobs``, ``nodes`` or ``graph``.
        **settings: Settings of the two; each goes to whichever knows it (``queue_size`` to both `job` and `jobs`).

    Raises:
        ConfigError: An unknown kind or setting, or settings that exclude each other.
    """

    def __init__(self, action: str = "policy_pair", observation: str = "minimal", **settings: Any) -> None:
        makers = (_kind("action", action, ACTIONS), _kind("observation", observation, OBSERVATIONS))
        known = [list(inspect.signature(maker).parameters) for maker in makers]
        for key in settings:
            allowed = sorted({*known[0], *known[1]})
            if key not in allowed:
                raise ConfigError(
                    f"unknown setting of action {action} and observation {observation}{nearest(key, allowed)}; "
                    f"allowed: {', '.join(allowed)}",
                    where=f"env.{key}",
                )
        self.settings: dict[str, Any] = {"action": action, "observation": observation, **settings}
        self.action: Action
        self.observer: Observer
        self.action, self.observer = (
            maker(**{key: settings[key] for key in keys if key in settings})
            for maker, keys in zip(makers, known, strict=True)
        )
        self.core_policy = self.action.core_policy
        self.fixed_policy = self.action.fixed_policy and not self.observer.sees_cores

    def n_actions(self, platform: Platform) -> int:
        """A, the number of actions on a platform."""
        return self.action.size(platform)

    def arrays(self, platform: Platform) -> Array | dict[str, Array]:
        """Shape, type and range of an observation on a platform."""
        return self.observer.arrays(platform)

    def begin(self, cluster: Cluster) -> None:
        """To be called before the first event of a replay."""
        self._waiting = Waiting(cluster)
        self._at_instant = False
        self.action.begin(cluster, self._waiting)
        self.observer.begin(cluster, self._waiting)

    def pending(self) -> bool:
        """Whether a decision is due at this instant."""
        if not self._at_instant:
            self._at_instant = True
            self._waiting.news()
            self.observer.news()
            self.action.news()
            self.observer.acted()
        self._at_instant = self.action.pending()
        return self._at_instant

    def observe(self) -> Observation:
        """The state as the agent sees it: a float32 array, or a dict of arrays."""
        return self.observer.observe()

    def mask(self) -> Mask:
        """(A,) actions that can be carried out now."""
        return self.action.mask()

    def act(self, action: int) -> None:
        """Carries out a decision that is pending.

        Raises:
            DecisionError: The mask does not allow the action.
        """
        mask = self.action.mask()
        if not (0 <= action < len(mask) and mask[action]):
            allowed = mask.nonzero()[0].tolist()
            raise DecisionError(f"expected an action that the mask allows, one of {allowed}, got {action}")
        self.observer.acting()
        self.action.act(int(action))
        self.observer.acted()


def _kind(group: str, name: str, kinds: Mapping[str, type[Any]]) -> type[Any]:
    if name not in kinds:
        raise ConfigError(
            f"expected one of {', '.join(kinds)}, got '{name}'{nearest(name, kinds)}", where=f"env.{group}"
        )
    return kinds[name]
