"""Queued jobs by kind, for schedulers that pass over jobs that do not fit."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

from hdsim.scheduling.queue import DynamicQueue, FixedQueue

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster


class JobKinds:
    """Queued jobs in order, without those of blocked kinds.

    Jobs of equal requests and constraints, under hard caps of equal requested times and frequencies as well, are of one
    kind: they fit
    at the same times. A kind is blocked from the time that one of its jobs does not fit until resources are released,
    so that the cost of a pass depends on the number of kinds and not on that of the jobs.

    Args:
        cluster: The cluster.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._new: list[int] = []
        # (key, job) of the queued jobs of each kind and (key, kind) of the first job of each open kind, both heaps.
        # They may also have jobs that have left the queue, and kinds that are blocked or have other first jobs by now.
        self._jobs: dict[Any, list[tuple[Any, int]]] = {}
        self._first: list[tuple[Any, Any]] = []
        self._blocked: set[Any] = set()
        self._moment: Any = None  # of the last instant, under hard caps

    def on_instant(self) -> None:
        """Takes note of the events of an instant; to be called at each one."""
        cluster = self._cluster
        self._new += cluster.submitted
        moment = None if cluster.budget is None else cluster.budget.moment(cluster.now)
        if cluster.ended or cluster.node_changes or moment != self._moment:
            self._first += [(jobs[0][0], kind) for kind in self._blocked if (jobs := self._jobs.get(kind))]
            heapify(self._first)
            self._blocked.clear()
        self._moment = moment

    def update(self, queue: FixedQueue | DynamicQueue) -> None:
        """Adds the submitted jobs in the order of a queue; a dynamic one is read anew."""
        cluster, kind_of = self._cluster, self._cluster.requests.kind
        if isinstance(queue, DynamicQueue):
            self._jobs.clear()
            self._first.clear()
            added = list(enumerate(queue.jobs))
        else:
            added = [(queue.key(job), job) for job in self._new]
        self._new.clear()
        for key, job in added:
            kind: Any = kind_of(job)
            if cluster.budget is not None:
                frequencies = cluster.frequencies
                own = None if frequencies is None else frequencies.kind(job)
                kind = kind, cluster.requested_time[job], own
            jobs = self._jobs.setdefault(kind, [])
            heappush(jobs, (key, job))
            if jobs[0][1] == job and kind not in self._blocked:
                heappush(self._first, (key, kind))

    def next(self) -> int | None:
        """Returns the first queued job whose kind is not blocked."""
        first, queued = self._first, self._cluster.queue
        while first:
            key, kind = first[0]
            jobs = self._jobs[kind]
            while jobs and jobs[0][1] not in queued:
                heappop(jobs)
            if jobs and jobs[0][0] == key and kind not in self._blocked:
                return jobs[0][1]
            heappop(first)
            if jobs and kind not in self._blocked:
                heappush(first, (jobs[0][0], kind))
        return None

    def block(self) -> None:
        """Blocks the kind of the job that `next` has returned."""
        self._blocked.add(heappop(self._first)[1])
