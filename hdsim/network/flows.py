"""Transfers on shared links; their flows are activities of a max-min solver."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cached_property
from operator import itemgetter

from hdsim.network.maxmin import Activity, Demand, MaxMin


class Stream:
    """The part of a phase that progresses at one rate: a message, equal messages, or a parallel task.

    Attributes:
        demand: Usage of links.
        amount: Bytes of each message, 1 for a task.
        latency: Seconds before it flows.
    """

    __slots__ = ("amount", "demand", "latency")

    def __init__(self, demand: Demand, amount: float, latency: float) -> None:
        self.demand = demand
        self.amount = amount
        self.latency = latency


class ActiveFlow:
    """The rest of a stream of an active transfer.

    Attributes:
        stream: The stream.
        transfer: The transfer of the stream.
        left: Remaining amount at `since`.
        rate: Amount per second since then.
        since: Date of the last update.
        date: End of the latency; once flowing, end of the stream.
    """

    __slots__ = ("date", "left", "rate", "since", "stream", "transfer")

    def __init__(self, stream: Stream, transfer: Transfer, left: float, begin: float) -> None:
        self.stream = stream
        self.transfer = transfer
        self.left = left
        self.rate = 0.0
        self.since = begin
        self.date = begin


class Transfer:
    """Messages or a parallel task with one key.

    Attributes:
        key: Key of the caller.
        begin: Date of the start.
        plan: The streams.
        bound: Maximum rate of each stream.
        uncontended: Whether the transfer follows its plan, without active flows.
        date: Announced date of the next step, NaN for none.
        waiting: Flows before the end of their latency.
        flowing: All other unfinished flows.
    """

    __slots__ = ("begin", "bound", "date", "flowing", "key", "plan", "uncontended", "waiting")

    def __init__(self, key: Hashable, begin: float, plan: Plan, bound: float = math.inf) -> None:
        self.key = key
        self.begin = begin
        self.plan = plan
        self.bound = bound
        self.uncontended = True
        self.date = math.nan
        self.waiting: list[ActiveFlow] = []
        self.flowing: dict[ActiveFlow, Activity] = {}


class Flows:
    """The transfers that share links.

    Args:
        solver: Solver of the links, for exclusive use.
    """

    def __init__(self, solver: MaxMin) -> None:
        self.solver = solver
        #: Whether rates need an update by `settle`.
        self.changed = False
        self._updated: dict[Transfer, None] = {}

    def enter(self, transfer: Transfer, parts: Iterable[ActiveFlow], now: float) -> None:
        """Adds a transfer with its remaining flows."""
        transfer.waiting.extend(parts)
        self._updated[transfer] = None
        self.changed = True
        self._begin(transfer, now, now)

    def leave(self, transfer: Transfer) -> None:
        """Removes a transfer."""
        for activity in transfer.flowing.values():
            self.solver.remove(activity)
        # Breaks the reference cycle of flows and transfer, since replays defer garbage collection.
        transfer.flowing.clear()
        transfer.waiting.clear()
        self._updated.pop(transfer, None)
        self.changed = True

    def set_bound(self, transfer: Transfer, bound: float) -> None:
        """Changes the maximum rate of all flows."""
        transfer.bound = bound
        for activity in transfer.flowing.values():
            self.solver.set_bound(activity, bound)
        self.changed = True

    def advance(self, transfer: Transfer, now: float) -> bool:
        """Continues a transfer at its announced date; True if it is complete."""
        self.changed = True
        # The clock of the caller may have rounded the announced date down.
        date = max(now, transfer.date)
        for part in [part for part in transfer.flowing if part.date <= date]:
            self.solver.remove(transfer.flowing.pop(part))
        if transfer.waiting:
            self._begin(transfer, date, now)
        if transfer.flowing or transfer.waiting:
            # The next date is announced even if it is equal to this one.
            transfer.date = math.nan
            self._updated[transfer] = None
            return False
        self._updated.pop(transfer, None)
        return True

    def settle(self, now: float) -> list[tuple[Hashable, float]]:
        """Updates rates and returns (key, seconds until the next step) of new and changed transfers."""
        updated, self._updated, self.changed = self._updated, {}, False
        for activity in self.solver.solve():
            part: ActiveFlow = activity.owner
            left = part.left - part.rate * (now - part.since)
            part.left = left = max(left, 0.0)
            part.since, part.rate = now, activity.rate
            part.date = now + left / activity.rate
            updated[part.transfer] = None
        moved = []
        for transfer in updated:
            dates = [part.date for part in transfer.flowing]
            dates += [part.date for part in transfer.waiting]
            date = min(dates, default=now)
            if date != transfer.date:
                transfer.date = date
                moved.append((transfer.key, max(date - now, 0.0)))
        return moved

    def _begin(self, transfer: Transfer, date: float, now: float) -> None:
        """Starts the flows whose latency ends by `date`; flows without limit are complete at once."""
        waiting = []
        for part in transfer.waiting:
            if part.date > date:
                waiting.append(part)
            elif part.left and (part.stream.demand.uses or transfer.bound < math.inf):
                part.since, part.date = now, math.inf
                transfer.flowing[part] = self.solver.add(part, part.stream.demand, transfer.bound)
        transfer.waiting = waiting


class Plan:
    """Streams that start together, and their progress on otherwise idle links.

    Args:
        streams: The streams.
        capacity: Bandwidth of each link in byte/s.
        private: Returns flows on the same, otherwise idle links, which compute the trajectory of several streams.

    Attributes:
        streams: The streams.
        links: The links of the streams, each once.
        holds: Whether no other transfer has used the links since the plan claimed them.
        active: Transfer that currently follows the plan.
    """

    def __init__(self, streams: tuple[Stream, ...], capacity: Sequence[float], private: Callable[[], Flows]) -> None:
        self.streams = streams
        self.links = tuple({link: None for stream in streams for link, _, _ in stream.demand.uses})
        self.holds = False
        self.active: Transfer | None = None
        self._capacity = capacity
        self._private = private

    @cached_property
    def uncontended_time(self) -> float:
        """Duration of all streams on otherwise idle links, seconds."""
        flowing = [stream for stream in self.streams if stream.amount and stream.demand.uses]
        latency = max((stream.latency for stream in self.streams), default=0.0)
        if not flowing:
            return latency
        first = flowing[0]
        if all(stream.amount == first.amount and stream.latency == first.latency for stream in flowing):
            # Equal messages that start together: those on the most loaded link relative to its capacity have the
            # lowest rate until their common end, which is the end of all.
            taken = dict.fromkeys(self.links, 0.0)
            for stream in flowing:
                for link, usage, _ in stream.demand.uses:
                    taken[link] += usage
            slowest = max(usage / self._capacity[link] for link, usage in taken.items())
            return max(first.latency + first.amount * slowest, latency)
        return self._trajectory[-1][0]

    def states(self, elapsed: float, bound: float) -> list[tuple[Stream, float, float]]:
        """Returns (stream, remaining amount, rate) of each unfinished stream, `elapsed` seconds after the start."""
        if len(self.streams) == 1:
            stream = self.streams[0]
            flowed = elapsed - stream.latency
            rate = min(stream.demand.peak, bound) if flowed >= 0.0 else 0.0
            return [(stream, min(stream.amount, stream.amount - rate * flowed), rate)]
        begin, states = self._trajectory[bisect_right(self._trajectory, elapsed, key=itemgetter(0)) - 1]
        return [(stream, left - rate * (elapsed - begin), rate) for stream, left, rate in states]

    @cached_property
    def _trajectory(self) -> list[tuple[float, list[tuple[Stream, float, float]]]]:
        """(seconds, (stream, remaining amount, rate) of each unfinished stream) for every change of rates."""
        flows, transfer, now = self._private(), Transfer(None, 0.0, self), 0.0
        flows.enter(
            transfer, [ActiveFlow(stream, transfer, stream.amount, stream.latency) for stream in self.streams], now
        )
        trajectory = []
        over = False
        while not over:
            flows.settle(now)
            states = [(part.stream, part.left - part.rate * (now - part.since), part.rate) for part in transfer.flowing]
            states += [(part.stream, part.left, 0.0) for part in transfer.waiting]
            trajectory.append((now, states))
            now = transfer.date
            over = flows.advance(transfer, now)
        return [*trajectory, (now, [])]
