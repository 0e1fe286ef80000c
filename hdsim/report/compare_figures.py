"""Figures of a comparison, for papers: sizes that fit a page, embedded fonts, colours for the colour-blind."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from hdsim.report import labels
from hdsim.report.charts import WIDE
from hdsim.report.colors import BLUE, BROWN, GREEN, GREY, ORANGE, PURPLE, RED, light
from hdsim.report.compare import Comparison, Row
from hdsim.report.compare_output import short_labels
from hdsim.report.figures import ShownFigure, save, write_chart
from hdsim.report.gangs import progress
from hdsim.report.page import scale, words
from hdsim.report.pairing import grouped, joined
from hdsim.report.ranking import Standing, cliques
from hdsim.report.relative import Relative
from hdsim.report.statistics import CONFIDENCE
from hdsim.results.metrics import direction
from hdsim.results.run_directory.supersteps import read_gang

_STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    # Fonts are part of the file, and equal figures are equal files.
    "pdf.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": "hdsim",
}
#: The same in pages.
_IN_PAGE = _STYLE | {"svg.fonttype": "none", "savefig.transparent": True}
#: Most differences of single runs that a page draws.
_MOST_DOTS = 5000
#: Shade of the ends of the map of colours of a heat map: numbers are read on a shade of 1.
_DEPTH = 1.4
#: Colours of lines in turn.
_LINES = (BLUE, ORANGE, GREEN, PURPLE, RED, BROWN, GREY)
#: Panels beside each other.
_COLUMNS = 3
_BETTER, _WORSE = light(BLUE), light(ORANGE)


def write_figure(comparison: Comparison, path: Path) -> None:
    """Draws the means with their intervals, one panel per metric, as ``.png``, ``.pdf`` or ``.svg``.

    Raises:
        OSError: It cannot be written.
    """
    short = short_labels(comparison)
    names = [_name(row, short) for row in comparison.of(comparison.metrics[0])]
    with mpl.rc_context(_STYLE):
        figure, panels = _panels(comparison.metrics, names, 0.22)
        for axes, metric in zip(panels, comparison.metrics, strict=True):
            rows = comparison.of(metric)
            unit = scale(metric, (row.mean for row in rows))
            if _are_wide(rows):
                axes.set_xscale("log")
            for place, row in enumerate(rows):
                color = _WORSE if row.best else _BETTER
                mean, low, high = (end / unit.size for end in (row.mean, row.low, row.high))
                _interval(axes, place, mean, low, high, color, "D" if row.baseline else "o")
            better = str(direction(metric))
            axes.set_xlabel(f"{unit.unit} ({better})" if unit.unit and better else better or unit.unit)
        figure.supxlabel(f"diamond: baseline   orange: best   bar: {CONFIDENCE:.0%} bootstrap interval", fontsize=8)
        save(figure, path)


def write_windows(comparison: Comparison, path: Path) -> bool:
    """Draws each run's difference to the baseline, and their mean with its interval, one panel per metric.

    Returns:
        Whether a difference was drawn.

    Raises:
        OSError: It cannot be written.
    """
    with mpl.rc_context(_STYLE):
        figure = _windows(comparison)
        if figure is not None:
            save(figure, path)
    return figure is not None


def windows_svg(comparison: Comparison) -> str:
    """Returns the same figure as an element of a page, in its colours; empty if nothing or too much would be drawn."""
    if len(comparison.windows) > _MOST_DOTS:
        return ""
    with mpl.rc_context(_IN_PAGE):
        figure = _windows(comparison)
        return "" if figure is None else _svg(figure)


def _windows(comparison: Comparison) -> Figure | None:
    short = short_labels(comparison)
    configurations = list(dict.fromkeys(_name(row, short) for row in comparison.rows if row.pairs))
    if not configurations or not comparison.windows:
        return None
    differences: dict[tuple[str, str, str], list[float]] = {}
    for window in comparison.windows:
        key = (window.metric, window.scenario, window.configuration)
        differences.setdefault(key, []).append(window.difference)
    base = next(row.configuration for row in comparison.rows if row.baseline)
    figure, panels = _panels(comparison.metrics, configurations, 0.34)
    for axes, metric in zip(panels, comparison.metrics, strict=True):
        axes.axvline(0, color="tab:gray", linewidth=1)
        rows = [row for row in comparison.of(metric) if row.pairs]
        unit = scale(metric, (value for row in rows for value in differences[metric, row.scenario, row.configuration]))
        for row in rows:
            place = configurations.index(_name(row, short))
            found = np.array(differences[metric, row.scenario, row.configuration]) / unit.size
            better = found * direction(metric) > 0
            for chosen, color in ((better, _BETTER), (~better, _WORSE)):
                axes.plot(found[chosen], np.full(chosen.sum(), place), "o", color=color, markersize=3, alpha=0.6)
            mean, low, high = (end / unit.size for end in (row.difference, row.difference_low, row.difference_high))
            _interval(axes, place + 0.25, mean, low, high, "black", "D")
        axes.set_xlabel(unit.unit)
    figure.supxlabel(
        f"difference to {short[base]}   dots: runs (blue: better, orange: worse)   "
        f"diamond and bar: mean, {CONFIDENCE:.0%} interval",
        fontsize=8,
    )
    return figure


def scenarios_svg(comparison: Comparison) -> tuple[str, str]:
    """Returns means over the setting by which scenarios differ, with intervals, as an element of a page, and its name.

    Both are empty where scenarios do not differ in one number alone. Lines of the first configurations are drawn.
    """
    keys = dict.fromkeys(entry.scenario for entry in comparison.entries)
    values = {name: {dict(key).get(name) for key in keys} for key in keys for name, _ in key}
    differing = [name for name, found in values.items() if len(found) > 1]
    if len(differing) != 1 or len(keys) < 3:
        return "", ""
    (name,) = differing
    try:
        place = {labels.text(key): float(dict(key)[name]) for key in keys}
    except ValueError:
        return "", ""
    configurations = list(dict.fromkeys(row.configuration for row in comparison.rows))[: len(_LINES)]
    short = short_labels(comparison)
    with mpl.rc_context(_IN_PAGE):
        columns = min(len(comparison.metrics), 2)
        lines = -(-len(comparison.metrics) // columns)
        figure = ShownFigure((4.6 * columns, 2.7 * lines + 0.3))
        panels = figure.subplots(lines, columns, squeeze=False).ravel()
        for axes, metric in zip(panels, comparison.metrics, strict=False):
            rows = comparison.of(metric)
            unit = scale(metric, (row.mean for row in rows))
            if _are_wide(rows):
                axes.set_yscale("log")
            for configuration, color in zip(configurations, map(light, _LINES), strict=False):
                points = sorted(
                    (place[row.scenario], row.mean / unit.size, row.low / unit.size, row.high / unit.size)
                    for row in rows
                    if row.configuration == configuration
                )
                x, mean, low, high = np.array(points).T
                axes.plot(x, mean, "o-", color=color, markersize=3, linewidth=1.4, label=short[configuration])
                axes.vlines(x, low, high, color=color, linewidth=2, alpha=0.5)
            axes.set_title(f"{words(metric)} ({unit.unit})" if unit.unit else words(metric), loc="left")
            axes.set_xlabel(name)
            axes.grid(alpha=0.3)
        for axes in panels[len(comparison.metrics) :]:
            axes.set_visible(False)
        handles, told = panels[0].get_legend_handles_labels()
        figure.legend(handles, told, loc="outside lower center", ncols=min(len(told), 4), frameon=False)
        return _svg(figure), name


def write_progress(comparison: Comparison, path: Path) -> bool:
    """Draws the difference to the baseline after each superstep, for gangs: the mean over runs of a configuration.

    Returns:
        Whether a difference was drawn.

    Raises:
        OSError: It cannot be written.
    """
    base = comparison.baseline
    records = {run: read_gang(run) for pairs in comparison.pairs.values() for pair in pairs for run in pair}
    pairs = {name: [(records[run], records[other]) for run, other in both] for name, both in comparison.pairs.items()}
    panel = progress(pairs, base or "the baseline")
    if panel is not None:
        write_chart(panel.title, panel.views[0].chart, path)
    return panel is not None


def write_ranks(standings: Sequence[Standing], short: Mapping[str, str], path: Path) -> None:
    """Draws, metric by metric, average ranks with the critical difference and the probability of improvement.

    A bar joins configurations whose ranks differ by less than the critical difference.

    Raises:
        OSError: It cannot be written.
    """
    with mpl.rc_context(_STYLE):
        save(_ranks(standings, short), path)


def ranks_svg(standings: Sequence[Standing], short: Mapping[str, str]) -> str:
    """Returns the same figure as an element of a page, in the colours of the page."""
    with mpl.rc_context(_IN_PAGE):
        return _svg(_ranks(standings, short))


def _svg(figure: Figure) -> str:
    """A figure as an element of a page, in the colours of the page."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    _, tag, rest = text.getvalue().partition("<svg ")
    colors = {light(color): color for color in _LINES} | {"#000000": "currentColor"}
    return re.sub(
        "|".join(colors), lambda found: colors[found[0]], f"<div class='scroll'>{tag}class='figure' {rest}</div>"
    )


