"""A classic agent that puts off jobs with slack to times of lower price or carbon intensity."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hdsim.agents.classic import ClassicAgent
from hdsim.errors import ConfigError, not_one_of
from hdsim.facility.series import WINDOWS
from hdsim.scheduling.deferral import SIGNALS, Deferral, DeferringQueue, read_plan
from hdsim.util.rules import duration, numbers_between, require

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.scheduling.agent import StockRules


class DeferringAgent(ClassicAgent):
    """Puts off the starts of jobs that declare slack, as :class:`hdsim.scheduling.deferral.Deferral` decides.

    All other jobs are served in the order and with the backfilling of a classic agent. Jobs that have been put off
    start behind them, until their bound comes near.

    Args:
        defer: ``carbon`` or ``price`` of the facility, ``night`` (22:00 to 6:00 local time) or ``weekend``.
        longest: Bound on putting a job off, beside its slack: seconds or a duration; None for its slack alone.
        margin: Time before its bound at which a job gets its place in the queue, likewise; at most half of its slack.
        gain: Share by which the mean of a later start must be lower, by the plan ``rule``.
        plan: ``rule``, ``learned`` weights that come with hdsim, or a JSON file with weights.
        job_policy, core_policy, backfill, backfill_order, commit_head, estimates, multifactor: See
            :class:`hdsim.agents.classic.ClassicAgent`; `estimates` is ``requested``.

    Raises:
        ConfigError: A name is unknown or a setting is not allowed.
    """

    def __init__(
        self,
        defer: str = "carbon",
        longest: float | str | None = None,
        margin: float | str = "6h",
        gain: float = 0.05,
        plan: str = "rule",
        job_policy: str = "fcfs",
        core_policy: str = "high_gflops",
        backfill: str | int | Mapping[str, Any] = "easy",
        backfill_order: str | None = None,
        commit_head: bool = False,
        estimates: str = "requested",
        multifactor: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(job_policy, core_policy, backfill, backfill_order, commit_head, estimates, multifactor)
        if defer not in (*SIGNALS, *WINDOWS):
            raise ConfigError(not_one_of(defer, (*SIGNALS, *WINDOWS)), where="agent.defer")
        if estimates != "requested":
            raise ConfigError(f"expected requested with deferral, got {estimates}", where="agent.estimates")
        if backfill == "rlscheduler":
            raise ConfigError(
                "expected another backfilling than rlscheduler, which keeps to submissions", where="agent.backfill"
            )
        require("agent", {"gain": numbers_between(0, 1)}, {"gain": gain})
        self._defer, self._gain = defer, float(gain)
        self._weights = read_plan(plan)
        self._longest = math.inf if longest is None else duration(longest, "agent.longest", zero=True)
        self._margin = duration(margin, "agent.margin", zero=True)
        if self.rules is None:
            raise ConfigError("expected an order that starts jobs, got void", where="agent.job_policy")
        if self.rules.order.network is not None or self.rules.order.stateful:
            raise ConfigError(f"expected an order by a formula, got {job_policy}", where="agent.job_policy")
        self._order = self.rules.order
        # The queue changes with time, even under a static order.
        self.rules = replace(self.rules, order=replace(self._order, dynamic=True))

    def begin(self, cluster: Cluster) -> None:
        """Creates the queues and the plan."""
        if cluster.open_ended:
            raise ConfigError("expected jobs that are all known before time 0", where="agent.defer")
        self._deferral = Deferral(cluster, self._defer, self._longest, self._margin, self._gain, self._weights)
        super().begin(cluster)
        # An agent that takes over in the middle finds jobs in the queue.
        cluster.submitted[:] = list(dict.fromkeys([*cluster.queue, *cluster.submitted]))

    def decide(self, cluster: Cluster) -> None:
        """One scheduling pass of the jobs that may start now."""
        cluster.submitted[:] = self._deferral.note(cluster)
        self._forget(self._deferral.recalled)
        super().decide(cluster)

    def _follow(self, cluster: Cluster, rules: StockRules) -> None:
        super()._follow(cluster, rules)
        plan = self._deferral
        self._queue = self._candidates = DeferringQueue(cluster, self._order, plan)
        if rules.candidates is not None:
            self._candidates = DeferringQueue(cluster, rules.candidates, plan)
