"""Observation of queue and platform as a graph of jobs, nodes, processors and links."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hdsim.decisions.base import Array, Observation, Observer, oversubscription_limit, relative_to_largest
from hdsim.decisions.observations.jobs import Jobs
from hdsim.decisions.observations.nodes import Nodes
from hdsim.decisions.observations.star import STAR_EDGES, STAR_VERTICES, STAR_WIDTH, StarGraph
from hdsim.kernels.nodes import fitting
from hdsim.kernels.rows import write_processors
from hdsim.platform.schema import QUANTITIES
from hdsim.util.arrays import Floats, Ints

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.decisions.wait_queue import WaitQueue
    from hdsim.platform.model import Platform

VERTEX_TYPES = ("job", "node", "processor", "link")
JOB, NODE, PROCESSOR, LINK = range(len(VERTEX_TYPES))
#: Types of edges: type of the source, relation, type of the target.
EDGE_TYPES = (
    ("job", "fits", "node"),
    ("node", "takes", "job"),
    ("node", "has", "processor"),
    ("processor", "of", "node"),
    ("node", "sends_by", "link"),
    ("link", "leads_to", "node"),
    ("link", "joins", "link"),
)
FITS, TAKES = range(2)
PROCESSOR_FEATURES = ("idle_cores", "free_bandwidth", "speed", "power", "cores", "oversubscribed", "gpu")
LINK_FEATURES = ("bandwidth", "latency", "global", "shared")
WIDTH = 8


class Graph(Observer):
    """A dictionary of arrays in PyTorch Geometric's names, with V vertices and E directed edges.

    * ``x`` (V, 8): features of the vertices. First `queue_size` queued jobs with the columns of `Jobs`; N nodes with
      the first 8 columns of `Nodes`; P processors: idle cores, free bandwidth, speed and power per core, number of
      cores, oversubscription of the bandwidth (0 or 1), GPU (0 or 1); N links of nodes, then K links of clusters:
      bandwidth and latency as shares of the largest, cluster link (0 or 1), and the share of the cores behind the link
      that serve jobs with cores elsewhere too.
    * ``node_type`` (V,): index in `VERTEX_TYPES`; ``node_mask`` (V,): 0 for unused job vertices, 1 for all others.
    * ``edge_index`` (2, E): source and target; ``edge_type`` (E,): index in `EDGE_TYPES`; ``edge_mask`` (E,): 1 for
      a present edge. The edges of a job and a node are present while a chunk of the job fits on the node; all other
      edges are always present.

    The order of vertices and edges is the same in every observation of a platform. A platform of quantities, which has
    neither cores nor processors to tell apart, is observed as a :class:`StarGraph` instead.

    Args:
        queue_size: Vertices for jobs.
    """

    needs_core_ids = True

    sees_cores = True

    def __init__(self, queue_size: int = 32) -> None:
        self._jobs = Jobs(queue_size)
        self._nodes = Nodes()
        self._queue_size = queue_size

    def on(self, platform: Platform) -> Observer:
        """See :meth:`Observer.on`."""
        return StarGraph(self._queue_size) if platform.kind == QUANTITIES else self

    def arrays(self, platform: Platform) -> dict[str, Array]:
        """See :meth:`Observer.arrays`."""
        layout = Layout(platform, self._queue_size)
        vertices, edges = len(layout.vertex_type), len(layout.edge_type)
        return {
            "x": Array((vertices, WIDTH)),
            "node_type": Array((vertices,), np.int8, len(VERTEX_TYPES) - 1),
            "node_mask": Array((vertices,), np.int8),
            "edge_index": Array((2, edges), np.int64, vertices - 1),
            "edge_type": Array((edges,), np.int8, len(EDGE_TYPES) - 1),
            "edge_mask": Array((edges,), np.int8),
        }

    def begin(self, cluster: Cluster, wait_queue: WaitQueue) -> None:
        """See :meth:`Observer.begin`."""
        self._cluster, self._wait_queue = cluster, wait_queue
        self._jobs.begin(cluster, wait_queue)
        self._nodes.begin(cluster, wait_queue)
        platform = cluster.platform
        layout = self._layout = Layout(platform, self._queue_size)
        self._x = np.zeros((len(layout.vertex_type), WIDTH), np.float32)
        self._x[layout.of(NODE)] = self._nodes.fixed[:, :WIDTH]
        owned = platform.cores_per_processor
        processors = self._x[layout.of(PROCESSOR)]
        processors[:, 2] = relative_to_largest(platform.gflops)
        processors[:, 3] = relative_to_largest(platform.power)
        processors[:, 4] = relative_to_largest(owned)
        processors[:, 6] = platform.is_gpu
        links = self._x[layout.of(LINK)]
        cluster_of = platform.node_cluster
        links[:, 0] = relative_to_largest(
            np.concatenate([platform.local_bandwidth[cluster_of], platform.global_bandwidth])
        )
        links[:, 1] = relative_to_largest(np.concatenate([platform.local_latency[cluster_of], platform.global_latency]))
        links[platform.n_nodes :, 2] = 1.0
        self._node_mask = np.ones(len(layout.vertex_type), np.int8)
        self._edge_mask = (layout.edge_type > TAKES).astype(np.int8)
        cores = platform.node_cpu_cores.astype(np.float64)
        self._cores_behind = np.concatenate([cores, np.add.reduceat(cores, platform.cluster_first_node[:-1])])
        self._owned, self._overdrawn = owned.astype(np.int64), oversubscription_limit(platform)
        self._shared: Floats = np.zeros(len(links))
        self._held: dict[int, tuple[Ints, Ints]] = {}
        self._known = 0

    def on_instant(self) -> None:
        """See :meth:`Observer.on_instant`."""
        self._known = 0
        for job in self._cluster.ended:
            links, cores = self._held.pop(job)
            self._shared[links] -= cores

    def after_action(self) -> None:
        """See :meth:`Observer.after_action`."""
        started = self._cluster.started[self._known :]
        self._known += len(started)
        for job in started:
            links, cores = self._held[job] = self._links_of(self._cluster.running[job])
            self._shared[links] += cores

    def observe(self) -> Observation:
        """See :meth:`Observer.observe`."""
        layout, cluster = self._layout, self._cluster
        cores, platform = cluster.cores, cluster.platform
        x, node_mask, edge_mask = self._x.copy(), self._node_mask.copy(), self._edge_mask.copy()
        self._jobs.fill(x[layout.of(JOB)])
        self._nodes.fill(x[layout.of(NODE)], self._wait_queue.next_job())
        bandwidth = cores.free_bandwidth, platform.mem_bw, self._overdrawn
        write_processors(cores.processor_busy(), self._owned, *bandwidth, x[layout.of(PROCESSOR)])
        np.divide(self._shared, self._cores_behind, out=x[layout.of(LINK), 3], where=self._cores_behind > 0)
        jobs, _ = self._wait_queue.peek(self._queue_size)
        node_mask[len(jobs) : self._queue_size] = 0
        edges = self._queue_size * platform.n_nodes
        fits = edge_mask[:edges].reshape(self._queue_size, platform.n_nodes)
        for row, job in enumerate(jobs.tolist()):
            _, of_chunk, gpus, memory, *_ = cluster.requests.chunk(job)
            fitting(cores.state, of_chunk, gpus, memory, fits[row])
        edge_mask[edges : 2 * edges] = edge_mask[:edges]
        return {
            "x": x,
            "node_type": layout.vertex_type.copy(),
            "node_mask": node_mask,
            "edge_index": layout.edge_index.copy(),
            "edge_type": layout.edge_type.copy(),
            "edge_mask": edge_mask,
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


class Layout:
    """Order of vertices and edges.

    Attributes:
        vertex_type: (V,) index in `VERTEX_TYPES`, ascending.
        edge_index: (2, E) source and target.
        edge_type: (E,) index in `EDGE_TYPES`, ascending.

    Args:
        platform: The platform.
        queue_size: Vertices for jobs.
    """

    def __init__(self, platform: Platform, queue_size: int) -> None:
        nodes, processors, clusters = platform.n_nodes, platform.n_processors, platform.n_clusters
        counts = (queue_size, nodes, processors, nodes + clusters)
        self._first = np.concatenate([[0], np.cumsum(counts)])
        self.vertex_type = np.repeat(np.arange(len(counts), dtype=np.int8), counts)
        job, node, processor, link = (np.arange(a, b) for a, b in zip(self._first, self._first[1:], strict=False))
        of_job = np.stack([np.repeat(job, nodes), np.tile(node, queue_size)])
        of_processor = np.stack([node[platform.processor_node], processor])
        of_link = np.stack([node, link[:nodes]])
        to_cluster = np.stack([link[:nodes], link[nodes + platform.node_cluster]])
        one, other = np.nonzero(~np.eye(clusters, dtype=bool))
        joined = np.concatenate(
            [to_cluster, to_cluster[::-1], np.stack([link[nodes + one], link[nodes + other]])], axis=1
        )
        kinds = (of_job, of_job[::-1], of_processor, of_processor[::-1], of_link, of_link[::-1], joined)
        self.edge_index = np.concatenate(kinds, axis=1)
        self.edge_type = np.repeat(np.arange(len(kinds), dtype=np.int8), [kind.shape[1] for kind in kinds])

    def of(self, kind: int) -> slice:
        """Vertices of a type."""
        return slice(int(self._first[kind]), int(self._first[kind + 1]))


def to_data(observation: Mapping[str, NDArray[Any]]) -> Any:
    """Converts one observation to a ``torch_geometric.data.Data`` of its present vertices and edges.

    ``node_type`` and ``edge_type`` are those of the observation; ``vertex`` has the index of each vertex in it.
    """
    import torch
    from torch_geometric.data import Data

    kept, place, edges = _present(observation)
    edge_index = place[observation["edge_index"][:, edges]]
    return Data(
        x=torch.from_numpy(observation["x"][kept]),
        edge_index=torch.from_numpy(edge_index),
        node_type=torch.from_numpy(observation["node_type"][kept]),
        edge_type=torch.from_numpy(observation["edge_type"][edges]),
        vertex=torch.from_numpy(kept),
    )


def to_hetero_data(observation: Mapping[str, NDArray[Any]]) -> Any:
    """Converts one observation to a ``HeteroData`` with `VERTEX_TYPES` and `EDGE_TYPES`, or those of stars."""
    import torch
    from torch_geometric.data import HeteroData

    kept, _, edges = _present(observation)
    vertex_type = observation["node_type"]
    star = observation["x"].shape[1] == STAR_WIDTH
    names, relations = (STAR_VERTICES, STAR_EDGES) if star else (VERTEX_TYPES, EDGE_TYPES)
    data = HeteroData()
    local = np.full(len(vertex_type), -1)
    for number, name in enumerate(names):
        vertices = kept[vertex_type[kept] == number]
        local[vertices] = np.arange(len(vertices))
        data[name].x = torch.from_numpy(observation["x"][vertices])
        data[name].vertex = torch.from_numpy(vertices)
    for number, relation in enumerate(relations):
        chosen = edges[observation["edge_type"][edges] == number]
        data[relation].edge_index = torch.from_numpy(local[observation["edge_index"][:, chosen]])
    return data


def _present(observation: Mapping[str, NDArray[Any]]) -> tuple[Ints, Ints, Ints]:
    """Indices of the present vertices, the new number of each vertex, and indices of the present edges."""
    there = observation["node_mask"] > 0
    return there.nonzero()[0], np.cumsum(there) - 1, observation["edge_mask"].nonzero()[0]
