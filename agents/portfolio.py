"""A portfolio of orders: the queue is served in the one that would have done best in the past week."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.agents.classic import ClassicAgent
from hdsim.cluster.state import FinalState
from hdsim.errors import ConfigError
from hdsim.results.metrics import direction
from hdsim.scheduling.orders import job_order
from hdsim.simulation.simulation import simulate
from hdsim.workload.model import COLUMNS

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.workload.model import Workload

#: Jobs of a window below which the order is kept: fewer say little.
ENOUGH = 16
#: Seconds between the start of the jobs that run at the beginning of a window and the submission of all others.
TICK = 1.0


class Portfolio(ClassicAgent):
    """Serves the queue in that order, of several, that would have done best in a window of the past.

    At the first pass behind every `period` each order replays the jobs that were waiting, running or submitted within
    the last `window` seconds. Those that ran at its beginning run first. A run time is that of an ended job, of a
    running one the requested time or the time it has run if that is longer, of a queued one the requested time.
    Nothing of the future is known, and no contention, messages or failures.

    Args:
        candidates: The orders (see :mod:`hdsim.scheduling.orders`); the first one serves the first period.
        objective: Metric of a replay that is to be good (see ``hdsim show metrics``).
        period: Seconds between two choices.
        window: Seconds of the past that a choice looks at.
        core_policy, backfill, backfill_order, commit_head, estimates, multifactor: See
            :class:`hdsim.agents.classic.ClassicAgent`.

    Raises:
        ConfigError: A name is unknown, or a number is not above 0.
    """

    def __init__(
        self,
        candidates: Sequence[str] = ("fcfs", "sjf", "saf", "f1", "f2", "f3", "f4", "wfp3"),
        objective: str = "mean_bounded_slowdown",
        period: float = 604_800.0,
        window: float = 604_800.0,
        core_policy: str = "high_gflops",
        backfill: str = "none",
        backfill_order: str | None = None,
        commit_head: bool = False,
        estimates: str = "requested",
        multifactor: Mapping[str, Any] | None = None,
    ) -> None:
        if isinstance(candidates, str) or not candidates:
            raise ConfigError(f"portfolio: expected a list of orders, got {candidates!r}", where="agent.candidates")
        for key, seconds in (("period", period), ("window", window)):
            if not seconds > 0:
                raise ConfigError(f"portfolio: expected seconds above 0, got {seconds}", where=f"agent.{key}")
        if not direction(objective):
            raise ConfigError(
                f"portfolio: expected a metric that is better high or low, got '{objective}'", where="agent.objective"
            )
        self._orders = {name: job_order(name, multifactor) for name in dict.fromkeys(candidates)}
        self._settings: dict[str, Any] = {
            "core_policy": core_policy,
            "backfill": backfill,
            "backfill_order": backfill_order,
            "commit_head": commit_head,
            "estimates": estimates,
            "multifactor": multifactor,
        }
        super().__init__(job_policy=next(iter(self._orders)), **self._settings)
        self._objective, self._period, self._window = objective, period, window

    def begin(self, cluster: Cluster) -> None:
        """Creates the queues."""
        super().begin(cluster)
        self._due = cluster.now + self._period

    def decide(self, cluster: Cluster) -> None:
        """One scheduling pass, in another order if it is time and that does better."""
        if cluster.now >= self._due:
            self._due += self._period * ((cluster.now - self._due) // self._period + 1)
            self._choose(cluster)
        super().decide(cluster)

    def _choose(self, cluster: Cluster) -> None:
        """Changes to the order of the best replay; of several, or of too few jobs, the present one stays."""
        past, rules = self._past(cluster), self.rules
        assert rules is not None
        if past is None:
            return
        costs = {name: self._cost(cluster, past, name) for name in self._orders}
        best = min(costs, key=lambda name: (costs[name], name != rules.order.name))
        if best == rules.order.name:
            return
        self.rules = replace(rules, order=self._orders[best])
        self._follow(cluster, self.rules)
        # As under an agent that takes over, all queued jobs count as submitted now.
        cluster.submitted[:] = cluster.queue

    def _cost(self, cluster: Cluster, past: Workload, order: str) -> float:
        found = simulate(cluster.platform, past, {**self._settings, "job_policy": order}).metrics[self._objective]
        return math.inf if math.isnan(found) else -direction(self._objective) * found

    def _past(self, cluster: Cluster) -> Workload | None:
        """The jobs of the window, which begins at 0 s; None if they are too few."""
        now, since, jobs = cluster.now, max(cluster.now - self._window, 0.0), cluster.workload
        begin, end, state = map(np.array, (cluster.starting_time, cluster.finish_time, cluster.state))
        known = ~np.isin(state, (FinalState.NOT_SUBMITTED, FinalState.REJECTED)) & ~(end <= since)
        rows = np.flatnonzero(known)
        if len(rows) < ENOUGH:
            return None
        # Those that ran come first: on the empty platform they start at once.
        ran = begin[rows] < since
        rows = rows[np.argsort(~ran, kind="stable")]
        ran.sort()
        begin, end, ran = begin[rows], end[rows], ran[::-1]
        placed = cluster.placements
        speed = np.array([cluster.speed(job, placed[job]) if job in placed else 1.0 for job in rows.tolist()])
        # Reference seconds of work before the window and until now, 0 for jobs that wait.
        before = np.nan_to_num(np.maximum(since - begin, 0.0) * speed)
        worked = np.nan_to_num((np.fmin(end, now) - begin) * speed)
        requested = jobs.requested_time[rows]
        runtime = np.where(np.isnan(end), np.maximum(requested, worked), worked) - before
        columns = {key: getattr(jobs, key)[rows] for key in COLUMNS}
        columns |= {"program": np.full(len(rows), None), "gang": np.full(len(rows), None), "runtime": runtime}
        columns["requested_time"] = np.where(ran, np.maximum(requested - before, runtime), requested)
        columns["submission_time"] = np.where(ran, 0.0, np.maximum(jobs.submission_time[rows] - since, 0.0) + TICK)
        return replace(jobs, **columns)
