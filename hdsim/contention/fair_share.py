"""A roofline model with max-min fair sharing of the memory bandwidth of a processor.

The memory-bound part of a job slows down in proportion to the bandwidth of its cores (Williams, Waterman, Patterson:
Roofline, 2009).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hdsim.contention import ROUNDING, CoreContention, by_bandwidth, shares_bandwidth
from hdsim.contention.kernels.speeds import FAIR_SHARE, fair_share
from hdsim.errors import ConfigError
from hdsim.util.arrays import Floats, Ints
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

    kernel = FAIR_SHARE

    def __init__(self, platform: Platform, memory_bound_fraction: float = 1.0) -> None:
        super().__init__(platform)
        if not is_finite(memory_bound_fraction) or not 0 <= memory_bound_fraction <= 1:
            raise ConfigError(
                f"expected a number from 0 to 1, got {memory_bound_fraction!r}",
                where="contention.memory_bound_fraction",
            )
        bandwidth = platform.mem_bw
        bound = np.full(len(bandwidth), float(memory_bound_fraction))
        self.parameters = np.stack([bandwidth * (1 + ROUNDING), bandwidth, bound])

    def applies(self, workload: Workload) -> bool:
        return bool((self.parameters[2] > 0).all()) and shares_bandwidth(self.platform, workload)

    def alike(self) -> Ints:
        return by_bandwidth(self.platform)

    def core_speeds(self, processors: NDArray[np.integer], first: Ints, demands: Floats) -> Floats:
        speeds = np.empty(len(demands))
        fair_share(self.parameters, np.asarray(processors, np.int64), first, demands, speeds, speeds.copy())
        return speeds
