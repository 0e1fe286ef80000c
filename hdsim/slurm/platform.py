"""The platform that the nodes of a slurmctld make up."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hdsim.platform.schema import QUANTITIES

if TYPE_CHECKING:
    from hdsim.slurm.objects import SlurmNode

#: Speed of a CPU, of which Slurm knows nothing.
_SPEED = {"clock_rate": 1, "dpflops_per_cycle": 1, "power": 0}


def platform_document(nodes: Sequence[SlurmNode], name: str = "slurm") -> dict[str, Any]:
    """Returns the document of a platform of kind quantities whose CPUs are all equally fast."""
    types: dict[str, Any] = {}
    processors: dict[str, Any] = {}
    groups: list[dict[str, Any]] = []
    for (cpus, memory, gpus), equal in itertools.groupby(nodes, key=lambda node: (node.cpus, node.memory, node.gpus)):
        kind = f"{cpus}-cpus-{memory:g}-mib" + (f"-{gpus}-gpus" if gpus else "")
        processors[f"{cpus}-cpus"] = {"cores": cpus, **_SPEED}
        parts = [{"type": f"{cpus}-cpus", "number": 1}]
        if gpus:
            processors["gpu"] = {"type": "GPU", "cores": 1, **_SPEED}
            parts.append({"type": "gpu", "number": gpus})
        types[kind] = {
            "processors": parts,
            "memory": {"capacity": f"{memory * 2**20:.0f}B"},
        }
        members = [node.name for node in equal]
        groups.append({"type": kind, "number": len(members), "names": members})
    return {
        "name": name,
        "kind": QUANTITIES,
        "clusters": [{"id": name, "nodes": groups}],
        "types": {"node": types, "processor": processors},
    }
