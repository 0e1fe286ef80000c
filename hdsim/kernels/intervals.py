"""Sets of core ids, given as intervals: texts, cores on processors, busy time and power.

All functions take the sets as three arrays: ``begins`` (S + 1,), index of the first interval of each set, ``first``
(R,) and ``last`` (R,), the least and the greatest id of each interval, ascending within a set. Processors are given by
``core_processor`` (C,) and ``first_core`` (P + 1,), the first core of each; the last entry is C.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import kernel

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float64]
Ids = NDArray[np.int32]
Ints = NDArray[np.int64]

_ZERO, _SPACE, _DASH, _NEWLINE = ord("0"), ord(" "), ord("-"), ord("\n")


@kernel
def _write_number(text: Bytes, end: int, number: int) -> int:
    """Appends a number of at least 0 to a text; returns the new end of the text."""
    digits, power = 1, 10
    while number >= power:
        digits += 1
        power *= 10
    for place in range(end + digits - 1, end - 1, -1):
        text[place] = _ZERO + number % 10
        number //= 10
    return end + digits


@kernel
def write_sets(begins: Ints, first: Ids, last: Ids, text: Bytes) -> int:
    """Writes sets such as ``0-3 8``, each followed by a newline; returns the length of the text."""
    end = 0
    for one in range(len(begins) - 1):
        for i in range(begins[one], begins[one + 1]):
            if i > begins[one]:
                text[end] = _SPACE
                end += 1
            end = _write_number(text, end, first[i])
            if last[i] > first[i]:
                text[end] = _DASH
                end = _write_number(text, end + 1, last[i])
        text[end] = _NEWLINE
        end += 1
    return end


@kernel
def count_groups(begins: Ints, first: Ids, last: Ids, group: Ids, counts: Ints) -> None:
    """Adds, to the count (S,) of each set, the groups of its ids; the group of an id, at least 0, ascends."""
    for one in range(len(begins) - 1):
        previous = -1
        for i in range(begins[one], begins[one + 1]):
            low, high = group[first[i]], group[last[i]]
            counts[one] += high - low + (1 if low != previous else 0)
            previous = high


@kernel
def count_cores(
    begins: Ints, first: Ids, last: Ids, core_processor: Ids, first_core: Ids, sets: Ints, processors: Ids, cores: Ints
) -> int:
    """Counts the ids of each set on each processor.

    Args:
        begins: See the module.
        first: See the module.
        last: See the module.
        core_processor: See the module.
        first_core: See the module.
        sets: (U,) output: set of each row, ascending.
        processors: (U,) output: processor of each row, ascending within a set.
        cores: (U,) output: ids of the set on the processor.

    Returns:
        The number of rows, at most the sum over the intervals of their numbers of processors.
    """
    rows = 0
    for one in range(len(begins) - 1):
        begin = rows
        for i in range(begins[one], begins[one + 1]):
            core = first[i]
            while core <= last[i]:
                p = core_processor[core]
                after = min(last[i] + 1, first_core[p + 1])
                if rows > begin and processors[rows - 1] == p:
                    cores[rows - 1] += after - core
                else:
                    sets[rows], processors[rows], cores[rows] = one, p, after - core
                    rows += 1
                core = after
    return rows


@kernel
def add_busy_seconds(
    begins: Ints, first: Ids, last: Ids, core_processor: Ids, first_core: Ids, begin: Floats, end: Floats, busy: Floats
) -> None:
    """Adds the busy time of processors.

    Args:
        begins: See the module.
        first: See the module.
        last: See the module.
        core_processor: See the module.
        first_core: See the module.
        begin: (S,) s, begin of the use of each set, ascending.
        end: (S,) s.
        busy: (2, P) output: busy core-seconds, and seconds in which any core of the processor is busy.
    """
    covered = np.full(len(first_core) - 1, -np.inf)
    for one in range(len(begins) - 1):
        since, until = begin[one], end[one]
        for i in range(begins[one], begins[one + 1]):
            core = first[i]
            while core <= last[i]:
                p = core_processor[core]
                after = min(last[i] + 1, first_core[p + 1])
                busy[0, p] += (until - since) * (after - core)
                if until > covered[p]:
                    busy[1, p] += until - max(since, covered[p])
                    covered[p] = until
                core = after


@kernel
def neighbours_alike(first_core: Ids, kind: Ints) -> Ints:
    """Returns the last of the neighbouring owners of the kind of each owner (O,) that all have cores."""
    alike = np.arange(len(kind))
    for owner in range(len(kind) - 2, -1, -1):
        if kind[owner] == kind[owner + 1] and first_core[owner + 2] > first_core[owner + 1] > first_core[owner]:
            alike[owner] = alike[owner + 1]
    return alike


@kernel
def count_busy(
    begins: Ints,
    first: Ids,
    last: Ids,
    core_owner: Ids,
    first_core: Ids,
    events: Ints,
    kind: Ints,
    alike: Ints,
    busy: Ints,
    now: Ints,
    counts: Ints,
) -> None:
    """Counts owners with busy cores after each begin and end of the use of a set, and these cores, by kind.

    An id is in one set at a time. Neighbouring owners of a kind all of whose cores a set has are counted at once.

    Args:
        begins: See the module.
        first: See the module.
        last: See the module.
        core_owner: (C,) owner of a core, such as its node.
        first_core: (O + 1,) first core of an owner.
        events: (E,) in order of time, i for the begin of set i and S + i for its end.
        kind: (O,) kind of each owner.
        alike: See `neighbours_alike`.
        busy: (O,) busy cores of owners of which a set has some, before the events and after them.
        now: (3, K) of each kind the owners with a busy core, their cores, and the busy ones; as `busy`.
        counts: (3, K, E) output: `now` after each event.
    """
    sets = len(begins) - 1
    for event in range(len(events)):
        one, sign = events[event], 1
        if one >= sets:
            one, sign = one - sets, -1
        for i in range(begins[one], begins[one + 1]):
            core, behind = first[i], last[i] + 1
            while core < behind:
                owner = core_owner[core]
                k, after = kind[owner], first_core[owner + 1]
                if core == first_core[owner] and after <= behind:
                    until = core_owner[behind - 1]
                    if first_core[until + 1] > behind:
                        until -= 1
                    until = min(until, alike[owner])
                    after = first_core[until + 1]
                    now[0, k] += sign * (until + 1 - owner)
                    now[1, k] += sign * (after - core)
                else:
                    after = min(behind, after)
                    turned = -int(busy[owner] > 0)
                    busy[owner] += sign * (after - core)
                    turned += int(busy[owner] > 0)
                    now[0, k] += turned
                    now[1, k] += turned * (first_core[owner + 1] - first_core[owner])
                now[2, k] += sign * (after - core)
                core = after
        for k in range(now.shape[1]):
            for part in range(3):
                counts[part, k, event] = now[part, k]
