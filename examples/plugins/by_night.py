"""Power management: ``hdsim run platform.path=FILE power.path=by_night.py``."""

from hdsim.power import PowerManagement


class ByNight(PowerManagement):
    """Nodes that become idle after 20 h go down after 5 min, others after 2 h."""

    def timeout(self, nodes, cluster):
        return 300.0 if cluster.now % 86400 >= 72000 else 7200.0
