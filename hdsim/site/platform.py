"""The platform of a site, and its nodes in Slurm's order."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any

from hdsim.errors import ConfigError
from hdsim.platform.power import IDLE_PACKAGE, PSTATES
from hdsim.site.formats import expand_nodes
from hdsim.util.text import natural, unused

if TYPE_CHECKING:
    from hdsim.site.model import NodeType, Site

#: MB (10^6 byte) of a MiB.
MB_PER_MIB = 1.048576
#: Slurm knows neither speed nor power: all cores and GPUs have the reference speed, and draw none if none is given.
_SPEED = {"clock_rate": 1, "dpflops_per_cycle": 1}


def nodes_of(site: Site) -> list[tuple[str, NodeType]]:
    """Returns name and type of each node in the order of Slurm's node table: by name, numbers in them by value.

    Raises:
        ConfigError: A list of nodes is malformed, or a node has two types.
    """
    found: dict[str, NodeType] = {}
    for key, kind in site.nodes.items():
        try:
            names = expand_nodes(kind.nodes)
        except ValueError as error:
            raise ConfigError(str(error), where=f"nodes.{key}") from None
        twice = next((name for name in names if name in found), None)
        if twice is not None:
            raise ConfigError(f"expected one line for each node, got '{twice}' twice", where=f"nodes.{key}")
        found |= dict.fromkeys(names, kind)
    return sorted(found.items(), key=lambda each: natural(each[0]))


def platform_document(site: Site) -> dict[str, Any]:
    """Returns the platform file of a site: one cluster, whose cores are Slurm's CPUs.

    The nodes have the order of `nodes_of` and the names that DNS-1123 permits. Generic resources ``gpu`` are GPUs.

    Raises:
        ConfigError: See `nodes_of`; or there is no node.
    """
    nodes = nodes_of(site)
    if not nodes:
        raise ConfigError("expected at least one node", where="nodes")
    processors: dict[str, Any] = {}
    types: dict[str, Any] = {}
    names: dict[int, str] = {}
    groups: list[dict[str, Any]] = []
    taken: list[str] = []
    for _, members in itertools.groupby(nodes, key=lambda each: id(each[1])):
        listed = list(members)
        kind = listed[0][1]
        if id(kind) not in names:
            names[id(kind)] = unused(kind.nodes, types)
            types[names[id(kind)]] = _node_type(kind, processors)
        made = []
        for name, _ in listed:
            made.append(unused(re.sub(r"[^a-z0-9.-]+", "-", name.lower()).strip("-.")[:253] or "node", taken))
            taken.append(made[-1])
        groups.append({"type": names[id(kind)], "number": len(made), "names": made})
    return {
        "name": site.name,
        "clusters": [{"id": site.name, "nodes": groups}],
        "types": {"network": {}, "node": types, "processor": processors, "memory": {}},
    }


def _node_type(kind: NodeType, processors: dict[str, Any]) -> dict[str, Any]:
    """Returns the node type of a platform file, and adds its processors."""
    sockets = kind.sockets if kind.cpus % kind.sockets == 0 else 1
    if kind.cores_per_socket == 1 and kind.threads_per_core == 1:
        sockets = 1  # only the number of CPUs is given
    cpus, power = kind.cpus // sockets, kind.power
    watts = 0.0 if power is None else power.core * cpus / kind.threads_per_core
    used = [(_added(processors, f"{cpus} CPUs", {"cores": cpus, **_SPEED, "power": watts or 0}), sockets)]
    for name, number in kind.gres.items():
        if number and name.split(":")[0] == "gpu":
            of_gpu = {"type": "GPU", "cores": 1, **_SPEED, "power": 0 if power is None else power.gpu}
            used.append((_added(processors, name.partition(":")[2] or "GPU", of_gpu), number))
    found: dict[str, Any] = {"processors": [{"type": name, "number": number} for name, number in used]}
    found["memory"] = {"capacity": kind.memory * MB_PER_MIB / 1000}
    if power is not None:
        idle = power.on + sum(processors[name]["power"] * number for name, number in used) * PSTATES[IDLE_PACKAGE].power
        found["states"] = {
            "on": {"watts": power.on},
            "idle": {"watts": power.on},
            "off": {"watts": power.off},
            "going_down": {"watts": idle, "seconds": power.shutdown},
            "booting": {"watts": idle, "seconds": power.boot},
        }
    return found


def _added(processors: dict[str, Any], name: str, processor: dict[str, Any]) -> str:
    """Adds a processor, unless there is an equal one of that name; returns its name."""
    if processors.get(name, processor) != processor:
        name = unused(name, processors)
    processors[name] = processor
    return name
