"""``hdsim whatif``: waits of a site's jobs under other rules."""

from __future__ import annotations

import dataclasses
import inspect
import multiprocessing
import sys
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from hdsim.cli.parameters import FILE, FOLDER, OUTPUT
from hdsim.errors import ConfigError, nearest
from hdsim.util.text import shown

if TYPE_CHECKING:
    from hdsim.report.whatif import Amount
    from hdsim.results.result import Result
    from hdsim.site.electricity import Electricity
    from hdsim.site.model import Site
    from hdsim.util.arrays import Floats
    from hdsim.workload.model import Workload

#: Jobs from which on a second process pays.
_MANY = 5_000


@click.command()
@click.argument("site", type=FOLDER)
@click.argument("changes", nargs=-1, metavar="[CHANGE]...")
@click.option(
    "--from",
    "begin",
    metavar="TIME",
    help="Begin at a time, such as 2026-03-09T08:00:00, with the jobs that ran and waited then, and usage until then.",
)
@click.option("--to", "end", metavar="TIME", help="Leave jobs out that were submitted from this time on.")
@click.option(
    "--usage",
    type=FILE,
    help="What accounts have used at the begin, as 'sshare -a -P' printed it  [default: that of the log before].",
)
@click.option("--html", type=OUTPUT, help="Write a page as well.")
def whatif(
    site: Path, changes: tuple[str, ...], begin: str | None, end: str | None, usage: Path | None, html: Path | None
) -> None:
    """Replay the jobs of SITE, a folder of 'hdsim site import', as it was and with changes, and compare waits.

    \b
    hdsim whatif lab
    hdsim whatif lab partition.long.max_time=24h slurm.bf_max_job_test=1000
    hdsim whatif lab nodes.gpu+=20 qos.high.priority=100 --html answer.html
    hdsim whatif lab reserve=n[1-4],start=2026-03-09T08:00:00,duration=7d,accounts=chem
    hdsim whatif lab power.cap=0.8 power.suspend=600 power.price=prices.csv
    hdsim whatif lab --from 2026-03-09 --to 2026-03-23 partition.long.max_time=24h

    Without changes it shows how well the simulation agrees with the record. docs/slurm.md explains the columns.
    """  # noqa: D301 - click reads the backspace character
    from hdsim.facility.model import KEYS
    from hdsim.power import PowerManagement
    from hdsim.report.whatif import Answer, text, write_page
    from hdsim.site.changes import changed
    from hdsim.site.electricity import assumed, electricity_of, with_power
    from hdsim.site.model import load_site
    from hdsim.site.waits import calibrate, comparable, groups_of, reserved, tables, winners
    from hdsim.site.workload import read_log
    from hdsim.util.plugins import optional

    for package in ("ClusterShell", "polars", "pydantic"):
        optional(package)
    keys = {"power": tuple(inspect.signature(PowerManagement).parameters)[1:], "facility": KEYS}
    rules, (of_site, electricity) = load_site(site), electricity_of(changes, keys)
    other = changed(rules, of_site) if of_site or electricity.power else None
    told_power = assumed(rules if other is None else other)
    if electricity:
        rules, other = with_power(rules), None if other is None else with_power(other)
    jobs = read_log(site)
    jobs, others, told = _window(rules, other, jobs, begin, end, usage)
    recorded = _recorded(jobs)
    changes_of_jobs = None if other is None else _in_reservations(others, rules, other)
    before, after = _replays(rules, jobs, other, changes_of_jobs, electricity)
    groups = groups_of(jobs, rules)
    series = {"recorded": recorded, "simulated": _waits(before)}
    calibration = calibrate(groups, recorded, series["simulated"])
    groups["reason"] = [str(word or "-") for word in before.columns["reason"].tolist()]
    told += _resumed(before)
    facts = {"begin": told, "mean wait": _means(series), "utilization": f"{before.metrics['utilization']:.3f}"}
    won: tuple[Any, Any] = ([], [])
    rejected: dict[str, int] = {}
    if after is not None:
        series = comparable({**series, "changed": _waits(after)})
        won = winners(jobs, series["simulated"], series["changed"])
        rejected = _rejected(before, after)
        if new := int((np.isnan(before.starting_time) & ~np.isnan(after.starting_time)).sum()):
            facts["run only after the changes"] = f"{new:,} (in no mean)"
        facts["begin"] += _resumed(after).replace("; ", "; with the changes ", 1)
        facts["mean wait"] = _means(series)
        facts["utilization"] += f" before, {after.metrics['utilization']:.3f} after"
    if told := reserved(rules if other is None else other, jobs):
        facts["reservations"] = told
    amounts = _amounts(before, after) if electricity or _has_power(before) else []
    if electricity and told_power:
        facts["power"] = told_power
    found = list(tables(groups, series))
    answer = Answer(rules.name, len(jobs), changes, calibration, found, won[0], won[1], rejected, facts, amounts)
    click.echo(text(answer))
    if html is not None:
        write_page(answer, html)
        click.echo(f"\npage  {html}")


