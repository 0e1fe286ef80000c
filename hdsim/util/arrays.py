"""Array operations on ids and groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Array = TypeVar("Array", bound=np.ndarray)

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


def read_only(values: Array) -> Array:
    """Returns an array that can be changed no more."""
    values.flags.writeable = False
    return values


def distinct(*values: Array) -> Array:
    """Returns the distinct values of (N,) arrays without NaN, ascending.

    np.unique and np.union1d are slower and import numpy.ma at their first call.
    """
    ordered: Any = np.sort(np.concatenate(values))
    return ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])[: len(ordered)]]


def first_of_kind(*columns: Array) -> tuple[Ints, Ints]:
    """Returns the first row of each kind of rows that are equal in all (N,) columns, ascending, and the (N,) kinds."""
    kind = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        # A column of one value has no kinds.
        if len(column) and (column != column[0]).any():
            values, of_row = np.unique(column, return_inverse=True)
            kind = np.unique(kind * len(values) + of_row, return_inverse=True)[1] if kind.any() else of_row
    _, first, kind = np.unique(kind, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return first[order], place[kind]


def objects(values: Sequence[Any]) -> NDArray[np.object_]:
    """Returns an array of objects, of one dimension even if they are sequences of one length."""
    column: NDArray[np.object_] = np.empty(len(values), object)
    column[:] = values
    return column


def sorted_within(values: NDArray[np.int32], sizes: Ints) -> NDArray[np.int32]:
    """Returns the values of groups, group by group, ascending within each group of one of the sizes."""
    return values[np.lexsort((values, np.repeat(np.arange(len(sizes)), sizes)))]


def members(offsets: NDArray[np.integer], groups: NDArray[np.integer]) -> Ints:
    """Returns the members of some groups, group by group; group i has the members offsets[i] to offsets[i + 1] - 1.

    64-bit offsets are fastest: mixed integer widths take several times as long.
    """
    first = offsets[groups]
    sizes = offsets[1:][groups] - first
    first -= sizes.cumsum()
    first += sizes
    listed = first.repeat(sizes)
    return listed + np.arange(len(listed))
