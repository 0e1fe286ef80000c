"""Idle cores and how a core policy picks among them.

Two stores with the same verbs (`pick`, `allocate`, `release`). `OrderedCores` serves the common case in which cores are
equally fast and every policy that ranks them has the same order: the idle cores are a sorted list and a pick its tail.
`NodeCores` serves everything else: memory of nodes, bandwidth of processors, policies whose keys move with every core
given; `FailingCores` adds nodes that go down. GPUs have core ids, but `Gpus` keeps them apart from the idle cores.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.errors import DecisionError
from hdsim.util.units import in_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hdsim.platform.model import Platform

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

#: Core policies whose key never changes: name -> (P,) key of a processor, highest first.
STATIC_KEYS = {
    "high_gflops": lambda platform: platform.gflops,
    "low_power": lambda platform: -platform.power,
}
#: HDeepRM's six, and two that mind the nodes a job is on.
CORE_POLICIES = ("random", "high_gflops", "high_cores", "high_mem", "high_mem_bw", "low_power", "spread", "pack")

#: Up to this many things are handled one by one; more of them in bulk.
_FEW = 4
#: So many times more idle cores than cores that are taken make it worth to look for these one by one.
_SPARSE = 16
#: Up to so many cores are given one at a time where that moves keys: a turn costs a thirtieth of sorting all offers.
#: Up to so many numbers have their least found in a list, which costs as much as it does in an array of this length.
_SOME = 32
_NOBODY = -1
#: What a processor offers that can give nothing; an array, for arithmetic with scalars takes several times as long.
_NEVER = np.array(-np.inf)
#: More cores than a processor has: in keys of `spread` nodes weigh so many times more than processors.
_MANY = 1 << 20


class Requests(NamedTuple):
    """What each job asks for; scalars of a list cost a quarter of those of an array."""

    size: list[int]  # cores
    memory: list[float]  # byte a core (see `in_bytes`), 0 where no memory is watched
    bandwidth: list[float]  # GB/s a core
    gpus: list[int] | None = None  # GPUs, None where no job asks for any

    def chunk(self, job: int) -> Chunk:
        """The smallest part of a job that lies on one node: all are equal, and there are as many as can be."""
        size, gpus = self.size[job], self.gpus[job] if self.gpus else 0
        number = math.gcd(size, gpus)
        return Chunk(number, size // number, gpus // number, self.memory[job])


class Chunk(NamedTuple):
    """The equal parts of a job that each lie on one node; without GPUs each core is one."""

    number: int
    cores: int
    gpus: int
    memory: float  # byte a core


class FreeNodes:
    """What every node can give.

    Attributes:
        idle: (N,) cores.
        memory: (N,) bytes.
        gpus: (N,), None where no job asks for any.
    """

    __slots__ = ("gpus", "idle", "memory")

    def __init__(self, idle: Ints | Floats, memory: Floats, gpus: Ints | None = None) -> None:
        self.idle = idle
        self.memory = memory
        self.gpus = gpus

    def copy(self) -> FreeNodes:
        """The same in arrays of its own."""
        return FreeNodes(self.idle.copy(), self.memory.copy(), None if self.gpus is None else self.gpus.copy())

    def room(self, chunk: Chunk, nodes: Ints | None = None) -> Ints | Floats:
        """How many chunks of a job nodes can give, by default all nodes."""
        idle, memory, gpus = self.idle, self.memory, self.gpus
        if nodes is not None:
            idle, memory, gpus = idle[nodes], memory[nodes], None if gpus is None else gpus[nodes]
        cores = capacity(idle, memory, chunk.memory)
        if not chunk.gpus:
            return cores
        assert gpus is not None
        return np.minimum(cores // chunk.cores, gpus // chunk.gpus)

    def add(self, nodes: Ints, cores: Ints, chunk: Chunk) -> None:
        """Gives nodes back what a job has there, or with a negative number of `cores` takes it."""
        self.idle[nodes] += cores
        self.memory[nodes] += cores * chunk.memory
        if chunk.gpus:
            assert self.gpus is not None
            self.gpus[nodes] += cores // chunk.cores * chunk.gpus


def static_scores(platform: Platform, requests: Requests) -> dict[str, Floats]:
    """(P,) keys of processors, highest first, under the core policies whose keys none of the jobs can move."""
    keys: dict[str, Floats] = {name: key(platform).astype(np.float64) for name, key in STATIC_KEYS.items()}
    if not any(requests.memory):
        keys["high_mem"] = in_bytes(platform.memory)[platform.processor_node]
    if not np.isfinite(platform.mem_bw).any() or not any(requests.bandwidth):
        keys["high_mem_bw"] = platform.mem_bw
    return keys


class OrderedCores:
    """Idle cores of a platform of one speed, in which only a fixed order of preference tells cores apart.

    A core is known here by its rank, its place in that order with the best last, so that the cores to give are
    mostly the end of one ascending list. A placement is a list of ranks, best first.

    Args:
        platform: The platform; memory and bandwidth are not watched.
        requests: What the jobs ask for.
        policies: Core policies that `pick` is asked for, see `suit`; the first where it is given none.
        rng: For the `random` policy.
    """

    def __init__(
        self, platform: Platform, requests: Requests, policies: Sequence[str], rng: np.random.Generator
    ) -> None:
        self._size = requests.size
        self._rng = rng
        self._policy = policies[0]
        self._policies = frozenset(policies)
        keys = static_scores(platform, requests)
        ranking = [policy for policy in policies if policy in keys]
        #: What `pick` may be given for the end of the list; None stands for the first policy.
        self._ordered = frozenset([*ranking, *([None] if self._policy in keys else [])])
        order = _ranked(keys[ranking[0]] if ranking else np.zeros(platform.n_processors), platform)[::-1]
        self._core_of_rank = order[~platform.is_gpu[platform.core_processor[order]]].astype(np.int32)
        self._processor_of_rank = platform.core_processor[self._core_of_rank]
        n = len(self._core_of_rank)
        self._by_id = n == platform.n_cores and bool((np.diff(self._core_of_rank) < 0).all())
        self._rank_of_core: Ints = np.full(platform.n_cores, _NOBODY)
        self._rank_of_core[self._core_of_rank] = np.arange(n)
        self.idle: list[int] = list(range(n))

    @property
    def n_idle(self) -> int:
        """Idle cores."""
        return len(self.idle)

    @property
    def in_order(self) -> bool:
        """Whether the first core policy gives cores in the order of the list."""
        return None in self._ordered

    @staticmethod
    def suit(policies: Sequence[str], platform: Platform, requests: Requests) -> bool:
        """Whether some core policies need no more than a list: all that rank cores do so in one order."""
        keys = static_scores(platform, requests)
        ranking = [keys[policy] for policy in policies if policy in keys]
        others = {policy for policy in policies if policy not in keys}
        orders = [np.argsort(-key, kind="stable") for key in ranking]
        return others <= {"random", "high_cores"} and all(np.array_equal(orders[0], order) for order in orders[1:])

    def pick(self, job: int, policy: str | None = None, limit: None = None) -> list[int] | None:
        """Returns the most preferred idle cores, as many as the job asks for, or None; changes nothing.

        Raises:
            DecisionError: The agent asks for another core policy than it has promised.
        """
        n = self._size[job]
        idle = self.idle
        if policy in self._ordered:
            return idle[: -n - 1 : -1] if n <= len(idle) else None
        policy = policy or self._policy
        if policy not in self._policies:
            raise DecisionError(
                f"core policy '{policy}' asked for by an agent that declares {', '.join(sorted(self._policies))} only"
            )
        if n > len(idle):
            return None
        if policy == "random":
            ranks = self._by_core()
            chosen = [ranks[place] for place in self._rng.permutation(len(ranks))[:n].tolist()]
        else:
            chosen = self._levelled(n)
        chosen.sort(reverse=True)
        return chosen

    def _by_core(self) -> list[int]:
        """Idle ranks in order of their cores' ids."""
        return self.idle[::-1] if self._by_id else sorted(self.idle, key=self._core_of_rank.__getitem__)

    def _levelled(self, n: int) -> list[int]:
        """The n idle ranks that `high_cores` gives."""
        ranks = np.array(self._by_core(), np.int64)
        # A core is given while it and those after it on its processor are still idle: so many count.
        after = _running_count(self._processor_of_rank[ranks][::-1])[::-1]
        chosen: list[int] = ranks[(-after).argsort(kind="stable")[:n]].tolist()
        return chosen

    def placement_of(self, cores: Sequence[int] | Ints) -> list[int]:
        """Turns core ids an agent chose into a placement."""
        return sorted(self._rank_of_core[np.asarray(cores, np.int64)].tolist(), reverse=True)

    def allocate(self, job: int, ranks: list[int]) -> None:
        """Makes the ranks busy.

        Raises:
            DecisionError: A core is busy or named twice.
        """
        idle = self.idle
        n = len(ranks)
        if idle[: -n - 1 : -1] == ranks:
            del idle[-n:]
            return
        if n <= _FEW or n * _SPARSE <= len(idle):
            places, end = [], len(idle)
            for rank in ranks:
                place = bisect_left(idle, rank, 0, end)
                if place == end or idle[place] != rank:
                    break
                places.append(place)
                end = place
            else:
                for place in places:
                    del idle[place]
                return
        wanted = set(ranks)
        rest = [rank for rank in idle if rank not in wanted]
        if len(rest) != len(idle) - n:
            busy = sorted(int(self._core_of_rank[rank]) for rank in wanted.difference(idle))
            raise DecisionError(f"expected distinct idle cores, got busy {busy}" if busy else "a core is named twice")
        idle[:] = rest

    def release(self, job: int, ranks: list[int]) -> None:
        """Makes the ranks idle again."""
        idle = self.idle
        if not idle or idle[-1] < ranks[-1]:
            idle += ranks[::-1]
        elif len(ranks) <= _FEW:
            for rank in ranks:
                insort(idle, rank)
        else:
            start = bisect_left(idle, ranks[-1])
            tail = idle[start:] + ranks
            tail.sort()
            idle[start:] = tail

    def cores_of(self, placements: Sequence[list[int]], sizes: Ints) -> NDArray[np.int32]:
        """Core ids of many placements, one after the other, ascending within each."""
        ranks = np.fromiter(chain.from_iterable(placements), np.int32, int(sizes.sum()))
        if self._by_id:
            return np.subtract(len(self._core_of_rank) - 1, ranks, out=ranks)
        cores = self._core_of_rank[ranks]
        return cores[np.lexsort((cores, np.repeat(np.arange(len(sizes)), sizes)))]

    def ids_of(self, ranks: list[int]) -> list[int]:
        """Core ids of a placement, ascending; quicker than `cores_of` for one."""
        if self._by_id:
            last = len(self._core_of_rank) - 1
            return [last - rank for rank in ranks]
        ids: list[int] = sorted(self._core_of_rank[ranks].tolist())
        return ids

    def check(self, running: Sequence[list[int]]) -> None:
        """Asserts that every core is either idle or held by exactly one running job."""
        held = [rank for ranks in running for rank in ranks]
        assert self.idle == sorted(self.idle), "idle cores out of order"
        assert sorted(held + self.idle) == list(range(len(self._core_of_rank))), "a core is lost or held twice"


