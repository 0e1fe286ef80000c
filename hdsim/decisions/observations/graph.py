"""Observation of queue and platform as a graph of jobs, nodes and clusters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.kernels.nodes import fitting
from hdsim.decisions.base import Array, Observation, Observer, relative_to_largest
from hdsim.decisions.observations import jobs, nodes
from hdsim.decisions.observations.jobs import JobsObserver
from hdsim.decisions.observations.nodes import NodesBandwidth
from hdsim.decisions.observations.star import STAR_EDGES, STAR_VERTICES, StarGraph
from hdsim.platform.schema import QUANTITIES
from hdsim.util.arrays import Floats, Ints

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.decisions.wait_queue import WaitQueue
    from hdsim.platform.model import Platform

VERTEX_TYPES = ("job", "node", "cluster")
#: Types of edges: type of the source, relation, type of the target.
EDGE_TYPES = (
    ("job", "fits", "node"),
    ("node", "takes", "job"),
    ("node", "in", "cluster"),
    ("cluster", "has", "node"),
    ("cluster", "joins", "cluster"),
)
LINK_FEATURES = ("link_bandwidth", "link_latency", "link_shared")
#: Columns of each type of vertices.
COLUMNS = {
    "job": jobs.FEATURES,
    "node": (*nodes.FEATURES, *nodes.BANDWIDTH_FEATURES, *LINK_FEATURES),
    "cluster": LINK_FEATURES,
}


class Graph(Observer):
    """A dictionary of arrays: jobs, N nodes and K clusters as vertices, and their edges.

    * ``job`` (queue_size, 8): the rows of `JobsObserver`, zeros for no job.
    * ``node`` (N, 22): the rows of `NodesBandwidth`, which show the next job, and the node's link: bandwidth and
      latency as shares of the largest, and the share of the cores behind it that serve jobs with cores elsewhere too.
    * ``cluster`` (K, 3): the same of the links between clusters.
    * ``fits`` (queue_size, N): 1 if a chunk of the job fits on the node, else 0.
    * ``node_cluster`` (N,): the cluster of each node; it does not change.

    The edges follow from the last two (`EDGE_TYPES`); all clusters are joined. A platform of quantities, which has
    neither cores nor processors to tell apart, is observed as a :class:`StarGraph` instead.

    Args:
        queue_size: Rows for jobs.
    """

    needs_core_ids = True

    sees_cores = True

    def __init__(self, queue_size: int = 32) -> None:
        self._jobs = JobsObserver(queue_size)
        self._nodes = NodesBandwidth()
        self._queue_size = queue_size

    def on(self, platform: Platform) -> Observer:
        return StarGraph(self._queue_size) if platform.kind == QUANTITIES else self

    def arrays(self, platform: Platform) -> dict[str, Array]:
        sizes = {"job": self._queue_size, "node": platform.n_nodes, "cluster": platform.n_clusters}
        return {
            **{kind: Array((size, len(COLUMNS[kind]))) for kind, size in sizes.items()},
            "fits": Array((self._queue_size, platform.n_nodes), np.int8),
            "node_cluster": Array((platform.n_nodes,), np.int64, max(platform.n_clusters - 1, 1)),
        }

    def begin(self, cluster: Cluster, wait_queue: WaitQueue) -> None:
        self._cluster, self._wait_queue = cluster, wait_queue
        self._jobs.begin(cluster, wait_queue)
        self._nodes.begin(cluster, wait_queue)
        platform = cluster.platform
        of_node = self._node_cluster = platform.node_cluster.astype(np.int64)
        links = np.zeros((platform.n_nodes + platform.n_clusters, len(LINK_FEATURES)), np.float32)
        for column, (local, between) in enumerate(
            ((platform.local_bandwidth, platform.global_bandwidth), (platform.local_latency, platform.global_latency))
        ):
            links[:, column] = relative_to_largest(np.concatenate([local[of_node], between]))
        cores = platform.node_cpu_cores.astype(np.float64)
        cores_behind = np.concatenate([cores, np.add.reduceat(cores, platform.cluster_first_node[:-1])])
        self._nodes.fixed = np.concatenate([self._nodes.fixed, links[: platform.n_nodes]], axis=1)
        self._clusters = links[platform.n_nodes :]
        # Nothing is behind the link of a node without cores.
        self._cores_behind = np.maximum(cores_behind, 1.0)
        self._shared: Floats = np.zeros(len(links))
        self._held: dict[int, tuple[Ints, Ints]] = {}
        self.started(cluster.running)

    def on_instant(self) -> None:
        for job in self._cluster.ended:
            links, cores = self._held.pop(job)
            self._shared[links] -= cores

    def started(self, jobs: Iterable[int]) -> None:
        for job in jobs:
            links, cores = self._held[job] = self._links_of(self._cluster.running[job])
            self._shared[links] += cores

    def observe(self) -> Observation:
        cluster, size = self._cluster, len(self._node_cluster)
        shared = self._shared / self._cores_behind
        rows, clusters = self._nodes.observe(), self._clusters.copy()
        rows[:, -1], clusters[:, -1] = shared[:size], shared[size:]
        fits = np.zeros((self._queue_size, size), np.int8)
        for row, job in enumerate(self._wait_queue.peek(self._queue_size)[0].tolist()):
            _, of_chunk, gpus, memory, *_ = cluster.requests.chunk(job)
            fitting(cluster.cores.state, of_chunk, gpus, memory, fits[row])
        return {
            "job": self._jobs.observe(),
            "node": rows,
            "cluster": clusters,
            "fits": fits,
            "node_cluster": self._node_cluster.copy(),
        }

    def _links_of(self, placement: Any) -> tuple[Ints, Ints]:
        """Links that the messages of a job may use, and the job's cores behind each; empty within one node."""
        nodes, counts = placement.nodes, placement.node_counts
        platform = self._cluster.platform
        if len(nodes) == 1:
            return nodes[:0], counts[:0]
        if platform.n_clusters == 1:
            return nodes, counts
        clusters = np.bincount(platform.node_cluster[nodes], counts, platform.n_clusters)
        across = clusters.nonzero()[0]
        if len(across) == 1:
            return nodes, counts
        return np.concatenate([nodes, platform.n_nodes + across]), np.concatenate([counts, clusters[across]])


