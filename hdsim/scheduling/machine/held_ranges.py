"""Interchangeable cores with ids as a part of the machine: which are idle, and which each job holds.

Cores are ranks, the most preferred one last, see :mod:`hdsim.cluster.kernels.free_ranges`; here that is the core of the
lowest id, so that core `i` of those without GPUs has the rank ``cores - 1 - i``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.kernels.free_ranges import FreeRanges, give, make_free_ranges, take
from hdsim.kernels.compiling import in_python, part_of_kernel
from hdsim.scheduling.machine.state import Floats, Ints

#: The present of the cores.
RANGES_STATE = np.dtype(
    [
        ("used", "i8"),  # entries of `HeldRanges.first` in use
        ("chosen", "i8"),  # the entry behind those of the cores that have been chosen, -1 if none have
    ],
    align=True,
)


class HeldRanges(NamedTuple):
    """Cores of J jobs on C cores.

    Attributes:
        cores: C.
        state: (1,) of type `RANGES_STATE`.
        idle: Idle cores that a job can get at once.
        begin: (J,) first range of a started job, in the next two.
        end: (J,) the range behind the last one.
        first: (R,) first rank of each range, in order of the requests to start jobs and then descending.
        last: (R,) last rank of each.
        expected: (J,) expected end of a running job in seconds.
    """

    cores: int
    state: Any
    idle: FreeRanges
    begin: Ints
    end: Ints
    first: NDArray[np.int32]
    last: NDArray[np.int32]
    expected: Floats


def make_held_ranges(jobs: int, cores: int) -> HeldRanges:
    """Returns all of some cores as idle, with space for the ranges of a number of jobs."""
    space = 2 * jobs + cores + 1
    return HeldRanges(
        cores=cores,
        state=np.array([(0, -1)], RANGES_STATE).view(np.recarray),
        idle=make_free_ranges(cores),
        begin=np.zeros(jobs, np.int64),
        end=np.zeros(jobs, np.int64),
        first=np.zeros(space, np.int32),
        last=np.zeros(space, np.int32),
        expected=np.zeros(jobs),
    )


@part_of_kernel
def lacks_ranges(held: HeldRanges) -> bool:
    """Returns whether the next instant might need more space: a range for each core, and one that is in work."""
    return held.state[0].used + held.cores + 1 > len(held.first)


def with_ranges(held: HeldRanges) -> HeldRanges:
    """Returns the cores with more space for ranges, if there is too little."""
    if not in_python(lacks_ranges)(held):
        return held
    return held._replace(first=doubled(held.first), last=doubled(held.last))


def doubled(values: Any) -> Any:
    """Returns an array with as much space again behind the values of its last axis."""
    longer = np.empty((*values.shape[:-1], 2 * values.shape[-1]), values.dtype)
    longer[..., : values.shape[-1]] = values
    return longer


@part_of_kernel
def choose_lowest(held: HeldRanges, size: int) -> None:
    """Chooses the idle cores of the lowest ids for a job, and takes them."""
    state = held.state[0]
    state.chosen = take(held.idle, size, held.first, held.last, state.used)


@part_of_kernel
def put_back(held: HeldRanges) -> None:
    """Gives back cores that have been chosen."""
    state = held.state[0]
    give(held.idle, held.first, held.last, state.used, state.chosen)
    state.chosen = -1


@part_of_kernel
def keep_chosen(held: HeldRanges, job: int) -> None:
    """Gives the chosen cores to a job."""
    state = held.state[0]
    held.begin[job], held.end[job] = state.used, state.chosen
    state.used, state.chosen = state.chosen, -1


@part_of_kernel
def give_back(held: HeldRanges, job: int) -> None:
    """Releases the cores of a job."""
    give(held.idle, held.first, held.last, held.begin[job], held.end[job])


@part_of_kernel
def add_cores(held: HeldRanges, first: int, last: int) -> None:
    """Adds neighbouring cores, by the numbers of the first and the last one, to those that jobs can get at once."""
    # The entry behind all others is free.
    place, top = len(held.first) - 1, held.cores - 1
    held.first[place], held.last[place] = top - last, top - first
    give(held.idle, held.first, held.last, place, place + 1)


@part_of_kernel
def remove_cores(held: HeldRanges, first: int, last: int) -> None:
    """Removes neighbouring idle cores, by the numbers of the first and the last one."""
    idle, top = held.idle, held.cores - 1
    lowest, highest = np.int32(top - last), np.int32(top - first)
    low, high, count = 0, idle.length[0], idle.length[0]
    while low < high:
        middle = (low + high) // 2
        if idle.last[middle] < lowest:
            low = middle + 1
        else:
            high = middle
    begin, end = idle.first[low], idle.last[low]
    idle.length[1] -= last - first + 1
    kept = int(begin < lowest) + int(end > highest)
    if kept == 2:
        for i in range(count, low, -1):
            idle.first[i], idle.last[i] = idle.first[i - 1], idle.last[i - 1]
        idle.last[low], idle.first[low + 1] = lowest - 1, highest + 1
    elif kept == 0:
        for i in range(low, count - 1):
            idle.first[i], idle.last[i] = idle.first[i + 1], idle.last[i + 1]
    elif begin < lowest:
        idle.last[low] = lowest - 1
    else:
        idle.first[low] = highest + 1
    idle.length[0] = count + kept - 1
