"""A portfolio of schedulers: the queue is served by the one that does best in replays of the past and of scenarios."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.agents.classic import ClassicAgent
from hdsim.cluster.frequencies import refuse_frequencies
from hdsim.cluster.node_states import refuse_sleep
from hdsim.cluster.power_budget import refuse_hard_caps
from hdsim.cluster.state import FinalState
from hdsim.errors import ConfigError
from hdsim.results.metrics import direction
from hdsim.scheduling.agent import parse_name
from hdsim.scheduling.past import Arrivals, Past
from hdsim.simulation.simulation import simulate
from hdsim.util.rules import NOT_NEGATIVE, integers_from, require

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hdsim.cluster.state import Cluster
    from hdsim.workload.model import Workload

#: Jobs of a window below which no choice is made: fewer say little.
ENOUGH = 16
#: Schedulers of several rules; a few, since of many one is the best of the past by chance.
CANDIDATES = ("easy-learned", "learned", "greedy-learned", "saf", "easy-sjf", "conservative-f4", "greedy-sjf")
#: Seconds between the start of the jobs that run at the beginning of a window and the submission of all others.
TICK = 1.0


class Portfolio(ClassicAgent):
    """Serves the queue as that scheduler, of several, that does best in replays of the past and of what may come.

    At the first pass behind every `period` submitted jobs, and at once where it takes over from another agent, each
    scheduler replays the last `window` submitted jobs, those that ran at the submission of the first one, which run
    first, and those that waited then, of which the last `window` are kept; and `scenarios` of the jobs that run now,
    those that wait, of which the last two `window` are kept, and `arrivals` further ones. Arrivals, and the run times
    of jobs that have not ended, are drawn from the past (see :class:`hdsim.scheduling.past.Past`): with requested
    times all schedulers but the serving one, which has put the longest requests off, would seem to block the machine.
    The cost of a scheduler is the geometric mean of its metric in the past and of that in the scenarios, which is the
    geometric mean over these, each relative to the best scheduler there. Nothing of the future is known, and no
    contention, messages or failures; hard caps, frequencies and nodes that sleep are refused.

    Attributes:
        experts: The schedulers by name.
        chosen: Name of the one that serves.

    Args:
        candidates: The schedulers: short names of classic agents (see :func:`hdsim.scheduling.agent.parse_name`), with
            `backfill` orders (see :mod:`hdsim.scheduling.orders`). The first one serves until there is a choice.
        objective: Metric of a replay that is to be good (see ``hdsim show metrics``).
        period: Submitted jobs between two choices.
        window: Submitted jobs of the past that a choice looks at.
        trusted: The first candidates, as many, which are compared as equals.
        margin: Share of its cost by which a further candidate must be better than all of these.
        scenarios: Scenarios; 0: the past alone is looked at.
        arrivals: Jobs that arrive in a scenario.
        backfill: Rule of all candidates, null: each names its own.
        core_policy, backfill_order, commit_head, estimates, multifactor: See
            :class:`hdsim.agents.classic.ClassicAgent`.

    Raises:
        ConfigError: A name is unknown, or a number is too small.
    """

    def __init__(
        self,
        candidates: Sequence[str] = CANDIDATES,
        objective: str = "mean_bounded_slowdown",
        period: int = 256,
        window: int = 1024,
        trusted: int = 3,
        margin: float = 0.35,
        scenarios: int = 0,
        arrivals: int = 512,
        core_policy: str = "high_gflops",
        backfill: str | int | Mapping[str, Any] | None = None,
        backfill_order: str | None = None,
        commit_head: bool = False,
        estimates: str = "requested",
        multifactor: Mapping[str, Any] | None = None,
    ) -> None:
        if isinstance(candidates, str) or not candidates:
            raise ConfigError(f"portfolio: expected a list of schedulers, got {candidates!r}", where="agent.candidates")
        limits = {
            "period": integers_from(1),
            "window": integers_from(ENOUGH),
            "trusted": integers_from(1),
            "margin": NOT_NEGATIVE,
            "scenarios": integers_from(0),
            "arrivals": integers_from(0),
        }
        given = {"period": period, "window": window, "trusted": trusted, "margin": margin}
        require("agent", limits, given | {"scenarios": scenarios, "arrivals": arrivals})
        if not direction(objective):
            raise ConfigError(
                f"portfolio: expected a metric that is better high or low, got '{objective}'", where="agent.objective"
            )
        common: dict[str, Any] = {
            "core_policy": core_policy,
            "backfill_order": backfill_order,
            "commit_head": commit_head,
            "estimates": estimates,
            "multifactor": multifactor,
        }
        self._settings = {
            name: common | (parse_name(name) if backfill is None else {"job_policy": name, "backfill": backfill})
            for name in dict.fromkeys(map(str, candidates))
        }
        self.experts = {name: ClassicAgent(**settings) for name, settings in self._settings.items()}
        if void := [name for name, expert in self.experts.items() if expert.rules is None]:
            raise ConfigError(
                f"portfolio: expected schedulers that start jobs, got {void[0]}", where="agent.candidates"
            )
        self._trusted = list(self._settings)[:trusted]
        self.chosen = self._trusted[0]
        super().__init__(**self._settings[self.chosen])
        self._objective, self._period, self._window, self._margin = objective, period, window, margin
        self._scenarios, self._arrivals = scenarios, arrivals

    def begin(self, cluster: Cluster) -> None:
        """Creates the queues.

        Raises:
            ConfigError: There is a hard cap, nodes sleep, or jobs have other frequencies than the nominal one.
        """
        super().begin(cluster)
        refuse_hard_caps(cluster.budget, "portfolio")
        refuse_frequencies(cluster.frequencies, "portfolio")
        refuse_sleep(cluster.node_states, "portfolio")
        self._seen = Past(cluster)
        self._came = sum(state != FinalState.NOT_SUBMITTED for state in cluster.state)
        # A choice is due now if there is a past, as for an agent that takes over.
        self._due = 0 if self._came else self._period

    def decide(self, cluster: Cluster) -> None:
        """One scheduling pass, as another scheduler if it is time and that does better."""
        self._seen.look(cluster)
        self._came += len(cluster.submitted)
        if self._came >= self._due:
            self._due = (self._came // self._period + 1) * self._period
            self._choose(cluster)
        super().decide(cluster)

    def _choose(self, cluster: Cluster) -> None:
        """Changes to the scheduler of the best replays; of several, or of too few jobs, the present one stays."""
        past = self._past(cluster)
        if past is None:
            return
        regret = self._regret(cluster, past)
        if self._scenarios:
            futures = [self._regret(cluster, jobs) for jobs in self._futures(cluster)]
            regret = (regret + np.mean(futures, axis=0)) / 2
        costs = dict(zip(self._settings, regret.tolist(), strict=True))
        best, trusted = (
            min(names, key=lambda name: (costs[name], name != self.chosen)) for names in (costs, self._trusted)
        )
        if costs[trusted] <= costs[best] + math.log1p(self._margin):
            best = trusted
        if best == self.chosen:
            return
        self.chosen, chosen = best, self.experts[best]
        assert chosen.rules is not None
        self.rules, self._make_backfill = chosen.rules, chosen._make_backfill
        self._follow(cluster, self.rules)
        # As under an agent that takes over, all queued jobs count as submitted now.
        cluster.submitted[:] = cluster.queue

    def _regret(self, cluster: Cluster, jobs: Workload) -> NDArray[np.float64]:
        """(C,) logarithm of the metric of each candidate's replay of jobs relative to the best one."""
        sign = -direction(self._objective)
        results = [simulate(cluster.platform, jobs, settings) for settings in self._settings.values()]
        costs = np.array([sign * result.metrics[self._objective] for result in results])
        costs[np.isnan(costs)] = math.inf
        worse, best = costs > costs.min(), costs.min()
        regret = np.zeros(len(costs))
        with np.errstate(divide="ignore"):  # any metric is much worse than 0
            regret[worse] = np.log1p((costs[worse] - best) / abs(best))
        return regret

    def _past(self, cluster: Cluster) -> Workload | None:
        """The jobs of the window, which begins at 0 s; None if they are too few."""
        now, jobs = cluster.now, cluster.workload
        begin, end, state = map(np.array, (cluster.starting_time, cluster.finish_time, cluster.state))
        known = ~np.isin(state, (FinalState.NOT_SUBMITTED, FinalState.REJECTED))
        dates = np.sort(jobs.submission_time[known])
        since = max(float(dates[-self._window]), 0.0) if len(dates) > self._window else 0.0
        known &= ~(end <= since)
        # The time of a replay grows with the square of the queue where it is scored anew at every pass.
        known[np.flatnonzero(known & ~(begin < since))[: -2 * self._window]] = False
        rows = np.flatnonzero(known)
        if len(rows) < ENOUGH:
            return None
        # Those that ran come first: on the empty platform they start at once.
        ran = begin[rows] < since
        rows = rows[np.argsort(~ran, kind="stable")]
        ran.sort()
        begin, end, ran = begin[rows], end[rows], ran[::-1]
        speed = _speeds(cluster, rows)
        # Reference seconds of work before the window and until now, 0 for jobs that wait.
        before = np.nan_to_num(np.maximum(since - begin, 0.0) * speed)
        worked = np.nan_to_num((np.fmin(end, now) - begin) * speed)
        requested, runs, waits = jobs.requested_time[rows], ~np.isnan(begin) & np.isnan(end), np.isnan(begin)
        runtime = worked.copy()
        future = self._seen.draw(cluster, rows[runs], begin[runs], rows[waits], scenarios=1, arrivals=0)
        runtime[np.concatenate([np.flatnonzero(runs), np.flatnonzero(waits)])] += future.remaining[0]
        runtime -= before
        requested = np.where(ran, np.maximum(requested - before, runtime), requested)
        submission = np.where(ran, -TICK, np.maximum(jobs.submission_time[rows] - since, 0.0))
        return _replayed(jobs, rows, submission, runtime, requested)

    def _futures(self, cluster: Cluster) -> list[Workload]:
        """The jobs that run, those that wait and those that arrive next, for each scenario."""
        now, jobs = cluster.now, cluster.workload
        begin, end = np.array(cluster.starting_time), np.array(cluster.finish_time)
        running = np.flatnonzero(~np.isnan(begin) & np.isnan(end))
        queued = np.array(list(cluster.queue), np.int64)[-2 * self._window :]
        future = self._seen.draw(cluster, running, begin[running], queued, self._scenarios, self._arrivals)
        worked, made = (now - begin[running]) * _speeds(cluster, running), []
        for drawn, offset, lasts, remaining in zip(
            future.drawn, future.offset, future.runtime, future.remaining, strict=True
        ):
            rows, runtime = np.concatenate([running, queued, drawn]), np.concatenate([remaining, lasts])
            requested, runs = jobs.requested_time[rows], slice(len(running))
            requested[runs] = np.maximum(requested[runs] - worked, runtime[runs])
            submission = np.concatenate([np.full(len(running), -TICK), np.zeros(len(queued)), offset])
            made.append(_replayed(jobs, rows, submission, runtime, requested))
        return made


def _speeds(cluster: Cluster, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """(R,) speed of the cores of jobs, 1 for those that have none."""
    placed = cluster.placements
    return np.array([cluster.speed(job, placed[job]) if job in placed else 1.0 for job in rows.tolist()], float)


def _replayed(
    jobs: Workload,
    rows: NDArray[np.int64],
    submission_time: NDArray[np.float64],
    runtime: NDArray[np.float64],
    requested_time: NDArray[np.float64],
) -> Workload:
    """Returns R rows of a workload, in order of their submissions from -`TICK` s on, with other times in seconds."""
    nothing = np.full(len(rows), None)
    times = {"submission_time": submission_time + TICK, "runtime": runtime, "requested_time": requested_time}
    return replace(jobs, **Arrivals(jobs, rows, program=nothing, gang=nothing, **times).columns())
