"""Records of the allocations of jobs, from which segments derive."""

from __future__ import annotations

from typing import Any, NamedTuple

from hdsim.util.copies import with_own_containers


class ClosedSegment(NamedTuple):
    """An allocation segment that ended before its job: by a resize, a change of speed or a failure."""

    job: int
    attempt: int  # number of earlier attempts
    placement: Any
    begin: float  # seconds
    end: float  # seconds
    speed: float  # share of the peak speed of the cores
    lost: float  # seconds of running time that are repeated
    requeued: bool  # the job returned to the queue


class Allocations:
    """Allocations of all started jobs.

    Most jobs have one segment, which `placements` alone records; the other dictionaries have entries only for jobs with
    several segments.

    Attributes:
        placements: Last placement of each started job, in order of the starts.
        closed: Segments that ended before their jobs, in order of their ends.
        begin: Begin of the last segment of a job in seconds, if it is not the start.
        speed: Speed of the cores of a job as a share of their peak speed, if it is not 1.
        restarts: Number of interrupted attempts of a job, if any.
    """

    __deepcopy__ = with_own_containers

    def __init__(self) -> None:
        self.placements: dict[int, Any] = {}
        self.closed: list[ClosedSegment] = []
        self.begin: dict[int, float] = {}
        self.speed: dict[int, float] = {}
        self.restarts: dict[int, int] = {}

    def resize(self, job: int, held: Any, placement: Any, start: float, now: float) -> None:
        """Begins a segment of a job with another placement.

        Args:
            job: The job.
            held: Previous placement.
            placement: New placement.
            start: Start of the job, seconds.
            now: Current time, seconds.
        """
        self._close(job, held, start, now)
        self.begin[job] = now
        self.placements[job] = placement

    def set_speed(self, job: int, held: Any, speed: float, start: float, now: float) -> None:
        """Begins a segment of a job with another speed; see `resize`."""
        if speed != self.speed.get(job, 1.0):
            self._close(job, held, start, now)
            self.begin[job], self.speed[job] = now, speed

    def interrupt(self, job: int, start: float, now: float, lost: float) -> None:
        """Ends the attempt of a job that returns to the queue; see `resize` and :class:`ClosedSegment`."""
        self._close(job, self.placements.pop(job), start, now, lost, requeued=True)
        self.begin.pop(job, None)
        self.speed.pop(job, None)
        self.restarts[job] = self.restarts.get(job, 0) + 1

    def _close(
        self, job: int, held: Any, start: float, now: float, lost: float = 0.0, *, requeued: bool = False
    ) -> None:
        begin = self.begin.get(job, start)
        # Several changes at one instant count as one.
        if begin < now or requeued:
            attempt, speed = self.restarts.get(job, 0), self.speed.get(job, 1.0)
            self.closed.append(ClosedSegment(job, attempt, held, begin, now, speed, lost, requeued))
