"""Idle power of shared nodes, split among the jobs there."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import kernel

Floats = NDArray[np.float64]
Ids = NDArray[np.int32]
Ints = NDArray[np.int64]


@kernel
def split_idle(
    events: Ints,
    first_row: Ints,
    processor: Ids,
    cores: Ints,
    processor_node: Ids,
    first_processor: Ids,
    size: Ints,
    watts: Floats,
    kind: Ints,
    more: Floats,
    busy_share: float,
    idle_share: Floats,
    clocks: Floats,
    shared: Floats,
) -> None:
    """Charges what the idle cores of a node take to the jobs there, in proportion to the power of the cores they hold.

    Each node has a meter for each clock, which runs at (power of its idle cores) / (power of its busy cores) times the
    clock while any core is busy: a segment pays what the meters of its nodes have advanced, times the power of its
    cores there. Numbers of cores are counted, so that a power depends on no event before it.

    Args:
        events: (2 A,) in order of time, i for the begin of segment i and A + i for its end.
        first_row: (A + 1,) first row of each segment.
        processor: (U,) processor of each row.
        cores: (U,) cores that the segment holds there.
        processor_node: (P,) node of each processor.
        first_processor: (N + 1,) first processor of each node.
        size: (P,) cores of each processor.
        watts: (P,) power of a computing core at the nominal frequency.
        kind: (A,) frequency of each segment, as a column of `more`.
        more: (P, F) power that a computing core takes beyond `busy_share` of `watts` at each frequency.
        busy_share: Share of it that a busy core takes.
        idle_share: (2,) share of it that an idle core takes, by whether another core of its processor is busy.
        clocks: (K, 2 A) value of each clock at the begin of each segment and at the end of each.
        shared: (K, A) output: what each segment is charged.
    """
    kinds, segments, nodes = clocks.shape[0], len(first_row) - 1, len(first_processor) - 1
    frequencies = more.shape[1]
    busy = np.zeros(len(watts), np.int64)
    # Busy cores at each frequency.
    of_kind = np.zeros((len(watts), frequencies), np.int64)
    meter, read = np.zeros((nodes, kinds)), np.zeros((nodes, kinds))
    at_begin = np.zeros((len(processor), kinds))
    for place in range(len(events)):
        event = events[place]
        begins = event < segments
        one = event if begins else event - segments
        for row in range(first_row[one], first_row[one + 1]):
            p = processor[row]
            node = processor_node[p]
            drawn, idle = 0.0, 0.0
            for q in range(first_processor[node], first_processor[node + 1]):
                drawn += busy_share * watts[q] * busy[q]
                if frequencies > 1:
                    for f in range(frequencies):
                        drawn += more[q, f] * of_kind[q, f]
                idle += idle_share[1 if busy[q] > 0 else 0] * watts[q] * (size[q] - busy[q])
            for k in range(kinds):
                if drawn > 0:
                    meter[node, k] += idle / drawn * (clocks[k, event] - read[node, k])
                read[node, k] = clocks[k, event]
                if begins:
                    at_begin[row, k] = meter[node, k]
                else:
                    advance = meter[node, k] - at_begin[row, k]
                    shared[k, one] += (busy_share * watts[p] * cores[row] + more[p, kind[one]] * cores[row]) * advance
            busy[p] += cores[row] if begins else -cores[row]
            of_kind[p, kind[one]] += cores[row] if begins else -cores[row]
