"""Queues in the order of a policy."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.scheduling.orders import JobOrder
from hdsim.util.copies import with_own_containers

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.util.arrays import Ints
    from hdsim.workload.model import Workload


def ranking(workload: Workload, order: JobOrder) -> tuple[Ints, Ints]:
    """Returns (J,) ranks of jobs under a static order, ties in order of submission, and the (J,) job of each rank."""
    ranked = np.argsort(order.score(workload), kind="stable")
    rank = np.empty(len(ranked), np.int64)
    rank[ranked] = np.arange(len(ranked))
    return rank, ranked


class FixedQueue:
    """Queued jobs under an order whose scores never change, kept sorted; ties are in order of submission.

    A job is scored alone when it has become known: its place among others does not depend on which jobs are still to
    come. If all jobs are known, their keys are the ranks of their scores, which compare faster.

    Attributes:
        jobs: The queued jobs, in order.

    Args:
        cluster: The cluster.
        order: A static order.
    """

    __deepcopy__ = with_own_containers

    def __init__(self, cluster: Cluster, order: JobOrder) -> None:
        self._cluster, self._order = cluster, order
        self.jobs: list[int] = []
        # Keys of the queued jobs, in order, and of every known job.
        self._keys: list[Any] = []
        self._key_of: list[Any] = [] if cluster.open_ended else ranking(cluster.workload, order)[0].tolist()

    def add(self, jobs: Iterable[int]) -> None:
        """Inserts submitted jobs."""
        queued, keys, key_of = self.jobs, self._keys, self._key_of
        for job in jobs:
            if job >= len(key_of):
                self._score()
            key = key_of[job]
            place = bisect_left(keys, key)
            keys.insert(place, key)
            queued.insert(place, job)

    def drop(self, jobs: Iterable[int]) -> None:
        """Removes withdrawn jobs."""
        for job in jobs:
            self.remove(job)

    def refresh(self, cluster: Cluster) -> None:
        """Does nothing: the order is static."""

    def head(self) -> int | None:
        """Returns the first job, None if the queue is empty."""
        return self.jobs[0] if self.jobs else None

    def remove(self, job: int) -> None:
        """Removes a job."""
        place = bisect_left(self._keys, self._key_of[job])
        del self._keys[place], self.jobs[place]

    def sort(self, jobs: list[int]) -> list[int]:
        """Returns some queued jobs in order."""
        return sorted(jobs, key=self._key_of.__getitem__)

    def key(self, job: int) -> Any:
        """Returns a key by which the jobs of the queue are in order; it never changes."""
        return self._key_of[job]

    def _score(self) -> None:
        """Scores the jobs that have become known."""
        known, jobs = len(self._key_of), self._cluster.workload
        scores = self._order.score(jobs.rows(known) if known else jobs)
        self._key_of += zip(scores.tolist(), range(known, len(jobs)), strict=True)


class DynamicQueue:
    """Queued jobs under an order that depends on time or state, sorted at every pass.

    Attributes:
        jobs: The queued jobs, in order of the last `refresh`.
        after_start: The order changes with every start of a job.

    Args:
        cluster: The cluster.
        order: A dynamic order.
    """

    __deepcopy__ = with_own_containers

    def __init__(self, cluster: Cluster, order: JobOrder) -> None:
        self._order = order
        self.after_start = order.after_start
        self.jobs: list[int] = []

    def add(self, jobs: Iterable[int]) -> None:
        """Does nothing: `refresh` reads the queue of the cluster."""

    def drop(self, jobs: Iterable[int]) -> None:
        """Does nothing, for the same reason."""

    def refresh(self, cluster: Cluster) -> None:
        """Sorts the queue by current scores."""
        queued = np.fromiter(cluster.queue, np.int64, len(cluster.queue))
        if len(queued):
            # The sort is stable and the queue of the cluster is in order of submission.
            queued = queued[self._order.score(cluster.workload, queued, cluster).argsort(kind="stable")]
        self.jobs = queued.tolist()

    def head(self) -> int | None:
        """Returns the first job, None if the queue is empty."""
        return self.jobs[0] if self.jobs else None

    def remove(self, job: int) -> None:
        """Removes a job."""
        self.jobs.remove(job)

    def sort(self, jobs: list[int]) -> list[int]:
        """Returns some queued jobs in order."""
        wanted = set(jobs)
        return [job for job in self.jobs if job in wanted]


def make_queue(cluster: Cluster, order: JobOrder) -> FixedQueue | DynamicQueue:
    """Creates the queue for an order."""
    return (DynamicQueue if order.dynamic else FixedQueue)(cluster, order)
