"""Observation of queue and nodes as a graph, for platforms of quantities."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hdsim.decisions.base import Array, FreeShares, Observation, Observer, positive_int, relative_to_largest
from hdsim.decisions.observations.jobs import scaled_time
from hdsim.util.arrays import Floats, Ints
from hdsim.util.units import in_bytes

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.decisions.wait_queue import WaitQueue
    from hdsim.platform.model import Platform

STAR_VERTICES = ("job", "node", "control_plane")
#: Types of edges: type of the source, relation, type of the target.
STAR_EDGES = (
    ("job", "waits_at", "control_plane"),
    ("node", "reports_to", "control_plane"),
    ("control_plane", "queues", "job"),
    ("control_plane", "manages", "node"),
)
NODE_FEATURES = (
    "cpu",
    "memory",
    "pods",
    "speed",
    "used_cpu",
    "used_memory",
    "used_pods",
    "used_gpus",
    "room",
    "chosen",
)
JOB_FEATURES = ("waited", "requested_time", "cpu", "memory", "gpus")
NEXT_JOB_FEATURES = ("left", "cpu", "memory", "requested_time", "waited")
STAR_WIDTH = len(NODE_FEATURES)
_USED, _ROOM, _CHOSEN = 4, 8, 9


class StarGraph(Observer):
    """A dictionary of arrays as that of `Graph`: a star whose centre, the control plane, is joined to all others.

    * ``x`` (V, 10). First `queue_size` queued jobs in order of submission: waiting time and requested time as in
      `Jobs`; CPU, memory and GPUs as shares of the platform's. Then N nodes: CPU, memory, limit of pods and speed as
      shares of the largest of any node; used CPU, memory, pods and GPUs as shares of the node's; share of the remaining
      next job that fits on the node, and share of the job that is assigned to it. Last the control plane with the next
      job: share of its pods without a node yet; CPU and memory of a pod as shares of the largest node's; requested time
      and waiting time. An unlimited resource counts as the largest, its use as 0.
    * ``node_type`` and ``edge_type``: indices in `STAR_VERTICES` and `STAR_EDGES`; ``node_mask`` and ``edge_mask``: 0
      for unused job vertices and their edges. Only ``x`` and the masks change.
    """

    sees_cores = True

    def __init__(self, queue_size: int) -> None:
        self._queue_size = positive_int("queue_size", queue_size)

    def arrays(self, platform: Platform) -> dict[str, Array]:
        leaves = self._queue_size + platform.n_nodes
        return {
            "x": Array((leaves + 1, STAR_WIDTH)),
            "node_type": Array((leaves + 1,), np.int8, len(STAR_VERTICES) - 1),
            "node_mask": Array((leaves + 1,), np.int8),
            "edge_index": Array((2, 2 * leaves), np.int64, leaves),
            "edge_type": Array((2 * leaves,), np.int8, len(STAR_EDGES) - 1),
            "edge_mask": Array((2 * leaves,), np.int8),
        }

    def begin(self, cluster: Cluster, wait_queue: WaitQueue) -> None:
        self._cluster, self._wait_queue = cluster, wait_queue
        platform, jobs, nodes = cluster.platform, self._queue_size, cluster.platform.n_nodes
        leaf, centre = np.arange(jobs + nodes), np.full(jobs + nodes, jobs + nodes)
        counts = [jobs, nodes]
        self._constant = {
            "node_type": np.repeat(np.arange(3, dtype=np.int8), [*counts, 1]),
            "edge_index": np.concatenate([np.stack([leaf, centre]), np.stack([centre, leaf])], axis=1),
            "edge_type": np.repeat(np.arange(4, dtype=np.int8), counts * 2),
        }
        self._cpu, memory, gpus = platform.node_cpu, in_bytes(platform.memory), platform.node_gpus
        self._totals = np.array([self._cpu.sum(), memory.sum(), max(gpus.sum(), 1)])
        self._largest_memory = float(memory.max())
        self._largest_cpu = float(self._cpu.max())
        self._shares = [
            FreeShares(np.where(each > 0, each, np.inf)) for each in (self._cpu, memory, platform.node_pods)
        ]
        self._gpus = np.maximum(gpus, 1)
        self._x = np.zeros((jobs + nodes + 1, STAR_WIDTH), np.float32)
        speed = np.maximum.reduceat(platform.gflops, platform.node_first_processor[:-1])
        for column, amounts in enumerate((self._cpu, memory, platform.node_pods, speed)):
            self._x[jobs:-1, column] = relative_to_largest(amounts)

    def observe(self) -> Observation:
        x, jobs = self._x.copy(), self._queue_size
        queued = np.array(self._wait_queue.jobs[:jobs], np.int64)
        if len(queued):
            x[: len(queued), : len(JOB_FEATURES)] = self._jobs(queued)
        self._fill_nodes(x[jobs:-1])
        self._fill_next_job(x[jobs:])
        node_mask = np.ones(len(x), np.int8)
        node_mask[len(queued) : jobs] = 0
        constant = {name: array.copy() for name, array in self._constant.items()}
        return {"x": x, "node_mask": node_mask, "edge_mask": np.tile(node_mask[:-1], 2), **constant}

    def _jobs(self, queued: Ints) -> Floats:
        """(Q, 5) columns of queued jobs."""
        now, known = self._cluster.now, self._cluster.workload
        cores = known.requested_cores[queued]
        demand = np.stack(
            [cores * known.cpu[queued], cores * in_bytes(known.memory[queued]), known.requested_gpus[queued]]
        )
        times = scaled_time(np.stack([now - known.submission_time[queued], known.requested_time[queued]]))
        return np.concatenate([times, np.minimum(demand / self._totals[:, None], 1.0)]).T

    def _fill_nodes(self, rows: NDArray[np.float32]) -> None:
        """Writes the columns of nodes that change with time."""
        store = self._cluster.cores
        free = (store.node_idle, store.node_memory, store.node_pods)
        for column, (shares, amounts) in enumerate(zip(self._shares, free, strict=True), _USED):
            if amounts is not None:
                shares.write(amounts, rows[:, column])
                np.subtract(1.0, rows[:, column], out=rows[:, column])
        if store.node_gpus is not None:
            rows[:, _USED + 3] = (self._cluster.platform.node_gpus - store.node_gpus) / self._gpus

    def _fill_next_job(self, rows: NDArray[np.float32]) -> None:
        """Writes what the next job has to do with each node, and its own columns into the last row."""
        partial, cluster = self._wait_queue.next_job(), self._cluster
        if partial is None:
            return
        job = partial.job
        rows[:-1, _ROOM] = np.minimum(partial.capacity / max(partial.chunks, 1), 1.0)
        rows[:-1, _CHOSEN] = partial.chosen / partial.total
        chunk = cluster.requests.chunk(job)
        rows[-1, : len(NEXT_JOB_FEATURES)] = (
            partial.chunks / partial.total,
            min(partial.cpu_per_chunk / self._largest_cpu, 1.0),
            min(chunk.cores * chunk.memory / self._largest_memory, 1.0),
            scaled_time(cluster.requested_time[job]),
            scaled_time(cluster.now - cluster.workload.submission_time[job]),
        )
