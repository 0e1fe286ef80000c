"""Panels of distributions over jobs: waiting times, slowdowns, messages and barriers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from hdsim.report.charts import (
    POINTS,
    WIDE,
    Axis,
    Floats,
    Line,
    Lines,
    Panel,
    View,
    duration,
)
from hdsim.report.colors import BLUE, GREEN, ORANGE, PURPLE, RED
from hdsim.results.metrics import bounded_slowdown
from hdsim.scheduling.rules import TAU

if TYPE_CHECKING:
    from hdsim.results.run_directory.reader import Run

#: Factors up to here are rounding errors.
_SLOWED = 1 + 1e-5
#: Smallest share of the execution time that is drawn, percent.
_SEEN = 0.01
_AT_OR_BELOW = "jobs at or below"


def waiting_times(run: Run) -> Panel:
    """Distribution of the waiting time."""
    waits = run.jobs["waiting_time"][run.counted]
    if not len(waits):
        return Panel("Waiting time", "No job ended.", (), narrow=True)
    if waits.max() < 1:
        return Panel("Waiting time", "No job that has started waited 1 s or longer.", (), narrow=True)
    median, high = np.percentile(waits, (50, 95))
    note = f"Half of the jobs wait at most {duration(median)}, 95 % at most {duration(high)}. Below 1 s counts as 1 s."
    axis = Axis("Waiting time", "duration", 1.0)
    return distribution("waiting_time", "Waiting time", note, axis, {_AT_OR_BELOW: (waits, ORANGE)})


def slowdowns(run: Run) -> Panel:
    """Distribution of the bounded slowdown."""
    title = "Bounded slowdown"
    counted = run.counted
    if not counted.any():
        return Panel(title, "No job ended.", (), narrow=True)
    values = bounded_slowdown(run.jobs["turnaround_time"][counted], run.jobs["execution_time"][counted])
    if values.max() < _SLOWED:
        return Panel(title, "No job that has ended was slowed down by waiting.", (), narrow=True)
    median, high = np.percentile(values, (50, 95))
    note = f"max(1, turnaround / max(execution, {TAU:g} s)): median {median:,.1f}, 95th percentile {high:,.1f}."
    axis = Axis(title, "log", 1.0)
    return distribution("bounded_slowdown", title, note, axis, {_AT_OR_BELOW: (values, BLUE)})


def slowdown_factors(run: Run) -> Panel | None:
    """Distribution of the factor by which other jobs, and the own tasks, have slowed jobs down, and by size."""
    factors, ended = run.jobs.get("slowdown_factor"), run.counted
    if factors is not None:
        ended = ended & ~np.isnan(factors)  # Fields of a damaged file may be empty.
    if factors is None or not ended.any() or factors[ended].max() < _SLOWED:
        return None
    title, values = "Slow-down by contention", factors[ended]
    median, high = np.percentile(values, (50, 95))
    note = (
        "Execution time over that on the same cores at peak speed and with links of one's own: "
        f"median {median:,.3g}, 95th percentile {high:,.3g}."
    )
    label = "Slow-down factor"
    axis = Axis(label, "log" if values.max() > WIDE else "number", 1.0)
    shares = distribution("slowdown_factor", title, note, axis, {_AT_OR_BELOW: (values, RED)}).views[0]
    sizes = run.jobs["requested_number_of_resources"][ended]
    by_size = View("slowdown_factor_by_size", "By size", _by_size(sizes, values, Axis(label, low=1.0)))
    return Panel(title, note, (replace(shares, label="Share of jobs"), by_size), narrow=True)


def barriers(run: Run) -> Panel | None:
    """Distribution of the shares of execution time that jobs wait at barriers and exchange messages."""
    if "communication_time" not in run.jobs:
        return None
    # Fields of a damaged file may be empty.
    ended = run.counted & ~np.isnan(run.jobs["communication_time"] + run.jobs["barrier_waiting_time"])
    if not ended.any():
        return None
    jobs = {name: column[ended] for name, column in run.jobs.items()}
    took = np.maximum(jobs["execution_time"], np.finfo(float).tiny)
    waiting, sending = (
        100 * np.clip(jobs[f"{name}_time"] / took, 0, 1) for name in ("barrier_waiting", "communication")
    )
    if max(waiting.max(), sending.max()) < _SEEN:
        return None
    note = (
        "What messages, and waiting for slower tasks at barriers, take of a job's execution time: "
        f"in the median {np.median(sending):.3g} % and {np.median(waiting):.3g} %."
    )
    curves = {"messages": (sending, GREEN), "barriers": (waiting, PURPLE)}
    return distribution("barriers", "Messages and barriers", note, Axis("Share of the execution time (%)"), curves)


def distribution(
    key: str, title: str, note: str, x: Axis, curves: Mapping[str, tuple[Floats, str]], points: int = POINTS
) -> Panel:
    """Returns a panel with the share of jobs at or below each value; values below the axis count as its first.

    `curves` has values and colours by label. The upper end of the axis is set beyond the largest value.
    """
    largest = max(float(values.max()) for values, _ in curves.values())
    high = largest * 1.1 if x.kind == "number" else max(largest * 1.1, x.low * 10)
    lines = []
    for label, (values, color) in curves.items():
        ordered = np.sort(np.maximum(values, x.low))
        # Quantiles, including the extremes.
        ranks = np.unique(np.linspace(0, len(ordered) - 1, min(len(ordered), points)).astype(np.int64))
        last = np.append(ordered[ranks][1:] != ordered[ranks][:-1], True)
        found, share = ordered[ranks][last], 100 * (ranks[last] + 1) / len(ordered)
        if found[0] > x.low:
            found, share = np.append(x.low, found), np.append(0.0, share)
        lines.append(Line(label, np.append(found, high), np.append(share, share[-1]), color))
    axis = replace(x, high=high)
    view = View(key, title, Lines(axis, Axis("Jobs at or below (%)", high=100), tuple(lines)))
    return Panel(title, note, (view,), narrow=True)


def _by_size(sizes: NDArray[np.int64], values: Floats, y: Axis) -> Lines:
    """Median and 95th percentile of the jobs of 1, 2, 3 to 4, 5 to 8, ... cores."""
    upper = np.ceil(np.log2(sizes)).astype(np.int64)
    classes = np.unique(upper)
    quantiles = np.array([np.percentile(values[upper == one], (50, 95)) for one in classes])
    # The width of a class is its range of sizes; a class without jobs repeats the one before.
    bounds = np.append(2.0 ** (classes - 1), 2.0 ** classes[-1])
    lines = tuple(
        Line(label, bounds, np.append(column, column[-1]), color)
        for label, column, color in (("p95", quantiles[:, 1], ORANGE), ("median", quantiles[:, 0], BLUE))
    )
    kind: Literal["log", "count"] = "log" if bounds[-1] > WIDE * bounds[0] else "count"
    return Lines(Axis("Cores of a job", kind, float(bounds[0]), float(bounds[-1])), y, lines)
