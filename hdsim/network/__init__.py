"""Network models: how long the messages of jobs take that share the links of a platform. One file a model."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from hdsim.network.fluid import LinkLoad
    from hdsim.platform import Platform


@runtime_checkable
class Network(Protocol):
    """A network model, made once a replay for one platform.

    A model is a class in a file of its own whose constructor takes the platform (and the settings of its file in
    ``conf/network``). It keeps no clock: every call names the date, and dates never go back. After starts, advances
    and ends of an instant, :meth:`settle` tells what is next for every transfer whose date has moved; when that date
    has come, :meth:`advance` takes the transfer a step on.
    """

    def __init__(self, platform: Platform) -> None: ...

    def start(self, key: Hashable, source: int, target: int, volume: float, now: float) -> None:
        """Starts a message of `volume` bytes from node `source` to node `target`."""

    def start_phase(self, key: Hashable, messages: Iterable[tuple[int, int, float]], now: float) -> None:
        """Starts messages (source, target, bytes) at once as one transfer that ends with the last of them."""

    def start_parallel(
        self, key: Hashable, seconds: float, messages: Iterable[tuple[int, int, float]], now: float
    ) -> None:
        """Starts a task that computes for `seconds` if alone while it sends its messages, all at one pace."""

    def set_seconds(self, key: Hashable, seconds: float) -> None:
        """Changes the time that the whole computation of a parallel task takes if alone."""

    def advance(self, key: Hashable, now: float) -> bool:
        """Takes a transfer over the date that `settle` gave for it; True when it has ended and is gone."""

    def end(self, key: Hashable, now: float) -> None:
        """Removes a transfer before its end."""

    def settle(self, now: float) -> Iterator[tuple[Hashable, float]]:
        """Yields (transfer, seconds until `advance` is due) for every new transfer and every one whose date moved."""

    def link_load(self) -> LinkLoad:
        """Returns the present load of all links."""
