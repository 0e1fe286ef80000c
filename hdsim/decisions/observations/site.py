"""Observations of the pending jobs of a site: partitions, QOS, shares, limits and reasons."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hdsim.decisions.base import Array, Observer, positive_int
from hdsim.decisions.observations.jobs import scaled_time
from hdsim.util.arrays import Floats, Ints

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.decisions.wait_queue import WaitQueue
    from hdsim.platform.model import Platform

#: Groups of reasons.
REASONS = ("resources", "priority", "licenses", "not_available", "reservation", "limit")
#: Columns of a row of `site_jobs`.
FEATURES = (
    *("waited", "time_limit", "cpus", "nodes", "memory", "gpus", "priority", "age", "fair_share", "qos"),
    *("partition_nodes", "partition_tier", "partition_idle", "user_cpus", "may_start", *REASONS, "present"),
)
_DAY, _WEEK = 86_400.0, 7 * 86_400.0
#: Shares of sorted values that are shown of a queue.
_QUANTILES = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
#: Numbers of `site_queue`.
_NUMBERS = 37
#: Number of jobs at 1.
_MANY = 1000


class _SiteObserver(Observer):
    """Columns of jobs that both observations have."""

    needs_site = True

    def begin(self, cluster: Cluster, wait_queue: WaitQueue) -> None:
        from hdsim.site.platform import nodes_of

        assert wait_queue.site is not None
        self._cluster, self._site = cluster, wait_queue.site
        scheduler = self._site.scheduler
        self._scheduler, site, asked = scheduler, scheduler.site, scheduler.jobs.demands
        nodes = scheduler.nodes
        total = max(int(nodes.cpus.sum()), 1)
        self._total = total
        first = np.array([each[0] for each in scheduler.jobs.partitions], np.int64)
        self._partition = first
        memory = asked.memory_per_node * asked.least + asked.memory_per_cpu * asked.cpus
        table = np.zeros((len(scheduler.jobs), len(FEATURES)))
        table[:, 1] = scaled_time(asked.limit)
        table[:, 2] = asked.cpus / total
        table[:, 3] = asked.least / len(nodes.cpus)
        table[:, 4] = memory / max(sum(kind.memory for _, kind in nodes_of(site)), 1.0)
        table[:, 5] = asked.gpus * asked.least / max(int(nodes.gpus.sum()), 1)
        qos = np.append([float(one.priority) for one in site.qos.values()], 0.0)
        table[:, 9] = (qos / max(float(qos.max()), 1.0))[scheduler.jobs.qos]
        tier = np.array([float(one.priority_tier) for one in site.partitions.values()])
        table[:, 10] = scheduler.members.mean(axis=1)[first]
        table[:, 11] = (tier / max(float(tier.max()), 1.0))[first]
        table[:, -1] = 1.0
        self._table = np.clip(table, 0.0, 1.0)
        self._owned = scheduler.members.astype(np.float64) @ nodes.cpus

    def _rows(self, jobs: Ints) -> Floats:
        """(Q, F) rows of pending jobs."""
        scheduler, site = self._scheduler, self._site
        now = site.begin + self._cluster.now
        rows = self._table[jobs]
        rows[:, 0] = scaled_time(np.maximum(now - scheduler.jobs.submitted[jobs], 0.0))
        own = scheduler.priorities_of_site(jobs, self._partition[jobs])
        finite = np.isfinite(own)
        least = float(own.min(where=finite, initial=math.inf))
        spread = float(own.max(where=finite, initial=-math.inf)) - least if finite.any() else 0.0
        rows[:, 6] = np.where(finite, (own - least) / spread, 0.0) if spread > 0 else 1.0
        if scheduler.multifactor is not None:
            rows[:, 7], rows[:, 8] = scheduler.multifactor.unweighted(jobs)
        idle = scheduler.members.astype(np.float64) @ scheduler.usage.cpus
        rows[:, 12] = (idle / np.maximum(self._owned, 1.0))[self._partition[jobs]]
        rows[:, 13] = self._cpus_of_users()[scheduler.jobs.user[jobs]]
        for place, codes in enumerate(_by_group(scheduler.codes_of(jobs)), FEATURES.index(REASONS[0])):
            rows[:, place] = codes
        return rows

    def _cpus_of_users(self) -> Floats:
        """Shares of the CPUs that the running jobs of each user have."""
        scheduler = self._scheduler
        running = np.fromiter(self._cluster.running, np.int64, len(self._cluster.running))
        users = scheduler.jobs.user
        held = np.bincount(users[running], scheduler.jobs.demands.cpus[running], int(users.max(initial=0)) + 1)
        return np.minimum(held / self._total, 1.0)


class SiteJobs(_SiteObserver):
    """(queue_size, 22): the jobs that `site_job` offers, one per row; unused rows are zero.

    With another action they are the first pending jobs in the order of scheduling, and none counts as startable.

    Columns: time since the submission and time limit, log(1 + s) / log(1 + one week), at most 1; CPUs, nodes, memory
    and GPUs as shares of the machine's; priority from the least to the greatest of the rows; the factors of age and
    fair share; priority of the QOS relative to the greatest; nodes of the partition as a share of all, its tier
    relative to the greatest, its idle CPUs as a share of its own; CPUs of the running jobs of the same user as a share
    of all; may start now (0 or 1); then 1 for the reason why it has not started: resources, priority, licences, nodes
    not available, reservation, a limit; 1 for a job. Of several partitions of a job the first one counts.

    Attributes:
        features: Names of the columns.

    Args:
        queue_size: Rows.
    """

    features: ClassVar[tuple[str, ...]] = FEATURES

    def __init__(self, queue_size: int = 128) -> None:
        self.queue_size = positive_int("queue_size", queue_size)

    def arrays(self, platform: Platform) -> Array:
        return Array((self.queue_size, len(FEATURES)))

    def observe(self) -> NDArray[np.float32]:
        seen = np.zeros((self.queue_size, len(FEATURES)), np.float32)
        if self._site.offered is None:
            jobs = self._scheduler.in_order(self._site.begin + self._cluster.now)[: self.queue_size]
            may_start = np.zeros(len(jobs), np.bool_)
        else:
            jobs, may_start = self._site.offered
        seen[: len(jobs)] = self._rows(jobs)
        place = FEATURES.index("may_start")
        seen[: len(jobs), place] = may_start
        # Reasons of an earlier pass do not count for a job that may start.
        seen[: len(jobs), place + 1 : -1] *= ~may_start[:, None]
        return np.clip(seen, 0.0, 1.0)


class SiteQueue(_SiteObserver):
    """(37,): the queue and the machine of a site.

    Pending and running jobs, log(1 + n) / log(1001), at most 1; idle CPUs, GPUs and nodes as shares; the CPUs that
    pending jobs ask for, as a share of ten machines; the shares of pending jobs by reason, as of `site_jobs`; minimum,
    quartiles and maximum over the pending jobs of the time since submission, the time limit, the CPUs and the factor
    of fair share; sine and cosine of the time of the day and of the week (UTC), on a scale from 0 to 1, and 1 if jobs
    are pending.
    """

    def arrays(self, platform: Platform) -> Array:
        return Array((_NUMBERS,))

    def observe(self) -> NDArray[np.float32]:
        scheduler, cluster = self._scheduler, self._cluster
        jobs = np.fromiter(scheduler.pending, np.int64, len(scheduler.pending))
        usage, nodes = scheduler.usage, scheduler.nodes
        seen = np.zeros(_NUMBERS, np.float32)
        seen[0], seen[1] = (min(math.log1p(n) / math.log1p(_MANY), 1.0) for n in (len(jobs), len(cluster.running)))
        seen[2] = usage.cpus.sum() / self._total
        seen[3] = usage.gpus.sum() / max(int(nodes.gpus.sum()), 1)
        seen[4] = np.mean(usage.jobs == 0)
        time = self._site.begin + cluster.now
        angles = 2.0 * np.pi * np.array([time % _DAY / _DAY, time % _WEEK / _WEEK])
        seen[32:36] = 0.5 + 0.5 * np.concatenate([np.sin(angles), np.cos(angles)])
        if len(jobs):
            rows = self._rows(jobs)
            seen[5] = min(scheduler.jobs.demands.cpus[jobs].sum() / (10 * self._total), 1.0)
            first = FEATURES.index(REASONS[0])
            seen[6:12] = rows[:, first : first + len(REASONS)].mean(axis=0)
            columns = [FEATURES.index(name) for name in ("waited", "time_limit", "cpus", "fair_share")]
            seen[12:32] = np.quantile(rows[:, columns], _QUANTILES, axis=0).T.ravel()
            seen[36] = 1.0
        return np.clip(seen, 0.0, 1.0)


def _by_group(codes: Ints) -> list[Any]:
    """Whether each code of a reason is of each group."""
    limit = len(REASONS)
    return [*(codes == code for code in range(1, limit)), codes >= limit]
