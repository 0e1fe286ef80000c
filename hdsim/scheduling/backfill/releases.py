"""The expected release times of cores."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.kernels.compiling import in_python
from hdsim.scheduling.kernels.profiles import Releases, head_reservation
from hdsim.util.copies import with_own_containers

if TYPE_CHECKING:
    from hdsim.cluster.frequencies import Frequencies
    from hdsim.cluster.state import Cluster

#: Seconds that corrections add to a prediction, one after the other.
CORRECTIONS = (60, 300, 900, 1800, 3600, 7200, 18_000, 36_000, 72_000, 180_000, 360_000)
#: Number of running jobs up to which a loop over them in Python takes less time than a call of a kernel.
_FEW = 64

_head_reservation = in_python(head_reservation)


class ReleaseTimes:
    """Expected ends of running jobs.

    Attributes:
        end: Expected end of each running job, seconds.

    Args:
        cluster: The cluster; its running jobs end at their requested times.
    """

    __deepcopy__ = with_own_containers

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.end: dict[int, float] = {}
        self._retimed = 0  # changes of frequencies that the ends follow
        # The same ends, ascending, ties by job, the jobs and their cores.
        self._ends, self._jobs, self._cores = array("d"), array("q"), array("d")
        for job, placement in cluster.running.items():
            if job not in cluster.starting:
                self.add(job, cluster.starting_time[job] + cluster.estimate(job, placement), cluster.size[job])

    def add(self, job: int, end: float, cores: float) -> None:
        """Adds a started job."""
        self.end[job] = end
        place = bisect_left(self._jobs, job, bisect_left(self._ends, end), bisect_right(self._ends, end))
        self._ends.insert(place, end)
        self._jobs.insert(place, job)
        self._cores.insert(place, cores)
        self._call(job, end)

    @property
    def sorted(self) -> Releases:
        """The expected ends in arrays for kernels, until the next change."""
        columns: Any = (self._ends, self._jobs, self._cores, [len(self._ends)])
        return Releases(*map(np.asarray, columns))

    def head_reservation(self, now: float, idle: float, cores: float) -> tuple[float, float]:
        """Returns the reservation of the head; see :func:`hdsim.scheduling.kernels.profiles.head_reservation`."""
        if len(self._ends) > _FEW:
            return head_reservation(self.sorted, now, idle, cores)
        few: Any = Releases(self._ends, self._jobs, self._cores, [len(self._ends)])  # type: ignore[arg-type]
        return _head_reservation(few, now, idle, cores)

    def correct(self) -> bool:
        """Corrects predictions that running jobs have exceeded; returns whether there were any.

        The i-th correction adds the i-th of 1, 5, 15 and 30 minutes and 1, 2, 5, 10, 20, 50 and 100 hours, up to the
        limit of the prediction (Tsafrir, Etsion and Feitelson 2007, in the steps of the simulators Alvio and pyss).
        """
        cluster = self._cluster
        corrected = cluster.frequencies is not None and self._follow_frequencies(cluster.frequencies)
        if not cluster.expected or not self.overdue(cluster.now):
            return corrected
        for job in self._jobs[: bisect_right(self._ends, cluster.now)].tolist():
            begin, end = cluster.starting.get(job, cluster.starting_time[job]), self.end[job]
            while end <= cluster.now and job in cluster.expected:
                (limit, corrections), seconds = cluster.expected[job], cluster.requested_time[job]
                if seconds >= limit:
                    break
                more = CORRECTIONS[min(corrections, len(CORRECTIONS) - 1)]
                cluster.expect(job, min(seconds + more, limit), limit, corrections + 1)
                end = begin + cluster.estimate(job, cluster.running[job])
                corrected = True
            if end > cluster.now:
                self.remove(job)
                self.add(job, end, cluster.size[job])
        return corrected

    def _follow_frequencies(self, frequencies: Frequencies) -> bool:
        """Updates the ends of running jobs whose frequencies have changed; returns whether there were any."""
        cluster = self._cluster
        if self._retimed == len(frequencies.retimed):
            return False
        for job in dict.fromkeys(frequencies.retimed[self._retimed :]):
            if job in self.end and job in cluster.running:
                self.remove(job)
                end = cluster.starting_time[job] + cluster.estimate(job, cluster.running[job])
                self.add(job, end, cluster.size[job])
        self._retimed = len(frequencies.retimed)
        return True

    def _call(self, job: int, end: float) -> None:
        """Asks for a pass when a prediction that can be corrected will be exceeded."""
        cluster = self._cluster
        if job in cluster.expected and cluster.requested_time[job] < cluster.expected[job][0] and end > cluster.now:
            cluster.call_me_later(end)

    def overdue(self, now: float) -> bool:
        """Returns whether the expected end of a running job has passed."""
        return bool(self._ends) and self._ends[0] <= now

    def remove(self, job: int) -> float:
        """Removes an ended job and returns its expected end in seconds, NaN if it was not added."""
        end = self.end.pop(job, math.nan)
        if not math.isnan(end):
            place = self._jobs.index(job, bisect_left(self._ends, end))
            del self._ends[place], self._jobs[place], self._cores[place]
        return end
