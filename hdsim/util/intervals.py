"""Interval sets such as ``"0-3 8"``, Batsim's notation for sets of cores or machines."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


def parse_interval_sets(texts: Iterable[str], below: int = 2**24) -> NDArray[np.int32]:
    """Returns the ids of interval sets such as ``"0-3 8"``, concatenated.

    Args:
        texts: The sets.
        below: Exclusive upper limit of the ids.

    Raises:
        ValueError: A text is not an interval set.
    """
    low, high = [], []
    for span in " ".join(texts).split():
        first, dash, last = span.partition("-")
        low.append(int(first))
        high.append(int(last) if dash else low[-1])
    if max(high, default=0) >= below:
        raise ValueError(f"expected ids below {below}, got {max(high)}")
    begins = np.array(low, np.int64)
    lengths = np.array(high, np.int64) - begins + 1
    if (lengths < 1).any():
        raise ValueError("an interval ends before it begins")
    offsets = np.cumsum(lengths) - lengths
    return (np.repeat(begins - offsets, lengths) + np.arange(lengths.sum())).astype(np.int32)


def interval_sets(cores: NDArray[np.int32], sizes: NDArray[np.int64]) -> list[str]:
    """Returns the interval sets of some sets of ids.

    Args:
        cores: (sum of sizes,) members of each set, set by set, ascending within a set.
        sizes: (S,) number of members of each set.
    """
    if not len(cores):
        return [""] * len(sizes)
    ends = np.cumsum(sizes)
    first = np.empty(len(cores), bool)
    first[0] = True
    np.not_equal(cores[1:], cores[:-1] + 1, out=first[1:])
    first[ends - sizes] = True
    begins = np.flatnonzero(first)
    low = cores[begins].tolist()
    high = cores[np.append(begins[1:], len(cores)) - 1].tolist()
    spans = [f"{a}-{b}" if a != b else str(a) for a, b in zip(low, high, strict=True)]
    until = np.searchsorted(begins, ends).tolist()
    joined, start = [], 0
    for end in until:
        joined.append(spans[start] if end == start + 1 else " ".join(spans[start:end]))
        start = end
    return joined
