"""Schedules of a real slurmctld 22.05, and whether the passes of hdsim explain each start from the recorded state."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
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


@dataclass
class Case:
    """A recorded case; times are in seconds since its begin."""

    site: Site
    jobs: SiteJobs
    keys: list[str]
    start: np.ndarray  # infinite for jobs that never started
    end: np.ndarray
    nodes: list[list[int]]
    order: list[int]  # the jobs that started, in order
    priority: np.ndarray  # as recorded at the start


def read_case(folder: Path, run: str = "") -> Case:
    """Reads a recorded case; run is ``2`` for its repetition."""
    site = site_of(read_slurm_conf(folder / "slurm.conf", Notes()), folder.name)
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
            "user",
            "requested_time",
            "eligible",
            "licenses",
            "gres",
        )
    }
    for row in results:
        job = asked[row["key"].split("_")[0]]
        nodes, per_task = int(job.get("N") or 0), int(job.get("c") or 1)
        given = {
            "submit": float(row["submit"]),
            "eligible": float(row["eligible"] or row["submit"]),
            "cpus": (int(job.get("n") or 0) or max(nodes, 1)) * per_task,
            "per_task": per_task,
            "partition": job.get("part") or None,
            "nodes": nodes or None,
            "most_nodes": nodes or None,
            "memory": _number(job.get("memcpu") or job.get("mem")),
            "memory_per": "c" if job.get("memcpu") else "n",
            "whole": job.get("excl") in ("True", "1"),
            "user": job.get("user", ""),
            "licenses": job.get("lic") or None,
            "gres": job.get("gres") or None,
            "requested_time": float(job["lim"]) * 60 if job.get("lim") else None,
        }
        for name, value in given.items():
            columns[name].append(value)
    log = [line.split()[3] for line in (folder / f"order{run}.txt").read_text().splitlines()]
    started = {job: position for position, job in enumerate(log)}
    start = np.array([_time(row["start"]) for row in results])
    order = sorted(
        (row for row in range(len(results)) if start[row] < math.inf and results[row]["nodes"] != "None assigned"),
        key=lambda row: (start[row], started.get(results[row]["jobid"], 0)),
    )
    return Case(
        site=site,
        jobs=jobs_table(columns, site, str(folder)),
        keys=[row["key"] for row in results],
        start=start,
        end=np.array([_time(row["end"]) for row in results]),
        nodes=[[place[name] for name in expand_nodes(row["nodes"]) if name in place] for row in results],
        order=order,
        priority=np.array([float(row["priority"] or 0) for row in results]),
    )


def _time(text: str) -> float:
    return math.inf if text in ("", "None", "Unknown") else float(text)


def _number(text: str | None) -> float | None:
    return float(text) if text else None


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def unexplained(case: Case, tolerance: float = TOLERANCE) -> tuple[list[str], list[str]]:
    """Returns the jobs whose starts the passes do not explain, and those that they put on other nodes.

    Each start is looked at for itself: from the recorded running and pending jobs of any of the seconds before it.
    """
    late, elsewhere = [], []
    on_each: dict[int, list[int]] = {}
    for position, job in enumerate(case.order):
        begun, at = case.order[:position], case.start[job]
        found: Start | None = None
        for now in np.arange(max(at - tolerance, case.jobs.eligible[job]), at + 1.5):
            scheduler = _state(case, begun, float(now), on_each)
            started = scheduler.main(now)
            if case.site.slurm.type == "backfill":
                started += scheduler.backfill(now)
            found = next((one for one in started if one.job == job), found)
            if found is not None and found.nodes == case.nodes[job]:
                on_each[job] = found.cpus
                break
        if found is None:
            late.append(case.keys[job])
        elif found.nodes != case.nodes[job]:
            elsewhere.append(case.keys[job])
    return late, elsewhere


def _state(case: Case, begun: list[int], now: float, on_each: dict[int, list[int]]) -> SlurmScheduler:
    """The recorded state at a time, after some starts."""
    scheduler = SlurmScheduler(case.site, case.jobs, lambda rows, _: case.priority[rows])
    for job in begun:
        nodes, left = case.nodes[job], int(case.jobs.demands.cpus[job])
        cpus = on_each.get(job, [])
        if not cpus:
            # The first nodes are filled first, and each gets a CPU.
            for place, node in enumerate(nodes):
                free = int(scheduler.nodes.cpus[node])
                free = free if case.jobs.demands.whole[job] else int(scheduler.usage.cpus[node])
                after = len(nodes) - 1 - place
                cpus = [*cpus, free if case.jobs.demands.whole[job] else max(min(free, left - after), 1)]
                left -= cpus[-1]
        scheduler.hold(job, case.start[job] + case.jobs.demands.limit[job], nodes, cpus)
        if case.end[job] <= now:
            scheduler.end(job)
    for job in np.flatnonzero(case.jobs.eligible <= now).tolist():
        if job not in begun:
            scheduler.submit(job)
    return scheduler
