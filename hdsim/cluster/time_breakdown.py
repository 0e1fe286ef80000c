"""Where the time of jobs with programs goes."""

from __future__ import annotations

from array import array


class TimeBreakdown:
    """Where the time of jobs has gone. One entry a job; those that never ran have 0.

    Attributes:
        computation: s of wall clock from the begin of each computation to the end of its last task.
        communication: s of wall clock in exchanges of messages and at the latency of barriers.
        waiting: s that a task has waited on average for slower ones.
        supersteps: Supersteps done.
        uncontended: s that the steps done take with cores at peak speed and links without other jobs.
        changes: Three numbers a change, in no order: date in s, change of the cores' worth of speed that contention
            takes, change of the number of tasks that exchange messages.
    """

    def __init__(self, jobs: int) -> None:
        self.computation: list[float] = []
        self.communication: list[float] = []
        self.waiting: list[float] = []
        self.supersteps: list[int] = []
        self.uncontended: list[float] = []
        self.changes = array("d")
        self.add(jobs)

    def add(self, jobs: int) -> None:
        """Adds jobs behind those known."""
        for numbers in self._seconds:
            numbers.extend([0.0] * jobs)
        self.supersteps.extend([0] * jobs)

    def forget(self, job: int) -> None:
        """Starts anew for a job that will be started again: the numbers tell of its last start."""
        for numbers in self._seconds:
            numbers[job] = 0.0
        self.supersteps[job] = 0

    @property
    def _seconds(self) -> tuple[list[float], ...]:
        return self.computation, self.communication, self.waiting, self.uncontended
