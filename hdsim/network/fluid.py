"""The fluid model: messages are flows that share the links on their way, at rates that are constant between events.

A node sends over the up half and receives over the down half of its full-duplex link. Between clusters a flow also
takes the up half of its cluster's global link and the down half of the other's. Nodes need no link to reach themselves.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hdsim.errors import ConfigError, nearest
from hdsim.network.maxmin import Activity, MaxMin

if TYPE_CHECKING:
    from hdsim.platform import Platform

#: How transfers share a link: message by message in equal parts, or in inverse proportion to the latency of their path,
#: or task by task in SimGrid's rounds.
SHARING = ("equal", "latency", "rounds")

Message = tuple[int, int, float]


@dataclass(frozen=True, eq=False)
class LinkLoad:
    """Present load of the links of N nodes and K clusters; a link without limit counts as 0.

    Attributes:
        up: (N,) byte/s that each node sends.
        down: (N,) byte/s that each node receives.
        global_up: (K,) byte/s that each cluster sends to the others.
        global_down: (K,) byte/s that each cluster receives from the others.
    """

    up: NDArray[np.float64]
    down: NDArray[np.float64]
    global_up: NDArray[np.float64]
    global_down: NDArray[np.float64]


class _Transfer:
    """What the caller knows by one key: parts that start together and end one by one."""

    __slots__ = ("date", "flowing", "key", "waiting")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        #: Date announced for the next step.
        self.date = math.nan
        #: Parts whose latency is not over.
        self.waiting: list[_Part] = []
        self.flowing: dict[_Part, Activity] = {}


class _Part:
    """Something of a transfer that progresses at one rate: a flow, some equal flows, or a parallel task."""

    __slots__ = ("bound", "claims", "date", "left", "rate", "resources", "share", "since", "transfer", "usages")

    def __init__(
        self,
        transfer: _Transfer,
        resources: tuple[int, ...],
        usages: tuple[float, ...],
        claims: tuple[float, ...],
        amount: float,
        begin: float,
    ) -> None:
        self.transfer = transfer
        self.resources = resources
        self.usages = usages
        self.claims = claims
        self.share = 1.0
        self.bound = math.inf
        #: Bytes of each flow, or the part of a task, that is left at `since`.
        self.left = amount
        self.rate = 0.0
        self.since = begin
        #: When the latency is over; once flowing, when nothing is left.
        self.date = begin


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
        self._by_latency = sharing == "latency"
        nodes, clusters = platform.n_nodes, platform.n_clusters
        of_node = platform.node_cluster
        bandwidth = np.concatenate(
            [np.repeat(platform.local_bandwidth[of_node], 2), np.repeat(platform.global_bandwidth, 2)]
        )
        self._by_task = sharing == "rounds"
        self._solver = MaxMin(bandwidth.tolist(), rounds=self._by_task)
        # Up and down halves alternate, nodes before clusters. A link without limit slows nobody down: it is left out.
        halves = [(link,) if limited else () for link, limited in enumerate(np.isfinite(bandwidth).tolist())]
        self._up, self._down = halves[: 2 * nodes : 2], halves[1 : 2 * nodes : 2]
        self._global_up, self._global_down = halves[2 * nodes :: 2], halves[2 * nodes + 1 :: 2]
        self._cluster: list[int] = of_node.tolist()
        self._latency: list[float] = platform.local_latency[of_node].tolist()
        self._global_latency: list[float] = platform.global_latency.tolist()
        self._nodes, self._clusters = nodes, clusters
        self._transfers: dict[Hashable, _Transfer] = {}
        self._news: dict[_Transfer, None] = {}

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

    def start(self, key: Hashable, source: int, target: int, volume: float, now: float) -> None:
        """Starts a message of `volume` bytes from a node to a node.

        Raises:
            ValueError: The key is in use, or a node or the volume is impossible.
        """
        self.start_phase(key, ((source, target, volume),), now)

    def start_phase(self, key: Hashable, messages: Iterable[Message], now: float) -> None:
        """Starts messages (source node, target node, bytes) at once; the transfer ends with the last of them.

        Equal messages are kept as one, so a pattern costs what its pairs of nodes cost, not what its tasks cost.

        Raises:
            ValueError: The key is in use, or a node or a volume is impossible.
        """
        counts: dict[Message, int] = {}
        for message in messages:
            counts[message] = counts.get(message, 0) + 1
        self._check(key, counts)
        transfer = _Transfer(key)
        for (source, target, volume), count in counts.items():
            resources, latency = self.path(source, target)
            links = len(resources)
            share = 1.0 / latency if self._by_latency and latency else 1.0
            part = _Part(transfer, resources, (float(count),) * links, (1.0,) * links, volume, now + latency)
            part.share = share
            transfer.waiting.append(part)
        self._enter(transfer, now)

    def start_parallel(self, key: Hashable, seconds: float, messages: Iterable[Message], now: float) -> None:
        """Starts a parallel task: computation and messages progress together at the pace of the slowest of them.

        Args:
            key: Name of the transfer.
            seconds: Time of the computation on its own cores.
            messages: (source node, target node, bytes).
            now: Date.

        Raises:
            ValueError: The key is in use, or a node, a volume or `seconds` is impossible.
        """
        if not 0 <= seconds < math.inf:
            raise ValueError(f"expected a finite computation of 0 s or more, got {seconds}")
        messages = list(messages)
        self._check(key, messages)
        transfer = _Transfer(key)
        amounts: dict[int, float] = {}
        largest: dict[int, float] = {}
        delay = 0.0
        for source, target, volume in messages:
            if volume:
                resources, latency = self.path(source, target)
                delay = max(delay, latency)
                for resource in resources:
                    amounts[resource] = amounts.get(resource, 0.0) + volume
                    largest[resource] = max(largest.get(resource, 0.0), volume)
        usages = tuple(amounts.values())
        claims = usages if self._by_task else tuple(largest.values())
        part = _Part(transfer, tuple(amounts), usages, claims, 1.0, now + delay)
        part.bound = 1.0 / seconds if seconds else math.inf
        transfer.waiting.append(part)
        self._enter(transfer, now)

    def set_seconds(self, key: Hashable, seconds: float) -> None:
        """Changes the time that the whole computation of a parallel task takes on its own cores.

        Raises:
            ValueError: `seconds` is impossible.
        """
        if not 0 < seconds < math.inf:
            raise ValueError(f"expected a finite computation of more than 0 s, got {seconds}")
        transfer = self._transfers[key]
        for part in transfer.waiting:
            part.bound = 1.0 / seconds
        for activity in transfer.flowing.values():
            self._solver.set_bound(activity, 1.0 / seconds)

    def advance(self, key: Hashable, now: float) -> bool:
        """Takes a transfer over the date that `settle` gave for it; True when it has ended and is gone."""
        transfer = self._transfers[key]
        # The caller's clock may have rounded the announced date down.
        date = max(now, transfer.date)
        for part in [part for part in transfer.flowing if part.date <= date]:
            self._solver.remove(transfer.flowing.pop(part))
        self._begin(transfer, date, now)
        if transfer.flowing or transfer.waiting:
            # The announced date is used up: the next one is news even if it is the same.
            transfer.date = math.nan
            self._news[transfer] = None
            return False
        self._forget(transfer)
        return True

    def end(self, key: Hashable, now: float) -> None:
        """Removes a transfer, whatever is left of it."""
        transfer = self._transfers[key]
        for activity in transfer.flowing.values():
            self._solver.remove(activity)
        self._forget(transfer)

    def settle(self, now: float) -> Iterator[tuple[Hashable, float]]:
        """Brings rates up to date after starts, advances and ends of the instant `now`.

        Yields:
            (key, s until `advance` is due) for every new transfer and every one whose date has moved.
        """
        news, self._news = self._news, {}
        for activity in self._solver.solve():
            part: _Part = activity.owner
            part.left = max(part.left - part.rate * (now - part.since), 0.0)
            part.since, part.rate = now, activity.rate
            part.date = now + part.left / part.rate
            news[part.transfer] = None
        for transfer in news:
            dates = [part.date for part in transfer.flowing]
            dates += [part.date for part in transfer.waiting]
            date = min(dates, default=now)
            if date != transfer.date:
                transfer.date = date
                yield transfer.key, max(date - now, 0.0)

    def link_load(self) -> LinkLoad:
        """Returns the load of all links as `settle` has left it."""
        load = np.array(self._solver.load)
        nodes, clusters = load[: 2 * self._nodes], load[2 * self._nodes :]
        return LinkLoad(nodes[::2], nodes[1::2], clusters[::2], clusters[1::2])

    def _enter(self, transfer: _Transfer, now: float) -> None:
        self._transfers[transfer.key] = transfer
        self._news[transfer] = None
        self._begin(transfer, now, now)

    def _begin(self, transfer: _Transfer, date: float, now: float) -> None:
        """Lets the parts flow whose latency is over at `date`; one that nothing holds back is done at once."""
        waiting = []
        for part in transfer.waiting:
            if part.date > date:
                waiting.append(part)
            elif part.left and (part.resources or part.bound < math.inf):
                part.since, part.date = now, math.inf
                transfer.flowing[part] = self._solver.add(
                    part, part.resources, part.usages, claims=part.claims, share=part.share, bound=part.bound
                )
        transfer.waiting = waiting

    def _forget(self, transfer: _Transfer) -> None:
        del self._transfers[transfer.key]
        self._news.pop(transfer, None)

    def _check(self, key: Hashable, messages: Iterable[Message]) -> None:
        if key in self._transfers:
            raise ValueError(f"expected a new key, got {key!r}, which names a transfer under way")
        for source, target, volume in messages:
            if not (0 <= source < self._nodes and 0 <= target < self._nodes):
                raise ValueError(f"expected nodes in 0..{self._nodes - 1}, got a message from {source} to {target}")
            if not 0 <= volume < math.inf:
                raise ValueError(f"expected a finite volume of 0 bytes or more, got {volume}")