def _replays(
    site: Site, jobs: Workload, other: Site | None, changed_jobs: Workload | None, electricity: Electricity
) -> tuple[Result, Result | None]:
    """Replays jobs as it was and, of many jobs in another process, with changes."""
    facility, power = electricity.facility, electricity.power
    if other is None or changed_jobs is None:
        return _replay(site, jobs, facility), None
    if len(jobs) < _MANY:
        return _replay(site, jobs, facility), _replay(other, changed_jobs, facility, power)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        later = pool.submit(_replay, other, changed_jobs, facility, power, shown=False)
        return _replay(site, jobs, facility), later.result()


def _window(
    site: Site, other: Site | None, log: Workload, begin: str | None, end: str | None, usage: Path | None
) -> tuple[Workload, Workload, str]:
    """The jobs of a part of the log for the site and for the changed one, and how the replay begins, in words."""
    from hdsim.site.usage import limits_usage, part_of_log
    from hdsim.site.workload import QUEUED, RUNNING

    try:
        jobs = part_of_log(site, log, begin, end, usage)
        counts = other is not None and (other.priority, other.qos, other.partitions, other.associations)
        same = not counts or counts == (site.priority, site.qos, site.partitions, site.associations)
        changed = jobs if same or other is None else part_of_log(other, log, begin, end, usage)
    except ConfigError as error:
        where = {"begin": "--from", "end": "--to"}.get(error.where or "", error.where)
        raise ConfigError(error.message, where=where) from None
    if begin is None:
        source = "no usage" if usage is None else f"usage of accounts as in {usage}"
        told = f"with the first job, an empty machine and {source}, by which the first days differ{_hint(site, log)}"
    else:
        runs = int((~np.isnan(jobs.further[RUNNING])).sum())
        waits = int((~np.isnan(jobs.further[QUEUED])).sum()) - runs
        source = "of the log before" if usage is None else f"as in {usage}"
        source = source if changed.used is not None or jobs.used is not None else "does not count"
        told = f"{begin} with {runs:,} jobs that run (left out of means) and {waits:,} that wait; usage {source}"
    if usage is not None and any(limits_usage(one) for one in (site, other) if one is not None):
        told += ", of GrpTRESMins and GrpWall that of the log before" if begin else ", but none of GrpTRESMins, GrpWall"
    return jobs, changed, told + (f"; jobs submitted before {end}" if end is not None else "")


def _resumed(result: Result) -> str:
    """Returns the numbers of running jobs that have no place at the begin and that are requeued, in words."""
    from hdsim.site.workload import RUNNING

    further = result.workload.further
    if RUNNING not in further:
        return ""
    runs = ~np.isnan(np.asarray(further[RUNNING], np.float64))
    lost = int((runs & np.isnan(result.starting_time)).sum())
    again = int((runs & (result.columns["restart"] > 0)).sum())
    told = f"; left out as their nodes were full: {lost:,} that ran" if lost else ""
    return told + (f"; requeued, for the run time left to them only: {again:,} that ran" if again else "")


def _hint(site: Site, jobs: Workload) -> str:
    """The first moment at which a log of the jobs that ran in a period has all jobs that run, as an option."""
    from hdsim.site.beginning import recorded_times
    from hdsim.site.formats import date_text

    if not {"recorded_start", "recorded_end"} <= set(jobs.further):
        return ""
    times = recorded_times(jobs)
    ended = times.end[~np.isnan(times.start) & ~np.isnan(times.end)]
    if not len(ended):
        return ""
    return f"; --from {date_text(float(ended.min()), site.time_zone)} begins with the jobs that ran then"


def _replay(
    site: Site,
    jobs: Workload,
    facility: Mapping[str, Any],
    power: Mapping[str, Any] | None = None,
    *,
    shown: bool = True,
) -> Result:
    from hdsim.agents.slurm import SlurmAgent
    from hdsim.platform.model import Platform
    from hdsim.simulation.simulation import simulate
    from hdsim.site.platform import platform_document

    platform = Platform.from_dict(platform_document(site), site.name)
    agent = SlurmAgent(site)
    agent.names_nodes = False
    managed = {"_target_": "hdsim.power.PowerManagement", **power} if power else "none"
    bar = shown and sys.stderr.isatty()
    return simulate(platform, jobs, agent, progress=bar, facility=facility or "none", power=managed)


