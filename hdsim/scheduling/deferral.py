"""Deferral of jobs with slack to times of lower price or carbon intensity, or to nights and weekends."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.errors import ConfigError
from hdsim.facility.dates import Dates
from hdsim.facility.series import WINDOWS, Signal, window_series
from hdsim.scheduling.kernels.deferral import FEATURES, hold
from hdsim.scheduling.orders import JobOrder
from hdsim.scheduling.queue import DynamicQueue
from hdsim.util.arrays import Ints
from hdsim.util.inputs import parse_json
from hdsim.util.resources import folder
from hdsim.util.rules import numbers_between
from hdsim.util.text import shown
from hdsim.workload.slack import slack_of

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster

#: Signals of a facility by which jobs are put off.
SIGNALS = ("carbon", "price")
#: The weights that come with hdsim.
_SHIPPED = folder("agents") / "deferring.json"
_WEIGHT = numbers_between(-1e6, 1e6)


def read_plan(plan: str) -> list[float]:
    """Returns the weights of a plan, see :func:`hdsim.scheduling.kernels.deferral.hold`; none of ``rule``.

    Args:
        plan: ``rule``, ``learned`` or a JSON file whose key ``weights`` has them.

    Raises:
        ConfigError: There is no such plan, or the file has no such weights.
    """
    if plan == "rule":
        return []
    if plan != "learned" and not str(plan).endswith(".json"):
        raise ConfigError(f"expected rule, learned or a JSON file with weights, got {plan!r}", where="agent.plan")
    path = _SHIPPED if plan == "learned" else Path(plan)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"expected a JSON file with weights: {error.strerror}", where=str(path)) from None
    found = parse_json(content, path, ConfigError)
    weights = found.get("weights") if isinstance(found, dict) else None
    if not isinstance(weights, list) or len(weights) != FEATURES + 1 or not all(map(_WEIGHT.accepts, weights)):
        raise ConfigError(f"weights: expected a list of {FEATURES + 1} numbers, got {shown(weights)}", where=str(path))
    return [float(weight) for weight in weights]


class Deferral:
    """Decides which jobs wait for a better time.

    A job with slack is put off while the forecast has a start within its bound whose mean over the requested time is
    lower than that of a start now by at least `gain`, or while `weights` say so
    (:func:`hdsim.scheduling.kernels.deferral.hold`). Plans are made anew at each change of the signal, until a job is
    started. A job whose time has come is *released*: it may start behind all other jobs. From `margin` before its
    bound on it is *due*, and has the place in the queue that its submission gives it.

    Attributes:
        deferred: Jobs that may not start now.
        released: Jobs that may start behind all others.
        recalled: Jobs that were released and may not start any more, since the latest call of `note`.

    Args:
        cluster: The cluster.
        signal: ``carbon``, ``price``, ``night`` or ``weekend``.
        longest: Bound on the seconds for which a job is put off, beside its slack.
        margin: Seconds before its bound at which a job is due; at most half of its slack.
        gain: Share by which a later start must be lower; without weights.
        weights: Those of a learned plan, none for the rule.

    Raises:
        ConfigError: The cluster knows no such signal, or its date is not known.
    """

    def __init__(
        self,
        cluster: Cluster,
        signal: str,
        longest: float,
        margin: float,
        gain: float,
        weights: Sequence[float] = (),
    ) -> None:
        self._gain, self._signal = gain, _signal(cluster, signal)
        self._weights = np.array(weights, np.float64)
        slack = slack_of(cluster.workload)
        jobs = cluster.workload
        bound = np.full(len(jobs), np.nan) if slack is None else np.minimum(slack, longest)
        self._due = jobs.submission_time + bound - np.minimum(margin, bound / 2)
        self._flexible = ~np.isnan(bound)
        self._length = np.maximum(np.array(cluster.requested_time), 1.0)
        self._work = np.array(cluster.requested_time) * np.array(cluster.size)
        self.deferred: set[int] = set()
        self.released: set[int] = set()
        self.recalled: list[int] = []
        self._planned_until = -math.inf
        self._called = -math.inf

    def note(self, cluster: Cluster) -> list[int]:
        """Plans the jobs that have come and, at a change of the signal, those that wait; returns those that may start.

        These are what has been submitted without a plan to wait, and what was put off until now.
        """
        now, queue = cluster.now, cluster.queue
        for job in cluster.withdrawn:
            self.deferred.discard(job)
        arrived = list(cluster.submitted)
        new = [job for job in arrived if self._is_flexible(job)]
        self.released = {job for job in self.released if job in queue}.difference(new)
        waiting = sorted(self.deferred | self.released) if now >= self._planned_until else []
        later = self._put_off(cluster, np.array([*waiting, *new], np.int64))
        freed = [job for job in waiting if job in self.deferred and job not in later]
        self.recalled = [job for job in waiting if job in self.released and job in later]
        if now >= self._planned_until:
            # A change may lie beyond what is known now, and be known when a job comes.
            changes = self._signal.changes()
            self._planned_until = float(changes[0]) if len(changes) else self._signal.known_until
        self.deferred.difference_update(freed)
        self.deferred |= later
        self.released.difference_update(later)
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

    def _put_off(self, cluster: Cluster, jobs: Ints) -> set[int]:
        """Those of some jobs that wait for a better start."""
        knots, sums = self._signal.integral()
        if not len(jobs) or len(knots) < 3:
            return set()
        held, steps = np.zeros(len(jobs), np.bool_), len(knots) - 1
        backlog, cores = 0.0, float(cluster.platform.n_cpu_cores)
        if len(self._weights):
            backlog = float(self._work[sorted({*jobs.tolist(), *self.deferred, *self.released})].sum())
        hold(
            knots,
            sums,
            self._due[jobs],
            self._length[jobs],
            self._work[jobs],
            backlog,
            cores,
            float(cluster.n_idle) / cores,
            self._gain,
            self._weights,
            np.empty(steps),
            np.empty(steps),
            np.empty(FEATURES),
            held,
        )
        return set(jobs[held].tolist())


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
