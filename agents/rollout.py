"""Search: the heads of several orders are played out in scenarios of the jobs to come; the best one is served.

A rollout in the sense of Bertsekas, Tsitsiklis and Wu (1997): one step of search, then a base policy. All candidates
meet the same scenarios (common random numbers), and those that are clearly worse are dropped (racing, Maron and Moore
1994).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hdsim.agents.classic import ClassicAgent
from hdsim.cluster.frequencies import refuse_frequencies
from hdsim.errors import ConfigError, not_one_of
from hdsim.scheduling.learned.order import Present
from hdsim.scheduling.learned.play_outs import Ahead, network_first_starts, network_play_outs
from hdsim.scheduling.orders import job_order
from hdsim.scheduling.past import Past, arrivals_of
from hdsim.scheduling.rules import HEAD_ALONE_NUMBERS
from hdsim.scheduling.search.heads import distinct, heads_of
from hdsim.scheduling.search.play_outs import (
    MEAN_COSTS,
    Decision,
    Situation,
    behind,
    first_starts,
    mean_cost,
    play_outs,
)
from hdsim.scheduling.search.scenarios import Future
from hdsim.util.arrays import Floats, Ints
from hdsim.util.rules import FLAG, NULL, require

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.scheduling.orders import JobOrder


RUNTIMES = ("past", "requested")


class Usual(NamedTuple):
    """Settings of `Rollout` that are usual under a rule."""

    base: str
    arrivals: int
    scenarios: int
    candidates: Sequence[str]
    cautious: bool


HEADS = ("saf", "f1", "f2", "f3", "f4", "sjf", "fcfs")
#: By rule, and by whether a head stays the head. Such a head holds others up for long, so that more arrivals matter.
#: Without backfilling the order of the best rules is then that of narrow jobs, and the heads of others stand for
#: waiting for a wide one.
USUAL = {
    ("none", False): Usual("saf", 8, 64, ("learned", *HEADS), True),
    ("none", True): Usual("f1", 60, 32, (*HEADS, "laf", "ljf", "lqf"), False),
    ("easy", False): Usual("f1", 8, 64, ("learned", *HEADS), True),
    ("easy", True): Usual("f1", 8, 64, HEADS, False),
    ("rlscheduler", True): Usual("f2", 60, 64, HEADS, False),
}
#: Scenarios after which candidates are dropped for the first time, then after twice as many and so on.
ROUND = 8


class Follower(ClassicAgent):
    """The base policy of a play-out, whose first head is given; see :func:`hdsim.scheduling.search.play_outs.play_out`.

    Args:
        first: The first head.
        plan: Orders that choose the heads behind it, each until one that it chose has started.
        **settings: The base policy.
    """

    def __init__(self, first: int, plan: Sequence[JobOrder] = (), **settings: Any) -> None:
        super().__init__(**settings)
        self._first, self._plan = first, list(plan)
        self._planned: int | None = None

    def begin(self, cluster: Cluster) -> None:
        """Commits to the first head."""
        super().begin(cluster)
        self._head = self._first

    def _next(self, cluster: Cluster) -> int | None:
        if self._planned is not None and self._planned not in cluster.queue:
            self._planned = None
            del self._plan[0]
        if not (self._plan and cluster.queue):
            return super()._next(cluster)
        queued = np.fromiter(cluster.queue, np.int64, len(cluster.queue))
        order = self._plan[0]
        scores = (
            order.score(cluster.workload, queued, cluster) if order.dynamic else order.score(cluster.workload)[queued]
        )
        self._planned = int(queued[scores.argmin()])
        return self._planned


class Rollout(ClassicAgent):
    """Serves that head, of the heads of several orders, that does best in play-outs.

    1. Candidates behind which the same jobs start now and the same head waits are one; if one is left, nothing is
       played out.
    2. Scenarios are drawn from the past of this replay. Arrivals: consecutive jobs among those submitted so far, with
       the gaps before them, from a random place on, so that bursts are kept; the first 16 jobs are decided without.
       Run times under ``past``: the requested time times run time / requested time of one of the 64 ended jobs with the
       nearest requested times in rank; of a running job a factor that it can still reach, otherwise the requested time,
       or it ends at once. An arrival lasts as long as the job that it is drawn from.
    3. Every candidate is played out in every scenario: it is the head until it starts, then the queue is in the order
       `base`, until the last job has ended.
    4. After 8, 16, 32, ... scenarios, candidates whose mean of `objective` is worse than the best by more than two
       standard errors of the paired difference drop out, until one is left, or scenarios or budget are used up. Then
       the first candidate is followed if it is left and `cautious` is true, else the best mean.

    Args:
        candidates: Orders whose heads are candidates (see :mod:`hdsim.scheduling.orders`); null: those of `USUAL`.
        base: Order of the queue in play-outs, and of backfilling with EASY; null: that of `USUAL`.
        backfill: Rule for the jobs behind a head that waits: ``none``, ``easy`` or ``rlscheduler``.
        core_policy: Which idle cores a job gets.
        scenarios: Most scenarios of a decision; null: those of `USUAL`.
        arrivals: Jobs that arrive in a scenario; null: those of `USUAL`.
        runtimes: ``past``: run times relative to requested times are those of ended jobs with requested times alike;
            ``requested``.
        objective: The mean of it over all jobs of a play-out is to be small: ``mean_bounded_slowdown``,
            ``mean_waiting_time`` or ``mean_turnaround_time``.
        budget: Most play-outs of a decision, but at least one of each candidate.
        cautious: The head of the first candidate is served unless it has dropped out; otherwise that of the least mean.
            Null: as `USUAL` says for its candidates, else false.
        commit_head: A head that does not fit stays the head until it starts; otherwise the head is chosen anew at every
            pass. Null: true with ``rlscheduler``, for which it is never false.
        budget_ms: Milliseconds of an instant after which no further scenario is played out, null for no limit. Results
            then depend on the machine.

    Raises:
        ConfigError: A name is unknown or a number is too small.
    """

    def __init__(
        self,
        candidates: Sequence[str] | None = None,
        base: str | None = None,
        backfill: str = "easy",
        core_policy: str = "high_gflops",
        scenarios: int | None = None,
        arrivals: int | None = None,
        runtimes: str = "past",
        objective: str = "mean_bounded_slowdown",
        budget: int = 256,
        budget_ms: float | None = None,
        commit_head: bool | None = None,
        cautious: bool | None = None,
    ) -> None:
        require("agent", {"cautious": FLAG | NULL}, {"cautious": cautious})
        for key, value, allowed in (
            ("backfill", backfill, HEAD_ALONE_NUMBERS),
            ("objective", objective, MEAN_COSTS),
            ("runtimes", runtimes, RUNTIMES),
        ):
            if str(value) not in allowed:
                raise ConfigError(f"rollout: {not_one_of(value, allowed)}", where=f"agent.{key}")
        self._commit = backfill == "rlscheduler" if commit_head is None else commit_head
        if backfill == "rlscheduler" and not self._commit:
            raise ConfigError("rollout: expected true or null with backfill=rlscheduler", where="agent.commit_head")
        usual = USUAL[backfill, self._commit]
        cautious = candidates is None and usual.cautious if cautious is None else cautious
        base, candidates = base or usual.base, usual.candidates if candidates is None else candidates
        arrivals = usual.arrivals if arrivals is None else arrivals
        scenarios = usual.scenarios if scenarios is None else scenarios
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
        self._settings: dict[str, Any] = {
            "job_policy": base,
            "core_policy": core_policy,
            "backfill": backfill,
            "commit_head": self._commit,
        }
        super().__init__(**self._settings)
        self._orders = [job_order(name).under(backfill, self._commit) for name in dict.fromkeys(candidates)]
        self._scenarios, self._budget, self._cautious = scenarios, budget, cautious
        self._arrivals, self._runtimes = arrivals, runtimes == "past"
        self._objective, self._rule = MEAN_COSTS[objective], HEAD_ALONE_NUMBERS[backfill]
        self._seconds = math.inf if budget_ms is None else budget_ms / 1000

    def begin(self, cluster: Cluster) -> None:
        """Takes the past of the cluster over, which is empty at the begin of a replay.

        Raises:
            ConfigError: There are no forks of the cluster, such as with gangs, or jobs have frequencies.
        """
        super().begin(cluster)
        refuse_frequencies(cluster.frequencies, type(self).__name__.lower())
        try:
            fork = cluster.fork(self._settings)
        except ConfigError as error:
            raise ConfigError(f"rollout: expected a cluster that has forks: {error}", where="agent") from None
        self._counted, self._batch = fork.counts_cores, fork.batch_events
        self.past, self._scored = Past(cluster, self._runtimes), np.empty((0, 0))
        assert self.rules is not None
        network, cores = self.rules.order.network, int(cluster.platform.n_cpu_cores)
        self._present = None if network is None else Present(network, cores, self._rule, self._commit)

    def decide(self, cluster: Cluster) -> None:
        """One scheduling pass."""
        self._look(cluster)
        super().decide(cluster)

    def _look(self, cluster: Cluster) -> None:
        """Adds the present instant to the past."""
        self._until = time.perf_counter() + self._seconds
        self.past.look(cluster)

    def _next(self, cluster: Cluster) -> int | None:
        """Returns the candidate of the least mean cost."""
        if len(cluster.queue) < 2:
            return super()._next(cluster)
        queued, scores = np.fromiter(cluster.queue, np.int64, len(cluster.queue)), self._scores(cluster)
        places = heads_of(scores[:-1], queued)
        for place, order in enumerate(self._orders):
            if order.dynamic:
                places[place] = order.score(cluster.workload, queued, cluster).argmin()
        heads = np.array(list(dict.fromkeys(places.tolist())))
        if len(heads) > 1:
            self._decision = _decision(cluster, queued, scores[-1])
            heads = self._distinct(cluster, queued, heads)
        if len(heads) > 1:
            heads = heads[[self._search(cluster, queued, heads)]]
        return int(queued[heads[0]])

    def _scores(self, cluster: Cluster) -> Floats:
        """Returns the (O + 1, J) scores of all jobs in the orders of candidates and of the base, 0 in dynamic ones."""
        assert self.rules is not None
        jobs = cluster.workload
        if self._scored.shape[1] != len(jobs):
            orders = [*self._orders, self.rules.order]
            self._scored = np.zeros((len(orders), len(jobs)))
            for row, order in zip(self._scored, orders, strict=True):
                if not order.dynamic:
                    row[:] = order.score(jobs)
        return self._scored

    def _distinct(self, cluster: Cluster, queued: Ints, heads: Ints) -> Ints:
        """Returns the first of all candidates behind which the same jobs start now and the same head waits."""
        if not self._compiles:
            started = np.zeros((len(heads), len(queued)), bool)
            for row, head in zip(started, queued[heads].tolist(), strict=True):
                fork = cluster.fork(Follower(head, **self._settings))
                fork.run_until(cluster.now)
                row[:] = [job not in fork.cluster.queue for job in cluster.queue]
        elif self._present is None:
            started = first_starts(self._situation(cluster), heads, self._decision)
        else:
            ahead = self._ahead(cluster, queued, 0)
            started = network_first_starts(ahead, self._situation(cluster), heads, self._decision)
        return distinct(heads, started, self._commit)

    def _search(self, cluster: Cluster, queued: Ints, heads: Ints) -> int:
        """Returns which of the (C,) candidates, which are places in the queue, has the least mean cost."""
        future = self._drawn(cluster, queued, self._scenarios)
        play = self._player(cluster, queued, future)
        left, costs, played = np.arange(len(heads)), np.empty((len(heads), 0)), 0
        while len(left) > 1 and costs.shape[1] < self._scenarios:
            done = costs.shape[1]
            affordable = (self._budget - played) // len(left)
            number = max(ROUND, done) if self._seconds == math.inf else 1
            number = min(number, self._scenarios - done, affordable if done else max(affordable, 1))
            if number < 1 or (done and time.perf_counter() > self._until):
                break
            costs = np.hstack([costs, play(heads[left], range(done, done + number))])
            played += number * len(left)
            worse = behind(np.ascontiguousarray(costs)) if costs.shape[1] >= ROUND else np.zeros(len(left), bool)
            left, costs = left[~worse], costs[~worse]
        return 0 if self._cautious and left[0] == 0 else int(left[costs.mean(axis=1).argmin()])

    def _drawn(self, cluster: Cluster, queued: Ints, number: int) -> Future:
        """Draws scenarios from the past of the cluster."""
        running, started = self._decision[:2]
        return self.past.draw(cluster, running, started, queued, number, self._arrivals)

    @property
    def _compiles(self) -> bool:
        assert self.rules is not None
        return self._counted and (self._present is not None or not self.rules.order.dynamic)

    def _ahead(self, cluster: Cluster, queued: Ints, arrivals: int) -> Ahead:
        """Returns a replay of the base order from the present on, if that is a network."""
        assert self._present is not None
        running = self._decision.running
        # A job that is released after it was held is seen behind later ones.
        submitted = int(max(self.past.last, *queued, *running)) + 1
        return self._present.ahead(cluster, submitted, running, queued, arrivals, batch=self._batch)

    def _situation(self, cluster: Cluster) -> Situation:
        return Situation(self._rule, self._commit, self._batch, cluster.now, int(cluster.n_idle))

    def _keys(self, cluster: Cluster, future: Future, orders: Sequence[JobOrder], scenarios: slice) -> Floats:
        """Returns the (O, S, A) scores of the arrivals of some scenarios in static orders."""
        keys = np.zeros((len(orders), *future.drawn[scenarios].shape))
        if keys.size:
            coming = arrivals_of(cluster, future, scenarios)
            for key, order in zip(keys, orders, strict=True):
                key[:] = order.score(coming)
        return keys

    def _player(self, cluster: Cluster, queued: Ints, future: Future) -> Callable[[Ints, range], Floats]:
        """Returns a function that plays (C,) candidates out in some scenarios and returns their (C, S) mean costs."""
        assert self.rules is not None
        base, situation, decision = self.rules.order, self._situation(cluster), self._decision
        if not self._compiles:
            return lambda heads, which: np.array(
                [
                    [self._on_fork(cluster, queued, head, (), future, scenario) for scenario in which]
                    for head in heads.tolist()
                ]
            )
        if self._present is not None:
            ahead = self._ahead(cluster, queued, future.drawn.shape[1])
            return lambda heads, which: network_play_outs(
                self._objective, ahead, situation, heads, decision, future, which.start, which.stop
            )

        def play(heads: Ints, which: range) -> Floats:
            (keys,) = self._keys(cluster, future, [base], slice(which.start, which.stop))
            return play_outs(self._objective, situation, heads, decision, future, keys, which.start)

        return play

    def _on_fork(
        self, cluster: Cluster, queued: Ints, head: int, plan: Sequence[JobOrder], future: Future, scenario: int
    ) -> float:
        """Returns the mean cost of a candidate and a plan in a scenario, from a fork of the simulation."""
        known, present = len(cluster.workload), [*cluster.running, *queued.tolist()]
        remaining = dict(zip(present, future.remaining[scenario].tolist(), strict=True))
        arrivals: Any = "none"
        if future.drawn.size:
            columns = arrivals_of(cluster, future, scenario).columns()
            arrivals = replace(cluster.workload, **columns | {"submission_time": future.offset[scenario]})
        follower = Follower(int(queued[head]), plan, **self._settings)
        fork = cluster.fork(follower, runtimes=remaining.__getitem__, arrivals=arrivals)
        fork.run()
        end = fork.cluster
        jobs = [*present, *range(known, len(end.workload))]
        start, finish = np.array(end.starting_time)[jobs], np.array(end.finish_time)[jobs]
        # Jobs that never fit, such as beside pods of others, and those that wait behind them count as begun when all
        # jobs would have run one after the other.
        lasting = np.concatenate([future.remaining[scenario], future.runtime[scenario]])
        late = cluster.now + future.offset[scenario].max(initial=0.0) + lasting.sum()
        never = np.isnan(finish)
        start, finish = np.where(never, late, start), np.where(never, late + lasting, finish)
        return float(mean_cost(self._objective, end.workload.submission_time[jobs], start, finish))


def _decision(cluster: Cluster, queued: Ints, score: Floats) -> Decision:
    """Returns the jobs of a decision; those that are STARTING run since the requests."""
    jobs, running = cluster.workload, np.fromiter(cluster.running, np.int64, len(cluster.running))
    started = np.array([cluster.starting.get(job, cluster.starting_time[job]) for job in cluster.running], float)
    return Decision(running, started, queued, jobs.submission_time, jobs.requested_time, jobs.requested_cores, score)
