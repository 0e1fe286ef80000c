"""Records of the allocations of jobs, from which segments derive."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hdsim.util.copies import with_own_containers


class ClosedSegment(NamedTuple):
    """A segment that ended before its job: by a resize, another speed or frequency, a failure or a suspension."""

    job: int
    attempt: int  # number of earlier attempts
    placement: Any
    begin: float  # seconds
    end: float  # seconds
    speed: float  # share of the peak speed of the cores
    lost: float  # seconds of running time that are repeated
    requeued: bool  # the job returned to the queue
    ghz: float  # frequency of the cores, NaN for the nominal one


@dataclass(eq=False)
class Allocations:
    """Allocations of all started jobs.

    Most jobs have one segment, which `placements` alone records; the other dictionaries have entries only for jobs with
    several segments.
    """

    __deepcopy__ = with_own_containers

    placements: dict[int, Any] = field(default_factory=dict)  # last one of each started job, in order of the starts
    closed: list[ClosedSegment] = field(default_factory=list)  # in order of their ends
    begin: dict[int, float] = field(default_factory=dict)  # of the last segment in seconds, if it is not the start
    speed: dict[int, float] = field(default_factory=dict)  # of the cores as a share of their peak speed, if not 1
    frequency: dict[int, float] = field(default_factory=dict)  # of the cores in GHz, if not the nominal one
    restarts: dict[int, int] = field(default_factory=dict)  # interrupted attempts, if any

    def resize(self, job: int, held: Any, placement: Any, start: float, now: float) -> None:
        """Begins a segment of a job, which holds `held` since `start`, with another placement; times are in seconds."""
        self._close(job, held, start, now)
        self.begin[job] = now
        self.placements[job] = placement

    def set_speed(self, job: int, held: Any, speed: float, start: float, now: float) -> None:
        """Begins a segment of a job with another speed; see `resize`."""
        if speed != self.speed.get(job, 1.0):
            self._close(job, held, start, now)
            self.begin[job], self.speed[job] = now, speed

    def set_frequency(self, job: int, held: Any, ghz: float, start: float, now: float) -> None:
        """Begins a segment of a job at another frequency, NaN for the nominal one; see `resize`."""
        self._close(job, held, start, now)
        self.begin[job] = now
        self.note_frequency(job, ghz)

    def note_frequency(self, job: int, ghz: float) -> None:
        """Takes note of the frequency of the last segment of a job, NaN for the nominal one."""
        self.frequency.pop(job, None)
        if not math.isnan(ghz):
            self.frequency[job] = ghz

    def suspend(self, job: int, held: Any, start: float, now: float) -> None:
        """Ends a segment of a job, which holds nothing until `resume`; see `resize`."""
        self._close(job, held, start, now)
        self.begin[job] = now

    def resume(self, job: int, now: float) -> None:
        """Begins a segment of a job that has been suspended, on what it held before; time is in seconds."""
        self.begin[job] = now

    def interrupt(self, job: int, start: float, now: float, lost: float) -> None:
        """Ends the attempt of a job that returns to the queue; see `resize` and :class:`ClosedSegment`."""
        self._close(job, self.placements.pop(job), start, now, lost, requeued=True)
        self.begin.pop(job, None)
        self.speed.pop(job, None)
        self.frequency.pop(job, None)
        self.restarts[job] = self.restarts.get(job, 0) + 1

    def _close(
        self, job: int, held: Any, start: float, now: float, lost: float = 0.0, *, requeued: bool = False
    ) -> None:
        begin = self.begin.get(job, start)
        # Several changes at one instant count as one.
        if begin < now or requeued:
            attempt, speed = self.restarts.get(job, 0), self.speed.get(job, 1.0)
            ghz = self.frequency.get(job, math.nan)
            self.closed.append(ClosedSegment(job, attempt, held, begin, now, speed, lost, requeued, ghz))
