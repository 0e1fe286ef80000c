"""What backfilling algorithms share: their interface and the expected ends of running jobs."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Any, Protocol

from hdsim.scheduling.queue import FixedQueue, MovingQueue

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster

Queue = FixedQueue | MovingQueue


class ReleaseTimes:
    """Running jobs by their expected ends.

    Attributes:
        order: (end in s, job), ascending.
        end: Expected end of each running job.
    """

    def __init__(self) -> None:
        self.order: list[tuple[float, int]] = []
        self.end: dict[int, float] = {}

    def add(self, job: int, end: float) -> None:
        """Notes a started job."""
        self.end[job] = end
        insort(self.order, (end, job))

    def overdue(self, now: float) -> bool:
        """Whether a job should have ended by now that still runs."""
        return bool(self.order) and self.order[0][0] <= now

    def remove(self, job: int) -> float:
        """Forgets an ended job and returns when it was expected to end."""
        end = self.end.pop(job)
        del self.order[bisect_left(self.order, (end, job))]
        return end


class Backfill(Protocol):
    """A backfilling algorithm: told of every job that starts or ends, asked once a pass.

    Attributes:
        serves_head: The algorithm starts the head itself; otherwise it is asked only while the head is blocked.
    """

    serves_head: bool

    def started(self, cluster: Cluster, job: int, placement: Any) -> None:
        """A job was started by someone else."""

    def ended(self, cluster: Cluster) -> None:
        """Jobs may have ended: see ``cluster.ended``."""

    def backfill(self, cluster: Cluster, queue: Queue, order: Queue, head: int) -> None:
        """Start what may start.

        Args:
            cluster: The cluster.
            queue: The queue; started jobs are taken out of it.
            order: The same jobs in the order in which candidates are tried; may be `queue` itself.
            head: The first job of the queue.
        """


def start_queued(cluster: Cluster, queue: Queue, order: Queue, job: int, placement: Any) -> None:
    """Starts a queued job and removes it from the queue and from the order of candidates."""
    cluster.start(job, placement)
    queue.remove(job)
    if order is not queue:
        order.remove(job)