def _has_power(result: Result) -> bool:
    return bool(result.platform.power.any() or result.platform.has_state_watts)


def _amounts(before: Result, after: Result | None) -> list[Amount]:
    """Energy, peak power, boots and costs of a replay without and with changes."""
    from hdsim.report.whatif import Amount
    from hdsim.results.metrics import full
    from hdsim.util.units import JOULES_PER_KWH

    def measured(result: Result) -> dict[str, float]:
        metrics = full(result)
        found = {
            "energy (kWh)": metrics["energy_joules"] / JOULES_PER_KWH,
            "peak power (kW)": metrics["peak_power_watts"] / 1000,
            "nodes off (node hours)": metrics.get("node_hours_off", 0.0),
            "boots": metrics.get("boots", 0.0),
        }
        for name, key, factor in (
            ("energy of the facility (kWh)", "facility_energy_kwh", 1.0),
            ("cost (EUR)", "cost_eur", 1.0),
            ("emissions (kgCO2)", "carbon_grams", 1e-3),
            ("time above the caps (h)", "seconds_above_cap", 1 / 3600),
        ):
            if metrics.get(key) is not None:
                found[name] = metrics[key] * factor
        return found

    old, new = measured(before), {} if after is None else measured(after)
    return [Amount(name, old.get(name, 0.0), new.get(name, float("nan"))) for name in {**old, **new}]


def _recorded(jobs: Workload) -> Floats:
    """(J,) recorded waits in seconds, NaN for jobs that did not start."""
    from hdsim.site.waits import waited_before

    if "recorded_start" not in jobs.further:
        return np.full(len(jobs), np.nan)
    start = np.asarray(jobs.further["recorded_start"], np.float64)
    return np.asarray(start - jobs.original_submission_time + waited_before(jobs))


def _waits(result: Result) -> Floats:
    from hdsim.site.waits import waited_before

    return np.asarray(result.starting_time - result.workload.submission_time + waited_before(result.workload))


def _means(series: dict[str, Floats]) -> str:
    from hdsim.report.charts import duration

    return ", ".join(
        f"{duration(float(np.nanmean(waits)))} {name}" for name, waits in series.items() if not np.isnan(waits).all()
    ) or ("of no job, as none runs before and after the changes" if "changed" in series else "of no job, as none runs")


def _rejected(before: Result, after: Result) -> dict[str, int]:
    """Reasons of the jobs that start without the changes and not with them."""
    lost = np.isnan(after.starting_time) & ~np.isnan(before.starting_time)
    return dict(Counter(reason or "rejected" for reason in after.columns["reason"][lost].tolist()).most_common())


def _in_reservations(jobs: Workload, before: Site, after: Site) -> Workload:
    """Returns jobs of which those of the users and accounts of new reservations ask for them while they last.

    As in slurmctld, an account stands for those below it, too.

    Raises:
        ConfigError: A reservation is for a user or an account that neither the log nor the associations have.
    """
    from hdsim.site.accounts import accounts_of
    from hdsim.site.workload import names

    new = {name: one for name, one in after.reservations.items() if name not in before.reservations}
    asked = np.array(jobs.further.get("reservation", np.full(len(jobs), None, object)), object)
    submitted, tree = jobs.original_submission_time, accounts_of(after)
    users, accounts = (np.array([str(name) for name in names(jobs, column)], object) for column in ("user", "group"))
    known = {
        "user": {*users.tolist(), *(row.user for row in tree.rows if row.user)},
        "account": {*accounts.tolist(), *(row.account for row in tree.rows)},
    }
    for name, one in new.items():
        for kind, given in (("user", one.users), ("account", one.accounts)):
            for wrong in sorted({*given} - known[kind]):
                told = f"expected {kind}s of the log or of the associations, got {shown(wrong)}"
                raise ConfigError(told + nearest(wrong, sorted(known[kind])), where=f"reservation {name}: {kind}s")
        if one.users or one.accounts:
            below = set(one.accounts)
            for row, above in zip(tree.rows[1:], tree.tree.above[1:].tolist(), strict=True):
                if not row.user and tree.rows[above].account in below:
                    below.add(row.account)
            own = np.isin(users, one.users) | np.isin(accounts, sorted(below))
            asked[own & (submitted >= one.start) & (submitted < one.end)] = name
    return dataclasses.replace(jobs, further={**jobs.further, "reservation": asked}) if new else jobs
