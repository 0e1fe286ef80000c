"""The jobs of a site from a moment on: those that run on their nodes, those that wait, and those that come.

Jobs that are there at the begin have two columns of their own, which :class:`hdsim.agents.slurm.SlurmAgent` reads:
``running_since`` and ``queued_since``, their starts and submissions in seconds since 1970, NaN for others. A third one,
``running_cpus``, may have their CPUs on each of their nodes, as tuples in the order of the nodes of the site.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hdsim.errors import WorkloadError
from hdsim.site.dependencies import Progress, dependencies_of
from hdsim.site.formats import expand_nodes
from hdsim.site.workload import HELD, QUEUED, RUNNING, columns_of
from hdsim.util.arrays import Flags, Floats, read_only

if TYPE_CHECKING:
    from hdsim.site.scheduler import SlurmScheduler, Start
    from hdsim.workload.model import Workload


_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Times:
    """Recorded times of (J,) jobs in seconds since 1970, NaN where a job has none."""

    submitted: Floats
    start: Floats
    end: Floats

    def runs(self, at: float) -> np.ndarray:
        """(J,) whether each job runs at a time."""
        return (self.start <= at) & (self.end > at)

    def waits(self, at: float) -> np.ndarray:
        """(J,) whether each job has been submitted and neither started nor left the queue at a time."""
        left = np.where(np.isnan(self.start), self.end, self.start) <= at
        return (self.submitted <= at) & ~left


def recorded_times(workload: Workload) -> Times:
    """Returns the recorded times of jobs; those that ran and have no end ended after their run time.

    Raises:
        WorkloadError: There are no recorded starts.
    """
    if not {"recorded_start", "recorded_end"} <= set(workload.further):
        raise WorkloadError(
            "expected recorded starts, as jobs.parquet of 'hdsim site import' has", where=workload.source
        )
    start = np.asarray(workload.further["recorded_start"], np.float64)
    end = np.asarray(workload.further["recorded_end"], np.float64)
    end = np.where(np.isnan(end), start + workload.runtime, end)
    return Times(np.asarray(workload.original_submission_time), start, end)


def recorded_nodes(workload: Workload) -> list[str]:
    """Returns the recorded nodes of jobs in Slurm's form, empty where a job has none."""
    nodes = workload.further.get("recorded_nodes")
    if nodes is None:
        return [""] * len(workload)
    return ["" if value in (None, "None assigned") or value != value else str(value) for value in nodes.tolist()]


def jobs_from(workload: Workload, at: float) -> Workload:
    """Returns the jobs of a log from a moment on, which is time 0 if any job is there then.

    Jobs that run have the run time that is left to them; the time for which one was suspended, of which a log has the
    sum, is taken as spread evenly over its run. Submissions are on the clock of the log. A job that waits has no
    dependency that was fulfilled before; those whose dependency never was, and that never ran, are left out.

    Args:
        workload: The jobs, with the columns ``recorded_start`` and ``recorded_end``; ``recorded_nodes`` are the nodes
            on which they run, and where there are none, they are on some that suffice.
        at: The moment in seconds since 1970.

    Raises:
        WorkloadError: There are no recorded starts, no job is left, or a dependency has another form.
    """
    times = recorded_times(workload)
    runs, waits = times.runs(at), times.waits(at)
    fulfilled, never = _dependencies(workload, times, at)
    rows = np.flatnonzero((runs | waits | (times.submitted > at)) & ~never)
    if not len(rows):
        raise WorkloadError("expected jobs that run, wait or come after the begin, got none", where=workload.source)
    columns = workload.columns_at(rows)
    there = runs[rows] | waits[rows]
    submitted = np.where(there, at, times.submitted[rows])
    start, runtime, left = times.start[rows], workload.runtime[rows], times.end[rows] - at
    stood = runs[rows] & (start + runtime < times.end[rows] - 1.0)  # times are whole seconds
    if stood.any():
        told = "%s: %d of %d jobs that run at the begin were suspended, which is taken as spread evenly over their runs"
        _log.warning(told, workload.source, int(stood.sum()), int(runs.sum()))
        left = np.where(stood, np.round(runtime * left / (times.end[rows] - start)), left)
    columns["runtime"] = read_only(np.where(runs[rows], left, runtime))
    columns["original_submission_time"] = read_only(submitted)
    columns["submission_time"] = read_only(submitted - submitted[0])
    columns["further"] |= {
        RUNNING: read_only(np.where(runs[rows], np.where(stood, at - (runtime - left), start), math.nan)),
        QUEUED: read_only(np.where(there, times.submitted[rows], math.nan)),
    }
    if fulfilled.any():
        asked = np.array(columns["further"]["dependency"], object)
        asked[fulfilled[rows] & waits[rows]] = None
        columns["further"]["dependency"] = read_only(asked)
    return dataclasses.replace(workload, **columns)


