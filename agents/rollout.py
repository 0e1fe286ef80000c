"""Search: the heads of several orders are played out in scenarios of the jobs to come; the best one is served.

A rollout in the sense of Bertsekas, Tsitsiklis and Wu (1997): one step of search, then a base policy. All candidates
meet the same scenarios (common random numbers).
"""

from __future__ import annotations

import math
import time
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hdsim.agents.classic import ClassicAgent
from hdsim.errors import ConfigError, not_one_of
from hdsim.kernels import counted_replay
from hdsim.kernels.heap import make_heap
from hdsim.kernels.play_outs import BOUNDED_SLOWDOWN, TURNAROUND_TIME, WAITING_TIME, Scenarios, mean_cost, play_outs
from hdsim.kernels.profiles import make_releases
from hdsim.scheduling.orders import job_order
from hdsim.workload.model import COLUMNS

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.scheduling.orders import JobOrder
    from hdsim.workload.model import Workload

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Rules for the jobs behind a head that waits.
RULES = {
    "none": counted_replay.NONE,
    "easy": counted_replay.EASY,
    "rlscheduler": counted_replay.RLSCHEDULER,
}
OBJECTIVES = {
    "mean_bounded_slowdown": BOUNDED_SLOWDOWN,
    "mean_waiting_time": WAITING_TIME,
    "mean_turnaround_time": TURNAROUND_TIME,
}
RUNTIMES = ("past", "requested")
#: Jobs that have been seen before arrivals are drawn: fewer say nothing of a distribution.
ENOUGH = 16
#: Resolution of drawn run times in seconds, a power of two, so that sums of dates are exact.
TICK = 2.0**-10


class Follower(ClassicAgent):
    """The base policy of a play-out, whose first head is given."""

    def __init__(self, first: int, **settings: Any) -> None:
        super().__init__(**settings)
        self._first = first

    def begin(self, cluster: Cluster) -> None:
        """Commits to the first head."""
        super().begin(cluster)
        self._head = self._first


@dataclass
class Future:
    """Scenarios of a decision.

    Attributes:
        remaining: (S, R + Q) remaining run times of the running jobs and run times of the queued ones, reference
            seconds.
        jobs: Arrivals of all scenarios, one after another, None without arrivals. Submission times count from now.
    """

    remaining: Floats
    jobs: Workload | None


