"""The switches of a site as topology/tree of Slurm has them.

Source: the manual page topology.conf(5) and the "Topology Guide" of Slurm.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hdsim.errors import ConfigError
from hdsim.site.formats import expand_nodes
from hdsim.site.kernels.placing import APART, Topology
from hdsim.site.model import Site


def topology_of(site: Site, place: Mapping[str, int]) -> Topology:
    """Returns the switches of a site, none without topology/tree.

    With TopologyParam=TopoOptional they only count for jobs with ``--switches``, which nothing reads.

    Args:
        site: The site.
        place: Number of each node by name.

    Raises:
        ConfigError: A switch has nodes or switches that the site lacks, or is below itself.
    """
    optional = "TOPOOPTIONAL" in (word.upper() for word in site.slurm.topology_parameters)
    switches = site.switches if site.slurm.topology == "tree" and not optional else {}
    names = list(switches)
    count = len(names)
    nodes, level = np.zeros((count, len(place)), np.bool_), np.full(count, -1)
    parent, distance = np.arange(count), np.full((count, count), APART)
    np.fill_diagonal(distance, 0)
    for row, one in enumerate(switches.values()):
        known = names if one.switches else place
        listed = one.switches or expand_nodes(one.nodes)
        missing = next((name for name in listed if name not in known), None)
        if missing is not None:
            kind = "switches" if one.switches else "nodes"
            raise ConfigError(f"expected {kind} of the site, got '{missing}'", where=f"site: switches.{names[row]}")
        if not one.switches:
            nodes[row, [place[name] for name in listed]], level[row] = True, 0
        for name in one.switches:
            below = names.index(name)
            parent[below], distance[row, below], distance[below, row] = row, 1, 1
    while (level < 0).any():
        before = int((level < 0).sum())
        for row, one in enumerate(switches.values()):
            rows = [names.index(name) for name in one.switches]
            if level[row] < 0 and (level[rows] >= 0).all():
                level[row] = level[rows].max() + 1
                nodes[row] = nodes[rows].any(axis=0)
        if before == int((level < 0).sum()):
            raise ConfigError(
                f"expected a tree, got switches below themselves: {', '.join(np.array(names)[level < 0])}",
                where="site: switches",
            )
    for row in range(count):
        distance = np.minimum(distance, distance[:, row, None] + distance[row])
    return Topology(nodes, level, parent, np.minimum(distance, APART))
