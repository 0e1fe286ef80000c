"""Requests of jobs and free resources of nodes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hdsim.errors import DecisionError
from hdsim.util.arrays import Floats, Ints
from hdsim.util.units import in_bytes

if TYPE_CHECKING:
    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload

#: More cores than a node has.
_UNLIMITED = 1 << 31


class Requests(NamedTuple):
    """Requested resources of each job; an element of a list is read four times as fast as one of an array."""

    size: list[int]  # cores
    memory: list[float]  # byte per core (see `in_bytes`), 0 if memory is not tracked
    bandwidth: list[float]  # GB/s per core
    gpus: list[int] | None = None  # GPUs, None if no job requests any
    memory_matters: bool = False  # jobs may request memory, and nodes have a limited amount
    open_ended: bool = False  # jobs may be added
    cpu: list[float] | None = None  # cores that each requested core takes, None where cores have ids

    @classmethod
    def of(cls, jobs: Workload, platform: Platform, *, open_ended: bool = False, has_core_ids: bool = True) -> Requests:
        """Returns the requests of the jobs of a workload for resources that are limited on a platform."""
        limited = bool(np.isfinite(platform.memory).any())
        memory_matters = limited and (open_ended or bool(np.any(jobs.memory > 0)))
        memory = in_bytes(jobs.memory).tolist() if memory_matters else [0.0] * len(jobs)
        asks_for_gpus = jobs.asks_for_gpus or (open_ended and platform.n_gpus > 0)
        gpus = jobs.requested_gpus.tolist() if asks_for_gpus else None
        cpu = None if has_core_ids else (millicores(jobs) / 1000).tolist()
        bandwidth = jobs.memory_bandwidth.tolist()
        return cls(jobs.requested_cores.tolist(), memory, bandwidth, gpus, memory_matters, open_ended, cpu)

    def add(self, jobs: Workload) -> None:
        """Appends jobs."""
        self.size.extend(jobs.requested_cores.tolist())
        self.memory.extend(in_bytes(jobs.memory).tolist() if self.memory_matters else [0.0] * len(jobs))
        self.bandwidth.extend(jobs.memory_bandwidth.tolist())
        if self.gpus is not None:
            self.gpus.extend(jobs.requested_gpus.tolist())
        if self.cpu is not None:
            self.cpu.extend((millicores(jobs) / 1000).tolist())

    def chunk(self, job: int) -> Chunk:
        """Returns the chunks of a job: as many equal parts as the numbers of cores and GPUs permit."""
        size, gpus = self.size[job], self.gpus[job] if self.gpus else 0
        number = math.gcd(size, gpus)
        cpu = None if self.cpu is None else self.cpu[job]
        return Chunk(number, size // number, gpus // number, self.memory[job], cpu)

    def check_gpus(self, job: int, ids: Ints, platform: Platform) -> None:
        """Checks that a job has as many GPUs to its cores on each of its nodes as it asked for.

        Args:
            job: The job.
            ids: (n,) core ids, those of GPUs included.
            platform: The platform.

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


class Chunk(NamedTuple):
    """The equal parts of a job, each of which must be on one node; without GPUs each core is a chunk."""

    number: int
    cores: int
    gpus: int
    memory: float  # byte per core
    cpu: float | None = None  # cores of a node that each of `cores` takes, None where cores have ids


class FreeNodes:
    """Free resources of each node.

    Attributes:
        idle: (N,) idle cores; where cores have no ids, a multiple of 1/1000.
        memory: (N,) free bytes.
        gpus: (N,) idle GPUs, None if no job requests any.
    """

    __slots__ = ("gpus", "idle", "memory")

    def __init__(self, idle: Ints | Floats, memory: Floats, gpus: Ints | None = None) -> None:
        self.idle = idle
        self.memory = memory
        self.gpus = gpus

    def copy(self) -> FreeNodes:
        """Returns a copy with its own arrays."""
        return FreeNodes(self.idle.copy(), self.memory.copy(), None if self.gpus is None else self.gpus.copy())

    def capacity(self, chunk: Chunk, nodes: Ints | None = None) -> Ints | Floats:
        """Returns the number of chunks of a job that fit on each node, by default on all nodes."""
        idle, memory, gpus = self.idle, self.memory, self.gpus
        if nodes is not None:
            idle, memory, gpus = idle[nodes], memory[nodes], None if gpus is None else gpus[nodes]
        if chunk.cpu is not None:
            # Both are thousandths: a quotient this close to an integer is one.
            idle = np.floor(idle / chunk.cpu + 1e-9) if chunk.cpu else np.full(len(idle), _UNLIMITED)
        cores = cores_by_memory(idle, memory, chunk.memory)
        if not chunk.gpus:
            return cores
        assert gpus is not None
        return np.minimum(cores // chunk.cores, gpus // chunk.gpus)

    def add(self, nodes: Ints, cores: Ints, chunk: Chunk) -> None:
        """Releases the resources of a job on nodes; a negative number of `cores` allocates them."""
        if chunk.cpu is None:
            self.idle[nodes] += cores
        else:
            # Thousandths stay thousandths, so that sums do not depend on their order.
            self.idle[nodes] = np.round(self.idle[nodes] + cores * chunk.cpu, 3)
        self.memory[nodes] += cores * chunk.memory
        if chunk.gpus:
            assert self.gpus is not None
            self.gpus[nodes] += cores // chunk.cores * chunk.gpus


def millicores(jobs: Workload) -> Floats:
    """(J,) thousandths of a core that each requested core of a job takes, rounded up as Kubernetes does."""
    return np.ceil(np.round(jobs.cpu * 1000, 6))


def cores_by_memory(idle: Ints | Floats, free_memory: Floats, memory: float) -> Ints | Floats:
    """Returns the cores of nodes that a job of `memory` bytes per core can use.

    Args:
        idle: (N,) idle cores.
        free_memory: (N,) free bytes.
        memory: Bytes per core of the job.
    """
    if not memory:
        return idle
    return np.minimum(idle, np.floor(free_memory / memory))
