"""Interface of the clocks of the backend."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hdsim.backends.kwok.members import Record
    from hdsim.backends.kwok.nodes import MirroredNodes
    from hdsim.backends.kwok.sender import Sender
    from hdsim.cluster.state import Cluster
    from hdsim.errors import BackendError
    from hdsim.kubernetes.cache import Cache


class Session(ABC):
    """The pods of a run and the API server that they are on."""

    cluster: Cluster
    sender: Sender  # sends bindings and events
    caches: Sequence[Cache[Any]] = ()  # copies of objects of the API server
    heard: float  # monotonic time of the last sign of progress in seconds
    decisions: int = 0  # number of pods that were decided on
    nodes: MirroredNodes  # the nodes, from `start` on
    spare: int = 0  # number of spare nodes at the end of the platform; to be set before `start`
    trains: bool = False  # the jobs are those of an episode of a training; to be set before `start`
    warnings: Sequence[str] = ()  # findings of the start, such as pods of others on the nodes; empty texts are none

    @property
    @abstractmethod
    def records(self) -> Sequence[Record]:
        """The pods that have arrived, in no order."""

    @property
    @abstractmethod
    def bindings(self) -> int:
        """Number of pods that were bound."""

    @abstractmethod
    def start(self) -> None:
        """Reads the API server's state; called once before the first event."""

    @abstractmethod
    def advance(self) -> bool:
        """See :meth:`hdsim.backends.base.Backend.advance`."""

    @abstractmethod
    def apply(self) -> None:
        """See :meth:`hdsim.backends.base.Backend.apply`."""

    @abstractmethod
    def lose(self, reason: BackendError) -> None:
        """Ends the run, and stops binding at once; called in the thread of the connection."""

    @abstractmethod
    def discard(self) -> None:
        """Ends an episode of a training: deletes the pods that it has created, and forgets the others."""

    def end(self) -> None:  # noqa: B027 - a clock of its own has nothing to wait for
        """Waits for what the API server has not yet answered; called once after the last event, also after a signal."""