class Placement:
    """Concrete cores of one job.

    Attributes:
        cores: (n,) core ids, ascending, without GPUs.
        gpus: (g,) core ids of GPUs, ascending, on the same nodes.
        processors: (m,) processors the cores are on, ascending.
        counts: (m,) cores on each of those processors.
        nodes: (k,) nodes they are on, ascending.
        node_counts: (k,) cores on each of those nodes.

    Args:
        cores: Core ids, ascending.
        platform: The platform.
        gpus: Core ids of GPUs, ascending.
        on: `processors` and `counts` where they are known.
    """

    __slots__ = ("cores", "counts", "gpus", "node_counts", "nodes", "processors")

    def __init__(
        self,
        cores: Ints,
        platform: Platform,
        gpus: Ints | None = None,
        on: tuple[Ints, Ints] | None = None,
    ) -> None:
        self.cores = cores
        self.gpus = _NONE if gpus is None else gpus
        if on is not None:
            self.processors, self.counts = on
        else:
            owner = platform.core_processor[cores]
            if len(cores) == 1:
                self.counts = _ONE
            else:
                first, self.counts = _runs(owner)
                owner = owner[first]
            # They are used as indices many times, for which narrower numbers would have to be widened each time.
            self.processors = owner.astype(np.int64)
        nodes: Ints = platform.processor_node[self.processors].astype(np.int64)
        if len(nodes) == 1 or platform.n_processors == platform.n_nodes:
            self.nodes, self.node_counts = nodes, self.counts
        else:
            first, _ = _runs(nodes)
            self.nodes, self.node_counts = nodes[first], np.add.reduceat(self.counts, first)

    @property
    def ids(self) -> Ints:
        """(n + g,) core ids of cores and GPUs, ascending."""
        return np.sort(np.concatenate([self.cores, self.gpus])) if len(self.gpus) else self.cores


