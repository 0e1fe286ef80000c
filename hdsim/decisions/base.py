"""Interfaces of actions, observations and objectives, and checks of settings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hdsim.errors import ConfigError, not_one_of
from hdsim.util.arrays import Flags, Floats

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.decisions.wait_queue import WaitQueue
    from hdsim.platform.model import Platform

Mask = Flags
Observation = NDArray[np.float32] | dict[str, NDArray[Any]]


class Array(NamedTuple):
    """Shape and type of an observation's array; its values lie in 0..high.

    Attributes:
        shape: Lengths of its axes.
        dtype: Type of its numbers.
        high: Largest value.
    """

    shape: tuple[int, ...]
    dtype: type = np.float32
    high: float = 1.0


class Action(ABC):
    """A kind of action: an integer in 0..size - 1 selects one action.

    Attributes:
        core_policy: Core policy of the cluster.
        fixed_policy: The action uses no other core policy and no node limits.
        core_policies: Core policies the action uses, without node limits; empty for any.
        has_void: The last action starts no job.
        needs_site: The jobs have to be those of a site, whose rules hold.
        needs_power: Nodes have to sleep and wake, as with ``power=states``.
    """

    core_policy: str = "high_gflops"
    fixed_policy: bool = False
    core_policies: Collection[str] = ()
    has_void: bool = False
    needs_site: bool = False
    needs_power: bool = False

    @abstractmethod
    def size(self, platform: Platform) -> int:
        """Number of actions."""

    @abstractmethod
    def begin(self, cluster: Cluster, wait_queue: WaitQueue) -> None:
        """Called before the first event of a replay, or where an agent takes over and jobs run already."""

    def on_instant(self) -> None:  # noqa: B027 - many need no call
        """Called once per instant, after the wait queue has added the submitted jobs."""

    @abstractmethod
    def pending(self) -> bool:
        """Whether a decision is due at this instant."""

    @abstractmethod
    def mask(self) -> Mask:
        """(size,) legal actions; the array is valid until the next call."""

    @abstractmethod
    def act(self, action: int) -> None:
        """Carries out an action that the mask allows."""


class Observer(ABC):
    """A kind of observation.

    Attributes:
        sees_cores: The observation depends on the location of idle cores, memory or bandwidth.
        needs_core_ids: The observation depends on single cores, processors or links, or on counts of whole cores.
        needs_site: The observation is of what the scheduler of a site knows, for an action that needs one.
    """

    sees_cores: bool = False
    needs_core_ids: bool = False
    needs_site: bool = False

    def on(self, platform: Platform) -> Observer:
        """The observer for a platform: this one, unless the observation differs by the kind of the platform."""
        return self

    @abstractmethod
    def arrays(self, platform: Platform) -> Array | dict[str, Array]:
        """Shapes and types of the arrays of `observe`."""

    @abstractmethod
    def begin(self, cluster: Cluster, wait_queue: WaitQueue) -> None:
        """Called before the first event of a replay, or where an agent takes over and jobs run already.

        The observations after it depend on the state and the past of the cluster, not on when it was called.
        """

    def on_instant(self) -> None:  # noqa: B027 - many need no call
        """Called once per instant, after the wait queue has added the submitted jobs and before the first decision."""

    def before_action(self) -> None:  # noqa: B027 - many need no call
        """Called before the action chosen for the latest observation is carried out."""

    def started(self, jobs: Iterable[int]) -> None:  # noqa: B027 - many need no call
        """Called after an action with the jobs that it has started, in order."""

    def end_of_pass(self) -> None:  # noqa: B027 - many need no call
        """Called after the last decision of an instant."""

    @abstractmethod
    def observe(self) -> Observation:
        """Returns the present state in new arrays."""


class ObjectiveSetup(Protocol):
    """The parts of an episode that an objective sees, of :class:`hdsim.simulation.setup.ReplaySetup`.

    Attributes:
        cluster: The cluster.
        contention: The contention model, None without one.
        infeasible: Jobs that are rejected.
    """

    @property
    def cluster(self) -> Cluster: ...
    @property
    def contention(self) -> object: ...
    @property
    def infeasible(self) -> Collection[int]: ...


class Decisions(Protocol):
    """The part of a :class:`hdsim.decisions.DecisionProblem` that objectives see.

    Attributes:
        wait_queue: The queue shared by action and observer.
    """

    @property
    def wait_queue(self) -> WaitQueue: ...


class Objective(ABC):
    """Rewards of one objective.

    An environment calls `begin`; then `on_instant` at every instant before the first decision, `after_action` after
    every action, `end_of_pass` before time advances, and `reward` once an action. The simulation calls `on_change`.

    Args:
        integrated: Integrals over the time between decisions instead of values right after them.

    Attributes:
        metric: Metric of a replay that it optimises; None: ``train.metric`` names it.
        only_action: The only kind of action that it is for, None for any.
        needs_core_ids: The objective depends on the busy cores of processors.
        needs_dates: The objective depends on the dates at which the simulation expects jobs to end.
        needs_known_jobs: All jobs of an episode must be known at its start.
        signal: Series that the facility must have, ``price`` or ``carbon``; None for none.
        dates: The date of each running job in seconds.
    """

    metric: ClassVar[str | None] = None
    only_action: ClassVar[str | None] = None
    needs_core_ids: ClassVar[bool] = False
    needs_dates: ClassVar[bool] = False
    needs_known_jobs: ClassVar[bool] = False
    signal: ClassVar[str | None] = None
    dates: Mapping[int, float]

    def __init__(self, integrated: bool) -> None:
        self.integrated = integrated

    @classmethod
    def sees_cores(cls, platform: Platform) -> bool:
        """Whether the objective depends on the location of idle cores."""
        return False

    def begin(self, setup: ObjectiveSetup, problem: Decisions) -> None:
        """Called before the first event of an episode."""
        self.cluster = setup.cluster
        self.problem = problem

    def on_instant(self) -> None:  # noqa: B027 - many need no call
        """Called at a new instant, whose events are in the cluster."""

    def after_action(self, action: int) -> None:  # noqa: B027 - many need no call
        """Called after an action."""

    def end_of_pass(self) -> None:  # noqa: B027 - many need no call
        """Called after the last decision of an instant."""

    def on_change(self) -> None:  # noqa: B027 - many need no call
        """Called after changes of jobs and nodes, those at instants without decisions included."""

    @abstractmethod
    def reward(self, over: bool) -> float:
        """The reward since the last call; `over` at the end of the episode, also where it is truncated."""


class FreeShares:
    """Free resources as shares of their capacities, in 0..1; 1 without a limit, 0 if overcommitted.

    Args:
        capacity: (R,) capacity of each resource, infinite for no limit.
    """

    def __init__(self, capacity: Floats) -> None:
        self._capacity = capacity
        limited = np.isfinite(capacity)
        self._limited = None if limited.all() else limited
        self._shares = np.ones(len(capacity))
        self._none = np.zeros(len(capacity), np.float32)

    def write(self, free: Floats, out: NDArray[np.float32]) -> None:
        """Writes the shares into an array."""
        if self._limited is None:
            np.divide(free, self._capacity, out=self._shares)
        else:
            np.divide(free, self._capacity, out=self._shares, where=self._limited)
        # numpy.maximum is several times as fast on arrays of one type.
        out[:] = self._shares
        np.maximum(out, self._none, out=out)


def oversubscription_limit(platform: Platform) -> Floats:
    """(P,) free bandwidth, GB/s, below which a processor is oversubscribed: 0 with a tolerance for rounding."""
    return np.where(np.isfinite(platform.mem_bw), -1e-12 * platform.mem_bw, 0.0)


def more_events(cluster: Cluster) -> bool:
    """Whether further events will occur if no job is started now."""
    return bool(cluster.running or cluster.down) or cluster.expects_jobs


def relative_to_largest(values: NDArray[Any]) -> NDArray[Any]:
    """Divides values by the largest finite one; infinite values give 1, all zeros give 0."""
    largest = np.max(values, where=np.isfinite(values), initial=0.0)
    return np.where(np.isfinite(values), values / largest if largest > 0 else 0.0, 1.0)


def one_of(key: str, value: str, allowed: Iterable[str]) -> str:
    """Returns a setting after checking it against the allowed words.

    Raises:
        ConfigError: The setting is none of them.
    """
    allowed = list(allowed)
    if value not in allowed:
        raise ConfigError(not_one_of(value, allowed), where=f"env.{key}")
    return value


def positive_int(key: str, value: Any) -> int:
    """Returns a setting after checking that it is an integer of at least 1.

    Raises:
        ConfigError: The setting is not.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ConfigError(f"expected a whole number >= 1, got {value!r}", where=f"env.{key}")
    return int(value)
