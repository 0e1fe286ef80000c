"""Contention models: how much slower the jobs that share a processor run. One file a model.

A model derives from :class:`ProcessorContention` if all busy cores of a processor run equally fast, and from
:class:`CoreContention` if a core's speed depends on what runs on it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload

#: Requests are sums of floats; this share of a bandwidth is not taken for an oversubscription.
ROUNDING = 1e-9


class Contention:
    """What every contention model has in common.

    Args:
        platform: The platform of the replay. The settings of the model's file in ``conf/contention`` follow as keyword
            arguments.
    """

    def __init__(self, platform: Platform) -> None:
        self.platform = platform

    def applies(self, workload: Workload) -> bool:
        """Whether the model can slow any of the jobs; where it cannot, the replay does without it."""
        return True

    def alike(self) -> NDArray[np.int64]:
        """(P,) numbers; processors of one number give the same speeds to the same demands. None are alike by default.

        Speeds must depend on nothing else than processor and demands, and must not fall when a demand goes away: the
        engine asks once for each mixture of demands.
        """
        return np.arange(self.platform.n_processors)


class ProcessorContention(Contention, ABC):
    """A model that gives all busy cores of a processor the same speed. The quicker kind."""

    @abstractmethod
    def speeds(self, processors: NDArray[np.integer], demands: NDArray[np.float64]) -> NDArray[np.float64]:
        """Relative speed of the busy cores of processors on which a job has started or ended.

        Args:
            processors: (m,) processor indices.
            demands: (m,) GB/s of memory bandwidth that all busy cores of each processor ask for together.

        Returns:
            (m,) share of peak speed, above 0.
        """


class CoreContention(Contention, ABC):
    """A model that gives every busy core of a processor a speed of its own."""

    @abstractmethod
    def core_speeds(
        self, processors: NDArray[np.integer], first: NDArray[np.int64], demands: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Relative speed of every busy core of processors on which a job has started or ended.

        Args:
            processors: (m,) processor indices, ascending; each has at least one busy core.
            first: (m + 1,) where the busy cores of each processor begin in `demands`; the last entry is k.
            demands: (k,) GB/s of memory bandwidth that each busy core asks for at peak speed.

        Returns:
            (k,) share of peak speed, above 0.
        """


def by_bandwidth(platform: Platform) -> NDArray[np.int64]:
    """(P,) numbers, equal for processors of equal memory bandwidth."""
    return np.unique(platform.mem_bw, return_inverse=True)[1]


def shares_bandwidth(platform: Platform, workload: Workload) -> bool:
    """Whether any job asks for memory bandwidth and any processor has a limited one."""
    return bool(np.isfinite(platform.mem_bw).any() and (workload.memory_bandwidth > 0).any())