_ONE: Ints = np.ones(1, np.int64)
_NONE: Ints = np.zeros(0, np.int64)


class Gpus:
    """Idle GPUs.

    Attributes:
        node_idle: (N,) idle GPUs of each node.

    Args:
        platform: The platform.
    """

    def __init__(self, platform: Platform) -> None:
        self._ids = platform.gpus
        self._node = platform.processor_node[platform.core_processor[self._ids]]
        self._first = np.concatenate([[0], np.cumsum(platform.node_gpus)])
        self._idle = np.ones(len(self._ids), bool)
        self.node_idle: Ints = platform.node_gpus.copy()

    def pick(self, nodes: NDArray[np.integer], counts: Ints) -> Ints:
        """Ids of the first idle GPUs of nodes, so many of each; there must be enough."""
        idle = members(self._first, nodes)
        idle = idle[self._idle[idle]]
        within = _running_count(self._node[idle])
        return self._ids[idle[within < np.repeat(counts, self.node_idle[nodes])]]

    def busy(self) -> Ints:
        """Ids of the GPUs that serve jobs, ascending."""
        return self._ids[~self._idle]

    def allocate(self, gpus: Ints) -> None:
        """Makes GPUs busy.

        Raises:
            DecisionError: One is busy or named twice.
        """
        places = np.searchsorted(self._ids, gpus)
        if not self._idle[places].all():
            raise DecisionError(f"expected idle GPUs, got busy {gpus[~self._idle[places]].tolist()}")
        self._idle[places] = False
        np.subtract.at(self.node_idle, self._node[places], 1)

    def release(self, gpus: Ints) -> None:
        """Makes GPUs idle again."""
        places = np.searchsorted(self._ids, gpus)
        self._idle[places] = True
        np.add.at(self.node_idle, self._node[places], 1)

    def check(self, held: Sequence[Ints]) -> None:
        """Asserts that every GPU is idle or held exactly once."""
        busy = np.sort(np.concatenate([*held, _NONE]))
        assert np.array_equal(busy, self._ids[~self._idle]), "a GPU is held twice or lost"
        assert np.array_equal(np.bincount(self._node[self._idle], minlength=len(self.node_idle)), self.node_idle), (
            "idle GPUs of nodes"
        )


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
        self._size, self._memory, self._bandwidth, asked = requests
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
        if not np.isfinite(platform.mem_bw).any():
            self._bandwidth = [0.0] * len(requests.bandwidth)
        self._speed = platform.gflops / platform.reference_gflops
        self.gpus = None if asked is None else Gpus(platform)
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
        room = capacity(self.node_idle, self.node_memory, memory)
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
        room = FreeNodes(self.node_idle, self.node_memory, gpus.node_idle).room(chunk)
        if limit is not None:
            room = np.minimum(room, limit)
        if room.sum() < chunk.number:
            return None
        ranked = self._best_first(chunk.number, room, policy, chunk.memory, bandwidth)
        nodes = self._core_node[ranked]
        place = _place_within(nodes)
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
            self._chunks[kind] = int(np.add.reduce(FreeNodes(self.node_idle, self.node_memory, gpus).room(chunk)))
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
            self._ranked[policy] = _ranked(self._unmoved[policy], self._platform)
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
            offer = offer - step * _running_count(self._core_node[cores] if by_node else owner)
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
        left = self.processor_idle[owner] - _running_count(owner)
        turn = np.lexsort((-left, self._core_node[cores]))
        cores, left = cores[turn], left[turn]
        node = self._core_node[cores]
        offer = (self.node_idle[node] - _running_count(node)) * _MANY + left
        return cores[(-offer).argsort(kind="stable")]

    def _within(self, ranked: Ints, room: Ints | Floats) -> Ints:
        """Leaves out cores of a node that has given all it may, going through `ranked` in order."""
        if np.array_equal(room, self.node_idle):
            return ranked
        node = self._core_node[ranked]
        return ranked[_place_within(node) < room[node]]

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
            if bandwidth:
                self.free_bandwidth[p] += n * bandwidth
            return
        self._count(placement, sign)
        if memory:
            self.node_memory[nodes] += placement.node_counts * (sign * memory)
        if bandwidth:
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


