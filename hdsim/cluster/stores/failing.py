"""Idle cores of nodes that can fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hdsim.cluster.kernels.nodes import allocate, release
from hdsim.cluster.stores.nodes import NodeCores
from hdsim.util.arrays import Ints

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hdsim.cluster.placement import Placement
    from hdsim.cluster.requests import Requests
    from hdsim.platform.model import Platform

_NONE = -1


class FailingCores(NodeCores):
    """`NodeCores` with node failures: the cores of a failed node are neither idle nor allocated to a job."""

    def __init__(self, platform: Platform, requests: Requests, policy: str, rng: np.random.Generator) -> None:
        super().__init__(platform, requests, policy, rng)
        self._job_of_core: Ints = np.full(platform.n_cores, _NONE)
        self._bounds: list[int] = platform.node_first_core.tolist()
        self._down: dict[int, Placement] = {}

    def allocate(self, job: int, placement: Placement) -> None:
        super().allocate(job, placement)
        self._job_of_core[placement.cores] = job

    def release(self, job: int, placement: Placement) -> None:
        super().release(job, placement)
        self._job_of_core[placement.cores] = _NONE

    def jobs_on(self, node: int) -> list[int]:
        """Returns the jobs with cores on a node, ascending."""
        jobs = self._job_of_core[self._bounds[node] : self._bounds[node + 1]]
        return np.unique(jobs[jobs != _NONE]).tolist()

    def fail(self, node: int) -> None:
        """Removes the cores of a node, all of which are idle."""
        first, last = self._bounds[node : node + 2]
        cores = self._down[node] = self.placement_of(first + self.idle[first:last].nonzero()[0])
        allocate(self.state, cores.ids, 0.0, 0.0)
        self._count(-len(cores.cores))

    def repair(self, node: int) -> None:
        """Adds the cores of a node again."""
        cores = self._down.pop(node)
        release(self.state, cores.ids, 0.0, 0.0)
        self._count(len(cores.cores))

    def check(self, running: Sequence[Placement]) -> None:
        """See :meth:`NodeCores.check`; the cores of failed nodes count as allocated."""
        super().check([*running, *self._down.values()])
