"""Classic policies: a job order, a core policy, and backfilling.

A pass starts jobs from the head of the queue until one does not fit; then backfilling, if any, starts others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hdsim.cluster.policies import CORE_POLICIES
from hdsim.cluster.selection import OWN_CORE_POLICIES
from hdsim.errors import ConfigError, not_one_of
from hdsim.scheduling.agent import Agent, StockRules
from hdsim.scheduling.backfill import find_backfill
from hdsim.scheduling.estimates import ESTIMATES, make_estimates
from hdsim.scheduling.orders import job_order
from hdsim.scheduling.queue import make_queue
from hdsim.util.rules import FLAG, NULL, TEXT, require

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster


class ClassicAgent(Agent):
    """A policy pair, with or without backfilling.

    Args:
        job_policy: Order of the queue (see :mod:`hdsim.scheduling.orders`), a Python file with one (see
            :data:`hdsim.scheduling.orders.OWN_ORDERS`), or ``void``, which starts nothing.
        core_policy: Which idle cores a job gets (see :mod:`hdsim.cluster.selection`), or a Python file with a function
            of the platform that scores processors, highest first.
        backfill: ``none``, ``easy``, ``conservative``, ``rlscheduler``, ``greedy``, ``hybrid``, a number of
            reservations or an algorithm of one's own (see :func:`hdsim.scheduling.backfill.find_backfill`).
        backfill_order: Order in which candidates are tried; the job policy's own by default.
        commit_head: Once a job is the head it stays the head until it starts (RLScheduler's protocol).
        estimates: Run times that orders and backfilling take: ``requested``, ``actual`` or ``last_two`` (see
            :mod:`hdsim.scheduling.estimates`). The kill limit stays what the user requested.
        multifactor: Settings of the order ``multifactor`` (see :mod:`hdsim.scheduling.multifactor`).

    Raises:
        ConfigError: A name is unknown.
    """

    fixed_policy = True
    #: None for ``void``.
    rules: StockRules | None = None

    def __init__(
        self,
        job_policy: str = "first",
        core_policy: str = "high_gflops",
        backfill: str | int | Mapping[str, Any] = "none",
        backfill_order: str | None = None,
        commit_head: bool = False,
        estimates: str = "requested",
        multifactor: Mapping[str, Any] | None = None,
    ) -> None:
        if str(core_policy) not in CORE_POLICIES:
            OWN_CORE_POLICIES.find(core_policy)
        if str(estimates) not in ESTIMATES:
            raise ConfigError(not_one_of(estimates, ESTIMATES), where="agent.estimates")
        require("agent", {"backfill_order": TEXT | NULL, "commit_head": FLAG}, locals())
        self.core_policy = core_policy
        name, depth, self._make_backfill = find_backfill(backfill)
        candidates = job_order(backfill_order, multifactor) if backfill_order else None
        if job_policy != "void":
            order = job_order(job_policy, multifactor).under(name, commit_head)
            candidates = candidates and candidates.under(name, commit_head)
            self.rules = StockRules(order, candidates, name, commit_head, estimates, depth)

    def begin(self, cluster: Cluster) -> None:
        """Creates the queues."""
        rules = self.rules
        if rules is None:
            return
        self._estimates = make_estimates(rules.estimates, cluster)
        self._follow(cluster, rules)

    def _follow(self, cluster: Cluster, rules: StockRules) -> None:
        """Creates the queues for some rules."""
        # Predictions, and times at a frequency, are the cluster's.
        predicted = self._estimates is not None or cluster.frequencies is not None
        self._queue = self._candidates = make_queue(cluster, rules.order, predicted=predicted)
        if rules.candidates:
            self._candidates = make_queue(cluster, rules.candidates, predicted=predicted)
        self._backfill = self._make_backfill(cluster)
        self._head: int | None = None

    def decide(self, cluster: Cluster) -> None:
        """One scheduling pass."""
        rules = self.rules
        if rules is None:
            return
        queue, candidates, backfill = self._queue, self._candidates, self._backfill
        if self._estimates is not None:
            self._estimates.note(cluster)
        queue.add(cluster.submitted)
        if candidates is not queue:
            candidates.add(cluster.submitted)
        if cluster.withdrawn:
            self._forget(cluster.withdrawn)
        if backfill is not None:
            backfill.ended(cluster)
        if not cluster.queue:
            return
        # A full cluster needs no pass, except to commit to the next head, and to reserve for it beside slowed jobs;
        # without core ids a job may request no CPU.
        if not (cluster.n_idle or rules.commit_head or cluster.has_slowed or not cluster.has_core_ids):
            return
        if rules.order.dynamic:
            queue.refresh(cluster)
        if candidates is not queue:
            candidates.refresh(cluster)
        head = queue.head() if backfill is not None and backfill.serves_head else self._serve(cluster, rules)
        if head is not None and backfill is not None:
            backfill.backfill(cluster, queue, candidates, head)

    def _forget(self, jobs: list[int]) -> None:
        """Removes jobs from the queues."""
        for waiting in {self._queue, self._candidates}:
            waiting.drop(jobs)
        if self._head in jobs:
            self._head = None

    def _serve(self, cluster: Cluster, rules: StockRules) -> int | None:
        """Starts jobs in order until one does not fit; returns that job."""
        queue, backfill, pick = self._queue, self._backfill, cluster.pick
        while True:
            job = self._next(cluster) if self._head is None else self._head
            if job is None:
                return None
            placement = pick(job)
            if placement is None:
                if rules.commit_head:
                    self._head = job
                return job
            self._head = None
            cluster.start(job, placement)
            queue.remove(job)
            if self._candidates is not queue:
                self._candidates.remove(job)
            if backfill is not None:
                backfill.started(cluster, job, placement)
            if rules.order.after_start:
                queue.refresh(cluster)

    def _next(self, cluster: Cluster) -> int | None:
        """Returns the next head, None if the queue is empty."""
        return self._queue.head()
