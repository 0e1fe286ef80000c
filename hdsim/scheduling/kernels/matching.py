"""The next job to start and its cores, by the speed of the job on them.

The speed of a job is that of its slowest core. Cores of a processor whose bandwidth it oversubscribes count as slower.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.kernels.nodes import UNLIMITED, Nodes, State, clear, fill_rooms, list_ids, nodes_of, room
from hdsim.kernels.compiling import lean_kernel, part_of_kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Speed of a core on an oversubscribed processor relative to its own.
OVERSUBSCRIBED = 0.75
#: Columns of processors that weights score: logarithms of speed and of power by speed, share of busy cores, whether the
#: job would be the one that oversubscribes it, whether it is oversubscribed, whether the job would take all idle cores.
SPEED, WATTS, BUSY, HARM, FULL, WHOLE = range(6)


class ProcessorConstants(NamedTuple):
    """Constants of processors.

    Attributes:
        levels: (L,) distinct speeds of cores, oversubscribed or not, descending.
        speed: (P,) relative to the reference speed.
        fixed: (2, P) columns ``SPEED`` and ``WATTS``.
    """

    levels: Floats
    speed: Floats
    fixed: Floats


class Wishes(NamedTuple):
    """Jobs and what is to be made of them.

    Attributes:
        order: (J,) place in the queue, lowest first.
        slowest: (J,) speed below which a job waits.
        size: (J,) cores.
        memory: (J,) bytes per core.
        bandwidth: (J,) GB/s per core.
        weights: (6,) weights of the columns of processors, the highest sum is first.
        leeway: (1,) the most by which a job that overtakes a blocked head may be behind it in `order`.
    """

    order: Floats
    slowest: Floats
    size: Ints
    memory: Floats
    bandwidth: Floats
    weights: Floats
    leeway: Floats


@lean_kernel
def fastest(state: State, machine: ProcessorConstants, number: int, memory: float, bandwidth: float) -> float:
    """Returns the highest speed of a job on the idle cores, 0 if it does not fit."""
    nodes = nodes_of(state)
    for level in machine.levels:
        if _fits(nodes, machine, number, memory, bandwidth, level):
            return level
    return 0.0


@lean_kernel
def next_start(state: State, machine: ProcessorConstants, wishes: Wishes, queue: Ints, begin: int, out: Ints) -> int:
    """Finds the next job to start.

    Args:
        state: The nodes.
        machine: Their processors.
        wishes: The jobs.
        queue: (Q,) queued jobs in order.
        begin: Place in the queue to begin at; the jobs before it stay blocked.
        out: (C,) receives the ids of the cores, ascending.

    Returns:
        The place of the job in the queue, -1 if none starts.
    """
    nodes, idle = nodes_of(state), 0
    for node in range(len(nodes.node_idle)):
        idle += nodes.node_idle[node]
    for place in range(begin, len(queue)):
        job = queue[place]
        if place > 0 and wishes.order[job] > wishes.order[queue[0]] + wishes.leeway[0]:
            return -1
        number, memory, bandwidth = wishes.size[job], wishes.memory[job], wishes.bandwidth[job]
        if number > idle or not _fits(nodes, machine, number, memory, bandwidth, wishes.slowest[job]):
            continue
        for level in machine.levels:
            if _fits(nodes, machine, number, memory, bandwidth, level):
                _choose(nodes, machine, wishes.weights, number, memory, bandwidth, level)
                list_ids(nodes, 0, nodes.idle, out)
                return place
    return -1


@part_of_kernel
def _cores_at(nodes: Nodes, machine: ProcessorConstants, processor: int, bandwidth: float, level: float) -> int:
    """Returns the number of idle cores of a processor on which a job has a speed."""
    speed = machine.speed[processor]
    if speed < level or nodes.is_gpu[processor]:
        return 0
    idle = nodes.processor_idle[processor]
    if OVERSUBSCRIBED * speed >= level or idle * bandwidth <= nodes.free_bandwidth[processor]:
        return idle
    return max(int(nodes.free_bandwidth[processor] / bandwidth), 0)


@part_of_kernel
def _fits(
    nodes: Nodes, machine: ProcessorConstants, number: int, memory: float, bandwidth: float, level: float
) -> bool:
    """Returns whether a job can start at a speed."""
    left = number
    for node in range(len(nodes.node_idle)):
        cores = 0
        if nodes.node_idle[node]:
            for processor in range(nodes.first_processor[node], nodes.first_processor[node + 1]):
                cores += _cores_at(nodes, machine, processor, bandwidth, level)
        if cores:
            left -= min(cores, room(nodes, node, 1, 0, memory))
            if left <= 0:
                return True
    return False


@part_of_kernel
def _choose(
    nodes: Nodes,
    machine: ProcessorConstants,
    weights: Floats,
    number: int,
    memory: float,
    bandwidth: float,
    level: float,
) -> None:
    """Takes cores from the processors with the highest scores on which a job has a speed."""
    fill_rooms(nodes, 1, 0, memory, UNLIMITED)
    clear(nodes)
    left = number
    while left:
        best, at, most = -math.inf, -1, 0
        for processor in range(len(nodes.taken)):
            idle, node = nodes.processor_idle[processor], nodes.processor_node[processor]
            if idle == 0 or nodes.taken[processor]:
                continue
            cores = min(_cores_at(nodes, machine, processor, bandwidth, level), nodes.rooms[node] - nodes.chosen[node])
            if cores <= 0:
                continue
            cores = min(cores, left)
            count, free = nodes.first_core[processor + 1] - nodes.first_core[processor], nodes.free_bandwidth[processor]
            score = weights[SPEED] * machine.fixed[SPEED, processor] + weights[WATTS] * machine.fixed[WATTS, processor]
            score += weights[BUSY] * (count - idle) / count
            if free < 0:
                score += weights[FULL]
            elif idle < count and cores * bandwidth > free:
                score += weights[HARM]
            if cores == idle:
                score += weights[WHOLE]
            if score > best:
                best, at, most = score, processor, cores
        nodes.taken[at] = most
        nodes.chosen[nodes.processor_node[at]] += most
        left -= most
