"""Idle cores and GPUs, free memory and free bandwidth of nodes and processors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.kernels import nodes as kernels
from hdsim.cluster.kernels.chunks import Chunk
from hdsim.cluster.kernels.nodes import BUSY, TAKEN, UNLIMITED, pick_listed, total_room
from hdsim.cluster.kernels.placements import lowest
from hdsim.cluster.placement import Placement
from hdsim.cluster.policies import CORE_POLICIES, SCORES
from hdsim.cluster.requests import FreeNodes
from hdsim.cluster.scores import NodeScores
from hdsim.cluster.selection import own_scores, static_scores
from hdsim.errors import DecisionError, require
from hdsim.util.arrays import Floats, Ints
from hdsim.util.copies import with_own_containers
from hdsim.util.units import in_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hdsim.cluster.requests import Requests
    from hdsim.platform.model import Platform

#: Core policies whose scores change with each core.
_DYNAMIC = {
    name: getattr(kernels, name.upper()) for name in ("high_cores", "high_mem", "high_mem_bw", "spread", "pack")
}
#: The policy that chooses the first cores by id.
_BY_ID = 0


def _rows(number: int, *columns: NDArray[Any]) -> Ints:
    """Returns integers of processors or nodes as the first rows of an array with a number of rows."""
    rows = np.zeros((number, len(columns[0])), np.int64)
    for row, column in zip(rows, columns, strict=False):
        row[: len(column)] = column
    return rows


class NodeCores:
    """Idle cores and GPUs, free memory of nodes and free bandwidth of processors.

    Attributes:
        state: The arrays that the kernels change.
        nodes: Views of the state; the following are some of them.
        idle: (C,) idle cores and, if any job requests them, GPUs.
        node_idle: (N,) idle cores of each node without GPUs.
        node_gpus: (N,) idle GPUs of each node, None if no job requests any.
        node_memory: (N,) free bytes of each node.
        free_bandwidth: (P,) free memory bandwidth of each processor in GB/s.
        policies: Number of each core policy that :func:`hdsim.cluster.kernels.nodes.pick` knows.
        n_idle: Number of idle cores without GPUs.
    """

    def __init__(self, platform: Platform, requests: Requests, policy: str, rng: np.random.Generator) -> None:
        self._platform = platform
        self._requests = requests
        self._size, self._memory, self._bandwidth = requests.size, requests.memory, requests.bandwidth
        self._rng = rng
        self._core_speed = (platform.gflops / platform.reference_gflops)[platform.core_processor]
        static = static_scores(platform, requests)
        self.policies = _DYNAMIC | {name: row for row, name in enumerate(static, _BY_ID + 1)}
        cores = np.flatnonzero(~platform.is_gpu)
        is_gpu = platform.is_gpu[platform.core_processor]
        usable = ~is_gpu if requests.gpus is None else np.ones(platform.n_cores, np.bool_)
        self._usable = usable.copy()
        self._cpu = None if requests.gpus is None else ~is_gpu
        idle = np.bincount(platform.core_processor, usable)
        self.state = (
            platform.core_processor.astype(np.int64),
            usable,
            _rows(5, platform.processor_first_core, platform.processor_node, platform.is_gpu, idle),
            _rows(9, platform.node_first_processor, platform.node_cpu_cores, platform.node_gpus),
            np.stack([cores, *(cores[np.argsort(-key[cores], kind="stable")] for key in static.values())]),
            np.concatenate([in_bytes(platform.memory), platform.mem_bw, np.zeros(platform.n_nodes)]),
        )
        self._view()
        self.use(policy)
        self.n_idle = platform.n_cpu_cores
        self._processor_usable = self.nodes.processor_idle.copy()
        self._scores = NodeScores(platform.node_cpu_cores, self.node_memory)
        # Results of `chunks` since the last allocation or release.
        self._chunks: dict[tuple[int, int, float], int] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> NodeCores:
        """Returns a copy with its own state."""
        other = with_own_containers(self, memo)
        other._view()
        return other

    def _view(self) -> None:
        nodes = self.nodes = kernels.views(self.state)
        self.idle, self.node_idle, self.node_memory = nodes.idle, nodes.node_idle, nodes.node_memory
        self.free_bandwidth = nodes.free_bandwidth
        self.node_gpus = None if self._requests.gpus is None else nodes.node_gpus

    def use(self, policy: str) -> None:
        """Sets the core policy that :meth:`pick` follows by default.

        Raises:
            ConfigError: There is no such policy.
        """
        self.policy = policy
        if policy in CORE_POLICIES or policy in self.policies:
            return
        ranked, scores = self.state[4], own_scores(policy, self._platform)
        self.policies = {**self.policies, policy: len(ranked)}
        added = ranked[_BY_ID][np.argsort(-scores[ranked[_BY_ID]], kind="stable")]
        self.state = (*self.state[:4], np.vstack([ranked, added]), self.state[5])
        self._view()

    def pick(self, job: int, policy: str | None = None, limit: Floats | Ints | None = None) -> Placement | None:
        """Selects the cores that the core policy selects one at a time, without allocating them; None if none fit.

        Args:
            job: Job index.
            policy: Name of the core policy, by default that of the store.
            limit: (N,) maximum number of chunks on each node (for reservations of backfilling); a chunk is a core
                unless the job requests GPUs.

        Raises:
            DecisionError: There is no such core policy.
        """
        number = self._size[job]
        if number > self.n_idle:
            return None
        policy = policy or self.policy
        memory, most = self._memory[job], UNLIMITED if limit is None else np.ascontiguousarray(limit, np.int64)
        out = np.empty(number, np.int64)
        cores, gpus = 1, 0
        if self._requests.gpus:
            number, cores, gpus, *_ = self._requests.chunk(job)
            out = np.empty(number * (cores + gpus), np.int64)
        if policy == "random":
            if total_room(self.state, cores, gpus, memory, most) < number:
                return None
            order = self._rng.permutation((self.idle if self._cpu is None else self.idle & self._cpu).nonzero()[0])
            among = np.zeros(len(self.idle), np.bool_)
            pick_listed(self.state, order, number, cores, gpus, memory, most, among, out)
            return Placement(out, self._platform)
        code = self.policies.get(policy)
        if code is None:
            if policy not in SCORES:
                raise DecisionError(f"expected one of {', '.join(('random', *self.policies, *SCORES))}, got '{policy}'")
            chosen = self._by_score(self._requests.chunk(job), policy, limit)
            if chosen is None:
                return None
            code, most = _BY_ID, chosen
        if kernels.pick(self.state, code, number, cores, gpus, memory, self._bandwidth[job], most, out):
            return Placement(out, self._platform)
        return None

    def _by_score(self, chunk: Chunk, policy: str, limit: Floats | Ints | None) -> Ints | None:
        """Returns the (N,) chunks on each node under a policy of `SCORES`, None if they do not fit."""
        capacity = self.capacity(chunk)
        if limit is not None:
            capacity = np.minimum(capacity, limit).astype(np.int64)
        if capacity.sum() < chunk.number:
            return None
        self._scores.without[1] = self.nodes.without_memory
        return self._scores.choose(policy, chunk, capacity, (self.node_idle, self.node_memory))

    def fits(self, job: int) -> bool:
        """Whether the idle cores, and memory and GPUs beside them, suffice for a job."""
        number, cores, gpus, memory = self._size[job], 1, 0, self._memory[job]
        if self._requests.gpus:
            number, cores, gpus, *_ = self._requests.chunk(job)
        # A workload has few different chunks, and counting one is a pass over all nodes.
        kind = cores, gpus, memory
        if kind not in self._chunks:
            self._chunks[kind] = total_room(self.state, *kind, UNLIMITED)
        return self._chunks[kind] >= number

    def capacity(self, chunk: Chunk) -> Ints:
        """Returns the number of chunks of a job that fit on each node."""
        total_room(self.state, chunk.cores, chunk.gpus, chunk.memory, UNLIMITED)
        return self.nodes.rooms.copy()

    def processor_busy(self) -> Ints:
        """Returns (P,) allocated cores, or GPUs, of each processor."""
        return self._processor_usable - self.nodes.processor_idle

    def free_nodes(self) -> FreeNodes:
        """Returns a copy of the free resources of all nodes."""
        return FreeNodes(self.node_idle, self.node_memory, self.node_gpus)

    def placement_of(self, cores: Sequence[int] | Ints) -> Placement:
        """Converts ids of cores and GPUs to a placement."""
        return Placement(np.sort(np.asarray(cores, np.int64)), self._platform)

    def allocate(self, job: int, placement: Placement) -> None:
        """Allocates the cores, memory and bandwidth of a placement to a job.

        Raises:
            DecisionError: A core is busy or given twice, or the memory of a node does not suffice.
        """
        ids, memory = placement.ids, self._memory[job]
        outcome = kernels.allocate(self.state, ids, memory, self._bandwidth[job])
        if outcome == TAKEN:
            self._count(-len(placement.cores))
        elif outcome == BUSY:
            busy = ids[~self.idle[ids]].tolist()
            raise DecisionError(f"expected idle cores, got {f'busy {busy}' if busy else 'a core twice'}")
        else:
            left = self.node_memory[placement.nodes] - placement.node_counts * memory
            node, short = placement.nodes[left < 0][0], left[left < 0][0]
            raise DecisionError(
                f"expected {memory / 1e6:g} MB a core, but node {node} would have {short / 1e6:g} MB free"
            )

    def release(self, job: int, placement: Placement) -> None:
        """Releases the cores, memory and bandwidth of a placement."""
        kernels.release(self.state, placement.ids, self._memory[job], self._bandwidth[job])
        self._count(len(placement.cores))

    def _count(self, cores: int) -> None:
        self.n_idle += cores
        self._chunks.clear()

    def slowest(self, placement: Placement) -> float:
        """Returns the speed of the slowest core relative to the reference speed."""
        return lowest(self._core_speed, placement.cores)

    def cores_of(self, placements: Sequence[Placement], sizes: Ints) -> NDArray[np.int32]:
        """Returns the core ids of many placements, concatenated, ascending within each."""
        if not placements:
            return np.zeros(0, np.int32)
        return np.concatenate([placement.ids for placement in placements]).astype(np.int32)

    def ids_of(self, placement: Placement) -> list[int]:
        """Returns the core ids of a placement, ascending."""
        return placement.ids.tolist()

    def idle_ids(self) -> Ints:
        """Ids of the idle cores and GPUs, ascending."""
        return self.idle.nonzero()[0]

    def check(self, running: Sequence[Placement]) -> None:
        """Checks that each core is idle or allocated to exactly one running job and that the counts agree."""
        held = np.concatenate([placement.ids for placement in running]) if running else np.zeros(0, np.int64)
        busy = np.bincount(held, minlength=len(self.idle))
        require(busy.max(initial=0) <= 1, "a core is allocated twice")
        require(np.array_equal((busy == 0) & self._usable, self.idle), "an idle core is allocated or a busy one is not")
        nodes = self.nodes
        idle = np.bincount(nodes.core_processor, self.idle)
        of_node, gpus = np.bincount(nodes.processor_node, idle), np.bincount(nodes.processor_node, idle * nodes.is_gpu)
        require(np.array_equal(idle, nodes.processor_idle), "idle cores of processors")
        require(np.array_equal(of_node - gpus, self.node_idle), "idle cores of nodes")
        require(self.node_gpus is None or np.array_equal(gpus, self.node_gpus), "idle GPUs of nodes")
        require(self.n_idle == self.node_idle.sum(), "idle cores")
        require((self.node_memory >= 0).all(), "a node's free memory is negative")
