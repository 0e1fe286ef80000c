"""The queue in the order of a policy."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from hdsim.scheduling.orders import JobOrder

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.workload.model import Workload


def ranking(workload: Workload, order: JobOrder) -> tuple[list[int], list[int]]:
    """Rank of every job under a fixed order, ties in order of submission, and the job of every rank."""
    ranked = np.argsort(order.score(workload), kind="stable")
    rank = np.empty(len(ranked), np.int64)
    rank[ranked] = np.arange(len(ranked))
    return rank.tolist(), ranked.tolist()


class FixedQueue:
    """Queued jobs under an order that never changes, kept as a sorted list of ranks.

    Attributes:
        ranks: Ranks of the queued jobs, ascending.
        job_of_rank: The job of every rank of the workload.

    Args:
        cluster: The cluster whose workload is ranked.
        order: A fixed order.
    """

    def __init__(self, cluster: Cluster, order: JobOrder) -> None:
        self._rank, self.job_of_rank = ranking(cluster.workload, order)
        self._size_of_rank = list(map(cluster.size.__getitem__, self.job_of_rank))
        self.ranks: list[int] = []

    def add(self, jobs: Iterable[int]) -> None:
        """Puts newly submitted jobs where they belong."""
        ranks, rank = self.ranks, self._rank
        for job in jobs:
            insort(ranks, rank[job])

    def refresh(self, cluster: Cluster) -> None:
        """Nothing to do: the order does not move."""

    def head(self) -> int | None:
        """The job to serve first."""
        return self.job_of_rank[self.ranks[0]] if self.ranks else None

    def remove(self, job: int) -> None:
        """Takes a job out."""
        del self.ranks[bisect_left(self.ranks, self._rank[job])]

    def jobs(self, most: float = math.inf) -> list[int]:
        """Queued jobs of at most so many cores, in order."""
        job_of_rank, size = self.job_of_rank, self._size_of_rank
        return [job_of_rank[rank] for rank in self.ranks if size[rank] <= most]

    def sort(self, jobs: list[int]) -> list[int]:
        """Some queued jobs in order."""
        return sorted(jobs, key=self._rank.__getitem__)


class MovingQueue:
    """Queued jobs under an order that depends on time or state, sorted anew at every pass.

    Args:
        cluster: The cluster.
        order: A moving order.
    """

    def __init__(self, cluster: Cluster, order: JobOrder) -> None:
        self._order = order
        self._size = cluster.size
        self._jobs: list[int] = []

    def add(self, jobs: Iterable[int]) -> None:
        """Nothing to do: `refresh` reads the cluster's queue."""

    def refresh(self, cluster: Cluster) -> None:
        """Sorts the queue by its present scores."""
        queued = np.fromiter(cluster.queue, np.int64, len(cluster.queue))
        if len(queued):
            # A stable sort, and the cluster's queue is in order of submission.
            queued = queued[self._order.score(cluster.workload, queued, cluster).argsort(kind="stable")]
        self._jobs = queued.tolist()

    def head(self) -> int | None:
        """The job to serve first."""
        return self._jobs[0] if self._jobs else None

    def remove(self, job: int) -> None:
        """Takes a job out."""
        self._jobs.remove(job)

    def jobs(self, most: float = math.inf) -> list[int]:
        """Queued jobs of at most so many cores, in order."""
        size = self._size
        return [job for job in self._jobs if size[job] <= most]

    def sort(self, jobs: list[int]) -> list[int]:
        """Some queued jobs in order."""
        wanted = set(jobs)
        return [job for job in self._jobs if job in wanted]


def make_queue(cluster: Cluster, order: JobOrder) -> FixedQueue | MovingQueue:
    """Makes the queue that suits the order."""
    return (MovingQueue if order.moving else FixedQueue)(cluster, order)
