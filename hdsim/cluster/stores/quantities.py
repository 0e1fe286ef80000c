"""A store without core ids: quantities of CPU, memory, pods, GPUs and ephemeral storage per node, as in Kubernetes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.cluster.policies import CORE_POLICIES, SCORES
from hdsim.cluster.requests import Amounts, FreeNodes
from hdsim.cluster.scores import NodeScores
from hdsim.cluster.selection import own_scores
from hdsim.errors import DecisionError, require
from hdsim.util.arrays import Floats, Ints, read_only
from hdsim.util.copies import itself, with_own_containers
from hdsim.util.units import in_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hdsim.cluster.kernels.chunks import Chunk
    from hdsim.cluster.requests import Requests
    from hdsim.platform.model import Platform
    from hdsim.platform.schema import Taint


@dataclass(frozen=True, slots=True)
class NodeAmounts:
    """A placement in quantities per node."""

    __deepcopy__ = itself

    nodes: Ints  # (k,) nodes, ascending
    node_counts: Ints  # (k,) requested cores of the job on each node
    cpu: Floats  # (k,) CPU in cores
    memory: Floats  # (k,) memory in bytes
    gpus: Ints  # (k,) GPUs
    pods: Ints  # (k,) pods: chunks of the job
    storage: Floats  # (k,) ephemeral storage in bytes

    def __len__(self) -> int:
        """Number of core ids: none."""
        return 0


class NodeQuantities:
    """Free CPU, memory, pods, GPUs and ephemeral storage of nodes.

    Chunks of a job are placed one by one, on nodes that its constraints allow. ``high_gflops``, ``low_power`` and
    ``high_mem_bw`` score a node by its best processor, ``high_mem`` by its free memory, ``high_cores`` and ``spread``
    by its free CPU; ``pack`` selects the fewest and then the fullest nodes, ``random`` any node with capacity; the
    others are those of :mod:`hdsim.cluster.scores`. Ties go to the first node. Memory bandwidth is not tracked.

    Attributes:
        node_speed: (N,) speed of the slowest processor of each node relative to the reference speed, without GPUs.
        total: Amounts of the nodes; free amounts are what jobs and pods of others leave of them.
        free_bandwidth: (P,) memory bandwidth of each processor in GB/s.
    """

    __deepcopy__ = with_own_containers

    def __init__(self, platform: Platform, requests: Requests, policy: str, rng: np.random.Generator) -> None:
        self._requests, self._rng = requests, rng
        assert requests.places is not None
        self.total = FreeNodes(
            platform.node_cpu,
            in_bytes(platform.memory),
            None if requests.gpus is None else platform.node_gpus,
            platform.node_pods if np.isfinite(platform.node_pods).any() else None,
            None if requests.storage is None else platform.node_storage,
            requests.places.masks,
        )
        self._free = self.total.copy()
        self._node_scores = NodeScores(self.total.idle, self.total.memory)
        # Amounts of pods of others by node, and placements of running jobs.
        self._others: dict[int, Amounts] = {}
        self._held: dict[int, NodeAmounts] = {}
        self._feasible: dict[int, bool] = {}  # by kind of job
        self.free_bandwidth = platform.mem_bw
        first, cpu = platform.node_first_processor[:-1], ~platform.is_gpu
        speed = platform.gflops / platform.reference_gflops
        self.node_speed = np.minimum.reduceat(np.where(cpu, speed, np.inf), first)
        self._platform = platform
        # Nodes by descending score.
        self._orders = {
            policy: self._ranked(key)
            for policy, key in (
                ("high_gflops", platform.gflops),
                ("low_power", -platform.power),
                ("high_mem_bw", platform.mem_bw),
            )
        }
        self.use(policy)

    @property
    def node_idle(self) -> Floats:
        """(N,) free CPU of each node in cores, at least 0; 0 for a node that is down."""
        return self._usable(self._free.idle)

    @property
    def node_memory(self) -> Floats:
        """(N,) free bytes of each node, at least 0; 0 for a node that is down."""
        return self._usable(self._free.memory)

    @property
    def node_pods(self) -> Floats | None:
        """(N,) further pods of each node, at least 0; 0 for a node that is down. None without limits."""
        return None if self._free.pods is None else self._usable(self._free.pods)

    @property
    def node_gpus(self) -> Floats | None:
        """(N,) free GPUs of each node, None if no job requests any."""
        return self._free.gpus

    @property
    def n_idle(self) -> float:
        """Free CPU in cores."""
        return round(float(self.node_idle.sum()), 3)

    def _ranked(self, scores: Floats) -> Ints:
        """Returns the nodes by the highest of the (P,) scores of their processors without GPUs, highest first."""
        first, cpu = self._platform.node_first_processor[:-1], ~self._platform.is_gpu
        return np.argsort(-np.maximum.reduceat(np.where(cpu, scores, -np.inf), first), kind="stable")

    def use(self, policy: str) -> None:
        """Sets the core policy that :meth:`pick` follows by default; ConfigError if there is none of the name."""
        self.policy = policy
        if policy not in CORE_POLICIES:
            self._orders = {**self._orders, policy: self._ranked(own_scores(policy, self._platform))}

    def pick(self, job: int, policy: str | None = None, limit: Floats | Ints | None = None) -> NodeAmounts | None:
        """Selects nodes for the chunks of a job without allocating them; None if they do not fit.

        Args:
            job: Job index.
            policy: Name of the core policy, by default that of the store.
            limit: (N,) maximum number of chunks on each node.
        """
        chunk = self._requests.chunk(job)
        capacity = np.minimum(self._free.capacity(chunk), chunk.number)
        if limit is not None:
            capacity = np.minimum(capacity, limit).astype(np.int64)
        if capacity.sum() < chunk.number:
            return None
        chosen = self._choose(chunk, capacity, policy or self.policy)
        nodes = chosen.nonzero()[0]
        return _amounts(chunk, nodes, chosen[nodes])

    def placement_on(self, job: int, pods: Mapping[int, int]) -> NodeAmounts:
        """Returns the placement of a job by the number of its pods on each node, such as one that others have bound."""
        nodes = np.array(sorted(pods), np.int64)
        return _amounts(self._requests.chunk(job), nodes, np.array([pods[node] for node in nodes.tolist()], np.int64))

    def _choose(self, chunk: Chunk, capacity: Ints, policy: str) -> Ints:
        """Returns (N,) chunks on each node, at most its capacity."""
        if policy in SCORES:
            return self._node_scores.choose(policy, chunk, capacity, (self._free.idle, self._free.memory))
        chosen = np.zeros_like(capacity)
        if policy in self._orders:
            order = self._orders[policy]
            before = np.cumsum(capacity[order]) - capacity[order]
            chosen[order] = np.clip(chunk.number - before, 0, capacity[order])
        elif policy == "pack":
            left = chunk.number
            while left:
                # The fullest node that holds the rest, otherwise the node of largest capacity.
                holding = np.flatnonzero((capacity - chosen >= left) & (chosen == 0))
                free = np.where(chosen == 0, capacity, -1)
                node = int(holding[self._free.idle[holding].argmin()] if len(holding) else free.argmax())
                chosen[node] = min(left, int(capacity[node]))
                left -= int(chosen[node])
        else:
            for _ in range(chunk.number):
                open_to = np.flatnonzero(chosen < capacity)
                if policy == "random":
                    node = self._rng.choice(open_to)
                else:
                    node = open_to[self._scores(chunk, chosen, policy)[open_to].argmax()]
                chosen[node] += 1
        return chosen

    def _scores(self, chunk: Chunk, chosen: Ints, policy: str) -> Floats:
        """Returns the (N,) scores of nodes for a further chunk beside those chosen, highest first."""
        counts = chosen * chunk.cores
        if policy == "high_mem":
            return self._free.memory - counts * chunk.memory
        return np.round(self._free.idle - _thousandths(counts, chunk), 3)

    def fits(self, job: int) -> bool:
        """Whether what is free suffices for a job."""
        chunk = self._requests.chunk(job)
        return bool(np.minimum(self._free.capacity(chunk), chunk.number).sum() >= chunk.number)

    def capacity(self, chunk: Chunk) -> Ints:
        """Returns the number of chunks of a job that fit on each node."""
        return self._free.capacity(chunk)

    def feasible(self, job: int) -> bool:
        """Returns whether a job fits on the empty nodes."""
        kind = self._requests.kind(job)
        if kind not in self._feasible:
            chunk = self._requests.chunk(job)
            self._feasible[kind] = bool(self.total.capacity(chunk).sum() >= chunk.number)
        return self._feasible[kind]

    def relabel(self, node: int, name: str, labels: Mapping[str, str], taints: Iterable[Taint]) -> None:
        """Changes the name, the labels and the taints of a node."""
        assert self._requests.places is not None
        self._requests.places.change(node, name, labels, taints)
        self._feasible.clear()

    def replace_total(self, node: int, amounts: Amounts) -> None:
        """Changes the amounts of a node; jobs and pods of others keep what they hold, which may be more than that."""
        self.total.put(node, amounts)
        self._free.put(node, amounts)
        others = self._others.setdefault(node, Amounts())
        self._free.change(node, others, -1)
        for held in self._held.values():
            for place in np.flatnonzero(held.nodes == node).tolist():
                columns = (held.cpu, held.memory, held.pods, held.gpus, held.storage)
                self._free.change(node, Amounts(*(float(column[place]) for column in columns)), -1)
        self._node_scores.replace_capacity(node, amounts.cpu, amounts.memory)
        self._feasible.clear()

    def explain(self, job: int, *, empty: bool = False) -> str:
        """Returns why a job does not fit on the nodes as they are, or empty: each reason with its number of nodes."""
        chunk, free = self._requests.chunk(job), self.total if empty else self._free
        room = int(np.minimum(free.capacity(chunk), chunk.number).sum())
        mask, up = free.masks[chunk.place], free.up
        # A node that has nothing is none.
        nodes = (self.total.idle > 0) | (self.total.memory > 0)
        left = nodes if up is None else nodes & up
        reasons = [(int(np.count_nonzero(nodes & ~left)), "down")]
        if mask is not None:
            assert self._requests.places is not None
            reasons += self._requests.places.exclusions(chunk.place, left)
            left = left & mask
        for name, (taken, amounts) in free.resources(chunk).items():
            if amounts is not None:
                reasons.append((int(np.count_nonzero(left & (amounts < taken))), f"without enough {name}"))
        listed = ", ".join(f"{count} {reason}" for count, reason in reasons if count) or "all others are full"
        return f"{np.count_nonzero(nodes)} nodes have room for {room} of {chunk.number} pods: {listed}"

    def free_nodes(self) -> FreeNodes:
        """Returns a copy of the free resources of all nodes."""
        return self._free.copy()

    def allocate(self, job: int, placement: NodeAmounts, *, may_overcommit: bool = False) -> None:
        """Allocates a placement to a job; with `may_overcommit` nodes may have less than it takes, as with `occupy`.

        Raises:
            DecisionError: The free resources of a node do not suffice.
        """
        self._move(job, placement, -1)
        if may_overcommit:
            for node in placement.nodes.tolist():
                self._others.setdefault(node, Amounts())
        elif self._free.short(placement.nodes, self._requests.chunk(job)):
            self._move(job, placement, 1)
            raise DecisionError(f"expected nodes with capacity for the job, got {placement.nodes.tolist()}")
        self._held[job] = placement

    def release(self, job: int, placement: NodeAmounts) -> None:
        """Releases the placement of a job."""
        self._move(job, placement, 1)
        del self._held[job]

    def resize(self, job: int, placement: NodeAmounts, cpu: float) -> NodeAmounts:
        """Changes the CPU, in cores, of a job of one chunk that holds a placement, and returns what it holds then.

        Raises:
            DecisionError: The node does not have as much; nothing has changed then.
        """
        requested, before = self._requests.cpu, self._requests.chunk(job)
        assert requested is not None and before.number == 1
        self.release(job, placement)
        requested.write(job, cpu / before.cores)
        resized = _amounts(self._requests.chunk(job), placement.nodes, placement.pods)
        try:
            self.allocate(job, resized)
        except DecisionError:
            requested.write(job, before.cpu)
            self.allocate(job, placement)
            raise
        return resized

    def _move(self, job: int, placement: NodeAmounts, sign: int) -> None:
        chunk, nodes, counts = self._requests.chunk(job), placement.nodes, sign * placement.node_counts
        self._free.add(nodes, counts, chunk)
        self._node_scores.count(nodes, -counts, chunk.cpu, chunk.memory)

    def occupy(self, node: int, amounts: Amounts) -> None:
        """Takes amounts of a node for a pod that is no job, which may overcommit the node."""
        self._change(node, amounts, -1)

    def vacate(self, node: int, amounts: Amounts) -> None:
        """Takes back what `occupy` has taken."""
        self._change(node, amounts, 1)

    def _change(self, node: int, amounts: Amounts, sign: int) -> None:
        self._free.change(node, amounts, sign)
        self._node_scores.count(node, -sign * amounts.pods, amounts.cpu, amounts.memory)
        sums = zip(self._others.get(node, Amounts()), amounts, strict=True)
        self._others[node] = Amounts(*(taken - sign * each for taken, each in sums))

    def fail(self, node: int) -> None:
        """Takes a node out of service: nothing fits there; what jobs and others hold there stays."""
        up = np.ones(len(self._free.idle), np.bool_) if self._free.up is None else self._free.up.copy()
        up[node] = False
        self._free.up = up

    def repair(self, node: int) -> None:
        """Puts a node back into service."""
        assert self._free.up is not None
        up = self._free.up.copy()
        up[node] = True
        self._free.up = None if up.all() else up

    def jobs_on(self, node: int) -> list[int]:
        """Returns the jobs that hold resources of a node, ascending."""
        return sorted(job for job, held in self._held.items() if node in held.nodes)

    def _usable(self, amounts: Ints | Floats) -> Floats:
        up, usable = self._free.up, amounts.astype(np.float64, copy=False)
        if self._others:
            usable = np.maximum(usable, 0.0)
        return usable if up is None else np.where(up, usable, 0.0)

    def slowest(self, placement: NodeAmounts) -> float:
        """Returns the speed of the slowest processor of the nodes relative to the reference speed."""
        return float(self.node_speed[placement.nodes].min())

    def ids_of(self, placement: NodeAmounts) -> list[int]:
        """Returns an empty result: there are no core ids."""
        return []

    def cores_of(self, placements: Sequence[NodeAmounts], sizes: Ints) -> NDArray[np.int32]:
        """Returns an empty result: there are no core ids."""
        return np.zeros(0, np.int32)

    def check(self, running: Sequence[NodeAmounts]) -> None:
        """Checks that free and allocated resources add up to the platform.

        Raises:
            InvariantError: They do not.
        """
        free = self._free.copy()
        alone = np.ones(len(free.idle), np.bool_)
        alone[list(self._others)] = False
        for held in running:
            columns = (held.nodes, held.cpu, held.memory, held.pods, held.gpus, held.storage)
            for node, *taken in zip(*(column.tolist() for column in columns), strict=True):
                free.change(node, Amounts(*taken), 1)
        for node, amounts in self._others.items():
            free.change(node, amounts, 1)
        for name in ("idle", "memory", "pods", "gpus", "storage"):
            now, found, total = (getattr(amounts, name) for amounts in (self._free, free, self.total))
            require(now is None or (now[alone] >= 0).all(), f"{name} of a node is overcommitted")
            require(found is None or np.array_equal(found, total), f"{name} of a node is lost or allocated twice")


def _amounts(chunk: Chunk, nodes: Ints, chosen: Ints) -> NodeAmounts:
    """Returns the placement of chunks on nodes."""
    counts = chosen * chunk.cores
    memory, storage = np.float64(chunk.memory) * counts, np.float64(chunk.storage) * counts
    columns: list[Any] = [nodes, counts, _thousandths(counts, chunk), memory, chosen * chunk.gpus, chosen, storage]
    return NodeAmounts(*map(read_only, columns))


def _thousandths(counts: Ints, chunk: Chunk) -> Floats:
    """Returns the CPU in cores of requested cores of a job."""
    return np.round(counts * chunk.cpu, 3)
