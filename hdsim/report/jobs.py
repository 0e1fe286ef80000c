"""Panels of jobs: a table of them, and waiting times, slowdowns and core hours by user, queue, partition and group."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.state import FinalState
from hdsim.report.charts import Axis, Blocks, ChartTable, Fact, Floats, Groups, Panel, View, spans
from hdsim.report.colors import BLUE, GREEN, ORANGE
from hdsim.results.metrics import bounded_slowdown

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
        *([Fact("user", _names(jobs["user"]))] if "user" in jobs else []),
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


def _by(run: Run, column: str, title: str) -> Panel | None:
    """Jobs, waiting time, slowdown and core hours by a column of the trace; None without different values in it."""
    counted = run.counted
    if column not in run.jobs or len(np.unique(run.jobs[column][counted])) < 2:
        return None
    jobs = {name: values[counted] for name, values in run.jobs.items()}
    owners, owner, count = np.unique(jobs[column], return_inverse=True, return_counts=True)
    cores = jobs["requested_number_of_resources"] - jobs["requested_gpus"]
    hours = np.bincount(owner, cores * jobs["execution_time"]) / 3600
    order = np.argsort(-hours, kind="stable")[:ROWS]
    share = 100 * hours / (hours.sum() or 1.0)
    wait, slowdown = (np.bincount(owner, values) / count for values in (jobs["waiting_time"], _slowdown(jobs)))
    facts = (
        Fact(column, _names(owners[order])),
        Fact("jobs", count[order], "number"),
        Fact("mean wait", wait[order], "duration"),
        Fact("mean bounded slowdown", slowdown[order], "number"),
        Fact("core hours", hours[order], "number"),
        Fact("share of the core hours (%)", share[order], "number"),
    )
    views = [
        View(f"{column}_table", "Table", ChartTable(facts)),
        View(f"{column}_core_hours", "Core hours", _bars(facts, share[order], "Share of the core hours (%)", GREEN)),
        View(f"{column}_waiting", "Waiting", _bars(facts, wait[order] / 3600, "Mean waiting time (h)", ORANGE)),
        View(f"{column}_slowdown", "Slowdown", _bars(facts, slowdown[order], "Mean bounded slowdown", BLUE)),
    ]
    note = f"Jobs that ended, in order of core hours; the charts show the first {BARS} of {len(owners):,}."
    return Panel(title, note if len(owners) > BARS else f"{note.partition(';')[0]}.", tuple(views))


#: Panels by user, queue, partition and group.
OWNERS = tuple(
    partial(_by, column=column, title=f"{column.capitalize()}s") for column in ("user", "queue", "partition", "group")
)


def _bars(facts: tuple[Fact, ...], values: Floats, label: str, color: str) -> Blocks:
    """Horizontal bars of the first rows of a table, the first on top."""
    names, bars = list(facts[0].values)[:BARS], min(len(values), BARS)
    lanes = np.arange(bars - 1, -1, -1, dtype=np.int32)
    x = Axis(label, high=1.06 * float(values[:bars].max(initial=0.0)) or 1.0)
    y = Axis(facts[0].label, "count", high=bars, names=tuple(names[::-1]))
    groups = Groups(np.arange(bars + 1), names[::-1])
    return spans(x, y, np.zeros(bars), values[:bars], lanes, groups, facts[1:], colors=(color,))


def _names(owners: NDArray[Any]) -> list[str]:
    """Names of users, groups, queues or partitions, which have numbers or texts."""
    return ["unknown" if owner == "-1" else owner for owner in map(str, owners.tolist())]


def _small(values: Floats) -> NDArray[np.float32]:
    """Half the size, for pages with thousands of rows."""
    return values.astype(np.float32)


def _slowdown(jobs: Mapping[str, NDArray[Any]]) -> Floats:
    return bounded_slowdown(jobs["turnaround_time"], jobs["execution_time"])
