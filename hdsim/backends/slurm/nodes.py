"""The nodes of a slurmctld in the state of the cluster."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hdsim.errors import ConfigError

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.slurm.objects import SlurmNode

log = logging.getLogger(__name__)

_MB_PER_MIB = 2**20 / 1e6
#: Faults that a message lists.
_LISTED = 5


class SlurmNodes:
    """Keeps the nodes of a cluster as those of slurmctld: one that is down or drained takes no jobs until it is back.

    Attributes:
        names: Name of each node.
        number: Number of each node by its name.
        views: The nodes as slurmctld has listed them last, by name.

    Args:
        cluster: The cluster.
        views: The nodes of slurmctld.
        by_features: Nodes are named by features, so that each needs its own name as one.
        partition: A partition that all nodes have to be in, None for any.

    Raises:
        ConfigError: A node of the platform is missing, has other CPUs or GPUs or less memory, is in other partitions,
            or lacks the feature.
    """

    def __init__(
        self, cluster: Cluster, views: Sequence[SlurmNode], *, by_features: bool, partition: str | None = None
    ) -> None:
        self._cluster = cluster
        platform = cluster.platform
        self.names = list(platform.node_names)
        self.number = {name: node for node, name in enumerate(self.names)}
        found = self.views = {view.name: view for view in views}
        faults = []
        amounts = (platform.node_cpu.tolist(), platform.node_gpus.tolist(), platform.memory.tolist())
        for name, cpus, gpus, memory in zip(self.names, *amounts, strict=True):
            view = found.get(name)
            if view is None:
                faults.append(f"{name} is missing")
            elif view.cpus != cpus:
                faults.append(f"{name} has {view.cpus} CPUs instead of {cpus:g}")
            elif view.gpus != gpus:
                faults.append(f"{name} has {view.gpus} GPUs instead of {gpus}")
            elif math.isfinite(memory) and memory > view.memory * _MB_PER_MIB + 1:
                faults.append(f"{name} has {view.memory:g} MiB instead of {memory / _MB_PER_MIB:.0f}")
            elif partition is not None and partition not in view.partitions:
                faults.append(f"{name} is not in partition {partition}")
        if faults:
            more = f"; and {len(faults) - _LISTED} more" if len(faults) > _LISTED else ""
            raise ConfigError(
                f"expected the nodes of platform {platform.name} in Slurm: {'; '.join(faults[:_LISTED])}{more}",
                where="platform",
            )
        lacking = [name for name in self.names if name not in found[name].features]
        if by_features and lacking:
            raise ConfigError(
                f"expected each node to have its own name as a feature (slurm.conf: NodeName={lacking[0]} "
                f"Feature={lacking[0]}), as slurmrestd takes no names of nodes, {len(lacking)} have not; "
                "null does without",
                where="backend.socket",
            )
        others = [view.name for view in views if view.name not in self.number]
        if others:
            log.warning("%d nodes are not in the platform and get no jobs, such as %s", len(others), min(others))
        for view in views:
            if not view.up and view.name in self.number:
                log.warning("node %s is %s", view.name, view.state)
                cluster.fail(self.number[view.name], math.inf)

    def update(self, views: Sequence[SlurmNode]) -> None:
        """Takes note of nodes that are down, and of those that are back."""
        found = self.views = {view.name: view for view in views}
        for name, node in self.number.items():
            view = found.get(name)
            up = view is not None and view.up
            if up == (node not in self._cluster.down):
                continue
            if up:
                log.warning("node %s is back", name)
                self._cluster.repair(node)
            else:
                log.warning("node %s is %s", name, "missing" if view is None else view.state)
                self._cluster.fail(node, math.inf)


def held_cpus(nodes: Sequence[str], cpus: Mapping[str, int], tasks: int, each: int) -> dict[str, int]:
    """Returns the tasks of a job on each of its nodes by the CPUs that it has there; all tasks are on one of them.

    Tasks whose CPUs are not known are spread evenly; `each` is the number of CPUs of a task.
    """
    parts = {name: max(1, cpus.get(name, 0) // each) for name in nodes}
    for name in itertools.cycle(nodes):
        total = sum(parts.values())
        if total == tasks:
            break
        if total < tasks:
            parts[name] += 1
        elif max(parts.values()) == 1:
            break
        elif parts[name] == max(parts.values()):
            parts[name] -= 1
    return parts
