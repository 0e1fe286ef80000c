"""HDeepRM's model: an oversubscribed processor runs all its busy cores in P-state 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hdsim.power import COMPUTING, OVERSUBSCRIBED, PSTATES

if TYPE_CHECKING:
    from hdsim.platform import Platform

#: Demands are sums of floats; this share of the bandwidth is not taken for an oversubscription.
ROUNDING = 1e-9


class Threshold:
    """Full speed while the demands fit into the processor's bandwidth, 75 % for all its cores when they do not."""

    def __init__(self, platform: Platform) -> None:
        self._limit = platform.mem_bw * (1 + ROUNDING)

    def speeds(self, processors: NDArray[np.int32], demands: NDArray[np.float64]) -> NDArray[np.float64]:
        """See :class:`hdsim.contention.Contention`."""
        oversubscribed = demands > self._limit[processors]
        return np.where(oversubscribed, PSTATES[OVERSUBSCRIBED].speed, PSTATES[COMPUTING].speed)