def edges(observation: Mapping[str, NDArray[Any]]) -> dict[tuple[str, str, str], Ints]:
    """(2, E) source and target of the edges of each type, without those of absent jobs."""
    fits = np.stack(observation["fits"].nonzero())
    within = np.stack([np.arange(len(observation["node"])), observation["node_cluster"]])
    joins = np.stack(np.nonzero(~np.eye(len(observation["cluster"]), dtype=bool)))
    return dict(zip(EDGE_TYPES, (fits, fits[::-1], within, within[::-1], joins), strict=True))


def to_hetero_data(observation: Mapping[str, NDArray[Any]]) -> Any:
    """Converts one observation to a ``torch_geometric.data.HeteroData`` of its present vertices and edges.

    Types are `VERTEX_TYPES` and `EDGE_TYPES`, or those of stars; ``vertex`` has the row of each vertex in its array.
    """
    import torch
    from torch_geometric.data import HeteroData

    if "x" in observation:
        names, there, relations = STAR_VERTICES, observation["node_mask"] > 0, _star_edges(observation)
        kept = {name: np.flatnonzero(there & (observation["node_type"] == i)) for i, name in enumerate(names)}
        rows = {name: observation["x"][vertices] for name, vertices in kept.items()}
    else:
        relations = edges(observation)
        kept = {name: np.flatnonzero(observation[name].any(axis=1) | (name != "job")) for name in VERTEX_TYPES}
        rows = {name: observation[name][vertices] for name, vertices in kept.items()}
    data = HeteroData()
    for name, vertices in kept.items():
        data[name].x, data[name].vertex = torch.from_numpy(rows[name]), torch.from_numpy(vertices)
    for (source, relation, target), found in relations.items():
        ends = [np.searchsorted(kept[name], end) for name, end in zip((source, target), found, strict=True)]
        data[source, relation, target].edge_index = torch.from_numpy(np.stack(ends))
    return data


def _star_edges(observation: Mapping[str, NDArray[Any]]) -> dict[tuple[str, str, str], Ints]:
    present, kind = observation["edge_mask"] > 0, observation["edge_type"]
    return {name: observation["edge_index"][:, present & (kind == i)] for i, name in enumerate(STAR_EDGES)}


def to_data(observation: Mapping[str, NDArray[Any]]) -> Any:
    """Converts one observation to a ``torch_geometric.data.Data``; rows of fewer columns than others end in zeros."""
    from torch.nn.functional import pad

    data = to_hetero_data(observation)
    widest = max(x.shape[1] for x in data.x_dict.values())
    for kind, x in data.x_dict.items():
        data[kind].x = pad(x, (0, widest - x.shape[1]))
    return data.to_homogeneous()
