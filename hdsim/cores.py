"""Idle cores and how a core policy picks among them.

Two stores with the same verbs (`pick`, `take`, `give_back`). `OrderedCores` serves the common case in which cores are
equally fast and differ only in a fixed order of preference: the idle cores are a sorted list and a pick is its tail.
`NodeCores` serves everything else: memory of nodes, bandwidth of processors, policies whose keys move with every core
given; `FailingCores` adds nodes that go down.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.errors import DecisionError
from hdsim.units import in_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hdsim.platform import Platform

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

#: Core policies whose key never changes: name -> (P,) key of a processor, highest first.
STATIC_KEYS = {
    "high_gflops": lambda platform: platform.gflops,
    "low_power": lambda platform: -platform.power,
}
#: Core policies whose key moves with every core given, and the random one.
MOVING_KEYS = ("high_cores", "high_mem", "high_mem_bw", "random")
CORE_POLICIES = ("random", "high_gflops", "high_cores", "high_mem", "high_mem_bw", "low_power")

#: Up to this many things are handled one by one; more of them in bulk.
_FEW = 4
_NOBODY = -1


class Demands(NamedTuple):
    """What each job asks for; scalars of a list cost a quarter of those of an array."""

    size: list[int]  # cores
    memory: list[float]  # byte a core (see `in_bytes`), 0 where no memory is watched
    bandwidth: list[float]  # GB/s a core


class OrderedCores:
    """Idle cores of a platform of one speed, in which only a fixed order of preference tells cores apart.

    A core is known here by its slot, its place in that order with the best last, so that the cores to give are
    always the end of one ascending list. A placement is a list of slots, best first.

    Args:
        platform: The platform; memory and bandwidth are not watched.
        demands: What the jobs ask for.
        policy: A name of :data:`STATIC_KEYS`.
    """

    def __init__(self, platform: Platform, demands: Demands, policy: str) -> None:
        self._size = demands.size
        key = STATIC_KEYS[policy](platform)[platform.core_processor]
        self._core_of_slot = np.argsort(-key, kind="stable")[::-1].astype(np.int32)
        self._by_id = bool((np.diff(self._core_of_slot) < 0).all())
        self._slot_of_core: Ints = np.empty(platform.n_cores, np.int64)
        self._slot_of_core[self._core_of_slot] = np.arange(platform.n_cores)
        self.idle: list[int] = list(range(platform.n_cores))

    @property
    def n_idle(self) -> int:
        """Idle cores."""
        return len(self.idle)

    def pick(self, job: int, policy: str | None = None, limit: None = None) -> list[int] | None:
        """Returns the most preferred idle cores, as many as the job asks for, or None; changes nothing.

        Raises:
            DecisionError: The agent asks for a core policy after it has promised to use one.
        """
        if policy is not None:
            raise DecisionError(f"core policy '{policy}' asked for by an agent that declares a fixed one")
        n = self._size[job]
        idle = self.idle
        return idle[: -n - 1 : -1] if n <= len(idle) else None

    def placement_of(self, cores: Sequence[int]) -> list[int]:
        """Turns core ids an agent chose into a placement."""
        return sorted(self._slot_of_core[np.asarray(cores, np.int64)].tolist(), reverse=True)

    def take(self, job: int, slots: list[int]) -> None:
        """Makes the slots busy.

        Raises:
            DecisionError: A core is busy or named twice.
        """
        idle = self.idle
        n = len(slots)
        if idle[: -n - 1 : -1] == slots:
            del idle[-n:]
            return
        wanted = set(slots)
        rest = [slot for slot in idle if slot not in wanted]
        if len(rest) != len(idle) - n:
            busy = sorted(int(self._core_of_slot[slot]) for slot in wanted.difference(idle))
            raise DecisionError(f"expected distinct idle cores, got busy {busy}" if busy else "a core is named twice")
        idle[:] = rest

    def give_back(self, job: int, slots: list[int]) -> None:
        """Makes the slots idle again."""
        idle = self.idle
        if not idle or idle[-1] < slots[-1]:
            idle += slots[::-1]
        elif len(slots) <= _FEW:
            for slot in slots:
                insort(idle, slot)
        else:
            start = bisect_left(idle, slots[-1])
            tail = idle[start:] + slots
            tail.sort()
            idle[start:] = tail

    def cores_of(self, placements: Sequence[list[int]], sizes: Ints) -> NDArray[np.int32]:
        """Core ids of many placements, one after the other, ascending within each."""
        slots = np.fromiter(chain.from_iterable(placements), np.int32, int(sizes.sum()))
        if self._by_id:
            return np.subtract(len(self._core_of_slot) - 1, slots, out=slots)
        cores = self._core_of_slot[slots]
        return cores[np.lexsort((cores, np.repeat(np.arange(len(sizes)), sizes)))]

    def check(self, running: Sequence[list[int]]) -> None:
        """Asserts that every core is either idle or held by exactly one running job."""
        held = [slot for slots in running for slot in slots]
        assert self.idle == sorted(self.idle), "idle cores out of order"
        assert sorted(held + self.idle) == list(range(len(self._core_of_slot))), "a core is lost or held twice"


class Placement:
    """Concrete cores of one job.

    Attributes:
        cores: (n,) core ids, ascending.
        processors: (m,) processors they are on, ascending.
        counts: (m,) cores on each of those processors.
        nodes: (k,) nodes they are on, ascending.
        node_counts: (k,) cores on each of those nodes.
    """

    __slots__ = ("cores", "counts", "node_counts", "nodes", "processors")

    def __init__(self, cores: Ints, platform: Platform) -> None:
        self.cores = cores
        owner = platform.core_processor[cores]
        if len(cores) == 1:
            self.processors, self.counts = owner, _ONE
        else:
            first, self.counts = _runs(owner)
            self.processors = owner[first]
        nodes = platform.processor_node[self.processors]
        if len(nodes) == 1 or platform.n_processors == platform.n_nodes:
            self.nodes, self.node_counts = nodes, self.counts
        else:
            first, _ = _runs(nodes)
            self.nodes, self.node_counts = nodes[first], np.add.reduceat(self.counts, first)


_ONE: Ints = np.ones(1, np.int64)


class NodeCores:
    """Idle cores, free memory of nodes and free bandwidth of processors.

    Args:
        platform: The platform.
        demands: What the jobs ask for.
        policy: Core policy used where `pick` is given none.
        rng: For the `random` policy.
    """

    def __init__(self, platform: Platform, demands: Demands, policy: str, rng: np.random.Generator) -> None:
        self._platform = platform
        self._size, self._memory, self._bandwidth = demands
        self._policy = policy
        self._rng = rng
        self._core_processor = platform.core_processor
        self._core_node = platform.processor_node[platform.core_processor]
        self._first_core = platform.processor_first_core
        self._processor_node = platform.processor_node
        self._node_first_processor = platform.node_first_processor[:-1]
        self._node_first_core = platform.node_first_core
        per_node = np.unique(np.diff(platform.node_first_processor))
        self._one_processor_a_node = platform.n_processors == platform.n_nodes
        self._alike = len(per_node) == 1 and per_node[0] <= _FEW
        self._static = {name: key(platform).astype(np.float64) for name, key in STATIC_KEYS.items()}
        self._speed = platform.gflops / platform.reference_gflops
        self.idle = np.ones(platform.n_cores, bool)
        self.processor_idle = platform.cores_per_processor.astype(np.int64)
        self.node_idle = np.diff(platform.node_first_core).astype(np.int64)
        self.node_memory = in_bytes(platform.memory)
        self.free_bandwidth = platform.mem_bw.copy()
        self.n_idle = platform.n_cores

    def pick(self, job: int, policy: str | None = None, limit: Floats | Ints | None = None) -> Placement | None:
        """Returns the cores that the core policy gives one at a time, or None; changes nothing.

        Args:
            job: Job index.
            policy: Name of the core policy, the store's own by default.
            limit: (N,) most cores each node may give (a backfilling plan's reservations).
        """
        n = self._size[job]
        if n > self.n_idle:
            return None
        memory, bandwidth = self._memory[job], self._bandwidth[job]
        policy = policy or self._policy
        if n == 1 and limit is None and policy != "random":
            return self._pick_one(self._key(policy, memory, bandwidth)[0], memory)
        room = capacity(self.node_idle, self.node_memory, memory)
        if limit is not None:
            room = np.minimum(room, limit)
        if room.sum() < n:
            return None
        if policy == "random":
            return Placement(self._random(n, room), self._platform)
        key, step, by_node = self._key(policy, memory, bandwidth)
        # A node's best offer is its best processor with an idle core.
        best = self._best_of_nodes(np.where(self.processor_idle > 0, key, -np.inf))
        best = np.where(room > 0, best, -np.inf)
        return Placement(self._several(n, room, best, key, step, by_node), self._platform)

    def _pick_one(self, key: Floats, memory: float) -> Placement | None:
        """The first idle core of the best processor whose node has memory."""
        offers = np.where(self.processor_idle > 0, key, -np.inf)
        p = offers.argmax()
        if memory and self.node_memory[self._processor_node[p]] < memory:
            offers = np.where((self.node_memory >= memory)[self._processor_node], offers, -np.inf)
            p = offers.argmax()
            if offers[p] == -np.inf:
                return None
        first, last = self._first_core[p : p + 2]
        return Placement(np.array([first + self.idle[first:last].argmax()], np.int64), self._platform)

    def _best_of_nodes(self, keys: Floats) -> Floats:
        if self._one_processor_a_node:
            return keys
        if not self._alike:
            return np.maximum.reduceat(keys, self._node_first_processor)
        # Several times quicker for nodes of a few processors each.
        by_node = keys.reshape(len(self.node_idle), -1)
        best = by_node[:, 0]
        for i in range(1, by_node.shape[1]):
            best = np.maximum(best, by_node[:, i])
        return best

    def _key(self, policy: str, memory: float, bandwidth: float) -> tuple[Floats, float, bool]:
        """Key of each processor, by how much it falls with every core given, and whether the node's fall together."""
        if policy in self._static:
            return self._static[policy], 0.0, False
        if policy == "high_mem_bw":
            return self.free_bandwidth, bandwidth, False
        if policy == "high_cores":
            return self.processor_idle.astype(np.float64), 1.0, False
        return self.node_memory[self._processor_node], memory, True

    def _several(self, n: int, room: Ints | Floats, best: Floats, key: Floats, step: float, by_node: bool) -> Ints:
        # Offers of a node fall with every core it gives, so the n cores come from the n nodes with the best offers.
        nodes = np.flatnonzero(best > -np.inf)
        if len(nodes) > n:
            offers = best[nodes]
            last = np.partition(offers, len(nodes) - n)[len(nodes) - n]
            better = nodes[offers > last]
            nodes = np.sort(np.concatenate([better, nodes[offers == last][: n - len(better)]]))
        cores = self._idle_cores_of(nodes)
        owner = self._core_processor[cores]
        offer = key[owner]
        if step:
            offer = offer - step * _running_count(self._core_node[cores] if by_node else owner)
        ranked = cores[np.argsort(-offer, kind="stable")]
        return np.sort(self._within(ranked, room)[:n])

    def _random(self, n: int, room: Ints | Floats) -> Ints:
        ranked = self._rng.permutation(np.flatnonzero(self.idle))
        return np.sort(self._within(ranked, room)[:n])

    def _within(self, ranked: Ints, room: Ints | Floats) -> Ints:
        """Leaves out cores of a node that has given all it may, going through `ranked` in order."""
        if np.array_equal(room, self.node_idle):
            return ranked
        node = self._core_node[ranked]
        by_node = np.argsort(node, kind="stable")
        given: Ints = np.empty(len(ranked), np.int64)
        given[by_node] = _running_count(node[by_node])
        return ranked[given < room[node]]

    def _idle_cores_of(self, nodes: Ints) -> Ints:
        cores = members(self._node_first_core, nodes)
        return cores[self.idle[cores]]

    def placement_of(self, cores: Sequence[int]) -> Placement:
        """Turns core ids an agent chose into a placement."""
        return Placement(np.sort(np.asarray(cores, np.int64)), self._platform)

    def take(self, job: int, placement: Placement) -> None:
        """Makes the cores busy and takes their memory and bandwidth.

        Raises:
            DecisionError: A core is busy or named twice, or a node has not enough memory.
        """
        cores = placement.cores
        if not self.idle[cores].all():
            raise DecisionError(f"expected idle cores, got busy {cores[~self.idle[cores]].tolist()}")
        self._move(job, placement, -1)
        self.idle[cores] = False
        memory = self._memory[job]
        if memory:
            nodes = placement.nodes
            short = nodes[self.node_memory[nodes] < 0]
            if len(short):
                free = self.node_memory[short[0]]
                self.give_back(job, placement)
                raise DecisionError(
                    f"expected {memory / 1e6:g} MB a core, but node {short[0]} would be at {free / 1e6:g} MB free"
                )

    def give_back(self, job: int, placement: Placement) -> None:
        """Makes the cores idle again and returns their memory and bandwidth."""
        self._move(job, placement, 1)
        self.idle[placement.cores] = True

    def _move(self, job: int, placement: Placement, sign: int) -> None:
        memory, bandwidth = self._memory[job], self._bandwidth[job]
        processors, nodes = placement.processors, placement.nodes
        n = len(placement.cores) * sign
        self.n_idle += n
        if len(processors) == 1:
            # Scalars cost a fraction of arrays of one.
            p, node = processors[0], nodes[0]
            self.processor_idle[p] += n
            self.node_idle[node] += n
            if memory:
                self.node_memory[node] += n * memory
            if bandwidth:
                self.free_bandwidth[p] += n * bandwidth
            return
        self.processor_idle[processors] += placement.counts * sign
        self.node_idle[nodes] += placement.node_counts * sign
        if memory:
            self.node_memory[nodes] += placement.node_counts * (sign * memory)
        if bandwidth:
            self.free_bandwidth[processors] += placement.counts * (sign * bandwidth)

    def slowest(self, placement: Placement) -> float:
        """Relative speed of the slowest of the cores."""
        processors = placement.processors
        return float(self._speed[processors[0]] if len(processors) == 1 else self._speed[processors].min())

    def cores_of(self, placements: Sequence[Placement], sizes: Ints) -> NDArray[np.int32]:
        """Core ids of many placements, one after the other, ascending within each."""
        if not placements:
            return np.zeros(0, np.int32)
        return np.concatenate([placement.cores for placement in placements]).astype(np.int32)

    def check(self, running: Sequence[Placement]) -> None:
        """Asserts that every core is idle or held by exactly one running job and that the counts agree."""
        held = np.concatenate([placement.cores for placement in running]) if running else np.zeros(0, np.int64)
        busy = np.zeros(len(self.idle), np.int64)
        np.add.at(busy, held, 1)
        assert busy.max(initial=0) <= 1, "a core is held twice"
        assert np.array_equal(busy == 0, self.idle), "an idle core is held or a busy one is not"
        idle = self.idle.astype(np.int64)
        assert np.array_equal(np.bincount(self._core_processor, idle), self.processor_idle), "idle cores of processors"
        assert np.array_equal(np.bincount(self._core_node, idle), self.node_idle), "idle cores of nodes"
        assert self.n_idle == idle.sum(), "idle cores"
        assert (self.node_memory >= 0).all(), "a node's free memory is negative"


class FailingCores(NodeCores):
    """The same on nodes that fail: the cores of one that is down are neither idle nor anybody's."""

    def __init__(self, platform: Platform, demands: Demands, policy: str, rng: np.random.Generator) -> None:
        super().__init__(platform, demands, policy, rng)
        self._job_of_core: Ints = np.full(platform.n_cores, _NOBODY)
        self._bounds: list[int] = platform.node_first_core.tolist()
        self._down: dict[int, Placement] = {}

    def take(self, job: int, placement: Placement) -> None:
        """See :meth:`NodeCores.take`."""
        super().take(job, placement)
        self._job_of_core[placement.cores] = job

    def give_back(self, job: int, placement: Placement) -> None:
        """See :meth:`NodeCores.give_back`."""
        super().give_back(job, placement)
        self._job_of_core[placement.cores] = _NOBODY

    def jobs_on(self, node: int) -> list[int]:
        """Jobs that hold cores of a node, ascending."""
        jobs = self._job_of_core[self._bounds[node] : self._bounds[node + 1]]
        found: list[int] = np.unique(jobs[jobs != _NOBODY]).tolist()
        return found

    def fail(self, node: int) -> None:
        """Takes out the cores of a node, all of them idle."""
        cores = self._down[node] = Placement(np.arange(self._bounds[node], self._bounds[node + 1]), self._platform)
        self._count(cores, -1)

    def repair(self, node: int) -> None:
        """Puts the cores of a node back."""
        self._count(self._down.pop(node), 1)

    def _count(self, cores: Placement, sign: int) -> None:
        self.idle[cores.cores] = sign > 0
        self.n_idle += sign * len(cores.cores)
        self.processor_idle[cores.processors] += sign * cores.counts
        self.node_idle[cores.nodes] += sign * cores.node_counts

    def check(self, running: Sequence[Placement]) -> None:
        """See :meth:`NodeCores.check`; an outage counts as one that holds cores."""
        super().check([*running, *self._down.values()])


def capacity(idle: Ints | Floats, free_memory: Floats, memory: float) -> Ints | Floats:
    """Cores that nodes with `idle` cores and `free_memory` bytes can give to a job of `memory` bytes a core."""
    if not memory:
        return idle
    return np.minimum(idle, np.floor(free_memory / memory))


def members(offsets: NDArray[np.integer], groups: NDArray[np.integer]) -> Ints:
    """Members of some groups, one group after the other, where group i has those from offsets[i] to offsets[i + 1]."""
    first = offsets[groups]
    sizes = offsets[groups + 1] - first
    ends = np.cumsum(sizes)
    listed: Ints = np.repeat(first - (ends - sizes), sizes) + np.arange(ends[-1])
    return listed


def _runs(groups: NDArray[np.integer]) -> tuple[Ints, Ints]:
    """For a sorted, not empty array, where each run of equal values begins and how long it is."""
    begins = np.empty(len(groups), bool)
    begins[0] = True
    np.not_equal(groups[1:], groups[:-1], out=begins[1:])
    first = begins.nonzero()[0]
    lengths = np.empty_like(first)
    np.subtract(first[1:], first[:-1], out=lengths[:-1])
    lengths[-1] = len(groups) - first[-1]
    return first, lengths


def _running_count(groups: NDArray[np.integer]) -> Ints:
    """For a sorted, not empty array, how many equal values stand before each."""
    first, lengths = _runs(groups)
    return np.arange(len(groups)) - np.repeat(first, lengths)
