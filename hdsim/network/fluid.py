"""The fluid model: messages are flows that share the links on their way, at rates that are constant between events.

A node sends over the up half and receives over the down half of its full-duplex link. Between clusters a flow also
takes the up half of its cluster's global link and the down half of the other's. Nodes need no link to reach themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from hdsim.errors import ConfigError, nearest
from hdsim.network import LinkLoad, Messages
from hdsim.network.flows import ActiveFlow, Flows, Plan, Stream, Transfer
from hdsim.network.maxmin import MaxMin

if TYPE_CHECKING:
    from hdsim.platform.model import Platform

#: How transfers share a link: message by message in equal parts, or in inverse proportion to the latency of their path,
#: or task by task in SimGrid's rounds.
SHARING = ("equal", "latency", "rounds")

#: Source node, target node, bytes.
Message = tuple[int, int, float]


class Phase:
    """Messages that start together, made ready for a network; see :meth:`Fluid.phase`."""

    def __init__(self, exchange: Callable[[], Plan], task: Callable[[], Plan]) -> None:
        self._make_exchange = exchange
        self._make_task = task

    @cached_property
    def exchange(self) -> Plan:
        """The messages as streams of their own."""
        return self._make_exchange()

    @cached_property
    def task(self) -> Plan:
        """The messages as one parallel task."""
        return self._make_task()

    @cached_property
    def uncontended_time(self) -> float:
        """Seconds that the messages take if nobody else uses their links."""
        return self.exchange.uncontended_time

    def parallel_time(self, seconds: float) -> float:
        """Seconds that a parallel task takes that sends these messages and computes for `seconds`, if alone as well."""
        latency = self.task.streams[0].latency
        return latency + max(seconds, self.task.uncontended_time - latency)


class Fluid:
    """Transfers between the nodes of a platform (the interface is :class:`hdsim.network.Network`).

    A message first waits for the sum of the latencies on its path, without taking bandwidth, then flows. A change of
    some transfers touches those tied to them by links that slow somebody down, and no others.

    Dates are in s and must not go back from call to call; volumes are in byte.

    Args:
        platform: The platform.
        sharing: How transfers share a link; ``"latency"`` is what SimGrid does with flows on paths with latency: a flow
            gets a part in inverse proportion to the latency of its path; ``"rounds"`` is what SimGrid (and so Batsim)
            does by default with parallel tasks.

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
        self._bandwidth: list[float] = bandwidth.tolist()
        # Up and down halves alternate, nodes before clusters. A link without limit slows nobody down: it is left out.
        halves = [(link,) if limited else () for link, limited in enumerate(np.isfinite(bandwidth).tolist())]
        self._up, self._down = halves[: 2 * nodes : 2], halves[1 : 2 * nodes : 2]
        self._global_up, self._global_down = halves[2 * nodes :: 2], halves[2 * nodes + 1 :: 2]
        self._cluster: list[int] = of_node.tolist()
        self._latency: list[float] = platform.local_latency[of_node].tolist()
        self._global_latency: list[float] = platform.global_latency.tolist()
        self._nodes = nodes
        self._shared = Flows(self._solver())
        # Of every link: the plan that has claimed it last, and the number of transfers that share it.
        self._holders: list[Plan | None] = [None] * len(halves)
        self._crowd = [0] * len(halves)
        self._transfers: dict[Hashable, Transfer] = {}
        self._news: dict[Transfer, None] = {}
        # Bounds that hold from the next `settle` on.
        self._bounds: dict[Transfer, float] = {}
        self._now = 0.0

    def __len__(self) -> int:
        """Transfers in the system."""
        return len(self._transfers)

    def path(self, source: int, target: int) -> tuple[tuple[int, ...], float]:
        """Returns the limited links from a node to a node, and the latency in s of all links on the way.

        Links are numbered as in the arrays of `link_load`, up and down halves alternating, nodes before clusters.
        """
        if source == target:
            return (), 0.0
        latency = self._latency[source] + self._latency[target]
        here, there = self._cluster[source], self._cluster[target]
        if here == there:
            return self._up[source] + self._down[target], latency
        latency += self._global_latency[here] + self._global_latency[there]
        return self._up[source] + self._global_up[here] + self._global_down[there] + self._down[target], latency

    def phase(self, messages: Iterable[Message | Messages]) -> Phase:
        """Makes messages ready to be started any number of times, one after the other or at once.

        Equal messages are kept as one, so a pattern costs what its pairs of nodes cost, not what its tasks cost.

        Args:
            messages: (source node, target node, bytes), or (source node, target node, bytes of each, number of them).

        Raises:
            ValueError: A node, a volume or a number is impossible.
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
        return Phase(lambda: self._exchange(counts), lambda: self._task(counts))

    def start(self, key: Hashable, source: int, target: int, volume: float, now: float) -> None:
        """Starts a message of `volume` bytes from a node to a node.

        Raises:
            ValueError: The key is in use, or a node or the volume is impossible.
        """
        self.start_phase(key, ((source, target, volume),), now)

    def start_phase(self, key: Hashable, messages: Phase | Iterable[Message | Messages], now: float) -> None:
        """Starts messages at once; the transfer ends with the last of them.

        Args:
            key: Name of the transfer.
            messages: A phase of this network, or what :meth:`phase` makes one of.
            now: Date.

        Raises:
            ValueError: The key is in use, or a message is impossible.
        """
        phase = messages if isinstance(messages, Phase) else self.phase(messages)
        plan = phase.exchange
        self._start(Transfer(key, now, plan), plan.uncontended_time)

    def start_parallel(
        self, key: Hashable, seconds: float, messages: Phase | Iterable[Message | Messages], now: float
    ) -> None:
        """Starts a parallel task: computation and messages progress together at the pace of the slowest of them.

        Args:
            key: Name of the transfer.
            seconds: Time of the computation on its own cores.
            messages: As for :meth:`start_phase`; those of 0 bytes do not count.
            now: Date.

        Raises:
            ValueError: The key is in use, or a message or `seconds` is impossible.
        """
        if not 0 <= seconds < math.inf:
            raise ValueError(f"expected a finite computation of 0 s or more, got {seconds}")
        phase = messages if isinstance(messages, Phase) else self.phase(messages)
        bound = 1.0 / seconds if seconds else math.inf
        self._start(Transfer(key, now, phase.task, bound), phase.parallel_time(seconds))

    def set_seconds(self, key: Hashable, seconds: float) -> None:
        """Changes the time that the whole computation of a parallel task takes on its own cores.

        Raises:
            ValueError: `seconds` is impossible.
        """
        if not 0 < seconds < math.inf:
            raise ValueError(f"expected a finite computation of more than 0 s, got {seconds}")
        self._bounds[self._transfers[key]] = 1.0 / seconds

    def advance(self, key: Hashable, now: float) -> bool:
        """Takes a transfer over the date that `settle` gave for it; True when it has ended and is gone."""
        transfer = self._transfers[key]
        if transfer.uncontended:
            transfer.plan.active = None
        elif self._shared.advance(transfer, now):
            self._leave_crowd(transfer)
        else:
            return False
        del self._transfers[key]
        if self._bounds:
            self._bounds.pop(transfer, None)
        return True

    def end(self, key: Hashable, now: float) -> None:
        """Removes a transfer, whatever is left of it."""
        transfer = self._transfers.pop(key)
        self._bounds.pop(transfer, None)
        if transfer.uncontended:
            transfer.plan.active = None
            self._news.pop(transfer, None)
        else:
            self._shared.leave(transfer)
            self._leave_crowd(transfer)

    def settle(self, now: float) -> list[tuple[Hashable, float]]:
        """Brings rates up to date after starts, advances and ends of the instant `now`.

        Returns:
            (key, s until `advance` is due) for every new transfer and every one whose date has moved.
        """
        self._now = now
        if self._bounds:
            for transfer, bound in self._bounds.items():
                if transfer.uncontended:
                    self._share(transfer, now)
                self._shared.set_bound(transfer, bound)
            self._bounds.clear()
        moved: list[tuple[Hashable, float]] = []
        if self._news:
            moved += [(transfer.key, transfer.date - now) for transfer in self._news]
            self._news.clear()
        if self._shared.changed:
            moved += self._shared.settle(now)
        return moved

    def link_load(self) -> LinkLoad:
        """Returns the load of all links as `settle` has left it."""
        load = list(self._shared.solver.load)
        for transfer in self._transfers.values():
            if transfer.uncontended:
                for stream, _, rate in transfer.plan.states(self._now - transfer.begin, transfer.bound):
                    for link, usage, _ in stream.demand.uses:
                        load[link] += usage * rate
        nodes, clusters = np.array(load[: 2 * self._nodes]), np.array(load[2 * self._nodes :])
        return LinkLoad(nodes[::2], nodes[1::2], clusters[::2], clusters[1::2])

    def _start(self, transfer: Transfer, seconds: float) -> None:
        """Starts a transfer that takes so many seconds if it is alone."""
        key, now, plan = transfer.key, transfer.begin, transfer.plan
        if key in self._transfers:
            raise ValueError(f"expected a new key, got {key!r}, which names a transfer under way")
        self._transfers[key] = transfer
        if (plan.holds and plan.active is None) or self._claim(plan, now):
            plan.active = transfer
            transfer.date = now + seconds
            self._news[transfer] = None
        else:
            self._share(transfer, now)

    def _claim(self, plan: Plan, now: float) -> bool:
        """Takes the links of a plan for it; False if others are on some of them, who are no longer alone then."""
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
        """Puts a transfer that was alone, if only so far, among those that share links, with what is left of it."""
        plan, begin = transfer.plan, transfer.begin
        if now > begin:
            left = [(stream, max(left, 0.0)) for stream, left, _ in plan.states(now - begin, transfer.bound)]
        else:
            left = [(stream, stream.amount) for stream in plan.streams]
        if transfer in self._news:
            # Its date has not been told to the caller.
            del self._news[transfer]
            transfer.date = math.nan
        transfer.uncontended, plan.active, plan.holds = False, None, False
        for link in plan.links:
            self._crowd[link] += 1
        self._shared.enter(
            transfer, [ActiveFlow(stream, transfer, x, begin + stream.latency) for stream, x in left], now
        )

    def _leave_crowd(self, transfer: Transfer) -> None:
        for link in transfer.plan.links:
            self._crowd[link] -= 1

    # Making plans

    def _solver(self) -> MaxMin:
        return MaxMin(self._bandwidth, rounds=self._by_task)

    @cached_property
    def _private(self) -> Flows:
        """Flows that nobody uses but plans, one at a time."""
        return Flows(self._solver())

    def _plan(self, streams: Iterable[Stream]) -> Plan:
        return Plan(tuple(streams), self._bandwidth, lambda: self._private)

    def _exchange(self, messages: dict[Message, int]) -> Plan:
        streams = []
        for (source, target, volume), count in messages.items():
            links, latency = self.path(source, target)
            share = 1.0 / latency if self._by_latency and latency else 1.0
            demand = self._shared.solver.demand(
                links, (float(count),) * len(links), claims=(1.0,) * len(links), share=share
            )
            streams.append(Stream(demand, volume, latency))
        return self._plan(streams)

    def _task(self, messages: dict[Message, int]) -> Plan:
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
        return self._plan([Stream(self._shared.solver.demand(tuple(amounts), usages, claims=claims), 1.0, delay)])
