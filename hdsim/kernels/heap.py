"""A binary heap of keys with items, least key first, ties by item."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import lean_kernel


class Heap(NamedTuple):
    """A heap; the first entry is the least.

    Attributes:
        key: (N,) keys, such as dates in seconds.
        item: (N,) items, such as jobs.
        length: (1,) number of entries; the arrays may be longer.
    """

    key: NDArray[np.float64]
    item: NDArray[np.int64]
    length: NDArray[np.int64]


def make_heap(size: int) -> Heap:
    """Returns an empty heap with space for `size` entries."""
    return Heap(np.zeros(size), np.zeros(size, np.int64), np.zeros(1, np.int64))


@lean_kernel
def push(heap: Heap, key: float, item: int) -> None:
    """Adds an entry."""
    keys, items, place = heap.key, heap.item, heap.length[0]
    heap.length[0] = place + 1
    while place > 0:
        above = (place - 1) // 2
        if keys[above] < key or (keys[above] == key and items[above] < item):
            break
        keys[place], items[place] = keys[above], items[above]
        place = above
    keys[place], items[place] = key, item


@lean_kernel
def pop(heap: Heap) -> int:
    """Removes the first entry and returns its item."""
    keys, items, count = heap.key, heap.item, heap.length[0] - 1
    heap.length[0] = count
    first, key, item = items[0], keys[count], items[count]
    place = 0
    while 2 * place + 1 < count:
        below = 2 * place + 1
        other = below + 1
        if other < count and (
            keys[other] < keys[below] or (keys[other] == keys[below] and items[other] < items[below])
        ):
            below = other
        if key < keys[below] or (key == keys[below] and item < items[below]):
            break
        keys[place], items[place] = keys[below], items[below]
        place = below
    keys[place], items[place] = key, item
    return first
