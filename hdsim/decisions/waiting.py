"""The queue in several orders at once, for actions and observers to share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hdsim.cores import Ints, capacity
from hdsim.policies.orders import job_order
from hdsim.policies.queue import FixedQueue

if TYPE_CHECKING:
    from hdsim.state import Cluster


class Waiting(FixedQueue):
    """Queued jobs in order of submission and, on demand, in further fixed orders that are kept sorted with it.

    Args:
        cluster: The cluster before its first event.
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, job_order("first"))
        self._cluster = cluster
        self._others: dict[str, FixedQueue] = {}
        self._sizes = cluster.workload.requested_cores
        self._memory = np.asarray(cluster.demands.memory)
        self._seen: tuple[int, Ints, NDArray[np.bool_]] | None = None

    def __len__(self) -> int:
        return len(self._ranks)

    def by(self, name: str) -> FixedQueue:
        """The queue in another fixed order; ask before the first event."""
        if name not in self._others:
            self._others[name] = FixedQueue(self._cluster, job_order(name))
        return self._others[name]

    def news(self) -> None:
        """Takes in the jobs that arrived at this instant; cores may have become idle too."""
        self._seen = None
        submitted = self._cluster.submitted
        if submitted:
            self.add(submitted)
            for queue in self._others.values():
                queue.add(submitted)

    def remove(self, job: int) -> None:
        """Takes a started job out of every order."""
        self._seen = None
        super().remove(job)
        for queue in self._others.values():
            queue.remove(job)

    def look(self, most: int) -> tuple[Ints, NDArray[np.bool_]]:
        """The first queued jobs in order of submission, at most so many, and whether each would fit now."""
        if self._seen is None or self._seen[0] != most:
            # Jobs of a workload are in order of submission: their ranks are their indices.
            jobs = np.array(self._ranks[:most], np.int64)
            self._seen = most, jobs, self._fitting(jobs)
        return self._seen[1:]

    def _fitting(self, jobs: Ints) -> NDArray[np.bool_]:
        cluster = self._cluster
        fits: NDArray[np.bool_] = self._sizes[jobs] <= cluster.n_idle
        if not cluster.only_counts:
            candidates = jobs[fits]
            memory, kind = np.unique(self._memory[candidates], return_inverse=True)
            cores = cluster.cores
            room = np.array([capacity(cores.node_idle, cores.node_memory, amount).sum() for amount in memory])
            fits[fits] = self._sizes[candidates] <= room[kind]
        return fits
