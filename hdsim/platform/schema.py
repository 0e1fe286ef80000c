"""Checks of a platform document."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hdsim.errors import PlatformError, nearest
from hdsim.platform.checker import Checker, Section, Types, child_path
from hdsim.platform.frequencies import OperatingPoint
from hdsim.platform.node_state import STATE_NAMES, NodeState
from hdsim.platform.pstates import IDLE, PSTATES
from hdsim.util.text import shown, unused
from hdsim.util.units import parse_bandwidth, parse_cpu, parse_latency, parse_size

#: Upper limits of a platform, which catch mistakes in a ``number``; a replay takes 1 GB at both. The largest machines
#: have 10 million cores.
MAX_CORES, MAX_PROCESSORS = 10_000_000, 1_000_000

SECTIONS = ("network", "node", "processor", "memory")

#: The kind of processors whose cores are devices.
GPU = "GPU"

#: Names of nodes: DNS-1123 subdomains.
NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")

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
        types.sections[section] = Section(content, checker, prefix)
    return types


NO_SCHEDULE, NO_EXECUTE, PREFER_NO_SCHEDULE = EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a node; a value is empty for none, an effect is one of :data:`EFFECTS`."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        """The taint as ``kubectl`` writes it, ``KEY=VALUE:EFFECT``."""
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"

    @property
    def forbids(self) -> bool:
        """Whether the node takes only pods that tolerate the taint; PreferNoSchedule is a preference."""
        return self.effect != PREFER_NO_SCHEDULE


@dataclass
class ProcessorType:
    """A processor type: GFLOP/s and W of each core, GB/s of memory bandwidth of the processor."""

    kind: str
    cores: int
    gflops: float
    power: float
    mem_bw: float
    points: tuple[OperatingPoint, ...]  # ascending, empty for none


#: Kinds of a platform: its nodes have cores with ids, or quantities of CPU, memory, pods and so on, as in Kubernetes.
CORES, QUANTITIES = KINDS = ("cores", "quantities")
#: Pods of a node of quantities by default, as the kubelet's ``maxPods``.
PODS = 110


@dataclass
class NodeType:
    """A node type."""

    processors: list[tuple[str, int]]  # its processors as (type, number)
    memory: float  # MB
    cpu: float | None  # CPU in cores, None for that of the processors
    pods: int | None  # maximum number of pods, None for the default of the platform's kind
    storage: float  # ephemeral storage in MB
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    #: Watts beside those of processors, and seconds, by :class:`NodeState`; NaN: no such state.
    states: list[tuple[float, float]]


@dataclass(frozen=True)
class NodeGroup:
    """Equal nodes of a cluster."""

    cluster: int  # index of the cluster
    node_type: str  # name of the node type
    number: int
    names: tuple[str, ...]  # names of the nodes, empty for names after the cluster
    #: labels, taints: Those of the group and of its node type.
    labels: dict[str, str]
    taints: tuple[Taint, ...]


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
        optional=("mem_bw", "type", "llc_size", "uarch", "id", "frequencies"),
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
    kind = _kind(checker.text(spec, "type", path, default="CPU"))
    power = checker.number(spec, "power", path, "W", zero=True)
    return ProcessorType(
        kind=kind,
        cores=cores,
        gflops=gflops,
        power=power / cores,
        mem_bw=checker.number(spec, "mem_bw", path, "GB/s", default=_UNLIMITED),
        points=_points(checker, spec, path, kind, power / cores),
    )


#: Relative rounding of the watts of a core at the nominal frequency.
_ROUNDING = 1e-6
#: Keys of an operating point.
_POINT = ("ghz", "static_watts", "dynamic_watts")


def _points(
    checker: Checker, spec: Mapping[str, Any], path: str, kind: str, watts: float
) -> tuple[OperatingPoint, ...]:
    """Returns the operating points of a processor type, whose cores draw `watts` at the nominal frequency."""
    place = child_path(path, "frequencies")
    points: list[OperatingPoint] = []
    for where, item in checker.items(spec, "frequencies", path):
        entry = checker.object(item, where, required=_POINT)
        ghz, static, dynamic = (
            checker.number(entry, key, where, "GHz" if key == "ghz" else "W", zero=key != "ghz") for key in _POINT
        )
        if any(point.ghz == ghz for point in points):
            checker.fault(child_path(where, "ghz"), f"expected a frequency of its own, got {ghz:g} a second time")
        least = watts * PSTATES[IDLE].power
        if static + dynamic < least:
            message = f"expected at least the {least:g} W of an idle core beside a busy one"
            checker.fault(where, f"{message}, got {static + dynamic:g} W")
        points.append(OperatingPoint(ghz, static, dynamic))
    if not points:
        return ()
    if kind == GPU:
        checker.fault(place, "expected no frequencies of a GPU, got some")
    nominal = spec.get("clock_rate")
    at = next((point for point in points if point.ghz == nominal), None)
    if at is None:
        checker.fault(
            place, f"expected the nominal frequency among them, the clock_rate {shown(nominal)} GHz, got none"
        )
    elif abs(at.watts - watts) > _ROUNDING * watts:
        checker.fault(place, f"expected {watts:g} W at {at.ghz:g} GHz, power / cores, got {at.watts:g} W")
    return tuple(sorted(points))


def _kind(text: str) -> str:
    return text.upper() if text.upper() in ("CPU", GPU) else text


def _node_type(checker: Checker, value: Any, path: str, types: Types) -> NodeType:
    optional = ("memory", "id", "cpu", "pods", "ephemeral_storage", "labels", "taints", "states")
    spec = checker.object(value, path, required=("processors",), optional=optional)
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
        memory = _size(checker, entry, "capacity", place)
    cpu = None
    if isinstance(spec.get("cpu"), str):
        cpu = checker.quantity(spec, "cpu", path, parse_cpu, 1.0)
    elif spec.get("cpu") is not None:
        cpu = checker.number(spec, "cpu", path, "cores")
    return NodeType(
        processors,
        memory,
        cpu,
        None if spec.get("pods") is None else checker.count(spec, "pods", path),
        _size(checker, spec, "ephemeral_storage", path, zero=True),
        _labels(checker, spec, path),
        _taints(checker, spec, path),
        _states(checker, spec, path),
    )


#: Those that have a duration, and those that a node has which is never switched off.
_CHANGES, _UP = ("going_down", "booting"), ("on", "idle")


def _states(checker: Checker, holder: Mapping[str, Any], path: str) -> list[tuple[float, float]]:
    """Returns watts and seconds of a node type by power state."""
    place = child_path(path, "states")
    given = holder.get("states")
    found = {} if given is None else checker.object(given, place, optional=STATE_NAMES)
    if found.keys() & set(_CHANGES) and "off" not in found:
        checker.fault(child_path(place, "off"), "expected a value beside going_down and booting, got none")
    states = []
    for name in STATE_NAMES:
        where, required = child_path(place, name), ("watts", "seconds") if name in _CHANGES else ("watts",)
        entry = checker.object(found[name], where, required=required) if found.get(name) is not None else {}
        missing = 0.0 if name in _UP or "off" in found else math.nan
        watts = checker.number(entry, "watts", where, "W", zero=True, default=missing)
        states.append((watts, checker.number(entry, "seconds", where, "s", zero=True, default=0.0)))
    if states[NodeState.IDLE][0] > states[NodeState.ON][0]:
        checker.fault(child_path(place, "idle"), "expected at most the watts of `on`, got more")
    return states


def _size(checker: Checker, holder: Mapping[str, Any], key: str, path: str, *, zero: bool = False) -> float:
    """Returns an amount of memory or storage in MB, given in GB or as a text with a unit."""
    if not isinstance(holder.get(key), str):
        return checker.number(holder, key, path, "GB", default=_UNLIMITED, zero=zero) * 1000
    size = checker.quantity(holder, key, path, parse_size, _UNLIMITED)
    if size == 0 and not zero:
        checker.fault(child_path(path, key), f"expected more than 0, got {holder[key]!r}")
    return size


def _labels(checker: Checker, holder: Mapping[str, Any], path: str) -> dict[str, str]:
    """Returns the labels of a node type or of a group of nodes."""
    place = child_path(path, "labels")
    found = {} if holder.get("labels") is None else checker.object(holder["labels"], place, extra=True)
    return {key: checker.label(found, key, place) for key in found}


def _taints(checker: Checker, holder: Mapping[str, Any], path: str) -> tuple[Taint, ...]:
    """Returns the taints of a node type or of a group of nodes."""
    made = []
    for place, item in checker.items(holder, "taints", path) if holder.get("taints") else ():
        entry = checker.object(item, place, required=("key", "effect"), optional=("value",))
        effect = checker.text(entry, "effect", place)
        if effect and effect not in EFFECTS:
            checker.fault(
                child_path(place, "effect"),
                f"expected one of {', '.join(EFFECTS)}, got {shown(effect)}{nearest(effect, EFFECTS)}",
            )
        made.append(Taint(checker.text(entry, "key", place), checker.label(entry, "value", place), effect))
    return tuple(made)


def _names(checker: Checker, group: Mapping[str, Any], number: int, path: str) -> tuple[str, ...]:
    """Returns the names of the nodes of a group, empty if it gives none."""
    items = checker.items(group, "names", path)
    for place, name in items:
        if not isinstance(name, str) or len(name) > 253 or not NODE_NAME.fullmatch(name):
            checker.fault(place, f"expected lower case letters, digits, '-' and '.' (DNS-1123), got {shown(name)}")
    if items and len(items) != number:
        checker.fault(child_path(path, "names"), f"expected {number} names, one a node, got {len(items)}")
    return tuple(str(name) for _, name in items)


def _network_type(checker: Checker, value: Any, path: str) -> float:
    spec = checker.object(value, path, required=("bandwidth",))
    return checker.quantity(spec, "bandwidth", path, parse_bandwidth, _UNLIMITED)


def _memory_type(checker: Checker, value: Any, path: str) -> None:
    spec = checker.object(value, path, optional=("latency",), extra=True)
    checker.quantity(spec, "latency", path, parse_latency, 0.0)


@dataclass
class PlatformSpec:
    """A platform document without faults, and the document with the types in use inline."""

    name: str
    document: dict[str, Any]
    #: processor_types, node_types: Types in use, in order of first use.
    processor_types: dict[str, ProcessorType]
    node_types: dict[str, NodeType]
    cluster_names: list[str]
    local_links: list[Link]  # link of each node, per cluster
    global_link: Link  # link of each cluster to the others
    groups: list[NodeGroup]  # groups of equal nodes in file order
    type_files: dict[str, str]  # sha256 of each type library, by path
    kind: str  # one of :data:`KINDS`


def check_document(
    document: Any, source: str, find_types: Callable[[Mapping[str, Any], Checker], Types]
) -> tuple[PlatformSpec | None, list[PlatformError]]:
    """Checks a parsed document from `source`; returns the platform, None if there are faults, and the faults.

    `find_types` returns the types of the document.
    """
    errors: list[PlatformError] = []
    checker = Checker(source, errors)
    checker.tree(document, "")
    top = checker.object(document, "", required=("clusters",), optional=("global_links", "types", "name", "kind"))
    if not isinstance(document, Mapping):
        return None, errors
    name = checker.text(top, "name", "", default=_stem(source))
    kind = checker.text(top, "kind", "", default=CORES)
    if kind not in KINDS:
        checker.fault("kind", f"expected one of {', '.join(KINDS)}, got {shown(kind)}{nearest(kind, KINDS)}")
    types = find_types(top, checker)

    def each(section: str) -> Iterable[tuple[str, Checker, Any, str]]:
        found = types.sections[section]
        for type_name in found.names or ():
            yield type_name, found.checker, (found.content or {})[type_name], child_path(found.prefix, type_name)

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
    groups: list[NodeGroup] = []
    for path, item in checker.items(top, "clusters", ""):
        cluster = checker.object(item, path, required=("id", "nodes"), optional=("local_links",))
        cluster_name = checker.text(cluster, "id", path)
        if cluster_name and cluster_name in cluster_names:
            checker.fault(child_path(path, "id"), f"expected a name of its own, got '{cluster_name}' a second time")
        local_links.append(link(cluster, "local_links", path))
        for place, entry in checker.items(cluster, "nodes", path):
            group = checker.object(entry, place, required=("type", "number"), optional=("names", "labels", "taints"))
            node_type = checker.reference(group, "type", place, types, "node")
            number = checker.count(group, "number", place)
            names = _names(checker, group, number, place)
            labels, taints = _labels(checker, group, place), _taints(checker, group, place)
            if node_type in node_types:
                labels, taints = node_types[node_type].labels | labels, node_types[node_type].taints + taints
            groups.append(NodeGroup(len(cluster_names), node_type, number, names, labels, taints))
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
        found = sum(group.number * of_node[group.node_type] for group in groups)
        if found > most:
            checker.fault("clusters", f"expected at most {most} {noun}, got {found}")
    if not errors and any(group.names for group in groups):
        for node_name, times in Counter(name_nodes(cluster_names, groups)).items():
            if times > 1:
                checker.fault("clusters", f"expected a name of its own for each node, got '{node_name}' {times} times")
    if errors:
        return None, errors

    node_names = list(dict.fromkeys(group.node_type for group in groups))
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
        kind=kind,
    ), errors


def name_nodes(cluster_names: Iterable[str], groups: Iterable[NodeGroup]) -> list[str]:
    """Returns the names of all nodes: those of their groups, otherwise ``CLUSTER-NUMBER`` as DNS-1123 labels."""
    prefixes: list[str] = []
    for name in cluster_names:
        prefixes.append(unused(re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:50] or "node", prefixes))
    names: list[str] = []
    counted: Counter[int] = Counter()
    for group in groups:
        first = counted[group.cluster]
        counted[group.cluster] += group.number
        made = (f"{prefixes[group.cluster]}-{node}" for node in range(first, first + group.number))
        names += group.names or made
    return names


def _stem(source: str) -> str:
    return source.strip("<>") if source.startswith("<") else re.sub(r"\.json(\.gz)?$", "", Path(source).name)


def _without_comments(value: Any) -> Any:
    """Returns a part of a document as dictionaries and lists without comments."""
    if isinstance(value, Mapping):
        return {key: _without_comments(child) for key, child in value.items() if not key.startswith("_")}
    return [_without_comments(child) for child in value] if isinstance(value, list | tuple) else value


def _complete(
    top: Mapping[str, Any], name: str, types: Types, node_names: list[str], processor_names: list[str]
) -> dict[str, Any]:
    """Returns a checked document with the types in use inline."""
    kept = {key: top[key] for key in ("kind",) if top.get(key) is not None}
    document: dict[str, Any] = {"name": name, **kept, "clusters": _without_comments(top["clusters"])}
    links = [cluster["local_links"] for cluster in document["clusters"] if cluster.get("local_links")]
    if top.get("global_links"):
        document["global_links"] = _without_comments(top["global_links"])
        links.append(document["global_links"])

    def plain(section: str, keys: Iterable[str]) -> dict[str, Any]:
        content = types.sections[section].content or {}
        return {key: _without_comments(content[key]) for key in dict.fromkeys(keys)}

    node = plain("node", node_names)
    memory_names = [spec["memory"].get("type") for spec in node.values() if spec.get("memory")]
    document["types"] = {
        "node": node,
        "network": plain("network", [entry["type"] for entry in links]),
        "processor": plain("processor", processor_names),
        "memory": plain("memory", filter(None, memory_names)),
    }
    return document
