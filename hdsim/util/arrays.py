"""Array operations on ids and groups."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

#: Length up to which the minimum of a list is faster than that of an array.
_SHORT = 32


def min_at(values: Floats, places: NDArray[np.integer]) -> float:
    """Returns the minimum of the values at some indices."""
    # Most calls have one index: a scalar costs a fraction of an array operation, a short list half of one.
    if len(places) == 1:
        return float(values[places[0]])
    chosen = values[places]
    return float(min(chosen.tolist()) if len(places) <= _SHORT else np.minimum.reduce(chosen))


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


def place_within(groups: NDArray[np.integer]) -> Ints:
    """Returns, for each value of a non-empty array, how many equal values precede it."""
    order = groups.argsort(kind="stable")
    places: Ints = np.empty(len(groups), np.int64)
    places[order] = running_count(groups[order])
    return places


def runs(groups: NDArray[np.integer]) -> tuple[Ints, Ints]:
    """Returns the start and the length of each run of equal values of a sorted, non-empty array."""
    begins = np.empty(len(groups), bool)
    begins[0] = True
    np.not_equal(groups[1:], groups[:-1], out=begins[1:])
    first = begins.nonzero()[0]
    lengths = np.empty_like(first)
    np.subtract(first[1:], first[:-1], out=lengths[:-1])
    lengths[-1] = len(groups) - first[-1]
    return first, lengths


def running_count(groups: NDArray[np.integer]) -> Ints:
    """Returns, for each value of a sorted, non-empty array, how many equal values precede it."""
    first, lengths = runs(groups)
    return np.arange(len(groups)) - first.repeat(lengths)
