"""Candidates of a search: the heads of orders, and which of them lead to other decisions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@kernel
def heads_of(scores: Floats, queued: Ints) -> Ints:
    """Returns the (O,) places of the queued jobs of the least scores in orders.

    Args:
        scores: (O, J) scores.
        queued: (Q,) jobs, at least one.
    """
    places = np.zeros(len(scores), np.int64)
    for order in range(len(scores)):
        for place in range(1, len(queued)):
            if scores[order, queued[place]] < scores[order, queued[places[order]]]:
                places[order] = place
    return places


@kernel
def distinct(heads: Ints, started: NDArray[np.bool_], commit: bool) -> Ints:
    """Returns the first of all heads behind which the same jobs start now and the same head waits.

    Args:
        heads: (C,) distinct places in the queue.
        started: (C, Q) jobs that start now.
        commit: A head that has not started stays the head.
    """
    kept, count = np.empty(len(heads), np.int64), 0
    for c in range(len(heads)):
        new = True
        for k in range(count):
            other = kept[k]
            waits = commit and not (started[c, heads[c]] and started[other, heads[other]])
            if not waits and (started[c] == started[other]).all():
                new = False
        if new:
            kept[count] = c
            count += 1
    return heads[kept[:count]]
