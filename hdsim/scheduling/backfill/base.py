"""The interface of backfilling algorithms and the expected release times of cores."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Any, Protocol

from hdsim.scheduling.queue import DynamicQueue, FixedQueue

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster

Queue = FixedQueue | DynamicQueue


class ReleaseTimes:
    """Expected ends of running jobs.

    Attributes:
        order: (expected end in seconds, job), ascending.
        end: Expected end of each running job, seconds.
    """

    def __init__(self) -> None:
        self.order: list[tuple[float, int]] = []
        self.end: dict[int, float] = {}

    def add(self, job: int, end: float) -> None:
        """Adds a started job."""
        self.end[job] = end
        insort(self.order, (end, job))

    def overdue(self, now: float) -> bool:
        """Returns whether the expected end of a running job has passed."""
        return bool(self.order) and self.order[0][0] <= now

    def remove(self, job: int) -> float:
        """Removes an ended job and returns its expected end in seconds, NaN if it was not added."""
        end = self.end.pop(job, math.nan)
        if math.isnan(end):
            return end
        del self.order[bisect_left(self.order, (end, job))]
        return end


class Backfill(Protocol):
    """A backfilling algorithm.

    Attributes:
        serves_head: The algorithm starts the head itself; otherwise it is called only while the head is blocked.
    """

    serves_head: bool

    def started(self, cluster: Cluster, job: int, placement: Any) -> None:
        """Handles a job that the agent started."""

    def ended(self, cluster: Cluster) -> None:
        """Handles the jobs in ``cluster.ended``."""

    def backfill(self, cluster: Cluster, queue: Queue, order: Queue, head: int) -> None:
        """Starts jobs; called once per pass.

        Args:
            cluster: The cluster.
            queue: The queue; started jobs are removed from it.
            order: The same jobs in the order of candidates; may be `queue` itself.
            head: The first job of the queue.
        """


def start_queued(cluster: Cluster, queue: Queue, order: Queue, job: int, placement: Any) -> None:
    """Starts a queued job and removes it from the queue and from the order of candidates."""
    cluster.start(job, placement)
    queue.remove(job)
    if order is not queue:
        order.remove(job)
