"""Usage of the accounts and users of a site until a moment: by its log, or as sshare prints it."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hdsim.errors import ConfigError
from hdsim.site.accounts import Used, accounts_of
from hdsim.site.beginning import jobs_from, recorded_times
from hdsim.site.formats import parse_date, printed_rows, read_value
from hdsim.site.jobs_table import jobs_table
from hdsim.site.scheduler import SlurmScheduler
from hdsim.site.workload import columns_of, names

if TYPE_CHECKING:
    from hdsim.site.model import Site
    from hdsim.workload.model import Workload

_log = logging.getLogger(__name__)


class RecordedUsage:
    """Usage of the associations and the limits of a site by the recorded jobs of a log, with decay.

    Args:
        site: The site.
        workload: Its jobs, with the columns ``recorded_start``, ``recorded_end`` and, for the number of nodes,
            ``recorded_nodes``.

    Raises:
        WorkloadError: There are no recorded starts, or a job asks for something that the site lacks.
    """

    def __init__(self, site: Site, workload: Workload) -> None:
        self._times = recorded_times(workload)
        table = jobs_table(columns_of(workload), site, workload.source)
        begin = float(table.submitted[0])
        scheduler = SlurmScheduler(site, table, begin)
        multifactor = scheduler.multifactor
        self._share = None if multifactor is None else multifactor.fair_share
        self._decay = site.priority.decay_half_life
        self._begin = begin
        if multifactor is None or self._share is None:
            return
        billing, nodes = self._share.billing, table.demands.least
        held = workload.requested_cores * table.per_counted
        ran = np.flatnonzero(~np.isnan(self._times.start))
        place = {name: row for row, name in enumerate(site.partitions)}
        partition = [place.get(str(name), -1) for name in names(workload, "partition")]
        entry = table.first_entry.copy()
        for job in ran.tolist():
            if partition[job] in table.partitions[job]:
                entry[job] += table.partitions[job].index(partition[job])
            own = int(table.entry_partition[entry[job]])
            multifactor.start(job, own, 0.0, int(nodes[job]), int(held[job]))
        self._rate, self._factor = billing.rate * billing.factor, billing.factor
        self._row = billing.association
        quotas = scheduler.limits.quotas
        first, last = quotas.first_spent[entry[ran]], quotas.first_spent[entry[ran] + 1]
        taken = np.concatenate([np.arange(*ends) for ends in zip(first, last, strict=True)] or [first])
        self._metered = np.repeat(ran, last - first)
        self._meter, self._lasting = quotas.meter[taken], quotas.lasting
        fixed, per_cpu, per_node = quotas.rate_fixed[taken], quotas.rate_per_cpu[taken], quotas.rate_per_node[taken]
        self._amount = fixed + per_cpu * held[self._metered] + per_node * nodes[self._metered]
        self._keys = {key: number for key, number in scheduler.limits.meters.items() if quotas.uses[number]}

    def at(self, now: float) -> Used | None:
        """Returns what root, the associations and limits have used, None without fair shares.

        A second that is t seconds old counts (1 - 0.693 / PriorityDecayHalfLife)^t, integrated over the runs.

        Args:
            now: Seconds since 1970.
        """
        if self._share is None:
            return None
        start, end = self._times.start, np.minimum(self._times.end, now)
        first = self._share.last_reset(self._begin, now)
        ran = np.fmax(end - start, 0.0)
        young, old = now - end, now - np.maximum(start, first)
        rate = -math.log1p(-0.693 / self._decay) if 0 < self._decay < math.inf else 0.0
        with np.errstate(over="ignore", invalid="ignore"):  # of jobs that come later
            seconds = (np.exp(-rate * young) - np.exp(-rate * old)) / rate if rate > 0.0 else old - young
        seconds = np.where(old > young, seconds, 0.0)
        tree = self._share.tree
        used = np.zeros(len(tree.above))
        rows = np.flatnonzero((old > young) & (self._row >= 0))
        np.add.at(used, self._row[rows], seconds[rows] * self._rate[rows])
        for row in range(len(used) - 1, 0, -1):  # each row comes after the one above it
            used[tree.above[row]] += used[row]
        counted = np.where(self._lasting[self._meter], ran[self._metered], seconds[self._metered])
        spent = np.zeros(len(self._lasting))
        np.add.at(spent, self._meter, counted * self._factor[self._metered] * self._amount)
        return Used(used, {key: float(spent[number]) for key, number in self._keys.items()})


def limits_usage(site: Site) -> bool:
    """Whether a site enforces limits of what was used, of which ``sshare`` tells nothing."""
    accounts = accounts_of(site)
    every = [*(one.limits for one in site.qos.values()), *(one.limits for one in accounts.rows)]
    return site.slurm.enforces_limits and any(one.grp_tres_mins or one.grp_wall < math.inf for one in every)


def read_usage(path: Path, site: Site) -> Used:
    """Returns what root and the associations have used from what ``sshare -a -P`` prints, nothing of limits.

    Associations that are not in the file have used nothing, which is logged.

    Raises:
        ConfigError: The file cannot be read, has no such columns, or has none of the associations of the site.
    """
    found: dict[tuple[str, str], float] = {}
    expected = "the columns Account, User and RawUsage, as 'sshare -a -P' prints"
    for row, where in printed_rows(path, ("ACCOUNT", "USER", "RAWUSAGE"), expected):
        if not row["ACCOUNT"]:
            continue
        if not row["RAWUSAGE"].isdecimal():
            raise ConfigError(f"RawUsage: expected a number, got '{row['RAWUSAGE']}'", where=where)
        found[row["ACCOUNT"], row["USER"]] = float(row["RAWUSAGE"])
    rows = [(one.account, one.user) for one in accounts_of(site).rows]
    if not set(rows[1:]) & set(found):
        raise ConfigError("expected accounts and users of the site, got none of them", where=str(path))
    missing = [row for row in rows if row not in found]
    if missing:
        told = "%s: %d of %d accounts and users of the site are not in it, such as %s; they count as unused"
        _log.warning(told, path, len(missing), len(rows), " ".join(missing[0]).strip())
    return Used(np.array([found.get(row, 0.0) for row in rows]))


def part_of_log(site: Site, log: Workload, begin: str | None, end: str | None, usage: str | Path | None) -> Workload:
    """Returns the jobs of a part of a site's log, with what accounts had used before it.

    Args:
        site: The site.
        log: Its jobs.
        begin: Time in the zone of the site, from which on the jobs are those of :func:`hdsim.site.beginning.jobs_from`;
            None for the first job of the log and an empty machine.
        end: Jobs that were submitted from this time on are left out; None for none.
        usage: File of ``sshare -a -P`` with the usage of accounts at the begin; None for that of the log before.

    Raises:
        ConfigError: A time or the file has another form, or no job is left.
        WorkloadError: There are no recorded starts where they are needed.
    """

    def read(key: str, text: str) -> float:
        return float(read_value(text, lambda value: parse_date(value, site.time_zone), key))

    used = None if usage is None else read_usage(Path(usage), site)
    jobs = log
    if begin is not None:
        at = read("begin", begin)
        jobs = jobs_from(log, at)
        counted = RecordedUsage(site, log).at(at)
        used = counted if used is None or counted is None else replace(counted, billing=used.billing)
    if end is not None:
        rows = np.flatnonzero(jobs.original_submission_time < read("end", end))
        if not len(rows):
            raise ConfigError(f"expected a time after the first submission, got '{end}'", where="end")
        jobs = replace(jobs, **jobs.columns_at(rows))
    return replace(jobs, used=used)
