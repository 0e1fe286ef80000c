"""Cores of one job."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@kernel
def count_cores(
    core_processor: NDArray[np.int32], processor_node: NDArray[np.int32], cores: Ints, out: Ints
) -> tuple[int, int]:
    """Counts cores by processor and node.

    Args:
        core_processor: (C,) processor of a core.
        processor_node: (P,) node of a processor.
        cores: (n,) core ids, ascending.
        out: (4, n) array that receives the processors of the cores, the number of cores on each, the nodes, and the
            number of cores on each.

    Returns:
        The number of processors and of nodes.
    """
    processors, nodes = 0, 0
    for core in cores:
        processor = core_processor[core]
        node = processor_node[processor]
        if processors == 0 or out[0, processors - 1] != processor:
            out[0, processors], out[1, processors] = processor, 0
            processors += 1
        if nodes == 0 or out[2, nodes - 1] != node:
            out[2, nodes], out[3, nodes] = node, 0
            nodes += 1
        out[1, processors - 1] += 1
        out[3, nodes - 1] += 1
    return processors, nodes


@kernel
def lowest(values: Floats, places: Ints) -> float:
    """Returns the minimum of the values at some indices, infinite if there is none."""
    low = math.inf
    for place in places:
        low = min(low, values[place])
    return low
