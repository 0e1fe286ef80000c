"""The executor interface, and the executor of jobs without contention."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.placement import Placement
from hdsim.errors import WorkloadError
from hdsim.failures import checkpointed_work
from hdsim.util.arrays import Floats, Ints
from hdsim.util.copies import with_own_containers

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.cluster.time_breakdown import TimeBreakdown
    from hdsim.contention.kernels import speeds
    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload

#: (n,) core ids.
CoreIds = Sequence[int] | NDArray[np.integer[Any]]
_NONE = -1


class JobProgress(NamedTuple):
    """Progress of a running job.

    Attributes:
        steps: Completed steps of its program, 0 without one.
        share: Completed share of the current step, 0..1; without a program, of the whole job.
    """

    steps: int
    share: float


class Executor(ABC):
    """Computes the completion dates of running jobs from their work and the speed of their cores.

    A job of `runtime` seconds at the reference speed on its requested n cores is a fixed amount of work. On m cores of
    relative speed v (that of the slowest) it advances by v m / n of these seconds per second, with m = n until `resize`
    changes it (`runtime` x n core-seconds are divided evenly among m cores). A job of fixed duration advances by 1.
    """

    __deepcopy__ = with_own_containers

    time_breakdown: TimeBreakdown | None = None  # of jobs with programs, None if no job has one
    # Running jobs whose `loads` may have changed, as keys, until a power model clears it; None if none reads it.
    moved: dict[int, None] | None = None
    runs_gangs: ClassVar[bool] = False  # jobs may be gangs
    suspends: ClassVar[bool] = False  # `suspend` and `resume` are there

    def __init__(self, workload: Workload) -> None:
        #: Remaining run time of each job at its next start, reference seconds.
        self._runtime: list[float] = workload.runtime.tolist()
        self._fixed: list[bool] = workload.fixed_duration.tolist()
        self._requested: list[int] = workload.requested_cores.tolist()

    def add(self, jobs: Workload) -> None:
        """Appends jobs.

        Raises:
            WorkloadError: Some are gangs, and none of the initial jobs is.
        """
        if jobs.has_gangs and not self.runs_gangs:
            raise WorkloadError("expected jobs without gangs, since none of the initial jobs is a gang")
        self._runtime += jobs.runtime.tolist()
        self._fixed += jobs.fixed_duration.tolist()
        self._requested += jobs.requested_cores.tolist()

    @abstractmethod
    def start(self, job: int, placement: Any, now: float) -> None:
        """Starts a job; `settle` returns its date."""

    @abstractmethod
    def advance(self, job: int, now: float) -> bool:
        """Continues a job at the date of `settle`; True if the job is complete and removed."""

    @abstractmethod
    def end(self, job: int, now: float) -> None:
        """Removes a job before its end."""

    @abstractmethod
    def interrupt(self, job: int, now: float, begin: float, interval: float | None) -> float:
        """Removes a job that will start again and keeps the work of its last checkpoint.

        Args:
            job: The job.
            now: Current time, seconds.
            begin: Start of the job, seconds.
            interval: Run time between two checkpoints of a job without a program, reference seconds; a job with a
                program has a checkpoint after each step. None: no checkpoints.

        Returns:
            Seconds of running time since `begin` that are lost.
        """

    @abstractmethod
    def worked(self, job: int, now: float, begin: float) -> float:
        """Returns the work of a running job since its start at `begin`, in reference seconds on its requested cores."""

    @abstractmethod
    def set_runtimes(self, runtimes: list[float], starts: list[float], now: float) -> dict[int, float]:
        """Changes the run times of all jobs, with the work that running jobs have done.

        A job with a program becomes a rigid job without messages, since a run time says nothing of its steps.

        Args:
            runtimes: Reference seconds of each job, since its last start or at its next one.
            starts: Last start of each job, seconds.
            now: Current time, seconds.

        Returns:
            Date in seconds of each running job, just after now if it has passed, but for those that `settle` returns.
        """

    def rigid_jobs(self) -> tuple[list[float], speeds.State | None] | None:
        """Returns the reference seconds of each job and the progress of running ones under contention, if any.

        None of it is defined, and the result None, where jobs have steps.
        """
        return None

    def saved(self, job: int, runtime: float) -> float:
        """Returns the work in checkpoints of earlier attempts of a job of a run time, reference seconds."""
        return runtime - self._runtime[job]

    @abstractmethod
    def resize(self, placements: Mapping[int, Any], now: float) -> None:
        """Moves running jobs to other cores, possibly of another number; completed work is kept.

        Args:
            placements: The cores of each job. A job may get cores that another of them gives up.
            now: Current time, seconds.

        Raises:
            DecisionError: A job has a program whose messages or per-task work are those of a fixed number of tasks.
        """

    def suspend(self, job: int, placement: Any, now: float) -> None:
        """Stops a running job, which keeps its work; where `suspends` is true."""
        raise NotImplementedError

    def resume(self, job: int, placement: Any, now: float) -> None:
        """Continues a suspended job; `settle` returns its date."""
        raise NotImplementedError

    @abstractmethod
    def set_speed(self, cores: CoreIds, share: Floats | float, now: float) -> Iterable[int]:
        """Changes the speed of cores.

        Args:
            cores: (n,) core ids.
            share: (n,) or one for all, speed as a share of the peak speed of each core, above 0.
            now: Current time, seconds.

        Returns:
            The running jobs on these cores.
        """

    @abstractmethod
    def progress(self, job: int, now: float) -> JobProgress:
        """Returns the progress of a running job."""

    @abstractmethod
    def loads(self, job: int) -> Floats | float:
        """(n,) or one for all, used share of the speed of each core of a running job; 0 for a fixed duration.

        Faster cores of a job wait for its slowest core.
        """

    @abstractmethod
    def settle(self, now: float) -> Iterable[tuple[int, float]]:
        """Updates speeds after the changes of an instant.

        Returns:
            (job, date of the next `advance` in seconds) of new jobs and of jobs whose date has changed.
        """

    def _checkpoint(self, job: int, done: float, seconds: float, interval: float | None) -> float:
        """Keeps the work, of `done` reference seconds in `seconds`, of the last checkpoint of a job without a program.

        After changes of speed, lost work counts with the mean speed of the attempt.

        Returns:
            Lost seconds of running time.
        """
        saved = 0.0 if interval is None else checkpointed_work(done, interval)
        if not saved:
            return seconds
        self._runtime[job] -= saved
        return seconds - saved * (seconds / done)


def placed(placement: Any, platform: Platform) -> Placement:
    """Returns the `Placement` for a placement of any store whose placements are core ids."""
    return placement if isinstance(placement, Placement) else Placement(np.array(placement, np.int64), platform)


class RigidExecutor(Executor):
    """Base class of executors of jobs without programs: a job is one amount of work on all its cores."""

    def progress(self, job: int, now: float) -> JobProgress:
        runtime = self._runtime[job]
        return JobProgress(0, 1.0 - max(self._left_at(job, now), 0.0) / runtime if runtime else 1.0)

    def loads(self, job: int) -> Floats | float:
        if self._fixed[job]:
            return 0.0
        speed = self._core_speeds(job)
        return np.asarray(speed.min() / speed)

    def worked(self, job: int, now: float, begin: float) -> float:
        return self._runtime[job] - self._left_at(job, now)

    @abstractmethod
    def _left_at(self, job: int, now: float) -> float:
        """Returns the remaining work of a running job in reference seconds."""

    @abstractmethod
    def _core_speeds(self, job: int) -> Floats:
        """(n,) current speed of the cores of a running job relative to the reference speed."""


class Uncontended(RigidExecutor):
    """Executor of jobs without contention; on cores of one speed a job needs no state besides its date."""

    suspends = True

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.workload)
        self._cluster = cluster
        self._homogeneous = cluster.platform.homogeneous_speed
        self._due: list[tuple[int, float]] = []
        # (remaining reference seconds, rate, date of the rate) of jobs with a rate other than 1 since their start; the
        # rate of suspended ones is 0.
        self._paces: dict[int, tuple[float, float, float]] = {}
        # (C,) current and peak speed relative to the reference, and the job of each core, after the first `set_speed`.
        self._speed = self._peak = np.zeros(0)
        self._job_of_core: Ints | None = None

    def rigid_jobs(self) -> tuple[list[float], speeds.State | None] | None:
        return self._runtime, None

    def start(self, job: int, placement: Any, now: float) -> None:
        seconds = self._runtime[job]
        if self._cluster.own_sizes:
            self._requested[job] = len(self._ids(placement))
        if self._job_of_core is not None:
            self._job_of_core[self._ids(placement)] = job
        if not (self._fixed[job] or (self._homogeneous and self._job_of_core is None)):
            rate = self._rate(placement)
            self._paces[job] = seconds, rate, now
            seconds /= rate
        self._due.append((job, now + seconds))
        if self.moved is not None:
            self.moved[job] = None

    def advance(self, job: int, now: float) -> bool:
        if self._paces or self._job_of_core is not None:
            self.end(job, now)
        return True

    def end(self, job: int, now: float) -> None:
        self._paces.pop(job, None)
        if self._job_of_core is not None:
            self._job_of_core[self._ids(self._cluster.running[job])] = _NONE

    def interrupt(self, job: int, now: float, begin: float, interval: float | None) -> float:
        left, rate, since = self._pace(job)
        lost = self._checkpoint(job, self._runtime[job] - left + rate * (now - since), now - begin, interval)
        self.end(job, now)
        return lost

    def resize(self, placements: Mapping[int, Any], now: float) -> None:
        for job, placement in placements.items():
            if self._job_of_core is not None:
                self._job_of_core[self._job_of_core == job] = _NONE
                self._job_of_core[self._ids(placement)] = job
            self._change(job, placement, now)

    def suspend(self, job: int, placement: Any, now: float) -> None:
        self._paces[job] = self._left_at(job, now), 0.0, now
        self._due = [one for one in self._due if one[0] != job]
        if self._job_of_core is not None:
            self._job_of_core[self._job_of_core == job] = _NONE

    def resume(self, job: int, placement: Any, now: float) -> None:
        left, rate = self._paces[job][0], 1.0
        if self._job_of_core is not None:
            self._job_of_core[self._ids(placement)] = job
        if not self._fixed[job]:
            rate = self._rate(placement) * self._growth(job, placement)
        self._paces[job] = left, rate, now
        self._due.append((job, now + left / rate))
        if self.moved is not None:
            self.moved[job] = None

    def set_speed(self, cores: CoreIds, share: Floats | float, now: float) -> list[int]:
        running = self._cluster.running
        if self._job_of_core is None:
            platform = self._cluster.platform
            self._peak = platform.core_gflops() / platform.reference_gflops
            self._speed = self._peak.copy()
            self._job_of_core = np.full(platform.n_cores, _NONE)
            for job, placement in running.items():
                if job not in self._cluster.starting:
                    self._job_of_core[self._ids(placement)] = job
        chosen = np.asarray(cores, np.int64)
        self._speed[chosen] = self._peak[chosen] * share
        jobs = [job for job in dict.fromkeys(self._job_of_core[chosen].tolist()) if job != _NONE]
        for job in jobs:
            self._change(job, running[job], now)
        return jobs

    def set_runtimes(self, runtimes: list[float], starts: list[float], now: float) -> dict[int, float]:
        before, self._runtime, paces = self._runtime, runtimes, self._paces
        running, later = self._cluster.running, math.nextafter(now, math.inf)
        dates = {job: end if (end := starts[job] + runtimes[job]) > now else later for job in running}
        for job, (rest, rate, since) in paces.items():
            left = runtimes[job] - (before[job] - rest)
            if rate:
                dates[job] = max(since + left / rate, later)
            else:
                # A suspended job ends when it is resumed, at the earliest.
                left = max(left, 0.0)
            paces[job] = left, rate, since
        return dates

    def settle(self, now: float) -> list[tuple[int, float]]:
        due = self._due
        if due:
            self._due = []
        return due

    def _change(self, job: int, placement: Any, now: float) -> None:
        """Updates the rate of a running job."""
        if self.moved is not None:
            self.moved[job] = None
        if self._fixed[job]:
            return
        rate = self._rate(placement) * self._growth(job, placement)
        if rate != self._pace(job)[1]:
            left = self._left_at(job, now)
            self._paces[job] = left, rate, now
            self._due.append((job, now + max(left / rate, 0.0)))

    def _growth(self, job: int, placement: Any) -> float:
        """Returns the cores of a job relative to those that it has started on."""
        return len(self._ids(placement)) / self._requested[job]

    def _pace(self, job: int) -> tuple[float, float, float]:
        return self._paces.get(job) or (self._runtime[job], 1.0, self._cluster.starting_time[job])

    def _left_at(self, job: int, now: float) -> float:
        left, rate, since = self._pace(job)
        return left - rate * (now - since)

    def _ids(self, placement: Any) -> CoreIds:
        """Returns the core ids of a placement without GPUs."""
        if isinstance(placement, Placement):
            return placement.cores
        return self._cluster.cores.ids_of(placement)

    def _core_speeds(self, job: int) -> Floats:
        ids = np.asarray(self._ids(self._cluster.running[job]), np.int64)
        if self._job_of_core is not None:
            return self._speed[ids]
        platform = self._cluster.platform
        return platform.gflops[platform.core_processor[ids]] / platform.reference_gflops

    def _rate(self, placement: Any) -> float:
        """Returns the relative speed of the slowest core of a placement."""
        if self._job_of_core is None:
            return 1.0 if self._homogeneous else float(self._cluster.cores.slowest(placement))
        return float(self._speed[self._ids(placement)].min())
