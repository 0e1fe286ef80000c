"""CPUs that jobs of several partitions hold at once: those of lower tiers are suspended (PreemptMode=SUSPEND,GANG)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hdsim.kernels.compiling import part_of_kernel
from hdsim.site.kernels.placing import Demands, Flags, Ints, SiteNodes

#: No job.
_NONE = -1


class Layers(NamedTuple):
    """The jobs on each CPU, at most one of each partition; all sizes are 0 where no job is suspended.

    Attributes:
        job: (P, N, C) job of each partition on each CPU of each node, -1 for none.
        blocks: (P, P) whether jobs of a partition never get the CPUs of jobs of another one.
        forced: (P,) whether whole nodes of jobs of a partition may be shared all the same (OverSubscribe=FORCE).
        order: (P,) partitions, those of higher tiers first.
        spared: (P,) partitions whose CPUs are left to them in the present choice.
        over: (1,) whether the next job that starts takes CPUs that others hold.
        left: (N, C) space: number of jobs that keep each CPU from a job.
    """

    job: Ints
    blocks: Flags
    forced: Flags
    order: Ints
    spared: Flags
    over: Flags
    left: Ints


def make_layers(blocks: Flags, forced: Flags, order: Ints, nodes: int, cpus: int) -> Layers:
    """Returns the layers of nodes without jobs; those of partitions are empty where there are none."""
    partitions = len(order)
    size = (nodes, cpus) if partitions else (0, 0)
    return Layers(
        np.full((partitions, *size), _NONE, np.int64),
        blocks,
        forced,
        order,
        np.zeros(partitions, np.bool_),
        np.zeros(1, np.bool_),
        np.zeros(size, np.int64),
    )


@part_of_kernel
def start_beside(layers: Layers) -> None:
    """Has the next job that starts take idle CPUs."""
    layers.over[0] = False
    for other in range(len(layers.order)):
        layers.spared[other] = False


@part_of_kernel
def keeps(layers: Layers, demands: Demands, partition: int, other: int, job: int) -> bool:
    """Whether a job of another partition keeps its CPUs from those of a partition."""
    if job < 0:
        return False
    return layers.blocks[partition, other] or layers.spared[other] or (demands.whole[job] and not layers.forced[other])


@part_of_kernel
def within_reach(layers: Layers, nodes: SiteNodes, demands: Demands, partition: int, node: int) -> int:
    """Returns the number of CPUs of a node that jobs of a partition may get, those that others hold included."""
    count = 0
    for cpu in range(nodes.cpus[node]):
        kept = False
        for other in range(len(layers.order)):
            kept |= keeps(layers, demands, partition, other, layers.job[other, node, cpu])
        count += not kept
    return count


@part_of_kernel
def _is_idle(layers: Layers, node: int, cpu: int) -> bool:
    idle = True
    for other in range(len(layers.order)):
        idle &= layers.job[other, node, cpu] < 0
    return idle


@part_of_kernel
def idle_cpus(layers: Layers, nodes: SiteNodes, node: int) -> int:
    """Returns the number of CPUs of a node that no job holds."""
    count = 0
    for cpu in range(nodes.cpus[node]):
        count += _is_idle(layers, node, cpu)
    return count


@part_of_kernel
def take_cpus(layers: Layers, nodes: SiteNodes, demands: Demands, job: int, node: int, cpus: int) -> int:
    """Has a job hold the first CPUs of a node that it may get; returns the number of those that are idle then.

    Only a job that starts `over` others, or finds too few idle CPUs, gets CPUs that others hold.
    """
    partition = demands.partition[job]
    over = layers.over[0] or idle_cpus(layers, nodes, node) < cpus
    for cpu in range(nodes.cpus[node]):
        free = cpus > 0
        if over:
            for other in range(len(layers.order)):
                free &= not keeps(layers, demands, partition, other, layers.job[other, node, cpu])
        else:
            free &= _is_idle(layers, node, cpu)
        if free:
            layers.job[partition, node, cpu] = job
            cpus -= 1
    return idle_cpus(layers, nodes, node)


@part_of_kernel
def leave_cpus(layers: Layers, nodes: SiteNodes, job: int, node: int) -> int:
    """Takes the CPUs of a node from a job; returns the number of those that are idle then."""
    for other in range(len(layers.order)):
        for cpu in range(nodes.cpus[node]):
            if layers.job[other, node, cpu] == job:
                layers.job[other, node, cpu] = _NONE
    return idle_cpus(layers, nodes, node)
