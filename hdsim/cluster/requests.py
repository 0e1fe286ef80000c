"""What jobs ask for, and what nodes can give."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hdsim.util.arrays import Floats, Ints
from hdsim.util.units import in_bytes

if TYPE_CHECKING:
    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload


class Requests(NamedTuple):
    """What each job asks for; scalars of a list cost a quarter of those of an array."""

    size: list[int]  # cores
    memory: list[float]  # byte a core (see `in_bytes`), 0 where no memory is watched
    bandwidth: list[float]  # GB/s a core
    gpus: list[int] | None = None  # GPUs, None where no job asks for any
    memory_matters: bool = False  # jobs ask for memory, or may, and nodes have a limited amount
    open_ended: bool = False  # jobs may be added

    @classmethod
    def of(cls, jobs: Workload, platform: Platform, *, open_ended: bool = False) -> Requests:
        """What the jobs of a workload ask for that a platform can run short of."""
        limited = bool(np.isfinite(platform.memory).any())
        memory_matters = limited and (open_ended or bool(np.any(jobs.memory > 0)))
        memory = in_bytes(jobs.memory).tolist() if memory_matters else [0.0] * len(jobs)
        asks_for_gpus = jobs.asks_for_gpus or (open_ended and platform.n_gpus > 0)
        gpus = jobs.requested_gpus.tolist() if asks_for_gpus else None
        bandwidth = jobs.memory_bandwidth.tolist()
        return cls(jobs.requested_cores.tolist(), memory, bandwidth, gpus, memory_matters, open_ended)

    def add(self, jobs: Workload) -> None:
        """Adds jobs behind those known."""
        self.size.extend(jobs.requested_cores.tolist())
        self.memory.extend(in_bytes(jobs.memory).tolist() if self.memory_matters else [0.0] * len(jobs))
        self.bandwidth.extend(jobs.memory_bandwidth.tolist())
        if self.gpus is not None:
            self.gpus.extend(jobs.requested_gpus.tolist())

    def chunk(self, job: int) -> Chunk:
        """The smallest part of a job that lies on one node: all are equal, and there are as many as can be."""
        size, gpus = self.size[job], self.gpus[job] if self.gpus else 0
        number = math.gcd(size, gpus)
        return Chunk(number, size // number, gpus // number, self.memory[job])


class Chunk(NamedTuple):
    """The equal parts of a job that each lie on one node; without GPUs each core is one."""

    number: int
    cores: int
    gpus: int
    memory: float  # byte a core


class FreeNodes:
    """What every node can give.

    Attributes:
        idle: (N,) cores.
        memory: (N,) bytes.
        gpus: (N,), None where no job asks for any.
    """

    __slots__ = ("gpus", "idle", "memory")

    def __init__(self, idle: Ints | Floats, memory: Floats, gpus: Ints | None = None) -> None:
        self.idle = idle
        self.memory = memory
        self.gpus = gpus

    def copy(self) -> FreeNodes:
        """The same in arrays of its own."""
        return FreeNodes(self.idle.copy(), self.memory.copy(), None if self.gpus is None else self.gpus.copy())

    def capacity(self, chunk: Chunk, nodes: Ints | None = None) -> Ints | Floats:
        """How many chunks of a job nodes can give, by default all nodes."""
        idle, memory, gpus = self.idle, self.memory, self.gpus
        if nodes is not None:
            idle, memory, gpus = idle[nodes], memory[nodes], None if gpus is None else gpus[nodes]
        cores = cores_by_memory(idle, memory, chunk.memory)
        if not chunk.gpus:
            return cores
        assert gpus is not None
        return np.minimum(cores // chunk.cores, gpus // chunk.gpus)

    def add(self, nodes: Ints, cores: Ints, chunk: Chunk) -> None:
        """Gives nodes back what a job has there, or with a negative number of `cores` takes it."""
        self.idle[nodes] += cores
        self.memory[nodes] += cores * chunk.memory
        if chunk.gpus:
            assert self.gpus is not None
            self.gpus[nodes] += cores // chunk.cores * chunk.gpus


def cores_by_memory(idle: Ints | Floats, free_memory: Floats, memory: float) -> Ints | Floats:
    """Cores that nodes with `idle` cores and `free_memory` bytes can give to a job of `memory` bytes a core."""
    if not memory:
        return idle
    return np.minimum(idle, np.floor(free_memory / memory))
