"""The jobs that run and wait as squeue prints them, and a job as the options of sbatch ask for it.

Source: the manual pages squeue(1) and sbatch(1) of Slurm 22.05.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.errors import ConfigError, nearest
from hdsim.site.features import OTHERS, for_single_node, is_simulated
from hdsim.site.formats import (
    UNLIMITED,
    expand_nodes,
    fold_nodes,
    parse_date,
    parse_elapsed,
    parse_memory,
    parse_time,
    printed_rows,
    read_value,
)
from hdsim.site.jobs_table import YEAR
from hdsim.site.model import Site
from hdsim.site.notes import Notes
from hdsim.site.platform import nodes_of
from hdsim.site.submit_lines import job_options
from hdsim.site.workload import QUEUED, RUNNING
from hdsim.util.arrays import objects
from hdsim.util.text import shown
from hdsim.workload.model import Workload

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The command whose output is read; columns may have any order, and further ones do no harm.
COMMAND = 'squeue -a -r -o "%i|%u|%a|%P|%q|%T|%V|%S|%M|%l|%D|%C|%m|%N|%r|%Q|%b|%f|%E|%v"'
#: Columns that are needed, by the names that squeue gives them.
_NEEDED = ("JOBID", "USER", "PARTITION", "STATE", "SUBMIT_TIME", "START_TIME", "TIME_LIMIT", "CPUS", "NODELIST")
_OTHER_NAMES = {"ST": "STATE", "NODELIST(REASON)": "NODELIST", "GRES": "TRES_PER_NODE"}
_STATES = {
    **dict.fromkeys(("R", "RUNNING", "S", "SUSPENDED", "CG", "COMPLETING", "CF", "CONFIGURING", "ST", "STOPPED"), True),
    **dict.fromkeys(("PD", "PENDING", "RH", "REQUEUE_HOLD", "RQ", "REQUEUED", "SE", "SPECIAL_EXIT"), False),
}
_NOTHING = ("", "(null)", "N/A", "n/a", "None", "Unknown", "0")
_HELD = ("JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue")
#: Id of a job that is asked for.
ASKED = "asked"


@dataclass(frozen=True)
class Queued:
    """A job that runs or waits; times in seconds since 1970, memory in MiB.

    Attributes:
        id: Its id.
        user, account, qos, partition: Names; a partition may be several with commas.
        submitted: Its submission.
        start: Its start, NaN of one that waits.
        limit: Time limit in seconds, infinite for none.
        cpus: CPUs that it has or asks for.
        nodes: Its nodes, in Slurm's form, empty for one that waits.
        priority: Its priority, NaN if it is not known.
        own: Further columns of :func:`hdsim.site.jobs_table.jobs_table`'s workload.
    """

    id: str
    user: str
    account: str
    qos: str
    partition: str
    submitted: float
    start: float
    limit: float
    cpus: int
    nodes: str
    priority: float
    own: Mapping[str, Any]


def read_squeue(path: Path, zone: str, notes: Notes) -> tuple[list[Queued], float]:
    """Reads the output of `COMMAND`, or of squeue with other columns, with vertical bars or blanks between them.

    Args:
        path: The file.
        zone: Time zone of its times.
        notes: Takes what was read and left out.

    Returns:
        The jobs, and when the command was run, in seconds since 1970: the start and TIME of a running job together, NaN
        if that is not known.

    Raises:
        ConfigError: The file cannot be read, lacks a column, or has a value of another form.
    """
    jobs, moments = [], []
    for row, where in printed_rows(path, ("JOBID",), f"a header with JOBID, as {COMMAND} prints", "FEATURES"):
        values = {_OTHER_NAMES.get(name, name): value for name, value in row.items()}
        missing = [name for name in _NEEDED if name not in values]
        if missing:
            raise ConfigError(
                f"expected the columns {', '.join(missing)} as well, got {', '.join(values)}; {COMMAND}",
                where=str(path),
            )
        runs = _STATES.get(values["STATE"].upper())
        if runs is None:
            notes.leave_out(path.name, f"jobs that are {values['STATE']}", where)
            continue
        job = _job(values, zone, where, runs=runs)
        if not is_simulated(job.own.get("constraints", "any")):
            notes.leave_out(path.name, OTHERS, f"{where}: {job.own['constraints']}")
            job = replace(job, own={name: value for name, value in job.own.items() if name != "constraints"})
        jobs.append(job)
        if runs and values.get("TIME", "") not in _NOTHING and values["STATE"].upper() in ("R", "RUNNING"):
            moments.append(job.start + read_value(values["TIME"], parse_elapsed, f"{where}: TIME"))
    notes.read[path.name] = len(jobs)
    return jobs, max(moments, default=math.nan)


def note_unknown_nodes(jobs: Sequence[Queued], site: Site, file: str, notes: Notes) -> None:
    """Notes the nodes of running jobs that a site lacks; the jobs are on their other nodes, or on some that suffice."""
    known = dict(nodes_of(site))
    for job in jobs:
        unknown = [name for name in expand_nodes(job.nodes) if name not in known] if job.nodes else []
        if unknown:
            notes.leave_out(file, "nodes of running jobs that the site lacks", f"{job.id}: {fold_nodes(unknown)}")


def _job(values: Mapping[str, str], zone: str, where: str, *, runs: bool) -> Queued:
    def given(name: str) -> str:
        text = values.get(name, "")
        return "" if text in _NOTHING else text

    def date(name: str) -> float:
        return float(read_value(values[name], lambda text: parse_date(text, zone), f"{where}: {name}"))

    if "[" in values["JOBID"]:
        raise ConfigError(f"expected a line for each task (squeue -r), got {values['JOBID']}", where=where)
    if not re.fullmatch(r"0*[1-9]\d{0,8}", values["CPUS"], re.ASCII):
        raise ConfigError(f"CPUS: expected a number from 1 on, got {shown(values['CPUS'])}", where=where)
    limit = values["TIME_LIMIT"]
    own: dict[str, Any] = {"cpus": int(values["CPUS"])}
    if re.fullmatch(r"\d{1,9}", given("NODES"), re.ASCII) and not runs:
        own["nodes"] = int(values["NODES"])
    if given("MIN_MEMORY"):
        own["memory_mib"] = read_value(given("MIN_MEMORY"), parse_memory, f"{where}: MIN_MEMORY")[0]
    for name, column in (("FEATURES", "constraints"), ("RESERVATION", "reservation"), ("TRES_PER_NODE", "gres")):
        if given(name):
            own[column] = given(name).removeprefix("gres:").replace("gres/", "")
    if "constraints" in own and own.get("nodes", 2) == 1:
        own["constraints"] = for_single_node(own["constraints"])
    if given("DEPENDENCY") and not runs:
        own["dependency"] = re.sub(r"\([^)]*\)|_\*", "", given("DEPENDENCY"))
    if given("REASON") in _HELD or any(word in values["NODELIST"] for word in _HELD):
        own["held"] = True
    if given("REASON") == "BeginTime" and given("START_TIME"):
        own["begin"] = date("START_TIME")
    if runs:
        read_value(given("NODELIST"), expand_nodes, f"{where}: NODELIST")
    priority = given("PRIORITY")
    return Queued(
        id=values["JOBID"],
        user=values["USER"],
        account=given("ACCOUNT"),
        qos=given("QOS"),
        partition=values["PARTITION"],
        submitted=date("SUBMIT_TIME"),
        start=date("START_TIME") if runs else math.nan,
        limit=math.inf if limit.upper() in UNLIMITED else _limit(limit, where),
        cpus=int(values["CPUS"]),
        nodes=given("NODELIST") if runs else "",
        priority=float(priority) if re.fullmatch(r"\d+(\.\d+)?", priority) and not runs else math.nan,
        own=own,
    )


def _limit(text: str, where: str) -> float:
    read = parse_elapsed if ":" in text else parse_time
    return float(read_value(text, read, f"{where}: TIME_LIMIT"))


def begin_at(text: str, at: float, zone: str) -> float:
    """Returns the seconds since 1970 of ``--begin`` of a job that is submitted at a time: ``now+2hours``, or a date.

    Raises:
        ValueError: It has another form.
    """
    found = re.fullmatch(r"now(?:\+(\d{1,9})([a-z]*))?", text)
    if not found:
        return parse_date(text, zone)
    units = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
    return at + float(found[1] or 0) * units.get((found[2] or "")[:1], 1.0)


def asked_job(text: str, site: Site, at: float) -> Queued:
    """Returns a job that is submitted at a time, from options of sbatch such as ``-p main -n 16 -t 4:00:00 --uid=ann``.

    Raises:
        ConfigError: An option is not known or a value is not allowed.
    """
    where = f"--job {shown(text)}"
    try:
        own = job_options(text)
    except ValueError as error:
        raise ConfigError(str(error), where=where) from None
    if "begin" in own:
        own["begin"] = read_value(own["begin"], lambda begin: begin_at(begin, at, site.time_zone), f"{where}: --begin")
    partition = own.pop("partitions", None) or site.default_partition or next(iter(site.partitions), "")
    for name in partition.split(","):
        if name not in site.partitions:
            allowed = ", ".join(site.partitions)
            raise ConfigError(
                f"expected a partition of {allowed}, got '{name}'{nearest(name, site.partitions)}", where=where
            )
    kind = site.partitions[partition.split(",")[0]]
    usual = kind.max_time if kind.default_time is None else kind.default_time
    limit = own.pop("time", usual)
    return Queued(
        id=ASKED,
        user=own.pop("user", ""),
        account=own.pop("account", ""),
        qos=own.pop("qos", "normal" if "normal" in site.qos else next(iter(site.qos), "")),
        partition=partition,
        submitted=at,
        start=math.nan,
        limit=limit if limit > 0 else math.inf,  # sbatch(1): 0 is no limit
        cpus=int(own["cpus"]),
        nodes="",
        priority=math.nan,
        own=own,
    )


def jobs_of(queued: Sequence[Queued], log: Workload, site: Site, at: float, source: str) -> Workload:
    """Returns jobs that run and wait as a workload with the names of a log; the first row is time 0.

    Args:
        queued: The jobs.
        log: The log.
        site: The site.
        at: The moment in seconds since 1970.
        source: Origin of the jobs, for error messages.
    """
    jobs = queued
    known = {column: dict(log.names.get(column, {})) for column in ("user", "group", "queue", "partition")}

    def numbers(column: str, values: Iterable[str]) -> list[int]:
        number_of = {name: number for number, name in known[column].items()}
        found = []
        for value in values:
            if value not in number_of:
                number_of[value] = max(number_of.values(), default=-1) + 1
                known[column][number_of[value]] = value
            found.append(number_of[value] if value else -1)
        return found

    limits = [_known_limit(job, site) for job in jobs]
    own = {name: [job.own.get(name) for job in jobs] for job in jobs for name in job.own}
    partitions = [job.partition for job in jobs]
    per_cpu = [
        part in site.partitions and site.partitions[part].default_memory_per_cpu is not None
        for part in (one.split(",")[0] for one in partitions)
    ]
    own.setdefault("memory_per", [None] * len(jobs))
    own["memory_per"] = [
        given or ("c" if of_cpu else "n") for given, of_cpu in zip(own["memory_per"], per_cpu, strict=True)
    ]
    own["partitions"] = [part if "," in part else None for part in partitions]
    own["recorded_nodes"] = [job.nodes or None for job in jobs]
    begin = np.array([math.nan if value is None else value for value in own.pop("begin", [None] * len(jobs))])
    further = {name: objects(values) for name, values in own.items()}
    further |= {
        RUNNING: np.array([job.start for job in jobs]),
        QUEUED: np.array([job.submitted for job in jobs]),
        "begin": begin,
        "eligible": begin,
    }
    columns = {
        "user": numbers("user", [job.user for job in jobs]),
        "group": numbers("group", [job.account for job in jobs]),
        "queue": numbers("queue", [job.qos for job in jobs]),
        "partition": numbers("partition", [part.split(",")[0] for part in partitions]),
    }
    return Workload.from_columns(
        job_id=objects([job.id for job in jobs]),
        submission_time=np.zeros(len(jobs)),
        original_submission_time=np.full(len(jobs), at),
        runtime=limits,
        requested_cores=[job.cpus for job in jobs],
        requested_time=limits,
        **columns,
        names={**log.names, **known},
        further=further,
        source=source,
    )


def _known_limit(job: Queued, site: Site) -> float:
    kind = site.partitions.get(job.partition.split(",")[0])
    most = math.inf if kind is None else kind.max_time
    return min(job.limit, most if job.limit == math.inf else math.inf, YEAR)
