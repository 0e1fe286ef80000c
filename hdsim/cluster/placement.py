"""Placements: the concrete cores of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hdsim.cluster.kernels.placements import count_cores
from hdsim.util.arrays import Ints, read_only
from hdsim.util.copies import itself

if TYPE_CHECKING:
    from hdsim.platform.model import Platform


class Placement:
    """Concrete cores of a job, in read-only arrays.

    Attributes:
        ids: (n + g,) ids of cores and GPUs, ascending.
        cores: (n,) core ids without GPUs, ascending.
    """

    __deepcopy__ = itself

    __slots__ = ("_groups", "_platform", "cores", "ids")

    def __init__(self, ids: Ints, platform: Platform) -> None:
        self.ids = read_only(ids)
        self.cores = read_only(ids[~platform.is_gpu[platform.core_processor[ids]]]) if platform.n_gpus else ids
        self._platform = platform
        self._groups: tuple[Ints, Ints, Ints, Ints] | None = None

    def __len__(self) -> int:
        """Core ids of cores and GPUs."""
        return len(self.ids)

    @property
    def gpus(self) -> Ints:
        """(g,) core ids of GPUs, ascending."""
        return np.setdiff1d(self.ids, self.cores, assume_unique=True)

    @property
    def processors(self) -> Ints:
        """(m,) processors of the cores, ascending."""
        return self._grouped()[0]

    @property
    def counts(self) -> Ints:
        """(m,) cores on each processor."""
        return self._grouped()[1]

    @property
    def nodes(self) -> Ints:
        """(k,) nodes of the cores, ascending."""
        return self._grouped()[2]

    @property
    def node_counts(self) -> Ints:
        """(k,) cores on each node."""
        return self._grouped()[3]

    def _grouped(self) -> tuple[Ints, Ints, Ints, Ints]:
        if self._groups is None:
            platform, out = self._platform, np.empty((4, len(self.cores)), np.int64)
            processors, nodes = count_cores(platform.core_processor, platform.processor_node, self.cores, out)
            read_only(out)
            self._groups = out[0, :processors], out[1, :processors], out[2, :nodes], out[3, :nodes]
        return self._groups
