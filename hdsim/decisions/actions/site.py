"""Actions in the passes of a site's scheduler: a job to start, or priorities to use, under the site's rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from hdsim.decisions.base import Action, Mask, one_of, positive_int
from hdsim.errors import ConfigError
from hdsim.scheduling.slurm import SlurmScheduling
from hdsim.util.arrays import Floats, Ints
from hdsim.util.rules import POSITIVE

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.decisions.wait_queue import WaitQueue
    from hdsim.platform.model import Platform

#: Rankings that multiply a factor of the site's multifactor priority.
FACTORS = ("age", "association", "fair_share", "job_size", "partition", "qos")
#: Rankings that add to priorities, with a score from 0 to 1 for time limits and CPUs relative to the largest ones.
_ADDED: dict[str, Callable[[Floats, Floats], Floats]] = {
    "short": lambda limit, cpus: 1.0 - limit,
    "small": lambda limit, cpus: 1.0 - cpus,
    "small_area": lambda limit, cpus: 1.0 - limit * cpus,
    "large": lambda limit, cpus: cpus,
}
RANKINGS = ("site", *FACTORS, *_ADDED)


class UnderSite(Action):
    """Decisions within the passes of slurmctld for the jobs of a site.

    A job is pending when it is eligible: dependencies, begin times and limits of submitted jobs come before decisions.
    """

    needs_site = True
    _own_passes = False

    def begin(self, cluster: Cluster, wait_queue: WaitQueue) -> None:
        """Reads the site of the jobs.

        Raises:
            ConfigError: The jobs are those of no site, the platform is not that of the site, or it has rules that are
                not simulated.
        """
        site = cluster.workload.site
        if site is None:
            raise ConfigError("expected jobs of a site: site=FOLDER of 'hdsim site import'", where="env.action")
        self._cluster, self._wait_queue = cluster, wait_queue
        self._site = wait_queue.site = SlurmScheduling(site, cluster, own_passes=self._own_passes)

    def on_instant(self) -> None:
        known = len(self._cluster.rejected)
        self._site.note(self._cluster)
        for job in self._cluster.rejected[known:]:
            self._wait_queue.remove(job)


class SiteJob(UnderSite):
    """Starts one of the pending jobs of a site; the site's main loop and sched/backfill make no passes.

    A decision is due when slurmctld's main loop would make a pass and a job may start. The jobs to choose from are
    those that may start now, in the order of the site's priorities, then the others. Nothing is reserved for jobs that
    wait.

    Args:
        queue_size: Number of jobs to choose from.
        void: A last action leaves the others for the next pass.
    """

    _own_passes = True

    def __init__(self, queue_size: int = 128, void: bool = False) -> None:
        self.queue_size = positive_int("queue_size", queue_size)
        self.has_void = void

    def size(self, platform: Platform) -> int:
        return self.queue_size + self.has_void

    def begin(self, cluster: Cluster, wait_queue: WaitQueue) -> None:
        """See :meth:`UnderSite.begin`; ConfigError also for a site whose jobs preempt others."""
        super().begin(cluster, wait_queue)
        if self._site.scheduler.preemption.enabled:
            raise ConfigError(
                f"expected a site without preemption, got PreemptType={cluster.workload.site.preemption.type}; "
                "env.action=site_priority leaves that to slurmctld",
                where="env.action",
            )

    def on_instant(self) -> None:
        super().on_instant()
        self._open = self._site.opens(self._cluster)

    def pending(self) -> bool:
        site, cluster = self._site, self._cluster
        if self._open:
            jobs, may_start = site.scheduler.startable(site.begin + cluster.now)
            order = np.argsort(~may_start, kind="stable")[: self.queue_size]
            site.offered = jobs[order], may_start[order]
            self._open = bool(may_start.any())
        if not self._open:
            site.offered = None
            site.wake(cluster)
        return self._open

    def mask(self) -> Mask:
        mask = np.zeros(self.queue_size + self.has_void, np.bool_)
        if self._site.offered is not None:
            jobs, may_start = self._site.offered
            mask[: len(jobs)] = may_start
            if self.has_void:
                mask[-1] = self._site.awaits(self._cluster)
        return mask

    def act(self, action: int) -> None:
        assert self._site.offered is not None
        if action == self.queue_size:
            self._open = False
            return
        job = int(self._site.offered[0][action])
        self._site.start(self._cluster, job)
        self._wait_queue.remove(job)


class SitePriority(UnderSite):
    """Chooses how the priorities of a site's pending jobs are computed; slurmctld's passes then start jobs by them.

    ``site`` keeps the site's priorities. Another ranking adds to them, with the difference D between the greatest and
    the least priority: a factor of the multifactor plugin is counted `factor` times; ``short``, ``small``,
    ``small_area`` and ``large`` add up to `factor` times D for short time limits, few CPUs, a small product of both, or
    many CPUs. It holds until the next decision.

    Attributes:
        names: Name of each action.

    Args:
        rankings: The rankings to choose from.
        factor: Strength of rankings other than ``site``.
        every: Seconds between two decisions, at least; they are due when slurmctld makes a pass.
    """

    def __init__(self, rankings: Iterable[str] = RANKINGS, factor: float = 10.0, every: float = 300.0) -> None:
        self.names = [one_of("rankings", name, RANKINGS) for name in rankings]
        if not self.names:
            raise ConfigError("expected at least one ranking, got none", where="env.rankings")
        for key, value in (("factor", factor), ("every", every)):
            if (fault := POSITIVE.fault(value, f"env.{key}")) is not None:
                raise fault
        self._factor, self._every = float(factor), float(every)

    def size(self, platform: Platform) -> int:
        return len(self.names)

    def begin(self, cluster: Cluster, wait_queue: WaitQueue) -> None:
        super().begin(cluster, wait_queue)
        scheduler = self._site.scheduler
        asked = scheduler.jobs.demands
        self._limit, self._cpus = (_relative(column) for column in (asked.limit, asked.cpus))
        self._ranking, self._next, self._mask = "site", -np.inf, np.ones(len(self.names), np.bool_)
        for place, name in enumerate(self.names):
            # A factor without weight changes nothing.
            weight = getattr(scheduler.site.priority, f"weight_{name}", 0.0) if scheduler.multifactor else 0.0
            self._mask[place] = name not in FACTORS or weight > 0
        if not self._mask.any():
            raise ConfigError(
                f"expected a ranking whose factor has a weight at the site, got {', '.join(self.names)}",
                where="env.rankings",
            )
        scheduler.priorities = self._priorities

    def on_instant(self) -> None:
        super().on_instant()
        self._decided = False

    def pending(self) -> bool:
        site, cluster = self._site, self._cluster
        if not self._decided and cluster.now >= self._next and site.is_due(cluster):
            return True
        started = len(cluster.started)
        site.run_passes(cluster)
        for job in cluster.started[started:]:
            self._wait_queue.remove(job)
        site.wake(cluster)
        return False

    def mask(self) -> Mask:
        return self._mask

    def act(self, action: int) -> None:
        self._decided, self._next = True, self._cluster.now + self._every
        if self.names[action] != self._ranking:
            self._ranking = self.names[action]
            self._site.scheduler.reorder()

    def _priorities(self, jobs: Ints, partitions: Ints) -> Floats:
        scheduler, ranking = self._site.scheduler, self._ranking
        own = scheduler.priorities_of_site(jobs, partitions)
        if ranking == "site" or not len(jobs):
            return own
        if ranking in FACTORS:
            assert scheduler.multifactor is not None
            return own + (self._factor - 1.0) * getattr(scheduler.multifactor.factors(jobs, partitions), ranking)
        finite = own[np.isfinite(own)]
        spread = float(np.ptp(finite)) if len(finite) else 0.0
        return own + self._factor * max(spread, 1.0) * _ADDED[ranking](self._limit[jobs], self._cpus[jobs])


def _relative(values: Ints | Floats) -> Floats:
    """Returns values on a logarithmic scale from 0 to 1, the largest one at 1."""
    scaled: Floats = np.log1p(values.astype(np.float64))
    return scaled / max(float(scaled.max(initial=0.0)), 1.0)
