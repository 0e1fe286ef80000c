"""Transfers, and plans of their progress on otherwise idle links."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Hashable
from functools import cached_property
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from hdsim.network.kernels.sharing import Streams
from hdsim.network.maxmin import MaxMin

#: Stream, remaining amount and rate of each unfinished flow.
States = tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]


class Transfer:
    """Messages or a parallel task with one key.

    Attributes:
        key: Key of the caller.
        begin: Date of the start.
        plan: The streams.
        bound: Maximum rate of each stream.
        shared: The transfer among those that share links; -1 while it follows its plan.
        date: Announced date of the end of a transfer that follows its plan.
    """

    __slots__ = ("begin", "bound", "date", "key", "plan", "shared")

    def __init__(self, key: Hashable, begin: float, plan: StreamPlan, bound: float = math.inf) -> None:
        self.key = key
        self.begin = begin
        self.plan = plan
        self.bound = bound
        self.shared = -1
        self.date = math.nan


class StreamPlan:
    """Streams that start together, and their progress on otherwise idle links.

    Args:
        streams: The streams.
        private: Returns the same, otherwise idle links, on which the trajectory of several streams is computed.

    Attributes:
        streams: The streams.
        links: The links of the streams, each once.
        holds: Whether no other transfer has used the links since the plan claimed them.
        active: Transfer that currently follows the plan.
    """

    def __init__(self, streams: Streams, private: Callable[[], MaxMin]) -> None:
        self.streams = streams
        self.links = tuple(dict.fromkeys(streams.link.tolist()))
        self.holds = False
        self.active: Transfer | None = None
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
