"""Nodes of a platform as objects of Kubernetes, and platforms of such objects."""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hdsim.cluster.requests import Amounts
from hdsim.errors import BackendError, ConfigError, PlatformError
from hdsim.kubernetes.connection import MANAGED, SELECTOR, Connection
from hdsim.kubernetes.objects import FAKE, GPU, UNLIMITED, NodeView
from hdsim.platform.model import HOSTNAME, INSTANCE_TYPE, Platform
from hdsim.platform.schema import NO_SCHEDULE, NODE_NAME, QUANTITIES, Taint
from hdsim.util.inputs import read_yaml
from hdsim.util.text import label_safe, unused
from hdsim.util.units import in_bytes

#: Labels of nodes that hdsim creates: name of the node type, GFLOP/s of a core.
NODE_TYPE, GFLOPS = "hdsim.io/node-type", "hdsim.io/gflops"
#: Labels that hdsim gives to all its nodes.
OWN_LABELS = (HOSTNAME, INSTANCE_TYPE, NODE_TYPE, *MANAGED)
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
#: Taints and labels of this prefix are the state of a node, such as not-ready.
_STATE = "node.kubernetes.io/"
_NODES = "/api/v1/nodes"
_IN_FLIGHT = 32
_LOOK = 0.25  # s, between two looks at the nodes


def node_manifests(platform: Platform) -> list[dict[str, Any]]:
    """Returns a Node of Kwok for each node of a platform.

    Memory and ephemeral storage without limit become 1Ei. A node's speed is that of its slowest CPU.
    """
    platform = platform.of_kind(QUANTITIES)
    speeds = np.minimum.reduceat(np.where(platform.is_gpu, np.inf, platform.gflops), platform.node_first_processor[:-1])
    columns = (platform.node_names, amounts_of(platform), speeds.tolist(), platform.node_labels, platform.node_taints)
    return [
        # A label holds no '+', which a number without it does not need.
        node_manifest(
            name, amounts, {NODE_TYPE: labels[INSTANCE_TYPE], GFLOPS: repr(speed).replace("+", ""), **labels}, taints
        )
        for name, amounts, speed, labels, taints in zip(*columns, strict=True)
    ]


def amounts_of(platform: Platform) -> list[Amounts]:
    """Returns the amounts of every node of a platform."""
    columns: Iterable[list[float]] = (
        each.tolist()
        for each in (
            platform.node_cpu,
            in_bytes(platform.memory),
            platform.node_pods,
            platform.node_gpus,
            platform.node_storage,
        )
    )
    return [Amounts(*amounts) for amounts in zip(*columns, strict=True)]


def node_manifest(
    name: str, amounts: Amounts, labels: Mapping[str, str], taints: Iterable[Taint] = ()
) -> dict[str, Any]:
    """Returns a Node of Kwok with its name and :data:`MANAGED` besides the labels; unlimited amounts become 1Ei."""
    quantities = {
        "cpu": f"{round(amounts.cpu * 1000)}m",
        "memory": str(round(min(amounts.memory, UNLIMITED))),
        "pods": str(round(amounts.pods)),
        "ephemeral-storage": str(round(min(amounts.storage, UNLIMITED))),
    } | ({GPU: str(round(amounts.gpus))} if amounts.gpus else {})
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {HOSTNAME: name, **MANAGED, **labels},
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "spec": {"taints": [{"key": t.key, "value": t.value, "effect": t.effect} for t in taints]},
        "status": {"allocatable": quantities, "capacity": quantities},
    }


def type_manifests(
    name: str, number: int, amounts: Amounts, labels: Mapping[str, str], taints: Sequence[Taint]
) -> list[dict[str, Any]]:
    """Returns equal Nodes of Kwok, ``NAME-0`` and so on; ConfigError if the name is no DNS label."""
    if not NODE_NAME.fullmatch(name) or len(name) > 50:
        raise ConfigError(f"expected lower case letters, digits and '-', got '{name}'", where="--type")
    marks = {INSTANCE_TYPE: name, NODE_TYPE: name, **labels}
    return [node_manifest(f"{name}-{index}", amounts, marks, taints) for index in range(number)]


def control_plane_node() -> dict[str, Any]:
    """Returns a Node that stands for the machine of the control plane and takes no pods that do not tolerate that."""
    amounts = Amounts(4.0, 8 * 2.0**30, 110, 0, UNLIMITED)
    return node_manifest("control-plane", amounts, {CONTROL_PLANE: ""}, [Taint(CONTROL_PLANE, "", NO_SCHEDULE)])


