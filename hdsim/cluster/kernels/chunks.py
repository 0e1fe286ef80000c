"""Chunks of jobs: requests, and how many chunks fit on nodes.

Free amounts are arrays (R, N) of the resources cores, memory and, if len(free) is 5, GPUs, pods, storage.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import lean_kernel, part_of_kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
#: More cores than a node has.
_UNLIMITED = float(1 << 31)


class Chunk(NamedTuple):
    """The equal parts of a job, each of which must be on one node; without GPUs each core is a chunk.

    Attributes:
        number: Number of chunks.
        cores: Cores of a chunk.
        gpus: GPUs of a chunk.
        memory: Bytes per core.
        cpu: CPU of a node in cores that each core takes, 1 where cores have ids.
        storage: Bytes of ephemeral storage per core.
        place: Row of the nodes that the constraints of the job allow.
        kind: Number that is equal for chunks of equal attributes but `number`.
    """

    number: int
    cores: int
    gpus: int
    memory: float
    cpu: float = 1.0
    storage: float = 0.0
    place: int = 0
    kind: int = 0


class JobRequests(NamedTuple):
    """Requests of all jobs: (J,) the attributes of their chunks, requested times in seconds, whether they are fixed.

    A job takes a fixed time at any speed.
    """

    number: Ints
    cores: Ints
    gpus: Ints
    memory: Floats
    cpu: Floats
    storage: Floats
    place: Ints
    kind: Ints
    time: Floats
    fixed: Bools


class Holdings(NamedTuple):
    """Cores of running jobs on each of their nodes: those of a job are at places `first` to `last` - 1.

    Attributes:
        first: (J,) first place.
        last: (J,) place behind the last one.
        node: (E,) nodes.
        cores: (E,) cores on the node.
        length: (1,) places in use; the arrays may be longer.
    """

    first: Ints
    last: Ints
    node: Ints
    cores: Ints
    length: Ints


@lean_kernel
def chunk_of(jobs: JobRequests, job: int) -> Chunk:
    """Returns the chunks of a job."""
    return Chunk(
        jobs.number[job],
        jobs.cores[job],
        jobs.gpus[job],
        jobs.memory[job],
        jobs.cpu[job],
        jobs.storage[job],
        jobs.place[job],
        jobs.kind[job],
    )


@lean_kernel
def capacity(free: Floats, allowed: Bools, chunk: Chunk, first: int, last: int, room: Floats) -> float:
    """Counts the chunks of a job that fit on the nodes `first` to `last` - 1.

    Args:
        free: (R, N) free amounts.
        allowed: (M, N) nodes in service that constraints allow.
        chunk: The chunks.
        first: First node.
        last: Node behind the last one.
        room: (N,) takes the chunks that fit on each node.

    Returns:
        Their sum.
    """
    total = 0
    for node in range(first, last):
        room[node] = room_on(free, allowed, chunk, node)
        total += int(room[node])  # sums of integers need not be in order
    return float(total)


@part_of_kernel
def room_on(free: Floats, allowed: Bools, chunk: Chunk, node: int) -> float:
    """Counts the chunks of a job that fit on a node; see `capacity`."""
    return room_in(free, node, allowed, chunk, node)


@part_of_kernel
def room_in(free: Floats, column: int, allowed: Bools, chunk: Chunk, node: int) -> float:
    """Counts the chunks of a job that fit into the amounts of a column, which are of a node."""
    return _room_beside_in(free, column, allowed, chunk, chunk, node, 0)


@part_of_kernel
def room_beside(free: Floats, allowed: Bools, chunk: Chunk, other: Chunk, node: int, number: int) -> float:
    """Counts the chunks of a job that fit on a node beside a number of chunks of another job; see `add_amounts`."""
    return _room_beside_in(free, node, allowed, chunk, other, node, number)


@part_of_kernel
def _room_beside_in(
    free: Floats, column: int, allowed: Bools, chunk: Chunk, other: Chunk, node: int, number: int
) -> float:
    """Counts the chunks of a job that fit into the amounts of a column beside chunks of another job."""
    cores = number * other.cores
    cpu = free[0, column] - cores * other.cpu
    if number and (other.cpu != 1 or len(free) > 2):
        cpu = np.rint(cpu * 1000) / 1000
    # Both are thousandths: a quotient this close to an integer is one.
    if chunk.cpu == 1:
        fits = np.floor(cpu + 1e-9)
    else:
        fits = np.floor(cpu / chunk.cpu + 1e-9) if chunk.cpu > 0 else _UNLIMITED
    if fits > 0 and chunk.memory > 0:
        fits = min(fits, np.floor((free[1, column] - cores * other.memory) / chunk.memory))
    if len(free) > 2:
        if fits > 0 and chunk.storage > 0:
            fits = min(fits, np.floor((free[4, column] - cores * other.storage) / chunk.storage))
        fits = np.floor(fits / chunk.cores)
        if chunk.gpus > 0:
            fits = min(fits, np.floor((free[2, column] - number * other.gpus) / chunk.gpus))
        fits = max(min(fits, free[3, column] - number), 0.0) if allowed[chunk.place, node] else 0.0
    return fits


@part_of_kernel
def add_amounts(free: Floats, chunk: Chunk, node: int, cores: int) -> None:
    """Releases what a job holds on a node with some of its cores; a negative number of `cores` allocates it."""
    free[0, node] += cores * chunk.cpu
    if chunk.cpu != 1 or len(free) > 2:
        # Thousandths stay thousandths, so that sums do not depend on their order.
        free[0, node] = np.rint(free[0, node] * 1000) / 1000
    free[1, node] += cores * chunk.memory
    if len(free) > 2:
        chunks = cores / chunk.cores
        free[2, node] += chunks * chunk.gpus
        free[3, node] += chunks
        free[4, node] += cores * chunk.storage


@lean_kernel
def add_on_nodes(free: Floats, chunk: Chunk, nodes: Ints, cores: Ints) -> None:
    """Releases what a job holds on (k,) nodes with (k,) cores; see `add_amounts`."""
    for i in range(len(nodes)):
        add_amounts(free, chunk, nodes[i], cores[i])


@part_of_kernel
def exchange(free: Floats, allowed: Bools, head: Chunk, chunk: Chunk, nodes: Ints, cores: Ints, sign: int) -> float:
    """Releases (1) or allocates (-1) the resources of a job and returns the increase of the head's capacity."""
    change = 0.0
    for i in range(len(nodes)):
        node = nodes[i]
        change -= room_on(free, allowed, head, node)
        add_amounts(free, chunk, node, sign * cores[i])
        change += room_on(free, allowed, head, node)
    return change
