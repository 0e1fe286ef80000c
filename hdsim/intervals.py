"""Interval sets such as ``"0-3 8"``, Batsim's way to write a set of cores or machines."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


def parse_interval_sets(texts: Iterable[str]) -> NDArray[np.int32]:
    """Core ids of interval sets such as ``"0-3 8"``, one after the other.

    Raises:
        ValueError: A text is no interval set.
    """
    low, high = [], []
    for span in " ".join(texts).split():
        first, dash, last = span.partition("-")
        low.append(int(first))
        high.append(int(last) if dash else low[-1])
    begins = np.array(low, np.int64)
    lengths = np.array(high, np.int64) - begins + 1
    if (lengths < 1).any():
        raise ValueError("an interval ends before it begins")
    offsets = np.cumsum(lengths) - lengths
    return (np.repeat(begins - offsets, lengths) + np.arange(lengths.sum())).astype(np.int32)
