"""Natural logarithms of arrays."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import part_of_kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
LOG_2 = math.log(2.0)
#: Bits of the root of 1/2 as a double.
ROOT_OF_HALF = 0x3FE6A09E667F3BCD


@part_of_kernel
def logarithms(values: Floats, bits: Ints, powers: Ints, count: int) -> None:
    """Replaces positive numbers by their natural logarithms, several at a time, with a relative error of 1e-13.

    The mantissa m lies between the roots of 1/2 and 2, and log m = 2 artanh((m - 1) / (m + 1)).

    Args:
        values: (N,) the numbers.
        bits: (N,) the same memory as integers.
        powers: (N,) room for the powers of two.
        count: Numbers to replace.
    """
    for i in range(count):
        powers[i] = (bits[i] - ROOT_OF_HALF) >> 52
        bits[i] -= powers[i] << 52
    for i in range(count):
        s = (values[i] - 1.0) / (values[i] + 1.0)
        q = s * s
        series = 2 / 3 + q * (2 / 5 + q * (2 / 7 + q * (2 / 9 + q * (2 / 11 + q * (2 / 13)))))
        values[i] = s * (2.0 + q * series) + powers[i] * LOG_2
