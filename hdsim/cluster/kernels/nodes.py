"""Cores of nodes: room for jobs, core policies, allocations and releases."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.kernels.pcg64 import Words, shuffle
from hdsim.kernels.compiling import lean_kernel, part_of_kernel
from hdsim.kernels.references import by_reference

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Core policies whose scores change with each core; the others are rows of `Nodes.ranked`.
HIGH_CORES, HIGH_MEM, HIGH_MEM_BW, SPREAD, PACK = -1, -2, -3, -4, -5
#: The core policy that `pick` does not know, see `pick_at_random`.
RANDOM = -6
#: Results of `allocate`.
TAKEN, BUSY, SHORT = 0, 1, 2
#: Argument for no limit.
UNLIMITED: Ints = np.zeros(0, np.int64)
#: Weight of nodes over processors in the scores of `spread`; more than the cores of a processor.
_MANY = 1 << 20

#: The arrays of `Nodes` in a plain tuple of few, which costs the least time at calls from Python: (C,) processors and
#: (C,) idle flags of cores, (5, P+1) integers of processors, (9, N+1) integers of nodes, ranked processors, and
#: (N+P+N,) free amounts of nodes and processors and scores of nodes.
State = tuple[Ints, Bools, Ints, Ints, Ints, Floats]

#: Random generator, and the order of cores and the chosen ones: (C,) numbers and (C,) False.
Random = tuple[Words, Ints, Bools]


class Nodes(NamedTuple):
    """Nodes, their processors and cores, and what is free of them; each GPU is a processor with its cores.

    The last seven arrays hold no state between calls: they are the working memory of the choice of cores.

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
        rooms: (N,) chunks that fit on a node.
        chosen: (N,) chosen chunks of a node.
        seen: (N,) cores of a node that a scan has passed.
        taken: (P,) chosen cores of a processor.
        following: (N,) processor of the next core of a node.
        winner: (N,) node with the highest score below each inner place of a binary tree over the nodes.
        score: (N,) score of the next core of a node.
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
    rooms: Ints
    chosen: Ints
    seen: Ints
    taken: Ints
    following: Ints
    winner: Ints
    score: Floats


def views(state: State) -> Nodes:
    """Returns views of the arrays."""
    core_processor, idle, processors, nodes, ranked, amounts = state
    p, n = processors.shape[1] - 1, nodes.shape[1] - 1
    return Nodes(
        *(core_processor, processors[0], processors[1][:p], processors[2][:p], nodes[0], ranked, idle),
        *(processors[3][:p], nodes[1][:n], nodes[2][:n], amounts[:n], amounts[n : n + p], nodes[3][:n]),
        *(nodes[4][:n], nodes[5][:n], nodes[6][:n], processors[4][:p], nodes[7][:n], nodes[8][:n]),
        amounts[n + p :],
    )


#: `views` in lean kernels.
nodes_of = part_of_kernel(views)


