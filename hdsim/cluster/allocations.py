"""What jobs have held: the bookkeeping of a cluster from which allocation segments are made."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class ClosedSegment(NamedTuple):
    """A stretch of time in which a job held the same cores, ended by a resize, a change of speed or a failure."""

    job: int
    attempt: int  # earlier starts that failures have cut short
    placement: Any
    begin: float  # s
    end: float  # s
    speed: float  # share of the cores' peak speed
    lost: float  # s of running that have to be repeated
    requeued: bool  # the job went back to the queue


class Allocations:
    """Allocations of all jobs that have started.

    Most jobs have one allocation from their start to their end, which `placements` alone records; the other
    dictionaries have entries for the other jobs only.

    Attributes:
        placements: Latest placement of every started job that is not in `compacted`, in order of the starts.
        compacted: Jobs, numbers of their core ids and core ids of earlier starts, in portions.
        closed: Segments that ended before their jobs did, in order of their ends.
        begin: s, begin of the latest segment of a job where it is not the start.
        speed: Share of the peak speed of a job's cores at which they compute, where it is not 1.
        restarts: Starts of a job that failures have cut short, where there were any.
    """

    def __init__(self) -> None:
        self.placements: dict[int, Any] = {}
        self.compacted: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]] = []
        self.closed: list[ClosedSegment] = []
        self.begin: dict[int, float] = {}
        self.speed: dict[int, float] = {}
        self.restarts: dict[int, int] = {}

    @property
    def started(self) -> int:
        """Jobs that have started, those that wait for another start left out."""
        return len(self.placements) + sum(len(jobs) for jobs, _, _ in self.compacted)

    def resize(self, job: int, held: Any, placement: Any, start: float, now: float) -> None:
        """Closes the segment of a job that gets other cores, and opens the next.

        Args:
            job: The job.
            held: What it held.
            placement: What it holds from now on.
            start: s, when the job was started.
            now: s.
        """
        self._close(job, held, start, now)
        self.begin[job] = now
        self.placements[job] = placement

    def set_speed(self, job: int, held: Any, speed: float, start: float, now: float) -> None:
        """Closes the segment of a job whose cores change their speed, and opens the next; see `resize`."""
        if speed != self.speed.get(job, 1.0):
            self._close(job, held, start, now)
            self.begin[job], self.speed[job] = now, speed

    def interrupt(self, job: int, start: float, now: float, lost: float) -> None:
        """Closes the segment of a job that goes back to the queue; see `resize` and :class:`ClosedSegment`."""
        self._close(job, self.placements.pop(job), start, now, lost, requeued=True)
        self.begin.pop(job, None)
        self.speed.pop(job, None)
        self.restarts[job] = self.restarts.get(job, 0) + 1

    def _close(
        self, job: int, held: Any, start: float, now: float, lost: float = 0.0, *, requeued: bool = False
    ) -> None:
        begin = self.begin.get(job, start)
        # Several resizes at one instant count as one.
        if begin < now or requeued:
            attempt, speed = self.restarts.get(job, 0), self.speed.get(job, 1.0)
            self.closed.append(ClosedSegment(job, attempt, held, begin, now, speed, lost, requeued))

    def compact(self, store: Any, sizes: NDArray[np.int64]) -> None:
        """Moves the placements known so far into arrays, which take a fraction of the memory.

        Args:
            store: The store of cores that made the placements.
            sizes: (J,) core ids that each job asks for.
        """
        jobs = np.fromiter(self.placements, np.int64, len(self.placements))
        placements = list(self.placements.values())
        sizes = np.array([len(held) for held in placements], np.int64) if self.begin else sizes[jobs]
        self.compacted.append((jobs, sizes, store.cores_of(placements, sizes)))
        self.placements.clear()
