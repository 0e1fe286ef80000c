"""Deferral of jobs with slack to times of lower price or carbon intensity, or to nights and weekends."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.errors import ConfigError
from hdsim.facility.dates import Dates
from hdsim.facility.series import WINDOWS, Signal, window_series
from hdsim.scheduling.orders import JobOrder
from hdsim.scheduling.queue import DynamicQueue
from hdsim.util.arrays import Floats, Ints
from hdsim.workload.slack import slack_of

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster

#: Signals of a facility by which jobs are put off.
SIGNALS = ("carbon", "price")
#: Longest stretch, in seconds, that a mean over the run of a job may lack beyond the horizon of the forecast.
_SEEN = 4 * 3600.0


class Deferral:
    """Decides which jobs wait for a better time.

    A job with slack is put off while the forecast has a start within its bound whose mean over the requested time is
    lower than that of a start now by at least `gain`. Its plan is made anew at each change of the signal. A job whose
    time has come is *released*: it may start behind all other jobs. From `margin` before its bound on it is *due*, and
    has the place in the queue that its submission gives it.

    Attributes:
        deferred: Jobs that may not start now.
        released: Jobs that may start behind all others.

    Args:
        cluster: The cluster.
        signal: ``carbon``, ``price``, ``night`` or ``weekend``.
        longest: Bound on the seconds for which a job is put off, beside its slack.
        margin: Seconds before its bound at which a job is due; at most half of its slack.
        gain: Share by which a later start must be lower.

    Raises:
        ConfigError: The cluster knows no such signal, or its date is not known.
    """

    def __init__(self, cluster: Cluster, signal: str, longest: float, margin: float, gain: float) -> None:
        self._gain, self._signal = gain, _signal(cluster, signal)
        slack = slack_of(cluster.workload)
        jobs = cluster.workload
        bound = np.full(len(jobs), np.nan) if slack is None else np.minimum(slack, longest)
        self._due = jobs.submission_time + bound - np.minimum(margin, bound / 2)
        self._flexible = ~np.isnan(bound)
        self._length = np.maximum(np.array(cluster.requested_time), 1.0)
        self.deferred: set[int] = set()
        self.released: set[int] = set()
        self._planned_until = -math.inf
        self._called = -math.inf

    def note(self, cluster: Cluster) -> list[int]:
        """Plans the jobs that have come and, at a change of the signal, those that wait; returns those that may start.

        These are what has been submitted without a plan to wait, and what was put off until now.
        """
        now = cluster.now
        for job in cluster.withdrawn:
            self.deferred.discard(job)
        arrived = list(cluster.submitted)
        new = [job for job in arrived if self._is_flexible(job)]
        waiting = sorted(self.deferred) if now >= self._planned_until else []
        later = set(self._put_off(now, np.array([*waiting, *new], np.int64)))
        freed = [job for job in waiting if job not in later]
        if now >= self._planned_until:
            changes = self._signal.changes()
            self._planned_until = float(changes[0]) if len(changes) else math.inf
        self.deferred.difference_update(freed)
        self.deferred |= later
        self.released.update(freed)
        self.released.update(job for job in new if job not in later)
        if self.deferred and self._called < self._planned_until < math.inf:
            self._called = self._planned_until
            cluster.call_me_later(self._planned_until)
        may = [job for job in arrived if job not in later]
        return sorted([*freed, *may])

    def is_due(self, job: int, now: float) -> bool:
        """Whether a job has its own place in the queue."""
        return job not in self.released or now >= self._due[job]

    def _is_flexible(self, job: int) -> bool:
        return job < len(self._flexible) and bool(self._flexible[job])

    def _put_off(self, now: float, jobs: Ints) -> list[int]:
        """Those of some jobs that have a better start later."""
        jobs = jobs[self._due[jobs] > now] if len(jobs) else jobs
        if not len(jobs):
            return []
        starts = np.append(now, self._signal.changes())
        means = self._means(starts, self._length[jobs])
        means[starts > self._due[jobs][:, None]] = np.nan
        present = means[:, 0]
        later = np.where(np.isnan(means[:, 1:]), np.inf, means[:, 1:]).min(axis=1, initial=np.inf)
        better = later < present - self._gain * np.abs(present)
        return [int(job) for job in jobs[better].tolist()]

    def _means(self, starts: Floats, lengths: Floats) -> Floats:
        """(J, K) expected means over the runs of jobs from each start on, as far as they are known."""
        known = self._signal.known_until
        begin, length = np.meshgrid(starts, lengths)
        end = np.minimum(begin + length, known)
        means = self._signal.mean(begin.ravel(), end.ravel()).reshape(begin.shape)
        return np.where(end - begin >= np.minimum(length, _SEEN), means, np.nan)


class DeferringQueue(DynamicQueue):
    """Queued jobs that may start, those that are released and not due behind all others.

    Args:
        cluster: The cluster.
        order: Order of the jobs, static or not.
        deferral: The plan.
    """

    def __init__(self, cluster: Cluster, order: JobOrder, deferral: Deferral) -> None:
        super().__init__(cluster, order)
        self._deferral = deferral
        self._ready: set[int] = set()
        self._static = None if order.dynamic else np.asarray(order.score(cluster.workload), np.float64)

    def add(self, jobs: Sequence[int]) -> None:
        """Takes note of jobs that may start."""
        super().add(jobs)
        self._ready.update(jobs)

    def drop(self, jobs: Iterable[int]) -> None:
        """Forgets jobs."""
        self._ready.difference_update(jobs)

    def remove(self, job: int) -> None:
        """Removes a job."""
        super().remove(job)
        self._ready.discard(job)

    def refresh(self, cluster: Cluster) -> None:
        """Sorts the jobs that may start."""
        is_due, now = self._deferral.is_due, cluster.now
        ready = sorted(self._ready)
        due = [job for job in ready if is_due(job, now)]
        behind = [job for job in ready if not is_due(job, now)]
        self.jobs = [*self._sorted(due, cluster), *self._sorted(behind, cluster)]

    def _sorted(self, jobs: list[int], cluster: Cluster) -> list[int]:
        if len(jobs) < 2:
            return jobs
        queued = np.array(jobs)
        scores: Any = self._score(cluster.workload, queued, cluster) if self._static is None else self._static[queued]
        return queued[np.argsort(scores, kind="stable")].tolist()


def _signal(cluster: Cluster, name: str) -> Signal:
    if name in WINDOWS:
        facility = cluster.facility
        dates = Dates.of(None, None, cluster.workload) if facility is None else facility.dates
        last = float(cluster.workload.submission_time[-1]) if len(cluster.workload) else 0.0
        return Signal(window_series(name, dates, last), cluster)
    found = getattr(cluster.facility, name, None)
    if found is None:
        raise ConfigError(f"expected a facility with facility.{name}, got none", where="agent.defer")
    signal: Signal = found
    return signal
