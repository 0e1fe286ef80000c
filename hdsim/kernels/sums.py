"""Sums in NumPy's order of additions."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from hdsim.kernels.compiling import kernel


@kernel
def total(values: NDArray[Any], first: int, last: int) -> Any:
    """Returns the sum of some values, in the order of ``np.add.reduceat``."""
    return values[first] + _pairwise(values, first + 1, last)


@kernel
def _pairwise(values: NDArray[Any], first: int, last: int) -> Any:
    """Returns the pairwise sum of some values in blocks of 128 with eight partial sums, as in NumPy."""
    n = last - first
    if n < 8:
        added = values.dtype.type(-0.0)
        for i in range(first, last):
            added += values[i]
        return added
    if n > 128:
        half = first + n // 2 - n // 2 % 8
        return _pairwise(values, first, half) + _pairwise(values, half, last)
    r0, r1, r2, r3 = values[first], values[first + 1], values[first + 2], values[first + 3]
    r4, r5, r6, r7 = values[first + 4], values[first + 5], values[first + 6], values[first + 7]
    whole = last - n % 8
    for i in range(first + 8, whole, 8):
        r0 += values[i]
        r1 += values[i + 1]
        r2 += values[i + 2]
        r3 += values[i + 3]
        r4 += values[i + 4]
        r5 += values[i + 5]
        r6 += values[i + 6]
        r7 += values[i + 7]
    added = ((r0 + r1) + (r2 + r3)) + ((r4 + r5) + (r6 + r7))
    for i in range(whole, last):
        added += values[i]
    return added
