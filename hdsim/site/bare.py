"""The rules of Slurm on any platform and workload: a site that is made of them, without a folder of an import."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.errors import ConfigError
from hdsim.site.formats import fold_nodes
from hdsim.site.model import Site, site_of
from hdsim.site.platform import MB_PER_MIB
from hdsim.util.text import natural

if TYPE_CHECKING:
    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload

_log = logging.getLogger(__name__)
#: Partition of all nodes, of jobs without one.
MAIN = "main"
#: Letters before the numbers of users and others that have no names, and the name where a job has none.
_NAMES = {"user": ("u", "user"), "group": ("g", "group"), "queue": ("q", "normal"), "partition": ("p", MAIN)}


def named(workload: Workload) -> Workload:
    """Returns jobs whose users, groups, queues and partitions all have names, such as ``u7`` and ``q1``."""
    columns: dict[str, Any] = {}
    names = dict(workload.names)
    for column, (letter, missing) in _NAMES.items():
        numbers = np.array(getattr(workload, column), np.int64)
        known = dict(workload.names.get(column, {}))
        for number in np.unique(numbers[numbers >= 0]).tolist():
            known.setdefault(number, f"{letter}{number}")
        if (numbers < 0).any():
            own = next((number for number, name in known.items() if name == missing), max(known, default=-1) + 1)
            known[own] = missing
            numbers[numbers < 0] = own
        columns[column], names[column] = numbers, known
    further = dict(workload.further)
    if "memory_mib" not in further and workload.memory.any():
        asked = workload.memory / MB_PER_MIB
        further["memory_mib"] = np.array([mib or None for mib in asked.tolist()], object)
        further["memory_per"] = np.full(len(workload), "c", object)
    if not {"gres", "gpus_asked"} & set(further) and workload.requested_gpus.any():
        further["gpus_asked"] = np.array([str(gpus or "") for gpus in workload.requested_gpus.tolist()], object)
    return dataclasses.replace(workload, **columns, names=names, further=further)


def bare_site(rules: Mapping[str, Any], platform: Platform, workload: Workload) -> Site:
    """Returns a site of a platform, the users of a workload and some rules.

    Nodes are those of the platform. Partitions are ``main`` of all nodes, one of each cluster where there are several,
    and one of all nodes for each further partition of the jobs; QOS are the queues of the jobs, accounts their groups,
    each with one share. Priorities are by submission, and limits are enforced, unless the rules say otherwise.

    Args:
        rules: Keys of a site file. Partitions, QOS and others in them change or complete those that are made.
        platform: The platform.
        workload: The jobs as `named` returns them.

    Raises:
        ConfigError: A key or a value is not allowed, or a partition is none of those above and has no nodes.
    """
    names = _node_names(platform)
    document: dict[str, Any] = {"name": platform.name, **rules}
    if document.get("nodes"):
        raise ConfigError("expected none, as nodes are those of the platform", where="site.nodes")
    document["nodes"] = _nodes(platform, names)
    made = {MAIN: {"nodes": "ALL", "default": True}}
    if platform.n_clusters > 1:
        for row, name in enumerate(platform.cluster_names):
            members = np.flatnonzero(platform.node_cluster == row).tolist()
            made.setdefault(name, {"nodes": fold_nodes([names[node] for node in members])})
    for name in _used(workload, "partition"):
        made.setdefault(name, {"nodes": "ALL"})
    asked = dict(rules.get("partitions") or {})
    for name, one in asked.items():
        if name not in made and not (isinstance(one, Mapping) and one.get("nodes")):
            raise ConfigError(
                f"expected nodes of it, or one of the partitions {', '.join(made)}; those of a site are given by "
                "site=FOLDER",
                where=f"site.partitions.{name}",
            )
    document["partitions"] = _merged(made, asked)
    document["qos"] = _merged({name: {} for name in _used(workload, "queue")}, rules.get("qos") or {})
    if "priority" not in rules:
        document["priority"] = {"type": "basic"}
    slurm = document["slurm"] = dict(rules.get("slurm") or {})
    slurm.setdefault("enforce", ["limits"])
    if workload.memory.any():
        slurm.setdefault("select_parameters", ["CR_Core_Memory"])
        for one in document["partitions"].values():
            one.setdefault("default_memory_per_cpu", 0.0)
    document.setdefault("associations", _associations(workload))
    site = site_of(document, "site")
    for name, one in site.qos.items():
        for other in one.preempt:
            if other not in site.qos:
                _log.warning(
                    "site.qos.%s.preempt: no job has the QOS %s; there are %s", name, other, ", ".join(site.qos)
                )
    return site


def _node_names(platform: Platform) -> list[str]:
    """Names of the nodes in the order of the platform, which is that of Slurm: those of the platform, or n1, n2 ..."""
    own = list(platform.node_names)
    if sorted(own, key=natural) == own and len(set(own)) == len(own):
        return own
    return [f"n{number}" for number in range(1, platform.n_nodes + 1)]


def _nodes(platform: Platform, names: list[str]) -> dict[str, Any]:
    """Types of nodes, by the first node of each."""
    members: dict[tuple[int, int, float], list[int]] = {}
    columns = platform.node_cpu_cores.tolist(), platform.node_gpus.tolist(), platform.memory.tolist()
    for node, kind in enumerate(zip(*columns, strict=True)):
        members.setdefault(kind, []).append(node)
    made = {}
    for (cpus, gpus, memory), nodes in members.items():
        one: dict[str, Any] = {"nodes": fold_nodes([names[node] for node in nodes]), "cpus": cpus}
        one |= {"cores_per_socket": cpus, "gres": {"gpu": gpus} if gpus else {}}
        # A little more, so that a sum of jobs' memory is not above that of their node by its rounding.
        made[names[nodes[0]]] = one | {"memory": memory / MB_PER_MIB * (1.0 + 1e-9) if math.isfinite(memory) else 1e15}
    return made


def _used(workload: Workload, column: str) -> list[str]:
    """Names of a column that jobs have, in the order of their numbers."""
    return [workload.names[column][number] for number in np.unique(getattr(workload, column)).tolist()]


def _associations(workload: Workload) -> list[dict[str, str]]:
    """An account for each group, with its users."""
    found: dict[str, dict[str, None]] = {}
    users, groups = workload.names["user"], workload.names["group"]
    for group, user in np.unique(np.stack([workload.group, workload.user]), axis=1).T.tolist():
        found.setdefault(groups[group], {})[users[user]] = None
    listed = []
    for account, members in found.items():
        listed += [{"account": account}, *({"account": account, "user": user} for user in members)]
    return listed


def _merged(made: dict[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """Entries by name, with the keys that are asked for."""
    return {
        name: {**made.get(name, {}), **one} if isinstance(one := asked.get(name, {}), Mapping) else one
        for name in {**made, **asked}
    }
