"""Placements: the concrete cores of a job."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from hdsim.kernels.placements import count_cores
from hdsim.util.arrays import Ints
from hdsim.util.copies import itself

if TYPE_CHECKING:
    from hdsim.platform.model import Platform


class Placement:
    """Concrete cores of a job.

    Attributes:
        ids: (n + g,) ids of cores and GPUs, ascending.

    Args:
        ids: Ids of cores and of GPUs on the same nodes, ascending.
        platform: The platform.
    """

    __deepcopy__ = itself

    def __init__(self, ids: Ints, platform: Platform) -> None:
        self.ids = ids
        self._platform = platform

    def __len__(self) -> int:
        """Core ids of cores and GPUs."""
        return len(self.ids)

    @cached_property
    def cores(self) -> Ints:
        """(n,) core ids without GPUs, ascending."""
        platform, ids = self._platform, self.ids
        return ids[~platform.is_gpu[platform.core_processor[ids]]] if platform.n_gpus else ids

    @property
    def gpus(self) -> Ints:
        """(g,) core ids of GPUs, ascending."""
        return np.setdiff1d(self.ids, self.cores, assume_unique=True)

    @property
    def processors(self) -> Ints:
        """(m,) processors of the cores, ascending."""
        return self._groups[0]

    @property
    def counts(self) -> Ints:
        """(m,) cores on each processor."""
        return self._groups[1]

    @property
    def nodes(self) -> Ints:
        """(k,) nodes of the cores, ascending."""
        return self._groups[2]

    @property
    def node_counts(self) -> Ints:
        """(k,) cores on each node."""
        return self._groups[3]

    @cached_property
    def _groups(self) -> tuple[Ints, Ints, Ints, Ints]:
        groups = np.empty((4, len(self.cores)), np.int64)
        processors, nodes = count_cores(
            self._platform.core_processor, self._platform.processor_node, self.cores, groups
        )
        return groups[0, :processors], groups[1, :processors], groups[2, :nodes], groups[3, :nodes]
