"""A failure model: ``hdsim run failures.path=maintenance.py``."""

from itertools import count

from hdsim.failures import Failures


class Maintenance(Failures):
    """One node after the other is taken out for an hour, the first at 0."""

    def outages(self, rng):
        nodes = self.platform.n_nodes
        return [((3600.0 * n, 3600.0 * (n + 1)) for n in count(node, nodes)) for node in range(nodes)]
