"""Placements: the concrete cores of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hdsim.util.arrays import Ints, runs
from hdsim.util.copies import itself

if TYPE_CHECKING:
    from hdsim.platform.model import Platform

_ONE: Ints = np.ones(1, np.int64)
_NONE: Ints = np.zeros(0, np.int64)


class Placement:
    """Concrete cores of a job.

    Attributes:
        cores: (n,) core ids without GPUs, ascending.
        gpus: (g,) core ids of GPUs on the same nodes, ascending.
        processors: (m,) processors of the cores, ascending.
        counts: (m,) cores on each processor.
        nodes: (k,) nodes of the cores, ascending.
        node_counts: (k,) cores on each node.

    Args:
        cores: Core ids, ascending.
        platform: The platform.
        gpus: Core ids of GPUs, ascending.
        on: `processors` and `counts` if they are known.
    """

    __deepcopy__ = itself

    __slots__ = ("cores", "counts", "gpus", "node_counts", "nodes", "processors")

    def __init__(
        self,
        cores: Ints,
        platform: Platform,
        gpus: Ints | None = None,
        on: tuple[Ints, Ints] | None = None,
    ) -> None:
        self.cores = cores
        self.gpus = _NONE if gpus is None else gpus
        if on is not None:
            self.processors, self.counts = on
        else:
            owner = platform.core_processor[cores]
            if len(cores) == 1:
                self.counts = _ONE
            else:
                first, self.counts = runs(owner)
                owner = owner[first]
            # Used as indices many times: narrower integers would be converted each time.
            self.processors = owner.astype(np.int64)
        nodes: Ints = platform.processor_node[self.processors].astype(np.int64)
        if len(nodes) == 1 or platform.n_processors == platform.n_nodes:
            self.nodes, self.node_counts = nodes, self.counts
        else:
            first, _ = runs(nodes)
            self.nodes, self.node_counts = nodes[first], np.add.reduceat(self.counts, first)

    def __len__(self) -> int:
        """Core ids of cores and GPUs."""
        return len(self.cores) + len(self.gpus)

    @property
    def ids(self) -> Ints:
        """(n + g,) ids of cores and GPUs, ascending."""
        return np.sort(np.concatenate([self.cores, self.gpus])) if len(self.gpus) else self.cores
