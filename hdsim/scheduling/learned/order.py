"""The order ``learned``: a small network scores the queued jobs, see :mod:`hdsim.scheduling.learned.network`.

The network is checked on the past: from time to time the latest jobs are replayed under it and under some plain orders,
and an order that has been far better is followed instead, until the network is as good again.
"""

from __future__ import annotations

import json
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.job_state import FinalState
from hdsim.errors import ConfigError, not_one_of
from hdsim.scheduling.kernels.profiles import Releases
from hdsim.scheduling.learned.like_jobs import expect, make_latest, note_end
from hdsim.scheduling.learned.network import (
    COLUMNS,
    CONTEXT,
    INPUT,
    LANES,
    LOG_TIME,
    PAST,
    SUMS,
    WEIGHTS,
    learned_scores,
    past_sums,
)
from hdsim.scheduling.learned.play_outs import Ahead
from hdsim.scheduling.learned.queue import PERIOD, SCORING, ScoredQueue
from hdsim.scheduling.machine.loop import Replay, advance
from hdsim.scheduling.machine.state import JobColumns, make_machine
from hdsim.scheduling.rules import NUMBERS, Backfilling
from hdsim.scheduling.search.play_outs import BOUNDED_SLOWDOWN, mean_cost
from hdsim.util.rules import numbers_between
from hdsim.util.text import shown

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.workload.model import Workload

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Rules that networks have weights for: number of the backfilling algorithm, and whether a head stays the head.
RULES = {
    "strict": (NUMBERS["none"], False),
    "greedy": (NUMBERS["greedy"], False),
    "easy": (NUMBERS["easy"], False),
    "committed": (NUMBERS["none"], True),
    "rlscheduler": (NUMBERS["rlscheduler"], True),
}
#: Plain orders that may be followed, as powers of run time and cores: sjf, smallest area, and ones beside it.
PLAIN = ((1.0, 0.0), (1.0, 1.0), (1.0, 0.5), (0.5, 1.0))
#: A weight; products of larger ones would exceed the range of numbers.
_WEIGHT = numbers_between(-1e100, 1e100)
#: Jobs of a check, weight of the check before it, and by how much the logarithm of the cost of a plain order is less.
CHECKED, MEMORY, MARGIN = 512, 0.7, 4.0
#: Comparisons take turns with checks of the errors alone: while the network is the best, their distance doubles up to
#: this number of checks.
SELDOM = 4


class Jobs(NamedTuple):
    """Columns of a workload that the network sees, and sums over them; see `learned_scores`."""

    submission: Floats
    requested: Floats
    size: Ints
    sums: Floats
    kind: Ints

    @classmethod
    def of(cls, submission: Floats, requested: Floats, size: Ints, user: Ints | None = None) -> Jobs:
        """Returns the columns; jobs without a user are of no kind."""
        kind = np.full(len(size), -1)
        if user is not None and (known := user >= 0).any():
            number = np.zeros(known.sum(), np.int64)
            for column in (user, size, requested):
                values, place = np.unique(column[known], return_inverse=True)
                number = number * len(values) + place
            kind[known] = np.unique(number, return_inverse=True)[1]
        return cls(submission, requested, size, past_sums(requested, size), kind)


_JOBS: WeakKeyDictionary[Workload, Jobs] = WeakKeyDictionary()


def rule_of(backfill: int, commit: bool) -> str:
    """Returns the rule of :data:`RULES` whose weights serve a backfilling algorithm, that of EASY for any other one."""
    if backfill == Backfilling.NONE:
        return "committed" if commit else "strict"
    return next((rule for rule, (number, _) in RULES.items() if number == backfill), "easy")


