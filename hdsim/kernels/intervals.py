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
def count_busy(
    begins: Ints, first: Ids, last: Ids, core_owner: Ids, first_core: Ids, events: Ints, kind: Ints, counts: Ints
) -> None:
    """Counts the owners of each kind with a busy core after each begin and end of the use of a set.

    Args:
        begins: See the module.
        first: See the module.
        last: See the module.
        core_owner: (C,) owner of a core, such as its node.
        first_core: (O + 1,) first core of an owner.
        events: (2 S,) in order of time, i for the begin of set i and S + i for its end.
        kind: (O,) kind of each owner.
        counts: (2 S, K) output, 0 before.
    """
    busy, now, sets = np.zeros(len(kind), np.int64), np.zeros(counts.shape[1], np.int64), len(begins) - 1
    for event in range(len(events)):
        one = events[event] % sets
        sign = 1 if events[event] < sets else -1
        for i in range(begins[one], begins[one + 1]):
            core = first[i]
            while core <= last[i]:
                owner = core_owner[core]
                after = min(last[i] + 1, first_core[owner + 1])
                before = busy[owner] > 0
                busy[owner] += sign * (after - core)
                now[kind[owner]] += int(busy[owner] > 0) - int(before)
                core = after
        for k in range(len(now)):
            counts[event, k] = now[k]


@kernel
def find_power(
    begins: Ints,
    first: Ids,
    last: Ids,
    core_processor: Ids,
    first_core: Ids,
    events: Ints,
    kind: Ints,
    watts: Floats,
    shares: Floats,
    power: Floats,
) -> None:
    """Computes the power of all processors after each begin and end of the use of a set.

    Cores are counted by state, so that a power is independent of the events before it to its last digit.

    Args:
        begins: See the module.
        first: See the module.
        last: See the module.
        core_processor: See the module.
        first_core: See the module.
        events: (2 S,) in order of time, i for the begin of set i and S + i for its end.
        kind: (P,) index in `watts`.
        watts: (K,) power of a computing core in W.
        shares: (3,) parts of it that a core draws: computing, idle beside a busy core of its processor, other.
        power: (2 S,) output: W after each event.
    """
    busy = np.zeros(len(kind), np.int64)
    # Cores of each kind: all, those of processors with a busy core, busy ones.
    cores = np.zeros(len(watts), np.int64)
    awake, computing = cores.copy(), cores.copy()
    for p in range(len(kind)):
        cores[kind[p]] += first_core[p + 1] - first_core[p]
    sets = len(begins) - 1
    for event in range(len(events)):
        one = events[event] % sets
        sign = 1 if events[event] < sets else -1
        for i in range(begins[one], begins[one + 1]):
            core = first[i]
            while core <= last[i]:
                p = core_processor[core]
                after = min(last[i] + 1, first_core[p + 1])
                if busy[p] > 0:
                    awake[kind[p]] -= first_core[p + 1] - first_core[p]
                busy[p] += sign * (after - core)
                computing[kind[p]] += sign * (after - core)
                if busy[p] > 0:
                    awake[kind[p]] += first_core[p + 1] - first_core[p]
                core = after
        total = 0.0
        for k in range(len(watts)):
            idle = shares[1] * (awake[k] - computing[k]) + shares[2] * (cores[k] - awake[k])
            total += watts[k] * (shares[0] * computing[k] + idle)
        power[event] = total
