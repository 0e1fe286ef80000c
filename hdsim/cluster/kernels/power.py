"""Power to which nodes are committed."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import kernel

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@kernel
def committed_watts(
    date: float,
    now: float,
    held: Ints,
    ends: Floats,
    rows: Ints,
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
) -> float:
    """Returns the W to which some nodes are committed at a date, see :class:`hdsim.cluster.power_budget.PowerBudget`.

    Args:
        date: The date in seconds.
        now: Present time in seconds.
        held: (P,) cores of each processor that jobs hold now.
        ends: (R,) s, expected ends of jobs that hold cores of processors.
        rows: (2, R) these processors and numbers of cores.
        added: (P,) further busy cores.
        processors: (2, P) nodes, ascending, and cores of the processors.
        watts: (P,) W of a computing core.
        shares: (3,) parts of it that a core draws: computing, idle beside a busy core of its processor, other.
        state: (N,) :class:`hdsim.platform.states.NodeState`.
        ready: (N,) s, when nodes that are not up will be up.
        off: (N,) s, when nodes that go down will be off.
        state_watts: (5, N) W by state.
        woken: (N,) nodes that boot for the further cores.
        woken_ready: When the last of them is up, in seconds.
        changed: A node with at least `more` watts, -1 for none.
        more: See there.
        chosen: (N,) the nodes.
    """
    busy, number = np.zeros(len(held), np.int64), len(state)
    if date <= now:
        busy[:] = held
    else:
        for row in range(len(ends)):
            if ends[row] > date or ends[row] <= now:
                busy[rows[0, row]] += rows[1, row]
    cores, computing = np.zeros(number), np.zeros(number, np.int64)
    for processor in range(len(held)):
        node, count = processors[0, processor], busy[processor] + added[processor]
        beside = shares[1] if count > 0 else shares[2]
        cores[node] += watts[processor] * (shares[0] * count + beside * (processors[1, processor] - count))
        computing[node] += count
    total = 0.0
    for node in range(number):
        if not chosen[node]:
            continue
        level = cores[node] + (state_watts[0, node] if computing[node] > 0 else state_watts[1, node])
        if state[node] > 0:
            asked = ready[node] < math.inf
            if date <= now and state[node] == 3 and not asked and not woken[node]:
                level = state_watts[3, node]
            if state[node] == 2 and off[node] > date:
                level = max(level, state_watts[2, node])
            if (asked and ready[node] > date) or (woken[node] and woken_ready > date):
                level = max(level, state_watts[4, node])
        if node == changed:
            level = max(level, more)
        total += level
    return total
