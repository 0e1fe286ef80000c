"""Schedules of a real slurmctld 22.05, and whether the passes of hdsim explain each start from the recorded state."""

from __future__ import annotations

import csv
import itertools
import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hdsim.site.formats import expand_nodes
from hdsim.site.jobs_table import SiteJobs, jobs_table
from hdsim.site.model import Site, site_of
from hdsim.site.notes import Notes
from hdsim.site.platform import nodes_of
from hdsim.site.scheduler import SlurmScheduler, Start
from hdsim.site.slurm_conf import read_slurm_conf

#: Seconds of the recorded cluster within which a start counts as explained: scheduling ticks and launches take up to
#: a third of a second, and the recorded clock was 60 times as fast.
TOLERANCE = 20
#: Seconds of the recorded cluster in which nodes were COMPLETING at most: a sixth of a second of the machine.
_COMPLETING = 10.0
#: Commands that take nodes out of service and back; nodes that are down are back at once (ReturnToService=2).
_SERVICE = r"^  t=(\d+) scontrol update nodename=(\S+) state=(drain|resume)"


@dataclass
class Case:
    """A recorded case; times are in seconds since 1970."""

    site: Site
    zero: int  # second from which the case counts
    jobs: SiteJobs
    keys: list[str]
    slurm_ids: list[str]
    start: np.ndarray  # infinite for jobs that never started
    end: np.ndarray
    nodes: list[list[int]]
    order: list[int]  # the jobs that started, in order
    priority: np.ndarray  # as recorded, which is that of the submission
    cpus: list[int] | None = None  # as allocated, None where that is not recorded
    service: list[tuple[float, list[int], bool]] = field(default_factory=list)  # time, nodes, whether they take jobs


def read_case(folder: Path, run: str = "") -> Case:
    """Reads a recorded case; run is ``2`` for its repetition."""
    document = read_slurm_conf(folder / "slurm.conf", Notes())
    notes = (folder / "README.txt").read_text(encoding="utf-8")
    begun = re.search(r"epoch (\d+)", notes)
    zero = int(begun[1]) if begun else 0
    qos, associations = _accounts(notes)
    document |= {"qos": qos, "associations": associations, "reservations": _reservations(notes, zero)}
    site = site_of(document, folder.name)
    account = {one["user"]: one["account"] for one in associations if "user" in one}
    asked = {row["k"]: row for row in _rows(folder / "jobs.csv")}
    # Jobs that never became eligible have no times.
    results = [row for row in _rows(folder / f"result{run}.csv") if _time(row["eligible"]) < math.inf]
    place = {name: row for row, (name, _) in enumerate(nodes_of(site))}
    columns: dict[str, list[Any]] = {name: [] for name in ("submit", "cpus", "partition", "nodes", "most_nodes")}
    columns |= {
        name: []
        for name in (
            "per_task",
            "memory",
            "memory_per",
            "whole",
            "whole_cores",
            "user",
            "account",
            "qos",
            "nice",
            "requested_time",
            "eligible",
            "licenses",
            "gres",
            "gpus",
            "gpus_per_task",
            "cpus_per_gpu",
            "job_id",
        )
    }
    for row in results:
        job = asked[row["key"].split("_")[0]]
        nodes, per_task = int(job.get("N") or 0), int(job.get("c") or 1)
        given = {
            "submit": zero + float(row["submit"]),
            "eligible": zero + float(row["eligible"] or row["submit"]),
            "cpus": (int(job.get("n") or 0) or max(nodes, 1)) * per_task,
            "per_task": per_task,
            "partition": job.get("part") or None,
            "nodes": nodes or None,
            "most_nodes": nodes or None,
            "memory": _number(job.get("memcpu") or job.get("mem")),
            "memory_per": "c" if job.get("memcpu") else "n",
            "whole": job.get("excl") in ("True", "1"),
            "whole_cores": "nomultithread" in (job.get("extra") or ""),
            "user": job.get("user", ""),
            "account": account.get(job.get("user", ""), ""),
            "qos": (job.get("qos") or "normal") if qos else None,
            "nice": _number(job.get("nice")),
            "licenses": job.get("lic") or None,
            **_gpus(job),
            "job_id": row["jobid"],
            "requested_time": float(job["lim"]) * 60 if job.get("lim") else None,
        }
        for name, value in given.items():
            columns[name].append(value)
    log = [line.split()[2] for line in (folder / f"order{run}.txt").read_text().splitlines()]
    started = {job: position for position, job in enumerate(log)}
    jobs = jobs_table(columns, site, str(folder))
    start = np.array([zero + _time(row["start"]) for row in results])
    order = sorted(
        (row for row in range(len(results)) if start[row] < math.inf and results[row]["nodes"] != "None assigned"),
        key=lambda row: (start[row], started.get(results[row]["jobid"], 0)),
    )
    return Case(
        site=site,
        zero=zero,
        jobs=jobs,
        keys=[row["key"] for row in results],
        slurm_ids=[row["jobid"] for row in results],
        start=start,
        end=np.array([zero + _time(row["end"]) for row in results]),
        nodes=[[place[name] for name in expand_nodes(row["nodes"]) if name in place] for row in results],
        order=order,
        priority=np.array([float(row["priority"] or 0) for row in results]),
        cpus=[int(row["ncpus"]) * per for row, per in zip(results, jobs.per_counted.tolist(), strict=True)],
        service=[
            (zero + float(at), [place[name] for name in expand_nodes(names)], state == "resume")
            for at, names, state in re.findall(_SERVICE, notes, re.MULTILINE)
        ],
    )


