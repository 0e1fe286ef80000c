"""Network models: how long the messages of jobs take that share the links of a platform. One file a model."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from hdsim.platform.model import Platform


#: (source node, target node, bytes of each message, number of messages)
Messages = tuple[int, int, float, int]


@dataclass(frozen=True, eq=False)
class LinkLoad:
    """Present load of the links of N nodes and K clusters; a link without limit counts as 0.

    Attributes:
        up: (N,) byte/s that each node sends.
        down: (N,) byte/s that each node receives.
        global_up: (K,) byte/s that each cluster sends to the others.
        global_down: (K,) byte/s that each cluster receives from the others.
    """

    up: NDArray[np.float64]
    down: NDArray[np.float64]
    global_up: NDArray[np.float64]
    global_down: NDArray[np.float64]


class Phase(Protocol):
    """Messages made ready by a network model, to be started as often as one likes."""

    @property
    def uncontended_time(self) -> float:
        """Seconds that the messages take if nobody else uses their links."""

    def parallel_time(self, seconds: float) -> float:
        """Seconds that a parallel task takes that sends these messages and computes for `seconds`, if alone as well."""


@runtime_checkable
class Network(Protocol):
    """A network model, made once a replay for one platform.

    A model is a class in a file of its own whose constructor takes the platform (and the settings of its file in
    ``conf/network``). It keeps no clock: every call names the date, and dates never go back. After starts, advances
    and ends of an instant, :meth:`settle` tells what is next for every transfer whose date has moved; when that date
    has come, :meth:`advance` takes the transfer a step on.
    """

    def __init__(self, platform: Platform) -> None: ...

    def __len__(self) -> int:
        """Transfers under way."""

    def phase(self, messages: Iterable[Messages]) -> Any:
        """Makes messages ready; what it returns is a :class:`Phase` that only this network can start."""

    def start_phase(self, key: Hashable, phase: Any, now: float) -> None:
        """Starts the messages of a phase at once as one transfer that ends with the last of them."""

    def start_parallel(self, key: Hashable, seconds: float, phase: Any, now: float) -> None:
        """Starts a task that computes for `seconds` if alone and sends the messages of a phase, all at one pace."""

    def set_seconds(self, key: Hashable, seconds: float) -> None:
        """Changes, from the next `settle` on, the time that the whole computation of a parallel task takes if alone."""

    def advance(self, key: Hashable, now: float) -> bool:
        """Takes a transfer over the date that `settle` gave for it; True when it has ended and is gone."""

    def end(self, key: Hashable, now: float) -> None:
        """Removes a transfer before its end."""

    def settle(self, now: float) -> Iterable[tuple[Hashable, float]]:
        """Gives (transfer, seconds until `advance` is due) for every new transfer and every one whose date moved."""

    def link_load(self) -> LinkLoad:
        """Returns the present load of all links."""
