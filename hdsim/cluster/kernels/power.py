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
    busy, number = np.zeros(len(held), np.int64), len(state)
    if date <= now:
        busy[:] = held
    else:
        for row in range(length):
            if ends[row] > date or ends[row] <= now:
                busy[rows[0, row]] += rows[1, row]
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
    job: int, end: float, ids: Ints, owner: NDArray[np.int32], ends: Floats, rows: Ints, length: int, held: Ints
) -> int:
    """Adds the cores of a job to those held, and columns of it to `ends` and `rows`; returns how many there are then.

    Args:
        job: The job.
        end: Its expected end in seconds.
        ids: (n,) its cores, ascending.
        owner: (C,) processor of each core.
        ends: (R,) see :func:`committed_watts`; there is space for n more.
        rows: (3, R) processors, numbers of cores and jobs.
        length: Number of columns in use.
        held: (P,) cores of each processor that jobs hold.
    """
    first = length
    for core in ids:
        processor = owner[core]
        held[processor] += 1
        if length == first or rows[0, length - 1] != processor:
            ends[length], rows[0, length], rows[1, length], rows[2, length] = end, processor, 0, job
            length += 1
        rows[1, length - 1] += 1
    return length


@kernel
def without_job(job: int, ends: Floats, rows: Ints, length: int, held: Ints) -> int:
    """Takes the cores of a job off those held and its columns out of `ends` and `rows`; returns how many are left.

    Args:
        job: The job.
        ends: (R,) see :func:`committed_watts`.
        rows: (3, R) processors, numbers of cores and jobs.
        length: Number of columns in use.
        held: (P,) cores of each processor that jobs hold.
    """
    kept = 0
    for row in range(length):
        if rows[2, row] == job:
            held[rows[0, row]] -= rows[1, row]
        else:
            ends[kept] = ends[row]
            for part in range(3):
                rows[part, kept] = rows[part, row]
            kept += 1
    return kept


@kernel
def most_cores(
    room: float, held: Ints, processors: Ints, watts: Floats, shares: Floats, state: Ints, state_watts: Floats
) -> int:
    """Returns how many cores that are not held can compute at most within some W more.

    A core of a processor in use adds the difference of a computing and an idle core; one of another processor, and of a
    node not in use, adds at least its part of what all of them add; one of a node that is not up may add nothing.

    Args:
        room: The W.
        held: (P,) see :func:`committed_watts`, like the other arguments.
        processors: See there.
        watts: See there.
        shares: See there.
        state: See there.
        state_watts: See there.
    """
    number, used, cores = len(held), np.zeros(len(state), np.bool_), np.zeros(len(state), np.int64)
    for processor in range(number):
        node = processors[0, processor]
        used[node] |= held[processor] > 0
        if processors[2, processor] == 0:
            cores[node] += processors[1, processor]
    cost, free = np.zeros(number), np.zeros(number, np.int64)
    for processor in range(number):
        node = processors[0, processor]
        if processors[2, processor] > 0:
            continue
        free[processor] = processors[1, processor] - held[processor]
        if state[node] != _ON:
            continue
        beside = shares[1] if held[processor] > 0 else shares[2]
        cost[processor] = watts[processor] * (shares[0] - beside)
        if not used[node]:
            more = state_watts[_ON, node] - state_watts[_IDLE, node]
            cost[processor] += more / cores[node] if more > 0.0 else more
    count, total = 0, 0.0
    for processor in np.argsort(cost):
        if free[processor] <= 0:
            continue
        if cost[processor] <= 0.0 or total + cost[processor] * free[processor] <= room:
            count += free[processor]
            total += cost[processor] * free[processor]
        else:
            return count + max(int((room - total) // cost[processor]), 0)
    return count
