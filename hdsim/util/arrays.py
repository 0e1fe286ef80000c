"""Groups in arrays of ids, and the least of some values."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

#: Up to so many numbers have their least found in a list, which costs as much as it does in an array of this length.
_SHORT = 32


def min_at(values: Floats, places: NDArray[np.integer]) -> float:
    """Least of the values in some places, which are those of processors, nodes or cores."""
    # Mostly there is one place, and a scalar costs a fraction of an array; a short list costs half of one.
    if len(places) == 1:
        return float(values[places[0]])
    chosen = values[places]
    return float(min(chosen.tolist()) if len(places) <= _SHORT else np.minimum.reduce(chosen))


def members(offsets: NDArray[np.integer], groups: NDArray[np.integer]) -> Ints:
    """Members of some groups, one group after the other, where group i has those from offsets[i] to offsets[i + 1].

    Quickest for offsets of 64 bits: arithmetic with numbers of two widths takes several times as long.
    """
    first = offsets[groups]
    sizes = offsets[1:][groups] - first
    first -= sizes.cumsum()
    first += sizes
    listed = first.repeat(sizes)
    return listed + np.arange(len(listed))


def place_within(groups: NDArray[np.integer]) -> Ints:
    """For a not empty array in any order, how many equal values stand before each."""
    order = groups.argsort(kind="stable")
    places: Ints = np.empty(len(groups), np.int64)
    places[order] = running_count(groups[order])
    return places


def runs(groups: NDArray[np.integer]) -> tuple[Ints, Ints]:
    """For a sorted, not empty array, where each run of equal values begins and how long it is."""
    begins = np.empty(len(groups), bool)
    begins[0] = True
    np.not_equal(groups[1:], groups[:-1], out=begins[1:])
    first = begins.nonzero()[0]
    lengths = np.empty_like(first)
    np.subtract(first[1:], first[:-1], out=lengths[:-1])
    lengths[-1] = len(groups) - first[-1]
    return first, lengths


def running_count(groups: NDArray[np.integer]) -> Ints:
    """For a sorted, not empty array, how many equal values stand before each."""
    first, lengths = runs(groups)
    return np.arange(len(groups)) - first.repeat(lengths)
