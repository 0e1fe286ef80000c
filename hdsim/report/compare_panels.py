"""Panels of a comparison: distributions over jobs, curves over time, schedules side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from hdsim.report.charts import Axis, Line, Lines, Panel, View, duration
from hdsim.report.colors import BLACK, BLUE, BROWN, GREEN, GREY, ORANGE, PURPLE, RED
from hdsim.report.compare import Comparison, jobs_of
from hdsim.report.distributions import distribution
from hdsim.report.figures import by_node
from hdsim.report.labels import text
from hdsim.report.pairing import EVALUATION, PlacedRun, grouped
from hdsim.report.panels import longest_wait
from hdsim.results import series
from hdsim.results.metrics import bounded_slowdown
from hdsim.results.run_directory.reader import Run, read

#: Colours of the configurations that are drawn.
_COLORS = (BLUE, ORANGE, GREEN, PURPLE, RED, BROWN, GREY, BLACK)
#: Most steps of a curve, stretches of time whose means longer ones have, and curves of a plot of half the width.
_POINTS, _STRETCHES, _NARROW = 1_000, 240, 4


def panels(comparison: Comparison, short: Mapping[str, str]) -> list[Panel]:
    """Returns the panels of replays; of trainings and gangs there are none.

    Raises:
        ConfigError: Results of a run are damaged.
    """
    paths = {entry.path for entry in comparison.entries}
    if not all((path / "jobs.csv").is_file() and not (path / EVALUATION).is_file() for path in paths):
        return []
    scenario = comparison.whole[0].scenario
    entries = (entry for entry in comparison.whole if entry.scenario == scenario)
    groups = grouped(entries, lambda entry: short[text(entry.configuration)])
    drawn = dict(list(groups.items())[: len(_COLORS)])
    note = f" Scenario {short.get(text(scenario), text(scenario))}." if scenario else ""
    note += f" The first {len(drawn)} of {len(groups)} configurations are drawn." if len(drawn) < len(groups) else ""
    runs = {name: read(entries[0].path, full=False) for name, entries in drawn.items()}
    which = {name: text(entries[0].replication) for name, entries in drawn.items()}
    one = f" Of each configuration one run is drawn, {next(iter(which.values()))}." if any(which.values()) else ""
    return [*_distributions(drawn, note), *_curves(runs, one + note), *_schedules(runs, which)]


def _distributions(drawn: Mapping[str, Sequence[PlacedRun]], note: str) -> Iterator[Panel]:
    columns: dict[str, list[np.ndarray]] = {}
    for name, entries in drawn.items():
        jobs = [jobs_of(entry.path) for entry in entries]
        ended = [~np.isnan(one["turnaround_time"]) for one in jobs]
        columns[name] = [
            np.concatenate([one[column][done] for one, done in zip(jobs, ended, strict=True)])
            for column in ("waiting_time", "turnaround_time", "execution_time")
        ]
    columns = {name: found for name, found in columns.items() if len(found[0])}
    if not columns:
        return
    colors = dict(zip(drawn, _COLORS, strict=False))
    waits = {name: (waiting, colors[name]) for name, (waiting, _, _) in columns.items()}
    slowdowns = {
        name: (bounded_slowdown(turnaround, execution), colors[name])
        for name, (_, turnaround, execution) in columns.items()
    }
    told = f"Share of the jobs of all runs of a configuration.{note}"
    for key, title, axis, curves in (
        ("waiting_time", "Waiting time", Axis("Waiting time, below 1 s as 1 s", "duration", 1.0), waits),
        ("bounded_slowdown", "Bounded slowdown", Axis("Bounded slowdown", "log", 1.0), slowdowns),
    ):
        yield replace(distribution(key, title, told, axis, curves, _POINTS), narrow=len(curves) <= _NARROW)


def _curves(runs: Mapping[str, Run], note: str) -> Iterator[Panel]:
    end = max(run.end_time for run in runs.values()) or 1.0
    time = Axis("Time since first submission", "time", 0.0, end)
    for key, title, axis, scale, curve in (
        ("utilization", "Utilization", Axis("Busy cores (%)", high=100), 100.0, series.utilization),
        ("queue", "Queue length", Axis("Waiting jobs", "count"), 1.0, series.queue_length),
    ):
        steps = {name: curve(run) for name, run in runs.items() if len(run.jobs["job_id"])}
        if not steps:
            continue
        many = max(len(found.times) for found in steps.values()) > _POINTS
        told = f" Means over stretches of {duration(end / _STRETCHES)}." if many else ""
        colors = dict(zip(runs, _COLORS, strict=False))
        lines = tuple(
            _line(name, _means(found, end) if many else found, scale, end, colors[name])
            for name, found in steps.items()
        )
        yield Panel(title, f"{note}{told}".strip(), (View(key, title, Lines(time, axis, lines)),))


def _means(steps: series.StepFunction, end: float) -> series.StepFunction:
    """Means over stretches of equal length."""
    bounds = np.linspace(0.0, end, _STRETCHES + 1)
    times = np.append(steps.times, max(steps.end, float(steps.times[-1])))
    integral = np.append(0.0, np.cumsum(steps.values * steps.seconds))
    return series.StepFunction(bounds[:-1], np.diff(np.interp(bounds, times, integral)) / np.diff(bounds), end)


def _line(name: str, steps: series.StepFunction, scale: float, end: float, color: str) -> Line:
    values = scale * steps.values
    return Line(name, np.append(steps.times, max(end, steps.times[-1])), np.append(values, values[-1]), color)


def _schedules(runs: Mapping[str, Run], which: Mapping[str, str]) -> Iterator[Panel]:
    """The schedules by node, two in a row, over one span of time."""
    end = max(run.end_time for run in runs.values()) or 1.0
    longest = longest_wait(runs.values())
    for number, (name, run) in enumerate(runs.items()):
        chart = by_node(run, longest)
        if chart is not None:
            shown = View(f"schedule_{number}", "By node", replace(chart, x=replace(chart.x, high=end)))
            told = (
                "Jobs by node; colours are waiting times." if chart.kind == "blocks" else "Share of busy cores by node."
            )
            note = f"{which[name]}. {told}" if which[name] else told
            yield Panel(f"Schedule of {name}", note, (shown,), narrow=True)
