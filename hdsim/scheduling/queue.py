"""Queues in the order of a policy."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.scheduling.orders import JobOrder

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.workload.model import Workload


def ranking(workload: Workload, order: JobOrder) -> tuple[list[int], list[int]]:
    """Returns the rank of each job under a static order, ties in order of submission, and the job of each rank."""
    ranked = np.argsort(order.score(workload), kind="stable")
    rank = np.empty(len(ranked), np.int64)
    rank[ranked] = np.arange(len(ranked))
    return rank.tolist(), ranked.tolist()


class FixedQueue:
    """Queued jobs under an order whose scores never change, kept sorted; ties are in order of submission.

    ``len(queue)`` is the number of queued jobs and ``queue[place]`` the job at a place. A job is scored alone when it
    has become known: its place among others does not depend on which jobs are still to come. If all jobs are known,
    their keys are the ranks of their scores, which compare faster.

    Args:
        cluster: The cluster.
        order: A static order.
    """

    def __init__(self, cluster: Cluster, order: JobOrder) -> None:
        self._cluster, self._order = cluster, order
        # Keys of the queued jobs, ascending, the key of every known job, and the job and its cores of every key.
        self._keys: list[Any] = []
        self._key_of: list[Any] = []
        self._job_of: Any = {}
        self._size_of: Any = {}
        self._grows = cluster.open_ended
        if self._grows:
            self._score()
        else:
            self._key_of, self._job_of = ranking(cluster.workload, order)
            self._size_of = list(map(cluster.size.__getitem__, self._job_of))

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, place: int) -> int:
        job: int = self._job_of[self._keys[place]]
        return job

    def add(self, jobs: Collection[int]) -> None:
        """Inserts submitted jobs."""
        if self._grows and len(self._key_of) < len(self._cluster.size):
            self._score()
        keys, key_of = self._keys, self._key_of
        for job in jobs:
            insort(keys, key_of[job])

    def refresh(self, cluster: Cluster) -> None:
        """Does nothing: the order is static."""

    def head(self) -> int | None:
        """Returns the first job, None if the queue is empty."""
        return self._job_of[self._keys[0]] if self._keys else None

    def remove(self, job: int) -> None:
        """Removes a job."""
        del self._keys[bisect_left(self._keys, self._key_of[job])]

    def first(self, most: int) -> list[int]:
        """Returns the first `most` jobs, fewer if fewer are queued."""
        job_of = self._job_of
        return [job_of[key] for key in self._keys[:most]]

    def jobs(self, most: float = math.inf) -> list[int]:
        """Returns the queued jobs of at most `most` cores, in order."""
        job_of, size_of = self._job_of, self._size_of
        return [job_of[key] for key in self._keys if size_of[key] <= most]

    def sort(self, jobs: list[int]) -> list[int]:
        """Returns some queued jobs in order."""
        return sorted(jobs, key=self._key_of.__getitem__)

    def _score(self) -> None:
        """Scores the jobs that have become known."""
        known, jobs = len(self._key_of), self._cluster.workload
        scores = self._order.score(jobs.rows(known) if known else jobs)
        for key in zip(scores.tolist(), range(known, len(jobs)), strict=True):
            self._key_of.append(key)
            self._job_of[key] = key[1]
            self._size_of[key] = self._cluster.size[key[1]]


class DynamicQueue:
    """Queued jobs under an order that depends on time or state, sorted at every pass.

    Args:
        cluster: The cluster.
        order: A dynamic order.
    """

    def __init__(self, cluster: Cluster, order: JobOrder) -> None:
        self._order = order
        self._size = cluster.size
        self._jobs: list[int] = []

    def add(self, jobs: Iterable[int]) -> None:
        """Does nothing: `refresh` reads the queue of the cluster."""

    def refresh(self, cluster: Cluster) -> None:
        """Sorts the queue by current scores."""
        queued = np.fromiter(cluster.queue, np.int64, len(cluster.queue))
        if len(queued):
            # The sort is stable and the queue of the cluster is in order of submission.
            queued = queued[self._order.score(cluster.workload, queued, cluster).argsort(kind="stable")]
        self._jobs = queued.tolist()

    def head(self) -> int | None:
        """Returns the first job, None if the queue is empty."""
        return self._jobs[0] if self._jobs else None

    def remove(self, job: int) -> None:
        """Removes a job."""
        self._jobs.remove(job)

    def jobs(self, most: float = math.inf) -> list[int]:
        """Returns the queued jobs of at most `most` cores, in order."""
        size = self._size
        return [job for job in self._jobs if size[job] <= most]

    def sort(self, jobs: list[int]) -> list[int]:
        """Returns some queued jobs in order."""
        wanted = set(jobs)
        return [job for job in self._jobs if job in wanted]


def make_queue(cluster: Cluster, order: JobOrder) -> FixedQueue | DynamicQueue:
    """Creates the queue for an order."""
    return (DynamicQueue if order.dynamic else FixedQueue)(cluster, order)
