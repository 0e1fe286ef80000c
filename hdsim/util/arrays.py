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
    rows = len(columns[0])
    kind, kinds = np.zeros(rows, np.int64), min(rows, 1)
    for column in columns:
        # A column of one value has no kinds.
        if rows and (column != column[0]).any():
            value, values = numbered(column)
            kind, kinds = numbered(kind * values + value) if kinds > 1 else (value, values)
    first = np.empty(kinds, np.int64)
    first[kind[::-1]] = np.arange(rows - 1, -1, -1)
    order = np.argsort(first)
    place = np.empty(kinds, np.int64)
    place[order] = np.arange(kinds)
    return first[order], place[kind]


def numbered(values: Array) -> tuple[Ints, int]:
    """Returns (N,) places of values among the distinct ones in ascending order, and the number of these."""
    if not np.issubdtype(values.dtype, np.integer) or values.min() < 0 or values.max() > 8 * len(values):
        distinct_values, place = np.unique(values, return_inverse=True)
        return place, len(distinct_values)
    # Small numbers need not be sorted.
    present = np.zeros(int(values.max()) + 1, np.int64)
    present[values] = 1
    places = np.cumsum(present)
    return places[values] - 1, int(places[-1])


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
