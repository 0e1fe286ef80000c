"""A store without core ids: quantities of CPU, memory and GPUs per node, as in Kubernetes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hdsim.cluster.requests import FreeNodes
from hdsim.errors import DecisionError, require
from hdsim.util.arrays import Floats, Ints
from hdsim.util.units import in_bytes

if TYPE_CHECKING:
    from hdsim.cluster.requests import Chunk, Requests
    from hdsim.platform.model import Platform


@dataclass(frozen=True, slots=True)
class NodeAmounts:
    """A placement in quantities per node.

    Attributes:
        nodes: (k,) nodes, ascending.
        node_counts: (k,) requested cores of the job on each node.
        cpu: (k,) CPU in cores.
        memory: (k,) memory in bytes.
        gpus: (k,) GPUs.
    """

    nodes: Ints
    node_counts: Ints
    cpu: Floats
    memory: Floats
    gpus: Ints

    def __len__(self) -> int:
        """Number of core ids: none."""
        return 0


class _NodeGpus(NamedTuple):
    node_idle: Ints


class NodeQuantities:
    """Free CPU, memory and GPUs of nodes.

    Chunks of a job are placed one by one. ``high_gflops``, ``low_power`` and ``high_mem_bw`` score a node by its best
    processor, ``high_mem`` by its free memory, ``high_cores`` and ``spread`` by its free CPU; ``pack`` selects the
    fewest and then the fullest nodes, ``random`` any node with capacity. Ties go to the first node. Memory bandwidth is
    not tracked.

    Attributes:
        n_idle: Free CPU in cores.
        node_idle: (N,) free CPU of each node in cores.
        node_memory: (N,) free bytes.
        free_bandwidth: (P,) memory bandwidth of each processor in GB/s.
        gpus: Free GPUs in `node_idle` (N,), None if no job requests any.

    Args:
        platform: The platform.
        requests: Requests of the jobs.
        policy: Default core policy of `pick`.
        rng: For the `random` policy.
    """

    def __init__(self, platform: Platform, requests: Requests, policy: str, rng: np.random.Generator) -> None:
        self._requests, self._policy, self._rng = requests, policy, rng
        self._free = FreeNodes(
            platform.node_cpu_cores.astype(np.float64),
            in_bytes(platform.memory),
            None if requests.gpus is None else platform.node_gpus.copy(),
        )
        self._all = self._free.copy()
        self.node_idle, self.node_memory, self.free_bandwidth = self._free.idle, self._free.memory, platform.mem_bw
        self.gpus = None if self._free.gpus is None else _NodeGpus(self._free.gpus)
        first, cpu = platform.node_first_processor[:-1], ~platform.is_gpu
        speed = platform.gflops / platform.reference_gflops
        self._slowest = np.minimum.reduceat(np.where(cpu, speed, np.inf), first)
        self._keys = {
            policy: np.maximum.reduceat(np.where(cpu, key, -np.inf), first)
            for policy, key in (
                ("high_gflops", platform.gflops),
                ("low_power", -platform.power),
                ("high_mem_bw", platform.mem_bw),
            )
        }

    @property
    def n_idle(self) -> float:
        """Free CPU in cores."""
        return round(float(self.node_idle.sum()), 3)

    def pick(self, job: int, policy: str | None = None, limit: Floats | Ints | None = None) -> NodeAmounts | None:
        """Selects nodes for the chunks of a job without allocating them; None if they do not fit.

        Args:
            job: Job index.
            policy: Name of the core policy, by default that of the store.
            limit: (N,) maximum number of chunks on each node.
        """
        chunk = self._requests.chunk(job)
        capacity = np.minimum(self._free.capacity(chunk), chunk.number).astype(np.int64)
        if limit is not None:
            capacity = np.minimum(capacity, limit).astype(np.int64)
        if capacity.sum() < chunk.number:
            return None
        chosen = self._choose(chunk, capacity, policy or self._policy)
        nodes = chosen.nonzero()[0]
        counts = chosen[nodes] * chunk.cores
        return NodeAmounts(
            nodes, counts, _thousandths(counts, chunk), np.float64(chunk.memory) * counts, chosen[nodes] * chunk.gpus
        )

    def _choose(self, chunk: Chunk, capacity: Ints, policy: str) -> Ints:
        """Returns (N,) chunks on each node, at most its capacity."""
        chosen = np.zeros_like(capacity)
        if policy in self._keys:
            order = np.argsort(-self._keys[policy], kind="stable")
            before = np.cumsum(capacity[order]) - capacity[order]
            chosen[order] = np.clip(chunk.number - before, 0, capacity[order])
        elif policy == "pack":
            left = chunk.number
            while left:
                # The fullest node that holds the rest, otherwise the node of largest capacity.
                holding = np.flatnonzero((capacity - chosen >= left) & (chosen == 0))
                free = np.where(chosen == 0, capacity, -1)
                node = int(holding[self.node_idle[holding].argmin()] if len(holding) else free.argmax())
                chosen[node] = min(left, int(capacity[node]))
                left -= int(chosen[node])
        else:
            for _ in range(chunk.number):
                open_to = np.flatnonzero(chosen < capacity)
                if policy == "random":
                    node = self._rng.choice(open_to)
                elif policy == "high_mem":
                    node = open_to[(self.node_memory - chosen * chunk.cores * chunk.memory)[open_to].argmax()]
                else:
                    idle = np.round(self.node_idle - _thousandths(chosen * chunk.cores, chunk), 3)
                    node = open_to[idle[open_to].argmax()]
                chosen[node] += 1
        return chosen

    def chunks(self, chunk: Chunk) -> int:
        """Returns the number of chunks of a job that fit on all nodes together, at most `number` per node."""
        return int(np.minimum(self._free.capacity(chunk), chunk.number).sum())

    def free_nodes(self) -> FreeNodes:
        """Returns a copy of the free resources of all nodes."""
        return self._free.copy()

    def allocate(self, job: int, placement: NodeAmounts) -> None:
        """Allocates a placement to a job.

        Raises:
            DecisionError: The free resources of a node do not suffice.
        """
        self._free.add(placement.nodes, -placement.node_counts, self._requests.chunk(job))
        if not self._in_bounds(placement.nodes):
            self.release(job, placement)
            raise DecisionError(f"expected nodes with capacity for the job, got {placement.nodes.tolist()}")

    def release(self, job: int, placement: NodeAmounts) -> None:
        """Releases the placement of a job."""
        self._free.add(placement.nodes, placement.node_counts, self._requests.chunk(job))

    def _in_bounds(self, nodes: Ints) -> bool:
        free = self._free
        enough = (free.idle[nodes] >= 0).all() and (free.memory[nodes] >= 0).all()
        return bool(enough and (free.gpus is None or (free.gpus[nodes] >= 0).all()))

    def slowest(self, placement: NodeAmounts) -> float:
        """Returns the speed of the slowest processor of the nodes relative to the reference speed."""
        return float(self._slowest[placement.nodes].min())

    def ids_of(self, placement: NodeAmounts) -> list[int]:
        """Returns an empty result: there are no core ids."""
        return []

    def cores_of(self, placements: Sequence[NodeAmounts], sizes: Ints) -> np.ndarray:
        """Returns an empty result: there are no core ids."""
        return np.zeros(0, np.int32)

    def check(self, running: Sequence[NodeAmounts]) -> None:
        """Checks that free and allocated resources add up to the platform.

        Raises:
            InvariantError: They do not.
        """
        free = self._free.copy()
        for held in running:
            free.idle[held.nodes] = np.round(free.idle[held.nodes] + held.cpu, 3)
            free.memory[held.nodes] += held.memory
            if free.gpus is not None:
                free.gpus[held.nodes] += held.gpus
        require(
            self._in_bounds(np.arange(len(free.idle))),
            "a node has negative free resources",
        )
        require(np.array_equal(free.idle, self._all.idle), "CPU is lost or allocated twice")
        require(np.array_equal(free.memory, self._all.memory), "memory is lost or allocated twice")
        if free.gpus is not None and self._all.gpus is not None:
            require(np.array_equal(free.gpus, self._all.gpus), "a GPU is lost or allocated twice")


def _thousandths(counts: Ints, chunk: Chunk) -> Floats:
    """Returns the CPU in cores of requested cores of a job."""
    assert chunk.cpu is not None
    cpu: Floats = np.round(counts * chunk.cpu, 3)
    return cpu
