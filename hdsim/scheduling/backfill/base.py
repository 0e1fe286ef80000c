"""The interface of backfilling algorithms and the expected release times of cores."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

from hdsim.kernels.profiles import add_release, make_releases, remove_release, with_space
from hdsim.scheduling.queue import DynamicQueue, FixedQueue
from hdsim.util.copies import with_own_containers

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster

Queue = FixedQueue | DynamicQueue


class ReleaseTimes:
    """Expected ends of running jobs.

    Attributes:
        end: Expected end of each running job, seconds.
        sorted: The same ends in arrays, ascending.

    Args:
        cluster: The cluster; its running jobs end at their requested times.
    """

    __deepcopy__ = with_own_containers

    def __init__(self, cluster: Cluster) -> None:
        self.end: dict[int, float] = {}
        self.sorted = make_releases(64)
        for job, placement in cluster.running.items():
            if job not in cluster.starting:
                self.add(job, cluster.starting_time[job] + cluster.estimate(job, placement), cluster.size[job])

    def add(self, job: int, end: float, cores: float) -> None:
        """Adds a started job."""
        self.end[job] = end
        self.sorted = with_space(self.sorted, len(self.end))
        add_release(self.sorted, end, job, float(cores))

    def overdue(self, now: float) -> bool:
        """Returns whether the expected end of a running job has passed."""
        return bool(self.end) and bool(self.sorted.end[0] <= now)

    def remove(self, job: int) -> float:
        """Removes an ended job and returns its expected end in seconds, NaN if it was not added."""
        end = self.end.pop(job, math.nan)
        if not math.isnan(end):
            remove_release(self.sorted, end, job)
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
