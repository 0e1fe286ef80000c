"""Priorities and fair shares against what sprio and sshare of a real slurmctld 22.05 printed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from recorded import Case, read_case, state_at

from hdsim.site.accounts import FairShare, accounts_of
from hdsim.site.jobs_table import jobs_table
from hdsim.site.model import Association, Partition, Site
from hdsim.site.quotas import quotas_of
from hdsim.site.reasons import Reasons
from hdsim.site.scheduler import SlurmScheduler

#: Cases, and the seconds of the first calculation in them, which nothing records and which drifts on a faster clock:
#: with one of them, all usage is exact.
PHASES = {"prio_fairtree": range(31, 33), "prio_classic_fs": range(31, 36), "prio_all": range(37, 41)}
#: In this case calculations were up to 66 s apart instead of 60; they change fair shares by up to 0.004.
LATE = {"prio_classic_fs": (230.6, 242.8, 1286.5)}
Table = list[dict[str, str]]


def snapshots(folder: Path, command: str) -> list[tuple[float, Table]]:
    """The time and the rows of each output of a command; of sprio, the second column PARTITION is ``factor``."""
    text = (folder / "snaps.txt").read_text(encoding="utf-8")
    parts = re.split(r"^### t=\d+ \(offset ([\d.]+)\) \$ (.*)$", text, flags=re.MULTILINE)
    found = []
    for at, what, lines in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        if what == command:
            cut = str.split if command.startswith("sprio") else lambda line: line.split("|")
            rows = [cut(line) for line in lines.strip("\n").splitlines()]
            names = [name if rows[0].index(name) == place else "factor" for place, name in enumerate(rows[0])]
            found.append((float(at), [dict(zip(names, row, strict=False)) for row in rows[1:]]))
    return found


def differing(case: Case, name: str, at: float, differences: Callable[[SlurmScheduler], list[str]]) -> list[str]:
    """The differences from the recorded state at a time, with the phase of calculation that has the fewest.

    A command is answered some seconds of the faster clock after it is given.
    """
    found = []
    for answered in case.zero + at + np.array([0.0, 5.0, 10.0]):
        begun = [job for job in case.order if case.start[job] <= answered]
        phases = PHASES.get(name, range(1))
        found += [differences(state_at(case, begun, answered, begin=phase - 60.0)) for phase in phases]
    return min(found, key=len)


def allowance(name: str, at: float) -> float:
    """By how much fair shares may differ from the recorded ones, which have six digits."""
    return 0.004 if at in LATE.get(name, ()) else 1e-6


@pytest.mark.parametrize("name", PHASES)
def test_shares_are_those_of_sshare(shared_data: Path, name: str) -> None:
    folder = shared_data / "slurm" / name
    case = read_case(folder)
    for at, table in snapshots(folder, "sshare -a -l -P"):

        def differences(scheduler: SlurmScheduler, at: float = at, table: Table = table) -> list[str]:
            multifactor = scheduler.multifactor
            assert multifactor is not None
            fair, rows = multifactor.fair_share, multifactor.accounts.rows
            fair.factors(np.arange(len(rows)))
            columns = {
                "NormShares": fair.tree.shares,
                "RawUsage": np.floor(fair.shares.usage),
                "NormUsage": fair.shares.normal,
                "EffectvUsage": fair.shares.effective,
                "FairShare": fair.shares.factor,
                "LevelFS": fair.shares.level,
            }
            found = []
            for shown in table[1:]:  # root's own row is special
                key = shown["Account"].strip(), shown["User"]
                row = next(row for row, one in enumerate(rows) if (one.account, one.user) == key)
                for column, values in columns.items():
                    allowed = allowance(name, at) if column != "RawUsage" else 0
                    if shown.get(column) and values[row] != pytest.approx(float(shown[column]), abs=allowed):
                        found.append(f"{at}: {key} {column}: {shown[column]}, got {values[row]}")
            return found

        assert len(table) == 13
        assert differing(case, name, at, differences) == []


@pytest.mark.parametrize("name", [*PHASES, "prio_part", "prio_size_big", "prio_size_small"])
def test_priorities_are_those_of_sprio(shared_data: Path, name: str) -> None:
    folder = shared_data / "slurm" / name
    case = read_case(folder)
    partitions = list(case.site.partitions)
    rules = case.site.priority
    ageing = rules.weight_age * rules.calculation_period / rules.max_age  # points in one period of calculation
    for at, table in snapshots(folder, "sprio -l"):

        def differences(scheduler: SlurmScheduler, at: float = at, table: Table = table) -> list[str]:
            multifactor = scheduler.multifactor
            assert multifactor is not None
            found = []
            for shown in table:
                job = case.slurm_ids.index(shown["JOBID"])
                if job not in scheduler.pending:
                    found.append(f"{at}: {shown}: not pending")
                    continue
                factors = multifactor.factors(np.array([job]), np.array([partitions.index(shown["PARTITION"])]))
                columns = {
                    "ASSOC": factors.association,
                    "JOBSIZE": factors.job_size,
                    "factor": factors.partition,
                    "QOS": factors.qos,
                    "NICE": factors.nice,
                }
                given = {column: f"{value[0]:.0f}" for column, value in columns.items()}
                pairs = zip(multifactor.tres, factors.tres[0], strict=True)
                given["TRES"] = ",".join(f"{tres}={value:.0f}" for tres, value in pairs)
                differ = [
                    f"{at}: {shown}: {column}: got {value}"
                    for column, value in given.items()
                    if shown.get(column, "") != value
                ]
                sharing = (allowance(name, at) - 1e-6) * rules.weight_fair_share
                near = abs(factors.age[0] - float(shown["AGE"])) <= ageing + 0.5
                near &= abs(factors.fair_share[0] - float(shown["FAIRSHARE"])) <= sharing + 0.5
                near &= abs(factors.total()[0] - float(shown["PRIORITY"])) <= sharing + ageing + 1.0
                found += differ if near else [*differ, f"{at}: {shown}: {factors.age} {factors.total()}"]
            return found

        assert len(table) >= 10
        assert differing(case, name, at, differences) == []


@pytest.mark.parametrize("name", [*PHASES, "prio_part", "prio_size_big", "prio_size_small"])
def test_the_priority_of_sacct_is_that_of_the_submission(shared_data: Path, name: str) -> None:
    case = read_case(shared_data / "slurm" / name)
    differing = []
    for job in range(len(case.keys)):
        found = []
        for now in case.jobs.eligible[job] + np.array([0.0, 5.0]):  # the clock was 60 times as fast
            begun = [other for other in case.order if case.start[other] < now and other != job]
            state = state_at(case, begun, now, begin=PHASES.get(name, range(1))[0] - 60.0)
            if job not in state.pending:
                state.submit(job, now)
            found.append(float(state.priorities(np.array([job]), np.array(case.jobs.partitions[job][:1]))[0]))
        if min(abs(value - case.priority[job]) for value in found) > 1.0:
            differing.append(f"{case.keys[job]}: {case.priority[job]}, got {found}")
    assert differing == []


def tree(rows: list[tuple[str, str, str, int]]) -> Site:
    """A site with associations: account, user, parent and shares."""
    made = [
        Association(account=account, user=user, parent=parent, shares=shares) for account, user, parent, shares in rows
    ]
    return Site(associations=made)


def fair_share(site: Site, association: np.ndarray, begin: float) -> FairShare:
    """The shares of a site without limits; jobs belong to rows of its tree."""
    none = {"submit": [0.0] * len(association), "cpus": [1] * len(association), "partition": [None] * len(association)}
    accounts = accounts_of(site)
    site.partitions["p"] = Partition(nodes="ALL", default=True)
    jobs = jobs_table(none, site)
    return FairShare(site, accounts, association, quotas_of(site, jobs, accounts, Reasons(), 1).quotas, begin)


def shares_of(site: Site, usage: dict[str, float]) -> dict[str, float]:
    """The factor of each user after usage of users in billing-seconds."""
    accounts = accounts_of(site)
    fair = fair_share(site, np.zeros(0, np.int64), 0.0)
    for row, one in enumerate(accounts.rows):
        up = row if one.user else -1
        while up >= 0:
            fair.shares.usage[up] += usage.get(one.user, 0.0)
            up = int(accounts.tree.above[up])
    none = np.zeros(0, np.int64)
    fair.calculate(none, none, 0.0)
    factors = fair.factors(np.arange(len(accounts.rows)))
    return {one.user: float(factors[row]) for row, one in enumerate(accounts.rows) if one.user}


def test_tied_accounts_are_taken_one_after_the_other() -> None:
    # u1 has used all; a2, a3 and a4 are tied. The account that was created last comes first, and the first user of the
    # next tied one has the rank of the last user before.
    rows = [("a1", "", "", 1), ("a1", "u1", "", 1)]
    for number in (2, 3, 4):
        rows += [(f"a{number}", "", "", 1), (f"a{number}", f"u{number}", "", 1), (f"a{number}", f"v{number}", "", 1)]
    found = shares_of(tree(rows), {"u1": 100.0, "u2": 10.0, "u3": 10.0, "u4": 10.0})
    ranks = {user: round(factor * 7) for user, factor in found.items()}
    assert ranks == {"v4": 7, "u4": 6, "v3": 6, "u3": 4, "v2": 4, "u2": 2, "u1": 1}


def test_users_come_before_accounts_and_share_ranks() -> None:
    rows = [("a1", "", "", 1), ("a1", "u1", "", 1), ("a1", "u2", "", 1), ("root", "u3", "", 1), ("root", "u4", "", 0)]
    found = shares_of(tree(rows), {})
    # u3 and account a1 are tied without usage, so that all but the user without shares have the first rank.
    assert found == {"u3": 1.0, "u1": 1.0, "u2": 1.0, "u4": 0.25}


def test_usage_decays_by_the_linear_factor_of_slurm() -> None:
    site = tree([("a1", "", "", 1), ("a1", "u1", "", 1)])
    site.priority.decay_half_life = 3600.0
    fair = fair_share(site, np.array([2]), 0.0)
    none = np.zeros(0, np.int64)
    fair.start(0, 0.0, 4.0, 1.0, 4, 1)
    fair.calculate(np.array([0]), none, 60.0)
    fair.calculate(none, none, 660.0)
    factor = 1.0 - 0.693 / 3600.0
    assert fair.shares.usage.tolist() == pytest.approx([60 * 4 * factor**60 * factor**600] * 3)


def test_usage_is_reset_at_the_begin_of_a_month_of_the_site() -> None:
    site = tree([("a1", "", "", 1), ("a1", "u1", "", 1)])
    site.time_zone, site.priority.usage_reset_period = "Europe/Berlin", "MONTHLY"
    site.priority.decay_half_life = 0.0
    march = 1772319600.0  # 2026-03-01T00:00:00+01:00
    fair = fair_share(site, np.array([2]), march - 600.0)
    none = np.zeros(0, np.int64)
    fair.start(0, march - 600.0, 1.0, 1.0, 1, 1)
    fair.calculate(np.array([0]), none, march - 1.0)
    assert fair.shares.usage[2] == 599.0
    fair.calculate(none, none, march)
    assert not fair.shares.usage.any()


def test_classic_shares_by_hand() -> None:
    # Two accounts of equal shares; a1 has used all: effective usage 1 of half the shares is 2^-2.
    site = tree([("a1", "", "", 1), ("a1", "u1", "", 1), ("a2", "", "", 1), ("a2", "u2", "", 1)])
    site.priority.flags = ["NO_FAIR_TREE"]
    accounts = accounts_of(site)
    fair = fair_share(site, np.zeros(0, np.int64), 0.0)
    for row, one in enumerate(accounts.rows):
        fair.shares.usage[row] = 10.0 if one.account in ("root", "a1") else 0.0
    none = np.zeros(0, np.int64)
    fair.calculate(none, none, 0.0)
    factors = fair.factors(np.arange(len(accounts.rows)))
    by_user = {one.user: factors[row] for row, one in enumerate(accounts.rows) if one.user}
    assert by_user == {"u1": pytest.approx(2.0**-2), "u2": pytest.approx(1.0)}
    assert not math.isnan(float(fair.shares.effective.sum()))
