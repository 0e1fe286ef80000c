"""What the engine has to do at which date."""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heapify, heappush
from itertools import count
from typing import Any

#: At an instant the dates of jobs come first, then changes of nodes (a job that completes when its node fails has
#: completed), then jobs added on the way arrive, as those of the trace do after them.
FIRST, AFTER_ENDS, AFTER_NODES = range(3)
#: The agenda is rid of outdated entries when it has more of them than this and than others.
_OUTDATED = 256


class Agenda:
    """Entries in order of date, rank and the order in which they were made.

    A job has one date at a time; when it moves, the entry of the former date is outdated.

    Attributes:
        entries: Heap of (date, rank, sequence number, action, its argument); the action of a job's completion is None.
            The last entry is a sentinel at infinity.

    Args:
        jobs: Number of jobs.
    """

    def __init__(self, jobs: int) -> None:
        self.entries: list[tuple[Any, ...]] = [(math.inf,)]
        self._sequence = count()
        self._date = [math.nan] * jobs
        # Actions of jobs' dates.
        self._of_jobs: set[Any] = {None}
        self._outdated = 0

    def add(self, jobs: int) -> None:
        """Adds jobs behind those known."""
        self._date += [math.nan] * jobs

    def schedule(self, date: float, action: Callable[[Any], Any], argument: Any, rank: int = FIRST) -> None:
        """Calls an action with its argument at a date in s."""
        heappush(self.entries, (date, rank, next(self._sequence), action, argument))

    def set_date(self, job: int, date: float, action: Callable[[int], Any] | None = None) -> None:
        """Sets the date of a job, and what happens then: by default it completes, or goes on to its next step.

        The action has to ask `is_due` whether the date is still that of the job.
        """
        dates = self._date
        if dates[job] == dates[job]:  # not NaN
            self.forget(job)
        if action is not None:
            self._of_jobs.add(action)
        dates[job] = date
        heappush(self.entries, (date, FIRST, next(self._sequence), action, job))

    def is_due(self, job: int, date: float) -> bool:
        """Whether an entry that has been taken from the heap is that of the job's date; the date is used up then."""
        if self._date[job] != date:
            self._outdated -= 1
            return False
        self._date[job] = math.nan
        return True

    def forget(self, job: int) -> None:
        """Makes the entry of a job's date outdated, if there is one."""
        if math.isnan(self._date[job]):
            return
        self._date[job] = math.nan
        self._outdated += 1
        if self._outdated > _OUTDATED and self._outdated * 2 > len(self.entries):
            dates, of_jobs = self._date, self._of_jobs
            # In place: the engine's loop holds the list.
            self.entries[:] = [
                entry
                for entry in self.entries
                if len(entry) == 1 or entry[3] not in of_jobs or dates[entry[4]] == entry[0]
            ]
            heapify(self.entries)
            self._outdated = 0
