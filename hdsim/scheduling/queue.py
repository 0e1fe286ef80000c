"""Queues in the order of a policy."""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Iterable, Sequence
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
        after_start: The order changes with every start of a job: never.

    Args:
        cluster: The cluster.
        order: A static order.
        predicted: Requested times are those of the cluster at submission, not of the workload: predictions, see
            :meth:`Cluster.expect`, or those at a frequency.
    """

    __deepcopy__ = with_own_containers
    after_start = False

    def __init__(self, cluster: Cluster, order: JobOrder, *, predicted: bool = False) -> None:
        self._cluster, self._order, self._predicted = cluster, order, predicted
        self.jobs: list[int] = []
        # Keys of the queued jobs, in order, and of every known job; of predicted ones, of every submitted job.
        self._keys: list[Any] = []
        self._key_of: Any = {} if predicted else []
        if not (predicted or cluster.open_ended):
            self._key_of = ranking(cluster.workload, order)[0].tolist()

    def add(self, jobs: Sequence[int]) -> None:
        """Inserts submitted jobs."""
        if not jobs:
            return
        queued, keys, key_of = self.jobs, self._keys, self._key_of
        if self._predicted:
            known, rows = self._cluster.workload, np.array(jobs)
            columns = known.columns_at(rows)
            columns["requested_time"] = np.array([self._cluster.requested_time[job] for job in jobs])
            scores = self._order.score(dataclasses.replace(known, **columns))
            key_of.update(zip(jobs, zip(scores.tolist(), jobs, strict=True), strict=True))
        for job in jobs:
            try:
                key = key_of[job]
            except IndexError:  # the job has become known since
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
        predicted: See :class:`FixedQueue`.
    """

    __deepcopy__ = with_own_containers

    def __init__(self, cluster: Cluster, order: JobOrder, *, predicted: bool = False) -> None:
        self._cluster, self._order, self._predicted = cluster, order, predicted
        score: Any = order.score
        self._score = score.follow(cluster) if order.stateful else score
        self._jobs: Workload | None = None
        self.after_start = order.after_start
        self.jobs: list[int] = []

    def add(self, jobs: Sequence[int]) -> None:
        """Takes note of the instant where the order has a state; `refresh` reads the queue of the cluster."""
        if self._order.stateful:
            self._score.note(self._cluster)

    def drop(self, jobs: Iterable[int]) -> None:
        """Does nothing, for the same reason."""

    def refresh(self, cluster: Cluster) -> None:
        """Sorts the queue by current scores."""
        queued = np.fromiter(cluster.queue, np.int64, len(cluster.queue))
        if len(queued):
            # The sort is stable and the queue of the cluster is in order of submission.
            jobs = self._expected(queued) if self._predicted else cluster.workload
            queued = queued[self._score(jobs, queued, cluster).argsort(kind="stable")]
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

    def _expected(self, queued: Ints) -> Workload:
        """The workload with the requested times of queued jobs that the scheduler expects."""
        known, times = self._cluster.workload, self._cluster.requested_time
        if self._jobs is None or len(self._jobs) != len(known):
            self._jobs = dataclasses.replace(known, requested_time=np.array(times))
        self._jobs.requested_time[queued] = [times[job] for job in queued.tolist()]
        return self._jobs


def make_queue(cluster: Cluster, order: JobOrder, *, predicted: bool = False) -> FixedQueue | DynamicQueue:
    """Creates the queue for an order; see :class:`FixedQueue` for the arguments."""
    return (DynamicQueue if order.dynamic else FixedQueue)(cluster, order, predicted=predicted)
