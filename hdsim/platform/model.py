"""The machine: platform > cluster > node > processor > core, as frozen arrays.

A platform is read once from JSON (:func:`load_platform`) or made by :meth:`Platform.homogeneous`, and is nothing but
arrays afterwards: there is no object per core, and "the cores of processor p" is a slice of consecutive core ids.
"""

from __future__ import annotations

import copy
import gzip
import hashlib
import json
import math
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hdsim.errors import PlatformError, nearest
from hdsim.util.units import in_bytes, parse_bandwidth, parse_latency, parse_size

#: A platform larger than this is taken for a mistake in a ``number``.
MAX_CORES = 100_000_000

SECTIONS = ("network", "node", "processor", "memory")

#: The kind of processor whose cores are devices.
GPU = "GPU"

_UNLIMITED = math.inf


@dataclass(frozen=True, eq=False)
class Platform:
    """A cluster of clusters, with C cores, P processors, N nodes and K clusters.

    Ids run from 0 in the order of the file: cluster by cluster, node by node, processor by processor, core by core.
    The cores of a processor of kind ``"GPU"`` are devices, which only jobs that ask for GPUs get. They have core ids
    and stand in every array of cores. All arrays are read-only.

    Attributes:
        name: Name for people.
        cluster_names: (K,) names of the clusters.
        node_type_names: Names of the node types in use, in order of first use.
        processor_type_names: Names of the processor types in use, in order of first use.
        core_processor: (C,) processor of a core.
        processor_first_core: (P+1,) first core of a processor; the last entry is C.
        processor_node: (P,) node of a processor.
        node_first_processor: (N+1,) first processor of a node; the last entry is P.
        node_first_core: (N+1,) first core of a node; the last entry is C.
        node_cluster: (N,) cluster of a node.
        cluster_first_node: (K+1,) first node of a cluster; the last entry is N.
        processor_type: (P,) index in `processor_type_names`.
        node_type: (N,) index in `node_type_names`.
        processor_kind: Kind of each processor type: ``"CPU"``, ``"GPU"``...
        processor_type_specs: Each processor type as written in the file, extra keys included.
        gflops: (P,) GFLOP/s of each core of a processor.
        power: (P,) W of each core of a processor when it computes.
        mem_bw: (P,) GB/s of memory bandwidth of a processor, inf = unlimited.
        memory: (N,) MB of memory of a node, inf = unlimited.
        local_bandwidth: (K,) byte/s of the link of each node of a cluster, inf = unlimited.
        local_latency: (K,) s of the link of each node of a cluster.
        global_bandwidth: (K,) byte/s of the link of a cluster to the others, inf = unlimited.
        global_latency: (K,) s of the link of a cluster to the others.
        source: Where the platform comes from: a path, or a word in angle brackets.
        sha256: Digest of the platform file, None when there is none.
        type_files: sha256 of each type library that was read, by path.
    """

    name: str
    cluster_names: tuple[str, ...]
    node_type_names: tuple[str, ...]
    processor_type_names: tuple[str, ...]
    core_processor: NDArray[np.int32] = field(repr=False)
    processor_first_core: NDArray[np.int32] = field(repr=False)
    processor_node: NDArray[np.int32] = field(repr=False)
    node_first_processor: NDArray[np.int32] = field(repr=False)
    node_first_core: NDArray[np.int32] = field(repr=False)
    node_cluster: NDArray[np.int32] = field(repr=False)
    cluster_first_node: NDArray[np.int32] = field(repr=False)
    processor_type: NDArray[np.int32] = field(repr=False)
    node_type: NDArray[np.int32] = field(repr=False)
    processor_kind: tuple[str, ...]
    processor_type_specs: tuple[dict[str, Any], ...] = field(repr=False)
    gflops: NDArray[np.float64] = field(repr=False)
    power: NDArray[np.float64] = field(repr=False)
    mem_bw: NDArray[np.float64] = field(repr=False)
    memory: NDArray[np.float64] = field(repr=False)
    local_bandwidth: NDArray[np.float64] = field(repr=False)
    local_latency: NDArray[np.float64] = field(repr=False)
    global_bandwidth: NDArray[np.float64] = field(repr=False)
    global_latency: NDArray[np.float64] = field(repr=False)
    source: str
    sha256: str | None = None
    type_files: Mapping[str, str] = field(default_factory=dict, repr=False)
    _document: dict[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self._freeze()

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Pickling drops numpy's read-only flag.
        self.__dict__.update(state)
        self._freeze()

    def _freeze(self) -> None:
        for value in self.__dict__.values():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)

    @property
    def n_cores(self) -> int:
        """C, the number of core ids, those of GPUs included."""
        return len(self.core_processor)

    @property
    def n_gpus(self) -> int:
        """Number of GPUs among the core ids."""
        return len(self.gpus)

    @property
    def n_cpu_cores(self) -> int:
        """Number of core ids that are no GPUs."""
        return self.n_cores - self.n_gpus

    @property
    def n_processors(self) -> int:
        """P, the number of processors."""
        return len(self.processor_node)

    @property
    def n_nodes(self) -> int:
        """N, the number of nodes."""
        return len(self.node_cluster)

    @property
    def n_clusters(self) -> int:
        """K, the number of clusters."""
        return len(self.cluster_names)

    @cached_property
    def cores_per_processor(self) -> NDArray[np.int32]:
        """(P,) cores of each processor."""
        counts = np.diff(self.processor_first_core)
        counts.setflags(write=False)
        return counts

    @cached_property
    def is_gpu(self) -> NDArray[np.bool_]:
        """(P,) whether the cores of a processor are GPUs."""
        kinds = np.array([kind == GPU for kind in self.processor_kind])[self.processor_type]
        kinds.setflags(write=False)
        return kinds

    @cached_property
    def gpus(self) -> NDArray[np.int64]:
        """(D,) core ids of the GPUs, ascending."""
        devices = np.flatnonzero(self.is_gpu[self.core_processor])
        devices.setflags(write=False)
        return devices

    @cached_property
    def node_gpus(self) -> NDArray[np.int64]:
        """(N,) GPUs of each node."""
        counts = np.bincount(self.processor_node[self.core_processor[self.gpus]], minlength=self.n_nodes)
        counts.setflags(write=False)
        return counts

    @cached_property
    def node_cpu_cores(self) -> NDArray[np.int64]:
        """(N,) cores of each node that are no GPUs."""
        counts = np.diff(self.node_first_core).astype(np.int64) - self.node_gpus
        counts.setflags(write=False)
        return counts

    @cached_property
    def node_kinds(self) -> list[tuple[tuple[float, float, float], int]]:
        """Cores, GPUs and bytes of memory of nodes that differ in these, and how many nodes there are of each kind."""
        nodes = np.stack([self.node_cpu_cores, self.node_gpus, in_bytes(self.memory)])
        kinds, counts = np.unique(nodes, axis=1, return_counts=True)
        return [(tuple(kind), count) for kind, count in zip(kinds.T.tolist(), counts.tolist(), strict=True)]

    @cached_property
    def homogeneous_speed(self) -> bool:
        """Whether all cores have the same speed; GPUs do not count."""
        speeds = self.gflops[~self.is_gpu]
        return bool((speeds == speeds[0]).all())

    @cached_property
    def reference_gflops(self) -> float:
        """Mean GFLOP/s per core, GPUs left out: the speed at which a trace's seconds are taken to be measured."""
        cpus = ~self.is_gpu
        if self.homogeneous_speed:
            # Exactly the cores' speed, so that a job lasts exactly its trace's run time.
            return float(self.gflops[cpus][0])
        return float(np.dot(self.gflops[cpus], self.cores_per_processor[cpus]) / self.n_cpu_cores)

    def core_gflops(self) -> NDArray[np.float64]:
        """Returns (C,) GFLOP/s of each core."""
        return self.gflops[self.core_processor]

    def to_dict(self) -> dict[str, Any]:
        """Returns the platform as one complete JSON document that :meth:`from_dict` reads back to equal arrays."""
        return copy.deepcopy(self._document)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], where: str = "<dict>") -> Platform:
        """Builds a platform from a parsed JSON document whose types are inline.

        Args:
            document: What :func:`load_platform` reads from a file.
            where: Its origin, for error messages and `source`.

        Raises:
            PlatformError: The document has faults; all of them are listed.
        """
        platform, errors = _build(document, where, _inline_types)
        if platform is None:
            raise PlatformError.many(errors)
        return platform

    @classmethod
    def homogeneous(
        cls,
        nodes: int,
        cores_per_node: int,
        gflops_per_core: float = 10.0,
        *,
        processors_per_node: int = 1,
        memory_gb_per_node: float | None = None,
        mem_bw: float | None = None,
        power_per_core: float = 10.0,
        bandwidth: str | None = None,
        latency: str = "0us",
        name: str = "homogeneous",
    ) -> Platform:
        """Builds one cluster of equal nodes.

        Args:
            nodes: Number of nodes.
            cores_per_node: Cores of each node, a multiple of `processors_per_node`.
            gflops_per_core: GFLOP/s of each core.
            processors_per_node: Processors of each node.
            memory_gb_per_node: GB of each node, None = unlimited.
            mem_bw: GB/s of memory bandwidth of each processor, None = unlimited.
            power_per_core: W of each core when it computes.
            bandwidth: Bandwidth of each node's link and of the cluster's, such as ``"10Gbps"``; None = unlimited.
            latency: Latency of these links, such as ``"5us"``; without a bandwidth there are no links.
            name: Name of the platform, of its cluster and of its types.

        Raises:
            PlatformError: An argument is out of range.
        """
        where = "<homogeneous>"
        for argument, value in (("cores_per_node", cores_per_node), ("processors_per_node", processors_per_node)):
            if not _is_count(value):
                raise PlatformError(
                    f"expected a whole number of at least 1, got {value!r}", where=f"{where}: {argument}"
                )
        if cores_per_node % processors_per_node:
            raise PlatformError(
                f"expected a multiple of processors_per_node ({processors_per_node}), got {cores_per_node}",
                where=f"{where}: cores_per_node",
            )
        cores = cores_per_node // processors_per_node
        processor = {"cores": cores, "clock_rate": gflops_per_core, "dpflops_per_cycle": 1, "mem_bw": mem_bw}
        processor["power"] = power_per_core * cores if _is_number(power_per_core) else power_per_core
        document: dict[str, Any] = {
            "name": name,
            "clusters": [{"id": name, "nodes": [{"type": name, "number": nodes}]}],
            "types": {
                "node": {name: {"processors": [{"type": name, "number": processors_per_node}]}},
                "processor": {name: processor},
            },
        }
        if memory_gb_per_node is not None:
            document["types"]["node"][name]["memory"] = {"capacity": memory_gb_per_node}
        if bandwidth is not None:
            document["types"]["network"] = {name: {"bandwidth": bandwidth}}
            document["clusters"][0]["local_links"] = {"type": name, "latency": latency}
            document["global_links"] = {"type": name, "latency": latency}
        return cls.from_dict(document, where)