class Rollout(ClassicAgent):
    """Serves that head, of the heads of several orders, that does best in play-outs.

    Args:
        candidates: Orders whose heads are candidates (see :mod:`hdsim.scheduling.orders`).
        base: Order of the queue in play-outs, and of backfilling with EASY.
        backfill: Rule for the jobs behind a head that waits: ``none``, ``easy`` or ``rlscheduler``.
        core_policy: Which idle cores a job gets.
        scenarios: Scenarios of a decision.
        arrivals: Jobs that arrive in a scenario.
        runtimes: ``past``: run times are requested times times the factor of an ended job; ``requested``.
        objective: The mean of it over all jobs of a play-out is to be small: ``mean_bounded_slowdown``,
            ``mean_waiting_time`` or ``mean_turnaround_time``.
        budget: Most play-outs of a decision; with many candidates there are fewer scenarios, but at least one.
        commit_head: A head that does not fit stays the head until it starts; otherwise the head is chosen anew at every
            pass. Null: false with EASY, else true; with ``rlscheduler`` never false.
        budget_ms: Milliseconds of an instant after which no further scenario is played out, null for no limit. Results
            then depend on the machine.

    Raises:
        ConfigError: A name is unknown or a number is too small.
    """

    def __init__(
        self,
        candidates: Sequence[str] = ("saf", "f1", "f2", "f4"),
        base: str = "f2",
        backfill: str = "none",
        core_policy: str = "high_gflops",
        scenarios: int = 16,
        arrivals: int = 100,
        runtimes: str = "past",
        objective: str = "mean_bounded_slowdown",
        budget: int = 64,
        budget_ms: float | None = None,
        commit_head: bool | None = None,
    ) -> None:
        for key, value, allowed in (
            ("backfill", backfill, RULES),
            ("objective", objective, OBJECTIVES),
            ("runtimes", runtimes, RUNTIMES),
        ):
            if str(value) not in allowed:
                raise ConfigError(
                    f"rollout: {not_one_of(value, allowed)}",
                    where=f"agent.{key}",
                )
        for key, number, least in (("scenarios", scenarios, 1), ("arrivals", arrivals, 0), ("budget", budget, 1)):
            if number != int(number) or number < least:
                raise ConfigError(
                    f"rollout: expected an integer of at least {least}, got {number}", where=f"agent.{key}"
                )
        if budget_ms is not None and not budget_ms > 0:
            raise ConfigError(
                f"rollout: expected milliseconds above 0 or null, got {budget_ms}", where="agent.budget_ms"
            )
        if isinstance(candidates, str) or not candidates:
            raise ConfigError(f"rollout: expected a list of orders, got {candidates!r}", where="agent.candidates")
        self._commit = backfill != "easy" if commit_head is None else commit_head
        if backfill == "rlscheduler" and not self._commit:
            raise ConfigError("rollout: expected true or null with backfill=rlscheduler", where="agent.commit_head")
        self._settings: dict[str, Any] = {
            "job_policy": base,
            "core_policy": core_policy,
            "backfill": backfill,
            "commit_head": self._commit,
        }
        super().__init__(**self._settings)
        self._orders = [job_order(name) for name in dict.fromkeys(candidates)]
        self._scenarios = max(1, min(scenarios, budget // len(self._orders)))
        self._arrivals, self._past = arrivals, runtimes == "past"
        self._objective, self._rule = OBJECTIVES[objective], RULES[backfill]
        self._seconds = math.inf if budget_ms is None else budget_ms / 1000

    def begin(self, cluster: Cluster) -> None:
        """Prepares an empty past.

        Raises:
            ConfigError: The simulation has no forks.
        """
        super().begin(cluster)
        try:
            fork = cluster.fork(self._settings)
        except ConfigError as error:
            raise ConfigError(f"rollout: expected a simulation that has forks: {error}", where="agent") from None
        self._counted, self._batch = fork.counts_cores, fork.batch_events
        self._seen: dict[int, None] = {}
        # Run times of ended jobs relative to their expected ones, ascending.
        self._factors: list[float] = []
        self._scored: dict[str, Floats] = {}

    def decide(self, cluster: Cluster) -> None:
        """One scheduling pass."""
        self._until = time.perf_counter() + self._seconds
        self._seen.update(dict.fromkeys(cluster.submitted))
        for job in cluster.ended:
            seconds, expected = cluster.finish_time[job] - cluster.starting_time[job], cluster.requested_time[job]
            # An interrupted job has no finish.
            if seconds > 0 and expected > 0:
                insort(self._factors, seconds / expected)
        super().decide(cluster)

    def _next(self, cluster: Cluster) -> int | None:
        """Returns the candidate of the least mean cost."""
        if len(cluster.queue) < 2:
            return super()._next(cluster)
        queued = np.fromiter(cluster.queue, np.int64, len(cluster.queue))
        heads = np.array(
            list(dict.fromkeys(int(self._scores(cluster, each, queued).argmin()) for each in self._orders))
        )
        if len(heads) > 1:
            heads = heads[[self._search(cluster, queued, heads).mean(axis=1).argmin()]]
        return int(queued[heads[0]])

    def _scores(self, cluster: Cluster, order: JobOrder, queued: Ints) -> Floats:
        """Returns the (Q,) scores of the queued jobs."""
        jobs = cluster.workload
        if order.dynamic:
            scores: Floats = order.score(jobs, queued, cluster)
            return scores
        if len(self._scored.get(order.name, ())) != len(jobs):
            self._scored[order.name] = order.score(jobs)
        return self._scored[order.name][queued]

    def _search(self, cluster: Cluster, queued: Ints, heads: Ints) -> Floats:
        """Returns the (C, S) mean costs of candidates, which are places in the queue, in scenarios."""
        future = self._drawn(cluster, queued)
        assert self.rules is not None
        play = self._compiled if self._counted and not self.rules.order.dynamic else self._on_forks
        if self._seconds == math.inf:
            return play(cluster, queued, heads, future, range(self._scenarios))
        costs = []
        for scenario in range(self._scenarios):
            if scenario and time.perf_counter() > self._until:
                break
            costs.append(play(cluster, queued, heads, future, range(scenario, scenario + 1)))
        return np.concatenate(costs, axis=1)

    def _drawn(self, cluster: Cluster, queued: Ints) -> Future:
        """Draws scenarios from the past of the cluster."""
        rng, jobs, number, seen = cluster.rng, cluster.workload, self._scenarios, np.array(list(self._seen))
        running = np.fromiter(cluster.running, np.int64, len(cluster.running))
        requested = jobs.requested_time[np.concatenate([running, queued])]
        worked = np.zeros(len(requested))
        worked[: len(running)] = cluster.now - np.array(cluster.starting_time)[running]
        remaining = self._runtimes(rng, np.broadcast_to(requested, (number, len(requested))), worked) - worked
        if len(seen) < ENOUGH or not self._arrivals:
            return Future(np.maximum(remaining, TICK), None)
        drawn = rng.choice(seen, (number, self._arrivals)).ravel()
        gaps = rng.choice(np.diff(jobs.submission_time[seen]), (number, self._arrivals))
        offset = np.maximum(np.cumsum(gaps, axis=1), TICK).ravel()
        arrivals = replace(jobs, **{key: getattr(jobs, key)[drawn] for key in COLUMNS})
        since = float(jobs.original_submission_time[0] - jobs.submission_time[0])
        arrivals = replace(
            arrivals,
            submission_time=offset,
            original_submission_time=cluster.now + offset + since,
            runtime=np.maximum(self._runtimes(rng, arrivals.requested_time, np.zeros(len(drawn))), TICK),
        )
        return Future(np.maximum(remaining, TICK), arrivals)

    def _runtimes(self, rng: np.random.Generator, requested: Floats, worked: Floats) -> Floats:
        """Draws run times that are longer than the jobs have `worked`, as long as requested where none is known.

        Factors are those of ended jobs; a job that has exceeded them all is expected to end as requested.
        """
        if not self._past or not self._factors:
            return requested
        factors = np.array(self._factors)
        shortest = np.searchsorted(factors, worked / np.maximum(requested, TICK), side="right")
        chosen = shortest + (rng.random(requested.shape) * (len(factors) - shortest)).astype(np.int64)
        seconds = np.append(factors, 1.0)[chosen] * requested
        return np.ceil(seconds / TICK) * TICK

    def _compiled(self, cluster: Cluster, queued: Ints, heads: Ints, future: Future, scenarios: range) -> Floats:
        """Plays out in compiled code."""
        assert self.rules is not None
        jobs, now, number, arrivals = cluster.workload, cluster.now, len(scenarios), future.jobs
        running = np.fromiter(cluster.running, np.int64, len(cluster.running))
        present = np.concatenate([running, queued])
        started = np.array(cluster.starting_time)[running]
        runtime = future.remaining[scenarios.start : scenarios.stop].copy()
        runtime[:, : len(running)] += now - started
        columns = [
            np.broadcast_to(each, (number, len(present)))
            for each in (
                jobs.submission_time[present],
                runtime,
                jobs.requested_time[present],
                jobs.requested_cores[present],
                self._scores(cluster, self.rules.order, present),
            )
        ]
        if arrivals is not None:
            to_come = (
                now + arrivals.submission_time,
                arrivals.runtime,
                arrivals.requested_time,
                arrivals.requested_cores,
                self.rules.order.score(replace(arrivals, submission_time=now + arrivals.submission_time)),
            )
            columns = [
                np.hstack([each, new.reshape(self._scenarios, -1)[scenarios.start : scenarios.stop]])
                for each, new in zip(columns, to_come, strict=True)
            ]
        table = Scenarios(len(running), len(queued), started, *map(np.ascontiguousarray, columns))
        n = table.size.shape[1]
        costs: Floats = play_outs(
            self._objective,
            self._rule,
            self._commit,
            self._batch,
            now,
            int(cluster.n_idle),
            heads,
            table,
            make_heap(n),
            make_releases(n),
        )
        return costs

    def _on_forks(self, cluster: Cluster, queued: Ints, heads: Ints, future: Future, scenarios: range) -> Floats:
        """Plays out on forks of the simulation."""
        known, each = len(cluster.workload), self._arrivals
        present = [*cluster.running, *queued.tolist()]
        costs = np.empty((len(heads), len(scenarios)))
        for column, scenario in enumerate(scenarios):
            remaining = dict(zip(present, future.remaining[scenario].tolist(), strict=True))
            arrivals: Any = "none"
            if future.jobs is not None:
                rows = slice(scenario * each, (scenario + 1) * each)
                arrivals = replace(future.jobs, **{key: getattr(future.jobs, key)[rows] for key in COLUMNS})
            for row, head in enumerate(heads):
                follower = Follower(int(queued[head]), **self._settings)
                fork = cluster.fork(follower, runtimes=remaining.__getitem__, arrivals=arrivals)
                fork.run()
                end = fork.cluster
                jobs = [*present, *range(known, len(end.workload))]
                start, finish = np.array(end.starting_time)[jobs], np.array(end.finish_time)[jobs]
                costs[row, column] = mean_cost(self._objective, end.workload.submission_time[jobs], start, finish)
        return costs