class FailingCores(NodeCores):
    """The same on nodes that fail: the cores of one that is down are neither idle nor anybody's."""

    def __init__(self, platform: Platform, requests: Requests, policy: str, rng: np.random.Generator) -> None:
        super().__init__(platform, requests, policy, rng)
        self._job_of_core: Ints = np.full(platform.n_cores, _NOBODY)
        self._bounds: list[int] = platform.node_first_core.tolist()
        self._down: dict[int, Placement] = {}

    def allocate(self, job: int, placement: Placement) -> None:
        """See :meth:`NodeCores.allocate`."""
        super().allocate(job, placement)
        self._job_of_core[placement.cores] = job

    def release(self, job: int, placement: Placement) -> None:
        """See :meth:`NodeCores.release`."""
        super().release(job, placement)
        self._job_of_core[placement.cores] = _NOBODY

    def jobs_on(self, node: int) -> list[int]:
        """Jobs that hold cores of a node, ascending."""
        jobs = self._job_of_core[self._bounds[node] : self._bounds[node + 1]]
        found: list[int] = np.unique(jobs[jobs != _NOBODY]).tolist()
        return found

    def fail(self, node: int) -> None:
        """Takes out the cores of a node, all of them idle."""
        cores = self._down[node] = self.placement_of(range(self._bounds[node], self._bounds[node + 1]))
        if self.gpus is not None:
            self.gpus.allocate(cores.gpus)
        self._switch(cores, -1)

    def repair(self, node: int) -> None:
        """Puts the cores of a node back."""
        cores = self._down.pop(node)
        if self.gpus is not None:
            self.gpus.release(cores.gpus)
        self._switch(cores, 1)

    def _switch(self, cores: Placement, sign: int) -> None:
        self.idle[cores.cores] = sign > 0
        self.n_idle += sign * len(cores.cores)
        self._chunks.clear()
        self._count(cores, sign)

    def check(self, running: Sequence[Placement]) -> None:
        """See :meth:`NodeCores.check`; an outage counts as one that holds cores."""
        super().check([*running, *self._down.values()])


