"""Usage of the accounts and users of a site until a moment: by its log, or as sshare prints it."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hdsim.errors import ConfigError
from hdsim.site.accounts import accounts_of
from hdsim.site.beginning import recorded_times
from hdsim.site.formats import read_text
from hdsim.site.jobs_table import jobs_table
from hdsim.site.scheduler import SlurmScheduler
from hdsim.site.workload import columns_of
from hdsim.util.arrays import Floats

if TYPE_CHECKING:
    from hdsim.site.model import Site
    from hdsim.workload.model import Workload

_log = logging.getLogger(__name__)


class RecordedUsage:
    """Usage of the associations of a site by the recorded jobs of a log, with decay.

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
        multifactor = SlurmScheduler(site, table, begin).multifactor
        self._share = None if multifactor is None else multifactor.fair_share
        self._decay = site.priority.decay_half_life
        self._begin = begin
        if multifactor is None or self._share is None:
            return
        billing = self._share.billing
        for job in np.flatnonzero(~np.isnan(self._times.start)).tolist():
            partition = table.partitions[job][0]
            multifactor.start(job, partition, 0.0, int(table.demands.least[job]), int(workload.requested_cores[job]))
        self._rate = billing.rate * billing.factor
        self._row = billing.association

    def at(self, now: float) -> Floats | None:
        """Returns the (A,) usage of root and the associations in billing-seconds, None without fair shares.

        A second that is t seconds old counts (1 - 0.693 / PriorityDecayHalfLife)^t, integrated over the runs.

        Args:
            now: Seconds since 1970.
        """
        if self._share is None:
            return None
        first = self._share.last_reset(self._begin, now)
        start = np.maximum(self._times.start, first)
        end = np.minimum(self._times.end, now)
        rows = np.flatnonzero((end > start) & (self._row >= 0))
        young, old = now - end[rows], now - start[rows]
        rate = -math.log1p(-0.693 / self._decay) if 0 < self._decay < math.inf else 0.0
        seconds = (np.exp(-rate * young) - np.exp(-rate * old)) / rate if rate > 0.0 else old - young
        tree = self._share.tree
        used = np.zeros(len(tree.above))
        np.add.at(used, self._row[rows], seconds * self._rate[rows])
        for row in range(len(used) - 1, 0, -1):  # each row comes after the one above it
            used[tree.above[row]] += used[row]
        return used


def limits_usage(site: Site) -> bool:
    """Whether a site enforces limits of what was used, which is not part of the usage of associations."""
    accounts = accounts_of(site)
    every = [*(one.limits for one in site.qos.values()), *(one.limits for one in accounts.rows)]
    return site.slurm.enforces_limits and any(one.grp_tres_mins or one.grp_wall < math.inf for one in every)


def read_usage(path: Path, site: Site) -> Floats:
    """Returns the (A,) usage of root and the associations in billing-seconds from what ``sshare -a -P`` prints.

    Associations that are not in the file have used nothing, which is logged.

    Raises:
        ConfigError: The file cannot be read, has no such columns, or has none of the associations of the site.
    """
    columns = ("Account", "User", "RawUsage")
    header: list[str] = []
    found: dict[tuple[str, str], float] = {}
    for place, line in enumerate(read_text(path).splitlines(), 1):
        cells = [cell.strip() for cell in line.split("|")]
        if not header:
            header = cells if set(columns) <= set(cells) else []
            continue
        account, user, used = (cells[header.index(name)] if len(cells) >= len(header) else "" for name in columns)
        if not account:
            continue
        if not used.isdecimal():
            raise ConfigError(f"RawUsage: expected a number, got '{used}'", where=f"{path}:{place}")
        found[account, user] = float(used)
    if not header:
        raise ConfigError("expected the columns Account, User and RawUsage, as 'sshare -a -P' prints", where=str(path))
    rows = [(one.account, one.user) for one in accounts_of(site).rows]
    if not set(rows[1:]) & set(found):
        raise ConfigError("expected accounts and users of the site, got none of them", where=str(path))
    missing = [row for row in rows if row not in found]
    if missing:
        told = "%s: %d of %d accounts and users of the site are not in it, such as %s; they count as unused"
        _log.warning(told, path, len(missing), len(rows), " ".join(missing[0]).strip())
    return np.array([found.get(row, 0.0) for row in rows])
