"""Nodes of graphs that nothing tells apart, which networks see as one vertex with a number of copies."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import lean_kernel, part_of_kernel

Ints = NDArray[np.int64]
#: (B, N, F) numbers of nodes, bit by bit.
Bits = NDArray[np.uint32]
Numbers = NDArray[np.float32]
#: (B, Q, N) flags of jobs and nodes.
Flags = NDArray[np.int8]

_HASH_BITS = 31


@lean_kernel
def find(nodes: Bits, fits: Flags, jobs: Ints, clusters: Ints, table: Ints, vertex: Ints, first: Ints) -> int:
    """Finds the vertices of B graphs: sets of nodes of one cluster with equal numbers on which the same jobs fit.

    Args:
        nodes: (B, N, F) numbers of the nodes.
        fits: (B, Q, N) whether a job fits on a node.
        jobs: (B,) jobs of each graph, the first rows of `fits`.
        clusters: (N,) cluster of each node.
        table: Space, negative numbers: a power of 2 that exceeds N.
        vertex: (B, N) receives the vertex of each node; vertices are in the order of their first nodes.
        first: (B, N) zeros that receive the first node of each vertex.

    Returns:
        The largest number of vertices of a graph.
    """
    batch, size, _ = nodes.shape
    most = 0
    for b in range(batch):
        count, begin = 0, b * size
        for n in range(size):
            place = (_hashed(nodes, fits, jobs[b], clusters, b, n) * len(table)) >> _HASH_BITS
            # Numbers below `begin` are of earlier graphs.
            while table[place] >= begin and not _equal(nodes, fits, jobs[b], clusters, b, table[place] - begin, n):
                place = (place + 1) % len(table)
            if table[place] >= begin:
                vertex[b, n] = vertex[b, table[place] - begin]
            else:
                table[place] = begin + n
                vertex[b, n] = count
                first[b, count] = n
                count += 1
        most = max(most, count)
    return most


@lean_kernel
def fill(
    fits: Flags,
    jobs: Ints,
    clusters: Ints,
    n_clusters: int,
    vertex: Ints,
    to_nodes: Numbers,
    from_nodes: Numbers,
    copies: Numbers,
) -> None:
    """Writes shares of the senders in the mean message that each vertex receives along the edges; see `find`.

    Args:
        fits: See there, also for the next two.
        jobs: See there.
        clusters: See there.
        n_clusters: K.
        vertex: (B, N) vertex of each node.
        to_nodes: (B, M, K + Q) zeros that receive 1 for the cluster of a vertex, and the shares of the jobs that fit.
        from_nodes: (B, K + Q, M) zeros that receive the shares of the nodes of each vertex at clusters and jobs.
        copies: (B, 1, M) zeros that receive the number of the nodes of each vertex.
    """
    for b in range(len(vertex)):
        count, hubs = 0, n_clusters + jobs[b]
        for n in range(len(clusters)):
            v = vertex[b, n]
            if v == count:
                count += 1
                to_nodes[b, v, clusters[n]] = 1.0
                fitting = 0
                for q in range(jobs[b]):
                    fitting += fits[b, q, n]
                for q in range(jobs[b]):
                    if fits[b, q, n]:
                        to_nodes[b, v, n_clusters + q] = 1.0 / fitting
            copies[b, 0, v] += np.float32(1.0)
            for hub in range(hubs):
                if to_nodes[b, v, hub] > 0:
                    from_nodes[b, hub, v] += np.float32(1.0)
        for hub in range(hubs):
            total = from_nodes[b, hub, :count].sum()
            if total > 0:
                for v in range(count):
                    from_nodes[b, hub, v] /= total


@part_of_kernel
def _hashed(nodes: Bits, fits: Flags, jobs: int, clusters: Ints, b: int, n: int) -> int:
    mixed = clusters[n]
    for f in range(nodes.shape[2]):
        mixed = (mixed * 1000003 + np.int64(nodes[b, n, f])) & ((1 << _HASH_BITS) - 1)
    for q in range(jobs):
        mixed = (mixed * 1000003 + fits[b, q, n]) & ((1 << _HASH_BITS) - 1)
    return mixed


@part_of_kernel
def _equal(nodes: Bits, fits: Flags, jobs: int, clusters: Ints, b: int, m: int, n: int) -> bool:
    same, f, q = clusters[m] == clusters[n], 0, 0
    while same and f < nodes.shape[2]:
        same = nodes[b, m, f] == nodes[b, n, f]
        f += 1
    while same and q < jobs:
        same = fits[b, q, m] == fits[b, q, n]
        q += 1
    return same
