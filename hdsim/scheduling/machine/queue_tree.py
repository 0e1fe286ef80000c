"""A tree over the places of jobs in a static order, with the least size and requested time of queued jobs below.

A search for a job that fits passes over subtrees in which none can fit, so that it is quick in long queues.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import lean_kernel
from hdsim.scheduling.kernels.profiles import may_start


class QueueTree(NamedTuple):
    """A binary tree: node 1 is its root, nodes 2 n and 2 n + 1 are below node n, the last half has the places.

    Attributes:
        size: (N,) least cores of the queued jobs below each node, infinite if there are none.
        requested: (N,) least requested time of these, seconds.
    """

    size: NDArray[np.float64]
    requested: NDArray[np.float64]


def make_queue_tree(places: int) -> QueueTree:
    """Returns the tree of an empty queue."""
    nodes = 2 << (max(places, 1) - 1).bit_length()
    return QueueTree(np.full(nodes, math.inf), np.full(nodes, math.inf))


@lean_kernel
def enter(queue: QueueTree, place: int, size: float, requested: float) -> None:
    """Adds a job."""
    node = len(queue.size) // 2 + place
    while node > 0 and (size < queue.size[node] or requested < queue.requested[node]):
        queue.size[node] = min(size, queue.size[node])
        queue.requested[node] = min(requested, queue.requested[node])
        node //= 2


@lean_kernel
def leave(queue: QueueTree, place: int) -> None:
    """Removes the job of a place."""
    node = len(queue.size) // 2 + place
    size = requested = math.inf
    while node > 0 and (size != queue.size[node] or requested != queue.requested[node]):
        queue.size[node], queue.requested[node] = size, requested
        beside = node ^ 1
        size, requested = min(size, queue.size[beside]), min(requested, queue.requested[beside])
        node //= 2


@lean_kernel
def next_fitting(
    queue: QueueTree,
    place: int,
    now: float,
    idle: float,
    shadow: float,
    longest: float,
    widest: float,
    extra: float,
) -> int:
    """Returns the first place at or behind `place` of a job that may start, -1 if there is none.

    Args:
        queue: The queue.
        place: The first place.
        now: See :func:`hdsim.scheduling.kernels.profiles.may_start`, also for the others.
        idle: See there; finite.
        shadow: See there.
        longest: See there.
        widest: See there.
        extra: See there.
    """
    leaves = len(queue.size) // 2
    if place >= leaves:
        return -1
    node = leaves + place
    while node % 2 == 0:
        node //= 2
    while True:
        size, requested = queue.size[node], queue.requested[node]
        if may_start(size, requested, now, idle, shadow, longest, widest, extra):
            if node >= leaves:
                return node - leaves
            node *= 2
        else:
            while node % 2 == 1:
                node //= 2
            if node == 0:
                return -1
            node += 1
