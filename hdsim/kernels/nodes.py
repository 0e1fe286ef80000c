"""Cores of nodes: room for jobs, core policies, allocations and releases."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import kernel

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Core policies whose scores change with each core; the others are rows of `Nodes.ranked`.
HIGH_CORES, HIGH_MEM, HIGH_MEM_BW, SPREAD, PACK = -1, -2, -3, -4, -5
#: Results of `take`.
TAKEN, BUSY, SHORT = 0, 1, 2
#: Argument for no limit.
UNLIMITED: Ints = np.zeros(0, np.int64)
#: Weight of nodes over processors in the scores of `spread`; more than the cores of a processor.
_MANY = 1 << 20
#: Number of chunks up to which a scan of the nodes for the best one is faster than a heap.
_FEW = 16


#: The arrays of `Nodes` in a plain tuple of few, which costs the least time at calls from Python: (C,) processors and
#: (C,) idle flags of cores, (4, P+1) integers of processors, (4, N+1) integers of nodes, ranked processors, and (N+P,)
#: free amounts of nodes and processors.
State = tuple[Ints, Bools, Ints, Ints, Ints, Floats]


class Nodes(NamedTuple):
    """Nodes, their processors and cores, and what is free of them; each GPU is a processor with its cores.

    Attributes:
        core_processor: (C,) processor of a core.
        first_core: (P+1,) first core of a processor; the last entry is C.
        processor_node: (P,) node of a processor.
        is_gpu: (P,) 1 for a processor that is a GPU.
        first_processor: (N+1,) first processor of a node; the last entry is P.
        ranked: (S, P') processors without GPUs, best first, under each policy with constant scores; row 0 is by id.
        idle: (C,) idle cores and GPUs.
        processor_idle: (P,) idle cores of a processor.
        node_idle: (N,) idle cores of a node without GPUs.
        node_gpus: (N,) idle GPUs of a node.
        node_memory: (N,) free bytes of a node.
        free_bandwidth: (P,) free memory bandwidth of a processor in GB/s.
        without_memory: (N,) busy cores of a node whose jobs request no memory.
    """

    core_processor: Ints
    first_core: Ints
    processor_node: Ints
    is_gpu: Ints
    first_processor: Ints
    ranked: Ints
    idle: Bools
    processor_idle: Ints
    node_idle: Ints
    node_gpus: Ints
    node_memory: Floats
    free_bandwidth: Floats
    without_memory: Ints


@kernel
def nodes_of(state: State) -> Nodes:
    """Returns views of the arrays."""
    core_processor, idle, processors, nodes, ranked, amounts = state
    p, n = processors.shape[1] - 1, nodes.shape[1] - 1
    return Nodes(
        *(core_processor, processors[0], processors[1][:p], processors[2][:p], nodes[0], ranked, idle),
        *(processors[3][:p], nodes[1][:n], nodes[2][:n], amounts[:n], amounts[n:], nodes[3][:n]),
    )


@kernel
def pick(
    state: State,
    policy: int,
    number: int,
    cores: int,
    gpus: int,
    memory: float,
    bandwidth: float,
    limit: Ints,
    out: Ints,
) -> int:
    """See `choose`."""
    return choose(nodes_of(state), policy, number, cores, gpus, memory, bandwidth, limit, out)


@kernel
def count_room(state: State, cores: int, gpus: int, memory: float) -> int:
    """See `total_room`."""
    return total_room(nodes_of(state), cores, gpus, memory, UNLIMITED)


@kernel
def allocate(state: State, ids: Ints, memory: float, bandwidth: float) -> int:
    """See `take`."""
    return take(nodes_of(state), ids, memory, bandwidth)


@kernel
def release(state: State, ids: Ints, memory: float, bandwidth: float) -> None:
    """See `give`."""
    give(nodes_of(state), ids, memory, bandwidth)


@kernel
def room(nodes: Nodes, node: int, cores: int, gpus: int, memory: float) -> int:
    """Returns the number of chunks that fit on a node.

    Args:
        nodes: The nodes.
        node: The node.
        cores: Cores of a chunk.
        gpus: GPUs of a chunk.
        memory: Bytes per core.
    """
    idle = nodes.node_idle[node]
    if memory > 0 and nodes.node_memory[node] / memory < idle:
        idle = int(nodes.node_memory[node] / memory)
    if gpus > 0:
        return min(idle // cores, nodes.node_gpus[node] // gpus)
    return idle


@kernel
def total_room(nodes: Nodes, cores: int, gpus: int, memory: float, limit: Ints) -> int:
    """Returns the number of chunks that fit on all nodes together; see `choose`."""
    total = 0
    for node in range(len(nodes.node_idle)):
        fitting = room(nodes, node, cores, gpus, memory)
        total += min(fitting, limit[node]) if len(limit) else fitting
    return total


@kernel
def choose(
    nodes: Nodes,
    policy: int,
    number: int,
    cores: int,
    gpus: int,
    memory: float,
    bandwidth: float,
    limit: Ints,
    out: Ints,
) -> int:
    """Chooses cores and GPUs for the chunks of a job, one chunk at a time, by the best next core of a node.

    Args:
        nodes: The nodes.
        policy: A row of `Nodes.ranked`, or one of the policies above.
        number: Chunks.
        cores: Cores of a chunk, 1 without GPUs.
        gpus: GPUs of a chunk.
        memory: Bytes per core.
        bandwidth: Memory bandwidth per core in GB/s.
        limit: (N,) maximum number of chunks on each node, or `UNLIMITED`.
        out: Receives the ids of the cores and GPUs, ascending.

    Returns:
        The number of ids, 0 if the chunks do not fit.
    """
    total, rooms, chosen, taken = _rooms(nodes, cores, gpus, memory, limit)
    if total < number:
        return 0
    if policy >= 0:
        _rank(nodes, policy, number, cores, rooms, chosen)
        _distribute(nodes, policy, number, cores, chosen, taken)
    elif policy == PACK:
        _pack(nodes, number, rooms, chosen)
        _distribute(nodes, 0, number, cores, chosen, taken)
    else:
        _take_turns(nodes, policy, number, cores, memory, bandwidth, rooms, chosen, taken)
    return _list(nodes, gpus, nodes.idle, chosen, taken, out)


@kernel
def choose_listed(
    nodes: Nodes, order: Ints, number: int, cores: int, gpus: int, memory: float, limit: Ints, out: Ints
) -> int:
    """Chooses as `choose` does, the cores ranked by a list of all idle cores without GPUs, best first."""
    total, rooms, chosen, taken = _rooms(nodes, cores, gpus, memory, limit)
    if total < number:
        return 0
    seen, left = np.zeros(len(chosen), np.int64), number
    for core in order:
        node = nodes.processor_node[nodes.core_processor[core]]
        if chosen[node] < rooms[node] and chosen[node] * cores == seen[node]:
            chosen[node] += 1
            left -= 1
            if not left:
                break
        seen[node] += 1
    among, left, seen[:] = np.zeros(len(nodes.idle), np.bool_), number * cores, 0
    for core in order:
        processor = nodes.core_processor[core]
        node = nodes.processor_node[processor]
        if seen[node] < chosen[node] * cores:
            seen[node] += 1
            taken[processor] += 1
            among[core] = True
            left -= 1
            if not left:
                break
    return _list(nodes, gpus, among, chosen, taken, out)


@kernel
def _rooms(nodes: Nodes, cores: int, gpus: int, memory: float, limit: Ints) -> tuple[int, Ints, Ints, Ints]:
    """Returns the chunks that fit, in total and (N,) on each node, and zeros for (N,) chosen chunks and (P,) cores."""
    n, total = len(nodes.node_idle), 0
    rooms = np.empty(n, np.int64)
    for node in range(n):
        rooms[node] = room(nodes, node, cores, gpus, memory)
        if len(limit):
            rooms[node] = min(rooms[node], limit[node])
        total += rooms[node]
    return total, rooms, np.zeros(n, np.int64), np.zeros(len(nodes.processor_idle), np.int64)


@kernel
def _rank(nodes: Nodes, policy: int, number: int, cores: int, rooms: Ints, chosen: Ints) -> None:
    """Chooses the nodes of chunks by the ranks of their first cores."""
    seen, left = np.zeros(len(chosen), np.int64), number
    for processor in nodes.ranked[policy]:
        node = nodes.processor_node[processor]
        seen[node] += nodes.processor_idle[processor]
        while left and chosen[node] < rooms[node] and chosen[node] * cores < seen[node]:
            chosen[node] += 1
            left -= 1
        if not left:
            return


@kernel
def _pack(nodes: Nodes, number: int, rooms: Ints, chosen: Ints) -> None:
    """Chooses the nodes with most room, whole, then the fullest node that holds the rest."""
    left = number
    while left:
        best = -1
        for node in range(len(rooms)):
            if chosen[node] or rooms[node] <= 0:
                continue
            if best < 0:
                best = node
            elif rooms[best] < left:
                if rooms[node] > rooms[best]:
                    best = node
            elif rooms[node] >= left and nodes.node_idle[node] < nodes.node_idle[best]:
                best = node
        chosen[best] = min(rooms[best], left)
        left -= chosen[best]


@kernel
def _distribute(nodes: Nodes, policy: int, number: int, cores: int, chosen: Ints, taken: Ints) -> None:
    """Takes the cores of the chosen chunks from the best processors of their nodes."""
    given, left = np.zeros(len(chosen), np.int64), number * cores
    for processor in nodes.ranked[policy]:
        node = nodes.processor_node[processor]
        taken[processor] = min(nodes.processor_idle[processor], chosen[node] * cores - given[node])
        given[node] += taken[processor]
        left -= taken[processor]
        if not left:
            return


@kernel
def _take_turns(
    nodes: Nodes,
    policy: int,
    number: int,
    cores: int,
    memory: float,
    bandwidth: float,
    rooms: Ints,
    chosen: Ints,
    taken: Ints,
) -> None:
    """Chooses nodes and processors by scores that fall with each core."""
    n, size = len(rooms), 0
    score, following, ranked = np.empty(n), np.empty(n, np.int64), np.empty(n, np.int64)
    for node in range(n):
        if rooms[node] > 0:
            score[node], following[node] = _next(nodes, policy, node, 0, memory, bandwidth, taken)
            ranked[size] = node
            size += 1
    # The nodes with room: a list for few chunks, otherwise a heap by the score of the next core.
    if number > _FEW:
        for place in range(size // 2 - 1, -1, -1):
            _sift(ranked, size, place, score)
    for _ in range(number):
        place = 0
        if number <= _FEW:
            for other in range(1, size):
                if score[ranked[other]] > score[ranked[place]]:
                    place = other
        node = ranked[place]
        for core in range(chosen[node] * cores + 1, (chosen[node] + 1) * cores + 1):
            taken[following[node]] += 1
            score[node], following[node] = _next(nodes, policy, node, core, memory, bandwidth, taken)
        chosen[node] += 1
        if chosen[node] == rooms[node]:
            score[node] = -math.inf
        if number > _FEW:
            _sift(ranked, size, 0, score)


@kernel
def _next(
    nodes: Nodes, policy: int, node: int, given: int, memory: float, bandwidth: float, taken: Ints
) -> tuple[float, int]:
    """Returns the score and the processor of the next core of a node that has given some; -inf and -1 if none."""
    best, at = -math.inf, -1
    for processor in range(nodes.first_processor[node], nodes.first_processor[node + 1]):
        left = nodes.processor_idle[processor] - taken[processor]
        if left == 0 or nodes.is_gpu[processor]:
            continue
        if policy == HIGH_CORES:
            score = float(left)
        elif policy == HIGH_MEM:
            score = nodes.node_memory[node] - memory * given
        elif policy == HIGH_MEM_BW:
            score = nodes.free_bandwidth[processor] - bandwidth * taken[processor]
        else:
            score = float((nodes.node_idle[node] - given) * _MANY + left)
        if at < 0 or score > best:
            best, at = score, processor
    return best, at


@kernel
def _sift(heap: Ints, size: int, place: int, score: Floats) -> None:
    """Moves the node at a place of a heap down to where it belongs."""
    node = heap[place]
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and _precedes(heap[child + 1], heap[child], score):
            child += 1
        if not _precedes(heap[child], node, score):
            break
        heap[place] = heap[child]
        place = child
    heap[place] = node


@kernel
def _precedes(node: int, other: int, score: Floats) -> bool:
    return score[node] > score[other] or (score[node] == score[other] and node < other)


@kernel
def _list(nodes: Nodes, gpus: int, among: Bools, chosen: Ints, taken: Ints, out: Ints) -> int:
    """Writes the first ids `among` the cores of each processor, and of idle GPUs, and returns the number of ids."""
    count = 0
    for node in range(len(chosen)):
        if not chosen[node]:
            continue
        devices = chosen[node] * gpus
        for processor in range(nodes.first_processor[node], nodes.first_processor[node + 1]):
            is_gpu = nodes.is_gpu[processor]
            free, left = (nodes.idle, devices) if is_gpu else (among, taken[processor])
            core = nodes.first_core[processor]
            while left and core < nodes.first_core[processor + 1]:
                if free[core]:
                    out[count] = core
                    count += 1
                    left -= 1
                core += 1
            if is_gpu:
                devices = left
    return count


@kernel
def take(nodes: Nodes, ids: Ints, memory: float, bandwidth: float) -> int:
    """Allocates cores and GPUs, ascending, and memory and bandwidth for each core.

    Returns:
        `TAKEN`; or, and nothing has changed, `BUSY` if one is not idle or given twice, or `SHORT` of memory of a node.
    """
    for i in range(len(ids)):
        if not nodes.idle[ids[i]] or (i > 0 and ids[i] == ids[i - 1]):
            return BUSY
    if memory > 0:
        at, held = -1, 0
        for core in ids:
            processor = nodes.core_processor[core]
            node = nodes.processor_node[processor]
            if node != at:
                at, held = node, 0
            held += not nodes.is_gpu[processor]
            if held * memory > nodes.node_memory[node]:
                return SHORT
    _move(nodes, ids, memory, bandwidth, -1)
    return TAKEN


@kernel
def give(nodes: Nodes, ids: Ints, memory: float, bandwidth: float) -> None:
    """Releases what `take` has allocated."""
    _move(nodes, ids, memory, bandwidth, 1)


@kernel
def _move(nodes: Nodes, ids: Ints, memory: float, bandwidth: float, sign: int) -> None:
    first = 0
    while first < len(ids):
        processor, last = nodes.core_processor[ids[first]], first
        while last < len(ids) and nodes.core_processor[ids[last]] == processor:
            nodes.idle[ids[last]] = sign > 0
            last += 1
        node, count = nodes.processor_node[processor], sign * (last - first)
        nodes.processor_idle[processor] += count
        if nodes.is_gpu[processor]:
            nodes.node_gpus[node] += count
        else:
            nodes.node_idle[node] += count
            nodes.free_bandwidth[processor] += count * bandwidth
            if memory > 0:
                nodes.node_memory[node] += count * memory
            else:
                nodes.without_memory[node] -= count
        first = last