def _ranks(standings: Sequence[Standing], short: Mapping[str, str]) -> Figure:
    metrics = grouped(standings, lambda one: one.metric)
    count = max(map(len, metrics.values()))
    heights = 1.3 + 0.11 * count
    figure = ShownFigure((10, heights * len(metrics) + 0.3))
    grid = figure.subplots(len(metrics), 2, squeeze=False, width_ratios=(3, 2))
    for (left, right), (metric, found) in zip(grid, metrics.items(), strict=True):
        _draw_ranks(left, found, [short[one.configuration] for one in found])
        left.set_title(f"{words(metric)}: average ranks over {found[0].blocks} blocks", loc="left")
        others = [one for one in found if not one.baseline]
        for place, one in enumerate(others):
            color = _BETTER if one.improvement.value >= 0.5 else _WORSE
            _interval(right, place, *one.improvement.numbers, color, "o")
        right.axvline(0.5, color="tab:gray", linewidth=1)
        right.set_yticks(range(len(others)), [short[one.configuration] for one in others])
        right.set_ylim(len(others) - 0.5, -0.5)
        right.set_xlim(-0.02, 1.02)
        base = next((short[one.configuration] for one in found if one.baseline), "the baseline")
        right.set_title(f"P(better than {base})", loc="left")
        right.grid(axis="x", alpha=0.3)
    return figure


