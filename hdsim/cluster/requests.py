"""Requests of jobs and free resources of nodes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hdsim.cluster.job_state import ReadOnlyList
from hdsim.cluster.kernels import chunks
from hdsim.cluster.kernels.chunks import Chunk
from hdsim.errors import ConfigError, DecisionError
from hdsim.util.arrays import Flags, Floats, Ints
from hdsim.util.copies import own, with_own_containers
from hdsim.util.units import in_bytes
from hdsim.workload.constraints import Constraints

if TYPE_CHECKING:
    from hdsim.platform.model import Platform
    from hdsim.platform.schema import Taint
    from hdsim.workload.model import Workload

#: Most taints that a message lists.
_LISTED = 5


class Amounts(NamedTuple):
    """Amounts of the resources of a node, such as what a pod requests or a node has."""

    cpu: float = 0.0  # cores, a multiple of 1/1000
    memory: float = 0.0  # bytes
    pods: float = 0
    gpus: float = 0
    storage: float = 0.0  # bytes of ephemeral storage


class Requests(NamedTuple):
    """Requested resources of each job; an element of a list is read four times as fast as one of an array."""

    size: list[int]  # cores
    memory: ReadOnlyList[float]  # byte per core (see `in_bytes`), 0 if memory is not tracked
    bandwidth: ReadOnlyList[float]  # GB/s per core
    gpus: ReadOnlyList[int] | None = None  # GPUs, None if no job requests any
    memory_matters: bool = False  # jobs may request memory, and nodes have a limited amount
    open_ended: bool = False  # jobs may be added
    cpu: ReadOnlyList[float] | None = None  # cores that each requested core takes, None where cores have ids
    storage: ReadOnlyList[float] | None = None  # byte per core, None if ephemeral storage is not tracked
    places: AllowedNodes | None = None  # None where cores have ids
    kinds: tuple[dict[Chunk, int], dict[int, int]] | None = None  # number of each distinct chunk, and of each job's

    @classmethod
    def of(cls, jobs: Workload, platform: Platform, *, open_ended: bool = False, has_core_ids: bool = True) -> Requests:
        """Returns the requests of the jobs of a workload for resources that are limited on a platform."""
        # Nodes of an API server may get limits, and GPUs, in mid-run.
        changing = open_ended and not has_core_ids
        limited = changing or bool(np.isfinite(platform.memory).any())
        memory_matters = limited and (open_ended or bool(np.any(jobs.memory > 0)))
        asks_for_gpus = jobs.asks_for_gpus or changing or (open_ended and platform.n_gpus > 0)
        stores = not has_core_ids and (changing or bool(np.isfinite(platform.node_storage).any()))
        requests = cls(
            [],
            ReadOnlyList(),
            ReadOnlyList(),
            ReadOnlyList() if asks_for_gpus else None,
            memory_matters,
            open_ended,
            None if has_core_ids else ReadOnlyList(),
            ReadOnlyList() if stores and (open_ended or bool(np.any(jobs.storage > 0))) else None,
            None if has_core_ids else AllowedNodes(platform),
            ({}, {}),
        )
        requests.add(jobs)
        return requests

    def __deepcopy__(self, memo: dict[int, Any]) -> Requests:
        """Returns a copy, or the requests themselves if no jobs can be added."""
        if self.open_ended:
            return Requests(*[own(each, memo) for each in self])
        memo.update({id(each): each for each in self if isinstance(each, list)})
        return self

    def grow(self, memo: dict[int, Any], platform: Platform, jobs: Workload) -> None:
        """Has a copy made to which jobs can be added; see :func:`copy.deepcopy` for `memo`.

        Raises:
            ConfigError: The jobs request a resource that no job requests so far.
        """
        if self.open_ended:
            return
        has_core_ids = self.cpu is None
        asked = Requests.of(jobs, platform, has_core_ids=has_core_ids)
        for name, new in (
            ("memory", asked.memory_matters and not self.memory_matters),
            ("memory bandwidth", any(asked.bandwidth) and not any(self.bandwidth)),
            ("GPUs", asked.gpus is not None and self.gpus is None),
            ("ephemeral storage", asked.storage is not None and self.storage is None),
        ):
            if new:
                raise ConfigError(f"expected jobs without {name}, which no job has requested so far", where="arrivals")
        parts = [own(each, memo) for each in self]
        memo[id(self)] = Requests(*parts)._replace(open_ended=True)

    def add(self, jobs: Workload) -> None:
        """Appends jobs."""
        self.size.extend(jobs.requested_cores.tolist())
        self.memory.grow(in_bytes(jobs.memory).tolist() if self.memory_matters else [0.0] * len(jobs))
        self.bandwidth.grow(jobs.memory_bandwidth.tolist())
        if self.gpus is not None:
            self.gpus.grow(jobs.requested_gpus.tolist())
        if self.cpu is not None:
            self.cpu.grow((millicores(jobs) / 1000).tolist())
        if self.storage is not None:
            self.storage.grow(in_bytes(jobs.storage).tolist())
        if self.places is not None:
            self.places.add(jobs.constraints.tolist())

    def chunk(self, job: int) -> Chunk:
        """Returns the chunks of a job: as many equal parts as the numbers of cores and GPUs permit."""
        size, gpus = self.size[job], self.gpus[job] if self.gpus else 0
        number = math.gcd(size, gpus)
        if self.cpu is None or self.places is None:
            return Chunk(number, size // number, gpus // number, self.memory[job])
        storage, place = self.storage[job] if self.storage else 0.0, self.places.of_job[job]
        return Chunk(number, size // number, gpus // number, self.memory[job], self.cpu[job], storage, place)

    def allowed(self, job: int) -> Flags | None:
        """(N,) nodes that the constraints of a job allow, None for all nodes."""
        return None if self.places is None else self.places.masks[self.places.of_job[job]]

    def kind(self, job: int) -> int:
        """Returns a number that is equal for jobs of equal chunks and constraints, which fit at the same times."""
        assert self.kinds is not None
        of_chunk, of_job = self.kinds
        kind = of_job.get(job)
        if kind is None:
            kind = of_job[job] = of_chunk.setdefault(self.chunk(job), len(of_chunk))
        return kind

    def codes(self) -> Ints:
        """Returns (J,) numbers that are equal for jobs of equal requests and constraints, in any order."""
        code = np.zeros(len(self.size), np.int64)
        constraints = None if self.places is None else self.places.of_job
        for column in (self.size, self.memory, self.gpus, self.cpu, self.storage, constraints):
            if column is not None and any(value != column[0] for value in column):
                values, of_job = np.unique(np.array(column), return_inverse=True)
                code = np.unique(code * len(values) + of_job, return_inverse=True)[1]
        return code

    def check_gpus(self, job: int, ids: Ints, platform: Platform) -> None:
        """Checks that (n,) ids of cores and GPUs have as many GPUs to the cores on each node as a job asked for.

        Raises:
            DecisionError: It has not.
        """
        if not platform.n_gpus:
            return
        size, gpus = self.size[job], self.gpus[job] if self.gpus else 0
        processor = platform.core_processor[ids]
        node, is_gpu = platform.processor_node[processor], platform.is_gpu[processor]
        devices = np.bincount(node[is_gpu], minlength=platform.n_nodes)
        cores = np.bincount(node[~is_gpu], minlength=platform.n_nodes)
        uneven = np.flatnonzero(devices * size != cores * gpus)
        if len(uneven):
            raise DecisionError(
                f"expected {gpus} GPUs to {size} cores on each of its nodes, "
                f"got {devices[uneven[0]]} to {cores[uneven[0]]} on node {uneven[0]}"
            )


class AllowedNodes:
    """The nodes that the constraints of jobs allow.

    Attributes:
        masks: (N,) nodes that each distinct constraints allow, None for all nodes.
        of_job: Index in `masks` of the constraints of each job.
    """

    __deepcopy__ = with_own_containers

    def __init__(self, platform: Platform) -> None:
        self._nodes = list(zip(platform.node_names, platform.node_labels, platform.node_taints, strict=True))
        self._index: dict[Constraints, int] = {}
        self._known: list[Constraints] = []
        self.masks: list[Flags | None] = []
        self.of_job: list[int] = []
        self._place(Constraints())

    def add(self, constraints: Iterable[Constraints | None]) -> None:
        """Appends jobs."""
        self.of_job += [0 if each is None else self._place(each) for each in constraints]

    def change(self, node: int, name: str, labels: Mapping[str, str], taints: Iterable[Taint]) -> None:
        """Changes the name, the labels and the taints of a node."""
        self._nodes[node] = name, labels, tuple(taints)
        for place, constraints in enumerate(self._known):
            mask = self.masks[place]
            allows = constraints.allows(*self._nodes[node])
            if mask is not None:
                mask[node] = allows
            elif not allows:
                self.masks[place] = self._mask(constraints)

    def exclusions(self, place: int, among: Flags) -> list[tuple[int, str]]:
        """Returns why constraints exclude nodes: the number of nodes of each reason, taints first.

        A node counts once, as for kube-scheduler: for its first taint that is not tolerated, otherwise for its labels.

        Args:
            place: Index in `masks` of the constraints.
            among: (N,) nodes to look at.
        """
        mask = self.masks[place]
        excluded = [] if mask is None else np.flatnonzero(among & ~mask).tolist()
        taints = Counter(self._known[place].untolerated(self._nodes[node][2]) for node in excluded)
        by_labels = taints.pop(None, 0)
        listed = taints.most_common()
        reasons = [(count, f"excluded by the taint {taint}") for taint, count in listed[:_LISTED]]
        reasons.append((sum(count for _, count in listed[_LISTED:]), "excluded by other taints"))
        return [*reasons, (by_labels, "excluded by node selector or affinity")]

    def _place(self, constraints: Constraints) -> int:
        place = self._index.get(constraints)
        if place is None:
            place = self._index[constraints] = len(self.masks)
            self._known.append(constraints)
            self.masks.append(self._mask(constraints))
        return place

    def _mask(self, constraints: Constraints) -> Flags | None:
        mask = np.array([constraints.allows(*node) for node in self._nodes], np.bool_)
        return None if mask.all() else mask


class FreeNodes:
    """Free resources of each node.

    Amounts may be negative where a node is overcommitted by pods of others; nothing fits there.

    Attributes:
        masks: See :class:`AllowedNodes`.
        up: (N,) nodes in service, None for all of them.
    """

    def __init__(
        self,
        idle: Ints | Floats,
        memory: Floats,
        gpus: Ints | Floats | None = None,
        pods: Floats | None = None,
        storage: Floats | None = None,
        masks: Sequence[Flags | None] = (),
        up: Flags | None = None,
    ) -> None:
        more = (gpus, pods, storage) if gpus is not None or masks else ()
        self._tracked = [each is not None for each in more]
        blank = np.zeros(len(idle)), np.full(len(idle), math.inf), np.zeros(len(idle))
        rows = [default if each is None else each for each, default in zip(more, blank, strict=False)]
        self._amounts = np.array([idle, memory, *rows], np.float64)
        self.masks = masks
        self.up = up

    @property
    def idle(self) -> Floats:
        """(N,) idle cores; where cores have no ids, a multiple of 1/1000."""
        return self._amounts[0]

    @property
    def memory(self) -> Floats:
        """(N,) free bytes."""
        return self._amounts[1]

    @property
    def gpus(self) -> Floats | None:
        """(N,) idle GPUs, None if no job requests any."""
        return self._row(0)

    @property
    def pods(self) -> Floats | None:
        """(N,) further pods, None without limits."""
        return self._row(1)

    @property
    def storage(self) -> Floats | None:
        """(N,) free bytes of ephemeral storage, None if it is not tracked."""
        return self._row(2)

    def _row(self, row: int) -> Floats | None:
        return self._amounts[2 + row] if self._tracked and self._tracked[row] else None

    def copy(self) -> FreeNodes:
        """Returns a copy with its own amounts."""
        return FreeNodes(self.idle, self.memory, self.gpus, self.pods, self.storage, self.masks, self.up)

    def arrays(self) -> tuple[Floats, Flags]:
        """Returns the (R, N) amounts and the (M, N) allowed nodes of :mod:`hdsim.cluster.kernels.chunks`."""
        return self._amounts.copy(), np.array([self._allowed(mask) for mask in self.masks or [None]])

    def _allowed(self, mask: Flags | None) -> Flags:
        up = np.True_ if self.up is None else self.up
        return np.full(len(self.idle), up) if mask is None else mask & up

    def capacity(self, chunk: Chunk) -> Ints:
        """Returns the number of chunks of a job that fit on each node."""
        room, mask = np.empty(len(self.idle)), self.masks[chunk.place] if self.masks else None
        chunks.capacity(self._amounts, self._allowed(mask)[None], chunk._replace(place=0), 0, len(room), room)
        return room.astype(np.int64)

    def add(self, nodes: Ints, cores: Ints, chunk: Chunk) -> None:
        """Releases the resources of a job on nodes; a negative number of `cores` allocates them."""
        chunks.add_on_nodes(self._amounts, chunk, nodes, cores)

    def resources(self, chunk: Chunk) -> dict[str, tuple[float, Floats | None]]:
        """Returns, for stores without core ids, what a chunk takes of each resource and what is free of it (N,)."""
        return {
            "cpu": (chunk.cores * chunk.cpu, self.idle),
            "memory": (chunk.cores * chunk.memory, self.memory),
            "pods": (1, self.pods),
            "GPUs": (chunk.gpus, self.gpus),
            "ephemeral storage": (chunk.cores * chunk.storage, self.storage),
        }

    def short(self, nodes: Ints, chunk: Chunk) -> bool:
        """Returns whether any of the nodes lacks a resource that a chunk takes; for stores without core ids."""
        resources = self.resources(chunk).values()
        return any(takes and free is not None and bool((free[nodes] < 0).any()) for takes, free in resources)

    def put(self, node: int, amounts: Amounts) -> None:
        """Gives a node amounts in place of those that it has."""
        self._amounts[:, node] = 0.0
        self.change(node, amounts, 1)

    def change(self, node: int, amounts: Amounts, sign: int) -> None:
        """Adds amounts to a node, or subtracts them with a negative `sign`."""
        self.idle[node] = round(float(self.idle[node]) + sign * amounts.cpu, 3)
        self.memory[node] += sign * amounts.memory
        if self.gpus is not None:
            self.gpus[node] += sign * amounts.gpus
        if self.pods is not None:
            self.pods[node] += sign * amounts.pods
        if self.storage is not None:
            self.storage[node] += sign * amounts.storage


def millicores(jobs: Workload) -> Floats:
    """(J,) thousandths of a core that each requested core of a job takes, rounded up as Kubernetes does."""
    return np.ceil(np.round(jobs.cpu * 1000, 6))