def platform_of(nodes: Iterable[NodeView], name: str = "kubernetes", source: str = "<cluster>") -> Platform:
    """Returns the platform of nodes of a cluster, of kind quantities, in their order.

    Nodes on which no pod can run for want of allocatable CPU, memory or pods are left out. Taints that tell the state
    of a node, such as ``node.kubernetes.io/not-ready``, are no part of the platform. Nodes without the label
    ``hdsim.io/gflops`` have the mean speed of those with it, or 1 GFLOP/s.

    The name is that of the platform and of its cluster; the source is for error messages.

    Raises:
        PlatformError: There are none, or their names are not distinct.
    """
    usable = [node for node in nodes if has_room(node)]
    if not usable:
        raise PlatformError("expected a node with allocatable CPU, memory and pods, got none", where=source)
    speeds = [_speed(node) for node in usable]
    known = [(speed, node.allocatable.cpu) for speed, node in zip(speeds, usable, strict=True) if speed is not None]
    mean = 1.0
    if known:
        distinct = {speed for speed, _ in known}
        mean = distinct.pop() if len(distinct) == 1 else sum(s * cpu for s, cpu in known) / sum(cpu for _, cpu in known)
    types: dict[str, dict[str, Any]] = {}
    processors: dict[str, dict[str, Any]] = {}
    names: dict[tuple[str, float, Amounts], str] = {}
    groups = []
    described = []
    for node, speed in zip(usable, speeds, strict=True):
        amounts = node.allocatable
        node_type = node.labels.get(NODE_TYPE) or node.labels.get(INSTANCE_TYPE) or "node"
        shape = node_type, mean if speed is None else speed, amounts
        if shape not in names:
            names[shape] = unused(shape[0], types)
            types[names[shape]] = _node_type(amounts, shape[1], processors)
        taints = [{"key": t.key, "value": t.value, "effect": t.effect} for t in node.taints if _STATE not in t.key]
        described.append((node.name, names[shape], _own_labels(node, names[shape]), taints))
    for (node_type, labels, taints), equal in itertools.groupby(described, key=lambda node: node[1:]):
        members = [node[0] for node in equal]
        group = {"type": node_type, "number": len(members), "names": members, "labels": labels, "taints": taints}
        groups.append({key: value for key, value in group.items() if value})
    document = {
        "name": name,
        "kind": QUANTITIES,
        "clusters": [{"id": name, "nodes": groups}],
        "types": {"node": types, "processor": processors},
    }
    return Platform.from_dict(document, source)


def has_room(node: NodeView) -> bool:
    """Returns whether a node has any CPU, memory and pods."""
    return min(node.allocatable[:3]) > 0


def with_nodes(platform: Platform, nodes: Sequence[NodeView]) -> Platform:
    """Returns a platform of kind quantities with nodes of a cluster, of other names, as its last ones.

    Those without the label ``hdsim.io/gflops`` have the platform's mean speed.
    """
    if not nodes:
        return platform
    mean = repr(platform.reference_gflops)
    more = platform_of([replace(node, labels={GFLOPS: mean, **node.labels}) for node in nodes]).to_dict()
    document = platform.to_dict()
    own: dict[tuple[str, str], str] = {}
    for kind in ("processor", "node"):
        types = document["types"][kind]
        for name, found in more["types"][kind].items():
            parts = [{**part, "type": own["processor", part["type"]]} for part in found.get("processors", ())]
            wanted = found | ({"processors": parts} if parts else {})
            own[kind, name] = name if types.get(name) == wanted else unused(name, types)
            types[own[kind, name]] = wanted
    groups = [group for cluster in more["clusters"] for group in cluster["nodes"]]
    document["clusters"][-1]["nodes"] += [{**group, "type": own["node", group["type"]]} for group in groups]
    return replace(
        Platform.from_dict(document, platform.source), sha256=platform.sha256, type_files=platform.type_files
    )


def with_spare_nodes(platform: Platform, number: int) -> Platform:
    """Returns a platform with further nodes like most of its own, without GPUs: ``spare-1`` and so on."""
    if not number:
        return platform
    (amounts, _), *_ = Counter(amounts_of(platform)).most_common(1)
    taken, amounts = set(platform.node_names), amounts._replace(gpus=0)
    names = (name for each in itertools.count(1) if (name := f"spare-{each}") not in taken)
    manifests = [node_manifest(name, amounts, {}) for name in itertools.islice(names, number)]
    return with_nodes(platform, [NodeView.of(manifest) for manifest in manifests])


def _speed(node: NodeView) -> float | None:
    try:
        speed = float(node.labels[GFLOPS])
    except (KeyError, ValueError):
        return None
    return speed if 0 < speed < math.inf else None


def _own_labels(node: NodeView, node_type: str) -> dict[str, str]:
    """Returns the labels of a node that hdsim does not give it by itself."""
    given = {HOSTNAME: node.name, INSTANCE_TYPE: label_safe(node_type), **MANAGED}
    return {
        key: value for key, value in node.labels.items() if given.get(key) != value and key not in (NODE_TYPE, GFLOPS)
    }


