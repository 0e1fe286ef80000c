"""The agenda of the engine: actions by date."""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heapify, heappush
from itertools import count
from typing import Any

#: Ranks at an instant: dates of jobs, then changes of nodes (a job that completes when its node fails is complete),
#: then arrivals of added jobs, before those of the trace.
FIRST, AFTER_ENDS, AFTER_NODES = range(3)
#: Number of entries up to which outdated ones are kept.
_FEW = 256


class Agenda:
    """Entries in order of date, rank and creation.

    A job has one date at a time; an entry for another date of the job is outdated.

    Attributes:
        entries: Heap of (date, rank, sequence number, action, its argument). The last entry is a sentinel at infinity.
        dates: Date of each job, NaN for none.

    Args:
        jobs: Number of jobs.
        at_date: Action at the date of a job, which is called with the job, also for outdated entries.
    """

    def __init__(self, jobs: int, at_date: Callable[[int], Any]) -> None:
        self.entries: list[tuple[Any, ...]] = [(math.inf,)]
        self.dates = [math.nan] * jobs
        self._sequence = count()
        self._at_date = at_date
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
        heappush(self.entries, (date, FIRST, next(self._sequence), self._at_date, job))
        if len(self.entries) > self._limit:
            self._remove_outdated()

    def _remove_outdated(self) -> None:
        dates, at_date = self.dates, self._at_date
        # In place: the loop of the engine has a reference to the list.
        self.entries[:] = [
            entry for entry in self.entries if len(entry) == 1 or entry[3] is not at_date or dates[entry[4]] == entry[0]
        ]
        heapify(self.entries)
        self._limit = max(_FEW, 2 * len(self.entries))
