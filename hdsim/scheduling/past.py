"""The past of a cluster, and scenarios that are drawn from it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.job_state import FinalState
from hdsim.scheduling.search.scenarios import Future, Seen, draw_future
from hdsim.workload.model import COLUMNS

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.workload.model import Workload

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Jobs that have been seen before arrivals are drawn: fewer say nothing of a distribution.
ENOUGH = 16


class Past:
    """The jobs that have come to a cluster, and run times of those that have ended.

    An agent that takes over has the past of the cluster, which is empty at the begin of a replay.

    Attributes:
        last: The job that came last, -1 if there is none; one that is released after it was held comes then.

    Args:
        cluster: The cluster.
        runtimes: Run times are noted; otherwise all jobs are expected to last as long as requested.
    """

    def __init__(self, cluster: Cluster, runtimes: bool = True) -> None:
        self._runtimes, self.last = runtimes, -1
        self._known = set[int]()
        self._jobs, self._place = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._ended, self._requested, self._factor, self._factor_of = 0, *np.zeros((3, 0))
        came = [job for job, state in enumerate(cluster.state) if state != FinalState.NOT_SUBMITTED]
        self._add(cluster, came, came)

    @property
    def seen(self) -> Seen:
        """The part of it that scenarios are drawn from."""
        ended = slice(self._ended)
        return Seen(
            self._jobs[: len(self._known)], self._requested[ended], self._factor[ended], self._factor_of, self._place
        )

    def look(self, cluster: Cluster) -> None:
        """Adds the present instant, once."""
        self._add(cluster, cluster.submitted, cluster.ended)

    def _add(self, cluster: Cluster, came: Iterable[int], ended: Iterable[int]) -> None:
        if more := len(cluster.workload) - len(self._place):
            self._jobs, self._place = (
                np.append(self._jobs, np.zeros(more, np.int64)),
                np.append(self._place, [-1] * more),
            )
            self._factor_of = np.append(self._factor_of, [np.nan] * more)
        dates = cluster.workload.submission_time
        for job in came:
            if job in self._known:
                continue
            # Jobs that were held come late.
            place = count = len(self._known)
            while place and dates[self._jobs[place - 1]] > dates[job]:
                place -= 1
            self._jobs[place + 1 : count + 1] = self._jobs[place:count]
            self._jobs[place] = self.last = job
            self._known.add(job)
        for job in ended if self._runtimes else ():
            seconds, expected = cluster.finish_time[job] - cluster.starting_time[job], cluster.requested_time[job]
            # A job that runs, or has been interrupted, has no finish.
            if seconds > 0 and expected > 0:
                self._note(expected, seconds / expected)
                self._factor_of[job] = seconds / expected

    def _note(self, requested: float, factor: float) -> None:
        """Adds a job that has ended."""
        count = self._ended
        if count == len(self._requested):
            self._requested, self._factor = (
                np.resize(each, 2 * count + 64) for each in (self._requested, self._factor)
            )
        place = self._requested[:count].searchsorted(requested, side="right")
        for column, value in ((self._requested, requested), (self._factor, factor)):
            column[place + 1 : count + 1] = column[place:count]
            column[place] = value
        self._ended = count + 1

    def draw(
        self, cluster: Cluster, running: Ints, started: Floats, queued: Ints, scenarios: int, arrivals: int
    ) -> Future:
        """Draws scenarios with the generator of the cluster.

        Args:
            cluster: The cluster.
            running: (R,) running jobs.
            started: (R,) their starts in seconds.
            queued: (Q,) queued jobs.
            scenarios: Number of scenarios.
            arrivals: Arrivals of each, unless too few jobs have been seen.
        """
        rng, jobs, seen = cluster.rng, cluster.workload, self.seen
        present = np.concatenate([running, queued])
        worked = np.zeros(len(present))
        worked[: len(running)] = cluster.now - started
        shape = scenarios, len(present)
        uniform = rng.random(shape) if self._ended else np.empty(shape)
        arrivals = arrivals if len(seen.jobs) >= ENOUGH else 0
        first = rng.integers(len(seen.jobs) - 1, size=scenarios) if arrivals else np.zeros(scenarios, np.int64)
        return draw_future(uniform, first, arrivals, seen, present, worked, jobs.submission_time, jobs.requested_time)


class Arrivals:
    """Columns of jobs that are like earlier ones, for orders that read some of them.

    Args:
        jobs: The workload.
        drawn: Earlier jobs.
        **columns: Columns that differ.
    """

    def __init__(self, jobs: Workload, drawn: Ints, **columns: Floats) -> None:
        self._jobs, self._drawn = jobs, drawn
        vars(self).update(columns)

    def __getattr__(self, column: str) -> Any:
        return getattr(self._jobs, column)[self._drawn]

    def columns(self) -> dict[str, Any]:
        """Returns all columns and `further`, as :func:`dataclasses.replace` takes them."""
        own = {name: column[self._drawn] for name, column in self._jobs.further.items()}
        return {**{column: getattr(self, column) for column in COLUMNS}, "further": own}


def arrivals_of(cluster: Cluster, future: Future, scenarios: int | slice) -> Any:
    """Returns the arrivals of scenarios as columns of a workload."""
    jobs, dates = cluster.workload, cluster.now + future.offset[scenarios]
    since = float(jobs.original_submission_time[0] - jobs.submission_time[0])
    return Arrivals(
        jobs,
        future.drawn[scenarios],
        submission_time=dates,
        original_submission_time=dates + since,
        runtime=future.runtime[scenarios],
    )
