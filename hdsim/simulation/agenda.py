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
#: Outdated entries are removed when they are more than this number and than the other entries.
_OUTDATED = 256


class Agenda:
    """Entries in order of date, rank and creation.

    A job has one date at a time; a new date makes the entry of the old one outdated.

    Attributes:
        entries: Heap of (date, rank, sequence number, action, its argument). The last entry is a sentinel at infinity.

    Args:
        jobs: Number of jobs.
        at_date: Action at the date of a job, which is called with the job and has to ask `is_due`.
    """

    def __init__(self, jobs: int, at_date: Callable[[int], Any]) -> None:
        self.entries: list[tuple[Any, ...]] = [(math.inf,)]
        self._sequence = count()
        self._date = [math.nan] * jobs
        self._at_date = at_date
        self._outdated = 0

    def add(self, jobs: int) -> None:
        """Appends jobs."""
        self._date += [math.nan] * jobs

    def schedule(self, date: float, action: Callable[[Any], Any], argument: Any, rank: int = FIRST) -> None:
        """Schedules an action at a date in seconds."""
        heappush(self.entries, (date, rank, next(self._sequence), action, argument))

    def set_date(self, job: int, date: float) -> None:
        """Sets the date of a job."""
        dates = self._date
        if dates[job] == dates[job]:  # not NaN
            self.forget(job)
        dates[job] = date
        heappush(self.entries, (date, FIRST, next(self._sequence), self._at_date, job))

    def is_due(self, job: int, date: float) -> bool:
        """Returns whether an entry taken from the heap has the current date of the job, and removes this date."""
        if self._date[job] != date:
            self._outdated -= 1
            return False
        self._date[job] = math.nan
        return True

    def forget(self, job: int) -> None:
        """Removes the date of a job, if any."""
        if math.isnan(self._date[job]):
            return
        self._date[job] = math.nan
        self._outdated += 1
        if self._outdated > _OUTDATED and self._outdated * 2 > len(self.entries):
            dates, at_date = self._date, self._at_date
            # In place: the loop of the engine has a reference to the list.
            self.entries[:] = [
                entry
                for entry in self.entries
                if len(entry) == 1 or entry[3] is not at_date or dates[entry[4]] == entry[0]
            ]
            heapify(self.entries)
            self._outdated = 0
