"""Idle cores, free memory and free bandwidth of nodes and processors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.placement import Placement
from hdsim.cluster.requests import Chunk, FreeNodes, cores_by_memory
from hdsim.cluster.scores import SCORES, NodeScores
from hdsim.cluster.selection import rank_cores, static_scores, water_fill
from hdsim.cluster.stores.gpus import Gpus
from hdsim.errors import DecisionError, require
from hdsim.util.arrays import Floats, Ints, members, min_at, place_within, running_count
from hdsim.util.copies import with_own_containers
from hdsim.util.units import in_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hdsim.cluster.requests import Requests
    from hdsim.platform.model import Platform

#: Number of processors per node up to which a loop over them finds the best one faster.
_FEW = 4
#: Number of cores up to which they are selected one at a time: one step costs a thirtieth of sorting all offers.
_SOME = 32
#: Offer of a processor without idle cores; an array, since NumPy is several times slower with Python scalars.
_NEVER = np.array(-np.inf)
#: Weight of nodes over processors in the scores of `spread`; more than the cores of a processor.
_MANY = 1 << 20


class NodeCores:
    """Idle cores, free memory of nodes and free bandwidth of processors.

    Args:
        platform: The platform.
        requests: Requests of the jobs.
        policy: Default core policy of `pick`.
        rng: For the `random` policy.
    """

    __deepcopy__ = with_own_containers

    def __init__(self, platform: Platform, requests: Requests, policy: str, rng: np.random.Generator) -> None:
        self._platform = platform
        self._requests = requests
        self._size, self._memory, self._bandwidth = requests.size, requests.memory, requests.bandwidth
        self.policy = policy
        self._rng = rng
        self._core_processor: Ints = platform.core_processor.astype(np.int64)
        self._processor_node: Ints = platform.processor_node.astype(np.int64)
        self._core_node = self._processor_node[self._core_processor]
        self._first_core: Ints = platform.processor_first_core.astype(np.int64)
        self._node_first_processor = platform.node_first_processor
        self._node_first_core: Ints = platform.node_first_core.astype(np.int64)
        per_node = np.unique(np.diff(platform.node_first_processor))
        self._one_processor_a_node = platform.n_processors == platform.n_nodes
        self._alike = len(per_node) == 1 and per_node[0] <= _FEW
        self._limits_bandwidth = bool(np.isfinite(platform.mem_bw).any())
        self._speed = platform.gflops / platform.reference_gflops
        self.gpus = None if requests.gpus is None else Gpus(platform)
        self.idle = ~platform.is_gpu[platform.core_processor]
        self._usable_cores = np.where(platform.is_gpu, 0, platform.cores_per_processor).astype(np.int64)
        self.processor_idle = self._usable_cores.copy()
        # One array under both names if each node has one processor.
        self.node_idle = self.processor_idle if self._one_processor_a_node else platform.node_cpu_cores.copy()
        self.node_memory = in_bytes(platform.memory)
        self.free_bandwidth = platform.mem_bw.copy()
        self.n_idle = platform.n_cpu_cores
        self._static = static_scores(platform, requests)
        self._scores = NodeScores(platform.node_cpu_cores, self.node_memory)
        self._all_without_memory = "high_mem" in self._static
        self._ranked: dict[str, Ints] = {}
        # Results of `chunks` since the last allocation or release.
        self._chunks: dict[tuple[int, int, float], int] = {}
        # Policies with a faster selection for jobs that memory does not limit.
        self._quick = dict.fromkeys(self._static, self._first_ranked) | {"high_cores": self._levelled}

    def pick(self, job: int, policy: str | None = None, limit: Floats | Ints | None = None) -> Placement | None:
        """Selects the cores that the core policy selects one at a time, without allocating them; None if none fit.

        Args:
            job: Job index.
            policy: Name of the core policy, by default that of the store.
            limit: (N,) maximum number of chunks on each node (for reservations of backfilling); a chunk is a core
                unless the job requests GPUs.
        """
        n = self._size[job]
        if n > self.n_idle:
            return None
        memory, bandwidth = self._memory[job], self._bandwidth[job]
        policy = policy or self.policy
        if self.gpus is not None or policy in SCORES:
            chunk = self._requests.chunk(job)
            if chunk.gpus or policy in SCORES:
                return self._pick_chunks(chunk, policy, bandwidth, limit)
        if limit is None and policy in self._quick and (n > _SOME or policy in self._static):
            placement = self._quick[policy](n, policy)
            # If every node has memory for its selected cores, memory does not change the selection.
            if not memory or not np.count_nonzero(self.node_memory[placement.nodes] < placement.node_counts * memory):
                return placement
        if n == 1 and limit is None and policy != "random":
            return self._pick_one(self._key(policy, memory, bandwidth)[0], memory)
        capacity = cores_by_memory(self.node_idle, self.node_memory, memory)
        if limit is not None:
            capacity = np.minimum(capacity, limit)
        if capacity is not self.node_idle and np.add.reduce(capacity) < n:
            return None
        if n <= _SOME and policy not in ("random", "spread", "pack"):
            return self._one_at_a_time(n, capacity, policy, memory, bandwidth)
        ranked = self._best_first(n, capacity, policy, memory, bandwidth)
        if policy == "random":
            # As above: most nodes have enough memory.
            placement = Placement(np.sort(ranked[:n]), self._platform)
            if capacity is self.node_idle or not np.count_nonzero(placement.node_counts > capacity[placement.nodes]):
                return placement
        return Placement(np.sort(self._within(ranked, capacity)[:n]), self._platform)

    def _pick_chunks(
        self, chunk: Chunk, policy: str, bandwidth: float, limit: Floats | Ints | None
    ) -> Placement | None:
        """Selects chunks: those of `SCORES` by node, otherwise each by its first core, the best one with capacity."""
        capacity = self._free().capacity(chunk)
        if limit is not None:
            capacity = np.minimum(capacity, limit)
        if capacity.sum() < chunk.number:
            return None
        if policy in SCORES:
            if self._all_without_memory:
                self._scores.without[1] = self._platform.node_cpu_cores - self.node_idle
            chosen = self._scores.choose(policy, chunk, capacity, (self.node_idle, self.node_memory))
            groups = chosen.nonzero()[0]
            placement = self._first_idle(groups, chosen[groups] * chunk.cores, nodes=True)
        else:
            ranked = self._best_first(chunk.number, capacity, policy, chunk.memory, bandwidth)
            nodes = self._core_node[ranked]
            place = place_within(nodes)
            first = (place % chunk.cores == 0) & (place < capacity[nodes] * chunk.cores)
            chunks = np.bincount(nodes[first][: chunk.number], minlength=len(capacity))
            placement = Placement(np.sort(ranked[place < chunks[nodes] * chunk.cores]), self._platform)
        if self.gpus is not None and chunk.gpus:
            placement.gpus = self.gpus.pick(placement.nodes, placement.node_counts // chunk.cores * chunk.gpus)
        return placement

    def chunks(self, chunk: Chunk) -> int:
        """Returns the number of chunks of a job that fit on all nodes together."""
        # A workload has few different chunks, and counting one is a pass over all nodes.
        kind = chunk.cores, chunk.gpus, chunk.memory
        if kind not in self._chunks:
            self._chunks[kind] = int(np.add.reduce(self._free().capacity(chunk)))
        return self._chunks[kind]

    def processor_busy(self) -> Ints:
        """Returns (P,) allocated cores, or GPUs, of each processor."""
        busy = self._usable_cores - self.processor_idle
        if self.gpus is not None:
            busy += np.bincount(self._core_processor[self.gpus.busy()], minlength=len(busy))
        return busy

    def free_nodes(self) -> FreeNodes:
        """Returns a copy of the free resources of all nodes."""
        return self._free().copy()

    def _free(self) -> FreeNodes:
        return FreeNodes(self.node_idle, self.node_memory, None if self.gpus is None else self.gpus.node_idle)

    def _first_ranked(self, n: int, policy: str) -> Placement:
        """Selects the n best idle cores under a policy with static scores."""
        ranked = self._ranking(policy)
        cores = ranked[self.idle[ranked]][:n]
        cores.sort()
        return Placement(cores, self._platform)

    def _levelled(self, n: int, policy: str) -> Placement:
        """Selects the n idle cores of `high_cores`."""
        given = water_fill(n, self.processor_idle)
        processors = given.nonzero()[0]
        return self._first_idle(processors, given[processors])

    def _ranking(self, policy: str) -> Ints:
        """Returns all cores by descending score under a policy with static scores."""
        if policy not in self._ranked:
            self._ranked[policy] = rank_cores(self._static[policy], self._platform)
        return self._ranked[policy]

    def _pick_one(self, key: Floats, memory: float) -> Placement | None:
        """Selects the first idle core of the best processor whose node has memory."""
        offers = np.where(self.processor_idle > 0, key, _NEVER)
        p = offers.argmax()
        if memory and self.node_memory[self._processor_node[p]] < memory:
            offers = np.where((self.node_memory >= memory)[self._processor_node], offers, -np.inf)
            p = offers.argmax()
            if offers[p] == -np.inf:
                return None
        first, last = self._first_core[p : p + 2]
        return Placement(np.array([first + self.idle[first:last].argmax()], np.int64), self._platform)

    def _one_at_a_time(
        self, n: int, capacity: Ints | Floats, policy: str, memory: float, bandwidth: float
    ) -> Placement:
        """Selects n cores under a policy whose scores depend only on processors, or only on nodes."""
        by_node = policy == "high_mem" and policy not in self._static
        if by_node:
            key, step, most, node = self.node_memory, memory, capacity, None
        else:
            key, step, _ = self._key(policy, memory, bandwidth)
            most, node = self.processor_idle, None if capacity is self.node_idle else self._processor_node
        open_to = most > 0 if node is None else (most > 0) & (capacity > 0)[node]
        offers = np.where(open_to, key, _NEVER)
        given: dict[int, int] = {}
        of_node: dict[int, int] = {}
        for _ in range(n):
            best = int(offers.argmax())
            given[best] = count = given.get(best, 0) + 1
            offers[best] = key[best] - step * count if count < most[best] else -np.inf
            if node is not None:
                at = int(node[best])
                of_node[at] = count = of_node.get(at, 0) + 1
                if count >= capacity[at]:
                    offers[self._node_first_processor[at] : self._node_first_processor[at + 1]] = -np.inf
        groups = sorted(given)
        return self._first_idle(np.array(groups), np.array([given[group] for group in groups]), by_node)

    def _first_idle(self, groups: Ints, counts: Ints, nodes: bool = False) -> Placement:
        """Selects the first idle cores of some processors or nodes, ascending, `counts` of each."""
        first, idle = (self._node_first_core, self.node_idle) if nodes else (self._first_core, self.processor_idle)
        cores = members(first, groups)
        cores = cores[self.idle[cores]]
        idle = idle[groups]
        place = np.arange(len(cores)) - (idle.cumsum() - idle).repeat(idle)
        cores = cores[place < counts.repeat(idle)]
        return Placement(cores, self._platform, on=None if nodes else (groups, counts))

    def _best_of_nodes(self, keys: Floats) -> Floats:
        if self._one_processor_a_node:
            return keys
        if not self._alike:
            return np.maximum.reduceat(keys, self._node_first_processor[:-1])
        # Several times faster for nodes of few processors.
        by_node = keys.reshape(len(self.node_idle), -1)
        best = by_node[:, 0]
        for i in range(1, by_node.shape[1]):
            best = np.maximum(best, by_node[:, i])
        return best

    def _key(self, policy: str, memory: float, bandwidth: float) -> tuple[Floats, float, bool]:
        """Returns the score of each processor, its decrease per selected core, and whether that is per node."""
        if policy in self._static:
            return self._static[policy], 0.0, False
        if policy == "high_mem_bw":
            return self.free_bandwidth, bandwidth, False
        if policy == "high_cores":
            return self.processor_idle.astype(np.float64), 1.0, False
        if policy == "spread":
            key = self.node_idle[self._processor_node] * _MANY + self.processor_idle
            return key.astype(np.float64), 1.0, True
        if policy == "pack":
            return -self.node_idle[self._processor_node].astype(np.float64), -1.0, True
        return self.node_memory[self._processor_node], memory, True

    def _best_first(self, n: int, capacity: Ints | Floats, policy: str, memory: float, bandwidth: float) -> Ints:
        """Returns the idle cores of the nodes of n chunks, best first."""
        if policy == "random":
            return self._rng.permutation(self.idle.nonzero()[0])
        if policy == "pack":
            return self._idle_cores_of(self._fewest_nodes(n, capacity))
        key, step, by_node = self._key(policy, memory, bandwidth)
        # The offer of a node is its best processor with an idle core.
        best = self._best_of_nodes(np.where(self.processor_idle > 0, key, _NEVER))
        best = np.where(capacity > 0, best, _NEVER)
        # An offer decreases with each selected core, so the n chunks are on the n nodes with the best offers.
        nodes = (best > -np.inf).nonzero()[0]
        if len(nodes) > n:
            offers = best[nodes]
            last = np.partition(offers, len(nodes) - n)[len(nodes) - n]
            better = nodes[offers > last]
            nodes = np.sort(np.concatenate([better, nodes[offers == last][: n - len(better)]]))
        cores = self._idle_cores_of(nodes)
        if policy == "spread":
            return self._evenly(cores)
        owner = self._core_processor[cores]
        offer = key[owner]
        if step:
            offer = offer - step * running_count(self._core_node[cores] if by_node else owner)
        return cores[(-offer).argsort(kind="stable")]

    def _fewest_nodes(self, n: int, capacity: Ints | Floats) -> Ints:
        """Returns nodes for n chunks: the ones of largest capacity, then the fullest node that holds the rest."""
        roomiest = np.argsort(-capacity, kind="stable")
        held = np.cumsum(capacity[roomiest])
        whole = int(np.searchsorted(held, n))
        rest = n - (held[whole - 1] if whole else 0)
        others = np.sort(roomiest[whole:])
        others = others[capacity[others] >= rest]
        return np.append(roomiest[:whole], others[self.node_idle[others].argmin()])

    def _evenly(self, cores: Ints) -> Ints:
        """Sorts ascending cores for `spread`: by idle cores of their node, then of their processor."""
        owner = self._core_processor[cores]
        left = self.processor_idle[owner] - running_count(owner)
        turn = np.lexsort((-left, self._core_node[cores]))
        cores, left = cores[turn], left[turn]
        node = self._core_node[cores]
        offer = (self.node_idle[node] - running_count(node)) * _MANY + left
        return cores[(-offer).argsort(kind="stable")]

    def _within(self, ranked: Ints, capacity: Ints | Floats) -> Ints:
        """Removes the cores of `ranked` beyond the capacity of their nodes."""
        if np.array_equal(capacity, self.node_idle):
            return ranked
        node = self._core_node[ranked]
        return ranked[place_within(node) < capacity[node]]

    def _idle_cores_of(self, nodes: Ints) -> Ints:
        cores = members(self._node_first_core, nodes)
        return cores[self.idle[cores]]

    def placement_of(self, cores: Sequence[int]) -> Placement:
        """Converts ids of cores and GPUs to a placement."""
        ids = np.sort(np.asarray(cores, np.int64))
        devices = self._platform.is_gpu[self._core_processor[ids]]
        return Placement(ids[~devices], self._platform, ids[devices])

    def allocate(self, job: int, placement: Placement) -> None:
        """Allocates the cores, memory and bandwidth of a placement to a job.

        Raises:
            DecisionError: A core is busy or given twice, or the memory of a node does not suffice.
        """
        cores = placement.cores
        if np.count_nonzero(self.idle[cores]) < len(cores):
            raise DecisionError(f"expected idle cores, got busy {cores[~self.idle[cores]].tolist()}")
        if self.gpus is not None:
            self.gpus.allocate(placement.gpus)
        self._move(job, placement, -1)
        self.idle[cores] = False
        memory = self._memory[job]
        if memory:
            nodes = placement.nodes
            if min_at(self.node_memory, nodes) < 0:
                short = nodes[self.node_memory[nodes] < 0]
                free = self.node_memory[short[0]]
                self.release(job, placement)
                raise DecisionError(
                    f"expected {memory / 1e6:g} MB a core, but node {short[0]} would have {free / 1e6:g} MB free"
                )

    def release(self, job: int, placement: Placement) -> None:
        """Releases the cores, memory and bandwidth of a placement."""
        if self.gpus is not None:
            self.gpus.release(placement.gpus)
        self._move(job, placement, 1)
        self.idle[placement.cores] = True

    def _move(self, job: int, placement: Placement, sign: int) -> None:
        memory, bandwidth = self._memory[job], self._bandwidth[job]
        processors, nodes = placement.processors, placement.nodes
        n = len(placement.cores) * sign
        self.n_idle += n
        self._chunks.clear()
        if len(processors) == 1:
            # Scalars cost a fraction of arrays of length 1.
            p, node = processors[0], nodes[0]
            self.processor_idle[p] += n
            if not self._one_processor_a_node:
                self.node_idle[node] += n
            if memory:
                self.node_memory[node] += n * memory
            elif not self._all_without_memory:
                self._scores.without[1, node] -= n
            if bandwidth and self._limits_bandwidth:
                self.free_bandwidth[p] += n * bandwidth
            return
        self._count(placement, sign)
        if memory:
            self.node_memory[nodes] += placement.node_counts * (sign * memory)
        elif not self._all_without_memory:
            self._scores.without[1, nodes] -= placement.node_counts * sign
        if bandwidth and self._limits_bandwidth:
            self.free_bandwidth[processors] += placement.counts * (sign * bandwidth)

    def _count(self, placement: Placement, sign: int) -> None:
        """Updates the idle cores of processors and nodes after a release (1) or an allocation (-1)."""
        if sign > 0:
            self.processor_idle[placement.processors] += placement.counts
            if not self._one_processor_a_node:
                self.node_idle[placement.nodes] += placement.node_counts
        else:
            self.processor_idle[placement.processors] -= placement.counts
            if not self._one_processor_a_node:
                self.node_idle[placement.nodes] -= placement.node_counts

    def slowest(self, placement: Placement) -> float:
        """Returns the speed of the slowest core relative to the reference speed."""
        return min_at(self._speed, placement.processors)

    def cores_of(self, placements: Sequence[Placement], sizes: Ints) -> NDArray[np.int32]:
        """Returns the core ids of many placements, concatenated, ascending within each."""
        if not placements:
            return np.zeros(0, np.int32)
        return np.concatenate([placement.ids for placement in placements]).astype(np.int32)

    def ids_of(self, placement: Placement) -> list[int]:
        """Returns the core ids of a placement, ascending."""
        ids: list[int] = placement.ids.tolist()
        return ids

    def idle_ids(self) -> Ints:
        """Ids of the idle cores and GPUs, ascending."""
        idle = self.idle.nonzero()[0]
        return idle if self.gpus is None else np.union1d(idle, self.gpus.idle_ids())

    def check(self, running: Sequence[Placement]) -> None:
        """Checks that each core is idle or allocated to exactly one running job and that the counts agree."""
        held = np.concatenate([placement.cores for placement in running]) if running else np.zeros(0, np.int64)
        busy = np.zeros(len(self.idle), np.int64)
        np.add.at(busy, held, 1)
        require(busy.max(initial=0) <= 1, "a core is allocated twice")
        usable = ~self._platform.is_gpu[self._core_processor]
        require(np.array_equal((busy == 0) & usable, self.idle), "an idle core is allocated or a busy one is not")
        if self.gpus is not None:
            self.gpus.check([placement.gpus for placement in running])
        idle = self.idle.astype(np.int64)
        require(
            np.array_equal(np.bincount(self._core_processor, idle), self.processor_idle), "idle cores of processors"
        )
        require(np.array_equal(np.bincount(self._core_node, idle), self.node_idle), "idle cores of nodes")
        require(self.n_idle == idle.sum(), "idle cores")
        require((self.node_memory >= 0).all(), "a node's free memory is negative")
