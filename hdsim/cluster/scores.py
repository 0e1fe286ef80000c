"""Scores of nodes as in kube-scheduler, by CPU and memory.

The formulas are those of its plugins NodeResourcesFit (`least_allocated`, `most_allocated`,
`requested_to_capacity_ratio`) and NodeResourcesBalancedAllocation (`balanced_allocation`) in Kubernetes 1.36, computed
in floating point: kube-scheduler truncates its scores to integers and draws among equal ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hdsim.util.arrays import Floats, Ints
from hdsim.util.copies import with_own_containers

if TYPE_CHECKING:
    from hdsim.cluster.requests import Chunk

#: Core policies with these scores.
SCORES = ("least_allocated", "most_allocated", "balanced_allocation", "requested_to_capacity_ratio")
#: CPU in cores and memory in bytes that kube-scheduler assumes for a pod without requests: 100m and 200 MiB.
_ASSUMED = np.array([[0.1], [200 * 2.0**20]])
#: Decimal places of scores in 0..100: rounding errors make no difference between equal nodes.
_PLACES = 9


class NodeScores:
    """Scores of nodes; CPU and memory have equal weights, and unlimited memory has none.

    Attributes:
        without: (2, N) requested cores, or pods of others, that request no CPU, and no memory.

    Args:
        cpu: (N,) CPU of each node in cores.
        memory: (N,) memory of each node in bytes, inf = unlimited.
    """

    __deepcopy__ = with_own_containers

    def __init__(self, cpu: Ints | Floats, memory: Floats) -> None:
        capacity = np.stack([cpu, memory]).astype(np.float64)
        self._limited = np.isfinite(capacity) & (capacity > 0)
        self._capacity = np.where(self._limited, capacity, 1.0)
        self.without: Ints | Floats = np.zeros(capacity.shape)

    def count(self, nodes: Ints | int, number: Ints | float, cpu: float | None, memory: float) -> None:
        """Updates `without`.

        Args:
            nodes: One node, or (k,) nodes.
            number: Requested cores or pods that a node has more, of each node.
            cpu: CPU that each of them requests; None where cores have ids.
            memory: Memory that each of them requests.
        """
        for resource, request in enumerate((cpu, memory)):
            if request == 0:
                self.without[resource, nodes] += number

    def choose(self, policy: str, chunk: Chunk, capacity: Ints | Floats, free: tuple[Ints | Floats, Floats]) -> Ints:
        """Places the chunks of a job one by one, each on the first node of the highest score.

        Args:
            policy: One of `SCORES`.
            chunk: The chunks.
            capacity: (N,) chunks that fit on each node, together enough for the job.
            free: (N,) free CPU in cores and (N,) free memory in bytes of each node.

        Returns:
            (N,) chunks on each node.
        """
        wanted = np.array([[1.0 if chunk.cpu is None else chunk.cpu], [chunk.memory]])
        used = np.where(self._limited, self._capacity - np.stack(free), 0.0)
        if policy != "balanced_allocation":
            wanted = np.where(wanted > 0, wanted, _ASSUMED)
            used += self.without * _ASSUMED
        wanted *= chunk.cores
        scores = np.where(capacity > 0, self._score(policy, used, wanted, slice(None)), -np.inf)
        chosen = np.zeros(len(capacity), np.int64)
        for left in range(chunk.number, 0, -1):
            node = int(scores.argmax())
            chosen[node] += 1
            if left > 1:
                at = slice(node, node + 1)
                used[:, at] += wanted
                scores[at] = self._score(policy, used, wanted, at) if chosen[node] < capacity[node] else -np.inf
        return chosen

    def _score(self, policy: str, used: Floats, wanted: Floats, at: slice) -> Floats:
        """Returns the scores of nodes once they have one more chunk."""
        capacity, limited = self._capacity[:, at], self._limited[:, at]
        before = np.minimum(used[:, at] / capacity, 1.0)
        after = np.minimum((used[:, at] + wanted) / capacity, 1.0)
        if policy == "balanced_allocation":
            # The range is 50 to 100: 75 for a chunk that leaves the balance of the node as it is.
            score = 75.0 + 25.0 * np.where(limited.all(axis=0), _distance(before) - _distance(after), 0.0)
        elif policy == "least_allocated":
            score = _mean(100.0 * (1.0 - after), limited)
        elif policy == "most_allocated":
            score = _mean(100.0 * after, limited)
        else:
            # The shape {0: 0, 100: 10} of bin packing; a resource whose score is 0 has no weight.
            score = _mean(100.0 * after, limited & (after > 0))
        return np.round(score, _PLACES)


def _distance(shares: Floats) -> Floats:
    """Returns (n,) distances between (2, n) shares, twice their standard deviation."""
    distance: Floats = np.abs(shares[0] - shares[1])
    return distance


def _mean(scores: Floats, counted: NDArray[np.bool_]) -> Floats:
    """Returns (n,) means of the counted ones of (2, n) scores, 0 where there is none."""
    mean: Floats = (scores * counted).sum(axis=0) / np.maximum(counted.sum(axis=0), 1)
    return mean