def _dependencies(workload: Workload, times: Times, at: float) -> tuple[Flags, Flags]:
    """(J,) whether the dependency of each job is fulfilled at a moment, and whether it never will be, by the record."""
    fulfilled, never = np.zeros((2, len(workload)), np.bool_)
    progress = Progress(len(workload))
    progress.started[:] = np.where(times.start <= at, times.start, math.nan)
    progress.ended[:] = np.where(times.end <= at, times.end, math.nan)
    progress.succeeded[:] = ~np.isnan(times.start) & (workload.return_code == 0)
    try:
        dependencies = dependencies_of(columns_of(workload))
    except ValueError as error:
        raise WorkloadError(f"dependency: {error}", where=workload.source) from None
    for job, dependency in dependencies.items():
        verdict, _ = progress.verdict(dependency, at)
        fulfilled[job], never[job] = bool(verdict), verdict is None and math.isnan(times.start[job])
    return fulfilled, never


class Running(NamedTuple):
    """A job that runs at the begin of a replay."""

    start: float  # seconds since 1970
    nodes: str  # in Slurm's form
    cpus: tuple[int, ...] = ()  # on each of the nodes, nothing where that is not known


def running_at_begin(workload: Workload) -> dict[int, Running]:
    """Returns the jobs that run at the begin of a replay.

    Those on one node are first, as their CPUs are known.
    """
    if RUNNING not in workload.further:
        return {}
    since = np.asarray(workload.further[RUNNING], np.float64)
    nodes = recorded_nodes(workload)
    cpus = workload.further.get(HELD, np.full(len(since), None, object))
    rows = np.flatnonzero(~np.isnan(since)).tolist()
    found = {row: Running(float(since[row]), nodes[row], cpus[row] or ()) for row in rows}
    several = {row: not one.nodes or "[" in one.nodes or "," in one.nodes for row, one in found.items()}
    unknown = {row: several[row] and not one.cpus for row, one in found.items()}
    return {row: found[row] for row in sorted(rows, key=lambda row: (unknown[row], several[row], found[row].start))}


def resume(scheduler: SlurmScheduler, running: Mapping[int, Running]) -> tuple[list[Start], list[int]]:
    """Gives the jobs of `running_at_begin` what they hold, those over others that are suspended for them after these.

    Returns:
        What they hold, and the jobs for which no CPU of their nodes was free.
    """
    held, left = [], []
    order = sorted(running, key=lambda job: running[job].start) if scheduler.suspends else running
    for job in order:
        made = _resumed(scheduler, job, running[job])
        if made is None:
            left.append(job)
        else:
            held.append(made)
    return held, left


def rows_of(scheduler: SlurmScheduler, listed: str) -> list[int]:
    """Returns the rows of those of some nodes, in Slurm's form, that the site has, in order."""
    return sorted(row for name in expand_nodes(listed) if (row := scheduler.row_of(name)) is not None) if listed else []


def _resumed(scheduler: SlurmScheduler, job: int, known: Running) -> Start | None:
    """Gives a job that has run since a time what it holds; returns its nodes, or None if none of them has a free CPU.

    The CPUs on each of its nodes are as given, or else those that the scheduler would give it there now, or divided
    evenly, as far as CPUs are free.

    Args:
        scheduler: The scheduler.
        job: The job.
        known: Its start, nodes and CPUs; without nodes it is on those that the scheduler would choose, and where none
            suffice, on the first ones of its partition with free CPUs.
    """
    jobs, free = scheduler.jobs, scheduler.usage.cpus
    nodes = rows_of(scheduler, known.nodes)
    if known.cpus and len(known.cpus) == len(nodes) and (free[nodes] >= known.cpus).all():
        return scheduler.hold(job, known.start, nodes, known.cpus)
    among = scheduler.members[jobs.partitions[job][0]].copy()
    if nodes:
        among[:] = False
        among[nodes] = True
    chosen = scheduler.fitting(job, among)
    if not chosen or (nodes and len(chosen) < len(nodes)):
        listed, nodes = bool(nodes), np.flatnonzero(among & (free > 0)).tolist()
        wanted = max(int(jobs.demands.cpus[job]), len(nodes) if listed else 1)
        if jobs.demands.whole[job] and listed:
            wanted = int(free[nodes].sum())
        chosen = _divided(wanted, {node: int(free[node]) for node in nodes}, even=listed)
    if not chosen:
        return None
    return scheduler.hold(job, known.start, chosen.keys(), chosen.values())


def _divided(wanted: int, free: dict[int, int], *, even: bool) -> dict[int, int]:
    """Returns the CPUs on each node of a job that wants a number of them, evenly or as many as there are on the first.

    Nodes without any are left out.
    """
    given: dict[int, int] = {}
    for place, (node, most) in enumerate(sorted(free.items(), key=lambda each: each[1]) if even else free.items()):
        share = math.ceil(wanted / (len(free) - place)) if even else wanted
        number = min(share, most)
        wanted -= number
        if number > 0:
            given[node] = number
    return dict(sorted(given.items()))
