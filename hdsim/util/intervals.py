"""Interval sets such as ``"0-3 8"``, Batsim's notation for sets of cores or machines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from hdsim.util.text import shown

_SPAN = re.compile(r"[0-9]+(-[0-9]+)?")


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


def parse_interval_set(text: str, count: int) -> list[int]:
    """Returns the ids of one interval set, ascending; for small sets, in about a tenth of the time of arrays.

    Args:
        text: The set.
        count: Number of ids there are.

    Raises:
        ValueError: The text is not an interval set, or has an id twice or one that does not exist.
    """
    ids: list[int] = []
    for part in text.split():
        first, dash, last = part.partition("-")
        if not _SPAN.fullmatch(part):
            raise ValueError(f"expected hosts as in '0-3 8', got {shown(text)}")
        if not dash:
            ids.append(int(first))
            continue
        low, high = int(first), int(last)
        if not low <= high < count:
            raise ValueError(f"expected hosts from 0 to {count - 1}, got {shown(text)}")
        ids.extend(range(low, high + 1))
    ids.sort()
    if ids and ids[-1] >= count:
        raise ValueError(f"expected hosts from 0 to {count - 1}, got {shown(text)}")
    if len(set(ids)) < len(ids):
        raise ValueError(f"expected each host once, got {shown(text)}")
    return ids


def format_interval_set(ids: Sequence[int]) -> str:
    """Returns the interval set of ascending ids."""
    if not ids:
        return ""
    first = last = ids[0]
    if ids[-1] - first == len(ids) - 1:
        return f"{first}-{ids[-1]}" if len(ids) > 1 else str(first)
    spans = []
    for each in ids:
        if each > last + 1:
            spans.append(f"{first}-{last}" if last > first else str(first))
            first = each
        last = each
    spans.append(f"{first}-{last}" if last > first else str(first))
    return " ".join(spans)
