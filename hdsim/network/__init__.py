"""The interface of network models, which compute durations of messages on shared links."""

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
    """Current load of the links of N nodes and K clusters; unlimited links have load 0."""

    up: NDArray[np.float64]  # (N,) byte/s that each node sends
    down: NDArray[np.float64]  # (N,) byte/s that each node receives
    global_up: NDArray[np.float64]  # (K,) byte/s that each cluster sends to the others
    global_down: NDArray[np.float64]  # (K,) byte/s that each cluster receives from the others


class Phase(Protocol):
    """Prepared messages of a network model, which can be started repeatedly."""

    @property
    def uncontended_time(self) -> float:
        """Duration of the messages on otherwise idle links, seconds."""

    def parallel_time(self, seconds: float) -> float:
        """Duration of a parallel task with these messages and `seconds` of computation on otherwise idle links."""


@runtime_checkable
class Network(Protocol):
    """A network model, created once per replay.

    A model is a class whose constructor has the platform and the settings of its file in ``conf/network`` as arguments.
    It has no clock: calls have the date as an argument, in ascending order. After the starts, advances and ends of an
    instant, :meth:`settle` returns the next date of every transfer whose date has changed; at that date,
    :meth:`advance` continues the transfer.
    """

    def __init__(self, platform: Platform) -> None: ...

    def __len__(self) -> int:
        """Number of active transfers."""

    def phase(self, messages: Iterable[Messages]) -> Any:
        """Prepares messages and returns a :class:`Phase` of this network."""

    def start_phase(self, key: Hashable, phase: Any, now: float) -> None:
        """Starts the messages of a phase as one transfer, which ends with the last message."""

    def start_parallel(self, key: Hashable, seconds: float, phase: Any, now: float) -> None:
        """Starts a parallel task of `seconds` of computation and the messages of a phase at one common rate."""

    def set_seconds(self, key: Hashable, seconds: float) -> None:
        """Changes the total computation time of a parallel task from the next `settle` on."""

    def advance(self, key: Hashable, now: float) -> bool:
        """Continues a transfer at the date of `settle`; True if it ends."""

    def end(self, key: Hashable, now: float) -> None:
        """Removes a transfer before its end."""

    def settle(self, now: float) -> Iterable[tuple[Hashable, float]]:
        """Returns (transfer, seconds until `advance`) for new transfers and transfers whose date has changed."""

    def link_load(self) -> LinkLoad:
        """Returns the current load of all links."""
