"""Checks of a platform document."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hdsim.errors import PlatformError
from hdsim.platform.checker import Checker, Types, child_path
from hdsim.util.text import shown
from hdsim.util.units import parse_bandwidth, parse_latency, parse_size

#: Upper limits of a platform, which catch mistakes in a ``number``; a replay takes 1 GB at both. The largest machines
#: have 10 million cores.
MAX_CORES, MAX_PROCESSORS = 10_000_000, 1_000_000

SECTIONS = ("network", "node", "processor", "memory")

#: The kind of processors whose cores are devices.
GPU = "GPU"

_UNLIMITED = math.inf


def inline_types(document: Mapping[str, Any], checker: Checker) -> Types:
    """Returns the types that a platform document defines itself."""
    types = Types()
    inline = document.get("types")
    if inline is None:
        checker.fault("types", "expected an object {...} of types, got none")
    found = {} if inline is None else checker.object(inline, "types", optional=SECTIONS)
    for section in SECTIONS:
        prefix = f"types.{section}"
        content = found.get(section)
        if content is None and isinstance(inline, Mapping):
            content = {}
        elif content is not None and not isinstance(content, Mapping):
            checker.fault(prefix, f"expected an object {{...}} of types, got {shown(content)}")
            content = None
        types.put(section, content, checker, prefix)
    return types


@dataclass
class ProcessorType:
    """A processor type: GFLOP/s and W of each core, GB/s of memory bandwidth of the processor."""

    kind: str
    cores: int
    gflops: float
    power: float
    mem_bw: float


@dataclass
class NodeType:
    """A node type: its processors as (type, number), and its memory in MB."""

    processors: list[tuple[str, int]]
    memory: float


@dataclass
class Link:
    """A network link: bandwidth in byte/s, latency in seconds."""

    bandwidth: float = _UNLIMITED
    latency: float = 0.0


def _processor_type(checker: Checker, value: Any, path: str) -> ProcessorType:
    spec = checker.object(
        value,
        path,
        required=("cores", "clock_rate", "dpflops_per_cycle", "power"),
        optional=("mem_bw", "type", "llc_size", "uarch", "id"),
        extra=True,
    )
    cores = checker.count(spec, "cores", path)
    gflops = checker.number(spec, "clock_rate", path, "GHz") * checker.number(
        spec, "dpflops_per_cycle", path, "operations per cycle"
    )
    if not 0 < gflops < math.inf:
        checker.fault(
            path, f"expected a speed clock_rate * dpflops_per_cycle above 0 and finite, got {gflops!r} GFLOP/s"
        )
    checker.number(spec, "llc_size", path, "MB", zero=True)
    for key in ("uarch", "id"):
        checker.text(spec, key, path)
    return ProcessorType(
        kind=_kind(checker.text(spec, "type", path, default="CPU")),
        cores=cores,
        gflops=gflops,
        power=checker.number(spec, "power", path, "W", zero=True) / cores,
        mem_bw=checker.number(spec, "mem_bw", path, "GB/s", default=_UNLIMITED),
    )


def _kind(text: str) -> str:
    return text.upper() if text.upper() in ("CPU", GPU) else text


def _node_type(checker: Checker, value: Any, path: str, types: Types) -> NodeType:
    spec = checker.object(value, path, required=("processors",), optional=("memory", "id"))
    checker.text(spec, "id", path)
    processors = []
    for place, item in checker.items(spec, "processors", path):
        entry = checker.object(item, place, required=("type", "number"))
        processors.append(
            (checker.reference(entry, "type", place, types, "processor"), checker.count(entry, "number", place))
        )
    memory = _UNLIMITED
    if spec.get("memory") is not None:
        place = child_path(path, "memory")
        entry = checker.object(spec["memory"], place, optional=("type", "capacity"))
        checker.reference(entry, "type", place, types, "memory")
        if isinstance(entry.get("capacity"), str):
            memory = checker.quantity(entry, "capacity", place, parse_size, _UNLIMITED)
            if memory == 0:
                checker.fault(child_path(place, "capacity"), f"expected more than 0, got {entry['capacity']!r}")
        else:
            memory = checker.number(entry, "capacity", place, "GB", default=_UNLIMITED) * 1000
    return NodeType(processors, memory)


def _network_type(checker: Checker, value: Any, path: str) -> float:
    spec = checker.object(value, path, required=("bandwidth",))
    return checker.quantity(spec, "bandwidth", path, parse_bandwidth, _UNLIMITED)


def _memory_type(checker: Checker, value: Any, path: str) -> None:
    spec = checker.object(value, path, optional=("latency",), extra=True)
    checker.quantity(spec, "latency", path, parse_latency, 0.0)


@dataclass
class PlatformSpec:
    """A platform document without faults.

    Attributes:
        name: Name of the platform.
        document: The document with the types in use inline.
        processor_types: Processor types in use, in order of first use.
        node_types: Node types in use, in order of first use.
        cluster_names: Names of the clusters.
        local_links: Link of each node, per cluster.
        global_link: Link of each cluster to the others.
        groups: Cluster index, node type and number of equal nodes, in file order.
        type_files: sha256 of each type library, by path.
    """

    name: str
    document: dict[str, Any]
    processor_types: dict[str, ProcessorType]
    node_types: dict[str, NodeType]
    cluster_names: list[str]
    local_links: list[Link]
    global_link: Link
    groups: list[tuple[int, str, int]]
    type_files: dict[str, str]


def check_document(
    document: Any, source: str, find_types: Callable[[Mapping[str, Any], Checker], Types]
) -> tuple[PlatformSpec | None, list[PlatformError]]:
    """Checks a platform document.

    Args:
        document: The parsed JSON.
        source: Origin of the document for error messages.
        find_types: Returns the types of the document.

    Returns:
        The platform, None if there are faults, and the faults.
    """
    errors: list[PlatformError] = []
    checker = Checker(source, errors)
    checker.tree(document, "")
    top = checker.object(document, "", required=("clusters",), optional=("global_links", "types", "name"))
    if not isinstance(document, Mapping):
        return None, errors
    name = checker.text(top, "name", "", default=_stem(source))
    types = find_types(top, checker)

    def each(section: str) -> Iterable[tuple[str, Checker, Any, str]]:
        content, prefix = types.sections[section], types.prefixes[section]
        for type_name in types.names(section) or ():
            yield type_name, types.checkers[section], (content or {})[type_name], child_path(prefix, type_name)

    processor_types = {key: _processor_type(at, value, path) for key, at, value, path in each("processor")}
    node_types = {key: _node_type(at, value, path, types) for key, at, value, path in each("node")}
    for key, at, _, path in each("node"):
        kinds = {processor_types[name].kind for name, _ in node_types[key].processors if name in processor_types}
        if kinds == {GPU}:
            at.fault(path, "expected a processor besides the GPUs: a job has a core wherever it has a GPU")
    bandwidths = {key: _network_type(at, value, path) for key, at, value, path in each("network")}
    for _, at, value, path in each("memory"):
        _memory_type(at, value, path)

    def link(holder: Mapping[str, Any], key: str, path: str) -> Link:
        if holder.get(key) is None:
            return Link()
        place = child_path(path, key)
        entry = checker.object(holder[key], place, required=("type",), optional=("latency",))
        network = checker.reference(entry, "type", place, types, "network")
        latency = checker.quantity(entry, "latency", place, parse_latency, 0.0)
        return Link(bandwidths.get(network, _UNLIMITED), latency)

    cluster_names: list[str] = []
    local_links: list[Link] = []
    groups: list[tuple[int, str, int]] = []
    for path, item in checker.items(top, "clusters", ""):
        cluster = checker.object(item, path, required=("id", "nodes"), optional=("local_links",))
        cluster_name = checker.text(cluster, "id", path)
        if cluster_name and cluster_name in cluster_names:
            checker.fault(child_path(path, "id"), f"expected a name of its own, got '{cluster_name}' a second time")
        local_links.append(link(cluster, "local_links", path))
        for place, entry in checker.items(cluster, "nodes", path):
            group = checker.object(entry, place, required=("type", "number"))
            node_type = checker.reference(group, "type", place, types, "node")
            groups.append((len(cluster_names), node_type, checker.count(group, "number", place)))
        cluster_names.append(cluster_name)
    global_link = link(top, "global_links", "")
    if errors:
        return None, errors

    cores_of_node = {
        key: sum(number * processor_types[processor].cores for processor, number in node.processors)
        for key, node in node_types.items()
    }
    processors_of_node = {key: sum(number for _, number in node.processors) for key, node in node_types.items()}
    for noun, most, of_node in (
        ("cores", MAX_CORES, cores_of_node),
        ("processors", MAX_PROCESSORS, processors_of_node),
    ):
        found = sum(number * of_node[node_type] for _, node_type, number in groups)
        if found > most:
            checker.fault("clusters", f"expected at most {most} {noun}, got {found}")
    if errors:
        return None, errors

    node_names = list(dict.fromkeys(node_type for _, node_type, _ in groups))
    processor_names = list(dict.fromkeys(p for key in node_names for p, _ in node_types[key].processors))
    return PlatformSpec(
        name=name,
        document=_complete(top, name, types, node_names, processor_names),
        processor_types={key: processor_types[key] for key in processor_names},
        node_types={key: node_types[key] for key in node_names},
        cluster_names=cluster_names,
        local_links=local_links,
        global_link=global_link,
        groups=groups,
        type_files=types.files,
    ), errors


def _stem(source: str) -> str:
    return source.strip("<>") if source.startswith("<") else re.sub(r"\.json(\.gz)?$", "", Path(source).name)


def _plain(section: Mapping[str, Any] | None, key: str) -> dict[str, Any]:
    """Returns a type as dictionaries and lists without comments."""
    plain: dict[str, Any] = _without_comments((section or {})[key])
    return plain


def _without_comments(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_comments(child) for key, child in value.items() if not key.startswith("_")}
    return [_without_comments(child) for child in value] if isinstance(value, list | tuple) else value


def _complete(
    top: Mapping[str, Any], name: str, types: Types, node_names: list[str], processor_names: list[str]
) -> dict[str, Any]:
    """Returns a checked document with the types in use inline."""
    document: dict[str, Any] = {"name": name, "clusters": _without_comments(top["clusters"])}
    links = [cluster["local_links"] for cluster in document["clusters"] if cluster.get("local_links")]
    if top.get("global_links"):
        document["global_links"] = _without_comments(top["global_links"])
        links.append(document["global_links"])
    node = {key: _plain(types.sections["node"], key) for key in node_names}
    memory_names = [spec["memory"].get("type") for spec in node.values() if spec.get("memory")]
    names = {
        "network": [entry["type"] for entry in links],
        "processor": processor_names,
        "memory": [key for key in memory_names if key],
    }
    document["types"] = {"node": node} | {
        section: {key: _plain(types.sections[section], key) for key in dict.fromkeys(keys)}
        for section, keys in names.items()
    }
    return document
