"""Idle cores, memory and bandwidth by node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.placement import Placement
from hdsim.cluster.requests import Chunk, FreeNodes, cores_by_memory
from hdsim.cluster.selection import rank_cores, static_scores, water_fill
from hdsim.cluster.stores.gpus import Gpus
from hdsim.errors import DecisionError
from hdsim.util.arrays import Floats, Ints, members, min_at, place_within, running_count
from hdsim.util.units import in_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hdsim.cluster.requests import Requests
    from hdsim.platform.model import Platform

#: Nodes of up to this many processors have their best found processor by processor.
_FEW = 4
#: Up to so many cores are given one at a time where that moves keys: a turn costs a thirtieth of sorting all offers.
_SOME = 32
#: What a processor offers that can give nothing; an array, for arithmetic with scalars takes several times as long.
_NEVER = np.array(-np.inf)
#: More cores than a processor has: in keys of `spread` nodes weigh so many times more than processors.
_MANY = 1 << 20


class NodeCores:
    """Idle cores, free memory of nodes and free bandwidth of processors.

    Args:
        platform: The platform.
        requests: What the jobs ask for.
        policy: Core policy used where `pick` is given none.
        rng: For the `random` policy.
    """

    def __init__(self, platform: Platform, requests: Requests, policy: str, rng: np.random.Generator) -> None:
        self._platform = platform
        self._requests = requests
        self._size, self._memory, self._bandwidth = requests.size, requests.memory, requests.bandwidth
        self._policy = policy
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
        # One array under both names where a node is a processor.
        self.node_idle = self.processor_idle if self._one_processor_a_node else platform.node_cpu_cores.copy()
        self.node_memory = in_bytes(platform.memory)
        self.free_bandwidth = platform.mem_bw.copy()
        self.n_idle = platform.n_cpu_cores
        self._unmoved = static_scores(platform, requests)
        self._ranked: dict[str, Ints] = {}
        # What `chunks` has found since cores last became idle or busy.
        self._chunks: dict[tuple[int, int, float], int] = {}
        # Policies with a short cut to their choice as long as no memory is in the way.
        self._quick = dict.fromkeys(self._unmoved, self._first_ranked) | {"high_cores": self._levelled}

    def pick(self, job: int, policy: str | None = None, limit: Floats | Ints | None = None) -> Placement | None:
        """Returns the cores that the core policy gives one at a time, or None; changes nothing.

        Args:
            job: Job index.
            policy: Name of the core policy, the store's own by default.
            limit: (N,) most chunks each node may give (a backfilling plan's reservations); a chunk is a core unless the
                job asks for GPUs.
        """
        n = self._size[job]
        if n > self.n_idle:
            return None
        memory, bandwidth = self._memory[job], self._bandwidth[job]
        policy = policy or self._policy
        if self.gpus is not None:
            chunk = self._requests.chunk(job)
            if chunk.gpus:
                return self._pick_with_gpus(self.gpus, chunk, policy, bandwidth, limit)
        if limit is None and policy in self._quick and (n > _SOME or policy in self._unmoved):
            placement = self._quick[policy](n, policy)
            # Where no core was given against the memory of its node, memory has not changed the choice.
            if not memory or not np.count_nonzero(self.node_memory[placement.nodes] < placement.node_counts * memory):
                return placement
        if n == 1 and limit is None and policy != "random":
            return self._pick_one(self._key(policy, memory, bandwidth)[0], memory)
        room = cores_by_memory(self.node_idle, self.node_memory, memory)
        if limit is not None:
            room = np.minimum(room, limit)
        if room is not self.node_idle and np.add.reduce(room) < n:
            return None
        if n <= _SOME and policy not in ("random", "spread", "pack"):
            return self._one_at_a_time(n, room, policy, memory, bandwidth)
        ranked = self._best_first(n, room, policy, memory, bandwidth)
        if policy == "random":
            # As above: mostly no node is short of memory.
            placement = Placement(np.sort(ranked[:n]), self._platform)
            if room is self.node_idle or not np.count_nonzero(placement.node_counts > room[placement.nodes]):
                return placement
        return Placement(np.sort(self._within(ranked, room)[:n]), self._platform)

    def _pick_with_gpus(
        self, gpus: Gpus, chunk: Chunk, policy: str, bandwidth: float, limit: Floats | Ints | None
    ) -> Placement | None:
        """The first core of each chunk is the best of the nodes with room for a chunk, the rest are of that node."""
        room = FreeNodes(self.node_idle, self.node_memory, gpus.node_idle).capacity(chunk)
        if limit is not None:
            room = np.minimum(room, limit)
        if room.sum() < chunk.number:
            return None
        ranked = self._best_first(chunk.number, room, policy, chunk.memory, bandwidth)
        nodes = self._core_node[ranked]
        place = place_within(nodes)
        first = (place % chunk.cores == 0) & (place < room[nodes] * chunk.cores)
        chunks = np.bincount(nodes[first][: chunk.number], minlength=len(room))
        placement = Placement(np.sort(ranked[place < chunks[nodes] * chunk.cores]), self._platform)
        placement.gpus = gpus.pick(placement.nodes, placement.node_counts // chunk.cores * chunk.gpus)
        return placement

    def chunks(self, chunk: Chunk) -> int:
        """How many chunks of a job all nodes together can give now."""
        # Jobs differ in few kinds of chunks, and the room for one is a pass over all nodes.
        kind = chunk.cores, chunk.gpus, chunk.memory
        if kind not in self._chunks:
            gpus = None if self.gpus is None else self.gpus.node_idle
            self._chunks[kind] = int(np.add.reduce(FreeNodes(self.node_idle, self.node_memory, gpus).capacity(chunk)))
        return self._chunks[kind]

    def processor_busy(self) -> Ints:
        """(P,) cores, or GPUs, of each processor that serve jobs."""
        busy = self._usable_cores - self.processor_idle
        if self.gpus is not None:
            busy += np.bincount(self._core_processor[self.gpus.busy()], minlength=len(busy))
        return busy

    def free_nodes(self) -> FreeNodes:
        """What every node can give now."""
        return FreeNodes(self.node_idle, self.node_memory, None if self.gpus is None else self.gpus.node_idle).copy()

    def _first_ranked(self, n: int, policy: str) -> Placement:
        """The n best idle cores under a policy whose keys no job moves."""
        ranked = self._ranking(policy)
        cores = ranked[self.idle[ranked]][:n]
        cores.sort()
        return Placement(cores, self._platform)

    def _levelled(self, n: int, policy: str) -> Placement:
        """The n idle cores that `high_cores` gives."""
        given = water_fill(n, self.processor_idle)
        processors = given.nonzero()[0]
        return self._first_idle(processors, given[processors])

    def _ranking(self, policy: str) -> Ints:
        """All cores from the best to the worst under a policy whose keys no job moves."""
        if policy not in self._ranked:
            self._ranked[policy] = rank_cores(self._unmoved[policy], self._platform)
        return self._ranked[policy]

    def _pick_one(self, key: Floats, memory: float) -> Placement | None:
        """The first idle core of the best processor whose node has memory."""
        offers = np.where(self.processor_idle > 0, key, _NEVER)
        p = offers.argmax()
        if memory and self.node_memory[self._processor_node[p]] < memory:
            offers = np.where((self.node_memory >= memory)[self._processor_node], offers, -np.inf)
            p = offers.argmax()
            if offers[p] == -np.inf:
                return None
        first, last = self._first_core[p : p + 2]
        return Placement(np.array([first + self.idle[first:last].argmax()], np.int64), self._platform)

    def _one_at_a_time(self, n: int, room: Ints | Floats, policy: str, memory: float, bandwidth: float) -> Placement:
        """The n cores that a policy gives whose keys depend on nothing but processors, or nothing but nodes."""
        by_node = policy == "high_mem" and policy not in self._unmoved
        if by_node:
            key, step, most, node = self.node_memory, memory, room, None
        else:
            key, step, _ = self._key(policy, memory, bandwidth)
            most, node = self.processor_idle, None if room is self.node_idle else self._processor_node
        open_to = most > 0 if node is None else (most > 0) & (room > 0)[node]
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
                if count >= room[at]:
                    offers[self._node_first_processor[at] : self._node_first_processor[at + 1]] = -np.inf
        groups = sorted(given)
        return self._first_idle(np.array(groups), np.array([given[group] for group in groups]), by_node)

    def _first_idle(self, groups: Ints, counts: Ints, nodes: bool = False) -> Placement:
        """The first idle cores of some processors or nodes, ascending, so many of each."""
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
        # Several times quicker for nodes of a few processors each.
        by_node = keys.reshape(len(self.node_idle), -1)
        best = by_node[:, 0]
        for i in range(1, by_node.shape[1]):
            best = np.maximum(best, by_node[:, i])
        return best

    def _key(self, policy: str, memory: float, bandwidth: float) -> tuple[Floats, float, bool]:
        """Key of each processor, by how much it falls with every core given, and whether the node's fall together."""
        if policy in self._unmoved:
            return self._unmoved[policy], 0.0, False
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

    def _best_first(self, n: int, room: Ints | Floats, policy: str, memory: float, bandwidth: float) -> Ints:
        """Idle cores of the nodes that n chunks come from, best first."""
        if policy == "random":
            return self._rng.permutation(self.idle.nonzero()[0])
        if policy == "pack":
            return self._idle_cores_of(self._fewest_nodes(n, room))
        key, step, by_node = self._key(policy, memory, bandwidth)
        # A node's best offer is its best processor with an idle core.
        best = self._best_of_nodes(np.where(self.processor_idle > 0, key, _NEVER))
        best = np.where(room > 0, best, _NEVER)
        # Offers of a node fall with every core it gives, so the n chunks come from the n nodes with the best offers.
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

    def _fewest_nodes(self, n: int, room: Ints | Floats) -> Ints:
        """Nodes that n chunks fill: while none holds the rest the one with most room, then the fullest that does."""
        roomiest = np.argsort(-room, kind="stable")
        held = np.cumsum(room[roomiest])
        whole = int(np.searchsorted(held, n))
        rest = n - (held[whole - 1] if whole else 0)
        others = np.sort(roomiest[whole:])
        others = others[room[others] >= rest]
        return np.append(roomiest[:whole], others[self.node_idle[others].argmin()])

    def _evenly(self, cores: Ints) -> Ints:
        """Ascending cores in the order in which nodes, and within them processors, with the most idle cores give."""
        owner = self._core_processor[cores]
        left = self.processor_idle[owner] - running_count(owner)
        turn = np.lexsort((-left, self._core_node[cores]))
        cores, left = cores[turn], left[turn]
        node = self._core_node[cores]
        offer = (self.node_idle[node] - running_count(node)) * _MANY + left
        return cores[(-offer).argsort(kind="stable")]

    def _within(self, ranked: Ints, room: Ints | Floats) -> Ints:
        """Leaves out cores of a node that has given all it may, going through `ranked` in order."""
        if np.array_equal(room, self.node_idle):
            return ranked
        node = self._core_node[ranked]
        return ranked[place_within(node) < room[node]]

    def _idle_cores_of(self, nodes: Ints) -> Ints:
        cores = members(self._node_first_core, nodes)
        return cores[self.idle[cores]]

    def placement_of(self, cores: Sequence[int]) -> Placement:
        """Turns core ids an agent chose, some of them perhaps of GPUs, into a placement."""
        ids = np.sort(np.asarray(cores, np.int64))
        devices = self._platform.is_gpu[self._core_processor[ids]]
        return Placement(ids[~devices], self._platform, ids[devices])

    def allocate(self, job: int, placement: Placement) -> None:
        """Makes the cores busy and takes their memory and bandwidth.

        Raises:
            DecisionError: A core is busy or named twice, or a node has not enough memory.
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
                    f"expected {memory / 1e6:g} MB a core, but node {short[0]} would be at {free / 1e6:g} MB free"
                )

    def release(self, job: int, placement: Placement) -> None:
        """Makes the cores idle again and returns their memory and bandwidth."""
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
            # Scalars cost a fraction of arrays of one.
            p, node = processors[0], nodes[0]
            self.processor_idle[p] += n
            if not self._one_processor_a_node:
                self.node_idle[node] += n
            if memory:
                self.node_memory[node] += n * memory
            if bandwidth and self._limits_bandwidth:
                self.free_bandwidth[p] += n * bandwidth
            return
        self._count(placement, sign)
        if memory:
            self.node_memory[nodes] += placement.node_counts * (sign * memory)
        if bandwidth and self._limits_bandwidth:
            self.free_bandwidth[processors] += placement.counts * (sign * bandwidth)

    def _count(self, placement: Placement, sign: int) -> None:
        """Counts cores that become idle (1) or busy (-1) on their processors and nodes."""
        if sign > 0:
            self.processor_idle[placement.processors] += placement.counts
            if not self._one_processor_a_node:
                self.node_idle[placement.nodes] += placement.node_counts
        else:
            self.processor_idle[placement.processors] -= placement.counts
            if not self._one_processor_a_node:
                self.node_idle[placement.nodes] -= placement.node_counts

    def slowest(self, placement: Placement) -> float:
        """Relative speed of the slowest of the cores."""
        return min_at(self._speed, placement.processors)

    def cores_of(self, placements: Sequence[Placement], sizes: Ints) -> NDArray[np.int32]:
        """Core ids of many placements, one after the other, ascending within each."""
        if not placements:
            return np.zeros(0, np.int32)
        return np.concatenate([placement.ids for placement in placements]).astype(np.int32)

    def ids_of(self, placement: Placement) -> list[int]:
        """Core ids of a placement, ascending."""
        ids: list[int] = placement.ids.tolist()
        return ids

    def check(self, running: Sequence[Placement]) -> None:
        """Asserts that every core is idle or held by exactly one running job and that the counts agree."""
        held = np.concatenate([placement.cores for placement in running]) if running else np.zeros(0, np.int64)
        busy = np.zeros(len(self.idle), np.int64)
        np.add.at(busy, held, 1)
        assert busy.max(initial=0) <= 1, "a core is held twice"
        usable = ~self._platform.is_gpu[self._core_processor]
        assert np.array_equal((busy == 0) & usable, self.idle), "an idle core is held or a busy one is not"
        if self.gpus is not None:
            self.gpus.check([placement.gpus for placement in running])
        idle = self.idle.astype(np.int64)
        assert np.array_equal(np.bincount(self._core_processor, idle), self.processor_idle), "idle cores of processors"
        assert np.array_equal(np.bincount(self._core_node, idle), self.node_idle), "idle cores of nodes"
        assert self.n_idle == idle.sum(), "idle cores"
        assert (self.node_memory >= 0).all(), "a node's free memory is negative"
