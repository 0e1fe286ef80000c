"""Priorities of pending jobs as Slurm's priority/multifactor computes them.

Sources: "Multifactor Priority Plugin" of Slurm's documentation, and the output of sprio of Slurm 22.05.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hdsim.site.accounts import Accounts, FairShare
from hdsim.site.jobs_table import SiteJobs
from hdsim.site.kernels.quotas import Quotas
from hdsim.site.kernels.running import RunningJobs
from hdsim.site.model import NodeType, Site
from hdsim.site.tres import amounts, billed, is_counted, is_of_nodes
from hdsim.util.arrays import Flags, Floats, Ints

#: PriorityFlags that are simulated.
FLAGS = (
    *("ACCRUE_ALWAYS", "FAIR_TREE", "NO_FAIR_TREE", "NO_NORMAL_ALL", "NO_NORMAL_ASSOC", "NO_NORMAL_PART"),
    *("NO_NORMAL_QOS", "NO_NORMAL_TRES", "SMALL_RELATIVE_TO_TIME", "MAX_TRES"),
    "CALCULATE_RUNNING",  # without influence: nothing looks at priorities of running jobs
)
_GREATEST = 2.0**32 - 1


def basic_priorities(nice: Floats) -> Floats:
    """Returns the priorities of (J,) jobs in order of submission by PriorityType=priority/basic, less a constant.

    Each job gets one less than the least so far, less its nice value: a negative one puts it ahead of earlier jobs, a
    positive one puts later jobs behind it all the same.
    """
    made = -np.arange(len(nice), dtype=np.float64)
    if not (nice < 0).any():
        return made
    least = 1.0
    for job, own in enumerate(nice.tolist()):
        made[job] = least - 1.0 - own
        least = min(least, made[job])
    return made


@dataclass
class Factors:
    """The weighted factors of some jobs, (Q,) each, as sprio prints them."""

    age: Floats
    association: Floats
    fair_share: Floats
    job_size: Floats
    partition: Floats
    qos: Floats
    nice: Floats
    tres: Floats  # (Q, T), of each TRES that has a weight

    def total(self) -> Floats:
        """(Q,) priorities."""
        total = self.age + self.association + self.fair_share + self.job_size + self.partition + self.qos - self.nice
        return np.minimum(np.floor(np.maximum(total + self.tres.sum(axis=1), 1.0)), _GREATEST)


class Multifactor:
    """Priorities of the jobs of a site; age and fair share are those of the last calculation.

    Args:
        site: The site.
        jobs: Its jobs.
        kinds: The type of each node.
        members: (P, N) nodes of the partitions.
        accounts: The associations of the site.
        quotas: Limits of what was used.
        begin: Time of the first calculation in seconds since 1970; the others are PriorityCalcPeriod apart.
    """

    def __init__(
        self,
        site: Site,
        jobs: SiteJobs,
        kinds: list[NodeType],
        members: Flags,
        accounts: Accounts,
        quotas: Quotas,
        begin: float,
    ) -> None:
        self._rules, self._jobs, self.accounts = site.priority, jobs, accounts
        placed = jobs.association
        association = np.where(placed >= 0, self.accounts.row_of[placed], -1) if site.associations else placed
        self.fair_share = FairShare(site, accounts, association, quotas, begin)
        self.period, self.calculated = site.priority.calculation_period, begin
        self._association = association
        self._accrued = jobs.submitted if "ACCRUE_ALWAYS" in self._flags else jobs.eligible
        self._age, self._share = np.zeros(len(jobs)), np.zeros(len(jobs))
        self._size = self._job_size(kinds) * site.priority.weight_job_size
        self._of_partition = self._normal("PART", [one.priority_job_factor for one in site.partitions.values()])
        self._of_partition *= site.priority.weight_partition
        self._of_qos = np.append(self._normal("QOS", [one.priority for one in site.qos.values()]), 0.0)
        self._of_qos *= site.priority.weight_qos
        of_account = self._normal("ASSOC", self.accounts.priorities())
        self._of_association = np.append(of_account, 0.0) * site.priority.weight_association
        self.tres = [name for name in site.priority.weight_tres if is_counted(name)]
        every = np.arange(len(jobs))
        asked = [amounts(site, jobs, name, every, {}).of(jobs.demands.cpus, jobs.demands.least) for name in self.tres]
        self._requested = np.array(asked).reshape(len(self.tres), len(jobs)).T
        self._whole = _totals(site, kinds, members, self.tres)
        self._weights = [one.billing_weights for one in site.partitions.values()]
        self._billing = [[(name, weights[name]) for name in billed(weights)] for weights in self._weights]
        weighed = dict.fromkeys(name for weights in self._billing for name, _ in weights)
        self._amounts = {name: amounts(site, jobs, name, every, {}) for name in weighed}
        self._usage_factor = np.append([one.usage_factor for one in site.qos.values()], 1.0)

    @property
    def _flags(self) -> list[str]:
        return self._rules.flags

    def _normal(self, what: str, values: list[int]) -> Floats:
        """Returns values relative to the greatest one, unless a flag forbids it."""
        given = np.array(values, np.float64)
        if {f"NO_NORMAL_{what}", "NO_NORMAL_ALL"} & set(self._flags):
            return given
        greatest = given.max(initial=0.0)
        return given / greatest if greatest > 0.0 else given

    def _job_size(self, kinds: list[NodeType]) -> Floats:
        """(J,) size factors, from 0 to 1."""
        asked, nodes, cpus = self._jobs.demands, len(kinds), sum(kind.cpus for kind in kinds)
        counted = asked.cpus / self._jobs.per_counted
        if "SMALL_RELATIVE_TO_TIME" in self._flags:
            minutes = np.maximum(np.floor(asked.limit / 60.0), 1.0)
            factor = np.maximum(asked.least * cpus / nodes, counted) / minutes / cpus
            factor = 1.0 - factor if self._rules.favor_small else factor
        elif self._rules.favor_small:
            factor = ((nodes - asked.least) / nodes + (cpus - counted) / cpus) / 2.0
        else:
            factor = (asked.least / nodes + counted / cpus) / 2.0
        return np.clip(factor, 0.0, 1.0)

    def submit(self, jobs: Ints, now: float) -> None:
        """Computes the factors of jobs that come, with the shares of the last calculation."""
        longest = self._rules.max_age
        waited = np.maximum(now - self._accrued[jobs], 0.0)
        self._age[jobs] = np.minimum(waited / longest, 1.0) if 0 < longest < math.inf else waited > 0.0
        self._share[jobs] = self.fair_share.factors(self._association[jobs])

    def start(self, job: int, partition: int, now: float, nodes: int, cpus: int) -> None:
        """Notes that a job starts: from now on it uses the share of its account."""
        of_nodes, others = [0.0], 0.0
        for name, weight in self._billing[partition]:
            taken = self._amounts[name]
            value = weight * (taken.fixed[job] + taken.per_cpu[job] * cpus + taken.per_node[job] * nodes)
            if is_of_nodes(name):
                of_nodes.append(float(value))
            else:
                others += float(value)
        rate = others + (max(of_nodes) if "MAX_TRES" in self._flags else sum(of_nodes))
        if not self._weights[partition]:
            rate = cpus / float(self._jobs.per_counted[job])
        self.fair_share.start(job, now, rate, self._usage_factor[self._jobs.qos[job]], cpus, nodes)

    def end(self, job: int, now: float) -> None:
        """Adds the usage of a job that ends."""
        self.fair_share.end(job, now)

    def calculate(self, running: RunningJobs, pending: Callable[[], Ints], now: float) -> bool:
        """Makes the calculations that are due: usage, shares, and the factors of pending jobs.

        Returns:
            Whether there was one.
        """
        due = self.calculated + self.period <= now
        while self.calculated + self.period <= now:
            self.calculated += self.period
            waiting = pending()
            self.fair_share.calculate(running.job[: running.length[0]], waiting, self.calculated)
            if self.calculated + self.period > now:
                self.submit(waiting, self.calculated)
        return due

    def unweighted(self, jobs: Ints) -> tuple[Floats, Floats]:
        """Returns the factors of age and fair share of (Q,) jobs, from 0 to 1."""
        return self._age[jobs], self._share[jobs]

    def factors(self, jobs: Ints, partitions: Ints) -> Factors:
        """Returns the weighted factors of (Q,) jobs in (Q,) partitions."""
        rules, rows = self._rules, self._association[jobs]
        weights = np.array([rules.weight_tres[name] for name in self.tres])
        asked = self._requested[jobs]
        if not {"NO_NORMAL_TRES", "NO_NORMAL_ALL"} & set(self._flags):
            whole = self._whole[partitions]
            asked = np.divide(asked, whole, out=np.zeros_like(asked), where=whole > 0.0)
        return Factors(
            age=self._age[jobs] * rules.weight_age,
            association=self._of_association[rows],
            fair_share=self._share[jobs] * rules.weight_fair_share,
            job_size=self._size[jobs],
            partition=self._of_partition[partitions],
            qos=self._of_qos[self._jobs.qos[jobs]],
            nice=self._jobs.nice[jobs],
            tres=asked * weights,
        )


def _totals(site: Site, kinds: list[NodeType], members: Flags, names: list[str]) -> Floats:
    """Returns the (P, T) amounts of TRES of partitions, memory in MiB."""
    columns = []
    licences = {f"license/{name}": float(number) for name, number in site.licenses.items()}
    for name in names:
        if name in ("cpu", "billing"):
            columns.append([float(kind.cpus) for kind in kinds])
        elif name == "mem":
            columns.append([kind.memory for kind in kinds])
        elif name == "node":
            columns.append([1.0] * len(kinds))
        else:
            asked = name.removeprefix("gres/")
            own = (sum(n for key, n in kind.gres.items() if asked in (key, key.split(":")[0])) for kind in kinds)
            columns.append([float(number) for number in own])
    of_nodes = np.array(columns, np.float64).reshape(len(names), len(kinds))
    # Licences are those of the cluster in every partition.
    return members.astype(np.float64) @ of_nodes.T + np.array([licences.get(name, 0.0) for name in names])
