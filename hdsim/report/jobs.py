"""Panels of jobs: a table of them, and waiting times, slowdowns and core hours by user, queue, partition and group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.state import FinalState
from hdsim.report import sites
from hdsim.report.charts import Axis, Blocks, ChartTable, Fact, Floats, Groups, Panel, View, spans
from hdsim.report.colors import BLUE, GREEN, ORANGE
from hdsim.results.metrics import bounded_slowdown
from hdsim.results.run_directory.formats import OWN_COLUMNS

if TYPE_CHECKING:
    from hdsim.results.run_directory.reader import Run

#: Most rows of a table, and most bars of a chart.
ROWS, BARS = 5_000, 20
#: Final states in words.
OUTCOMES = {
    FinalState.COMPLETED_SUCCESSFULLY: "completed",
    FinalState.COMPLETED_FAILED: "failed",
    FinalState.COMPLETED_WALLTIME_REACHED: "killed at its walltime",
    FinalState.COMPLETED_KILLED: "killed",
    FinalState.REJECTED: "rejected",
}


def table(run: Run) -> Panel | None:
    """The jobs; of more than ROWS, those that waited longest."""
    jobs, count = run.jobs, len(run.jobs["job_id"])
    if not count:
        return None
    note = "All jobs." if count <= ROWS else f"The {ROWS:,} of {count:,} jobs that waited longest."
    note += " A click on a heading sorts, one on a job shows its time in all panels."
    waits = np.nan_to_num(jobs["waiting_time"], nan=-1.0)
    shown = np.argsort(-waits, kind="stable")[:ROWS] if count > ROWS else np.arange(count)
    jobs = {name: column[shown] for name, column in jobs.items()}
    words = np.array([OUTCOMES[FinalState(state)] for state in run.state[shown].tolist()], object)
    cores = jobs["requested_number_of_resources"] - jobs["requested_gpus"]
    columns = [
        Fact("job", [str(name) for name in jobs["job_id"].tolist()]),
        *(Fact(label_of(name), names_of(jobs[name])) for name in owner_columns(jobs)),
        Fact("submitted", jobs["submission_time"], "time"),
        Fact("waited", _small(jobs["waiting_time"]), "duration"),
        Fact("ran", _small(jobs["execution_time"]), "duration"),
        Fact("bounded slowdown", _small(_slowdown(jobs)), "number"),
        Fact("cores", cores.astype(np.int32), "number"),
        *([Fact("GPUs", jobs["requested_gpus"].astype(np.int32), "number")] if run.platform.n_gpus else []),
        *([Fact("nodes", jobs["nodes"].astype(np.int32), "number")] if "nodes" in jobs else []),
        Fact("state", words.tolist()),
        Fact("energy (kJ)", _small(jobs["consumed_energy"] / 1e3), "number"),
    ]
    times = [index for index, column in enumerate(columns) if column.kind in ("time", "duration")]
    return Panel("Jobs", note, (View("jobs", "Jobs", ChartTable(tuple(columns), tuple(times))),))


def _by(run: Run, columns: Sequence[str]) -> Panel | None:
    """Jobs, waits, slowdown and utilization by the first of some columns; None without different values in it."""
    counted = run.counted
    column = next((name for name in columns if name in run.jobs), "")
    if not column or len(np.unique(run.jobs[column][counted])) < 2:
        return None
    jobs = {name: values[counted] for name, values in run.jobs.items()}
    owners, owner, count = np.unique(jobs[column], return_inverse=True, return_counts=True)
    cores = jobs["requested_number_of_resources"] - jobs["requested_gpus"]
    hours = np.bincount(owner, cores * jobs["execution_time"]) / 3600
    order = np.argsort(-hours, kind="stable")[:ROWS]
    share = 100 * hours / (hours.sum() or 1.0)
    wait, slowdown = (np.bincount(owner, values) / count for values in (jobs["waiting_time"], _slowdown(jobs)))
    high = np.array([np.percentile(jobs["waiting_time"][owner == one], 95) for one in order])
    busy = utilization_of(run, column, owners)[order]
    nodes = sites.nodes_of_partitions(run) if column == "partition" else {}
    period = run.period.begin, min(run.period.end, run.end_time)
    of_nodes = [100.0 * sites.busy_share(run, nodes[name], *period) for name in owners[order].tolist() if name in nodes]
    facts = (
        Fact(label_of(column), names_of(owners[order])),
        Fact("jobs", count[order], "number"),
        Fact("mean wait", wait[order], "duration"),
        Fact("mean bounded slowdown", slowdown[order], "number"),
        Fact("core hours", hours[order], "number"),
        Fact("share of the core hours (%)", share[order], "number"),
        Fact("p95 wait", high, "duration"),
        Fact("utilization (%)", busy, "number"),
        *([Fact("its nodes busy (%)", np.array(of_nodes), "number")] if len(of_nodes) == len(order) else []),
    )
    views = [
        View(f"{column}_table", "Table", ChartTable(facts)),
        View(f"{column}_core_hours", "Core hours", bars(facts, share[order], "Share of the core hours (%)", GREEN)),
        View(f"{column}_waiting", "Waiting", bars(facts, wait[order] / 3600, "Mean waiting time (h)", ORANGE)),
        View(f"{column}_slowdown", "Slowdown", bars(facts, slowdown[order], "Mean bounded slowdown", BLUE)),
    ]
    note = "Jobs that ended, in order of core hours"
    note += f"; the charts show the first {BARS} of {len(owners):,}." if len(owners) > BARS else "."
    note += " Utilization is of the whole machine."
    return Panel("QOS" if column == "qos" else f"{column.capitalize()}s", note, tuple(views))


def owner_columns(jobs: Mapping[str, Any]) -> list[str]:
    """Returns columns that tell whose a job is: the user, and what a scheduler with accounts has written."""
    return [name for name in OWN_COLUMNS if name in jobs and ("reason" in jobs or name == "user")]


def label_of(column: str) -> str:
    """Returns the heading of a column of owners."""
    return "QOS" if column == "qos" else column


def utilization_of(run: Run, column: str, owners: NDArray[Any]) -> Floats:
    """Returns the share of the machine's CPU that jobs held in the period of the means, in percent.

    Args:
        run: The run.
        column: The column of its jobs that has the owner of each.
        owners: (K,) the owners, ascending.
    """
    held, begin, end = run.segments, run.period.begin, min(run.period.end, run.end_time)
    seconds = np.maximum(np.minimum(held.end, end) - np.maximum(held.begin, begin), 0.0)
    of_job = np.bincount(held.job, held.cpu_cores * seconds, len(run.jobs["job_id"]))
    place = np.minimum(np.searchsorted(owners, run.jobs[column]), len(owners) - 1)
    known = owners[place] == run.jobs[column]
    total = float(run.platform.node_cpu_cores.sum()) * max(end - begin, 1.0)
    return np.asarray(100.0 * np.bincount(place[known], of_job[known], len(owners)) / total)


def reasons(run: Run) -> Panel | None:
    """Waits by pending reason, the last one before the start; jobs that never ran; None without reasons."""
    if "reason" not in run.jobs:
        return None
    words, reason = np.unique(run.jobs["reason"].astype(str), return_inverse=True)
    waits, started = np.nan_to_num(run.jobs["waiting_time"]), ~np.isnan(run.starting_time)
    counted = started & run.counted
    jobs, never = (np.bincount(reason[rows], minlength=len(words)) for rows in (counted, ~started))
    total = np.bincount(reason[counted], waits[counted], len(words))
    longest = np.zeros(len(words))
    np.maximum.at(longest, reason[counted], waits[counted])
    order = np.argsort(-total, kind="stable")
    order = order[(jobs + never)[order] > 0]
    share = 100 * total / (total.sum() or 1.0)
    facts = (
        Fact("reason", [str(words[row]) or "None" for row in order.tolist()]),
        Fact("jobs that ran", jobs[order], "number"),
        Fact("mean wait", np.divide(total, jobs, out=np.full(len(words), np.nan), where=jobs > 0)[order], "duration"),
        Fact("longest wait", np.where(jobs > 0, longest, np.nan)[order], "duration"),
        Fact("share of the waiting time (%)", share[order], "number"),
        Fact("jobs that never ran", never[order], "number"),
    )
    views = [View("reasons_table", "Table", ChartTable(facts))]
    if total.any():
        chart = bars(facts, share[order], "Share of the waiting time (%)", ORANGE)
        views.append(View("reasons", "Waiting time", chart))
    note = (
        "The last reason before the start of a job, in Slurm's words (None: it started at once), or why it never ran."
    )
    return Panel("Pending reasons", note, tuple(views))


#: Panels by user, QOS or queue, partition, and account or group.
OWNERS = tuple(
    partial(_by, columns=columns) for columns in (("user",), ("qos", "queue"), ("partition",), ("account", "group"))
)


def bars(facts: tuple[Fact, ...], values: Floats, label: str, color: str) -> Blocks:
    """Returns horizontal bars of the first rows of a table, (K,) values, the first on top."""
    names, count = list(facts[0].values)[:BARS], min(len(values), BARS)
    lanes = np.arange(count - 1, -1, -1, dtype=np.int32)
    x = Axis(label, high=1.06 * float(values[:count].max(initial=0.0)) or 1.0)
    y = Axis(facts[0].label, "count", high=count, names=tuple(names[::-1]))
    groups = Groups(np.arange(count + 1), names[::-1])
    return spans(x, y, np.zeros(count), values[:count], lanes, groups, facts[1:], colors=(color,))


def names_of(owners: NDArray[Any]) -> list[str]:
    """Returns names of users, groups, queues or partitions, which have numbers or texts."""
    return ["unknown" if owner == "-1" else owner for owner in map(str, owners.tolist())]


def _small(values: Floats) -> NDArray[np.float32]:
    """Half the size, for pages with thousands of rows."""
    return values.astype(np.float32)


def _slowdown(jobs: Mapping[str, NDArray[Any]]) -> Floats:
    return bounded_slowdown(jobs["turnaround_time"], jobs["execution_time"])