@part_of_kernel
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
    if idle and memory > 0 and nodes.node_memory[node] / memory < idle:
        idle = int(nodes.node_memory[node] / memory)
    if gpus > 0:
        return min(idle // cores, nodes.node_gpus[node] // gpus)
    return idle


@lean_kernel
def total_room(state: State, cores: int, gpus: int, memory: float, limit: Ints) -> int:
    """Returns the number of chunks that fit on all nodes together; see `pick`."""
    return fill_rooms(by_reference(nodes_of(state)), cores, gpus, memory, limit)


@lean_kernel
def fitting(state: State, cores: int, gpus: int, memory: float, out: NDArray[np.int8]) -> None:
    """Writes 1 for each node on which a chunk fits, otherwise 0; see `room`."""
    nodes = by_reference(nodes_of(state))
    for node in range(len(out)):
        out[node] = 1 if room(nodes, node, cores, gpus, memory) > 0 else 0


@lean_kernel
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
    """Chooses cores and GPUs for the chunks of a job, one chunk at a time, by the best next core of a node.

    Args:
        state: The nodes.
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
    nodes = by_reference(nodes_of(state))
    if fill_rooms(nodes, cores, gpus, memory, limit) < number:
        return 0
    clear(nodes)
    if PACK < policy < 0:
        _take_turns(nodes, policy, number, cores, memory, bandwidth)
    elif policy >= 0 and cores == 1:
        _take_best(nodes, policy, number)
    else:
        if policy == PACK:
            _pack(nodes, number)
        else:
            _rank(nodes, policy, number, cores)
        _distribute(nodes, max(policy, 0), number, cores)
    return list_ids(nodes, gpus, nodes.idle, out)


@lean_kernel
def pick_listed(
    state: State,
    order: Ints,
    number: int,
    cores: int,
    gpus: int,
    memory: float,
    limit: Ints,
    among: Bools,
    out: Ints,
) -> int:
    """Chooses as `pick` does, the cores ranked by a list of all idle cores without GPUs, best first.

    Besides its arguments, `among` is (C,) False and receives the chosen cores.
    """
    nodes = by_reference(nodes_of(state))
    if fill_rooms(nodes, cores, gpus, memory, limit) < number:
        return 0
    clear(nodes)
    left, chosen, seen = number, nodes.chosen, nodes.seen
    for core in order:
        node = nodes.processor_node[nodes.core_processor[core]]
        if chosen[node] < nodes.rooms[node] and chosen[node] * cores == seen[node]:
            chosen[node] += 1
            left -= 1
            if not left:
                break
        seen[node] += 1
    left = number * cores
    for node in range(len(seen)):
        seen[node] = 0
    for core in order:
        processor = nodes.core_processor[core]
        node = nodes.processor_node[processor]
        if seen[node] < chosen[node] * cores:
            seen[node] += 1
            nodes.taken[processor] += 1
            among[core] = True
            left -= 1
            if not left:
                break
    return list_ids(nodes, gpus, among, out)


@part_of_kernel
def pick_at_random(
    store: State, random: Random, number: int, cores: int, gpus: int, memory: float, limit: Ints, ids: Ints
) -> int:
    """Chooses cores for a job that fits within limits in a random order; see :func:`pick`."""
    (words, order, among), state, idle = random, by_reference(nodes_of(store)), 0
    for processor in range(len(state.processor_idle)):
        left = 0 if state.is_gpu[processor] else state.processor_idle[processor]
        core = state.first_core[processor]
        while left:
            if state.idle[core]:
                order[idle] = core
                idle += 1
                left -= 1
            core += 1
    shuffle(words, order[:idle])
    count = pick_listed(store, order[:idle], number, cores, gpus, memory, limit, among, ids)
    for core in ids[:count]:
        among[core] = False
    return count


@part_of_kernel
def fill_rooms(nodes: Nodes, cores: int, gpus: int, memory: float, limit: Ints) -> int:
    """Counts the chunks that fit on each node and returns their sum."""
    total = 0
    for node in range(len(nodes.rooms)):
        fitting = room(nodes, node, cores, gpus, memory)
        if len(limit):
            fitting = min(fitting, limit[node])
        nodes.rooms[node] = fitting
        total += fitting
    return total


@part_of_kernel
def clear(nodes: Nodes) -> None:
    """Forgets the choice of cores before."""
    for node in range(len(nodes.chosen)):
        nodes.chosen[node] = nodes.seen[node] = 0
    for processor in range(len(nodes.taken)):
        nodes.taken[processor] = 0


@part_of_kernel
def _take_best(nodes: Nodes, policy: int, number: int) -> None:
    """Chooses the best processors for chunks of one core, as `_rank` and `_distribute` do in two passes."""
    left = number
    for processor in nodes.ranked[policy]:
        idle = nodes.processor_idle[processor]
        if not idle:
            continue
        node = nodes.processor_node[processor]
        taken = min(idle, nodes.rooms[node] - nodes.chosen[node], left)
        nodes.taken[processor] = taken
        nodes.chosen[node] += taken
        left -= taken
        if not left:
            break


@part_of_kernel
def _rank(nodes: Nodes, policy: int, number: int, cores: int) -> None:
    """Chooses the nodes of chunks by the ranks of their first cores."""
    left, chosen, seen = number, nodes.chosen, nodes.seen
    for processor in nodes.ranked[policy]:
        node = nodes.processor_node[processor]
        seen[node] += nodes.processor_idle[processor]
        while left and chosen[node] < nodes.rooms[node] and chosen[node] * cores < seen[node]:
            chosen[node] += 1
            left -= 1
        if not left:
            break
    for node in range(len(seen)):
        seen[node] = 0


@part_of_kernel
def _pack(nodes: Nodes, number: int) -> None:
    """Chooses the nodes with most room, whole, then the fullest node that holds the rest."""
    left, rooms, chosen = number, nodes.rooms, nodes.chosen
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


@part_of_kernel
def _distribute(nodes: Nodes, policy: int, number: int, cores: int) -> None:
    """Takes the cores of the chosen chunks from the best processors of their nodes."""
    left, given = number * cores, nodes.seen
    for processor in nodes.ranked[policy]:
        node = nodes.processor_node[processor]
        taken = min(nodes.processor_idle[processor], nodes.chosen[node] * cores - given[node])
        nodes.taken[processor] = taken
        given[node] += taken
        left -= taken
        if not left:
            break


@part_of_kernel
def _take_turns(nodes: Nodes, policy: int, number: int, cores: int, memory: float, bandwidth: float) -> None:
    """Chooses nodes and processors by scores that fall with each core."""
    n, rooms, score, following, winner = len(nodes.rooms), nodes.rooms, nodes.score, nodes.following, nodes.winner
    for node in range(n):
        score[node] = -math.inf
        if rooms[node] > 0:
            score[node], following[node] = _next(nodes, policy, node, 0, memory, bandwidth)
    # A tree of winners: below place i are the places 2i and 2i+1, and place n+i is node i.
    for place in range(n - 1, 0, -1):
        winner[place] = _better(score, _at(winner, 2 * place), _at(winner, 2 * place + 1))
    for _ in range(number):
        node = _at(winner, 1)
        for core in range(nodes.chosen[node] * cores + 1, (nodes.chosen[node] + 1) * cores + 1):
            nodes.taken[following[node]] += 1
            score[node], following[node] = _next(nodes, policy, node, core, memory, bandwidth)
        nodes.chosen[node] += 1
        if nodes.chosen[node] == rooms[node]:
            score[node] = -math.inf
        best, place = node, n + node
        while place > 1:
            best = _better(score, best, _at(winner, place ^ 1))
            place //= 2
            winner[place] = best


@part_of_kernel
def _at(winner: Ints, place: int) -> int:
    return place - len(winner) if place >= len(winner) else winner[place]


@part_of_kernel
def _better(score: Floats, node: int, other: int) -> int:
    """Returns the node with the higher score, the first of two with the same."""
    if score[other] > score[node] or (score[other] == score[node] and other < node):
        return other
    return node


@part_of_kernel
def _next(nodes: Nodes, policy: int, node: int, given: int, memory: float, bandwidth: float) -> tuple[float, int]:
    """Returns the score and the processor of the next core of a node that has given some; -inf and -1 if none."""
    best, at = -math.inf, -1
    for processor in range(nodes.first_processor[node], nodes.first_processor[node + 1]):
        left = nodes.processor_idle[processor] - nodes.taken[processor]
        if left == 0 or nodes.is_gpu[processor]:
            continue
        if policy == HIGH_CORES:
            score = float(left)
        elif policy == HIGH_MEM:
            score = nodes.node_memory[node] - memory * given
        elif policy == HIGH_MEM_BW:
            score = nodes.free_bandwidth[processor] - bandwidth * nodes.taken[processor]
        else:
            score = float((nodes.node_idle[node] - given) * _MANY + left)
        if at < 0 or score > best:
            best, at = score, processor
    return best, at


@part_of_kernel
def list_ids(nodes: Nodes, gpus: int, among: Bools, out: Ints) -> int:
    """Writes the first ids `among` the cores of each processor, and of idle GPUs, and returns the number of ids."""
    count = 0
    for node in range(len(nodes.chosen)):
        if not nodes.chosen[node]:
            continue
        devices = nodes.chosen[node] * gpus
        for processor in range(nodes.first_processor[node], nodes.first_processor[node + 1]):
            is_gpu = nodes.is_gpu[processor]
            free, left = (nodes.idle, devices) if is_gpu else (among, nodes.taken[processor])
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


@lean_kernel
def allocate(state: State, ids: Ints, memory: float, bandwidth: float) -> int:
    """Allocates cores and GPUs, ascending, and memory and bandwidth for each core.

    Returns:
        `TAKEN`; or, and nothing has changed, `BUSY` if one is not idle or given twice, or `SHORT` of memory of a node.
    """
    nodes = by_reference(nodes_of(state))
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


@lean_kernel
def release(state: State, ids: Ints, memory: float, bandwidth: float) -> None:
    """Releases what `allocate` has allocated."""
    _move(by_reference(nodes_of(state)), ids, memory, bandwidth, 1)


@part_of_kernel
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