def load_platform(path: str | Path, types: str | Path | None = None) -> Platform:
    """Reads a platform file (``.json`` or ``.json.gz``).

    Args:
        path: The file.
        types: Folder of ``network_types.json``, ``node_types.json``, ``processor_types.json`` and
            ``memory_types.json``. Without it the types are those inline in the file or, failing that, in these files
            beside the platform file, in ``types/`` beside it or in ``../types``.

    Raises:
        PlatformError: The file cannot be read or has faults; all of them are listed.
    """
    platform, errors = _load(Path(path), None if types is None else Path(types))
    if platform is None:
        raise PlatformError.many(errors)
    return platform


def validate_platform(path: str | Path, types: str | Path | None = None) -> list[PlatformError]:
    """Returns every fault of a platform file and of its type libraries, none when it is valid.

    Args:
        path: The file.
        types: Folder of the type libraries, as for :func:`load_platform`.
    """
    return _load(Path(path), None if types is None else Path(types))[1]


class _Types:
    """The type definitions of a platform by section, and where each section stands.

    A section is None when it could not be found or read; then references into it are not checked, since the fault
    of the section itself has been noted.
    """

    def __init__(self) -> None:
        self.sections: dict[str, Mapping[str, Any] | None] = {}
        self.checkers: dict[str, _Checker] = {}
        self.prefixes: dict[str, str] = {}
        self.files: dict[str, str] = {}

    def put(self, section: str, content: Mapping[str, Any] | None, checker: _Checker, prefix: str) -> None:
        self.sections[section] = content
        self.checkers[section] = checker
        self.prefixes[section] = prefix

    def names(self, section: str) -> Sequence[str] | None:
        content = self.sections[section]
        return None if content is None else [name for name in content if not name.startswith("_")]