def water_fill(n: int, idle: Ints) -> Ints:
    """How many cores processors give when always the one with the most idle cores gives one, n in all.

    Args:
        n: How many; there must be enough.
        idle: Idle cores of each processor.
    """
    # All idle cores above a level are given, and from the first processors that reach the level one more each.
    at_least = np.bincount(idle)[::-1].cumsum()[::-1]
    above = at_least[:0:-1].cumsum()
    level = len(at_least) - 1 - int(above.searchsorted(n, side="right"))
    given = np.maximum(idle - level, 0)
    given[(idle >= level).nonzero()[0][: n - int(np.add.reduce(given))]] += 1
    return given


def min_at(values: Floats, places: NDArray[np.integer]) -> float:
    """Least of the values in some places, which are those of processors, nodes or cores."""
    # Mostly there is one place, and a scalar costs a fraction of an array; a short list costs half of one.
    if len(places) == 1:
        return float(values[places[0]])
    chosen = values[places]
    return float(min(chosen.tolist()) if len(places) <= _SOME else np.minimum.reduce(chosen))


def _ranked(key: Floats, platform: Platform) -> Ints:
    """All cores from the best to the worst by a (P,) key of processors, the highest first, then by id."""
    return np.argsort(-key[platform.core_processor], kind="stable").astype(np.int64)


def capacity(idle: Ints | Floats, free_memory: Floats, memory: float) -> Ints | Floats:
    """Cores that nodes with `idle` cores and `free_memory` bytes can give to a job of `memory` bytes a core."""
    if not memory:
        return idle
    return np.minimum(idle, np.floor(free_memory / memory))


def members(offsets: NDArray[np.integer], groups: NDArray[np.integer]) -> Ints:
    """Members of some groups, one group after the other, where group i has those from offsets[i] to offsets[i + 1].

    Quickest for offsets of 64 bits: arithmetic with numbers of two widths takes several times as long.
    """
    first = offsets[groups]
    sizes = offsets[1:][groups] - first
    first -= sizes.cumsum()
    first += sizes
    listed = first.repeat(sizes)
    return listed + np.arange(len(listed))


def _place_within(groups: NDArray[np.integer]) -> Ints:
    """For a not empty array in any order, how many equal values stand before each."""
    order = groups.argsort(kind="stable")
    places: Ints = np.empty(len(groups), np.int64)
    places[order] = _running_count(groups[order])
    return places


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
    return np.arange(len(groups)) - first.repeat(lengths)
