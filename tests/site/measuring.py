"""Schedules of a real slurmctld for designed jobs: their measurement, and the cases that measured folders hold."""

from __future__ import annotations

import math
import os
import re
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from recorded import Case
from slurm_cluster import SlurmCluster, slurm_cluster, wait_until

from hdsim.platform.load import load_platform
from hdsim.site.formats import expand_nodes
from hdsim.site.importing import import_site, write_site
from hdsim.site.jobs_table import jobs_table
from hdsim.site.notes import Notes
from hdsim.site.platform import nodes_of
from hdsim.site.sacct import COMMAND
from hdsim.site.workload import columns_of
from hdsim.slurm.emulated import Shape
from hdsim.workload.load import load_workload

#: Seconds of the cluster in a second.
CLOCK = 30.0
#: Seconds of the cluster until the first job, in which all are submitted.
_AHEAD = 300
#: Files that no import reads: jobs in the order of their starts, and when priorities were calculated first.
_RESULTS = ("order.txt", "calculated.txt")
#: Lines of slurm.conf that have no influence on schedules.
_HOUSEKEEPING = re.compile(
    r"^(SlurmctldHost|Slurmctld|Slurmd|SlurmUser|AuthType|CredType|Communication|Mpi|Switch|Proctrack|Task|JobAcct|JobComp"
    r"|DebugFlags|State|ReturnTo|Message|TCP|KillWait|MinJobAge|CompleteWait|Inactive|MaxJobCount|Propagate|AccountingStorage(H|P|Ty)).*"
)


@dataclass(frozen=True)
class Measurement:
    """A cluster and its jobs.

    Attributes:
        nodes: What follows the names of nodes of a line ``NodeName=`` of slurm.conf, by nodes such as ``n[1-2]``.
        jobs: Seconds of the first job's begin and of its duration in the cluster, and options of sbatch.
        conf: Lines of slurm.conf that take the place of those of the same key.
        accounts: Words of commands of sacctmgr; none where the cluster has no accounting.
        files: Further files of the configuration by name.
        naps: Parts in which jobs sleep.
    """

    nodes: Mapping[str, str]
    jobs: list[tuple[float, float, str]]
    conf: str = ""
    accounts: list[str] = field(default_factory=list)
    files: Mapping[str, str] = field(default_factory=dict)
    naps: int = 1


def measure(measurement: Measurement, folder: Path, dump: Path) -> None:
    """Lets a real slurmctld schedule the jobs and writes what an administrator has of it into a new folder."""
    names = [name for listed in measurement.nodes for name in expand_nodes(listed)]
    with slurm_cluster(folder, Shape(len(names), 1, CLOCK, accounting=True)) as cluster:
        _configure(cluster, measurement, names)
        _open_to_users(cluster.emulated.folder)
        now = int(clocked(cluster, "date +%s"))
        for begin, seconds, options in measurement.jobs:
            at = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(now + _AHEAD + begin))
            cluster.submit(
                f"--begin={at}", "--chdir=/", *options.split(), seconds=round(seconds / CLOCK, 2), naps=measurement.naps
            )
        late = int(clocked(cluster, "date +%s")) - now - _AHEAD
        assert late < 0, f"the last job was submitted {late} s after the first one's begin"
        limit = time.monotonic() + 300.0
        while any(state in ("PENDING", "RUNNING", "COMPLETING", "SUSPENDED") for state in cluster.states().values()):
            assert time.monotonic() < limit, cluster.command("squeue")
            time.sleep(0.5)
        time.sleep(1.5)  # slurmdbd commits once a second
        write_dump(cluster, dump, measurement.files)


