"""A roofline model with max-min fair sharing of the memory bandwidth of a processor.

The memory-bound part of a job slows down in proportion to the bandwidth of its cores (Williams, Waterman, Patterson:
Roofline, 2009).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hdsim.contention import ROUNDING, CoreContention, by_bandwidth, shares_bandwidth
from hdsim.errors import ConfigError
from hdsim.util.rules import is_finite

if TYPE_CHECKING:
    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload


class FairShare(CoreContention):
    """A core with demand y and allocated bandwidth a runs at 1 / ((1 - f) + f y / a) of its peak speed.

    Args:
        platform: The platform.
        memory_bound_fraction: f, share of the uncontended run time that is bound by memory bandwidth, 0..1.

    Raises:
        ConfigError: The fraction is not in 0..1.
    """

    def __init__(self, platform: Platform, memory_bound_fraction: float = 1.0) -> None:
        super().__init__(platform)
        if not is_finite(memory_bound_fraction) or not 0 <= memory_bound_fraction <= 1:
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
        # y / a, which is 1 for a core whose demand is at most the level.
        short = demands > level
        speeds[short] = 1 / ((1 - self._bound) + self._bound * (demands[short] / level[short]))
        return speeds


def fair_levels(
    bandwidth: NDArray[np.float64], first: NDArray[np.int64], demands: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Computes the largest bandwidth of a core under max-min fair sharing.

    With demands in ascending order, the fair share of core i is an equal part of the bandwidth that the smaller demands
    leave. The shares increase while demands are below them and decrease afterwards, so the level is their maximum.

    Args:
        bandwidth: (m,) GB/s of each processor.
        first: (m + 1,) index in `demands` of the first core of each processor.
        demands: (k,) GB/s of each core; the level of a processor is only defined if their sum exceeds its bandwidth.

    Returns:
        (m,) levels in GB/s; the bandwidth of a core is the minimum of its demand and the level.
    """
    owner = np.arange(len(bandwidth)).repeat(first[1:] - first[:-1])
    ascending = demands[np.lexsort((demands, owner))]
    before = ascending.cumsum() - ascending
    before -= before[first[:-1]][owner]
    left = first[1:][owner] - np.arange(len(demands))
    return np.asarray(np.maximum.reduceat((bandwidth[owner] - before) / left, first[:-1]))
