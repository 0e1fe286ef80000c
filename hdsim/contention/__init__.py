"""Contention models: slowdown of jobs that share a processor. Each model has one file.

A model derives from :class:`ProcessorContention` if all busy cores of a processor have equal speeds, otherwise from
:class:`CoreContention`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from hdsim.util.arrays import Floats, Ints
from hdsim.util.copies import itself

if TYPE_CHECKING:
    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload

#: Relative tolerance for oversubscription, since demands are sums of floats.
ROUNDING = 1e-9


class Contention:
    """Base class of contention models.

    Attributes:
        kernel: Number of the model in :mod:`hdsim.contention.kernels.speeds`, 0 without a kernel.
        parameters: (R, P) parameters of the kernel.

    Args:
        platform: The platform of the replay. The settings of the model's file in ``conf/contention`` are keyword
            arguments.
    """

    kernel: ClassVar[int] = 0
    parameters: Floats

    __deepcopy__ = itself

    def __init__(self, platform: Platform) -> None:
        self.platform = platform

    @property
    def has_kernel(self) -> bool:
        """Whether the speeds are those of a kernel, which those of a subclass are not."""
        return "kernel" in vars(type(self))

    def applies(self, workload: Workload) -> bool:
        """Returns whether the model can slow any of the jobs; otherwise the replay does not use it."""
        return True

    def alike(self) -> Ints:
        """(P,) numbers; processors of equal numbers have equal speeds for equal demands. By default all differ.

        Speeds must depend only on the processor and the demands and must not decrease when a demand ends: the engine
        computes them once for each combination of demands.
        """
        return np.arange(self.platform.n_processors)


class ProcessorContention(Contention, ABC):
    """A model in which all busy cores of a processor have the same speed, the faster type of model."""

    @abstractmethod
    def speeds(self, processors: NDArray[np.integer], demands: Floats) -> Floats:
        """Computes the speed of the busy cores of processors on which a job starts or ends.

        Args:
            processors: (m,) processor indices.
            demands: (m,) total memory bandwidth demand of the busy cores of each processor, GB/s.

        Returns:
            (m,) share of peak speed, above 0.
        """


class CoreContention(Contention, ABC):
    """A model in which the busy cores of a processor have individual speeds."""

    @abstractmethod
    def core_speeds(self, processors: NDArray[np.integer], first: Ints, demands: Floats) -> Floats:
        """Computes the speed of each busy core of processors on which a job starts or ends.

        Args:
            processors: (m,) processor indices, ascending; each has at least one busy core.
            first: (m + 1,) index in `demands` of the first busy core of each processor; the last entry is k.
            demands: (k,) memory bandwidth demand of each busy core at peak speed, GB/s.

        Returns:
            (k,) share of peak speed, above 0.
        """


def by_bandwidth(platform: Platform) -> Ints:
    """(P,) numbers, equal for processors of equal memory bandwidth."""
    return np.unique(platform.mem_bw, return_inverse=True)[1]


def shares_bandwidth(platform: Platform, workload: Workload) -> bool:
    """Returns whether any job requests memory bandwidth and any processor has limited memory bandwidth."""
    return bool(np.isfinite(platform.mem_bw).any() and (workload.memory_bandwidth > 0).any())