class _Checker:
    """Notes the faults of one document; every check returns a usable value, so that reading goes on after a fault."""

    def __init__(self, source: str, errors: list[PlatformError]) -> None:
        self.source = source
        self.errors = errors

    def fault(self, path: str, message: str) -> None:
        self.errors.append(PlatformError(message, where=f"{self.source}: {path}" if path else self.source))

    def tree(self, value: Any, path: str) -> None:
        """Notes what is wrong anywhere in a document: keys given twice and numbers that are not finite."""
        if isinstance(value, Mapping):
            for key in getattr(value, "duplicates", ()):
                self.fault(_child(path, key), "expected each key once, got it twice")
            for key, child in value.items():
                self.tree(child, _child(path, key))
        elif isinstance(value, list | tuple):
            for index, child in enumerate(value):
                self.tree(child, f"{path}[{index}]")
        elif _is_number(value) and not _is_finite(value):
            self.fault(path, f"expected a finite number, got {_shown(value)}")

    def object(
        self, value: Any, path: str, required: Iterable[str] = (), optional: Iterable[str] = (), *, extra: bool = False
    ) -> Mapping[str, Any]:
        """Returns a JSON object without its comments; `extra` allows keys other than those named."""
        if not isinstance(value, Mapping):
            self.fault(path, f"expected an object {{...}}, got {_shown(value)}")
            return {}
        present = {key: child for key, child in value.items() if not key.startswith("_")}
        missing = [key for key in required if present.get(key) is None]
        absent = [*missing, *(key for key in optional if key not in present)]
        allowed = [*required, *optional]
        for key in missing:
            self.fault(_child(path, key), "expected a value, got none")
        for key in present:
            # Where other keys are welcome, one that resembles a missing key is a misspelling of it.
            if key not in allowed and (not extra or nearest(key, absent)):
                hint = nearest(key, absent) or nearest(key, allowed)
                self.fault(_child(path, key), f"unknown key{hint}; allowed: {', '.join(allowed)}")
        return present

    def items(self, holder: Mapping[str, Any], key: str, path: str) -> list[tuple[str, Any]]:
        """Returns the elements of a list that must not be empty, each with its path; none when the key is absent."""
        value, path = holder.get(key), _child(path, key)
        if value is None:
            return []
        if not isinstance(value, list | tuple) or not value:
            self.fault(path, f"expected a list [...] of at least one element, got {_shown(value)}")
            return []
        return [(f"{path}[{index}]", child) for index, child in enumerate(value)]

    def text(self, holder: Mapping[str, Any], key: str, path: str, default: str = "") -> str:
        value = holder.get(key)
        if value is None:
            return default
        if not isinstance(value, str) or not value:
            self.fault(_child(path, key), f"expected a text, got {_shown(value)}")
            return default
        return value

    def count(self, holder: Mapping[str, Any], key: str, path: str) -> int:
        value = holder.get(key)
        if value is None or _is_count(value):
            return 1 if value is None else int(value)
        self.fault(_child(path, key), f"expected a whole number of at least 1, got {_shown(value)}")
        return 1

    def number(
        self, holder: Mapping[str, Any], key: str, path: str, unit: str, *, zero: bool = False, default: float = 1.0
    ) -> float:
        """Returns a number above 0, or of at least 0 where `zero` allows it."""
        value = holder.get(key)
        if value is None:
            return default
        if _is_number(value):
            if not _is_finite(value):
                return default
            if value > 0 or (zero and value == 0):
                return float(value)
        bound = "of at least 0" if zero else "above 0"
        self.fault(_child(path, key), f"expected a number {bound} ({unit}), got {_shown(value)}")
        return default

    def quantity(
        self, holder: Mapping[str, Any], key: str, path: str, parse: Callable[[str], float], default: float
    ) -> float:
        """Returns a value written with its unit."""
        value = holder.get(key)
        if value is None:
            return default
        try:
            return parse(value)
        except ValueError as error:
            self.fault(_child(path, key), str(error))
            return default

    def reference(self, holder: Mapping[str, Any], key: str, path: str, types: _Types, section: str) -> str:
        """Returns the name of a type that exists."""
        name = self.text(holder, key, path)
        names = types.names(section)
        if name and names is not None and name not in names:
            shown = ", ".join(f"'{known}'" for known in names[:12]) or "nothing, as no type is defined"
            more = f" and {len(names) - 12} more" if len(names) > 12 else ""
            self.fault(_child(path, key), f"expected one of {shown}{more}, got '{name}'{nearest(name, names)}")
        return name


