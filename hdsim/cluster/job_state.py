"""States of jobs, and starts that failed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Self, SupportsIndex, TypeVar

import numpy as np
from numpy.typing import NDArray

from hdsim.errors import DecisionError

if TYPE_CHECKING:
    from hdsim.workload.model import Workload


T = TypeVar("T", float, int)
V = TypeVar("V")


#: The state of jobs in messages: only the backend changes it.
STATE_OF_JOBS = "cluster.queue, running, starting, starting_time, finish_time, state or requests"


class ReadOnlyError(DecisionError):
    """Something else than the backend has changed a `ReadOnlyList` or a `ReadOnlyDict`."""

    change = (
        f"has changed {STATE_OF_JOBS}: agents read the state and change it by cluster.start, cluster.reject and the "
        "other methods"
    )

    def __init__(self) -> None:
        super().__init__(f"something else than the backend {self.change}")


def _refused(*_: Any, **__: Any) -> NoReturn:
    raise ReadOnlyError


class ReadOnlyList(list[T]):
    """A value of each job that only the backend changes, by `write` and `grow`; an agent that does is refused."""

    __slots__ = ()

    write = list.__setitem__
    grow = list.extend
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refused
    append = clear = extend = insert = pop = remove = reverse = sort = _refused

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        # Others are made by `extend`.
        return ReadOnlyList, (self[:],)

    def __deepcopy__(self, memo: dict[int, Any]) -> ReadOnlyList[T]:
        """Returns a copy; the values are numbers."""
        return ReadOnlyList(self[:])  # from a list itself in half the time


class ReadOnlyDict(dict[int, V]):
    """Values of some jobs that only the backend changes, by these methods; see `ReadOnlyList`.

    `add` writes the value of a job that has none, in half the time of `write`.
    """

    __slots__ = ()

    add = dict.setdefault
    write = dict.__setitem__
    fill = dict.update
    take = dict.pop
    empty = dict.clear
    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refused

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return type(self), (dict(self.items()),)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Returns a copy; the values, placements and numbers, are immutable."""
        return type(self)(self)


class WaitingJobs(ReadOnlyDict[None]):
    """The queued jobs in order of submission, as keys; a loop over them may start jobs and fork the simulation."""

    __slots__ = ()

    latest_first = dict.__reversed__

    def __iter__(self) -> Iterator[int]:
        """Iterates over the jobs that are queued when the loop begins."""
        return iter(list(dict.keys(self)))

    def __reversed__(self) -> Iterator[int]:
        return reversed(list(dict.keys(self)))

    def keys(self) -> Any:
        """The jobs that are queued now."""
        return dict.fromkeys(self).keys()

    def values(self) -> Any:
        """One None for each job that is queued now."""
        return dict.fromkeys(self).values()

    def items(self) -> Any:
        """The jobs that are queued now, with None each."""
        return dict.fromkeys(self).items()

    def __deepcopy__(self, memo: dict[int, Any]) -> WaitingJobs:
        # As dicts without a loop of their own, which are copied in half the time.
        self.__class__ = ReadOnlyDict  # type: ignore[assignment]
        try:
            copied: Any = ReadOnlyDict(self)
            # Jobs that have left leave gaps, with which a copy takes ten times as long: the next one finds none.
            self.empty()
            self.fill(copied)
        finally:
            self.__class__ = WaitingJobs
        copied.__class__ = WaitingJobs
        made: WaitingJobs = copied
        return made

    def __repr__(self) -> str:
        return str(list(self))


class FinalState(IntEnum):
    """State of a job; the names are Batsim's where Batsim has one."""

    NOT_SUBMITTED = 0
    QUEUED = 1
    RUNNING = 2
    COMPLETED_SUCCESSFULLY = 3
    COMPLETED_FAILED = 4
    COMPLETED_WALLTIME_REACHED = 5
    COMPLETED_KILLED = 6
    REJECTED = 7
    STARTING = 8
    HELD = 9
    SUSPENDED = 10


#: States of jobs that have not ended and never will, once a replay is over.
UNFINISHED = (
    FinalState.NOT_SUBMITTED,
    FinalState.QUEUED,
    FinalState.RUNNING,
    FinalState.STARTING,
    FinalState.HELD,
    FinalState.SUSPENDED,
)


def completed(workload: Workload) -> NDArray[np.int8]:
    """(J,) final state of jobs that run to their own ends."""
    success, failure = FinalState.COMPLETED_SUCCESSFULLY, FinalState.COMPLETED_FAILED
    return np.where(workload.return_code == 0, success, failure).astype(np.int8)


class FailedStart(NamedTuple):
    """A start that the backend has refused."""

    job: int
    requested: float  # s, when the scheduler asked for it
    refused: float  # s
    reason: str


class JobView(NamedTuple):
    """A job as a scheduler sees it at one instant.

    Attributes:
        id: Its id in the trace.
        state: Its state.
        cores: Requested cores, of quantities the number of pods.
        gpus: Requested GPUs.
        submission_time: Submission in seconds.
        requested_time: Seconds that it is expected to take at reference speed.
        user: Number of its user, -1 if unknown.
        starting_time: Its last start in seconds, NaN before the first.
        nodes: Names of the nodes that it holds cores of.
        extra: Its further fields in the trace, by name.
    """

    id: int | str
    state: FinalState
    cores: float
    gpus: int
    submission_time: float
    requested_time: float
    user: int
    starting_time: float
    nodes: tuple[str, ...]
    extra: Mapping[str, Any]
