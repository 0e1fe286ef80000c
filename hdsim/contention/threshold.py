"""HDeepRM's model: an oversubscribed processor runs all its busy cores in P-state 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hdsim.contention import ROUNDING, ProcessorContention, by_bandwidth, shares_bandwidth
from hdsim.contention.kernels.speeds import THRESHOLD, threshold
from hdsim.platform.power import BUSY_SPEED
from hdsim.util.arrays import Floats, Ints

if TYPE_CHECKING:
    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload


class Threshold(ProcessorContention):
    """Full speed while the demands fit into the processor's bandwidth, 75 % for all its cores when they do not."""

    kernel = THRESHOLD

    def __init__(self, platform: Platform) -> None:
        super().__init__(platform)
        self.parameters = np.stack([platform.mem_bw * (1 + ROUNDING), np.full(platform.n_processors, BUSY_SPEED[1])])

    def applies(self, workload: Workload) -> bool:
        return shares_bandwidth(self.platform, workload)

    def alike(self) -> Ints:
        return by_bandwidth(self.platform)

    def speeds(self, processors: NDArray[np.integer], demands: Floats) -> Floats:
        speeds = np.empty(len(demands))
        threshold(self.parameters, np.asarray(processors, np.int64), demands, speeds)
        return speeds
