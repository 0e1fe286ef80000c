"""The store where cores have no ids: CPU, memory and GPUs of every node as quantities, as Kubernetes counts them."""

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
    """A placement: how much of which node.

    Attributes:
        nodes: (k,) nodes, ascending.
        node_counts: (k,) requested cores of the job on each.
        cpu: (k,) CPU that it takes of each, in cores.
        memory: (k,) bytes.
        gpus: (k,).
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

    A node is chosen for each chunk of a job in turn: by ``high_gflops`` and ``low_power`` that of its best processor
    decides, by ``high_mem_bw`` the bandwidth of its best processor, by ``high_mem`` its free memory, by ``high_cores``
    and ``spread`` its free CPU; ``pack`` takes the fewest nodes and of these the fullest; ``random`` any with room.
    Ties go to the first node. Memory bandwidth is not watched.

    Attributes:
        n_idle: Free CPU in cores.
        node_idle: (N,) the same of each node.
        node_memory: (N,) free bytes.
        free_bandwidth: (P,) GB/s of each processor.
        gpus: Free GPUs in `node_idle` (N,), None where no job asks for any.

    Args:
        platform: The platform.
        requests: What the jobs ask for.
        policy: Core policy used where `pick` is given none.
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
        """Returns nodes for every chunk of a job, or None; changes nothing.

        Args:
            job: Job index.
            policy: Name of the core policy, the store's own by default.
            limit: (N,) most chunks each node may give.
        """
        chunk = self._requests.chunk(job)
        room = np.minimum(self._free.capacity(chunk), chunk.number).astype(np.int64)
        if limit is not None:
            room = np.minimum(room, limit).astype(np.int64)
        if room.sum() < chunk.number:
            return None
        chosen = self._choose(chunk, room, policy or self._policy)
        nodes = chosen.nonzero()[0]
        counts = chosen[nodes] * chunk.cores
        return NodeAmounts(
            nodes, counts, _thousandths(counts, chunk), np.float64(chunk.memory) * counts, chosen[nodes] * chunk.gpus
        )

    def _choose(self, chunk: Chunk, room: Ints, policy: str) -> Ints:
        """(N,) chunks that each node gives, of the `room` that it has."""
        chosen = np.zeros_like(room)
        if policy in self._keys:
            order = np.argsort(-self._keys[policy], kind="stable")
            before = np.cumsum(room[order]) - room[order]
            chosen[order] = np.clip(chunk.number - before, 0, room[order])
        elif policy == "pack":
            left = chunk.number
            while left:
                # The fullest node that holds the rest, as long as there is none the roomiest.
                holding = np.flatnonzero((room - chosen >= left) & (chosen == 0))
                free = np.where(chosen == 0, room, -1)
                node = int(holding[self.node_idle[holding].argmin()] if len(holding) else free.argmax())
                chosen[node] = min(left, int(room[node]))
                left -= int(chosen[node])
        else:
            for _ in range(chunk.number):
                open_to = np.flatnonzero(chosen < room)
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
        """How many chunks of a job all nodes together can give now, counted up to `number` of each node."""
        return int(np.minimum(self._free.capacity(chunk), chunk.number).sum())

    def free_nodes(self) -> FreeNodes:
        """What every node can give now."""
        return self._free.copy()

    def allocate(self, job: int, placement: NodeAmounts) -> None:
        """Takes the amounts.

        Raises:
            DecisionError: A node has not as much.
        """
        self._free.add(placement.nodes, -placement.node_counts, self._requests.chunk(job))
        if not self._in_bounds(placement.nodes):
            self.release(job, placement)
            raise DecisionError(f"expected nodes with room for the job, got {placement.nodes.tolist()}")

    def release(self, job: int, placement: NodeAmounts) -> None:
        """Gives the amounts back."""
        self._free.add(placement.nodes, placement.node_counts, self._requests.chunk(job))

    def _in_bounds(self, nodes: Ints) -> bool:
        free = self._free
        enough = (free.idle[nodes] >= 0).all() and (free.memory[nodes] >= 0).all()
        return bool(enough and (free.gpus is None or (free.gpus[nodes] >= 0).all()))

    def slowest(self, placement: NodeAmounts) -> float:
        """Relative speed of the slowest processor that the job may be on."""
        return float(self._slowest[placement.nodes].min())

    def ids_of(self, placement: NodeAmounts) -> list[int]:
        """No core ids."""
        return []

    def cores_of(self, placements: Sequence[NodeAmounts], sizes: Ints) -> np.ndarray:
        """No core ids."""
        return np.zeros(0, np.int32)

    def check(self, running: Sequence[NodeAmounts]) -> None:
        """Checks that what is free and what jobs hold adds up to all there is.

        Raises:
            InvariantError: It does not.
        """
        free = self._free.copy()
        for held in running:
            free.idle[held.nodes] = np.round(free.idle[held.nodes] + held.cpu, 3)
            free.memory[held.nodes] += held.memory
            if free.gpus is not None:
                free.gpus[held.nodes] += held.gpus
        require(self._in_bounds(np.arange(len(free.idle))), "a node gives more than it has")
        require(np.array_equal(free.idle, self._all.idle), "CPU is lost or held twice")
        require(np.array_equal(free.memory, self._all.memory), "memory is lost or held twice")
        if free.gpus is not None and self._all.gpus is not None:
            require(np.array_equal(free.gpus, self._all.gpus), "a GPU is lost or held twice")


def _thousandths(counts: Ints, chunk: Chunk) -> Floats:
    """CPU in cores of so many requested cores of a job."""
    assert chunk.cpu is not None
    cpu: Floats = np.round(counts * chunk.cpu, 3)
    return cpu
