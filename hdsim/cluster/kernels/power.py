"""Power to which nodes are committed."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import kernel
from hdsim.platform.node_state import NodeState

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
# Plain numbers, which index arrays in kernels.
_ON, _IDLE, _GOING_DOWN, _OFF, _BOOTING = (int(state) for state in NodeState)


@kernel
def busy_at(date: float, now: float, held: Ints, ends: Floats, rows: Ints, length: int) -> Ints:
    """Returns the (P,) cores of each processor that jobs will hold at a date; see :func:`committed_watts`."""
    if date <= now:
        return held.copy()
    busy = np.zeros(len(held), np.int64)
    for row in range(length):
        if ends[row] > date or ends[row] <= now:
            busy[rows[0, row]] += rows[1, row]
    return busy


@kernel
def change_busy(
    processor: int,
    count: int,
    busy: Ints,
    computing: Ints,
    processors: Ints,
    watts: Floats,
    shares: Floats,
    state_watts: Floats,
) -> float:
    """Adds a number of busy cores, which may be negative, and returns about how many W more nodes that are up draw.

    Args:
        processor: Their processor.
        count: The number.
        busy: (P,) busy cores of each processor.
        computing: (N,) busy cores of each node.
        processors: See :func:`committed_watts`, like the other arguments.
        watts: See there.
        shares: See there.
        state_watts: See there.
    """
    node = processors[0, processor]
    woken, used = int(busy[processor] == 0), int(computing[node] == 0)
    busy[processor] += count
    computing[node] += count
    woken -= int(busy[processor] == 0)
    used -= int(computing[node] == 0)
    beside = woken * (shares[1] - shares[2]) * processors[1, processor]
    more = watts[processor] * ((shares[0] - shares[1]) * count + beside)
    if used != 0:
        more += used * (state_watts[_ON, node] - state_watts[_IDLE, node])
    return more


@kernel
def further_watts(
    busy: Ints, added: Ints, processors: Ints, watts: Floats, shares: Floats, state_watts: Floats
) -> float:
    """Returns about how many W further busy cores add where all nodes are up.

    Args:
        busy: (P,) busy cores of each processor.
        added: (P,) further ones.
        processors: See :func:`committed_watts`, like the other arguments.
        watts: See there.
        shares: See there.
        state_watts: See there.
    """
    total, node, before, after = 0.0, -1, 0, 0
    for processor in range(len(busy)):
        if processors[0, processor] != node:
            if before == 0 and after > 0:
                total += state_watts[_ON, node] - state_watts[_IDLE, node]
            node, before, after = processors[0, processor], 0, 0
        before += busy[processor]
        more = added[processor]
        if more > 0:
            after += more
            total += watts[processor] * (shares[0] - shares[1]) * more
            if busy[processor] == 0:
                total += watts[processor] * (shares[1] - shares[2]) * processors[1, processor]
    if before == 0 and after > 0:
        total += state_watts[_ON, node] - state_watts[_IDLE, node]
    return total


@kernel
def first_below(
    most: float,
    level: float,
    dates: Floats,
    now: float,
    held: Ints,
    computing: Ints,
    ends: Floats,
    rows: Ints,
    length: int,
    processors: Ints,
    watts: Floats,
    shares: Floats,
    state_watts: Floats,
) -> tuple[int, float, Ints]:
    """Finds the first of some dates at which all nodes, which are up, draw about some W at most.

    Args:
        most: The W.
        level: W that they draw now.
        dates: (D,) s, ascending, now or later.
        now: See :func:`committed_watts`, like the others without explanation.
        held: See there.
        computing: (N,) cores of each node that jobs hold now.
        ends: See there.
        rows: See there.
        length: See there.
        processors: See there.
        watts: See there.
        shares: See there.
        state_watts: See there.

    Returns:
        Its place, D if there is none, about the W then, and the (P,) busy cores.
    """
    busy, computing = held.copy(), computing.copy()
    # Rows of jobs that end by each date, in order of the dates: those of a date begin where those before it end.
    place = np.searchsorted(dates, ends[:length])
    begins, order = np.zeros(len(dates) + 2, np.int64), np.empty(length, np.int64)
    for row in range(length):
        if ends[row] <= now:
            place[row] = len(dates)
        begins[place[row] + 1] += 1
    begins = np.cumsum(begins)
    at = begins.copy()
    for row in range(length):
        order[at[place[row]]] = row
        at[place[row]] += 1
    for i in range(len(dates)):
        if dates[i] > now:
            for row in order[begins[i] : begins[i + 1]]:
                level += change_busy(
                    rows[0, row], -rows[1, row], busy, computing, processors, watts, shares, state_watts
                )
        if level <= most:
            return i, level, busy
    return len(dates), level, busy


@kernel
def committed_watts(
    date: float,
    now: float,
    held: Ints,
    ends: Floats,
    rows: Ints,
    length: int,
    added: Ints,
    processors: Ints,
    watts: Floats,
    shares: Floats,
    state: Ints,
    ready: Floats,
    off: Floats,
    state_watts: Floats,
    woken: Bools,
    woken_ready: float,
    changed: int,
    more: float,
    chosen: Bools,
    off_nominal: Floats,
) -> float:
    """Returns the W to which some nodes are committed at a date, see :class:`hdsim.cluster.power_budget.PowerBudget`.

    Args:
        date: The date in seconds.
        now: Present time in seconds.
        held: (P,) cores of each processor that jobs hold now.
        ends: (R,) s, expected ends of jobs that hold cores of processors.
        rows: (3, R) these processors and numbers of cores.
        length: Number of rows in use.
        added: (P,) further busy cores.
        processors: (3, P) nodes, ascending, and cores of the processors, and whether each is a GPU.
        watts: (P,) W of a computing core.
        shares: (3,) parts of it that a core draws: computing, idle beside a busy core of its processor, other.
        state: (N,) :class:`hdsim.platform.node_state.NodeState`.
        ready: (N,) s, when nodes that are not up will be up.
        off: (N,) s, when nodes that go down will be off.
        state_watts: (5, N) W by state.
        woken: (N,) nodes that boot for the further cores.
        woken_ready: When the last of them is up, in seconds.
        changed: A node with at least `more` watts, -1 for none.
        more: See there.
        chosen: (N,) the nodes.
        off_nominal: (P,) W that busy cores draw more than at their nominal frequency.
    """
    busy, number = busy_at(date, now, held, ends, rows, length), len(state)
    cores, computing = np.zeros(number), np.zeros(number, np.int64)
    for processor in range(len(held)):
        node, count = processors[0, processor], busy[processor] + added[processor]
        beside = shares[1] if count > 0 else shares[2]
        cores[node] += watts[processor] * (shares[0] * count + beside * (processors[1, processor] - count))
        cores[node] += off_nominal[processor]
        computing[node] += count
    total = 0.0
    for node in range(number):
        if not chosen[node]:
            continue
        level = cores[node] + (state_watts[_ON, node] if computing[node] > 0 else state_watts[_IDLE, node])
        if state[node] != _ON:
            asked = ready[node] < math.inf
            if date <= now and state[node] == _OFF and not asked and not woken[node]:
                level = state_watts[_OFF, node]
            if state[node] == _GOING_DOWN and off[node] > date:
                level = max(level, state_watts[_GOING_DOWN, node])
            if (asked and ready[node] > date) or (woken[node] and woken_ready > date):
                level = max(level, state_watts[_BOOTING, node])
        if node == changed:
            level = max(level, more)
        total += level
    return total


@kernel
def added_cores(ids: Ints, owner: NDArray[np.int32], processors: int) -> Ints:
    """Returns the (P,) number of cores of each processor among some.

    Args:
        ids: (n,) cores.
        owner: (C,) processor of each core.
        processors: Number of processors.
    """
    cores = np.zeros(processors, np.int64)
    for core in ids:
        cores[owner[core]] += 1
    return cores


@kernel
def with_job(
    job: int,
    end: float,
    ids: Ints,
    owner: NDArray[np.int32],
    ends: Floats,
    rows: Ints,
    length: int,
    held: Ints,
    computing: Ints,
    processors: Ints,
    watts: Floats,
    shares: Floats,
    state_watts: Floats,
) -> tuple[int, float]:
    """Adds the cores of a job to those held, and columns of it to `ends` and `rows`.

    Args:
        job: The job.
        end: Its expected end in seconds.
        ids: (n,) its cores, ascending.
        owner: (C,) processor of each core.
        ends: (R,) see :func:`committed_watts`; there is space for n more.
        rows: (3, R) processors, numbers of cores and jobs.
        length: Number of columns in use.
        held: (P,) cores of each processor that jobs hold.
        computing: (N,) cores of each node that jobs hold.
        processors: See :func:`committed_watts`, like the other arguments.
        watts: See there.
        shares: See there.
        state_watts: See there.

    Returns:
        The number of columns then, and about how many W more all nodes draw where they are up.
    """
    first = length
    for core in ids:
        processor = owner[core]
        if length == first or rows[0, length - 1] != processor:
            ends[length], rows[0, length], rows[1, length], rows[2, length] = end, processor, 0, job
            length += 1
        rows[1, length - 1] += 1
    more = 0.0
    for row in range(first, length):
        more += change_busy(rows[0, row], rows[1, row], held, computing, processors, watts, shares, state_watts)
    return length, more


@kernel
def without_job(
    job: int,
    ends: Floats,
    rows: Ints,
    length: int,
    held: Ints,
    computing: Ints,
    processors: Ints,
    watts: Floats,
    shares: Floats,
    state_watts: Floats,
) -> tuple[int, float]:
    """Takes the cores of a job off those held and its columns out of `ends` and `rows`; see :func:`with_job`."""
    kept, more = 0, 0.0
    for row in range(length):
        if rows[2, row] == job:
            more += change_busy(rows[0, row], -rows[1, row], held, computing, processors, watts, shares, state_watts)
        else:
            if kept < row:
                ends[kept] = ends[row]
                for part in range(3):
                    rows[part, kept] = rows[part, row]
            kept += 1
    return kept, more


@kernel
def core_costs(processors: Ints, watts: Floats, shares: Floats, state_watts: Floats) -> tuple[Ints, Floats]:
    """Returns what a core adds at least by the use of its processor, ascending: (2, 4 P) processor and use, and W.

    A core of a processor in use (0) adds the difference of a computing and an idle core; one of another processor (1),
    and of a node not in use (2), adds at least its part of what all of them add; one of a node that is not up (3) may
    add nothing. Processors of GPUs have no rows.

    Args:
        processors: See :func:`committed_watts`, like the other arguments.
        watts: See there.
        shares: See there.
        state_watts: See there.
    """
    number, cores = processors.shape[1], np.zeros(state_watts.shape[1], np.int64)
    for processor in range(number):
        if processors[2, processor] == 0:
            cores[processors[0, processor]] += processors[1, processor]
    rows, costs, length = np.empty((2, 4 * number), np.int64), np.empty(4 * number), 0
    for processor in range(number):
        if processors[2, processor] > 0:
            continue
        node = processors[0, processor]
        more = state_watts[_ON, node] - state_watts[_IDLE, node]
        more = more / cores[node] if more > 0.0 else more
        alone = watts[processor] * (shares[0] - shares[2])
        for use in range(4):
            rows[0, length], rows[1, length] = processor, use
            costs[length] = (watts[processor] * (shares[0] - shares[1]), alone, alone + more, 0.0)[use]
            length += 1
    order = np.argsort(costs[:length])
    return rows[:, order], costs[order]


@kernel
def most_cores(room: float, busy: Ints, processors: Ints, state: Ints, rows: Ints, costs: Floats) -> int:
    """Returns how many cores that are not busy can compute at most within some W more.

    Args:
        room: The W.
        busy: (P,) cores of each processor that are.
        processors: See :func:`committed_watts`.
        state: See there.
        rows: See `core_costs`.
        costs: See there.
    """
    used = np.zeros(len(state), np.bool_)
    for processor in range(len(busy)):
        used[processors[0, processor]] |= busy[processor] > 0
    count, total = 0, 0.0
    for row in range(len(costs)):
        processor, cost = rows[0, row], costs[row]
        node, free = processors[0, processor], processors[1, processor] - busy[processor]
        use = 0 if busy[processor] > 0 else (1 if used[node] else 2)
        if state[node] != _ON:
            use = 3
        if use != rows[1, row] or free <= 0:
            continue
        if cost <= 0.0 or total + cost * free <= room:
            count += free
            total += cost * free
        else:
            return count + max(int((room - total) // cost), 0)
    return count
