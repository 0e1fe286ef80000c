"""Limits of QOS and associations, and licences, of the jobs of a site.

Sources: "Resource Limits" of Slurm's documentation and the manual page sacctmgr(1). A limit of the QOS of a job takes
the place of the same one of the association; that of the partition's QOS comes first unless the job's has OverPartQOS.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hdsim.errors import ConfigError, nearest
from hdsim.site.accounts import Accounts
from hdsim.site.jobs_table import SiteJobs
from hdsim.site.kernels.quotas import LICENSES, Quotas
from hdsim.site.model import Limits, Qos, Site
from hdsim.site.reasons import (
    Reasons,
    account_limit,
    group_limit,
    job_limit,
    job_minutes_limit,
    least_limit,
    minutes_limit,
    node_limit,
    run_minutes_limit,
    unknown_tres,
    user_limit,
)
from hdsim.site.tres import Amounts, amounts
from hdsim.util.arrays import Floats, Ints


@dataclass(frozen=True)
class _Meter:
    """A limit of TRES-minutes.

    Attributes:
        minutes: The limit, or the TRES of each node where `of_node` is set.
        reason: Code of the reason of a job that waits for it.
        lasting: Usage does not decay.
        uses: Usage so far counts.
        asks: The request of the job counts, with what is left to running jobs where `charges` is set.
        of_node: The amount on each node counts instead.
    """

    minutes: float
    reason: int
    lasting: bool = False
    uses: bool = False
    asks: bool = True
    charges: bool = False
    of_node: bool = False


@dataclass
class Holder:
    """The QOS whose limits hold for a job, in their order, and its association with those above it."""

    qos: list[tuple[str, Qos]]
    associations: list[int]
    user: int
    account: str


@dataclass
class _Template:
    """The capacities and the meters of jobs that the same limits hold for, with the TRES that each counts."""

    capacities: list[tuple[int, str]] = field(default_factory=list)
    meters: list[tuple[int, str]] = field(default_factory=list)


@dataclass
class SiteQuotas:
    """The limits of the jobs of a site.

    Attributes:
        quotas: The capacities.
        blocked: (E,) code of the reason why a job can never start in a partition, 0 for none; entries are those of
            :class:`hdsim.site.jobs_table.SiteJobs`.
        waiting: (J,) places among `submissions` that each job takes while it is pending or runs.
        submissions: Most jobs of each place that may be pending or run, and the code of the reason.
        meters: Numbers of the limits of TRES-minutes by kind of holder, its name or row, kind of limit and TRES.
    """

    quotas: Quotas
    blocked: Ints
    waiting: list[tuple[int, ...]]
    submissions: list[tuple[int, int]]
    meters: dict[tuple[Any, ...], int]


class _Builder:
    def __init__(self, site: Site, jobs: SiteJobs, accounts: Accounts, reasons: Reasons, nodes: int) -> None:
        self.site, self.jobs, self.accounts, self.reasons, self.nodes = site, jobs, accounts, reasons, nodes
        self.enforced = site.slurm.enforces_limits
        self.places: dict[tuple[Any, ...], int] = {}
        self.capacity: list[float] = []
        self.reason: list[int] = []
        self.row: list[int] = []
        self.safe = site.slurm.is_safe
        self.meters: dict[tuple[Any, ...], int] = {}
        self.metered: list[_Meter] = []
        self.submissions: dict[tuple[Any, ...], int] = {}
        self.most_submitted: list[tuple[int, int]] = []
        self.weights = [one.billing_weights for one in site.partitions.values()]
        for name, one in site.partitions.items():
            if self.enforced and one.qos and one.qos not in site.qos:
                raise ConfigError(
                    f"expected a QOS of the site, got '{one.qos}'{nearest(one.qos, list(site.qos))}",
                    where=f"site: partitions.{name}.qos",
                )

    def place(self, key: tuple[Any, ...], capacity: float, reason: int, *, nodes: bool = False) -> int:
        """Returns the place of a capacity."""
        if key not in self.places:
            self.places[key] = len(self.capacity)
            self.capacity.append(capacity)
            self.reason.append(reason)
            self.row.append(sum(row >= 0 for row in self.row) if nodes else -1)
        return self.places[key]

    def submission(self, key: tuple[Any, ...], most: int, word: str) -> int:
        """Returns the place of a limit of submitted jobs."""
        if key not in self.submissions:
            self.submissions[key] = len(self.most_submitted)
            self.most_submitted.append((most, self.reasons.code_of(word)))
        return self.submissions[key]

    def meter(self, key: tuple[Any, ...], minutes: float, word: str, **kind: bool) -> int:
        """Returns the place of a limit of TRES-minutes; see :class:`_Meter`."""
        if key not in self.meters:
            self.meters[key] = len(self.metered)
            self.metered.append(_Meter(minutes, self.reasons.code_of(word), **kind))
        return self.meters[key]

    def amounts(self, tres: str, rows: Ints, partition: int) -> Amounts:
        """Returns what jobs take of a TRES in a partition."""
        none = np.zeros(len(rows))
        if tres in ("job", "wall"):
            return Amounts(none + 1.0, none, none)
        try:
            return amounts(self.site, self.jobs, tres, rows, self.weights[partition])
        except KeyError:
            raise unknown_tres(tres) from None

    def holder(self, job: int, partition: int) -> Holder:
        """Returns what holds for a job."""
        kinds, names = list(self.site.partitions.values()), list(self.site.qos)
        own = names[self.jobs.qos[job]] if self.jobs.qos[job] >= 0 else None
        chosen = [kinds[partition].qos, own]
        if own is not None and self.site.qos[own].has("OverPartQOS"):
            chosen.reverse()
        qos = [(name, self.site.qos[name]) for name in dict.fromkeys(chosen) if name]
        above: list[int] = []
        account = ""
        if self.jobs.association[job] >= 0:
            row = int(self.accounts.row_of[self.jobs.association[job]])
            account = self.accounts.rows[row].account
            while row >= 0:
                above.append(row)
                row = int(self.accounts.tree.above[row])
        return Holder(qos, above, int(self.jobs.user[job]), account)

    def inherited(self, associations: list[int], name: str, tres: str | None = None) -> Any:
        """Returns a limit of an association: its own, or that of the nearest one above it; None for none."""
        for row in associations:
            value = getattr(self.accounts.rows[row].limits, name)
            value = value.get(tres) if tres is not None else value
            if value is not None:
                return value
        return None

    def template(self, holder: Holder) -> tuple[_Template, tuple[int, ...]]:
        """Returns the capacities that hold for jobs, and their limits of submissions."""
        made, waiting = _Template(), []
        held: set[tuple[str, str]] = set()  # limits that a QOS has, with the TRES

        def unheld(limits: Limits, name: str) -> Iterator[tuple[str, Any]]:
            """Yields TRES, empty where there is none, and amounts of a limit that no QOS before has."""
            amounts = getattr(limits, name)
            for tres, amount in (amounts if isinstance(amounts, dict) else {"": amounts}).items():
                if amount not in (None, math.inf) and (name, tres) not in held:
                    yield tres, amount

        def hold(key: tuple[Any, ...], tres: str, most: float, word: str) -> None:
            place = self.place((*key, tres), most, self.reasons.code_of(word), nodes=tres == "node")
            made.capacities.append((place, tres))

        def spend(key: tuple[Any, ...], tres: str, minutes: float, word: str, **kind: bool) -> None:
            made.meters.append((self.meter((*key, tres), minutes, word, **kind), tres))

        def hold_together(key: tuple[Any, ...], limits: Limits, kind: str, *, lasting: bool = False) -> None:
            """Adds the limits of what all jobs of a QOS or an association use together."""
            counted = {"lasting": lasting, "uses": True, "asks": self.safe}
            for tres, amount in unheld(limits, "grp_tres"):
                hold(key, tres, amount, group_limit(kind, tres))
            for tres, minutes in unheld(limits, "grp_tres_mins"):
                spend((*key, "mins"), tres, minutes, minutes_limit(kind, tres), **counted, charges=self.safe)
            for tres, minutes in unheld(limits, "grp_tres_run_mins"):
                spend((*key, "run"), tres, minutes, run_minutes_limit(kind, tres), charges=True)
            for _, seconds in unheld(limits, "grp_wall"):
                spend((*key, "mins"), "wall", seconds / 60.0, f"{kind}GrpWallLimit", **counted)

        def count(key: tuple[Any, ...], limits: Limits, name: str, word: str, *, submitted: bool = False) -> None:
            """Adds a limit of running or of submitted jobs."""
            for _, most in unheld(limits, name):
                if submitted:
                    waiting.append(self.submission(key, most, word))
                else:
                    hold(key, "job", most, word)

        for name, qos in holder.qos:
            limits = qos.limits
            own, user, account = ("qos", name), ("qos user", name, holder.user), ("qos account", name, holder.account)
            hold_together(own, limits, "QOS", lasting=qos.has("NoDecay"))
            for tres, amount in unheld(limits, "max_tres_per_user"):
                hold(user, tres, amount, user_limit(tres))
            for tres, amount in unheld(limits, "max_tres_per_account"):
                hold(account, tres, amount, account_limit(tres))
            for tres, minutes in unheld(limits, "max_tres_mins"):
                spend((*own, "job"), tres, minutes, job_minutes_limit("QOS", tres))
            for tres, amount in unheld(limits, "max_tres_per_node"):
                spend((*own, "node"), tres, amount, node_limit("QOS", tres), of_node=True)
            count(own, limits, "grp_jobs", "QOSGrpJobsLimit")
            count(user, limits, "max_jobs", "QOSMaxJobsPerUserLimit")
            count(account, limits, "max_jobs_per_account", "MaxJobsPerAccount")
            count(own, limits, "grp_submit", "QOSGrpSubmitJobsLimit", submitted=True)
            count(user, limits, "max_submit", "QOSMaxSubmitJobPerUserLimit", submitted=True)
            count(account, limits, "max_submit_per_account", "MaxSubmitJobsPerAccount", submitted=True)
            held |= {(limit, tres) for limit in Limits.model_fields for tres, _ in unheld(limits, limit)}
        for row in holder.associations:
            limits = self.accounts.rows[row].limits
            hold_together(("group", row), limits, "Assoc")
            count(("group", row), limits, "grp_jobs", "AssocGrpJobsLimit")
            count(("group", row), limits, "grp_submit", "AssocGrpSubmitJobsLimit", submitted=True)
        if holder.associations:
            lowest = ("own", holder.associations[0])
            most = self.inherited(holder.associations, "max_jobs")
            if most is not None and ("max_jobs", "") not in held:
                hold(lowest, "job", most, "AssocMaxJobsLimit")
            most = self.inherited(holder.associations, "max_submit")
            if most is not None and ("max_submit", "") not in held:
                waiting.append(self.submission(lowest, most, "AssocMaxSubmitJobLimit"))
            for limit, told, of_node in (
                ("max_tres_mins", job_minutes_limit, False),
                ("max_tres_per_node", node_limit, True),
            ):
                every = {tres for row in holder.associations for tres in getattr(self.accounts.rows[row].limits, limit)}
                for tres in sorted(tres for tres in every if (limit, tres) not in held):
                    amount = self.inherited(holder.associations, limit, tres)
                    spend((*lowest, limit), tres, amount, told("Assoc", tres), of_node=of_node)
        return made, tuple(waiting)

    def never(self, holder: Holder, partition: int, entries: Ints, blocked: Ints) -> None:
        """Notes the entries of jobs that exceed what each job may ask for."""
        asked, rows = self.jobs.demands, self.jobs.entry_job[entries]

        def requested(tres: str) -> Any:
            return self.amounts(tres, rows, partition).of(asked.cpus[rows], asked.least[rows])

        def block(exceeds: Any, word: str) -> None:
            found = entries[exceeds & (blocked[entries] == 0)]
            blocked[found] = self.reasons.code_of(word)

        seen: set[str] = set()
        for _, qos in holder.qos:
            limits = qos.limits
            for tres, most in limits.max_tres.items():
                if tres not in seen:
                    block(requested(tres) > most, job_limit("QOS", tres))
                    seen.add(tres)
            for tres, least in limits.min_tres.items():
                block(requested(tres) < least, least_limit(tres))
            if limits.max_wall < math.inf and "wall" not in seen:
                block(asked.limit[rows] > limits.max_wall, "QOSMaxWallDurationPerJobLimit")
                seen.add("wall")
        every = {tres for row in holder.associations for tres in self.accounts.rows[row].limits.max_tres}
        for tres in sorted(every - seen):
            block(requested(tres) > self.inherited(holder.associations, "max_tres", tres), job_limit("Assoc", tres))
        walls = [self.accounts.rows[row].limits.max_wall for row in holder.associations]
        wall = next((value for value in walls if value < math.inf), math.inf)
        if "wall" not in seen:
            block(asked.limit[rows] > wall, "AssocMaxWallDurationPerJobLimit")

    def never_enough(self, made: _Template, partition: int, entries: Ints, blocked: Ints) -> None:
        """Notes the entries of jobs that ask for more TRES-minutes than a limit has."""
        asked, rows = self.jobs.demands, self.jobs.entry_job[entries]
        for number, tres in made.meters:
            kind = self.metered[number]
            nodes = asked.most[rows] if kind.of_node else asked.least[rows]
            amount = self.amounts(tres, rows, partition).of(asked.cpus[rows], nodes)
            wanted = np.floor(amount / nodes) if kind.of_node else np.floor(amount * self.minutes(rows))
            found = entries[(wanted > kind.minutes) & kind.asks & (blocked[entries] == 0)]
            blocked[found] = kind.reason

    def factor(self, rows: Ints) -> Floats:
        """Returns the UsageFactor of jobs."""
        return np.append([one.usage_factor for one in self.site.qos.values()], 1.0)[self.jobs.qos[rows]]

    def minutes(self, rows: Ints) -> Floats:
        """Returns the minutes that jobs ask for, those of a QOS with UsageFactorSafe times its UsageFactor."""
        safe = np.append([one.has("UsageFactorSafe") for one in self.site.qos.values()], False)
        whole = np.floor(self.jobs.demands.limit[rows] / 60.0)
        return np.where(safe[self.jobs.qos[rows]], np.floor(whole * self.factor(rows)), whole)

    def groups(self) -> Iterator[tuple[int, Ints]]:
        """Yields a partition and the entries of jobs in it that the same limits hold for."""
        jobs = self.jobs
        row, partition = jobs.entry_job, jobs.entry_partition
        own = [jobs.qos, jobs.association, jobs.user, jobs.array, *(jobs.licenses > 0).T]
        columns = np.column_stack([partition, *(column[row] for column in own)])
        _, number = np.unique(columns, axis=0, return_inverse=True)
        order = np.argsort(number, kind="stable")
        for entries in np.split(order, np.flatnonzero(np.diff(number[order])) + 1):
            if len(entries):
                yield int(partition[entries[0]]), entries

    def build(self) -> SiteQuotas:
        """Returns the limits."""
        jobs, licences = self.jobs, list(self.site.licenses)
        blocked = np.zeros(len(jobs.entry_job), np.int64)
        waiting: list[tuple[int, ...]] = [()] * len(jobs)
        templates: list[tuple[int, Ints, _Template]] = []
        for partition, entries in self.groups():
            made, rows = _Template(), jobs.entry_job[entries]
            if self.enforced:
                holder = self.holder(int(rows[0]), partition)
                made, submitted = self.template(holder)
                self.never(holder, partition, entries, blocked)
                self.never_enough(made, partition, entries, blocked)
                if submitted:
                    # Submissions count in the first partition.
                    for row in rows[entries == jobs.first_entry[rows]].tolist():
                        waiting[row] = submitted
            array = int(jobs.array[rows[0]])
            if array >= 0:
                most, code = float(jobs.array_limit[rows[0]]), self.reasons.code_of("JobArrayTaskLimit")
                made.capacities.append((self.place(("array", array), most, code), "job"))
            for kind in np.flatnonzero(jobs.licenses[rows[0]]).tolist():
                name = licences[kind]
                place = self.place(("license", name), self.site.licenses[name], LICENSES)
                made.capacities.append((place, f"license/{name}"))
            templates.append((partition, entries, made))
        held = self._taken([(partition, entries, made.capacities) for partition, entries, made in templates])
        spending = self._taken([(partition, entries, made.meters) for partition, entries, made in templates])
        columns: dict[str, Any] = {
            "entry": jobs.first_entry.copy(),
            "capacity": np.array(self.capacity, np.float64),
            "taken": np.zeros(len(self.capacity)),
            "reason": np.array(self.reason, np.int64),
            "row": np.array(self.row, np.int64),
            "on_node": np.zeros((sum(row >= 0 for row in self.row), self.nodes), np.int64),
            **dict(zip(("first", "place", "fixed", "per_cpu", "per_node"), held, strict=True)),
            "spent": np.zeros(len(self.metered)),
            "left": np.zeros(len(self.metered)),
            "most": np.array([kind.minutes for kind in self.metered], np.float64),
            "spent_reason": np.array([kind.reason for kind in self.metered], np.int64),
            "lasting": np.array([kind.lasting for kind in self.metered], np.bool_),
            "uses": np.array([kind.uses for kind in self.metered], np.bool_),
            "asks": np.array([kind.asks for kind in self.metered], np.bool_),
            "of_node": np.array([kind.of_node for kind in self.metered], np.bool_),
            "first_spent": spending[0],
            "meter": spending[1],
            **dict(zip(("rate_fixed", "rate_per_cpu", "rate_per_node"), spending[2:], strict=True)),
            **self._times(spending[0], spending[1]),
        }
        quotas = Quotas(**columns)
        return SiteQuotas(quotas, blocked, waiting, self.most_submitted, self.meters)

    def _times(self, first: Ints, meter: Ints) -> dict[str, Any]:
        """Returns the minutes and seconds of jobs for their limits of TRES-minutes; see :class:`Quotas`."""
        rows = np.repeat(self.jobs.entry_job, np.diff(first))
        factor = self.factor(rows)
        charges, of_wall = np.zeros((2, len(self.metered) + 1), np.bool_)
        for key, number in self.meters.items():
            charges[number], of_wall[number] = self.metered[number].charges, key[-1] == "wall"
        return {
            "minutes": self.minutes(rows),
            "charged": np.where(charges[meter], self.jobs.demands.limit[rows] * factor, 0.0),
            "free": (factor == 0.0) & ~of_wall[meter],
        }

    def _taken(self, groups: list[tuple[int, Ints, list[tuple[int, str]]]]) -> tuple[Any, ...]:
        """Returns first places of entries, the capacities at the places and what jobs take of each."""
        lengths = np.zeros(len(self.jobs.entry_job), np.int64)
        for _, entries, taken in groups:
            lengths[entries] = len(taken)
        first = np.concatenate([[0], np.cumsum(lengths)])
        place = np.zeros(first[-1], np.int64)
        columns: list[Floats] = [np.zeros(first[-1]) for _ in range(3)]
        for partition, entries, taken in groups:
            for offset, (number, tres) in enumerate(taken):
                at = first[entries] + offset
                place[at] = number
                found = self.amounts(tres, self.jobs.entry_job[entries], partition)
                for column, values in zip(columns, found, strict=True):
                    column[at] = values
        return first, place, *columns


def quotas_of(site: Site, jobs: SiteJobs, accounts: Accounts, reasons: Reasons, nodes: int) -> SiteQuotas:
    """Returns the limits of the jobs of a site with a number of nodes.

    Raises:
        ConfigError: There is a limit of an unknown TRES, or a partition has an unknown QOS.
    """
    return _Builder(site, jobs, accounts, reasons, nodes).build()
