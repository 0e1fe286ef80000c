"""A contention model: ``hdsim run contention.path=crowd.py contention.loss=0.1``."""

import numpy as np

from hdsim.contention import CoreContention


class Crowd(CoreContention):
    """Every further busy core costs a share of the speed, and heavy users of memory twice that."""

    def __init__(self, platform, loss=0.02, heavy=12.0):
        super().__init__(platform)
        self.loss = loss
        self.heavy = heavy

    def core_speeds(self, processors, first, demands):
        busy = np.diff(first)  # cores of each processor; those of processors[i] are demands[first[i]:first[i + 1]]
        others = np.repeat(busy - 1, busy)
        return 1 / (1 + self.loss * others * np.where(demands > self.heavy, 2, 1))
