"""The time breakdown of jobs with programs."""

from __future__ import annotations

from array import array

from hdsim.util.copies import with_own_containers


class TimeBreakdown:
    """Durations of computation, communication and waiting of each job, 0 for jobs that never ran.

    Attributes:
        computation: Seconds from the begin of each computation to the end of its last task.
        communication: Seconds of message exchanges and barriers.
        waiting: Mean seconds that a task waits for slower tasks.
        supersteps: Completed supersteps.
        uncontended: Seconds of the completed steps at peak speed on otherwise idle links.
        changes: Three numbers per change, unordered: date in seconds, change of the speed lost to contention in cores,
            change of the number of tasks that exchange messages.
    """

    __deepcopy__ = with_own_containers

    def __init__(self, jobs: int) -> None:
        self.computation: list[float] = []
        self.communication: list[float] = []
        self.waiting: list[float] = []
        self.supersteps: list[int] = []
        self.uncontended: list[float] = []
        self.changes = array("d")
        self.add(jobs)

    def add(self, jobs: int) -> None:
        """Appends jobs."""
        for numbers in self._seconds:
            numbers.extend([0.0] * jobs)
        self.supersteps.extend([0] * jobs)

    def forget(self, job: int) -> None:
        """Resets the durations of a job that returns to the queue; they describe its last attempt."""
        for numbers in self._seconds:
            numbers[job] = 0.0
        self.supersteps[job] = 0

    @property
    def _seconds(self) -> tuple[list[float], ...]:
        return self.computation, self.communication, self.waiting, self.uncontended
