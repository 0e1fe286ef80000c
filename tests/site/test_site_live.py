"""A real slurmctld beside the simulation: each start of a mixed load is explained from the recorded state."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from measuring import clocked, measured_case, write_dump
from recorded import unexplained
from slurm_cluster import SlurmCluster, slurm_cluster, wait_until

from hdsim.slurm.emulated import Shape

pytestmark = [pytest.mark.ci, pytest.mark.requires("slurm"), pytest.mark.xdist_group("slurm")]
CLOCK = 30.0
#: Settings of slurm.conf beside those of an emulated cluster.
RULES = """
AccountingStorageEnforce=associations,limits,qos
PreemptType=preempt/qos
PreemptMode=CANCEL
PriorityWeightFairshare=10000
PriorityWeightPartition=500
PriorityWeightQOS=1000
PriorityDecayHalfLife=0-01:00:00
PriorityCalcPeriod=00:01:00
PartitionName=small Nodes=n[1-2] MaxTime=60 PriorityJobFactor=10 State=UP
"""


def configure(cluster: SlurmCluster) -> None:
    """Adds accounts, QOS, a partition and rules, and starts slurmctld again."""
    for account, shares in (("a1", 10), ("a2", 60)):
        cluster.command("sacctmgr", "-i", "add", "account", account, f"fairshare={shares}")
        cluster.command("sacctmgr", "-i", "add", "user", "root", f"account={account}")
    cluster.command("sacctmgr", "-i", "add", "qos", "low", "priority=1")
    cluster.command("sacctmgr", "-i", "add", "qos", "high", "priority=10", "preempt=low")
    cluster.command("sacctmgr", "-i", "modify", "user", "root", "set", "qos=normal,low,high")
    restart = cluster.kill("slurmctld")
    with cluster.emulated.conf.open("a") as file:
        file.write(RULES)
    restart()

    def idle() -> bool:
        environment = {"PATH": "/usr/bin:/bin", "SLURM_CONF": str(cluster.emulated.conf)}
        shown = subprocess.run(["sinfo", "-h", "-N", "-o", "%P %T"], env=environment, capture_output=True, text=True)
        return "small idle" in shown.stdout and all(line.endswith(" idle") for line in shown.stdout.splitlines())

    wait_until(idle, "idle nodes")


def load(cluster: SlurmCluster) -> tuple[int, str]:
    """Submits jobs of accounts, QOS and partitions, an array, dependencies; returns their number and a reservation."""
    clocked(
        cluster,
        "scontrol create reservation reservationname=m1 starttime=now+8minutes duration=2 flags=maint nodes=n4 "
        "users=root",
    )
    reservation = clocked(cluster, "scontrol -o show reservation")
    rng = np.random.default_rng(5)
    submitted: list[int] = []
    for number in range(56):
        cpus = int(rng.choice([1, 2, 4, 8, 12]))
        options = [f"--ntasks={cpus}", f"--account={('a1', 'a2')[number % 2]}", "--time=10"]
        if number % 7 == 3:
            options += ["--qos=high"]
        elif number % 3 == 0:
            options += ["--qos=low"]
        if number % 5 == 0 and cpus <= 8:
            options += ["--partition=small"]
        if number in (20, 30):
            options += [f"--dependency=afterok:{submitted[-4]}"]
        if number == 40:
            options += [f"--dependency=afterany:{submitted[-1]}:{submitted[-2]}"]
        seconds = float(rng.uniform(60, 300)) / CLOCK
        submitted.append(cluster.submit(*options, seconds=round(seconds, 2)))
    cluster.submit("--array=1-8%2", "--ntasks=2", "--account=a1", "--time=5", seconds=60 / CLOCK)
    return len(submitted) + 8, reservation


def test_each_start_of_a_real_slurmctld_is_explained(tmp_path: Path) -> None:
    with slurm_cluster(tmp_path / "cluster", Shape(4, 8, CLOCK, accounting=True)) as cluster:
        configure(cluster)
        number, reservation = load(cluster)
        limit = time.monotonic() + 120.0
        while any(state in ("PENDING", "RUNNING", "COMPLETING") for state in cluster.states().values()):
            assert time.monotonic() < limit, cluster.states()
            time.sleep(0.5)
        time.sleep(1.5)  # slurmdbd commits once a second
        write_dump(cluster, tmp_path / "dump", {"reservations.txt": reservation})
    case, _ = measured_case(tmp_path / "dump", tmp_path / "site")
    assert len(case.order) >= number - 4
    # A second of this machine is half a minute of the cluster; nothing records when priorities are calculated.
    first = float(case.jobs.submitted[0])
    found = [unexplained(case, first - phase, tolerance=CLOCK) for phase in (60.0, 90.0)]
    late, elsewhere = min(found, key=lambda each: len(each[0]))
    assert len(late) <= 0.1 * len(case.order), late
    assert len(elsewhere) <= 0.1 * len(case.order), elsewhere
