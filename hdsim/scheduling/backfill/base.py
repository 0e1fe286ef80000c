"""The interface of backfilling algorithms."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from hdsim.scheduling.queue import DynamicQueue, FixedQueue

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster

Queue = FixedQueue | DynamicQueue


class Backfill(ABC):
    """A backfilling algorithm.

    Attributes:
        serves_head: The algorithm starts the head itself; otherwise it is called only while the head is blocked.

    Args:
        cluster: The cluster. Further arguments of a subclass are settings.
    """

    serves_head: bool = False

    def __init__(self, cluster: Cluster) -> None:  # noqa: B027
        pass

    def started(self, cluster: Cluster, job: int, placement: Any) -> None:  # noqa: B027
        """Handles a job that the agent started."""

    def ended(self, cluster: Cluster) -> None:  # noqa: B027
        """Handles the jobs in ``cluster.ended``; called at the begin of each pass."""

    @abstractmethod
    def backfill(self, cluster: Cluster, queue: Queue, order: Queue, head: int) -> None:
        """Starts jobs; called once per pass.

        Args:
            cluster: The cluster.
            queue: The queue; started jobs are removed from it.
            order: The same jobs in the order of candidates; may be `queue` itself.
            head: The first job of the queue.
        """


class NoBackfill(Backfill):
    """No job overtakes another."""

    def backfill(self, cluster: Cluster, queue: Queue, order: Queue, head: int) -> None:
        """Starts nothing."""


def start_queued(cluster: Cluster, queue: Queue, order: Queue, job: int, placement: Any) -> None:
    """Starts a queued job and removes it from the queue and from the order of candidates."""
    cluster.start(job, placement)
    queue.remove(job)
    if order is not queue:
        order.remove(job)
