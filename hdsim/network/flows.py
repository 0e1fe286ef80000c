"""Transfers that share links with others: their parts are activities of a max-min solver, and end one by one."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cached_property
from operator import itemgetter

from hdsim.network.maxmin import Activity, Demand, MaxMin


class Stream:
    """Something of a phase that progresses at one rate: a message, some equal messages, or a parallel task.

    Attributes:
        demand: Links it takes.
        amount: Bytes of each message, or 1 for a task.
        latency: s until it begins.
    """

    __slots__ = ("amount", "demand", "latency")

    def __init__(self, demand: Demand, amount: float, latency: float) -> None:
        self.demand = demand
        self.amount = amount
        self.latency = latency


class ActiveFlow:
    """What is left of a stream of a transfer under way.

    Attributes:
        stream: What it is.
        transfer: What it belongs to.
        left: What was left of its amount at `since`.
        rate: Amount per s since then.
        since: Date.
        date: When its latency is over; once flowing, when nothing is left.
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
    """What the caller knows by one key.

    Attributes:
        key: The key.
        begin: Date of its start.
        plan: Its streams.
        bound: Largest rate of its parts.
        uncontended: Whether it follows its plan; it has no active flows then.
        date: Date announced for its next step, NaN for none.
        waiting: Parts whose latency is not over.
        flowing: The others that are not done.
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
        solver: Divides the links; nobody else may use it.
    """

    def __init__(self, solver: MaxMin) -> None:
        self.solver = solver
        #: Whether `settle` has anything to do.
        self.changed = False
        self._news: dict[Transfer, None] = {}

    def enter(self, transfer: Transfer, parts: Iterable[ActiveFlow], now: float) -> None:
        """Adds a transfer with what is left of it."""
        transfer.waiting.extend(parts)
        self._news[transfer] = None
        self.changed = True
        self._begin(transfer, now, now)

    def leave(self, transfer: Transfer) -> None:
        """Removes a transfer."""
        for activity in transfer.flowing.values():
            self.solver.remove(activity)
        # Parts know their transfer, and replays put off the collection of cycles.
        transfer.flowing.clear()
        transfer.waiting.clear()
        self._news.pop(transfer, None)
        self.changed = True

    def set_bound(self, transfer: Transfer, bound: float) -> None:
        """Changes the largest rate of all parts."""
        transfer.bound = bound
        for activity in transfer.flowing.values():
            self.solver.set_bound(activity, bound)
        self.changed = True

    def advance(self, transfer: Transfer, now: float) -> bool:
        """Takes a transfer over its announced date; True when nothing is left of it."""
        self.changed = True
        # The caller's clock may have rounded the announced date down.
        date = max(now, transfer.date)
        for part in [part for part in transfer.flowing if part.date <= date]:
            self.solver.remove(transfer.flowing.pop(part))
        if transfer.waiting:
            self._begin(transfer, date, now)
        if transfer.flowing or transfer.waiting:
            # The announced date is used up: the next one is news even if it is the same.
            transfer.date = math.nan
            self._news[transfer] = None
            return False
        self._news.pop(transfer, None)
        return True

    def settle(self, now: float) -> list[tuple[Hashable, float]]:
        """Brings rates up to date; returns (key, s until the next step) of new and moved transfers."""
        news, self._news, self.changed = self._news, {}, False
        for activity in self.solver.solve():
            part: ActiveFlow = activity.owner
            left = part.left - part.rate * (now - part.since)
            part.left = left = max(left, 0.0)
            part.since, part.rate = now, activity.rate
            part.date = now + left / activity.rate
            news[part.transfer] = None
        moved = []
        for transfer in news:
            dates = [part.date for part in transfer.flowing]
            dates += [part.date for part in transfer.waiting]
            date = min(dates, default=now)
            if date != transfer.date:
                transfer.date = date
                moved.append((transfer.key, max(date - now, 0.0)))
        return moved

    def _begin(self, transfer: Transfer, date: float, now: float) -> None:
        """Lets the parts flow whose latency is over at `date`; one that nothing holds back is done at once."""
        waiting = []
        for part in transfer.waiting:
            if part.date > date:
                waiting.append(part)
            elif part.left and (part.stream.demand.uses or transfer.bound < math.inf):
                part.since, part.date = now, math.inf
                transfer.flowing[part] = self.solver.add(part, part.stream.demand, transfer.bound)
        transfer.waiting = waiting


class Plan:
    """Streams that start together, and what becomes of them as long as nobody else uses their links.

    Args:
        streams: The streams.
        capacity: byte/s of every link.
        private: Gives flows on the same links with nobody else there, to find the course of several streams.

    Attributes:
        streams: The streams.
        links: The links they use, each once.
        uncontended_time: s that they take.
        holds: Whether nobody else has used the links since they were found free.
        active: Transfer that follows the plan at present.
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
        """Seconds from the start of all streams to the end of the last."""
        flowing = [stream for stream in self.streams if stream.amount and stream.demand.uses]
        latency = max((stream.latency for stream in self.streams), default=0.0)
        if not flowing:
            return latency
        first = flowing[0]
        if all(stream.amount == first.amount and stream.latency == first.latency for stream in flowing):
            # Equal messages that begin together: those on the link with most of them for its capacity get least. That
            # holds until they end, all at once, and until then nobody gets less than they do.
            taken = dict.fromkeys(self.links, 0.0)
            for stream in flowing:
                for link, usage, _ in stream.demand.uses:
                    taken[link] += usage
            slowest = max(usage / self._capacity[link] for link, usage in taken.items())
            return max(first.latency + first.amount * slowest, latency)
        return self._trajectory[-1][0]

    def states(self, elapsed: float, bound: float) -> list[tuple[Stream, float, float]]:
        """Returns (stream, amount left, rate) of each one not done so many s after the start."""
        if len(self.streams) == 1:
            stream = self.streams[0]
            flowed = elapsed - stream.latency
            rate = min(stream.demand.peak, bound) if flowed >= 0.0 else 0.0
            return [(stream, min(stream.amount, stream.amount - rate * flowed), rate)]
        begin, states = self._trajectory[bisect_right(self._trajectory, elapsed, key=itemgetter(0)) - 1]
        return [(stream, left - rate * (elapsed - begin), rate) for stream, left, rate in states]

    @cached_property
    def _trajectory(self) -> list[tuple[float, list[tuple[Stream, float, float]]]]:
        """(s, (stream, amount left, rate) of each one not done), for every time at which something changes."""
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
