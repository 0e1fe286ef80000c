"""Core policies: which idle cores a job gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hdsim.util.arrays import Floats, Ints
from hdsim.util.units import in_bytes

if TYPE_CHECKING:
    from hdsim.cluster.requests import Requests
    from hdsim.platform.model import Platform

#: Core policies whose key never changes: name -> (P,) key of a processor, highest first.
STATIC_KEYS = {
    "high_gflops": lambda platform: platform.gflops,
    "low_power": lambda platform: -platform.power,
}
#: HDeepRM's six, and two that mind the nodes a job is on.
CORE_POLICIES = ("random", "high_gflops", "high_cores", "high_mem", "high_mem_bw", "low_power", "spread", "pack")


def static_scores(platform: Platform, requests: Requests) -> dict[str, Floats]:
    """(P,) keys of processors, highest first, under the core policies whose keys none of the jobs can move."""
    keys: dict[str, Floats] = {name: key(platform).astype(np.float64) for name, key in STATIC_KEYS.items()}
    if not (requests.memory_matters or any(requests.memory)):
        keys["high_mem"] = in_bytes(platform.memory)[platform.processor_node]
    if not np.isfinite(platform.mem_bw).any() or not (requests.open_ended or any(requests.bandwidth)):
        keys["high_mem_bw"] = platform.mem_bw
    return keys


def rank_cores(key: Floats, platform: Platform) -> Ints:
    """All cores from the best to the worst by a (P,) key of processors, the highest first, then by id."""
    return np.argsort(-key[platform.core_processor], kind="stable").astype(np.int64)


def water_fill(n: int, idle: Ints) -> Ints:
    """How many cores processors give when always the one with the most idle cores gives one, n in all.

    Args:
        n: How many; there must be enough.
        idle: Idle cores of each processor.
    """
    # All idle cores above a level are given, and from the first processors that reach the level one more each.
    at_least = np.bincount(idle)[::-1].cumsum()[::-1]
    above = at_least[:0:-1].cumsum()
    level = len(at_least) - 1 - int(above.searchsorted(n, side="right"))
    given = np.maximum(idle - level, 0)
    given[(idle >= level).nonzero()[0][: n - int(np.add.reduce(given))]] += 1
    return given
