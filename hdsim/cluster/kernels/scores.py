"""Scores of nodes as in kube-scheduler, by CPU and memory, which have equal weights."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LEAST_ALLOCATED, MOST_ALLOCATED, BALANCED_ALLOCATION, REQUESTED_TO_CAPACITY_RATIO = range(4)
#: Scores are in 0..100, rounded to 9 decimal places: rounding errors make no difference between equal nodes.
_PLACES = 1e9


@kernel
def place(policy: int, number: int, room: Ints, capacity: Floats, used: Floats, wanted: Floats, chosen: Ints) -> None:
    """Places chunks one by one, each on the first node of the highest score.

    Args:
        policy: One of the policies above.
        number: Number of chunks.
        room: (N,) chunks that fit on each node, together enough.
        capacity: (2, N) CPU and memory of each node; one of 0 has no weight.
        used: (2, N) CPU and memory in use, to which the chunks are added.
        wanted: (2,) CPU and memory of a chunk.
        chosen: (N,) array that receives the chunks on each node.
    """
    scores = np.empty(len(room))
    for node in range(len(room)):
        chosen[node] = 0
        scores[node] = score(policy, capacity, used, wanted, node) if room[node] > 0 else -math.inf
    for _ in range(number):
        best = 0
        for node in range(1, len(room)):
            if scores[node] > scores[best]:
                best = node
        chosen[best] += 1
        for resource in range(2):
            used[resource, best] += wanted[resource]
        full = chosen[best] >= room[best]
        scores[best] = -math.inf if full else score(policy, capacity, used, wanted, best)


@kernel
def score(policy: int, capacity: Floats, used: Floats, wanted: Floats, node: int) -> float:
    """Returns the score of a node once it has one more chunk."""
    total, counted, limited, before, after = 0.0, 0, 0, 0.0, 0.0
    for resource in range(2):
        amount = capacity[resource, node]
        if amount <= 0:
            continue
        now = min(used[resource, node] / amount, 1.0)
        then = min((used[resource, node] + wanted[resource]) / amount, 1.0)
        sign = 1 - 2 * resource
        before += sign * now
        after += sign * then
        limited += 1
        # The shape {0: 0, 100: 10} of bin packing; a resource whose score is 0 has no weight.
        if policy != REQUESTED_TO_CAPACITY_RATIO or then > 0:
            total += 100.0 * (1.0 - then if policy == LEAST_ALLOCATED else then)
            counted += 1
    if policy == BALANCED_ALLOCATION:
        # The range is 50 to 100: 75 for a chunk that leaves the balance of the node as it is. The distance between two
        # shares is twice their standard deviation.
        value = 75.0 + 25.0 * (abs(before) - abs(after) if limited == 2 else 0.0)
    else:
        value = total / max(counted, 1)
    return np.rint(value * _PLACES) / _PLACES
