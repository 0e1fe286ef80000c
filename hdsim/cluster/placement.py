"""Where a job runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hdsim.util.arrays import Ints, runs

if TYPE_CHECKING:
    from hdsim.platform.model import Platform

_ONE: Ints = np.ones(1, np.int64)
_NONE: Ints = np.zeros(0, np.int64)


class Placement:
    """Concrete cores of one job.

    Attributes:
        cores: (n,) core ids, ascending, without GPUs.
        gpus: (g,) core ids of GPUs, ascending, on the same nodes.
        processors: (m,) processors the cores are on, ascending.
        counts: (m,) cores on each of those processors.
        nodes: (k,) nodes they are on, ascending.
        node_counts: (k,) cores on each of those nodes.

    Args:
        cores: Core ids, ascending.
        platform: The platform.
        gpus: Core ids of GPUs, ascending.
        on: `processors` and `counts` where they are known.
    """

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
            # They are used as indices many times, for which narrower numbers would have to be widened each time.
            self.processors = owner.astype(np.int64)
        nodes: Ints = platform.processor_node[self.processors].astype(np.int64)
        if len(nodes) == 1 or platform.n_processors == platform.n_nodes:
            self.nodes, self.node_counts = nodes, self.counts
        else:
            first, _ = runs(nodes)
            self.nodes, self.node_counts = nodes[first], np.add.reduceat(self.counts, first)

    @property
    def ids(self) -> Ints:
        """(n + g,) core ids of cores and GPUs, ascending."""
        return np.sort(np.concatenate([self.cores, self.gpus])) if len(self.gpus) else self.cores
