"""The platform model: clusters of nodes of processors of cores, as read-only arrays.

There is no object per core: the cores of a processor are a range of consecutive core ids.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hdsim.errors import PlatformError
from hdsim.platform.checker import is_count, is_number
from hdsim.platform.frequencies import FrequencyTable, OperatingPoint, shared_frequencies
from hdsim.platform.node_state import NodeState
from hdsim.platform.schema import (
    CORES,
    GPU,
    PODS,
    QUANTITIES,
    NodeGroup,
    NodeType,
    PlatformSpec,
    Taint,
    check_document,
    inline_types,
    name_nodes,
)
from hdsim.util.arrays import read_only
from hdsim.util.copies import itself
from hdsim.util.text import label_safe
from hdsim.util.units import in_bytes

#: Labels that every node has.
HOSTNAME, INSTANCE_TYPE = "kubernetes.io/hostname", "node.kubernetes.io/instance-type"


@dataclass(frozen=True, eq=False)
class Platform:
    """A platform of C cores, P processors, N nodes and K clusters.

    Ids start at 0 and follow the order of the file: clusters, nodes, processors, cores. The cores of a processor of
    kind ``"GPU"`` are devices for jobs that request GPUs; they have core ids and entries in all arrays of cores. All
    arrays are read-only. :func:`hdsim.platform.load.load_platform` and :meth:`homogeneous` create platforms.

    Attributes:
        name: Display name.
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
        processor_type_specs: Each processor type as in the file, with further keys.
        operating_points: Frequencies of each processor type, ascending, empty for none.
        gflops: (P,) GFLOP/s of each core of a processor.
        power: (P,) W of each computing core of a processor.
        mem_bw: (P,) memory bandwidth of a processor in GB/s, inf = unlimited.
        memory: (N,) memory of a node in MB, inf = unlimited.
        node_cpu: (N,) CPU of a node in cores, by default its cores without GPUs; a multiple of 1/1000.
        node_pods: (N,) maximum number of pods of a node, inf = unlimited.
        node_storage: (N,) ephemeral storage of a node in bytes, inf = unlimited.
        state_watts: (5, N) W of a node by :class:`hdsim.platform.node_state.NodeState`, beside those of its processors
            when it is up; NaN for the states of a node that is never switched off.
        state_seconds: (5, N) s that going down and booting take.
        local_bandwidth: (K,) bandwidth of the link of each node of a cluster in byte/s, inf = unlimited.
        local_latency: (K,) latency of that link in seconds.
        global_bandwidth: (K,) bandwidth of the link of a cluster to the others in byte/s, inf = unlimited.
        global_latency: (K,) latency of that link in seconds.
        kind: ``"cores"``: jobs hold cores with ids; ``"quantities"``: jobs hold quantities of CPU, memory, pods, GPUs
            and ephemeral storage of nodes, as in Kubernetes.
        source: Path of the platform file, or a word in angle brackets.
        sha256: Digest of the platform file, None without a file.
        type_files: sha256 of each type library, by path.
    """

    __deepcopy__ = itself

    name: str
    cluster_names: tuple[str, ...]
    node_type_names: tuple[str, ...]
    processor_type_names: tuple[str, ...]
    core_processor: NDArray[np.int32]
    processor_first_core: NDArray[np.int32]
    processor_node: NDArray[np.int32]
    node_first_processor: NDArray[np.int32]
    node_first_core: NDArray[np.int32]
    node_cluster: NDArray[np.int32]
    cluster_first_node: NDArray[np.int32]
    processor_type: NDArray[np.int32]
    node_type: NDArray[np.int32]
    processor_kind: tuple[str, ...]
    processor_type_specs: tuple[dict[str, Any], ...]
    operating_points: tuple[tuple[OperatingPoint, ...], ...]
    gflops: NDArray[np.float64]
    power: NDArray[np.float64]
    mem_bw: NDArray[np.float64]
    memory: NDArray[np.float64]
    node_cpu: NDArray[np.float64]
    node_pods: NDArray[np.float64]
    node_storage: NDArray[np.float64]
    state_watts: NDArray[np.float64]
    state_seconds: NDArray[np.float64]
    local_bandwidth: NDArray[np.float64]
    local_latency: NDArray[np.float64]
    global_bandwidth: NDArray[np.float64]
    global_latency: NDArray[np.float64]
    kind: str
    source: str
    sha256: str | None = None
    type_files: Mapping[str, str] = field(default_factory=dict)
    _document: dict[str, Any] = field(default_factory=dict)
    _groups: tuple[NodeGroup, ...] = ()

    def __post_init__(self) -> None:
        self._freeze()

    def __repr__(self) -> str:
        gpus = f" and {self.n_gpus:,} GPUs" if self.n_gpus else ""
        types = ", ".join([*self.node_type_names[:4], *(["..."] if len(self.node_type_names) > 4 else [])])
        nodes, clusters = (
            f"{n:,} {name}{'s' * (n != 1)}" for n, name in ((self.n_nodes, "node"), (self.n_clusters, "cluster"))
        )
        return f"<Platform {self.name}: {self.n_cpu_cores:,} cores{gpus}, {nodes} ({types}), {clusters}>"

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Pickling loses the read-only flag of NumPy.
        self.__dict__.update(state)
        self._freeze()

    def _freeze(self) -> None:
        for value in self.__dict__.values():
            if isinstance(value, np.ndarray):
                read_only(value)

    @cached_property
    def n_cores(self) -> int:
        """C, the number of core ids, including GPUs."""
        return len(self.core_processor)

    @cached_property
    def n_gpus(self) -> int:
        """Number of GPUs."""
        return len(self.gpus)

    @cached_property
    def n_cpu_cores(self) -> int:
        """Number of cores without GPUs; of the kind ``"quantities"`` the CPU of all nodes, which may be fractional."""
        if self.kind == CORES:
            return self.n_cores - self.n_gpus
        total: Any = round(float(self.node_cpu.sum()), 3)
        return int(total) if total.is_integer() else total

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
        return read_only(np.diff(self.processor_first_core))

    @cached_property
    def is_gpu(self) -> NDArray[np.bool_]:
        """(P,) True for a processor whose cores are GPUs."""
        return read_only(np.array([kind == GPU for kind in self.processor_kind])[self.processor_type])

    @cached_property
    def gpus(self) -> NDArray[np.int64]:
        """(D,) core ids of the GPUs, ascending."""
        return read_only(np.flatnonzero(self.is_gpu[self.core_processor]))

    @cached_property
    def node_gpus(self) -> NDArray[np.int64]:
        """(N,) GPUs of each node."""
        return read_only(np.bincount(self.processor_node[self.core_processor[self.gpus]], minlength=self.n_nodes))

    @cached_property
    def node_cpu_cores(self) -> NDArray[Any]:
        """(N,) cores of each node without GPUs; of the kind ``"quantities"`` its CPU in cores."""
        if self.kind == QUANTITIES:
            return self.node_cpu
        return read_only(np.diff(self.node_first_core).astype(np.int64) - self.node_gpus)

    @cached_property
    def can_sleep(self) -> NDArray[np.bool_]:
        """(N,) whether a node can be switched off."""
        return read_only(~np.isnan(self.state_watts[NodeState.OFF]))

    @cached_property
    def has_state_watts(self) -> bool:
        """Whether a node draws anything beside its processors in any power state."""
        return bool(np.nansum(self.state_watts) > 0)

    @cached_property
    def frequencies(self) -> FrequencyTable | None:
        """The frequencies that all processor types but GPUs share; None if some have none, or others."""
        if not any(self.operating_points):
            return None
        clocks = [float(spec["clock_rate"]) for spec in self.processor_type_specs]
        cpus = np.unique(self.processor_type[~self.is_gpu]).tolist()
        return shared_frequencies(clocks, self.operating_points, cpus)

    @cached_property
    def node_names(self) -> tuple[str, ...]:
        """(N,) names of the nodes, DNS-1123: those of the file, otherwise ``CLUSTER-NUMBER``."""
        return tuple(name_nodes(self.cluster_names, self._groups))

    @cached_property
    def node_labels(self) -> tuple[Mapping[str, str], ...]:
        """(N,) labels of each node: its name and its type under the keys of Kubernetes, and those of the file."""
        names = iter(self.node_names)
        return tuple(
            {HOSTNAME: next(names), INSTANCE_TYPE: label_safe(group.node_type), **group.labels}
            for group in self._groups
            for _ in range(group.number)
        )

    @cached_property
    def node_taints(self) -> tuple[tuple[Taint, ...], ...]:
        """(N,) taints of each node."""
        return tuple(group.taints for group in self._groups for _ in range(group.number))

    def of_kind(self, kind: str) -> Platform:
        """Returns the platform as one of another kind, see `kind`; PlatformError without such a kind."""
        if kind == self.kind:
            return self
        other = self.from_dict({**self._document, "kind": kind}, self.source)
        return replace(other, sha256=self.sha256, type_files=self.type_files)

    @cached_property
    def node_kinds(self) -> list[tuple[tuple[float, float, float, float], int]]:
        """Distinct (cores, GPUs, bytes of memory, maximum number of pods) of nodes, and the number of nodes of each."""
        pods = self.node_pods if self.kind == QUANTITIES else np.full(self.n_nodes, np.inf)
        nodes = np.stack([self.node_cpu_cores, self.node_gpus, in_bytes(self.memory), pods])
        kinds, counts = np.unique(nodes, axis=1, return_counts=True)
        return [(tuple(kind), count) for kind, count in zip(kinds.T.tolist(), counts.tolist(), strict=True)]

    @cached_property
    def homogeneous_speed(self) -> bool:
        """Whether all cores have the same speed, without GPUs."""
        speeds = self.gflops[~self.is_gpu]
        return bool((speeds == speeds[0]).all())

    @cached_property
    def reference_gflops(self) -> float:
        """Reference speed: mean GFLOP/s per core without GPUs, to which the run times of a trace refer."""
        cpus = ~self.is_gpu
        if self.homogeneous_speed:
            # Exactly the speed of the cores, so that a job takes exactly its run time.
            return float(self.gflops[cpus][0])
        return float(np.dot(self.gflops[cpus], self.cores_per_processor[cpus]) / (self.n_cores - self.n_gpus))

    def core_gflops(self) -> NDArray[np.float64]:
        """(C,) GFLOP/s of each core."""
        return self.gflops[self.core_processor]

    def to_dict(self) -> dict[str, Any]:
        """Returns the platform as a complete JSON document, from which :meth:`from_dict` builds equal arrays."""
        return copy.deepcopy(self._document)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], where: str = "<dict>") -> Platform:
        """Builds a platform from a parsed JSON document with inline types; `where` is its origin.

        Raises:
            PlatformError: The document has faults; all of them are listed.
        """
        spec, errors = check_document(document, where, inline_types)
        if spec is None:
            raise PlatformError.many(errors)
        return cls.from_spec(spec, where)

    @classmethod
    def from_spec(cls, spec: PlatformSpec, source: str, sha256: str | None = None) -> Platform:
        """Builds the arrays of a checked document; `source` and `sha256` are attributes."""
        processor_names, node_names, node_types = list(spec.processor_types), list(spec.node_types), spec.node_types
        used = list(spec.processor_types.values())
        index = {key: i for i, key in enumerate(processor_names)}
        groups, local_links, global_link = spec.groups, spec.local_links, spec.global_link
        n_clusters = len(spec.cluster_names)
        # Node type -> types of its processors in order.
        patterns = {
            key: np.repeat(
                np.array([index[p] for p, _ in node_types[key].processors], np.int32),
                [number for _, number in node_types[key].processors],
            )
            for key in node_names
        }
        numbers = np.array([group.number for group in groups])
        processor_type = np.concatenate([np.tile(patterns[group.node_type], group.number) for group in groups])
        type_of_node = np.repeat(np.array([node_names.index(group.node_type) for group in groups], np.int32), numbers)
        node_cluster = np.repeat(np.array([group.cluster for group in groups], np.int32), numbers)
        n_processors, n_nodes = len(processor_type), len(type_of_node)
        processors_per_node = np.array([len(patterns[key]) for key in node_names])[type_of_node]
        cores = np.array([processor.cores for processor in used])[processor_type]
        processor_first_core = _offsets(cores)
        node_first_processor = _offsets(processors_per_node)
        processors = spec.processor_types
        cores_of = {key: 0 if processor.kind == GPU else processor.cores for key, processor in processors.items()}
        cpu_cores = {
            key: sum(number * cores_of[processor] for processor, number in node.processors)
            for key, node in node_types.items()
        }
        most_pods = PODS if spec.kind == QUANTITIES else np.inf

        def of_nodes(values: Iterable[float]) -> NDArray[np.float64]:
            return np.array(list(values), np.float64)[type_of_node]

        return cls(
            name=spec.name,
            cluster_names=tuple(spec.cluster_names),
            node_type_names=tuple(node_names),
            processor_type_names=tuple(processor_names),
            core_processor=np.repeat(np.arange(n_processors, dtype=np.int32), cores),
            processor_first_core=processor_first_core,
            processor_node=np.repeat(np.arange(n_nodes, dtype=np.int32), processors_per_node),
            node_first_processor=node_first_processor,
            node_first_core=processor_first_core[node_first_processor],
            node_cluster=node_cluster,
            cluster_first_node=_offsets(np.bincount(node_cluster, minlength=n_clusters)),
            processor_type=processor_type,
            node_type=type_of_node,
            processor_kind=tuple(processor.kind for processor in used),
            processor_type_specs=tuple(
                copy.deepcopy(spec.document["types"]["processor"][key]) for key in processor_names
            ),
            operating_points=tuple(processor.points for processor in used),
            gflops=np.array([processor.gflops for processor in used])[processor_type],
            power=np.array([processor.power for processor in used])[processor_type],
            mem_bw=np.array([processor.mem_bw for processor in used])[processor_type],
            memory=of_nodes(node.memory for node in node_types.values()),
            node_cpu=of_nodes(cpu_cores[key] if node.cpu is None else node.cpu for key, node in node_types.items()),
            node_pods=of_nodes(most_pods if node.pods is None else node.pods for node in node_types.values()),
            node_storage=in_bytes(of_nodes(node.storage for node in node_types.values())),
            state_watts=_by_state(node_types, type_of_node, 0),
            state_seconds=_by_state(node_types, type_of_node, 1),
            local_bandwidth=np.array([local.bandwidth for local in local_links]),
            local_latency=np.array([local.latency for local in local_links]),
            global_bandwidth=np.full(n_clusters, global_link.bandwidth),
            global_latency=np.full(n_clusters, global_link.latency),
            kind=spec.kind,
            source=source,
            sha256=sha256,
            type_files=spec.type_files,
            _document=spec.document,
            _groups=tuple(groups),
        )

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
        states: Mapping[str, Mapping[str, float]] | None = None,
        frequencies: Sequence[Mapping[str, float]] | None = None,
        name: str = "homogeneous",
    ) -> Platform:
        """Builds a cluster of equal nodes.

        Args:
            nodes: Number of nodes.
            cores_per_node: Cores of each node, a multiple of `processors_per_node`.
            gflops_per_core: GFLOP/s of each core.
            processors_per_node: Processors of each node.
            memory_gb_per_node: Memory of each node in GB, None = unlimited.
            mem_bw: Memory bandwidth of each processor in GB/s, None = unlimited.
            power_per_core: W of each computing core.
            bandwidth: Bandwidth of the links of nodes and cluster, such as ``"10Gbps"``; None = unlimited.
            latency: Latency of these links, such as ``"5us"``; ignored without a bandwidth.
            states: Power states of each node, as the key ``states`` of a node type.
            frequencies: Operating points, as the key ``frequencies`` of a processor type; the nominal frequency in GHz
                is `gflops_per_core`.
            name: Name of the platform, of its cluster and of its types.

        Raises:
            PlatformError: An argument is out of range.
        """
        where = "<homogeneous>"
        for argument, value in (("cores_per_node", cores_per_node), ("processors_per_node", processors_per_node)):
            if not is_count(value):
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
        processor["power"] = power_per_core * cores if is_number(power_per_core) else power_per_core
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
        if states is not None:
            document["types"]["node"][name]["states"] = states
        if frequencies is not None:
            document["types"]["processor"][name]["frequencies"] = frequencies
        if bandwidth is not None:
            document["types"]["network"] = {name: {"bandwidth": bandwidth}}
            document["clusters"][0]["local_links"] = {"type": name, "latency": latency}
            document["global_links"] = {"type": name, "latency": latency}
        return cls.from_dict(document, where)


def _by_state(types: Mapping[str, NodeType], type_of_node: NDArray[np.int32], column: int) -> NDArray[np.float64]:
    """Returns (5, N) watts (column 0) or seconds (column 1) of nodes by power state."""
    return np.array([[state[column] for state in node.states] for node in types.values()]).T[:, type_of_node]


def _offsets(counts: NDArray[np.integer[Any]]) -> NDArray[np.int32]:
    """Returns (n+1,) starts of n consecutive groups of the given sizes, and the end of the last."""
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return offsets
