"""A network model: ``hdsim run network.path=busy.py network.taken=0.3``."""

import dataclasses

from hdsim.network.fluid import Fluid


class Busy(Fluid):
    """Links of which others, who are not simulated, take a part all the time."""

    def __init__(self, platform, taken=0.5):
        left = 1 - taken
        names = ("local_bandwidth", "global_bandwidth")
        super().__init__(dataclasses.replace(platform, **{name: left * getattr(platform, name) for name in names}))
