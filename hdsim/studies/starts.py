"""When jobs of a site will start: scenarios of run times and arrivals, and how well they agree with the log."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

import numpy as np

from hdsim.agents.slurm import SlurmAgent
from hdsim.errors import ConfigError, WorkloadError
from hdsim.platform.model import Platform
from hdsim.simulation.simulation import Simulation
from hdsim.site.accounts import Used
from hdsim.site.beginning import Times, recorded_times, resume, running_at_begin
from hdsim.site.formats import time_zone
from hdsim.site.held import held_at
from hdsim.site.intervals import LEVELS, Calibration, Samples, Score, calibration_of, scenario_quantiles, score
from hdsim.site.jobs_table import jobs_table
from hdsim.site.model import Site
from hdsim.site.platform import platform_document
from hdsim.site.runtimes import RunTimes, remaining
from hdsim.site.scheduler import SlurmScheduler
from hdsim.site.usage import RecordedUsage
from hdsim.site.workload import HELD, QUEUED, RUNNING, columns_of, names
from hdsim.util.arrays import Floats, Ints, read_only
from hdsim.workload.model import COLUMNS, Workload

_DAY, _WEEK = 86_400.0, 7 * 86_400.0
#: Weeks before a moment from which arrivals are drawn.
_WEEKS = 6
#: First horizon of scenarios in seconds, by what it grows until the jobs have started, and the longest one.
_HORIZON, _GROWTH, _LONGEST = _DAY / 2, 6.0, 8 * _DAY
#: First seconds to simulate before looking whether the jobs have started.
_STEP = 900.0
#: Days in which the pace of a user's starts is counted.
_PACE = 3 * _DAY


@dataclass(frozen=True)
class Log:
    """The jobs of a site's log.

    Attributes:
        site: The site.
        jobs: Its jobs with recorded starts and ends.
    """

    site: Site
    jobs: Workload
    times: Times = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "times", recorded_times(self.jobs))

    @cached_property
    def period(self) -> tuple[float, float]:
        """First submission and last recorded event in seconds since 1970."""
        times = self.times
        last = np.nanmax(np.concatenate([times.submitted, times.start, times.end]))
        return float(times.submitted[0]), float(last)

    @cached_property
    def platform(self) -> Platform:
        """The platform of the site."""
        return Platform.from_dict(platform_document(self.site), self.site.name)

    @cached_property
    def runtimes(self) -> RunTimes:
        """Run times of ended jobs."""
        return RunTimes(self.jobs, self.times)

    @cached_property
    def usage(self) -> RecordedUsage:
        """Usage of accounts."""
        return RecordedUsage(self.site, self.jobs)

    @cached_property
    def users(self) -> np.ndarray:
        """(J,) names of the users."""
        return np.array([str(name) for name in names(self.jobs, "user")])


@dataclass(frozen=True)
class Present:
    """The jobs that run and wait at a moment.

    Attributes:
        jobs: The jobs, with the columns of :mod:`hdsim.site.beginning`; their limits are `requested_time`.
        at: The moment in seconds since 1970.
    """

    jobs: Workload
    at: float

    @property
    def since(self) -> Floats:
        """(J,) starts in seconds since 1970, NaN of waiting jobs."""
        return np.asarray(self.jobs.further[RUNNING], np.float64)


def without_place(log: Log, present: Present) -> list[str]:
    """Returns the ids of jobs that run on nodes without a free CPU, which scenarios are without."""
    table = jobs_table(columns_of(present.jobs), log.site, present.jobs.source)
    _, left = resume(SlurmScheduler(log.site, table, present.at), running_at_begin(present.jobs))
    return [str(present.jobs.job_id[job]) for job in left]


@dataclass(frozen=True)
class Starts:
    """Starts of some jobs in scenarios.

    Attributes:
        waits: (N, k) seconds from the moment to the starts, infinite for jobs that do not start within the scenarios.
        reasons: (k,) how often each reason was the last one before the start.
        longest: Length of the scenarios in seconds.
    """

    waits: Floats
    reasons: list[Counter[str]]
    longest: float

    def quantiles(self) -> Floats:
        """Returns the (k, 3) quantiles of `LEVELS`; jobs that do not start count as if they did at the end."""
        return np.quantile(np.minimum(self.waits, self.longest), LEVELS, axis=0).T


def present_of(log: Log, at: float) -> tuple[Present, Ints]:
    """Returns the jobs that run and wait at a moment of a log, as far as they were known then, and their rows.

    Raises:
        WorkloadError: There are none.
    """
    times = log.times
    runs, waits = times.runs(at), times.waits(at)
    rows = np.flatnonzero(runs | waits)
    if not len(rows):
        raise WorkloadError("expected jobs that run or wait at this moment, got none", where=log.jobs.source)
    columns = log.jobs.columns_at(rows)
    start = np.where(runs[rows], times.start[rows], math.nan)
    columns["further"] |= {RUNNING: read_only(start), QUEUED: read_only(times.submitted[rows])}
    held, cpus = held_at(log.site, log.jobs, times, at), np.full(len(rows), None, object)
    for place, row in enumerate(rows.tolist()):
        cpus[place] = held.get(row)
    columns["further"][HELD] = read_only(cpus)
    return Present(_unknown(dataclasses.replace(log.jobs, **columns), at, np.zeros(len(rows))), at), rows


def with_job(log: Log, at: float, job: Workload) -> Present:
    """Returns the jobs that run and wait at a moment of a log, and one that is submitted then, the last one."""
    if not (log.times.runs(at) | log.times.waits(at)).any():
        return Present(job, at)
    jobs = joined(present_of(log, at)[0].jobs, job)
    return Present(dataclasses.replace(jobs, names=job.names), at)


def _unknown(jobs: Workload, at: float, later: Floats) -> Workload:
    """Returns jobs that come some seconds after a moment, without what the log knows of their ends."""
    count = len(jobs)
    nothing = read_only(np.full(count, math.nan))
    further = {**jobs.further, "recorded_start": nothing, "recorded_end": nothing}
    moved = np.where(later > 0, at + later - jobs.original_submission_time, 0.0)
    for name in {"eligible", "begin"} & set(further):
        further[name] = read_only(np.asarray(further[name], np.float64) + moved)
    return dataclasses.replace(
        jobs,
        submission_time=read_only(later),
        original_submission_time=read_only(at + later),
        status=read_only(np.full(count, -1)),
        return_code=read_only(np.zeros(count, np.int64)),
        walltime=read_only(np.full(count, math.inf)),
        further=further,
    )


def joined(first: Workload, second: Workload) -> Workload:
    """Returns the jobs of two workloads with the same names, those of the second one after those of the first one."""
    columns: dict[str, Any] = {
        key: read_only(np.concatenate([getattr(first, key), getattr(second, key)])) for key in COLUMNS
    }
    further = {}
    for name in {**first.further, **second.further}:
        parts = []
        for one, other in ((first, second), (second, first)):
            column = one.further.get(name)
            if column is None:
                empty: Any = math.nan if other.further[name].dtype.kind in "fiub" else None
                column = np.full(len(one), empty, None if empty is not None else object)
            parts.append(column)
        further[name] = read_only(np.concatenate(parts))
    return dataclasses.replace(first, **columns, further=further)


def past_periods(log: Log, at: float) -> tuple[float, range]:
    """Returns the length of the periods before a moment whose arrivals are drawn, and how many lengths ago they began.

    They are weeks, or days where the log before the moment has less than a week. Those that begin after the log or
    miss more than a seventh of it at its end are left out.
    """
    submitted = log.times.submitted
    first, last = float(submitted[0]), float(submitted[-1])
    length = _WEEK if min(at, last) - first >= _WEEK else _DAY
    nearest = 1 + max(math.ceil((at - last) / length - 1 / 7), 0)
    most = int((at - first) // length)
    return length, range(nearest, min(most, nearest + _WEEKS - 1) + 1)


def drawn_periods(back: range, number: int, count: int, rng: np.random.Generator) -> Ints:
    """Returns the (N, p) past periods whose jobs come in a number of scenarios, for each of their p periods.

    Each of a column is there as often as any other, or once more: a median of scenarios whose periods are drawn
    independently varies more.
    """
    if not back:
        return np.zeros((number, 0), np.int64)
    turns = math.ceil(number / len(back))
    return rng.permuted(np.tile(back, (count * turns, 1)), axis=1).reshape(count, -1)[:, :number].T


def scenario(
    log: Log, present: Present, horizon: float, rng: np.random.Generator, periods: Sequence[int] = ()
) -> Workload:
    """Returns the jobs of a scenario from a moment on, which is time 0.

    Run times are drawn from the pasts of the users, as far as a job has not run longer already. The jobs that come are
    those of past periods, at the same time of the week (day).

    Args:
        log: The log; of it only what was before the moment is used.
        present: The jobs that run and wait.
        horizon: Seconds in which jobs come.
        rng: Random numbers.
        periods: How many lengths of a period before the moment each of the past ones began, see `past_periods`.
    """
    at = present.at
    length, _ = past_periods(log, at)
    drawn = remaining(log.runtimes, present.jobs, present.since, at, rng, range(len(present.jobs)))
    jobs = present.jobs.replaced(runtime=drawn)
    for number, back in enumerate(periods):
        begin = at - back * length
        end = begin + min(length, horizon - number * length)
        if end <= begin:
            break
        first, last = np.searchsorted(log.times.submitted, [begin, end], side="right").tolist()
        # Jobs that left the queue without a start are none, as far as that was known.
        started, left = log.times.start[first:last] <= at, log.times.end[first:last] <= at
        rows = np.flatnonzero(started | ~left) + first
        if len(rows):
            jobs = joined(jobs, _coming(log, rows, at, begin - number * length, rng))
    return jobs


def _coming(log: Log, rows: Ints, at: float, begin: float, rng: np.random.Generator) -> Workload:
    """Returns jobs of a log that come as long after a moment as they came after `begin`."""
    jobs = dataclasses.replace(log.jobs, **log.jobs.columns_at(rows))
    runtime = np.array(jobs.runtime)
    unknown = np.flatnonzero(~(log.times.end[rows] <= at))
    if len(unknown):
        none = np.full(len(rows), math.nan)
        runtime[unknown] = remaining(log.runtimes, jobs, none, at, rng, unknown.tolist())
    ids = np.array([f"past-{name}" for name in jobs.job_id.tolist()], object)
    none, texts = read_only(np.full(len(rows), math.nan)), read_only(np.full(len(rows), None, object))
    own = {RUNNING: none, QUEUED: none, HELD: texts, "recorded_nodes": texts, "dependency": texts}
    jobs = dataclasses.replace(jobs, further={**jobs.further, **own}, job_id=read_only(ids))
    return _unknown(jobs.replaced(runtime=runtime), at, log.times.submitted[rows] - begin)


def planned(present: Present) -> Workload:
    """Returns the jobs of a moment with their time limits as run times: what ``squeue --start`` knows."""
    limit, since = np.asarray(present.jobs.requested_time), present.since
    left = np.where(np.isnan(since), limit, np.maximum(limit - (present.at - since), 1.0))
    return present.jobs.replaced(runtime=left)


def starts_of(
    log: Log, jobs: Workload, targets: Sequence[int], usage: Used | None, horizon: float
) -> tuple[Floats, list[str]]:
    """Returns when some jobs start under the rules of a site, and the last reasons why not earlier.

    Args:
        log: Site and platform.
        jobs: The jobs.
        targets: The (k,) jobs.
        usage: Usage of the accounts at time 0.
        horizon: Seconds after which the simulation ends.

    Returns:
        (k,) seconds, infinite for jobs that do not start, and (k,) reasons in Slurm's words.
    """
    agent = SlurmAgent(log.site)
    agent.names_nodes = False
    # A job that fits on no nodes has the reason BadConstraints, which a warning of each scenario would repeat.
    simulation = Simulation(log.platform, dataclasses.replace(jobs, used=usage), agent, tells_infeasible=False)
    until = min(_STEP, horizon)
    while simulation.run_until(until) and until < horizon:
        starts = [simulation.cluster.starting_time[job] for job in targets]
        if not any(math.isnan(start) for start in starts):
            break
        until = min(1.25 * until + _STEP, horizon)
    found = np.array([simulation.cluster.starting_time[job] for job in targets])
    reasons = simulation.cluster.columns["reason"]
    return np.where(np.isnan(found), math.inf, found), [reasons[job] or "None" for job in targets]


def scenarios(
    log: Log,
    present: Present,
    targets: Sequence[int],
    number: int,
    seed: Sequence[int],
    longest: float = _LONGEST,
) -> Starts:
    """Returns when some of the jobs of a moment start in a number of scenarios, each with a seed of its own.

    Args:
        log: The log.
        present: The jobs that run and wait.
        targets: The jobs.
        number: Number of scenarios.
        seed: Seed.
        longest: Seconds after which scenarios end.
    """
    waits, reasons = [], [Counter[str]() for _ in targets]
    horizon, usage = min(_HORIZON, longest), log.usage.at(present.at)
    length, back = past_periods(log, present.at)
    periods = drawn_periods(back, number, math.ceil(longest / length), np.random.default_rng([*seed, number]))
    for place in range(number):
        while True:
            rng = np.random.default_rng([*seed, place])
            jobs = scenario(log, present, horizon, rng, periods[place].tolist())
            found, words = starts_of(log, jobs, targets, usage, horizon)
            if not np.isinf(found).any() or horizon >= longest:
                break
            horizon = min(horizon * _GROWTH, longest)
        waits.append(found)
        for counts, word in zip(reasons, words, strict=True):
            counts[word] += 1
    return Starts(np.array(waits), reasons, longest)


def pace(log: Log, at: float, user: str, ahead: int) -> float:
    """Returns the seconds in which a number of jobs of a user start, and one more, if they start as in the last days.

    Without a start it is as if one had started.
    """
    times = log.times
    lately = (times.start <= at) & (times.start > at - _PACE) & (log.users == user)
    return (ahead + 1) * _PACE / max(int(lately.sum()), 1)


def features(log: Log, present: Present, job: int, quantiles: Floats, plan: float) -> list[float]:
    """Returns the features of a waiting job, see :class:`hdsim.site.intervals.Samples`.

    Args:
        log: The log.
        present: The jobs that run and wait.
        job: The job.
        quantiles: (3,) quantiles of the scenarios in seconds.
        plan: Wait in seconds in the plan with requested times.
    """
    users = names(present.jobs, "user")
    queued = np.asarray(present.jobs.further[QUEUED], np.float64)
    own = np.array([user == users[job] for user in users]) & np.isnan(present.since)
    ahead = int((own & (queued < queued[job])).sum())
    waited = present.at - float(queued[job])
    return [*quantiles.tolist(), plan, waited, pace(log, present.at, str(users[job]), ahead)]


def plan_of(log: Log, present: Present, targets: Sequence[int]) -> tuple[Floats, list[str]]:
    """Returns the waits in the plan with requested times and the reasons why not earlier; see `starts_of`."""
    jobs = planned(present)
    return starts_of(log, jobs, targets, log.usage.at(present.at), float(np.sum(jobs.runtime)) + _DAY)


def sample(
    log: Log, at: float, number: int, jobs: int, longest: float, seed: Sequence[int]
) -> tuple[Floats, Floats, list[str], int]:
    """Returns features and recorded waits of some jobs that wait at a moment of the log.

    The jobs are of as many users as there are; jobs that never started or were not eligible are none of them.

    Args:
        log: The log.
        at: The moment in seconds since 1970.
        number: Number of scenarios.
        jobs: Most jobs.
        longest: Seconds after which scenarios end.
        seed: Seed of the choice and of the scenarios.

    Returns:
        (S, 6) features, (S,) recorded waits from the moment on, (S,) names of partitions, and the number of running
        jobs that the scenarios are without.
    """
    times = log.times
    waiting = np.flatnonzero(times.waits(at) & ~np.isnan(times.start))
    if "eligible" in log.jobs.further:
        waiting = waiting[~(np.asarray(log.jobs.further["eligible"], np.float64)[waiting] > at)]
    if not len(waiting):
        return np.zeros((0, 6)), np.zeros(0), [], 0
    rng = np.random.default_rng(seed)
    mixed = rng.permutation(waiting)
    seen: Counter[str] = Counter()
    turn = []
    for user in log.users[mixed].tolist():
        turn.append(seen[user])
        seen[user] += 1
    chosen = mixed[np.argsort(turn, kind="stable")][:jobs]
    present, rows = present_of(log, at)
    targets = np.searchsorted(rows, chosen).tolist()
    plan, _ = plan_of(log, present, targets)
    quantiles = scenarios(log, present, targets, number, seed, longest).quantiles()
    made = [features(log, present, job, quantiles[place], float(plan[place])) for place, job in enumerate(targets)]
    partitions = names(log.jobs, "partition")
    named = [str(partitions[row]) for row in chosen.tolist()]
    return np.array(made), times.start[chosen] - at, named, len(without_place(log, present))


@dataclass(frozen=True)
class Sampled:
    """Waits of a log at sampled moments.

    Attributes:
        samples: The waits.
        at: (S,) moments in seconds since 1970.
        partition: (S,) names of partitions.
        without_place: Number of running jobs that scenarios were without, over all moments.
    """

    samples: Samples
    at: Floats
    partition: np.ndarray
    without_place: int = 0


def moments_of(begin: float, weeks: int, each: int, seed: int) -> Floats:
    """Returns moments of some weeks in seconds since 1970, at random times in equal parts of the weeks."""
    rng = np.random.default_rng([seed, 1])
    parts = weeks * each
    return np.floor(begin + (np.arange(parts) + rng.random(parts)) * (_WEEK / each))


@dataclass(frozen=True)
class Checked:
    """Agreement of intervals with the last weeks of a log.

    Attributes:
        scores: Of each held-out week, of each partition in them, and of all.
        scenarios: Of all, with the quantiles of the scenarios as they are.
        calibration: The adjustment by all weeks.
    """

    scores: list[Score]
    scenarios: Score
    calibration: Calibration


def first_moment(log: Log, weeks: int) -> float:
    """Returns the begin of the weeks that a check of some weeks takes: as many before them, one between, and these.

    Raises:
        ConfigError: The log is too short.
    """
    submitted = log.times.submitted
    needed = 2 * weeks + 1
    last = float(submitted[-1])
    if last - float(submitted[0]) < (needed + 1) * _WEEK:
        have = (last - float(submitted[0])) / _WEEK
        raise ConfigError(
            f"expected a log of at least {needed + 1} weeks to check {weeks}, got {have:.1f}", where=log.jobs.source
        )
    return last - needed * _WEEK


def checked(found: Sampled, begin: float, weeks: int, zone: str) -> Checked:
    """Returns how well intervals hold in the last of some weeks.

    The interval of a week is adjusted on the weeks before it, the last one of them left out; starts that were not known
    at its begin count as if they were then.

    Args:
        found: Waits of the weeks of `first_moment`.
        begin: Begin of these.
        weeks: Number of weeks that are held out.
        zone: Time zone of the names of weeks.

    Raises:
        ConfigError: No jobs wait at the moments of the weeks.
    """
    samples, at = found.samples, found.at
    intervals = np.full((len(samples), 3), math.nan)
    scores = []
    for week in range(weeks + 1, 2 * weeks + 1):
        first = begin + week * _WEEK
        before, held = at < first - _WEEK, (at >= first) & (at < first + _WEEK)
        if not before.any():
            raise ConfigError("expected jobs that wait in the weeks before, got none", where="--weeks")
        if held.any():
            calibration = calibration_of(samples.known_at(first - at).select(before))
            intervals[held] = calibration.interval(samples.features[held])
            name = str(datetime.fromtimestamp(first, time_zone(zone)).date())
            scores.append(score(f"week {name}", intervals[held], samples.select(held)))
    held = ~np.isnan(intervals[:, 0])
    if not held.any():
        raise ConfigError("expected jobs that wait in the last weeks, got none", where="--weeks")
    for name in sorted(set(found.partition[held].tolist())):
        rows = held & (found.partition == name)
        scores.append(score(f"partition {name}", intervals[rows], samples.select(rows)))
    scores.append(score("all", intervals[held], samples.select(held)))
    plain = Calibration(scenario_quantiles(), (0.0, 0.0), 0).interval(samples.features[held])
    return Checked(scores, score("scenarios", plain, samples.select(held)), calibration_of(samples))


def as_queued(log: Log, present: Present, given: Floats) -> Present:
    """Returns jobs whose priorities are those that squeue printed, as far as it did, and later change as computed.

    The difference, such as that by usage before the log, is taken as a constant of each job, for jobs without a
    priority as the median one of their user.

    Args:
        log: The log.
        present: The jobs.
        given: (J,) priorities, NaN where there is none.
    """
    waits = np.flatnonzero(np.isnan(present.since))
    if log.site.priority.type != "multifactor" or np.isnan(given[waits]).all():
        return present
    table = jobs_table(columns_of(present.jobs), log.site, present.jobs.source)
    scheduler = SlurmScheduler(log.site, table, present.at)
    assert scheduler.multifactor is not None
    usage = log.usage.at(present.at)
    if usage is not None:
        scheduler.begin_with(usage)
    scheduler.multifactor.submit(waits, present.at)
    first = np.array([rows[0] for rows in table.partitions], np.int64)
    computed = np.full(len(given), math.nan)
    computed[waits] = scheduler.multifactor.factors(waits, first[waits]).total()
    nice = computed - given
    users = np.array([str(name) for name in names(present.jobs, "user")])
    for row in waits[np.isnan(nice[waits])].tolist():
        own = nice[(users == users[row]) & ~np.isnan(nice)]
        nice[row] = np.median(own) if len(own) else 0.0
    # A job that is asked for has the value of its own --nice beside that.
    nice = np.nan_to_num(nice) + np.where(np.isnan(given), table.nice, 0.0)
    further = {**present.jobs.further, "nice": read_only(nice)}
    return Present(dataclasses.replace(present.jobs, further=further), present.at)


_shared: list[Log] = []


def _share(log: Log) -> None:
    _shared[:] = [log]


def _one(arguments: tuple[Any, ...]) -> tuple[Floats, Floats, list[str], int]:
    return sample(_shared[0], *arguments)


def sampled(
    log: Log,
    at: Floats,
    number: int,
    jobs: int,
    seed: int,
    longest: float = _LONGEST,
    processes: int = 1,
    told: Callable[[int], None] = lambda done: None,
) -> Sampled:
    """Returns the waits of jobs at some moments of a log; see `sample`.

    Args:
        log: The log.
        at: (M,) moments in seconds since 1970.
        number: Number of scenarios.
        jobs: Most jobs at each.
        seed: Seed of everything random.
        longest: Seconds after which scenarios end.
        processes: Number of processes.
        told: Is given the number of moments that are done.
    """
    tasks = [(float(time), number, jobs, longest, (seed, place)) for place, time in enumerate(at.tolist())]

    def results() -> Iterator[tuple[Floats, Floats, list[str], int]]:
        if processes == 1:
            _share(log)
            yield from map(_one, tasks)
            return
        with ProcessPoolExecutor(processes, initializer=_share, initargs=(log,)) as pool:
            yield from pool.map(_one, tasks)

    made: list[tuple[Floats, Floats, list[str], int]] = []
    for one in results():
        made.append(one)
        told(len(made))
    counts = [len(one[1]) for one in made]
    moment = np.repeat(np.arange(len(made)), counts)
    found = Samples(moment, np.concatenate([one[0] for one in made]), np.concatenate([one[1] for one in made]))
    partitions = np.array([name for one in made for name in one[2]], object)
    return Sampled(found, at[moment], partitions, sum(one[3] for one in made))
