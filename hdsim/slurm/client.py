"""The interface of clients of a slurmctld."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import ClassVar

from hdsim.errors import BackendError
from hdsim.slurm.objects import Demand, Held, Release, SlurmJob, SlurmNode, Submission


class NoAnswer(BackendError):
    """slurmctld has not answered a request, which it may have carried out or not."""


class Refused(BackendError):
    """slurmctld has refused a request."""


class Client(ABC):
    """A client. Every method may raise `NoAnswer`; those that change something may raise `Refused`.

    Attributes:
        name: Name of the program that answers, for messages.
        by_features: Nodes are named by features: each node needs its own name as one.
        calls: Number of requests of each kind.
    """

    name: str
    by_features: ClassVar[bool] = False

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    @abstractmethod
    def time(self) -> int:
        """Returns the second since 1970 on slurmctld's clock."""

    @abstractmethod
    def jobs(self, since: int) -> Sequence[SlurmJob] | None:
        """Returns all jobs, or None if none of them has changed since a second of slurmctld's clock."""

    @abstractmethod
    def nodes(self) -> Sequence[SlurmNode]:
        """Returns all nodes."""

    @abstractmethod
    def demand(self, job: int, names: frozenset[str]) -> Demand:
        """Returns the request of a job; `names` are those of the nodes."""

    @abstractmethod
    def held_on(self, job: int) -> Mapping[str, Held]:
        """Returns what a running job has on each of its nodes."""

    @abstractmethod
    def submit(self, job: Submission) -> int:
        """Submits a held job and returns its id."""

    @abstractmethod
    def release(self, release: Release) -> None:
        """Gives a held job its nodes and releases it."""

    @abstractmethod
    def hold(self, job: int, required: tuple[str, ...] = ()) -> None:
        """Holds a pending job; `required` are the nodes that its user has asked for."""

    @abstractmethod
    def comment(self, job: int, comment: str) -> None:
        """Replaces the comment of a job that has not ended."""

    @abstractmethod
    def cancel(self, job: int) -> None:
        """Cancels a job."""

    def close(self) -> None:  # noqa: B027 - commands leave nothing open
        """Closes what is open."""
