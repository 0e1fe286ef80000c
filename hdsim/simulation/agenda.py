"""The agenda of the engine: actions by date."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from heapq import heapify, heappush
from itertools import count
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
        entries: Heap of (date, rank, sequence number, action, its argument). At the date of a job, which may be
            outdated, the action is None and the argument the job. The last entry is a sentinel at infinity.
        dates: Date of each job, NaN for none.

    Args:
        jobs: Number of jobs.
    """

    def __init__(self, jobs: int) -> None:
        self.entries: list[tuple[Any, ...]] = [_LAST]
        self.dates = [math.nan] * jobs
        self._sequence = count()
        # Number of entries at which outdated ones are removed.
        self._limit = _FEW

    def add(self, jobs: int) -> None:
        """Appends jobs."""
        self.dates += [math.nan] * jobs

    def schedule(self, date: float, action: Callable[[Any], Any], argument: Any, rank: int = FIRST) -> None:
        """Schedules an action at a date in seconds."""
        heappush(self.entries, (date, rank, next(self._sequence), action, argument))

    def set_date(self, job: int, date: float) -> None:
        """Sets the date of a job."""
        self.dates[job] = date
        heappush(self.entries, (date, FIRST, next(self._sequence), None, job))
        if len(self.entries) > self._limit:
            self._remove_outdated()

    def _remove_outdated(self) -> None:
        dates = self.dates
        # In place: the loop of the engine has a reference to the list.
        self.entries[:] = [entry for entry in self.entries if entry[3] or entry is _LAST or dates[entry[4]] == entry[0]]
        heapify(self.entries)
        self._limit = max(_FEW, 2 * len(self.entries))

    @property
    def actions(self) -> list[tuple[Any, ...]]:
        """The entries that are no dates of jobs."""
        return [entry for entry in self.entries if entry[3] is not None]

    def set_dates(self, dates: list[tuple[int, float]]) -> None:
        """Sets the dates of all jobs that have one, in seconds, in place of those before."""
        self.dates = [math.nan] * len(self.dates)
        for job, date in dates:
            self.dates[job] = date
        entries = [(date, FIRST, next(self._sequence), None, job) for job, date in dates]
        self._set_entries([_LAST, *self.actions, *entries])

    def drop(self, unwanted: Callable[[Any, Any], bool]) -> None:
        """Removes the entries of some actions and arguments."""
        if self.actions:
            self._set_entries([entry for entry in self.entries if not (entry[3] and unwanted(entry[3], entry[4]))])

    def __deepcopy__(self, memo: dict[int, Any]) -> Agenda:
        """Returns a copy without the events of user processes, which have no copies."""
        memo[id(self)] = other = Agenda(0)
        other.dates = self.dates.copy()
        other._sequence = count(next(self._sequence))
        if self.actions:
            other._set_entries(
                [
                    entry if entry[3] is None else (*entry[:3], deepcopy(entry[3], memo), deepcopy(entry[4], memo))
                    for entry in self.entries
                    if not isinstance(getattr(entry[3], "__self__", None), Event)
                ]
            )
        else:
            other.entries, other._limit = self.entries.copy(), self._limit
        return other

    def _set_entries(self, entries: list[tuple[Any, ...]]) -> None:
        heapify(entries)
        self.entries = entries
        self._limit = max(_FEW, 2 * len(entries))
