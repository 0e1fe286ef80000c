"""Incremental fair sharing of links among flows.

A flow uses links in fixed proportions: at rate x it uses ``usage * x`` of a link, in claims of at most ``claim * x``
each. The usage and claim of a message are 1 on each link of its path, and its rate is in byte/s. The usage of a link by
a parallel task is the bytes that it sends there, its claim is its largest message there, and its rate is the share of
the task per second.

In the allocation, each flow has its maximum rate or a *bottleneck*: a saturated link on which no claim is larger (per
unit of share). For messages this is max-min fairness, computed by progressive filling (Bertsekas and Gallager, Data
Networks, 6.5.2). For flows with different claims per link it is bottleneck max fairness (Bonald and Roberts,
Multi-resource fairness: objectives, algorithms and performance, SIGMETRICS 2015).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from hdsim.network.kernels import flows
from hdsim.network.kernels.components import solve_components
from hdsim.network.kernels.maxmin import UNPREPARED, settle
from hdsim.network.kernels.sharing import DATE, LOAD, MOVED, SECONDS, Streams, grown, idle

#: Links in use, usages at rate 1 and slopes: the rates per level of the links.
Uses = tuple[Sequence[int], Sequence[float], Sequence[float]]


class MaxMin:
    """Links and the transfers that share them; a transfer is a group of flows.

    Dates are in seconds and ascending from call to call. Capacities are above 0; a link of infinite capacity must not
    be used. `rounds` is SimGrid's default rule for parallel tasks, which is not fair.

    Raises:
        ValueError: A capacity is not above 0.
    """

    def __init__(self, capacities: Iterable[float], *, rounds: bool = False) -> None:
        self.capacity: list[float] = [float(capacity) for capacity in capacities]
        for link, capacity in enumerate(self.capacity):
            if not capacity > 0:
                raise ValueError(f"expected a capacity above 0, got {capacity} for link {link}")
        self._state = idle(np.array(self.capacity), rounds)

    @property
    def load(self) -> NDArray[np.float64]:
        """(L,) amount of each link in use."""
        return self._state.links[:, LOAD]

    def streams(self, amounts: Sequence[float], latencies: Sequence[float], uses: Sequence[Uses]) -> Streams:
        """Prepares flows that start together.

        Args:
            amounts: Amount of each flow.
            latencies: Latency of each flow in seconds.
            uses: Links of each flow, each once, usages above 0, and slopes: a claim of 1 has its share, which is its
                weight in the division of the link, as slope.
        """
        capacity = self.capacity
        first, peak, even = [0], [], []
        link: list[int] = []
        usage: list[float] = []
        slope: list[float] = []
        for links, usages, slopes in uses:
            link += links
            usage += usages
            slope += slopes
            first.append(len(link))
            peak.append(min([capacity[at] / x for at, x in zip(links, usages, strict=True)], default=math.inf))
            even.append((slopes[0] if min(slopes) == max(slopes) else 0.0) if slopes else 1.0)
        return Streams(
            amount=np.array(amounts, np.float64),
            latency=np.array(latencies, np.float64),
            peak=np.array(peak),
            even=np.array(even),
            first=np.array(first),
            link=np.array(link, np.int64),
            usage=np.array(usage),
            slope=np.array(slope),
        )

    def add(
        self,
        streams: Streams,
        chosen: NDArray[np.int64],
        left: NDArray[np.float64],
        begin: float,
        now: float,
        bound: float = math.inf,
        announced: float = math.nan,
    ) -> int:
        """Adds a transfer that began at a date; :meth:`settle` gives it rates.

        The (F,) streams `chosen` are not over and have (F,) amounts left. `bound` is the maximum rate of each flow,
        `announced` the date of the next step that the caller knows, NaN for none.
        """
        given = (now, begin, bound, announced, chosen, left, *streams)
        while (transfer := flows.add(*given, *self._state)) < 0:
            self._state = grown(self._state, len(chosen) + 1, len(streams.link))
        return transfer

    def remove(self, transfer: int) -> None:
        """Removes a transfer before its end."""
        flows.remove(transfer, *self._state)

    def set_bound(self, transfer: int, bound: float) -> None:
        """Changes the maximum rate of all flows of a transfer."""
        flows.set_bound(transfer, bound, *self._state)

    def advance(self, transfer: int, now: float) -> bool:
        """Continues a transfer at its announced date; True if it is complete, which removes it."""
        return flows.advance(transfer, now, *self._state)

    def settle(self, now: float) -> list[tuple[int, float]]:
        """Updates all rates after the changes of an instant; only flows that a change concerns are solved.

        Transfers that are new or have another date are returned, in a deterministic order, as (transfer, seconds until
        the next step).
        """
        state = self._state
        count = settle(now, False, *state)
        if count == UNPREPARED:
            solve_components(now, *state)
            count = settle(now, True, *state)
        moved = state.items[:count, MOVED].tolist()
        return list(zip(moved, state.flows[:count, SECONDS].tolist(), strict=True))

    def uncontended_time(self, streams: Streams) -> float:
        """Returns the duration of streams on otherwise idle links in seconds, NaN if their rates change on the way."""
        return flows.uncontended_time(*streams, self._state.links)

    def date(self, transfer: int) -> float:
        """Returns the announced date of the next step of a transfer."""
        return float(self._state.flows[transfer, DATE])

    def flows(self, transfer: int, now: float) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """Returns stream, remaining amount and rate of each unfinished flow of a transfer."""
        size = len(self._state.items)
        chosen, left, rate = np.empty(size, np.int64), np.empty(size), np.empty(size)
        count = flows.states(transfer, now, chosen, left, rate, *self._state)
        return chosen[:count].copy(), left[:count].copy(), rate[:count].copy()
