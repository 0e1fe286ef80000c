"""A roofline: the bandwidth of a processor is divided max-min fairly among its busy cores.

A core that asks for more than its share computes as fast as its data arrive (Williams, Waterman, Patterson: Roofline,
2009), during the part of its time that is bound by memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hdsim.contention import ROUNDING, CoreContention, by_bandwidth, shares_bandwidth
from hdsim.errors import ConfigError

if TYPE_CHECKING:
    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload


class FairShare(CoreContention):
    """A core that gets `a` of its demand `y` runs at 1 / ((1 - f) + f y / a) of its peak speed.

    Args:
        platform: The platform.
        memory_bound_fraction: f, share of a job's uncontended run time that is bound by memory bandwidth, 0..1.

    Raises:
        ConfigError: The fraction is not one.
    """

    def __init__(self, platform: Platform, memory_bound_fraction: float = 1.0) -> None:
        super().__init__(platform)
        number = isinstance(memory_bound_fraction, int | float) and not isinstance(memory_bound_fraction, bool)
        if not number or not 0 <= memory_bound_fraction <= 1:
            raise ConfigError(
                f"expected a number from 0 to 1, got {memory_bound_fraction!r}",
                where="contention.memory_bound_fraction",
            )
        self._bound = float(memory_bound_fraction)

    def applies(self, workload: Workload) -> bool:
        """See :meth:`hdsim.contention.Contention.applies`."""
        return self._bound > 0 and shares_bandwidth(self.platform, workload)

    def alike(self) -> NDArray[np.int64]:
        """See :meth:`hdsim.contention.Contention.alike`."""
        return by_bandwidth(self.platform)

    def core_speeds(
        self, processors: NDArray[np.integer], first: NDArray[np.int64], demands: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """See :meth:`hdsim.contention.CoreContention.core_speeds`."""
        bandwidth = self.platform.mem_bw[processors]
        over = np.add.reduceat(demands, first[:-1]) > bandwidth * (1 + ROUNDING)
        speeds = np.ones(len(demands))
        if not over.any():
            return speeds
        level = np.where(over, fair_levels(bandwidth, first, demands), np.inf).repeat(first[1:] - first[:-1])
        # y / a, which is 1 for a core that asks for no more than the level.
        short = demands > level
        speeds[short] = 1 / ((1 - self._bound) + self._bound * (demands[short] / level[short]))
        return speeds


def fair_levels(
    bandwidth: NDArray[np.float64], first: NDArray[np.int64], demands: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Most that any one core may have so that the bandwidth is divided max-min fairly.

    With demands ascending, core i can have an equal part of what the smaller ones leave. These parts grow while cores
    ask for less than theirs and shrink after that, so the level is the largest of them.

    Args:
        bandwidth: (m,) GB/s of each processor.
        first: (m + 1,) where the cores of each processor begin in `demands`.
        demands: (k,) GB/s of each core; those of a processor add up to more than its bandwidth, or its level has no
            meaning.

    Returns:
        (m,) GB/s; a core gets the lesser of its demand and the level.
    """
    owner = np.arange(len(bandwidth)).repeat(first[1:] - first[:-1])
    ascending = demands[np.lexsort((demands, owner))]
    before = ascending.cumsum() - ascending
    before -= before[first[:-1]][owner]
    left = first[1:][owner] - np.arange(len(demands))
    return np.asarray(np.maximum.reduceat((bandwidth[owner] - before) / left, first[:-1]))
