"""Contention models: how much slower the jobs that share a processor run. One file a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from hdsim.platform import Platform


class Contention(Protocol):
    """A contention model, made once a replay for one platform.

    A model is a class in a file of its own whose constructor takes the platform (and the settings of its file in
    ``conf/contention``). The engine asks it again for the processors on which a job has started or ended.
    """

    def __init__(self, platform: Platform) -> None: ...

    def speeds(self, processors: NDArray[np.int32], demands: NDArray[np.float64]) -> NDArray[np.float64]:
        """Relative speed of the busy cores of some processors.

        Args:
            processors: (m,) processor indices.
            demands: (m,) GB/s of memory bandwidth that all busy cores of each processor ask for together.

        Returns:
            (m,) share of peak speed in (0, 1].
        """
