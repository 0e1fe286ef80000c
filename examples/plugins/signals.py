"""An observation of the carbon intensity: ``hdsim train env.observation=signals.py facility=synthetic``."""

import numpy as np

from hdsim.decisions.base import Array
from hdsim.decisions.observations.hdeeprm import Minimal

HOURS = np.arange(12.0)


class Signals(Minimal):
    """The numbers of `minimal`, and the expected carbon intensity of the next 12 h as shares of 1 kg/kWh."""

    def arrays(self, platform):
        return Array((super().arrays(platform).shape[0] + len(HOURS),))

    def begin(self, cluster, wait_queue):
        super().begin(cluster, wait_queue)
        self.cluster = cluster

    def observe(self):
        begin = self.cluster.now + 3600 * HOURS
        known = np.nan_to_num(self.cluster.facility.carbon.mean(begin, begin + 3600) / 1000, nan=1.0)
        return np.append(super().observe(), np.clip(known, 0, 1)).astype(np.float32)
