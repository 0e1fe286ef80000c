"""Plan files: a site and a handful of jobs in one YAML file."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, Field

from hdsim.errors import ConfigError
from hdsim.site.dependencies import named_jobs
from hdsim.site.jobs_table import YEAR
from hdsim.site.model import Part, Seconds, Site, part_of, read_document, site_of
from hdsim.util.arrays import objects
from hdsim.util.text import shown
from hdsim.workload.model import Workload


def _gpus(value: Any) -> str | None:
    """Reads GPUs as sbatch takes them: a number, or one behind a type."""
    if value is None or (not isinstance(value, bool) and re.fullmatch(r"([^:,\s]+:)?\d+", str(value))):
        return None if value is None else str(value)
    raise ValueError(f"expected a number of GPUs such as 4 or a100:4, got {shown(value)}")


_Gpus = Annotated[str | None, BeforeValidator(_gpus)]


class Job(Part):
    """A job of a plan file; times are in seconds, memory in MiB."""

    id: int | str | None = None  # its place in the file by default
    at: Seconds = 0.0  # submission after the begin
    begin: Seconds | None = None  # earliest start after the begin (--begin)
    runtime: Seconds
    time: Seconds | None = None  # time limit; null: that of the partition
    cpus: int = Field(1, ge=1)
    nodes: int | None = Field(None, ge=1)  # least and most
    per_task: int | None = Field(None, ge=1)
    tasks_per_node: int | None = Field(None, ge=1)
    min_cpus: int | None = Field(None, ge=1)  # of each node
    memory: float | None = Field(None, ge=0)  # of each node
    memory_per_cpu: float | None = Field(None, ge=0)
    whole: bool = False
    exclusive_user: bool = False
    user: str = "user"
    account: str = ""
    qos: str | None = None
    partition: str | None = None  # or several, with commas
    nice: int = 0
    name: str = ""
    dependency: str | None = None
    array_limit: int | None = Field(None, ge=1)
    constraints: str | None = None
    reservation: str | None = None
    licenses: str | None = None
    gres: str | None = None
    gpus: _Gpus = None  # on all nodes together, such as 4 or a100:4
    gpus_per_task: _Gpus = None
    cpus_per_gpu: int | None = Field(None, ge=1)
    required_nodes: str | None = None
    excluded_nodes: str | None = None
    fails: bool = False


#: Columns of one's own that are as in the file.
_SAME = (
    *(
        "nodes",
        "per_task",
        "tasks_per_node",
        "min_cpus",
        "exclusive_user",
        "whole",
        "nice",
        "dependency",
        "array_limit",
        "constraints",
        "reservation",
        "licenses",
    ),
    *("gres", "gpus_per_task", "cpus_per_gpu", "required_nodes", "excluded_nodes", "cpus"),
)


def read_plan(path: Path) -> tuple[Site, Workload]:
    """Reads a plan file: the keys of a site file and ``jobs``, a list.

    Raises:
        ConfigError: The file cannot be read, or a key or a value is not allowed; each fault is a line.
    """
    document = read_document(path, "a plan, a YAML file with nodes, partitions and jobs", str(path))
    listed = document.pop("jobs", None) if isinstance(document, dict) else None
    if not isinstance(listed, list) or not listed:
        expected = "expected jobs, a list such as '- {at: 0, cpus: 4, runtime: 1h}'"
        raise ConfigError(f"{expected}, got {shown(listed)}", where=str(path))
    site = site_of(_completed(document), str(path))
    jobs = [
        part_of(Job, one, str(path), "at, cpus and runtime", f"jobs[{number}]") for number, one in enumerate(listed)
    ]
    jobs.sort(key=lambda job: job.at)
    workload = _workload(site, jobs, str(path))
    _check_ids(workload)
    return site, workload


def _check_ids(jobs: Workload) -> None:
    """Checks that each job has an id of its own, and that dependencies name other jobs of the plan.

    Raises:
        ConfigError: One does not; slurmctld refuses a dependency on a job that it does not know, too.
    """
    ids = [str(one) for one in jobs.job_id.tolist()]
    known = {*ids, *(name.partition("_")[0] for name in ids)}
    for row, (name, text) in enumerate(zip(ids, jobs.further["dependency"].tolist(), strict=True)):
        if name in ids[:row]:
            raise ConfigError(f"expected ids that differ, got {name} twice", where=f"{jobs.source}: id")
        for other in named_jobs(text or ""):
            if other not in known or other == name:
                allowed = ", ".join(one for one in ids if one != name) or "none"
                told = f"expected ids of other jobs of the plan ({allowed}), got '{other}'"
                raise ConfigError(told, where=f"{jobs.source}: job {name}: dependency")


def _completed(document: dict[str, Any]) -> dict[str, Any]:
    """A partition with all nodes where there is none, and priorities by submission where the file has none."""
    usual = {"partitions": {"main": {"nodes": "ALL", "default": True}}, "priority": {"type": "basic"}}
    return {**usual, **document, "qos": {"normal": {}, **(document.get("qos") or {})}}


def _workload(site: Site, jobs: list[Job], source: str) -> Workload:
    names: dict[str, dict[int, str]] = {}

    def numbers(column: str, values: list[str]) -> list[int]:
        known = list(dict.fromkeys(values))
        names[column] = dict(enumerate(known))
        return [known.index(value) for value in values]

    usual = site.default_partition or next(iter(site.partitions))
    parts = [job.partition or usual for job in jobs]
    limits = [_limit(site, job, part) for job, part in zip(jobs, parts, strict=True)]
    own = {name: objects([getattr(job, name) for job in jobs]) for name in _SAME}
    own["gpus_asked"] = objects([job.gpus for job in jobs])
    own["most_nodes"] = own["nodes"]
    own["memory_mib"] = objects([job.memory if job.memory_per_cpu is None else job.memory_per_cpu for job in jobs])
    own["memory_per"] = objects(["n" if job.memory_per_cpu is None else "c" for job in jobs])
    own["eligible"] = np.array([job.at if job.begin is None else job.begin for job in jobs])
    own["begin"] = np.array([math.nan if job.begin is None else job.begin for job in jobs])
    own["partitions"] = objects(parts)
    return Workload.from_columns(
        job_id=[row if job.id is None else job.id for row, job in enumerate(jobs, 1)],
        submission_time=[job.at for job in jobs],
        runtime=[job.runtime for job in jobs],
        requested_cores=[job.cpus for job in jobs],
        requested_time=limits,
        walltime=limits,
        return_code=[int(job.fails) for job in jobs],
        user=numbers("user", [job.user for job in jobs]),
        group=numbers("group", [job.account for job in jobs]),
        queue=numbers("queue", [job.qos or "normal" for job in jobs]),
        partition=numbers("partition", parts),
        executable=numbers("executable", [job.name for job in jobs]),
        names=names,
        source=source,
        further=own,
    )


def _limit(site: Site, job: Job, partition: str) -> float:
    """The time limit of a job in seconds, a year for none."""
    kind = site.partitions.get(partition.split(",")[0])
    usual = math.inf if kind is None else kind.max_time if kind.default_time is None else kind.default_time
    return min(usual if job.time is None else job.time, YEAR)