@cache
def read_weights(card: str) -> dict[str, Floats]:
    """Reads the (WEIGHTS,) weights of a model card by rule, see :data:`RULES`.

    Raises:
        ConfigError: The file has no such weights.
    """
    try:
        rules = json.loads(Path(card).read_text())["weights"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(f"expected a card with the weights of a network: {error}", where=card) from None
    if not isinstance(rules, dict) or not rules:
        raise ConfigError(f"weights: expected a list for each rule, such as easy, got {shown(rules)}", where=card)
    for rule, weights in rules.items():
        if rule not in RULES:
            raise ConfigError(f"weights: {not_one_of(rule, RULES)}", where=card)
        if not isinstance(weights, list) or len(weights) != WEIGHTS:
            raise ConfigError(f"weights.{rule}: expected a list of {WEIGHTS} weights, got {shown(weights)}", where=card)
        for weight in weights:
            if not _WEIGHT.accepts(weight):
                raise ConfigError(f"weights.{rule}: expected {_WEIGHT.expected} each, got {shown(weight)}", where=card)
    return {rule: np.array(weights, float) for rule, weights in rules.items()}


@cache
def read_networks(card: str, backfill: int, commit: bool) -> Floats:
    """Returns the weights of a model card for a rule, see :func:`rule_of`, and those of the plain orders, (5, WEIGHTS).

    Raises:
        ConfigError: The card has no weights for the rule.
    """
    weights, rule = read_weights(card), rule_of(backfill, commit)
    if rule not in weights:
        raise ConfigError(f"expected weights for the rule {rule}, got {', '.join(weights)}", where=card)
    return np.stack([weights[rule], *(power_order(*powers) for powers in PLAIN)])


def power_order(runtime: float, cores: float) -> Floats:
    """Returns the (WEIGHTS,) network that orders jobs by a product of powers of their run time and their cores."""
    weights = np.zeros(WEIGHTS)
    weights[INPUT:CONTEXT].reshape(COLUMNS, LANES)[:2, -1] = runtime, cores
    return weights


def columns_of(workload: Workload) -> Jobs:
    """Returns what the network sees of all jobs."""
    if workload not in _JOBS:
        _JOBS[workload] = Jobs.of(
            workload.submission_time.copy(),
            workload.requested_time.copy(),
            workload.requested_cores.copy(),
            workload.user,
        )
    return _JOBS[workload]


def follows_like_jobs(backfill: int) -> bool:
    """Returns whether run times of like jobs take the place of requested ones; see :func:`expect`.

    Under RLScheduler's rule training has weighted the errors of requested times, with which there is less slowdown on
    validation windows.
    """
    return backfill != Backfilling.RLSCHEDULER


def make_replay(
    jobs: Jobs,
    runtime: Floats,
    networks: Floats,
    cores: int,
    infeasible: Ints,
    *,
    backfill: int,
    commit: bool,
    walltime: Floats | None = None,
    ends_in_delay: NDArray[np.bool_] | None = None,
    batch_events: bool = True,
    after_start: bool = True,
    errors: Floats | None = None,
) -> Replay:
    """Returns a replay before its first event.

    Args:
        jobs: The jobs, which arrive at their submissions.
        runtime: (J,) s.
        networks: (N, WEIGHTS) the network, and those that may be followed instead.
        cores: Number of cores.
        infeasible: Jobs that are rejected.
        backfill: Number of the backfilling algorithm of a rule of :data:`RULES`.
        commit: A head stays the head until it starts.
        walltime: (J,) s after which jobs are killed, None if none are.
        ends_in_delay: (J,) see ``Workload.ends_in_delay``, None with `walltime`.
        batch_events: One scheduling pass per instant; otherwise one per event, arrivals first.
        after_start: Jobs are scored after every start, too, which changes plain orders in nothing; never where a head
            stays the head without backfilling, see :meth:`hdsim.scheduling.orders.JobOrder.under`.
        errors: (2,) errors of requested times from the first job to the last, see `learned_scores`; None: checks of
            the past find them.
    """
    count, checks = len(runtime), len(runtime) // PERIOD + 1
    walltime = np.zeros(0) if walltime is None else walltime
    ends_in_delay = np.zeros(0, bool) if ends_in_delay is None else ends_in_delay
    machine = make_machine(
        JobColumns(jobs.submission, runtime, jobs.requested, walltime, ends_in_delay, jobs.size),
        infeasible,
        backfill=backfill,
        commit=commit,
        batch=batch_events,
        cores=cores,
        releases=True,
    )
    scoring = np.zeros(1, SCORING).view(np.recarray)
    scoring.after_start = after_start and rule_of(backfill, commit) != "committed"
    scoring.checks = 0 if errors is None else count
    kind = jobs.kind if follows_like_jobs(backfill) else np.full(count, -1)
    queue = ScoredQueue(
        scoring=scoring,
        networks=networks,
        followed=np.zeros(checks, np.int64),
        errors=np.zeros((checks, 2)) + (0.0 if errors is None else errors),
        submission=jobs.submission,
        sums=jobs.sums.copy(),
        expected=jobs.requested.copy(),
        kind=kind,
        latest=make_latest(kind),
        job=np.zeros(count + 1, np.int64),
        score=np.zeros(count + 1),
    )
    return Replay(machine, None, queue, None)


def scored_queue(replay: Replay) -> ScoredQueue:
    """Returns the queue of a replay in the order ``learned``."""
    assert replay.scored is not None
    return replay.scored


class Checks:
    """The checks of a replay; equal pasts give equal results.

    Attributes:
        followed: Network in use after each check, 0 for the one that was trained.
        errors: (2,) errors of requested times after each check, see `learned_scores`.

    Args:
        networks: (N, WEIGHTS) the network, and those that may be followed instead, if any.
        cores: Number of cores.
        backfill: Number of the backfilling algorithm of a rule of :data:`RULES`.
        commit: A head stays the head until it starts.
    """

    def __init__(self, networks: Floats, cores: int, backfill: int, commit: bool) -> None:
        self._networks, self._cores, self._backfill, self._commit = networks, cores, backfill, commit
        self._advantage = np.zeros(len(networks) - 1)
        self._compared, self._pause = 0, 1
        self.followed = [0]
        self.errors = [np.zeros(2)]

    def advance(self, number: int, jobs: Jobs, start: Floats, finish: Floats) -> None:
        """Carries out all checks up to a number of them.

        Args:
            number: Number of the last check, made when this number of periods has been submitted.
            jobs: The jobs.
            start: (J,) starts in seconds, NaN where there is none.
            finish: (J,) finishes in seconds; only those before the last submission of a check count in it.
        """
        while len(self.followed) <= number:
            end = len(self.followed) * PERIOD
            rows = np.arange(max(end - CHECKED, 0), end)
            rows = rows[jobs.size[rows] <= self._cores]
            if not len(rows):
                self.followed.append(self.followed[-1])
                self.errors.append(self.errors[-1])
                continue
            with np.errstate(invalid="ignore"):
                ended = finish[rows] < jobs.submission[end - 1]
            requested, size = jobs.requested[rows], jobs.size[rows]
            runtime = np.where(ended, finish[rows] - start[rows], requested)
            error = np.log(np.maximum(runtime[ended], 1.0) / np.maximum(requested[ended], 1.0))
            self.errors.append(np.array([error.mean(), error.std()]) if len(error) else self.errors[-1])
            if len(self.followed) < self._compared + self._pause or len(self._networks) == 1:
                self.followed.append(self.followed[-1])
                continue
            past = Jobs.of(jobs.submission[rows], requested, size)
            costs = [self._cost(past, runtime, network) for network in range(len(self._networks))]
            self._advantage = MEMORY * self._advantage + np.log(np.array(costs[1:]) / costs[0])
            best = int(self._advantage.argmin())
            pause = min(2 * self._pause, SELDOM) if self._advantage[best] > 0 else 1
            self._compared, self._pause = len(self.followed), pause
            self.followed.append(best + 1 if self._advantage[best] < -MARGIN else 0)

    def at(self, submitted: int, jobs: Jobs, cluster: Cluster, which: slice | Ints = slice(None)) -> tuple[int, Floats]:
        """Returns network and errors after the latest check when a number of jobs, some of a cluster, are submitted."""
        number = submitted // PERIOD
        if number >= len(self.followed):
            start, finish = np.array(cluster.starting_time, float)[which], np.array(cluster.finish_time, float)[which]
            self.advance(number, jobs, start, finish)
        return self.followed[number], self.errors[number]

    def check(self, replay: Replay) -> None:
        """Carries out the check that a replay waits for."""
        machine, queue = replay.machine, scored_queue(replay)
        columns, scoring = machine.jobs, queue.scoring[0]
        jobs = Jobs(queue.submission, columns.requested, columns.size, queue.sums, queue.kind)
        number = int(scoring.checks) + 1
        self.advance(number, jobs, machine.starting_time, machine.finish_time)
        scoring.checks = number
        queue.followed[number], queue.errors[number] = self.followed[number], self.errors[number]

    def _cost(self, past: Jobs, runtime: Floats, network: int) -> float:
        replay = make_replay(
            past,
            runtime,
            self._networks[[network]],
            self._cores,
            np.zeros(0, np.int64),
            backfill=self._backfill,
            commit=self._commit,
            after_start=network == 0,
            errors=self.errors[-1],
        )
        advance(replay, 4 * len(runtime))
        machine = replay.machine
        return float(mean_cost(BOUNDED_SLOWDOWN, past.submission, machine.starting_time, machine.finish_time))


class Present:
    """Replays under a network from the present of a cluster on; the past is checked for errors of requested times only.

    Args:
        network: Card of the network.
        cores: Number of cores.
        backfill: Number of the backfilling algorithm of a rule of :data:`RULES`.
        commit: A head stays the head until it starts.
    """

    def __init__(self, network: str, cores: int, backfill: int, commit: bool) -> None:
        self._networks = read_networks(network, backfill, commit)[:1]
        self._cores, self._backfill, self._commit = cores, backfill, commit
        self._checks = Checks(self._networks, cores, backfill, commit)
        self._known, self._replay = 0, self._with_space(0)

    def ahead(
        self, cluster: Cluster, submitted: int, running: Ints, queued: Ints, arrivals: int, *, batch: bool
    ) -> Ahead:
        """Returns a replay with space for arrivals, valid until the next call.

        Args:
            cluster: The cluster, of whose jobs the first `submitted` ones are known.
            submitted: Number of jobs that have been submitted.
            running: Running jobs in order of their starts.
            queued: Queued jobs in order of submission.
            arrivals: Number of jobs that arrive in a scenario.
            batch: One scheduling pass per instant behind the present one; otherwise one per event.
        """
        if len(self._replay.machine.log) < 2 * (submitted + arrivals):
            self._known, self._replay = 0, self._with_space(2 * (submitted + arrivals))
        replay, queue, jobs = self._replay, scored_queue(self._replay), columns_of(cluster.workload)
        # Behind the jobs that were known there are arrivals of the last call.
        new, columns = slice(self._known, submitted), replay.machine.jobs
        for column, known in zip((queue.submission, columns.requested, columns.size), jobs, strict=False):
            column[new] = known[new]
        latest = queue.latest
        if follows_like_jobs(self._backfill):
            expected = _expected_of(jobs, cluster)
            expected.note(cluster)
            # Kinds have other numbers when jobs have been added.
            queue.kind[:submitted], latest = jobs.kind[:submitted], expected.latest
        queue.sums[self._known : submitted + 1] = jobs.sums[self._known : submitted + 1]
        self._known = submitted
        queue.errors[:] = self._checks.at(submitted, jobs, cluster)[1]
        coming = np.arange(submitted, submitted + arrivals)
        queue = queue._replace(latest=np.empty_like(latest))
        arriving = np.empty(len(queued) + arrivals, np.int64)
        replay = replay._replace(scored=queue).with_arrivals(arriving, columns.arrival)
        return Ahead(replay.under(batch=batch), replay, queue, np.concatenate([running, queued, coming]), latest)

    def _with_space(self, count: int) -> Replay:
        size, kind = np.zeros(count, np.int64), np.full(count, -1)
        blank = Jobs(np.zeros(count), np.zeros(count), size, np.zeros((count + 1, SUMS)), kind)
        replay = make_replay(
            blank,
            np.zeros(count),
            self._networks,
            self._cores,
            np.zeros(0, np.int64),
            backfill=self._backfill,
            commit=self._commit,
            errors=np.zeros(2),
        )
        return replay.with_arrivals(np.zeros(0, np.int64), np.zeros(count))


class Expected:
    """Columns of the jobs of a cluster in which queued jobs request what is expected of them.

    Attributes:
        jobs: The columns.
        latest: (K, 6) the last two jobs of each kind that have ended, see :mod:`hdsim.scheduling.learned.like_jobs`.

    Args:
        jobs: The columns.
        numbers: (J,) numbers of the jobs in the cluster, ascending.
    """

    def __init__(self, jobs: Jobs, numbers: Ints) -> None:
        self.jobs = jobs
        self._numbers, self.latest = numbers, make_latest(jobs.kind)
        # Jobs that have started and are not known to have ended, and the starts that are known.
        self._open: dict[int, None] = {}
        self._started: dict[int, float] = {}

    @cached_property
    def _columns(self) -> Jobs:
        return self.jobs._replace(requested=self.jobs.requested.copy(), sums=self.jobs.sums.copy())

    def after_like_jobs(self, queued: Ints, cluster: Cluster) -> Jobs:
        """Returns the columns with times after those of ended like jobs; see :func:`expect`."""
        if not len(self.latest):
            return self.jobs
        self.note(cluster)
        kind, requested, found = self.jobs.kind, self.jobs.requested, self._columns
        expect(queued, len(queued), kind, self.latest, requested, found.requested, found.sums[:, LOG_TIME])
        return found

    def note(self, cluster: Cluster) -> None:
        """Takes note of the jobs that have ended."""
        if not len(self.latest):
            return
        # The latest starts are the last ones; a job that was interrupted has started anew.
        for job in reversed(cluster.placements):
            if self._started.get(job) == cluster.starting_time[job]:
                break
            self._open[job] = None
        for job in list(self._open):
            start, finish = cluster.starting_time[job], cluster.finish_time[job]
            self._started[job] = start
            if job not in cluster.running and finish <= cluster.now:
                note_end(self.latest, self.jobs.kind, int(self._numbers.searchsorted(job)), start, finish)
                del self._open[job]

    def predicted(self, queued: Ints, workload: Workload) -> Jobs:
        """Returns the columns with the requested times of a workload, which are predictions of the agent."""
        found, times = self._columns, workload.requested_time[self._numbers[queued]]
        found.requested[queued] = times
        found.sums[queued, LOG_TIME] = np.log(np.maximum(times, 1.0))
        return found


#: Columns of the jobs of each cluster whose queue is scored.
_EXPECTED: WeakKeyDictionary[Cluster, Expected] = WeakKeyDictionary()
#: The checks of each cluster whose queue is scored, by rule and network.
_CHECKS: WeakKeyDictionary[Cluster, dict[tuple[str, int, bool], Checks]] = WeakKeyDictionary()


def scores(
    workload: Workload, queued: Ints, cluster: Cluster, network: str, backfill: str, commit_head: bool
) -> Floats:
    """Returns the (Q,) scores of the queued jobs."""
    running, cores = cluster.running, int(cluster.platform.n_cpu_cores)
    jobs, known, queued = _submitted(queued, cluster)
    # Algorithms without weights of their own, also those of one's own, count as EASY.
    rule = NUMBERS.get(backfill, NUMBERS["easy"])
    if all(rule != number for number, _ in RULES.values()):
        rule = NUMBERS["easy"]
    networks = read_networks(network, rule, commit_head)
    of_cluster, key = _CHECKS.setdefault(cluster, {}), (network, rule, commit_head)
    if key not in of_cluster:
        of_cluster[key] = Checks(networks, cores, rule, commit_head)
    checks = of_cluster[key]
    followed, errors = checks.at(int(queued[-1]) + 1, jobs, cluster, known)
    if workload is not cluster.workload or follows_like_jobs(rule):
        jobs = _expected(jobs, known, workload, queued, cluster)
    begins = [cluster.starting.get(job, cluster.starting_time[job]) for job in running]
    ends = np.array([t + cluster.estimate(job, running[job]) for t, job in zip(begins, running, strict=True)], float)
    held = np.fromiter(running, np.int64, len(running))
    order = np.lexsort((held, ends))
    sizes = np.array([cluster.size[job] for job in running], float)
    releases = Releases(ends[order], held[order], sizes[order], np.array([len(held)]))
    result = np.empty(len(queued))
    learned_scores(
        networks[followed],
        float(cores),
        rule,
        float(cluster.now),
        float(cluster.n_idle),
        queued,
        len(queued),
        *jobs[:4],
        errors,
        releases,
        result,
    )
    return result


def _expected(jobs: Jobs, known: slice | Ints, workload: Workload, queued: Ints, cluster: Cluster) -> Jobs:
    """Returns the columns of the jobs in which queued jobs request what is expected of them."""
    expected = Expected(jobs, known) if isinstance(known, np.ndarray) else _expected_of(jobs, cluster)
    if workload is not cluster.workload:
        return expected.predicted(queued, workload)
    return expected.after_like_jobs(queued, cluster)


def _expected_of(jobs: Jobs, cluster: Cluster) -> Expected:
    """Returns what is expected of all jobs of a cluster."""
    if cluster not in _EXPECTED or _EXPECTED[cluster].jobs is not jobs:
        _EXPECTED[cluster] = Expected(jobs, np.arange(len(jobs.size)))
    return _EXPECTED[cluster]


def _submitted(queued: Ints, cluster: Cluster) -> tuple[Jobs, slice | Ints, Ints]:
    """Returns what the network sees of the jobs, which jobs these are, and the places of the queued ones among them.

    In a fork with drawn arrivals, the jobs of the trace that have not come yet are before those that arrive.
    """
    workload, last = cluster.workload, int(queued[-1]) + 1
    if FinalState.NOT_SUBMITTED not in cluster.state[max(last - PAST, 0) : last]:
        return columns_of(workload), slice(None), queued
    known = np.flatnonzero([state != FinalState.NOT_SUBMITTED for state in cluster.state])
    seen = Jobs.of(
        workload.submission_time[known],
        workload.requested_time[known],
        workload.requested_cores[known],
        workload.user[known],
    )
    return seen, known, np.searchsorted(known, queued)
