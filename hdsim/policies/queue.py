"""The queue in the order of a policy."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from hdsim.policies.orders import JobOrder

if TYPE_CHECKING:
    from hdsim.state import Cluster


class FixedQueue:
    """Queued jobs under an order that never changes, kept as a sorted list of ranks.

    Args:
        cluster: The cluster whose workload is ranked.
        order: A fixed order.
    """

    def __init__(self, cluster: Cluster, order: JobOrder) -> None:
        workload = cluster.workload
        ranked = np.lexsort((np.arange(len(workload)), order.score(workload)))
        rank = np.empty(len(ranked), np.int64)
        rank[ranked] = np.arange(len(ranked))
        self.job_of_rank: list[int] = ranked.tolist()
        self.rank: list[int] = rank.tolist()
        self.ranks: list[int] = []

    def add(self, jobs: Iterable[int]) -> None:
        """Puts newly submitted jobs where they belong."""
        ranks, rank = self.ranks, self.rank
        for job in jobs:
            insort(ranks, rank[job])

    def refresh(self, cluster: Cluster) -> None:
        """Nothing to do: the order does not move."""

    def head(self) -> int | None:
        """The job to serve first."""
        return self.job_of_rank[self.ranks[0]] if self.ranks else None

    def remove(self, job: int) -> None:
        """Takes a job out."""
        ranks, rank = self.ranks, self.rank[job]
        if ranks[0] == rank:
            del ranks[0]
        else:
            del ranks[bisect_left(ranks, rank)]

    def jobs(self) -> list[int]:
        """All queued jobs in order."""
        job_of_rank = self.job_of_rank
        return [job_of_rank[rank] for rank in self.ranks]

    def sort(self, jobs: list[int]) -> list[int]:
        """Some queued jobs in order."""
        return sorted(jobs, key=self.rank.__getitem__)


class MovingQueue:
    """Queued jobs under an order that depends on time or state, sorted anew at every pass.

    Args:
        cluster: The cluster.
        order: A moving order.
    """

    def __init__(self, cluster: Cluster, order: JobOrder) -> None:
        self._order = order
        self._jobs: list[int] = []

    def add(self, jobs: Iterable[int]) -> None:
        """Nothing to do: `refresh` reads the cluster's queue."""

    def refresh(self, cluster: Cluster) -> None:
        """Sorts the queue by its present scores."""
        queued = np.fromiter(cluster.queue, np.int64, len(cluster.queue))
        if len(queued):
            # A stable sort, and the cluster's queue is in order of submission.
            queued = queued[np.argsort(self._order.score(cluster.workload, queued, cluster), kind="stable")]
        self._jobs = queued.tolist()

    def head(self) -> int | None:
        """The job to serve first."""
        return self._jobs[0] if self._jobs else None

    def remove(self, job: int) -> None:
        """Takes a job out."""
        self._jobs.remove(job)

    def jobs(self) -> list[int]:
        """All queued jobs in order."""
        return list(self._jobs)

    def sort(self, jobs: list[int]) -> list[int]:
        """Some queued jobs in order."""
        wanted = set(jobs)
        return [job for job in self._jobs if job in wanted]


def make_queue(cluster: Cluster, order: JobOrder) -> FixedQueue | MovingQueue:
    """Makes the queue that suits the order."""
    return (MovingQueue if order.moving else FixedQueue)(cluster, order)
