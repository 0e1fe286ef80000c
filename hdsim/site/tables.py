"""Tables as Slurm's commands print them: priorities (``sprio -l``) and shares (``sshare -a -l``)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hdsim.errors import ConfigError
from hdsim.site.priority import Multifactor
from hdsim.site.scheduler import SlurmScheduler

PRIORITY_COLUMNS = (
    *("JOBID", "PARTITION", "USER", "PRIORITY", "SITE", "AGE", "ASSOC", "FAIRSHARE", "JOBSIZE", "PARTITION", "QOS"),
    *("NICE", "TRES"),
)
SHARE_COLUMNS = (
    *("Account", "User", "RawShares", "NormShares", "RawUsage", "NormUsage", "EffectvUsage", "FairShare", "LevelFS"),
    *("GrpTRESMins", "TRESRunMins"),
)


def priority_table(
    scheduler: SlurmScheduler, ids: Sequence[Any] | NDArray[Any], users: Sequence[str]
) -> list[Sequence[str]]:
    """Returns header and rows of ``sprio -l``: a row for each pending job and partition, in the order of the jobs.

    Args:
        scheduler: The scheduler of a site.
        ids: (J,) ids of its jobs.
        users: (J,) their users.

    Raises:
        ConfigError: The site has PriorityType=priority/basic.
    """
    multifactor = _multifactor(scheduler)
    names = list(scheduler.site.partitions)
    pairs = [(job, row) for job in sorted(scheduler.pending) for row in scheduler.jobs.partitions[job]]
    table: list[Sequence[str]] = [PRIORITY_COLUMNS]
    both = np.array(pairs, np.int64).reshape(-1, 2)
    factors = multifactor.factors(both[:, 0], both[:, 1])
    total = factors.total()
    for place, (job, row) in enumerate(pairs):
        of_tres = zip(multifactor.tres, factors.tres[place], strict=True)
        values = (
            *(factors.age, factors.association, factors.fair_share, factors.job_size, factors.partition, factors.qos),
            factors.nice,
        )
        table.append(
            (
                *(str(ids[job]), names[row], str(users[job] or ""), f"{total[place]:.0f}", "0"),
                *(f"{value[place]:.0f}" for value in values),
                ",".join(f"{name}={value:.0f}" for name, value in of_tres if value),
            )
        )
    return table


def share_table(scheduler: SlurmScheduler) -> list[Sequence[str]]:
    """Returns header and rows of ``sshare -a -l``: the tree of accounts, users of each before the accounts below it.

    Raises:
        ConfigError: The site has PriorityType=priority/basic.
    """
    multifactor = _multifactor(scheduler)
    fair, rows = multifactor.fair_share, multifactor.accounts.rows
    classic = "NO_FAIR_TREE" in scheduler.site.priority.flags
    fair.factors(np.arange(len(rows)))
    shares, tree, running = fair.shares, fair.tree, _running_minutes(scheduler, multifactor)
    table: list[Sequence[str]] = []
    for row, depth in _in_order(multifactor):
        one = rows[row]
        root, user = row == 0, bool(one.user)
        parent = one.shares == "parent" and not root
        factor = f"{shares.factor[row]:.6f}" if user or classic else ""
        level = "" if root or parent else f"{shares.level[row]:.6f}"
        cells = [
            " " * depth + one.account,
            one.user,
            "" if root else str(one.shares),
            f"{0.0 if root and not classic else tree.shares[row]:.6f}",
            f"{math.floor(shares.usage[row])}",
            "" if root else f"{shares.normal[row]:.6f}",
            f"{shares.effective[row]:.6f}",
            factor,
            level,
            ",".join(f"{name}={minutes:g}" for name, minutes in one.limits.grp_tres_mins.items()),
            running[row],
        ]
        if classic:
            del cells[SHARE_COLUMNS.index("LevelFS")]
        table.append(cells)
    columns = [name for name in SHARE_COLUMNS if not (classic and name == "LevelFS")]
    return [columns, *table]


def _multifactor(scheduler: SlurmScheduler) -> Multifactor:
    if scheduler.multifactor is None:
        raise ConfigError("expected PriorityType=priority/multifactor, got basic", where="site: priority.type")
    return scheduler.multifactor


def _in_order(multifactor: Multifactor) -> Iterator[tuple[int, int]]:
    """Yields associations and their depths: each account, its users by name, then the accounts below it by name."""
    rows, above = multifactor.accounts.rows, multifactor.accounts.tree.above.tolist()
    below: dict[int, list[int]] = {}
    for row in range(1, len(rows)):
        below.setdefault(above[row], []).append(row)
    waiting = [(0, 0)]
    while waiting:
        row, depth = waiting.pop()
        yield row, depth
        inner = sorted(
            below.get(row, ()), key=lambda each: (not rows[each].user, rows[each].user or rows[each].account)
        )
        waiting += [(each, depth + 1) for each in reversed(inner)]


def _running_minutes(scheduler: SlurmScheduler, multifactor: Multifactor) -> list[str]:
    """TRES-minutes that running jobs have left until their limits, as of the last calculation, of each association."""
    billing, demands = multifactor.fair_share.billing, scheduler.jobs.demands
    consumable = np.isfinite(scheduler.nodes.memory).any()
    seconds = np.zeros((len(multifactor.accounts.rows), 4))
    for job in scheduler.running.job[: scheduler.running.length[0]].tolist():
        left = max(demands.limit[job] - max(multifactor.calculated - billing.start[job], 0.0), 0.0)
        cpus, nodes = billing.cpus[job], billing.nodes[job]
        memory = demands.memory_per_node[job] * nodes + demands.memory_per_cpu[job] * cpus if consumable else 0.0
        row = int(billing.association[job])
        while row >= 0:
            seconds[row] += left * np.array([cpus, memory, nodes, billing.rate[job]])
            row = int(multifactor.accounts.tree.above[row])
    minutes = np.floor(seconds / 60.0).astype(np.int64).tolist()
    return [
        f"cpu={cpu},mem={memory},energy=0,node={node},billing={rate},fs/disk=0,vmem=0,pages=0"
        for cpu, memory, node, rate in minutes
    ]
