"""``hdsim when``: when a job of a Slurm site will start."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from hdsim.cli.parameters import FILE, FOLDER
from hdsim.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hdsim.site.intervals import Calibration, Score
    from hdsim.site.model import Site
    from hdsim.site.notes import Notes
    from hdsim.studies.starts import Log, Present

_DAY = 86_400.0
#: Most ids that are shown.
_SHOWN = 10
#: Most days of a scenario.
_MOST_DAYS = 60.0


@dataclasses.dataclass(frozen=True)
class _Options:
    """The options of `when`."""

    queue: Path | None
    nodes: Path | None
    job: str
    at: str | None
    check: bool
    weeks: int
    moments: int
    jobs: int
    scenarios: int | None
    days: float
    processes: int
    seed: int

    @property
    def longest(self) -> float:
        """Length of a scenario in seconds."""
        return self.days * _DAY


@click.command()
@click.argument("site", type=FOLDER)
@click.option("--queue", type=FILE, help="Output of squeue with the columns that docs/slurm.md lists.")
@click.option("--nodes", type=FILE, help="Output of sinfo: nodes out of service.")
@click.option("--job", default="", metavar="JOB", help="Id of a job that waits, or options of sbatch of a further one.")
@click.option("--at", metavar="TIME", help="The moment, where squeue does not tell it; without --queue one of the log.")
@click.option("--check", is_flag=True, help="Tell how well the answers hold in the last weeks of the log, and adjust.")
@click.option("--weeks", type=click.IntRange(1), default=4, show_default=True, help="Weeks that are held out.")
@click.option("--moments", type=click.IntRange(1), default=10, show_default=True, help="Moments checked in each week.")
@click.option("--jobs", type=click.IntRange(1), default=24, show_default=True, help="Most jobs checked at a moment.")
@click.option("--scenarios", type=click.IntRange(2), help="Number of scenarios  [default: 100, 12 with --check].")
@click.option("--days", type=click.FloatRange(0, min_open=True), default=8.0, show_default=True, help="Their length.")
@click.option("--processes", type=click.IntRange(1), default=1, show_default=True, help="Processes of --check.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of everything random.")
def when(site: Path, **options: Any) -> None:
    """Tell when a job will start on SITE, a folder of 'hdsim site import', and why not earlier.

    \b
    hdsim when lab --check
    hdsim when lab --queue squeue.txt --nodes sinfo.txt --job "-p main -n 16 -t 4:00:00 --uid=ann"
    hdsim when lab --queue squeue.txt --job 4711
    hdsim when lab --at 2026-03-02T10:00:00 --job "-n 16 -t 60"

    It simulates scenarios of the run times and of the jobs to come. --check writes when.json into SITE, by which later
    answers are adjusted. docs/slurm.md explains the numbers.
    """  # noqa: D301 - click reads the backspace character
    from hdsim.site.model import load_site
    from hdsim.site.notes import Notes
    from hdsim.site.workload import read_log
    from hdsim.studies.starts import Log
    from hdsim.util.plugins import optional

    for package in ("ClusterShell", "polars", "pydantic"):
        optional(package)
    given = _Options(**options)
    if given.check == bool(given.job):
        raise ConfigError("expected either --job or --check", where="hdsim when")
    if not given.days <= _MOST_DAYS:
        raise ConfigError(f"expected at most {_MOST_DAYS:g} days, got {given.days}", where="--days")
    rules, notes = load_site(site), Notes()
    if given.nodes is not None:
        rules = _with_nodes(rules, given.nodes, notes)
    log = Log(rules, read_log(site))
    if given.check:
        _check(log, site, given)
    else:
        _answer(log, site, given, notes)


def _with_nodes(site: Site, path: Path, notes: Notes) -> Site:
    """A site whose nodes are in service as sinfo says; nodes that it lacks are noted."""
    from hdsim.site.formats import expand_nodes, fold_nodes
    from hdsim.site.platform import nodes_of
    from hdsim.site.state import read_sinfo

    down, known = read_sinfo(path, notes), dict(nodes_of(site))
    listed = expand_nodes(down) if down else []
    unknown = [name for name in listed if name not in known]
    if unknown:
        notes.leave_out(path.name, f"nodes that the site lacks: {fold_nodes(unknown)}", count=len(unknown))
    kept = [name for name in listed if name in known]
    return site.model_copy(update={"down": fold_nodes(kept) if kept else ""})


def _check(log: Log, site: Path, given: _Options) -> None:
    from tqdm import tqdm

    from hdsim.studies.starts import checked, first_moment, moments_of, sampled
    from hdsim.util.files import write_bytes

    weeks, seed = given.weeks, given.seed
    begin = first_moment(log, weeks)
    at = moments_of(begin, 2 * weeks + 1, given.moments, seed)
    with tqdm(total=len(at), unit="moment", disable=None, leave=False) as bar:
        settings = (given.scenarios or 12, given.jobs, seed, given.longest, given.processes)
        found = sampled(log, at, *settings, lambda done: _advance(bar, done))
    if not len(found.samples):
        raise ConfigError("expected jobs that wait in the last weeks of the log, got none", where=str(site))
    result = checked(found, begin, weeks, log.site.time_zone)
    table = [dataclasses.asdict(one) for one in (*result.scores, result.scenarios)]
    document = {**result.calibration.document(), "table": table, "without_place": found.without_place}
    path = site / "when.json"
    write_bytes(path, (json.dumps(document, indent=1) + "\n").encode(), ConfigError)
    click.echo(_table((*result.scores, result.scenarios)))
    if found.without_place:
        click.echo(f"\nleft out as their nodes were full: {found.without_place:,} jobs that ran, over all moments")
    click.echo(f"\nadjustment  {path}")


def _advance(bar: Any, done: int) -> None:
    bar.update(done - bar.n)


def _table(scores: Sequence[Score]) -> str:
    from hdsim.report.charts import duration
    from hdsim.util.text import format_table

    rows = [["held out", "waits", "in 80 % interval", "error of median", "of the plan", "ratio"]]
    for one in scores:
        ratio = f"{one.error / one.plan:.2f}" if one.plan > 0 else "-"
        cells = [str(one.waits), f"{one.coverage:.1%}", duration(one.error), duration(one.plan), ratio]
        rows.append([one.name, *cells])
    return format_table(rows)


def _answer(log: Log, site: Path, given: _Options, notes: Notes) -> None:
    from hdsim.report.charts import duration
    from hdsim.site.formats import date_text
    from hdsim.site.intervals import Calibration, scenario_quantiles
    from hdsim.site.workload import names
    from hdsim.studies.starts import features, plan_of, without_place
    from hdsim.studies.starts import scenarios as simulated

    scenarios, longest = given.scenarios or 100, given.longest
    adjustment = _adjustment(site / "when.json")
    present, target = _present(log, given, notes)
    if lost := without_place(log, present):
        told = f"jobs that run, as their nodes were full: {', '.join(lost[:_SHOWN])}{' ...' if lost[_SHOWN:] else ''}"
        notes.leave_out(str(given.queue or "log"), told, count=len(lost))
    plan, plan_reason = plan_of(log, present, [target])
    starts = simulated(log, present, [target], scenarios, (given.seed,), longest)
    quantiles = starts.quantiles()[0]
    own = np.array([features(log, present, target, quantiles, float(plan[0]))])
    plain = Calibration(scenario_quantiles(), (0.0, 0.0), 0)
    calibration = plain if adjustment is None else adjustment[0]
    late = quantiles >= longest
    # The record tells waits beyond the scenarios, but not that a rule forbids a start.
    unknown = late if adjustment is None else np.full(3, bool(late.all()) and not math.isfinite(plan[0]))
    low, median, high = np.where(unknown, math.inf, calibration.interval(own)[0]).tolist()

    def shown(wait: float) -> str:
        if not math.isfinite(wait):
            return "not within the simulated time"
        date = date_text(present.at + wait, log.site.time_zone)
        return f"{date} (in {duration(wait)})" if wait > 0 else date

    runs, asked = int((~np.isnan(present.since)).sum()), present.jobs
    cpus, limit = int(asked.requested_cores[target]), duration(float(asked.requested_time[target]))
    there = f"{runs} jobs run, {len(asked) - runs} wait"
    click.echo(f"job {asked.job_id[target]}: {cpus} CPUs, limit {limit}; {there} at {shown(0.0)}\n")
    qos = log.site.qos.get(str(names(asked, "queue")[target]))
    unplanned = "N/A (NoReserve); " if qos is not None and qos.has("NoReserve") else ""
    reasons = sorted(starts.reasons[0].items(), key=_most_first)
    raw = [f"over {duration(longest)}" if value >= longest else duration(value) for value in quantiles.tolist()]
    rows = [
        ("median", shown(median)),
        ("80 % interval", f"{shown(low)} to {shown(high)}"),
        ("not earlier because of", ", ".join(f"{word} {count / scenarios:.0%}" for word, count in reasons)),
        ("squeue --start", f"{unplanned}{shown(float(plan[0]))}, {plan_reason[0]}: with requested times"),
        (f"{scenarios} scenarios", f"10 %, 50 % and 90 % start in {', '.join(raw)}"),
    ]
    click.echo("\n".join(f"{name:22}  {text}" for name, text in rows))
    for file, word, reason, count, where in notes.rows():
        click.echo(f"\n{word}: {count} {reason} ({where or file})")
    behind = present.at - log.period[1]
    if behind > _DAY:
        click.echo(f"\nThe log ends {duration(behind)} before: jobs to come and run times are those of its last weeks.")
    if adjustment is None:
        told = f"no {site / 'when.json'} of 'hdsim when {site} --check'"
        click.echo(f"\nThe interval is that of the scenarios, not adjusted: {told}.")
    else:
        click.echo(f"\n{_table(adjustment[1])}")


def _most_first(item: tuple[str, int]) -> tuple[int, str]:
    return -item[1], item[0]


def _adjustment(path: Path) -> tuple[Calibration, list[Score]] | None:
    """The adjustment and the table of when.json, None if there is no such file."""
    from hdsim.site.intervals import Calibration, Score

    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigError(f"expected JSON as 'hdsim when SITE --check' writes: {error}", where=str(path)) from None
    if not isinstance(found, dict) or not isinstance(found.get("table"), list):
        raise ConfigError("expected a table and an adjustment as 'hdsim when SITE --check' writes", where=str(path))
    try:
        return Calibration.of_document(found), [Score.of_document(row) for row in found["table"]]
    except ValueError as error:
        raise ConfigError(str(error), where=str(path)) from None


def _present(log: Log, given: _Options, notes: Notes) -> tuple[Present, int]:
    """The jobs at the moment, with the one that is asked about, and its row."""
    from hdsim.site.formats import date_text, parse_date, read_value
    from hdsim.site.squeue import asked_job, jobs_of
    from hdsim.studies.starts import present_of, with_job

    job, zone = given.job, log.site.time_zone
    now = None if given.at is None else float(read_value(given.at, lambda text: parse_date(text, zone), "--at"))
    known = re.fullmatch(r"\d+(_\d+)?", job) is not None
    if given.queue is not None:
        return _queued(log, given.queue, job, now, notes, known=known)
    if now is None:
        raise ConfigError("expected --queue FILE, or --at TIME, a moment of the log", where="hdsim when")
    if not log.period[0] <= now <= log.period[1]:
        first, last = (date_text(end, zone) for end in log.period)
        raise ConfigError(f"expected a moment of the log, from {first} to {last}, got {given.at}", where="--at")
    if not known:
        asked = asked_job(job, log.site, now)
        present = with_job(log, now, jobs_of([asked], log.jobs, log.site, now, "--job"))
        return present, len(present.jobs) - 1
    present, _ = present_of(log, now)
    return present, _row(present, job, log.jobs.source)


def _queued(log: Log, queue: Path, job: str, at: float | None, notes: Notes, *, known: bool) -> tuple[Present, int]:
    """The jobs that squeue has printed, with the one that is asked about, and its row; others are noted."""
    from hdsim.site.squeue import ASKED, asked_job, jobs_of, note_unknown_nodes, read_squeue
    from hdsim.studies.starts import Present, as_queued

    jobs, found = read_squeue(queue, log.site.time_zone, notes)
    note_unknown_nodes(jobs, log.site, queue.name, notes)
    now = found if at is None else at
    if math.isnan(now):
        raise ConfigError("no running job with START_TIME and TIME tells the moment: expected --at", where=str(queue))
    if not known:
        jobs.append(asked_job(job, log.site, now))
    if not jobs:
        raise ConfigError("expected jobs that run or wait, got none", where=str(queue))
    jobs.sort(key=lambda one: one.submitted)
    present = Present(jobs_of(jobs, log.jobs, log.site, now, str(queue)), now)
    target = _row(present, job if known else ASKED, str(queue))
    priorities = np.array([one.priority for one in jobs])
    return as_queued(log, present, priorities), target


def _row(present: Present, job: str, source: str) -> int:
    ids = [str(one) for one in present.jobs.job_id.tolist()]
    if job not in ids or not math.isnan(present.since[ids.index(job)]):
        state = "it runs already" if job in ids else "there is none"
        raise ConfigError(f"expected a job that waits, got {job}: {state}", where=source)
    return ids.index(job)
