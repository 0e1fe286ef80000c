"""The tree of accounts and users of a site, their usage and their fair shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from hdsim.errors import ConfigError
from hdsim.site.formats import time_zone
from hdsim.site.kernels.quotas import Quotas
from hdsim.site.kernels.shares import (
    Billing,
    Book,
    Period,
    Shares,
    ShareTree,
    bill,
    bill_running,
    classic,
    classic_factors,
    fair_tree,
    run_off,
)
from hdsim.site.model import Association, Site
from hdsim.util.arrays import Floats, Ints

#: Numerator of Slurm's decay: a second takes 0.693 / half-life, which is not quite ln 2.
_LN_2 = 0.693


@dataclass
class Accounts:
    """The associations of a site as a tree.

    Attributes:
        rows: Associations, root first and each after the one above it.
        tree: Their columns.
        row_of: (S,) row of each association of the site.
    """

    rows: list[Association]
    tree: ShareTree
    row_of: Ints

    def priorities(self) -> list[int]:
        """The priority of each association: its own, or that of the one above it."""
        found: list[int] = []
        for one, above in zip(self.rows, self.tree.above.tolist(), strict=True):
            inherited = found[above] if above >= 0 else 0
            found.append(inherited if one.priority is None else one.priority)
        return found


def accounts_of(site: Site) -> Accounts:
    """Returns the tree of the associations of a site.

    Raises:
        ConfigError: An association is below an account that there is not, or an account is above itself.
    """
    given = site.associations
    below: dict[str, list[int]] = {}
    known = {one.account for one in given if not one.user} | {"root"}
    for place, one in enumerate(given):
        if not one.user and one.account == "root":
            continue
        above = one.account if one.user else one.parent or "root"
        if above not in known:
            raise ConfigError(
                f"expected an account of the site, got '{above}'",
                where=f"site: associations: {one.user or one.account}",
            )
        below.setdefault(above, []).append(place)
    rows, above_of, row_of = [Association(account="root")], [-1], np.zeros(len(given), np.int64)
    following = [("root", 0)]
    while following:
        account, row = following.pop()
        for place in below.get(account, ()):
            one = given[place]
            row_of[place] = len(rows)
            if not one.user:
                following.append((one.account, len(rows)))
            rows.append(one)
            above_of.append(row)
    lost = len(given) + 1 - len(rows) - sum(not one.user and one.account == "root" for one in given)
    if lost:
        raise ConfigError(f"expected accounts below root, got {lost} above themselves", where="site: associations")
    return Accounts(rows, _columns(rows, above_of, classic="NO_FAIR_TREE" in site.priority.flags), row_of)


def _columns(rows: list[Association], above: list[int], *, classic: bool) -> ShareTree:
    """Returns the columns of associations, whose shares are normalised among siblings or to those of root."""
    count = len(rows)
    own = [-1 if one.shares == "parent" else int(one.shares) for one in rows]
    own[0] = 1
    sharing = [0] * count
    divided: list[list[int]] = [[] for _ in rows]
    for row in range(1, count):
        up = above[row]
        while own[up] < 0:
            up = above[up]
        sharing[row] = up
        divided[up].append(row)
    # Slurm has the siblings that were created last first.
    child = [row for rows_of in divided for row in reversed(rows_of)]
    first = np.concatenate([[0], np.cumsum([len(rows_of) for rows_of in divided])])
    among = [1] * count
    shares = np.ones(count)
    for row in range(1, count):
        among[row] = sum(own[each] for each in divided[sharing[row]] if own[each] >= 0)
        if own[row] < 0:
            shares[row] = shares[sharing[row]]
            continue
        part = own[row] / among[row] if among[row] else 0.0
        shares[row] = part * shares[sharing[row]] if classic else part
    user = np.array([bool(one.user) for one in rows])
    ints = (np.array(each, np.int64) for each in (above, sharing, own, among, first, child))
    above_of, sharing_of, owned, total, begins, children = ints
    return ShareTree(above_of, sharing_of, user, owned, total, shares, begins, children)


@dataclass(frozen=True)
class Used:
    """The usage of accounts until a moment.

    Attributes:
        billing: (A,) billing-seconds of root and the associations.
        minutes: TRES-seconds that limits of TRES-minutes count, by the keys of :class:`hdsim.site.quotas.SiteQuotas`.
    """

    billing: Floats
    minutes: Mapping[tuple[Any, ...], float] = field(default_factory=dict)


class FairShare:
    """Usage of the associations of a site and their fair shares, calculated every PriorityCalcPeriod.

    Args:
        site: The site.
        accounts: Its associations.
        association: (J,) row of the association of each job, -1 for none.
        quotas: Limits of what was used.
        begin: Time of the first calculation in seconds since 1970.
    """

    def __init__(self, site: Site, accounts: Accounts, association: Ints, quotas: Quotas, begin: float) -> None:
        rules, count, jobs = site.priority, len(accounts.rows), len(association)
        self._classic, self._dampening = "NO_FAIR_TREE" in rules.flags, rules.fair_share_dampening
        self.tree = accounts.tree
        floats = np.zeros((6, count))
        self.shares = Shares(
            usage=floats[0],
            normal=floats[1],
            effective=floats[2],
            level=floats[3],
            factor=floats[4],
            order=np.zeros(count, np.int64),
            stack=np.zeros((4, count), np.int64),
            before=floats[5],
        )
        start, rate, factor, cpus, held = np.zeros((5, jobs))
        self.billing = Billing(start, rate, factor, cpus, held, association)
        self._book = Book(self.tree, self.shares, quotas, self.billing)
        self._decay = 1.0 - _LN_2 / rules.decay_half_life if 0 < rules.decay_half_life < np.inf else 1.0
        self._last = begin
        self._period, self._zone = rules.usage_reset_period, time_zone(site.time_zone)
        self._reset = self._next_reset(begin)
        none = np.zeros(0, np.int64)
        self.calculate(none, none, begin)

    def begin_with(self, usage: Floats) -> None:
        """Sets the usage of (A,) associations in billing-seconds at the first calculation.

        Raises:
            ConfigError: There is another number of associations.
        """
        if len(usage) != len(self.shares.usage):
            expected = f"expected usage of {len(self.shares.usage)} associations with root, got {len(usage)}"
            raise ConfigError(f"{expected}; no change of associations goes with usage", where="site: associations")
        self.shares.usage[:] = usage
        none = np.zeros(0, np.int64)
        self.calculate(none, none, self._last)

    def last_reset(self, begin: float, now: float) -> float:
        """Returns when usage was set to 0 last (PriorityUsageResetPeriod) from a begin on, which it is at the least."""
        last = begin
        while (following := self._next_reset(last)) <= now:
            last = following
        return last

    def start(self, job: int, now: float, rate: float, factor: float, cpus: int, nodes: int) -> None:
        """Notes that a job starts, how many billing-seconds it uses a second and by which factor seconds count."""
        billing = self.billing
        billing.start[job], billing.rate[job], billing.factor[job] = now, rate, factor
        billing.cpus[job], billing.nodes[job] = cpus, nodes
        if now < self._last:
            run_off(self._book, job, self._last)

    def end(self, job: int, now: float) -> None:
        """Adds the usage of a job that ends."""
        bill(self._book, job, Period(self._last, now, self._decay))

    def calculate(self, running: Ints, pending: Ints, now: float) -> None:
        """Lets usage decay, adds that of (R,) running jobs and calculates the shares; (Q,) jobs are pending."""
        if now >= self._reset:
            self.shares.usage[:] = 0.0
            quotas = self._book.quotas
            quotas.spent[~quotas.lasting] = 0.0
            self._reset = self._next_reset(now)
        period = Period(self._last, now, self._decay)
        if self._classic:
            classic(self._book, np.sort(running), np.sort(pending), period)
        else:
            bill_running(self._book, running, period)
            fair_tree(self.tree, self.shares)
        self._last = now

    def factors(self, rows: Ints) -> Floats:
        """Returns the fair-share factors of (Q,) associations, 0 for row -1."""
        if self._classic:
            classic_factors(self.tree, self.shares, rows[rows >= 0], self._dampening)
        return np.where(rows >= 0, self.shares.factor[rows], 0.0)

    def _next_reset(self, now: float) -> float:
        """Returns when usage is set to 0 next (PriorityUsageResetPeriod), in seconds since 1970."""
        if self._period not in ("DAILY", "WEEKLY", "MONTHLY", "QUARTERLY", "YEARLY"):
            return np.inf
        local = datetime.fromtimestamp(now, self._zone).replace(hour=0, minute=0, second=0, microsecond=0)
        if self._period == "DAILY":
            following = local + timedelta(days=1)
        elif self._period == "WEEKLY":
            following = local + timedelta(days=7 - (local.weekday() + 1) % 7)
        else:
            months = {"MONTHLY": 1, "QUARTERLY": 3, "YEARLY": 12}[self._period]
            month = (local.month - 1) // months * months + months
            following = local.replace(year=local.year + month // 12, month=month % 12 + 1, day=1)
        return following.timestamp()