def _node_type(amounts: Amounts, gflops: float, processors: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Returns a node type of the JSON, and adds the types of its processors."""
    cores = math.ceil(amounts.cpu)
    cpu = f"cpu-{cores}x{gflops:.12g}"
    processors[cpu] = {"cores": cores, "clock_rate": gflops, "dpflops_per_cycle": 1, "power": 0}
    parts = [{"type": cpu, "number": 1}]
    if amounts.gpus:
        processors["gpu"] = {"type": "GPU", "cores": 1, "clock_rate": 1, "dpflops_per_cycle": 1, "power": 0}
        parts.append({"type": "gpu", "number": int(amounts.gpus)})
    found: dict[str, Any] = {"processors": parts, "cpu": amounts.cpu, "pods": int(amounts.pods)}
    if amounts.memory < math.inf:
        found["memory"] = {"capacity": f"{amounts.memory:.0f}B"}
    if amounts.storage < math.inf:
        found["ephemeral_storage"] = f"{amounts.storage:.0f}B"
    return found


def read_manifests(path: Path) -> list[NodeView]:
    """Reads nodes from a YAML file of Nodes or lists of them, as ``kubectl get nodes -o yaml`` prints.

    Raises:
        PlatformError: It cannot be read, or it has something else than nodes.
    """
    found: list[Any] = []
    for document in read_yaml(path, PlatformError, "manifests of nodes", several=True):
        if isinstance(document, dict) and str(document.get("kind")).endswith("List"):
            found += document.get("items") or []
        elif document is not None:
            found.append(document)
    views = []
    for number, node in enumerate(found, 1):
        where = f"{path}: object {number}"
        if not isinstance(node, dict) or node.get("kind", "Node") != "Node":
            kind = node.get("kind") if isinstance(node, dict) else type(node).__name__
            raise PlatformError(f"expected an object of kind Node, got {kind}", where=where)
        try:
            views.append(NodeView.of(node))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise PlatformError(
                f"expected a Node as the API has it: {type(error).__name__} {error}", where=where
            ) from None
    return views


def require_fake(connection: Connection, done: str) -> None:
    """Checks that all nodes of a cluster are Kwok's, before the verb `done` is carried out.

    Raises:
        ConfigError: A node has a real kubelet.
        BackendError: The nodes may not be read.
    """
    found = [node["metadata"] for node in _nodes(connection)]
    real = [metadata["name"] for metadata in found if not _is_fake(metadata)]
    if real:
        also = f" and {len(real) - 1} more" if len(real) > 1 else ""
        raise ConfigError(
            f"{done}: expected a cluster whose nodes are all fake, got {real[0]}{also} on {connection.server}; "
            "--real takes any cluster",
            where="--kubeconfig",
        )


def create_nodes(connection: Connection, manifests: Sequence[Mapping[str, Any]], timeout: float) -> None:
    """Creates nodes, and waits at most a time-out in seconds until all of them are Ready and take pods.

    Raises:
        ConfigError: There are nodes of these names.
        BackendError: They are refused or do not become ready.
    """
    wanted = {manifest["metadata"]["name"] for manifest in manifests}
    taken = sorted(wanted & {node["metadata"]["name"] for node in _nodes(connection)})
    if taken:
        more = f" and {len(taken) - 1} more" if len(taken) > 1 else ""
        raise ConfigError(f"expected names of no node that exists, got '{taken[0]}'{more}")
    deadline = time.monotonic() + timeout
    connection.call(_send_all(connection, "POST", [(_NODES, manifest) for manifest in manifests]))
    while True:
        waiting = wanted - {node["metadata"]["name"] for node in _nodes(connection) if _is_ready(node)}
        if not waiting:
            return
        if time.monotonic() > deadline:
            raise BackendError(
                f"{connection.server}: {len(waiting)} nodes are not ready after {timeout:g} s, such as "
                f"'{min(waiting)}'; nodes without a kubelet need Kwok and kube-controller-manager"
            )
        # The nodes of a large cluster are long to read, and to wait for.
        time.sleep(max(_LOOK, len(waiting) / 500))


def delete_nodes(connection: Connection) -> int:
    """Deletes the fake nodes that hdsim has created, and returns their number; BackendError if it is refused."""
    found = [node["metadata"] for node in _nodes(connection, f"?{SELECTOR}")]
    paths = [f"{_NODES}/{metadata['name']}" for metadata in found if _is_fake(metadata)]
    connection.call(_send_all(connection, "DELETE", [(path, None) for path in paths]))
    return len(paths)


def _is_fake(metadata: Mapping[str, Any]) -> bool:
    """Returns whether a node is Kwok's, by its metadata."""
    return FAKE in (metadata.get("annotations") or {})


def _nodes(connection: Connection, query: str = "") -> list[dict[str, Any]]:
    return connection.get(_NODES + query)["items"]


def _is_ready(node: Mapping[str, Any]) -> bool:
    """Returns whether a node is Ready and has no taint that says otherwise."""
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"].get("conditions", ()))
    return ready and not any(taint["key"].startswith(_STATE) for taint in node["spec"].get("taints", ()))


async def _send_all(connection: Connection, method: str, requests: Iterable[tuple[str, Any]]) -> None:
    """Sends requests, each a path and a body, with many in flight."""
    left = iter(requests)

    async def send() -> None:
        for path, body in left:
            await connection.ask(method, path, body)

    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(_IN_FLIGHT):
                tasks.create_task(send())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