def _configure(cluster: SlurmCluster, measurement: Measurement, names: list[str]) -> None:
    for words in measurement.accounts:
        cluster.command("sacctmgr", "-i", *words.split())
    lines = cluster.emulated.conf.read_text().splitlines()
    ports = dict(re.findall(r"NodeName=(\w+) .*Port=(\d+)", "\n".join(lines)))
    given = {line.split("=")[0] for line in measurement.conf.split()}
    given.add("DebugFlags")
    kept = [line for line in lines if line.split("=")[0] not in {*given, "NodeName", "PartitionName"}]
    for listed, properties in measurement.nodes.items():
        for name in expand_nodes(listed):
            where = f"NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[name]} State=UNKNOWN"
            kept.append(f"NodeName={name} {where} {properties}")
    if "PartitionName" not in given:
        kept.append("PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
    restarts = [cluster.kill(name) for name in (*names, "slurmctld")]
    cluster.emulated.conf.write_text("\n".join([*kept, "DebugFlags=Priority", *measurement.conf.split("\n")]) + "\n")
    for name, text in measurement.files.items():
        for listed in re.findall(r"File=FOLDER/(\S+)", text):
            for each in expand_nodes(listed):
                (cluster.emulated.folder / each).touch()
        cluster.emulated.conf.with_name(name).write_text(text.replace("FOLDER", str(cluster.emulated.folder)))
    for restart in restarts[::-1]:
        restart()
    environment = {"PATH": "/usr/bin:/bin", "SLURM_CONF": str(cluster.emulated.conf)}

    def idle() -> bool:
        shown = subprocess.run(["sinfo", "-h", "-N", "-o", "%N %T"], env=environment, capture_output=True, text=True)
        rows = shown.stdout.split("\n")[:-1]
        return bool(rows) and all(row.endswith(" idle") for row in rows)

    wait_until(idle, "idle nodes")


def _open_to_users(folder: Path) -> None:
    """Lets jobs of other users read their scripts, and the clock of the cluster."""
    for each in (folder, *folder.parents):
        if each.stat().st_uid == os.getuid() and each != Path(each.anchor):
            each.chmod(each.stat().st_mode | 0o011)
    for each in Path("/dev/shm").glob("*faketime*"):
        if each.stat().st_uid == os.getuid():
            each.chmod(0o666)


def clocked(cluster: SlurmCluster, command: str) -> str:
    """Output of a command that has the clock of the cluster."""
    script = f". {cluster.emulated.folder}/env; clocked {command}"
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout


def write_dump(cluster: SlurmCluster, dump: Path, files: Mapping[str, str]) -> None:
    """Writes the files that `hdsim site import` reads, and the jobs in the order in which they were started."""
    dump.mkdir(parents=True)
    conf = [line for line in cluster.emulated.conf.read_text().splitlines() if not _HOUSEKEEPING.match(line)]
    text = re.sub(r" NodeHostname=localhost NodeAddr=127.0.0.1 Port=\d+ State=UNKNOWN", "", "\n".join(conf))
    (dump / "slurm.conf").write_text(text + "\n")
    for name, written in files.items():
        if name != "gres.conf":  # its files are empty ones of the machine that measured
            (dump / name).write_text(written)
    environment = {"PATH": "/usr/bin:/bin", "SLURM_CONF": str(cluster.emulated.conf), "SLURM_TIME_FORMAT": "%s"}

    def write(name: str, *command: str) -> None:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        (dump / name).write_text(done.stdout)

    span = "-S", "1970-01-01", "-E", "2037-01-01"
    write("sacct.txt", "sacct", "-a", "-D", "-X", "--parsable2", *span, COMMAND.split()[-1])
    write("assoc.txt", "sacctmgr", "-P", "show", "assoc", "tree")
    write("qos.txt", "sacctmgr", "-P", "show", "qos")
    log = (cluster.emulated.folder / "log" / "slurmctld.log").read_text()
    found = re.findall(r"sched: Allocate JobId=([^\s(]+)|sched/backfill: _start_job: Started JobId=([^\s(]+)", log)
    (dump / _RESULTS[0]).write_text("\n".join(main or backfill for main, backfill in found) + "\n")
    calculated = re.findall(r"^\[(\S+?)\.\d+\].*_ft_debug", log, re.MULTILINE)
    if calculated:
        (dump / _RESULTS[1]).write_text(f"{time.mktime(time.strptime(calculated[0], '%Y-%m-%dT%H:%M:%S')):.0f}\n")


def measured_case(dump: Path, folder: Path) -> tuple[Case, float]:
    """Returns the case of a measured folder and the time of a calculation of priorities before its jobs.

    An empty folder takes the files of the import.
    """
    files = [path for path in sorted(dump.iterdir()) if path.name not in _RESULTS]
    site, jobs = import_site(files, "UTC", Notes())
    write_site(site, Notes(), folder, jobs)
    platform = load_platform(folder / "platform.json")
    further = {"memory": "none", "memory_bandwidth": "none", "status": "queued"}
    workload = load_workload(folder / "jobs.parquet", platform, **further)
    start = np.asarray(workload.further["recorded_start"], np.float64)
    end = np.asarray(workload.further["recorded_end"], np.float64)
    place = {name: row for row, (name, _) in enumerate(nodes_of(site))}
    ids = [str(job) for job in workload.job_id]
    rank = {job: number for number, job in enumerate((dump / _RESULTS[0]).read_text().split())}
    order = [row for row in range(len(ids)) if not math.isnan(start[row])]
    order.sort(key=lambda row: (start[row], rank.get(ids[row], 0)))
    table = jobs_table(columns_of(workload), site, str(folder))
    case = Case(
        site=site,
        zero=0,
        jobs=table,
        keys=ids,
        slurm_ids=ids,
        start=np.where(np.isnan(start), math.inf, start),
        end=np.where(np.isnan(end), math.inf, end),
        nodes=[
            [place[name] for name in expand_nodes(str(text or "")) if name in place]
            for text in workload.further["recorded_nodes"]
        ],
        order=order,
        priority=np.zeros(len(ids)),
        cpus=(workload.requested_cores * table.per_counted).tolist(),
    )
    first, period = float(case.jobs.submitted[0]), site.priority.calculation_period
    if not (dump / _RESULTS[1]).exists():
        return case, first
    calculated = float((dump / _RESULTS[1]).read_text())
    return case, calculated - period * math.ceil(max(calculated - first, 0.0) / period)
