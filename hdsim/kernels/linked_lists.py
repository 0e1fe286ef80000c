"""Doubly linked lists of small numbers, in arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import part_of_kernel

Ints = NDArray[np.int64]


class LinkedLists(NamedTuple):
    """L lists of items 0 to N - 1, each of which is in one of them at most.

    Attributes:
        list: (N,) which list an item is in, -1 for none.
        before: (N,) item before it, -1 for none.
        after: (N,) item behind it, -1 for none.
        ends: (L, 2) first and last item of each list, -1 for none.
    """

    list: Ints
    before: Ints
    after: Ints
    ends: Any


def make_linked_lists(items: int, lists: int, first: Ints) -> LinkedLists:
    """Returns lists of a number of items, of which the first has some items, in their order, and the others none."""
    made = LinkedLists(np.full(items, -1), np.full(items, -1), np.full(items, -1), np.full((lists, 2), -1))
    made.list[first] = 0
    made.before[first[1:]], made.after[first[:-1]] = first[:-1], first[1:]
    if len(first):
        made.ends[0] = first[0], first[-1]
    return made


@part_of_kernel
def insert(lists: LinkedLists, which: int, item: int, before: int) -> None:
    """Adds an item that is in no list to one, behind another item of it or as the first one behind -1."""
    after = lists.ends[which, 0] if before < 0 else lists.after[before]
    lists.list[item] = which
    _join(lists, which, before, item)
    _join(lists, which, item, after)


@part_of_kernel
def remove(lists: LinkedLists, item: int) -> None:
    """Removes an item from its list, if it is in one."""
    which = lists.list[item]
    if which >= 0:
        _join(lists, which, lists.before[item], lists.after[item])
        lists.list[item] = -1


@part_of_kernel
def _join(lists: LinkedLists, which: int, before: int, after: int) -> None:
    """Has two items of a list follow one another, -1 for what is beyond an end of it."""
    if before < 0:
        lists.ends[which, 0] = after
    else:
        lists.after[before] = after
    if after < 0:
        lists.ends[which, 1] = before
    else:
        lists.before[after] = before