class _Object(dict[str, Any]):
    """A JSON object that remembers which of its keys were given more than once."""

    duplicates: tuple[str, ...] = ()


def _pairs(pairs: list[tuple[str, Any]]) -> _Object:
    result = _Object(pairs)
    if len(result) < len(pairs):
        keys = [key for key, _ in pairs]
        result.duplicates = tuple(key for key in result if keys.count(key) > 1)
    return result


def _child(path: str, key: str) -> str:
    if re.fullmatch(r"\w+", str(key)):
        return f"{path}.{key}" if path else str(key)
    return f"{path}[{str(key)!r}]"


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return "an object" if value else "an empty object"
    if isinstance(value, list | tuple):
        return "a list" if value else "an empty list"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and not math.isfinite(value):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if isinstance(value, int) and not _is_finite(value):
        return "a number of hundreds of digits"
    return "null" if value is None else repr(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _read_json(path: Path, errors: list[PlatformError]) -> tuple[Any, str] | None:
    """Returns the content of a JSON file and its sha256, or notes why it cannot be read."""

    def fault(message: str, where: str = str(path)) -> None:
        errors.append(PlatformError(message, where=where))

    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        fault("expected a platform file, got a path that does not exist")
        return None
    except IsADirectoryError:
        fault("expected a platform file, got a directory")
        return None
    except OSError as error:
        fault(f"expected a readable file, got: {error.strerror}")
        return None
    digest = hashlib.sha256(raw).hexdigest()
    try:
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8-sig")
        return json.loads(text, object_pairs_hook=_pairs), digest
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        fault(f"expected a gzip file, got: {error}")
    except UnicodeDecodeError as error:
        fault(f"expected text in UTF-8, got the byte 0x{error.object[error.start]:02x} at offset {error.start}")
    except json.JSONDecodeError as error:
        fault(f"expected JSON, got: {error.msg}", where=f"{path}:{error.lineno}:{error.colno}")
    except RecursionError:
        fault("expected a platform, got JSON nested too deeply")
    except ValueError as error:
        fault(f"expected JSON, got: {error}")
    return None


def _load(path: Path, types: Path | None) -> tuple[Platform | None, list[PlatformError]]:
    errors: list[PlatformError] = []
    content = _read_json(path, errors)
    if content is None:
        return None, errors
    document, digest = content

    def find_types(document: Mapping[str, Any], checker: _Checker) -> _Types:
        if types is None and "types" in document:
            return _inline_types(document, checker)
        return _library_types(path, types, checker)

    return _build(document, str(path), find_types, digest)


def _inline_types(document: Mapping[str, Any], checker: _Checker) -> _Types:
    types = _Types()
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
            checker.fault(prefix, f"expected an object {{...}} of types, got {_shown(content)}")
            content = None
        types.put(section, content, checker, prefix)
    return types


def _library_types(path: Path, folder: Path | None, checker: _Checker) -> _Types:
    types = _Types()
    folders = [folder] if folder is not None else [path.parent, path.parent / "types", path.parent.parent / "types"]
    for section in SECTIONS:
        names = (f"{section}_types.json", f"{section}_types.json.gz")
        file = next((place / name for place in folders for name in names if (place / name).is_file()), None)
        content, library = None, checker
        if file is not None:
            library = _Checker(str(file), checker.errors)
            read = _read_json(file, checker.errors)
            if read is not None:
                content, types.files[str(file)] = read
                library.tree(content, "")
                content = dict(library.object(content, "", extra=True))
        elif section in ("node", "processor"):
            places = ", ".join(str(place) for place in folders)
            checker.fault("", f"expected types inline (key 'types') or a file {names[0]} in {places}, got neither")
        else:
            # A platform without links or memory needs no such library; one that refers to it is told that it is empty.
            content = {}
        types.put(section, content, library, "")
    return types


@dataclass
class _ProcessorType:
    kind: str
    cores: int
    gflops: float
    power: float
    mem_bw: float


@dataclass
class _NodeType:
    processors: list[tuple[str, int]]
    memory: float


@dataclass
class _Link:
    bandwidth: float = _UNLIMITED
    latency: float = 0.0


def _processor_type(checker: _Checker, value: Any, path: str) -> _ProcessorType:
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
    return _ProcessorType(
        kind=_kind(checker.text(spec, "type", path, default="CPU")),
        cores=cores,
        gflops=gflops,
        power=checker.number(spec, "power", path, "W", zero=True) / cores,
        mem_bw=checker.number(spec, "mem_bw", path, "GB/s", default=_UNLIMITED),
    )


def _kind(text: str) -> str:
    return text.upper() if text.upper() in ("CPU", GPU) else text


def _node_type(checker: _Checker, value: Any, path: str, types: _Types) -> _NodeType:
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
        place = _child(path, "memory")
        entry = checker.object(spec["memory"], place, optional=("type", "capacity"))
        checker.reference(entry, "type", place, types, "memory")
        if isinstance(entry.get("capacity"), str):
            memory = checker.quantity(entry, "capacity", place, parse_size, _UNLIMITED)
            if memory == 0:
                checker.fault(_child(place, "capacity"), f"expected more than 0, got {entry['capacity']!r}")
        else:
            memory = checker.number(entry, "capacity", place, "GB", default=_UNLIMITED) * 1000
    return _NodeType(processors, memory)


def _network_type(checker: _Checker, value: Any, path: str) -> float:
    spec = checker.object(value, path, required=("bandwidth",))
    return checker.quantity(spec, "bandwidth", path, parse_bandwidth, _UNLIMITED)


def _memory_type(checker: _Checker, value: Any, path: str) -> None:
    spec = checker.object(value, path, optional=("latency",), extra=True)
    checker.quantity(spec, "latency", path, parse_latency, 0.0)


def _build(
    document: Any, source: str, find_types: Callable[[Mapping[str, Any], _Checker], _Types], digest: str | None = None
) -> tuple[Platform | None, list[PlatformError]]:
    """Checks a document and builds its platform, None when there are faults."""
    errors: list[PlatformError] = []
    checker = _Checker(source, errors)
    checker.tree(document, "")
    top = checker.object(document, "", required=("clusters",), optional=("global_links", "types", "name"))
    if not isinstance(document, Mapping):
        return None, errors
    name = checker.text(top, "name", "", default=_stem(source))
    types = find_types(top, checker)

    def each(section: str) -> Iterable[tuple[str, _Checker, Any, str]]:
        content, prefix = types.sections[section], types.prefixes[section]
        for type_name in types.names(section) or ():
            yield type_name, types.checkers[section], (content or {})[type_name], _child(prefix, type_name)

    processor_types = {key: _processor_type(at, value, path) for key, at, value, path in each("processor")}
    node_types = {key: _node_type(at, value, path, types) for key, at, value, path in each("node")}
    for key, at, _, path in each("node"):
        kinds = {processor_types[name].kind for name, _ in node_types[key].processors if name in processor_types}
        if kinds == {GPU}:
            at.fault(path, "expected a processor besides the GPUs: a job has a core wherever it has a GPU")
    bandwidths = {key: _network_type(at, value, path) for key, at, value, path in each("network")}
    for _, at, value, path in each("memory"):
        _memory_type(at, value, path)

    def link(holder: Mapping[str, Any], key: str, path: str) -> _Link:
        if holder.get(key) is None:
            return _Link()
        place = _child(path, key)
        entry = checker.object(holder[key], place, required=("type",), optional=("latency",))
        network = checker.reference(entry, "type", place, types, "network")
        latency = checker.quantity(entry, "latency", place, parse_latency, 0.0)
        return _Link(bandwidths.get(network, _UNLIMITED), latency)

    cluster_names: list[str] = []
    local_links: list[_Link] = []
    groups: list[tuple[int, str, int]] = []
    for path, item in checker.items(top, "clusters", ""):
        cluster = checker.object(item, path, required=("id", "nodes"), optional=("local_links",))
        cluster_name = checker.text(cluster, "id", path)
        if cluster_name and cluster_name in cluster_names:
            checker.fault(_child(path, "id"), f"expected a name of its own, got '{cluster_name}' a second time")
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
    n_cores = sum(number * cores_of_node[node_type] for _, node_type, number in groups)
    if n_cores > MAX_CORES:
        checker.fault("clusters", f"expected at most {MAX_CORES} cores, got {n_cores}")
        return None, errors

    node_names = list(dict.fromkeys(node_type for _, node_type, _ in groups))
    processor_names = list(dict.fromkeys(p for key in node_names for p, _ in node_types[key].processors))
    used = [processor_types[key] for key in processor_names]
    index = {key: i for i, key in enumerate(processor_names)}
    # (node type) -> types of its processors, in order
    patterns = {
        key: np.repeat(
            np.array([index[p] for p, _ in node_types[key].processors], np.int32),
            [number for _, number in node_types[key].processors],
        )
        for key in node_names
    }
    numbers = np.array([number for _, _, number in groups])
    processor_type = np.concatenate([np.tile(patterns[node_type], number) for _, node_type, number in groups])
    type_of_node = np.repeat(np.array([node_names.index(key) for _, key, _ in groups], np.int32), numbers)
    node_cluster = np.repeat(np.array([cluster for cluster, _, _ in groups], np.int32), numbers)
    n_processors, n_nodes = len(processor_type), len(type_of_node)
    processors_per_node = np.array([len(patterns[key]) for key in node_names])[type_of_node]
    cores = np.array([processor.cores for processor in used])[processor_type]
    processor_first_core = _offsets(cores)
    node_first_processor = _offsets(processors_per_node)

    return Platform(
        name=name,
        cluster_names=tuple(cluster_names),
        node_type_names=tuple(node_names),
        processor_type_names=tuple(processor_names),
        core_processor=np.repeat(np.arange(n_processors, dtype=np.int32), cores),
        processor_first_core=processor_first_core,
        processor_node=np.repeat(np.arange(n_nodes, dtype=np.int32), processors_per_node),
        node_first_processor=node_first_processor,
        node_first_core=processor_first_core[node_first_processor],
        node_cluster=node_cluster,
        cluster_first_node=_offsets(np.bincount(node_cluster, minlength=len(cluster_names))),
        processor_type=processor_type,
        node_type=type_of_node,
        processor_kind=tuple(processor.kind for processor in used),
        processor_type_specs=tuple(_plain(types.sections["processor"], key) for key in processor_names),
        gflops=np.array([processor.gflops for processor in used])[processor_type],
        power=np.array([processor.power for processor in used])[processor_type],
        mem_bw=np.array([processor.mem_bw for processor in used])[processor_type],
        memory=np.array([node_types[key].memory for key in node_names])[type_of_node],
        local_bandwidth=np.array([local.bandwidth for local in local_links]),
        local_latency=np.array([local.latency for local in local_links]),
        global_bandwidth=np.full(len(cluster_names), global_link.bandwidth),
        global_latency=np.full(len(cluster_names), global_link.latency),
        source=source,
        sha256=digest,
        type_files=types.files,
        _document=_complete(top, name, types, node_names, processor_names),
    ), errors


def _offsets(counts: NDArray[np.integer[Any]]) -> NDArray[np.int32]:
    """Returns (n+1,) where each of n consecutive groups of the given sizes begins, and the end of the last."""
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def _stem(source: str) -> str:
    return source.strip("<>") if source.startswith("<") else re.sub(r"\.json(\.gz)?$", "", Path(source).name)


def _plain(section: Mapping[str, Any] | None, key: str) -> dict[str, Any]:
    """Returns a type as plain dictionaries and lists, without comments."""
    plain: dict[str, Any] = _without_comments((section or {})[key])
    return plain


def _without_comments(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_comments(child) for key, child in value.items() if not key.startswith("_")}
    return [_without_comments(child) for child in value] if isinstance(value, list | tuple) else value


def _complete(
    top: Mapping[str, Any], name: str, types: _Types, node_names: list[str], processor_names: list[str]
) -> dict[str, Any]:
    """Returns a checked document with the types it uses, and no others, inline."""
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
