"""Random permutations and numbers by PCG64, draw by draw those of numpy's default generator.

O'Neill, PCG: a family of simple fast space-efficient statistically good algorithms for random number generation, 2014
(PCG-XSL-RR-128/64).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import lean_kernel, part_of_kernel

#: (3, 4) numbers of 32 bits, the lowest first: state, increment, and of the last 64 bits drawn whether the upper half
#: is left, and that half.
Words = NDArray[np.uint64]

_BITS, _LOW = np.uint64(32), np.uint64(2**32 - 1)
_M0, _M1, _M2, _M3 = (np.uint64(word) for word in (0x9FCCF645, 0x4385DF64, 0x1FC65DA4, 0x2360ED05))


def words_of(rng: np.random.Generator) -> Words:
    """Returns the state of a generator, which is a PCG64."""
    known = rng.bit_generator.state
    numbers = known["state"]["state"], known["state"]["inc"], known["uinteger"] << 32 | known["has_uint32"]
    return np.array([[number >> 32 * i & 2**32 - 1 for i in range(4)] for number in numbers], np.uint64)


def restore(rng: np.random.Generator, words: Words) -> None:
    """Sets the state of a generator."""
    state, inc, _ = (sum(word << 32 * i for i, word in enumerate(row)) for row in words.tolist())
    left, half = words[2, :2].tolist()
    numbers = {"state": {"state": state, "inc": inc}, "has_uint32": left, "uinteger": half}
    rng.bit_generator.state = {**rng.bit_generator.state, **numbers}


@lean_kernel
def shuffle(words: Words, items: NDArray[np.int64]) -> None:
    """Permutes items as :meth:`numpy.random.Generator.shuffle` does."""
    mask = np.uint64(1)
    while mask < np.uint64(len(items)):
        mask = mask << np.uint64(1) | np.uint64(1)
    for i in range(len(items) - 1, 0, -1):
        most = np.uint64(i)
        while mask >> np.uint64(1) >= most:
            mask >>= np.uint64(1)
        drawn = _draw(words) & mask
        while drawn > most:
            drawn = _draw(words) & mask
        j = np.int64(drawn)
        items[i], items[j] = items[j], items[i]


@part_of_kernel
def uniform(words: Words) -> float:
    """Draws a number from 0 to 1 as :meth:`numpy.random.Generator.random` does."""
    return float(_draw_64(words) >> np.uint64(11)) / 2.0**53


@part_of_kernel
def _draw(words: Words) -> np.uint64:
    """Draws 32 bits."""
    if words[2, 0]:
        words[2, 0] = 0
        return words[2, 1]
    mixed = _draw_64(words)
    words[2, 0], words[2, 1] = 1, mixed >> _BITS
    return mixed & _LOW


@part_of_kernel
def _draw_64(words: Words) -> np.uint64:
    """Draws 64 bits."""
    # Columns of the product of numbers of 32 bits, none of which is above 64 bits.
    s0, s1, s2, s3 = words[0, 0], words[0, 1], words[0, 2], words[0, 3]
    p00, p01, p10 = s0 * _M0, s0 * _M1, s1 * _M0
    p02, p11, p20 = s0 * _M2, s1 * _M1, s2 * _M0
    c0 = (p00 & _LOW) + words[1, 0]
    c1 = (c0 >> _BITS) + (p00 >> _BITS) + (p01 & _LOW) + (p10 & _LOW) + words[1, 1]
    c2 = (c1 >> _BITS) + (p01 >> _BITS) + (p10 >> _BITS) + (p02 & _LOW) + (p11 & _LOW) + (p20 & _LOW) + words[1, 2]
    c3 = (c2 >> _BITS) + (p02 >> _BITS) + (p11 >> _BITS) + (p20 >> _BITS) + words[1, 3]
    c3 += (s0 * _M3 & _LOW) + (s1 * _M2 & _LOW) + (s2 * _M1 & _LOW) + (s3 * _M0 & _LOW)
    s0, s1, s2, s3 = c0 & _LOW, c1 & _LOW, c2 & _LOW, c3 & _LOW
    words[0, 0], words[0, 1], words[0, 2], words[0, 3] = s0, s1, s2, s3
    mixed, turn = (s3 ^ s1) << _BITS | (s2 ^ s0), s3 >> np.uint64(26)
    return mixed >> turn | mixed << (np.uint64(64) - turn & np.uint64(63))
