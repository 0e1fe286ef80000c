"""What a kind of action and a kind of observation must offer."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.errors import ConfigError, nearest
from hdsim.util.arrays import Floats

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.decisions.wait_queue import WaitQueue
    from hdsim.platform.model import Platform

Mask = NDArray[np.bool_]
Observation = NDArray[np.float32] | dict[str, NDArray[Any]]


class Array(NamedTuple):
    """An array of an observation; its values lie in 0..high.

    Attributes:
        shape: Lengths of its axes.
        dtype: Type of its numbers.
        high: Largest value.
    """

    shape: tuple[int, ...]
    dtype: type = np.float32
    high: float = 1.0


class Action:
    """A kind of action: a whole number below `size` says what happens at a decision.

    Attributes:
        core_policy: Core policy of the cluster.
        fixed_policy: The action never asks for another core policy nor for nodes.
        core_policies: Never for others than these nor for nodes, where there are several.
    """

    core_policy: str = "high_gflops"
    fixed_policy: bool = False
    core_policies: Collection[str] = ()

    def size(self, platform: Platform) -> int:
        """Number of actions."""
        raise NotImplementedError

    def begin(self, cluster: Cluster, wait_queue: WaitQueue) -> None:
        """Called before the first event of a replay."""
        raise NotImplementedError

    def on_instant(self) -> None:
        """Called once an instant, after the queue has taken in what arrived."""

    def pending(self) -> bool:
        """Whether there is something to decide now."""
        raise NotImplementedError

    def mask(self) -> Mask:
        """(size,) actions that can be carried out now; the caller does not keep it."""
        raise NotImplementedError

    def act(self, action: int) -> None:
        """Carries out an action that the mask allows."""
        raise NotImplementedError


class Observer:
    """A kind of observation.

    Attributes:
        sees_cores: The observation tells where idle cores, memory or bandwidth are.
    """

    sees_cores: bool = False

    def arrays(self, platform: Platform) -> Array | dict[str, Array]:
        """What `observe` returns."""
        raise NotImplementedError

    def begin(self, cluster: Cluster, wait_queue: WaitQueue) -> None:
        """Called before the first event of a replay."""
        raise NotImplementedError

    def on_instant(self) -> None:
        """Called once an instant, after the queue has taken in what arrived and before anything is decided."""

    def before_action(self) -> None:
        """Called right before the decision that followed the latest observation is carried out."""

    def after_action(self) -> None:
        """Called after jobs may have been started, which are in ``cluster.started``."""

    def end_of_pass(self) -> None:
        """Called when everything is decided at this instant."""

    def observe(self) -> Observation:
        """The state now, in arrays of its own."""
        raise NotImplementedError


class FreeShares:
    """What is free of resources as shares of 0..1; what has no limit is all free, what is overdrawn not at all.

    Args:
        capacity: Capacity of each.
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
        # Arrays of one type each, which numpy goes through several times as fast.
        out[:] = self._shares
        np.maximum(out, self._none, out=out)


def oversubscription_limit(platform: Platform) -> Floats:
    """(P,) free memory bandwidth of a processor, GB/s, below which it is oversubscribed: 0 but for roundings."""
    return np.where(np.isfinite(platform.mem_bw), -1e-12 * platform.mem_bw, 0.0)


def more_events(cluster: Cluster) -> bool:
    """Whether time will bring news even if nothing is started now."""
    return bool(cluster.running or cluster.down) or cluster.expects_jobs


def relative_to_largest(values: NDArray[Any]) -> NDArray[Any]:
    """Values as shares of the largest; what is unlimited counts as 1, and nothing but zeros as 0."""
    largest = np.max(values, where=np.isfinite(values), initial=0.0)
    return np.where(np.isfinite(values), values / largest if largest > 0 else 0.0, 1.0)


def one_of(key: str, value: str, allowed: Iterable[str]) -> str:
    """Returns a setting that is one of some words.

    Raises:
        ConfigError: It is none of them.
    """
    allowed = list(allowed)
    if value not in allowed:
        raise ConfigError(
            f"expected one of {', '.join(allowed)}, got '{value}'{nearest(str(value), allowed)}", where=f"env.{key}"
        )
    return value


def positive_int(key: str, value: int) -> int:
    """Returns a setting that is a whole number of at least 1.

    Raises:
        ConfigError: It is not.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"expected a whole number >= 1, got {value!r}", where=f"env.{key}")
    return value
