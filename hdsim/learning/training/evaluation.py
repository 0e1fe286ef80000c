"""Evaluation of agents: a metric of replays of held-out windows, and classic policies as baselines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.cluster.policies import CORE_POLICIES
from hdsim.decisions.actions.policy_pair import VOID, PolicyPair
from hdsim.decisions.kinds import ACTIONS
from hdsim.errors import ConfigError, not_one_of
from hdsim.results.metrics import direction, full
from hdsim.util.arrays import Floats

if TYPE_CHECKING:
    from hdsim.decisions import DecisionProblem

#: Job orders that are baselines of an agent that picks jobs.
ORDERS = ("fcfs", "sjf", "smallest", "saf", "wfp3", "unicef", "f1", "f2", "f3", "f4")


@dataclass(frozen=True)
class Evaluation:
    """Replays windows and reads off a metric."""

    metric: str  # name of a metric
    replay: Callable[[Any, Any], Any]  # replays a window under an agent, its second argument; the result has `metrics`

    def replays(self, agent: Any, windows: Sequence[Any]) -> list[Any]:
        """Replays every window under an agent."""
        return [self.replay(window, agent) for window in windows]

    def scores(self, agent: Any, windows: Sequence[Any]) -> Floats:
        """(W,) the metric of every window under an agent."""
        return self.read(self.replays(agent, windows))

    def read(self, replays: Sequence[Any]) -> Floats:
        """(W,) the metric of every replay; one that takes a pass over the schedule is computed if it is asked for.

        Raises:
            ConfigError: The replays have no such metric, or neither its high nor its low values are better.
        """
        found = [result.metrics if self.metric in result.metrics else full(result) for result in replays]
        for metrics in found:
            if self.metric not in metrics:
                raise ConfigError(not_one_of(self.metric, metrics), where="train.metric")
        if not direction(self.metric):
            raise ConfigError(
                f"expected a metric whose high or low values are better, got '{self.metric}'", where="train.metric"
            )
        return np.array([metrics[self.metric] for metrics in found])

    def better(self, score: float, other: float) -> bool:
        """Whether a score is better than another; NaN never is."""
        return (score - other) * direction(self.metric) > 0

    def best(self, scores: Mapping[str, float]) -> str:
        """Name of the best score, the first of equals."""
        best, *others = scores
        for name in others:
            if self.better(scores[name], scores[best]):
                best = name
        return best


def site_baselines(site: Any) -> dict[str, Any]:
    """The scheduler of a site with its rules (:class:`hdsim.site.model.Site`), by name."""
    return {"slurm": {"_target_": "hdsim.agents.slurm.SlurmAgent", "site": site}}


def classic_baselines(problem: DecisionProblem) -> dict[str, Any]:
    """Classic policies with the same kind of decisions as the agent of a problem, by name.

    For policy pairs, the pairs among its actions; for an agent that picks jobs, job orders with its core policy,
    commitment and backfilling; for one that picks nodes, core policies with its job order, greedy if it skips jobs that
    do not fit; for one that backfills, orders of candidates under its base order; for one that accepts jobs, its base
    policy; for an action of a user, job orders with its core policy.
    """
    settings = problem.settings
    if isinstance(problem.action, PolicyPair):
        return {name: name for name in problem.action.names if name != VOID}
    action = settings["action"]
    if action not in ACTIONS.bundled:
        return {order: {"job_policy": order, "core_policy": problem.core_policy} for order in ORDERS}
    if action == "job":
        fixed = {
            "core_policy": problem.core_policy,
            "commit_head": settings.get("commit", False),
            "backfill": settings.get("backfill", "none"),
        }
        return {order: {"job_policy": order, **fixed} for order in ORDERS}
    order = settings.get("job_policy", "first")
    if action == "backfill":
        fixed = {"job_policy": order, "core_policy": problem.core_policy}
        fixed["backfill"] = "easy" if settings.get("reserve", True) else "greedy"
        candidates = () if fixed["backfill"] == "greedy" else ORDERS
        return {fixed["backfill"]: fixed} | {f"easy-{by}": {**fixed, "backfill_order": by} for by in candidates}
    if action == "accept":
        base = {"job_policy": order, "core_policy": problem.core_policy, "backfill": settings.get("backfill", "none")}
        return {order: base}
    fixed = {"job_policy": order, "backfill": "greedy" if settings.get("skip_blocked", False) else "none"}
    return {f"{order}-{core}": {"core_policy": core, **fixed} for core in CORE_POLICIES if core != "random"}
