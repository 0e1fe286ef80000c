"""Array operations on ids and groups."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


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