def _gpus(job: Mapping[str, str]) -> dict[str, Any]:
    """GPUs of a job, by its options."""
    given = dict(re.findall(r"--([\w-]+)=(\S+)", job.get("extra") or ""))
    on_each = f"gpu:{given['gpus-per-node']}" if "gpus-per-node" in given else job.get("gres") or None
    per_gpu = given.get("cpus-per-gpu")
    return {
        "gres": on_each,
        "gpus": given.get("gpus"),
        "gpus_per_task": given.get("gpus-per-task"),
        "cpus_per_gpu": int(per_gpu) if per_gpu else None,
    }


def _accounts(notes: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The QOS and the associations that the commands of a case have made."""
    qos: dict[str, Any] = {}
    made: list[dict[str, Any]] = []
    for verb, kind, name, rest in re.findall(r"^  (add|modify) (qos|account|user) (\S+) (.*)$", notes, re.MULTILINE):
        given = dict(pair.split("=") for pair in rest.split() if "=" in pair)
        if kind == "qos":
            values = {"priority": int(given["priority"])} if "priority" in given else {}
            values |= {"preempt": given["preempt"].split(",")} if "preempt" in given else {}
            qos[name] = qos.get(name, {}) | values
        elif verb == "add":
            user = {"account": given["account"], "user": name} if kind == "user" else {"account": name}
            parent = {"parent": given["parent"]} if "parent" in given else {}
            made.append({**user, **parent, "shares": int(given["fairshare"])})
        elif "priority" in given:
            for one in made:
                if one.get("user", one["account"]) in name.split(","):
                    one["priority"] = int(given["priority"])
    if made:
        made.insert(0, {"account": "root", "user": "root"})
        qos = {"normal": {}} | qos
    return qos, made


def _reservations(notes: str, zero: int) -> dict[str, Any]:
    """The reservations that the commands of a case have made."""
    made = {}
    for line in re.findall(r"scontrol create reservation (.*)$", notes, re.MULTILINE):
        given = dict(pair.split("=", 1) for pair in line.split())
        start = zero + float(given["starttime"].removeprefix("@T"))
        end = start + 60 * float(given["duration"])
        made[given["reservationname"]] = {"nodes": given["nodes"], "start": start, "end": end}
    return made


def _time(text: str) -> float:
    return math.inf if text in ("", "None", "Unknown") else float(text)


def _number(text: str | None) -> float | None:
    return float(text) if text else None


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def unexplained(case: Case, begin: float = 0.0, tolerance: float = TOLERANCE) -> tuple[list[str], list[str]]:
    """Returns the jobs whose starts the passes do not explain, and those that they put on other nodes.

    Priorities are calculated from `begin` on, in seconds of the case.

    Each start is looked at for itself: from the recorded running and pending jobs of any of the seconds before it, the
    last one first, since others leave jobs that have ended meanwhile on the CPUs that it would get. As nothing records
    for how long each node was COMPLETING after the end of a job, this is tried with none, and with the nodes of the
    jobs that ended in the last seconds, one more of these ends at a time, and each without those of the start itself.
    Jobs that ended within the same second may have ended before or after the start.
    """
    late, elsewhere = [], []
    on_each: dict[int, list[int]] = {}
    for position, job in enumerate(case.order):
        begun, at = case.order[:position], case.start[job]
        found: Start | None = None
        seconds = np.arange(max(at - tolerance, case.jobs.eligible[job]), at + 1.5)
        seconds = seconds[np.argsort(np.abs(seconds - at), kind="stable")]
        for now, *unsettled in _trials(case, job, begun, seconds.tolist()):
            scheduler = state_at(case, begun, now, on_each, begin, *unsettled)
            started = scheduler.main(now)
            if case.site.slurm.type == "backfill":
                started += scheduler.backfill(now)
                if not any(one.job == job for one in started):
                    # Which of the two comes first is not recorded.
                    started += state_at(case, begun, now, on_each, begin, *unsettled).backfill(now)
            found = next((one for one in started if one.job == job), found)
            if found is not None and _is_as_recorded(case, found):
                on_each[job] = found.cpus
                break
        if found is None:
            late.append(case.keys[job])
        elif not _is_as_recorded(case, found):
            elsewhere.append(case.keys[job])
    return late, elsewhere


def _trials(
    case: Case, job: int, begun: list[int], seconds: list[float]
) -> Iterator[tuple[float, set[int]] | tuple[float, set[int], set[int]]]:
    """Yields seconds in which a job may have started, with COMPLETING nodes and jobs that had not ended yet."""
    yield from ((now, set()) for now in seconds)
    ended = {now: [other for other in begun if now - _COMPLETING < case.end[other] <= now] for now in seconds}
    most = max(map(len, ended.values()))
    for count in (most, *range(1, most)):
        for now, others in ended.items():
            last = sorted(others, key=lambda other: -case.end[other])[:count]
            nodes = {node for other in last for node in case.nodes[other]}
            if len(last) == count:
                yield now, nodes
                yield now, nodes - {*case.nodes[job]}
    for now, others in ended.items():
        last = [other for other in others if case.end[other] == now]
        for count in range(1, min(len(last), 3) + 1):
            yield from ((now, set(), {*some}) for some in itertools.combinations(last, count))


def _is_as_recorded(case: Case, found: Start) -> bool:
    """Whether nodes and, as far as it is recorded, the number of CPUs are those of the record."""
    return found.nodes == case.nodes[found.job] and (case.cpus is None or case.cpus[found.job] == sum(found.cpus))


def state_at(
    case: Case,
    begun: list[int],
    now: float,
    on_each: Mapping[int, list[int]] | None = None,
    begin: float = 0.0,
    completing: Collection[int] = (),
    unended: Collection[int] = (),
) -> SlurmScheduler:
    """The recorded state at a time after some starts; see `unexplained` for `begin`.

    Some nodes are COMPLETING, and some jobs that ended in the last second have not ended yet.
    """
    scheduler = SlurmScheduler(case.site, case.jobs, case.zero + begin)
    # A job may end in the second of its start.
    ended = [job for job in begun if case.end[job] <= now and job not in unended]
    events = [(case.start[job], 1, job) for job in begun] + [
        (case.end[job], 0 if case.end[job] > case.start[job] else 4, job) for job in ended
    ]
    events += [(case.jobs.eligible[job], 2, job) for job in np.flatnonzero(case.jobs.eligible <= now).tolist()]
    # Jobs that were cancelled or have failed before they started.
    gone = set(range(len(case.keys))) - set(case.order)
    events += [(case.end[job], 3, job) for job in gone if case.end[job] <= now]
    for time, kind, job in sorted(events):
        scheduler.calculate(time)
        if kind == 2 and job not in begun:
            scheduler.submit(job, time)
        elif kind == 3 and job in scheduler.pending:
            scheduler.withdraw(job)
        elif kind in (0, 4):
            scheduler.end(job, time)
        elif kind == 1:
            scheduler.hold(job, time, case.nodes[job], _cpus(case, scheduler, job, on_each or {}))
        scheduler.shift(time)
    out = {node: not up for time, nodes, up in case.service if time <= now for node in nodes}
    scheduler.service[[node for node, is_out in out.items() if is_out]] = False
    scheduler.completing[[*completing]] = True
    scheduler.calculate(now)
    return scheduler


def _cpus(case: Case, scheduler: SlurmScheduler, job: int, on_each: Mapping[int, list[int]]) -> list[int]:
    """The CPUs of a job on its nodes: as the passes chose them, or else the first nodes are filled first."""
    cpus = list(on_each.get(job, []))
    left = int(case.jobs.demands.cpus[job])
    for place, node in enumerate(case.nodes[job] if not cpus else ()):
        whole = case.jobs.demands.whole[job]
        free = int((scheduler.nodes if whole else scheduler.usage).cpus[node])
        after = len(case.nodes[job]) - 1 - place
        cpus.append(free if whole else max(min(free, left - after), 1))
        left -= cpus[-1]
    return cpus
