"""Writes a comparison as a text table, CSV files and figures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from hdsim.report.compare import JOBS, Comparison, Row, Window
from hdsim.report.figures import write_chart
from hdsim.report.gangs import progress
from hdsim.report.pairing import joined
from hdsim.report.statistics import CONFIDENCE
from hdsim.results.metrics import direction
from hdsim.results.run_directory.supersteps import read_gang
from hdsim.util import files
from hdsim.util.text import format_number, format_table


def write_csv(rows: Sequence[Row] | Sequence[Window], path: Path) -> None:
    """Writes rows; missing values are empty.

    Args:
        rows: Rows or windows of a comparison, at least one.
        path: The file.
    """
    names = [field.name for field in fields(rows[0])]
    lines = [[getattr(row, name) for name in names] for row in rows]
    lines = [["" if isinstance(value, float) and math.isnan(value) else value for value in line] for line in lines]
    files.write_csv(path, names, lines)


def table(comparison: Comparison) -> str:
    """The comparison as text: a table of means, and for each metric intervals and differences to the baseline."""
    parts = [_means(comparison)]
    parts += [_details([row for row in comparison.rows if row.metric == name]) for name in comparison.metrics]
    best = [f"  {line}" for line in _best(comparison)]
    sample = comparison.sample + (" (one run of each configuration)" if comparison.sample == JOBS else "")
    parts.append("\n".join([f"[] {CONFIDENCE:.0%} bootstrap interval over {sample}", "best", *best]))
    return "\n\n".join(parts)


def _means(comparison: Comparison) -> str:
    by_metric = [[row for row in comparison.rows if row.metric == name] for name in comparison.metrics]
    lines = [["", *comparison.metrics]]
    for rows in zip(*by_metric, strict=True):
        lines.append([_name(rows[0]), *(f"{format_number(row.mean)}{'*' if row.best else ' '}" for row in rows)])
    return format_table(lines)


def _details(rows: list[Row]) -> str:
    name, *notes = filter(None, (rows[0].metric, rows[0].unit, str(direction(rows[0].metric))))
    heading = f"{name} ({', '.join(notes)})" if notes else name
    middle = [] if all(math.isnan(row.iqm) for row in rows) else ["IQM", ""]
    lines = [["", "runs", "mean", "", *middle, "difference", "", "pairs"]]
    for row in rows:
        ours = [_name(row), str(row.runs), format_number(row.mean), _bounds(row.low, row.high)]
        if middle:
            ours += [format_number(row.iqm), _bounds(row.iqm_low, row.iqm_high)]
        if row.baseline:
            lines.append([*ours, "baseline", "", ""])
        else:
            difference = format_number(row.difference, signed=True)
            pairs = f"{row.pairs:,} {row.paired_by}s" if row.pairs > 1 else str(row.pairs)
            lines.append([*ours, difference, _bounds(row.difference_low, row.difference_high), pairs])
    return f"{heading}\n{format_table(lines)}"


def _best(comparison: Comparison) -> Iterator[str]:
    for name in comparison.metrics:
        winners: dict[str, list[str]] = {}
        for row in comparison.rows:
            if row.metric == name and row.best:
                winners.setdefault(row.scenario, []).append(row.configuration)
        for scenario, configurations in winners.items():
            yield f"{name}{f' with {scenario}' if scenario else ''}: {' and '.join(configurations)}"


def _name(row: Row) -> str:
    return joined(row.scenario, row.configuration)


def _bounds(low: float, high: float) -> str:
    return "" if math.isnan(low) else f"[{format_number(low)}, {format_number(high)}]"


def write_figure(comparison: Comparison, path: Path) -> None:
    """Draws the means with their intervals, one panel per metric.

    Args:
        comparison: The comparison.
        path: The PNG file.
    """
    names = [_name(row) for row in comparison.rows if row.metric == comparison.metrics[0]]
    figure, panels = _panels(comparison.metrics, names, 0.28)
    for axes, metric in zip(panels, comparison.metrics, strict=True):
        rows = [row for row in comparison.rows if row.metric == metric]
        for place, row in enumerate(rows):
            color = "tab:green" if row.best else "tab:blue"
            if not math.isnan(row.low):
                axes.hlines(place, row.low, row.high, color=color, linewidth=2, alpha=0.5)
            axes.plot(row.mean, place, "D" if row.baseline else "o", color=color, markersize=5)
        better = str(direction(metric))
        axes.set_xlabel(f"{rows[0].unit} ({better})" if rows[0].unit and better else better or rows[0].unit, fontsize=8)
    figure.supxlabel(f"diamond: baseline   green: best   bar: {CONFIDENCE:.0%} bootstrap interval", fontsize=8)
    figure.savefig(path, dpi=150)


def write_progress(comparison: Comparison, path: Path) -> bool:
    """Draws the difference to the baseline after each superstep, for gangs: the mean over runs of a configuration.

    Args:
        comparison: A comparison of runs of gangs.
        path: The PNG file.

    Returns:
        Whether a difference was drawn.
    """
    base = next(row.configuration for row in comparison.rows if row.baseline)
    records = {run: read_gang(run) for pairs in comparison.pairs.values() for pair in pairs for run in pair}
    pairs = {name: [(records[run], records[other]) for run, other in both] for name, both in comparison.pairs.items()}
    panel = progress(pairs, base or "the baseline")
    if panel is not None:
        write_chart(panel.title, panel.views[0].chart, path)
    return panel is not None


def _panels(metrics: Sequence[str], names: Sequence[str], row_height: float) -> tuple[Any, Any]:
    """A figure with one panel per metric, and its axes, whose rows are configurations.

    Args:
        metrics: Titles of the panels.
        names: Names of the configurations.
        row_height: Inches per configuration.
    """
    from matplotlib.figure import Figure

    size = 1.5 + 0.07 * max(map(len, names)) + 2.6 * len(metrics), 1.5 + row_height * len(names)
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
    for axes, metric in zip(panels, metrics, strict=True):
        axes.set_title(metric, fontsize=9)
        axes.tick_params(labelsize=8)
        axes.margins(x=0.1)
        axes.locator_params(axis="x", nbins=4)
        axes.grid(axis="x", alpha=0.3)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -0.5)
    return figure, panels


def write_windows(comparison: Comparison, path: Path) -> bool:
    """Draws each run's difference to the baseline, and their mean with its interval, one panel per metric.

    Args:
        comparison: A comparison with windows.
        path: The PNG file.

    Returns:
        Whether a difference was drawn.
    """
    configurations = list(dict.fromkeys(_name(row) for row in comparison.rows if row.pairs))
    if not configurations:
        return False
    figure, panels = _panels(comparison.metrics, configurations, 0.4)
    for axes, metric in zip(panels, comparison.metrics, strict=True):
        axes.axvline(0, color="tab:gray", linewidth=1)
        rows = [row for row in comparison.rows if row.metric == metric and row.pairs]
        for row in rows:
            place = configurations.index(_name(row))
            found = np.array(
                [
                    window.difference
                    for window in comparison.windows
                    if (window.metric, window.scenario, window.configuration)
                    == (metric, row.scenario, row.configuration)
                ]
            )
            better = found * direction(metric) > 0
            for chosen, color in ((better, "tab:green"), (~better, "tab:red")):
                axes.plot(found[chosen], np.full(chosen.sum(), place), "o", color=color, markersize=4, alpha=0.6)
            if not math.isnan(row.difference_low):
                axes.hlines(place + 0.25, row.difference_low, row.difference_high, color="black", linewidth=2)
            axes.plot(row.difference, place + 0.25, "D", color="black", markersize=4)
        axes.set_xlabel(rows[0].unit if rows else "", fontsize=8)
    base = next(_name(row) for row in comparison.rows if row.baseline)
    figure.supxlabel(
        f"difference to {base}   dots: runs (green: better)   diamond and bar: mean, {CONFIDENCE:.0%} interval",
        fontsize=8,
    )
    figure.savefig(path, dpi=150)
    return True
