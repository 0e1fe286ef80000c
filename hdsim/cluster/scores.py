"""Scores of nodes as in kube-scheduler, by CPU and memory.

The formulas are those of its plugins NodeResourcesFit (`least_allocated`, `most_allocated`,
`requested_to_capacity_ratio`) and NodeResourcesBalancedAllocation (`balanced_allocation`) in Kubernetes 1.36, computed
in floating point: kube-scheduler truncates its scores to integers and draws among equal ones.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from hdsim.cluster.kernels.scores import place
from hdsim.cluster.policies import SCORES
from hdsim.util.arrays import Floats, Ints
from hdsim.util.copies import with_own_containers

if TYPE_CHECKING:
    from hdsim.cluster.kernels.chunks import Chunk

#: CPU in cores and memory in bytes that kube-scheduler assumes for a pod without requests: 100m and 200 MiB.
_ASSUMED = np.array([0.1, 200 * 2.0**20])


class NodeScores:
    """Scores of nodes, and what they depend on beside free resources.

    Attributes:
        without: (2, N) requested cores, or pods of others, that request no CPU, and no memory.

    Args:
        cpu: (N,) CPU of each node in cores.
        memory: (N,) memory of each node in bytes, inf = unlimited.
    """

    __deepcopy__ = with_own_containers

    def __init__(self, cpu: Ints | Floats, memory: Floats) -> None:
        capacity = np.stack([cpu, memory]).astype(np.float64)
        # Unlimited memory has no weight.
        self._capacity = np.where(np.isfinite(capacity), capacity, 0.0)
        self.without: Ints | Floats = np.zeros(self._capacity.shape)

    def replace_capacity(self, node: int, cpu: float, memory: float) -> None:
        """Changes the CPU of a node in cores, and its memory in bytes, inf = unlimited."""
        self._capacity[:, node] = cpu, memory if math.isfinite(memory) else 0.0

    def count(self, nodes: Ints | int, number: Ints | float, cpu: float, memory: float) -> None:
        """Updates `without`.

        Args:
            nodes: One node, or (k,) nodes.
            number: Requested cores or pods that a node has more, of each node.
            cpu: CPU that each of them requests in cores.
            memory: Memory that each of them requests.
        """
        for resource, request in enumerate((cpu, memory)):
            if request == 0:
                self.without[resource, nodes] += number

    def choose(self, policy: str, chunk: Chunk, capacity: Ints, free: tuple[Ints | Floats, Floats]) -> Ints:
        """Places the chunks of a job one by one, each on the first node of the highest score.

        Args:
            policy: One of `SCORES`.
            chunk: The chunks.
            capacity: (N,) chunks that fit on each node, together enough for the job.
            free: (N,) free CPU in cores and (N,) free memory in bytes of each node.

        Returns:
            (N,) chunks on each node.
        """
        wanted = np.array([chunk.cpu, chunk.memory])
        used = self._capacity - np.stack(free)
        if policy != "balanced_allocation":
            wanted = np.where(wanted > 0, wanted, _ASSUMED)
            used += self.without * _ASSUMED[:, None]
        chosen = np.empty(len(capacity), np.int64)
        place(SCORES.index(policy), chunk.number, capacity, self._capacity, used, wanted * chunk.cores, chosen)
        return chosen