def _draw_ranks(axes: Any, found: Sequence[Standing], names: Sequence[str]) -> None:
    """A critical-difference diagram: names of the better half on the left, of the others on the right."""
    ranks = [one.average_rank for one in found]
    count, half = len(ranks), -(-len(ranks) // 2)
    groups = cliques(ranks, found[0].critical_difference)
    axes.set_axis_off()
    room = 0.55 * (count - 1)
    axes.set_xlim(1 - room, count + room)
    depth = 0.6 + 0.35 * len(groups)
    axes.set_ylim(-(depth + 0.7 * half), 2.6)
    axes.hlines(0, 1, count, color="black", linewidth=1)
    for tick in range(1, count + 1):
        axes.vlines(tick, 0, 0.2, color="black", linewidth=1)
        if count <= 12 or tick % 5 == 1:
            axes.text(tick, 0.35, str(tick), ha="center", va="bottom")
    width = min(found[0].critical_difference, count - 1)
    axes.hlines(1.7, 1, 1 + width, color="black", linewidth=1.5)
    axes.text(1 + width / 2, 1.8, f"CD = {found[0].critical_difference:.2f}", ha="center", va="bottom")
    for place, (rank, name) in enumerate(zip(ranks, names, strict=True)):
        on_left = place < half
        level = -(depth + 0.7 * (place if on_left else count - 1 - place))
        edge = 1 - 0.05 * room if on_left else count + 0.05 * room
        axes.plot([rank, rank, edge], [0, level, level], color="black", linewidth=0.8)
        axes.text(edge, level, f" {name} ({rank:.2f}) ", ha="right" if on_left else "left", va="center")
    for number, (first, last) in enumerate(groups):
        axes.hlines(-0.35 * (number + 1), ranks[first] - 0.04, ranks[last] + 0.04, color=_BETTER, linewidth=3)


def write_heatmap(relative: Relative, names: Sequence[str], path: Path) -> None:
    """Draws how much worse each of the named configurations is by each metric, with the numbers in the cells.

    Raises:
        OSError: It cannot be written.
    """
    with mpl.rc_context(_STYLE):
        size = 1.0 + 0.065 * max(map(len, names)) + 1.15 * len(relative.metrics), 1.5 + 0.2 * len(names)
        figure = ShownFigure(size)
        axes = figure.subplots()
        colors = LinearSegmentedColormap.from_list("worse", [_BETTER, "#ffffff", _WORSE])
        axes.imshow(relative.shades, cmap=colors, vmin=-_DEPTH, vmax=_DEPTH, aspect="auto")
        for (row, column), text in np.ndenumerate(relative.texts):
            axes.text(column, row, text, ha="center", va="center", fontsize=7)
        axes.set_yticks(range(len(names)), names)
        axes.set_xticks(range(len(relative.metrics)), [words(name).replace(" ", "\n") for name in relative.metrics])
        axes.xaxis.tick_top()
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        marks = [
            Patch(facecolor=colors(0.5 + shade / 2 / _DEPTH), edgecolor="tab:gray", linewidth=0.3, label=text)
            for text, shade in relative.legend
        ]
        figure.legend(
            handles=marks,
            title=relative.note,
            loc="outside lower center",
            ncols=len(marks),
            frameon=False,
            handlelength=1.4,
            columnspacing=1.2,
        )
        save(figure, path)


def _panels(metrics: Sequence[str], names: Sequence[str], row_height: float) -> tuple[Figure, Any]:
    """A figure with one panel per metric, at most three side by side, and its axes, whose rows are configurations.

    The figure has `row_height` inches for each configuration.
    """
    columns = min(len(metrics), _COLUMNS)
    lines = -(-len(metrics) // columns)
    size = 0.8 + 0.06 * max(map(len, names)) + 2.3 * columns, 0.4 + lines * (0.9 + row_height * len(names))
    figure = ShownFigure(size)
    panels = figure.subplots(lines, columns, sharey=True, squeeze=False).ravel()
    for axes, metric in zip(panels, metrics, strict=False):
        axes.set_title(words(metric))
        axes.margins(x=0.1)
        axes.locator_params(axis="x", nbins=4)
        axes.grid(axis="x", alpha=0.3)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -0.5)
    for axes in panels[len(metrics) :]:
        axes.set_visible(False)
    return figure, panels[: len(metrics)]


def _interval(axes: Any, place: float, value: float, low: float, high: float, color: str, marker: str) -> None:
    if not math.isnan(low):
        axes.hlines(place, low, high, color=color, linewidth=2, alpha=0.5)
    axes.plot(value, place, marker, color=color, markersize=4)


def _are_wide(rows: Sequence[Row]) -> bool:
    """Whether means and their intervals suit a logarithmic axis."""
    ends = [end for row in rows for end in (row.mean, row.low, row.high) if math.isfinite(end)]
    return bool(ends) and min(ends) > 0 and max(ends) > WIDE * min(ends)


def _name(row: Row, short: Mapping[str, str]) -> str:
    return joined(short[row.scenario], short[row.configuration])
