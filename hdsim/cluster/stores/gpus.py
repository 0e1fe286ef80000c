"""Idle GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hdsim.errors import DecisionError, require
from hdsim.util.arrays import Ints, members, running_count
from hdsim.util.copies import with_own_containers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hdsim.platform.model import Platform


class Gpus:
    """Idle GPUs.

    Attributes:
        node_idle: (N,) idle GPUs of each node.

    Args:
        platform: The platform.
    """

    __deepcopy__ = with_own_containers

    def __init__(self, platform: Platform) -> None:
        self._ids = platform.gpus
        self._node = platform.processor_node[platform.core_processor[self._ids]]
        self._first = np.concatenate([[0], np.cumsum(platform.node_gpus)])
        self._idle = np.ones(len(self._ids), bool)
        self.node_idle: Ints = platform.node_gpus.copy()

    def pick(self, nodes: NDArray[np.integer], counts: Ints) -> Ints:
        """Selects the first idle GPUs of nodes.

        Args:
            nodes: (k,) nodes.
            counts: (k,) GPUs of each node, at most its idle ones.
        """
        idle = members(self._first, nodes)
        idle = idle[self._idle[idle]]
        within = running_count(self._node[idle])
        return self._ids[idle[within < np.repeat(counts, self.node_idle[nodes])]]

    def idle_ids(self) -> Ints:
        """Ids of the idle GPUs, ascending."""
        return self._ids[self._idle]

    def busy(self) -> Ints:
        """Returns the ids of the allocated GPUs, ascending."""
        return self._ids[~self._idle]

    def allocate(self, gpus: Ints) -> None:
        """Allocates GPUs.

        Raises:
            DecisionError: A GPU is busy.
        """
        places = np.searchsorted(self._ids, gpus)
        if not self._idle[places].all():
            raise DecisionError(f"expected idle GPUs, got busy {gpus[~self._idle[places]].tolist()}")
        self._idle[places] = False
        np.subtract.at(self.node_idle, self._node[places], 1)

    def release(self, gpus: Ints) -> None:
        """Releases GPUs."""
        places = np.searchsorted(self._ids, gpus)
        self._idle[places] = True
        np.add.at(self.node_idle, self._node[places], 1)

    def check(self, held: Sequence[Ints]) -> None:
        """Checks that each GPU is idle or allocated exactly once."""
        busy = np.sort(np.concatenate([*held, np.zeros(0, np.int64)]))
        require(np.array_equal(busy, self._ids[~self._idle]), "a GPU is allocated twice or lost")
        counts = np.bincount(self._node[self._idle], minlength=len(self.node_idle))
        require(np.array_equal(counts, self.node_idle), "idle GPUs of nodes")
