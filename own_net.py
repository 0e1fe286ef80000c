
import math
from hdsim.network.fluid import Fluid as Fluid
class Own(Fluid):
    def settle(self, now):
        return [(key, seconds*2) for key, seconds in super().settle(now)]
