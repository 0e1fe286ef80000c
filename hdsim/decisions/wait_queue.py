"""The wait queue shared by actions and observers, and the placement under construction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hdsim.scheduling.orders import JobOrder, job_order
from hdsim.scheduling.queue import DynamicQueue, FixedQueue
from hdsim.util.arrays import Flags, Ints

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.scheduling.slurm import SlurmScheduling


class WaitQueue(FixedQueue):
    """Queued jobs in order of submission and, on demand, in further fixed orders.

    Attributes:
        version: Changes with every change of the queue.
        partial: The placement under construction, None if there is none.
        proposed: The job that a base policy is about to start, None if there is none.
        delays: Delays of each queued job that was delayed.
        site: The scheduling of the site whose jobs are queued, None where no site's rules hold.
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, job_order("first"))
        self.version = 0
        self.partial: PartialPlacement | None = None
        self.proposed: int | None = None
        self.delays: dict[int, int] = {}
        self.site: SlurmScheduling | None = None
        self._by_name: dict[str, FixedQueue] = {}
        self._others: list[FixedQueue | DynamicQueue] = []
        # Those of the others that take note of every instant.
        self._stateful: list[FixedQueue | DynamicQueue] = []
        self._smallest = self.ordered("smallest")
        self._seen: tuple[int, Ints, Flags] | None = None

    def ordered(self, name: str) -> FixedQueue:
        """The queue in another fixed order; call it before the first event."""
        if name not in self._by_name:
            order, jobs = job_order(name), self._cluster.workload
            if not self._cluster.open_ended and (np.diff(order.score(jobs)) >= 0).all():
                # All jobs are known, and both orders are the same.
                self._by_name[name] = self
            else:
                self._by_name[name] = FixedQueue(self._cluster, order)
                self._others.append(self._by_name[name])
        return self._by_name[name]

    def in_order(self, order: JobOrder) -> FixedQueue | DynamicQueue:
        """The queue in any order; a dynamic one is to be refreshed at every instant."""
        if not order.dynamic:
            return self.ordered(order.name)
        self._others.append(queue := DynamicQueue(self._cluster, order))
        if order.stateful:
            self._stateful.append(queue)
        return queue

    def on_instant(self) -> None:
        """Adds the jobs submitted at this instant."""
        self._seen = None
        submitted = self._cluster.submitted
        if submitted:
            self.version += 1
            self.add(submitted)
        for queue in self._others if submitted else self._stateful:
            queue.add(submitted)
        for job in self._cluster.withdrawn:
            self._leave(job)
            for queue in self._others:
                queue.drop([job])

    def remove(self, job: int) -> None:
        """Removes a started job from every order."""
        self._leave(job)
        for queue in self._others:
            queue.remove(job)

    def _leave(self, job: int) -> None:
        self._seen = None
        self.version += 1
        self.delays.pop(job, None)
        super().remove(job)

    def any_fits(self, most: int) -> bool:
        """Whether any of the first `most` queued jobs fits now."""
        cluster, head = self._cluster, self._smallest.head()
        # Without core ids a job of fewer parts may be the larger one.
        if head is None or (cluster.has_core_ids and cluster.size[head] > cluster.n_idle):
            return False
        if cluster.only_counts and len(self.jobs) <= most:
            return True
        return bool(self.peek(most)[1].any())

    def peek(self, most: int) -> tuple[Ints, Flags]:
        """The first `most` queued jobs in order of submission, and whether each of them fits now."""
        if self._seen is None or self._seen[0] != most:
            jobs = np.array(self.jobs[:most], np.int64)
            self._seen = most, jobs, self._fitting(jobs)
        return self._seen[1:]

    def next_job(self) -> PartialPlacement | None:
        """The placement under construction, else a new one of `next`."""
        if self.partial is None and self.jobs:
            return PartialPlacement(self._cluster, self.next())
        return self.partial

    def next(self) -> int:
        """The proposed job, else the head in order of submission; the queue is not empty."""
        return self.jobs[0] if self.proposed is None else self.proposed

    def _fitting(self, jobs: Ints) -> Flags:
        cluster = self._cluster
        if cluster.only_counts:
            return cluster.workload.requested_cores[jobs] <= cluster.n_idle
        return np.array([cluster.fits(job) for job in jobs.tolist()], np.bool_)


class PartialPlacement:
    """The placement of a job whose nodes are chosen one by one.

    Attributes:
        job: The job.
        chunks: Chunks without a node yet (see :class:`hdsim.cluster.kernels.chunks.Chunk`).
        total: Chunks of the job.
        cpu_per_chunk: CPU of a chunk in cores.
        capacity: (N,) chunks that fit on each node now.
        chosen: (N,) chunks assigned to each node.
    """

    def __init__(self, cluster: Cluster, job: int) -> None:
        chunk = cluster.requests.chunk(job)
        self.job = job
        self.total = self.chunks = chunk.number
        self.cpu_per_chunk = float(chunk.cores * chunk.cpu)
        self.capacity: Ints = cluster.cores.capacity(chunk)
        self.chosen: Ints = np.zeros(len(self.capacity), np.int64)

    @property
    def fits(self) -> bool:
        """Whether the remaining chunks fit on the nodes together."""
        return int(self.capacity.sum()) >= self.chunks

    def choose(self, node: int) -> None:
        """Assigns as many of the remaining chunks to a node as fit."""
        chunks = min(self.chunks, int(self.capacity[node]))
        self.chosen[node] += chunks
        self.capacity[node] = 0
        self.chunks -= chunks
