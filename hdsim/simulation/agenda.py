"""The agenda of the engine: actions by date."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from heapq import heapify, heappop, heappush
from itertools import count, repeat
from typing import Any

from simpy import Event

#: Ranks at an instant: dates of jobs, then changes of nodes (a job that completes when its node fails is complete),
#: then arrivals of added jobs, before those of the trace.
FIRST, AFTER_ENDS, AFTER_NODES = range(3)
#: Number of entries up to which outdated ones are kept.
_FEW = 256
_LAST = (math.inf, -1, -1, None, None)


class Agenda:
    """Entries in order of date, rank and creation.

    A job has one date at a time; an entry for another date of the job is outdated.

    Attributes:
        dates: Date of each job that has one.
    """

    def __init__(self) -> None:
        self.dates: dict[int, float] = {}
        self._entries: list[tuple[Any, ...]] = [_LAST]
        # Whether the entries of dates are yet to be made; most forks are played out without them.
        self._lacks_dates = False
        self._sequence = count()
        # Number of entries that are no dates of jobs.
        self._n_actions = 0
        # Number of entries at which outdated ones are removed.
        self._limit = _FEW

    @property
    def entries(self) -> list[tuple[Any, ...]]:
        """Heap of (date, rank, sequence number, action, its argument).

        At the date of a job, which may be outdated, the action is None and the argument the job. The last entry is a
        sentinel at infinity.
        """
        if self._lacks_dates:
            self._lacks_dates = False
            dates = zip(self.dates.values(), repeat(FIRST), self._sequence, repeat(None), self.dates, strict=False)
            self._set_entries([*self._entries, *dates])
        return self._entries

    def schedule(self, date: float, action: Callable[[Any], Any], argument: Any, rank: int = FIRST) -> None:
        """Schedules an action at a date in seconds."""
        self._n_actions += 1
        heappush(self.entries, (date, rank, next(self._sequence), action, argument))

    def pop(self) -> tuple[Callable[[Any], Any] | None, Any]:
        """Removes the first one of `entries` and returns its action and argument."""
        _, _, _, action, argument = heappop(self._entries)
        if action is not None:
            self._n_actions -= 1
        return action, argument

    def set_date(self, job: int, date: float) -> None:
        """Sets the date of a job."""
        self.dates[job] = date
        entries = self.entries if self._lacks_dates else self._entries
        heappush(entries, (date, FIRST, next(self._sequence), None, job))
        if len(entries) > self._limit:
            self._remove_outdated()

    def _remove_outdated(self) -> None:
        dates = self.dates
        # In place: the loop of the engine has a reference to the list.
        self.entries[:] = [
            entry for entry in self.entries if entry[3] or entry is _LAST or dates.get(entry[4]) == entry[0]
        ]
        heapify(self.entries)
        self._limit = max(_FEW, 2 * len(self.entries))

    @property
    def actions(self) -> list[tuple[Any, ...]]:
        """The entries that are no dates of jobs."""
        return [entry for entry in self._entries if entry[3] is not None] if self._n_actions else []

    @property
    def limit(self) -> int:
        """Number of entries above which outdated ones are removed."""
        return self._limit

    def set_dates(self, dates: dict[int, float]) -> None:
        """Sets the dates of all jobs that have one, in seconds, in place of those before."""
        self.dates = dates
        self._entries = [_LAST, *self.actions]
        self._lacks_dates = True

    def drop(self, unwanted: Callable[[Any, Any], bool]) -> None:
        """Removes the entries of some actions and arguments."""
        if self._n_actions:
            self._set_actions([entry for entry in self.actions if not unwanted(entry[3], entry[4])])

    def __deepcopy__(self, memo: dict[int, Any]) -> Agenda:
        """Returns a copy without the events of user processes, which have no copies."""
        memo[id(self)] = other = Agenda()
        other.dates, other._lacks_dates = self.dates.copy(), self._lacks_dates
        other._sequence = count(next(self._sequence))
        other._entries, other._limit = self._entries.copy(), self._limit
        if self._n_actions:
            other._set_actions(
                [
                    (*entry[:3], deepcopy(entry[3], memo), deepcopy(entry[4], memo))
                    for entry in self.actions
                    if not isinstance(getattr(entry[3], "__self__", None), Event)
                ]
            )
        return other

    def _set_actions(self, actions: list[tuple[Any, ...]]) -> None:
        self._n_actions = len(actions)
        self._set_entries([entry for entry in self._entries if entry[3] is None] + actions)

    def _set_entries(self, entries: list[tuple[Any, ...]]) -> None:
        heapify(entries)
        self._entries = entries
        self._limit = max(_FEW, 2 * len(entries))
