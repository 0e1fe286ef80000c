"""What a kind of action and a kind of observation must offer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from hdsim.decisions.waiting import Waiting
    from hdsim.platform import Platform
    from hdsim.state import Cluster

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
    """

    core_policy: str = "high_gflops"
    fixed_policy: bool = False

    def size(self, platform: Platform) -> int:
        """Number of actions."""
        raise NotImplementedError

    def begin(self, cluster: Cluster, waiting: Waiting) -> None:
        """Called before the first event of a replay."""
        raise NotImplementedError

    def news(self) -> None:
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

    def begin(self, cluster: Cluster, waiting: Waiting) -> None:
        """Called before the first event of a replay."""
        raise NotImplementedError

    def news(self) -> None:
        """Called once an instant, after the queue has taken in what arrived."""

    def acting(self) -> None:
        """Called right before the decision that followed the latest observation is carried out."""

    def observe(self) -> Observation:
        """The state now, in arrays of its own."""
        raise NotImplementedError
