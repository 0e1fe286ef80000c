"""The fluid network model: messages are flows on shared links with constant rates between events.

A node sends on the up direction and receives on the down direction of its full-duplex link. A flow between clusters
also uses the up direction of the global link of its cluster and the down direction of that of the other cluster.
Messages within a node use no link.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cached_property, partial
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hdsim.errors import ConfigError, nearest
from hdsim.network import LinkLoad, Messages
from hdsim.network.kernels.sharing import Streams
from hdsim.network.maxmin import MaxMin, Uses

if TYPE_CHECKING:
    from hdsim.platform.model import Platform

#: Sharing of links: equal shares per message, shares inversely proportional to path latency, or SimGrid's rounds per
#: task.
SHARING = ("equal", "latency", "rounds")

#: Source node, target node, bytes.
Message = tuple[int, int, float]

#: Stream, remaining amount and rate of each unfinished flow.
States = tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]


class Transfer:
    """Messages or a parallel task with one key."""

    __slots__ = ("begin", "bound", "date", "key", "plan", "shared")

    def __init__(self, key: Hashable, begin: float, plan: StreamPlan, bound: float = math.inf) -> None:
        self.key = key  # key of the caller
        self.begin = begin  # date of the start
        self.plan = plan
        self.bound = bound  # maximum rate of each stream
        self.shared = -1  # the transfer among those that share links; -1 while it follows its plan
        self.date = math.nan  # announced date of the end of a transfer that follows its plan


class StreamPlan:
    """Streams that start together, and their progress on otherwise idle links.

    `private` returns the same, otherwise idle links, on which the trajectory of several streams is computed.
    """

    def __init__(self, streams: Streams, private: Callable[[], MaxMin]) -> None:
        self.streams = streams
        self.links = tuple(dict.fromkeys(streams.link.tolist()))  # the links of the streams, each once
        self.holds = False  # whether no other transfer has used the links since the plan claimed them
        self.active: Transfer | None = None  # transfer that currently follows the plan
        self._private = private

    @cached_property
    def whole(self) -> States:
        """All streams before their start."""
        amount = self.streams.amount
        return np.arange(len(amount)), amount, np.zeros(len(amount))

    @cached_property
    def uncontended_time(self) -> float:
        """Duration of all streams on otherwise idle links, seconds."""
        seconds = self._private().uncontended_time(self.streams)
        return self._trajectory[-1][0] if math.isnan(seconds) else seconds

    def states(self, elapsed: float, bound: float) -> States:
        """Returns the unfinished streams, `elapsed` seconds after the start."""
        if len(self.whole[0]) == 1:
            amount, latency, peak = (float(column[0]) for column in self.streams[:3])
            flowed = elapsed - latency
            rate = min(peak, bound) if flowed >= 0.0 else 0.0
            return self.whole[0], np.array([min(amount, amount - rate * flowed)]), np.array([rate])
        begin, (chosen, left, rates) = self._trajectory[bisect_right(self._trajectory, elapsed, key=itemgetter(0)) - 1]
        return chosen, left - rates * (elapsed - begin), rates

    @cached_property
    def _trajectory(self) -> list[tuple[float, States]]:
        """(seconds, unfinished streams) for every change of rates."""
        links, now = self._private(), 0.0
        transfer = links.add(self.streams, *self.whole[:2], begin=now, now=now)
        trajectory = []
        over = False
        while not over:
            links.settle(now)
            trajectory.append((now, links.flows(transfer, now)))
            now = links.date(transfer)
            over = links.advance(transfer, now)
        return [*trajectory, (now, (self.whole[0][:0], self.whole[1][:0], self.whole[1][:0]))]


class FluidPhase:
    """Prepared messages that start together; see :meth:`Fluid.phase`."""

    def __init__(self, exchange: Callable[[], StreamPlan], task: Callable[[], StreamPlan]) -> None:
        self._make_exchange = exchange
        self._make_task = task

    @cached_property
    def exchange(self) -> StreamPlan:
        """The messages as individual streams."""
        return self._make_exchange()

    @cached_property
    def task(self) -> StreamPlan:
        """The messages as one parallel task."""
        return self._make_task()

    @cached_property
    def uncontended_time(self) -> float:
        """See :class:`hdsim.network.Phase`."""
        return self.exchange.uncontended_time

    def parallel_time(self, seconds: float) -> float:
        """See :class:`hdsim.network.Phase`."""
        latency = float(self.task.streams.latency[0])
        return latency + max(seconds, self.task.uncontended_time - latency)


class Fluid:
    """Transfers between the nodes of a platform (interface: :class:`hdsim.network.Network`).

    A message waits for the sum of the latencies on its path without using bandwidth, then flows. A change updates only
    transfers that are connected by saturated links. Dates are in seconds and ascending from call to call; volumes are
    in bytes. The sharing of links is one of :data:`SHARING`: ``"latency"`` is SimGrid's rule for flows, ``"rounds"``
    its default rule for parallel tasks, which Batsim uses.

    Raises:
        ConfigError: `sharing` is unknown.
    """

    def __init__(self, platform: Platform, sharing: str = "equal") -> None:
        if sharing not in SHARING:
            raise ConfigError(
                f"expected one of {', '.join(SHARING)}, got {sharing!r}{nearest(sharing, SHARING)}",
                where="network.sharing",
            )
        self._by_latency, self._by_task = sharing == "latency", sharing == "rounds"
        nodes = platform.n_nodes
        of_node = platform.node_cluster
        bandwidth = np.concatenate(
            [np.repeat(platform.local_bandwidth[of_node], 2), np.repeat(platform.global_bandwidth, 2)]
        )
        self._bandwidth = bandwidth
        # Up and down directions alternate, nodes before clusters. Unlimited links are omitted.
        halves = [(link,) if limited else () for link, limited in enumerate(np.isfinite(bandwidth).tolist())]
        self._up, self._down = halves[: 2 * nodes : 2], halves[1 : 2 * nodes : 2]
        self._global_up, self._global_down = halves[2 * nodes :: 2], halves[2 * nodes + 1 :: 2]
        self._cluster: list[int] = of_node.tolist()
        self._latency: list[float] = platform.local_latency[of_node].tolist()
        self._global_latency: list[float] = platform.global_latency.tolist()
        self._nodes = nodes
        self._shared = self._solver()
        # Transfers by their numbers there, and whether their rates need an update.
        self._sharing: dict[int, Transfer] = {}
        self._changed = False
        # Per link: the last plan that claimed it, and the number of transfers that share it.
        self._holders: list[StreamPlan | None] = [None] * len(halves)
        self._crowd = [0] * len(halves)
        self._transfers: dict[Hashable, Transfer] = {}
        self._updated: dict[Transfer, None] = {}
        # Rate bounds from the next `settle` on.
        self._bounds: dict[Transfer, float] = {}
        self._now = 0.0

    def __len__(self) -> int:
        """Number of active transfers."""
        return len(self._transfers)

    def path(self, source: int, target: int) -> tuple[tuple[int, ...], float]:
        """Returns the limited links of a path and its latency in seconds.

        Link indices alternate between up and down directions, nodes before clusters.
        """
        if source == target:
            return (), 0.0
        latency = self._latency[source] + self._latency[target]
        here, there = self._cluster[source], self._cluster[target]
        if here == there:
            return self._up[source] + self._down[target], latency
        latency += self._global_latency[here] + self._global_latency[there]
        return self._up[source] + self._global_up[here] + self._global_down[there] + self._down[target], latency

    def phase(self, messages: Iterable[Message | Messages]) -> FluidPhase:
        """Prepares messages, which can be started repeatedly and concurrently.

        Equal messages are merged, so that costs depend on pairs of nodes rather than on tasks. A message is (source
        node, target node, bytes), or (source node, target node, bytes of each, number).

        Raises:
            ValueError: A node, a volume or a number is not allowed.
        """
        counts: dict[Message, int] = {}
        for source, target, volume, *number in messages:
            if not (0 <= source < self._nodes and 0 <= target < self._nodes):
                raise ValueError(f"expected nodes in 0..{self._nodes - 1}, got a message from {source} to {target}")
            if not 0 <= volume < math.inf:
                raise ValueError(f"expected a finite volume of 0 bytes or more, got {volume}")
            count = number[0] if number else 1
            if count < 1:
                raise ValueError(f"expected 1 message or more, got {count} from {source} to {target}")
            message = (source, target, volume)
            counts[message] = counts.get(message, 0) + count
        return FluidPhase(partial(self._exchange, counts), partial(self._task, counts))

    def start(self, key: Hashable, source: int, target: int, volume: float, now: float) -> None:
        """Starts a message of `volume` bytes from a node to a node; errors are those of :meth:`start_phase`."""
        self.start_phase(key, ((source, target, volume),), now)

    def start_phase(self, key: Hashable, messages: FluidPhase | Iterable[Message | Messages], now: float) -> None:
        """Starts messages, a phase or arguments of :meth:`phase`, as one transfer; it ends with the last one.

        Raises:
            ValueError: The key is in use, or a message is not allowed.
        """
        phase = messages if isinstance(messages, FluidPhase) else self.phase(messages)
        plan = phase.exchange
        self._start(Transfer(key, now, plan), plan.uncontended_time)

    def start_parallel(
        self, key: Hashable, seconds: float, messages: FluidPhase | Iterable[Message | Messages], now: float
    ) -> None:
        """Starts a parallel task, whose computation of some seconds and messages progress at one common rate.

        Messages of 0 bytes are ignored.

        Raises:
            ValueError: The key is in use, or a message or `seconds` is not allowed.
        """
        if not 0 <= seconds < math.inf:
            raise ValueError(f"expected a finite computation of 0 s or more, got {seconds}")
        phase = messages if isinstance(messages, FluidPhase) else self.phase(messages)
        bound = 1.0 / seconds if seconds else math.inf
        self._start(Transfer(key, now, phase.task, bound), phase.parallel_time(seconds))

    def set_seconds(self, key: Hashable, seconds: float) -> None:
        """Changes the total computation time of a parallel task; ValueError unless it is positive and finite."""
        if not 0 < seconds < math.inf:
            raise ValueError(f"expected a finite computation of more than 0 s, got {seconds}")
        self._bounds[self._transfers[key]] = 1.0 / seconds

    def advance(self, key: Hashable, now: float) -> bool:
        """Continues a transfer at the date of `settle`; True if it ends."""
        transfer = self._transfers[key]
        if transfer.shared < 0:
            transfer.plan.active = None
        else:
            self._changed = True
            if not self._shared.advance(transfer.shared, now):
                return False
            self._leave_crowd(transfer)
        del self._transfers[key]
        if self._bounds:
            self._bounds.pop(transfer, None)
        return True

    def end(self, key: Hashable, now: float) -> None:
        """Removes a transfer before its end."""
        transfer = self._transfers.pop(key)
        if self._bounds:
            self._bounds.pop(transfer, None)
        if transfer.shared < 0:
            transfer.plan.active = None
            self._updated.pop(transfer, None)
        else:
            self._changed = True
            self._shared.remove(transfer.shared)
            self._leave_crowd(transfer)

    def settle(self, now: float) -> list[tuple[Hashable, float]]:
        """Updates all rates after the starts, advances and ends of an instant.

        Transfers that are new or have another date are returned as (key, seconds until `advance`).
        """
        self._now = now
        if self._bounds:
            for transfer, bound in self._bounds.items():
                if transfer.shared < 0:
                    self._share(transfer, now)
                transfer.bound = bound
                self._shared.set_bound(transfer.shared, bound)
            self._bounds.clear()
            self._changed = True
        moved: list[tuple[Hashable, float]] = []
        if self._updated:
            moved += [(transfer.key, transfer.date - now) for transfer in self._updated]
            self._updated.clear()
        if self._changed:
            self._changed = False
            moved += [(self._sharing[number].key, seconds) for number, seconds in self._shared.settle(now)]
        return moved

    def link_load(self) -> LinkLoad:
        """Returns the load of all links since the last `settle`."""
        load = self._shared.load.copy()
        for transfer in self._transfers.values():
            if transfer.shared < 0:
                streams = transfer.plan.streams
                chosen, _, rates = transfer.plan.states(self._now - transfer.begin, transfer.bound)
                rate = np.zeros(len(streams.amount))
                rate[chosen] = rates
                np.add.at(load, streams.link, streams.usage * np.repeat(rate, np.diff(streams.first)))
        nodes, clusters = load[: 2 * self._nodes], load[2 * self._nodes :]
        return LinkLoad(nodes[::2], nodes[1::2], clusters[::2], clusters[1::2])

    def _start(self, transfer: Transfer, seconds: float) -> None:
        """Starts a transfer of an uncontended duration in seconds."""
        key, now, plan = transfer.key, transfer.begin, transfer.plan
        if key in self._transfers:
            raise ValueError(f"expected a new key, got {key!r}, which names a transfer under way")
        self._transfers[key] = transfer
        if (plan.holds and plan.active is None) or self._claim(plan, now):
            plan.active = transfer
            transfer.date = now + seconds
            self._updated[transfer] = None
        else:
            self._share(transfer, now)

    def _claim(self, plan: StreamPlan, now: float) -> bool:
        """Claims the links of a plan; False if some are in use, whose transfers are then contended."""
        free = True
        crowd, holders = self._crowd, self._holders
        for link in plan.links:
            holder = holders[link]
            if holder is not None:
                holder.holds = False
                if holder.active is not None:
                    self._share(holder.active, now)
            if crowd[link]:
                free = False
            holders[link] = plan
        plan.holds = free
        return free

    def _share(self, transfer: Transfer, now: float) -> None:
        """Moves a transfer with its remaining streams to the transfers that share links."""
        plan, begin = transfer.plan, transfer.begin
        chosen, left, _ = plan.states(now - begin, transfer.bound) if now > begin else plan.whole
        # The caller does not know its date yet if it is to be announced.
        announced = math.nan if self._updated.pop(transfer, False) is None else transfer.date
        plan.active, plan.holds = None, False
        for link in plan.links:
            self._crowd[link] += 1
        transfer.shared = self._shared.add(plan.streams, chosen, left, begin, now, transfer.bound, announced)
        self._sharing[transfer.shared] = transfer
        self._changed = True

    def _leave_crowd(self, transfer: Transfer) -> None:
        del self._sharing[transfer.shared]
        for link in transfer.plan.links:
            self._crowd[link] -= 1

    # Plans

    def _solver(self) -> MaxMin:
        return MaxMin(self._bandwidth, rounds=self._by_task)

    @cached_property
    def _private(self) -> MaxMin:
        """Links that plans use, one at a time, to compute uncontended durations."""
        return self._solver()

    def _idle_links(self) -> MaxMin:
        return self._private

    def _exchange(self, messages: dict[Message, int]) -> StreamPlan:
        latencies, uses = [], []
        for (source, target, _), count in messages.items():
            links, latency = self.path(source, target)
            share = 1.0 / latency if self._by_latency and latency else 1.0
            latencies.append(latency)
            uses.append((links, (float(count),) * len(links), (share,) * len(links)))
        return self._plan([volume for _, _, volume in messages], latencies, uses)

    def _task(self, messages: dict[Message, int]) -> StreamPlan:
        amounts: dict[int, float] = {}
        largest: dict[int, float] = {}
        delay = 0.0
        for (source, target, volume), count in messages.items():
            if volume:
                links, latency = self.path(source, target)
                delay = max(delay, latency)
                for link in links:
                    amounts[link] = amounts.get(link, 0.0) + volume * count
                    largest[link] = max(largest.get(link, 0.0), volume)
        usages = tuple(amounts.values())
        claims = usages if self._by_task else tuple(largest.values())
        return self._plan([1.0], [delay], [(tuple(amounts), usages, [1.0 / claim for claim in claims])])

    def _plan(self, amounts: Sequence[float], latencies: Sequence[float], uses: Sequence[Uses]) -> StreamPlan:
        return StreamPlan(self._shared.streams(amounts, latencies, uses), self._idle_links)
