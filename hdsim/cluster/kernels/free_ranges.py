"""Idle cores as ranges of their ranks in the order of preference, the most preferred core last.

A job takes the tail of the ranges, so that a pick costs as much as it has ranges, whatever the number of cores.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import lean_kernel

Ints = NDArray[np.int64]
Ranks = NDArray[np.int32]


class FreeRanges(NamedTuple):
    """Maximal ranges of idle ranks, ascending.

    Attributes:
        first: (C,) first rank of each range.
        last: (C,) last rank of each range.
        length: (2,) number of ranges, of which the arrays may have more, and number of idle cores.
    """

    first: Ranks
    last: Ranks
    length: NDArray[np.int64]


def make_free_ranges(cores: int) -> FreeRanges:
    """Returns all of some cores as idle."""
    first, last = np.zeros(cores, np.int32), np.full(cores, cores - 1, np.int32)
    return FreeRanges(first, last, np.array([min(cores, 1), cores]))


@lean_kernel
def take(idle: FreeRanges, cores: int, first: Ranks, last: Ranks, place: int) -> int:
    """Takes the most preferred idle cores.

    Args:
        idle: The idle cores.
        cores: Number of cores, at most as many as are idle.
        first: Receives the first rank of each range taken, descending.
        last: Receives the last rank of each range taken.
        place: Index of the first of these.

    Returns:
        The index behind the last of these.
    """
    count = idle.length[0]
    idle.length[1] -= cores
    while cores > 0:
        low, high = idle.first[count - 1], idle.last[count - 1]
        if high - low >= cores:
            low = np.int32(high - cores + 1)
            idle.last[count - 1] = low - 1
        else:
            count -= 1
        first[place], last[place] = low, high
        cores -= high - low + 1
        place += 1
    idle.length[0] = count
    return place


@lean_kernel
def give(idle: FreeRanges, first: Ranks, last: Ranks, begin: int, end: int) -> None:
    """Gives back ranges of cores.

    Args:
        idle: The idle cores.
        first: First rank of each range, descending.
        last: Last rank of each range.
        begin: Index of the first range.
        end: Index behind the last range.
    """
    low, high, count, more = 0, idle.length[0], idle.length[0], end - begin
    while low < high:
        middle = (low + high) // 2
        if idle.first[middle] < first[end - 1]:
            low = middle + 1
        else:
            high = middle
    for i in range(count - 1, low - 1, -1):
        idle.first[i + more], idle.last[i + more] = idle.first[i], idle.last[i]
    # Merges both from the lowest range given back on; ranges that touch become one.
    count += more
    written, i, j = low, low + more, end - 1
    while i < count or j >= begin:
        if i == count or (j >= begin and first[j] < idle.first[i]):
            lower, upper = first[j], last[j]
            idle.length[1] += upper - lower + 1
            j -= 1
        else:
            lower, upper = idle.first[i], idle.last[i]
            i += 1
        if written > 0 and idle.last[written - 1] + 1 == lower:
            idle.last[written - 1] = upper
        else:
            idle.first[written], idle.last[written] = lower, upper
            written += 1
    idle.length[0] = written


@lean_kernel
def placements(
    log: Ints,
    cores: Ints,
    idle: FreeRanges,
    running: int,
    number: Ints,
    started: Ints,
    held: Ints,
    first: Ranks,
    last: Ranks,
) -> int:
    """Gives out cores in the order of starts and ends.

    Args:
        log: (L,) starts and ends in turn: i for the start of job i, ~i for its end.
        cores: (J,) cores of each job.
        idle: The idle cores after the first `running` starts.
        running: Number of starts that the log begins with, whose ranges are known.
        number: (J,) receives the number of the start of each job that has started.
        started: (S or more,) receives the jobs in order of their starts.
        held: (S + 1 or more,) receives the index of the first range of each start, and behind the last.
        first: Receives the first rank of each range of cores, start by start.
        last: Receives the last rank of each.

    Returns:
        The number of starts; -1 if the ranges need more space.
    """
    starts = 0
    for event in log:
        if event < 0:
            own = number[~event]
            give(idle, first, last, held[own], held[own + 1])
            continue
        number[event], started[starts] = starts, event
        if starts >= running:
            if held[starts] + cores[event] > len(first):
                return -1
            held[starts + 1] = take(idle, cores[event], first, last, held[starts])
        starts += 1
    return starts
