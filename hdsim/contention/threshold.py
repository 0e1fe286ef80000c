"""HDeepRM's model: an oversubscribed processor runs all its busy cores in P-state 1."""

from __future__ import annotations

from collections.abc import Sequence
from operator import mul
from typing import TYPE_CHECKING

from hdsim.power import OVERSUBSCRIBED, PSTATES

if TYPE_CHECKING:
    from hdsim.platform import Platform


class Threshold:
    """Full speed while the demands fit into the processor's bandwidth, 75 % for all its cores when they do not."""

    def __init__(self, platform: Platform) -> None:
        self._bandwidth = platform.mem_bw.tolist()

    def speeds(self, processor: int, cores: Sequence[int], demands: Sequence[float]) -> float:
        """See :class:`hdsim.contention.Contention`."""
        oversubscribed = sum(map(mul, cores, demands)) > self._bandwidth[processor]
        return PSTATES[OVERSUBSCRIBED].speed if oversubscribed else 1.0
