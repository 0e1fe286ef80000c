"""Writes a comparison as a text table, CSV files and a LaTeX table."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hdsim.report.compare import JOBS, Comparison, MetricWindow, Row
from hdsim.report.labels import clipped
from hdsim.report.pairing import grouped, joined
from hdsim.report.ranking import Standing
from hdsim.report.ratios import Ratio
from hdsim.report.recorded import HEADS, NOTE, by_configuration
from hdsim.report.statistics import CONFIDENCE, Interval
from hdsim.results.claims import shortfall
from hdsim.results.metrics import direction
from hdsim.util import files
from hdsim.util.text import folded, format_number

#: Characters in a line of the text.
_WIDTH = 100
_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"} | {
    sign: f"\\{sign}" for sign in "&%$#_{}"
}


def write_csv(rows: Sequence[Row] | Sequence[MetricWindow] | Sequence[Standing] | Sequence[Ratio], path: Path) -> None:
    """Writes rows of a table of a comparison, at least one; missing values are empty."""
    lines = [
        ["" if isinstance(value, float) and math.isnan(value) else value for _, value in _columns(row)] for row in rows
    ]
    files.write_csv(path, [name for name, _ in _columns(rows[0])], lines)


def _columns(row: Any) -> Iterator[tuple[str, Any]]:
    """Yields names and values of the columns of a row; an interval has three."""
    for name, value in vars(row).items():
        if isinstance(value, Interval):
            yield from zip((name, f"{name}_low", f"{name}_high"), value.numbers, strict=True)
        else:
            yield name, value


def short_labels(comparison: Comparison) -> Mapping[str, str]:
    """Returns labels of at most 40 characters by scenarios and configurations."""
    return clipped(text for row in comparison.rows for text in (row.scenario, row.configuration))


def table(comparison: Comparison, standings: Sequence[Standing] = (), ratios: Sequence[Ratio] = ()) -> str:
    """The comparison as text, at most 100 columns wide: means, and for each metric intervals and differences."""
    short = short_labels(comparison)
    parts = list(_means(comparison, short))
    for name in comparison.metrics:
        parts += _details(comparison.of(name), short)
    parts += [_ratios(found, short) for found in grouped(ratios, lambda one: one.metric).values()]
    parts += [_ranks(found, short) for found in grouped(standings, lambda one: one.metric).values()]
    sample = comparison.sample + (" (one run of each configuration)" if comparison.sample == JOBS else "")
    parts += _recorded(comparison, short)
    best = [
        textwrap.fill(line, _WIDTH, initial_indent="  ", subsequent_indent="    ") for line in _best(comparison, short)
    ]
    best = ["best", *best] if best else []
    parts.append("\n".join([f"[] {CONFIDENCE:.0%} bootstrap interval over {sample}", *best]))
    return "\n\n".join(parts)


def summary(comparison: Comparison, standings: Sequence[Standing] = (), ratios: Sequence[Ratio] = ()) -> str:
    """The comparison of many scenarios as text that fits a screen, at most 100 columns wide.

    For each metric the means, configurations by scenarios, the best of each scenario marked with an asterisk; then the
    ratios to the baseline and the average ranks over all scenarios, configurations by metrics.
    """
    short = short_labels(comparison)
    parts = []
    for name in comparison.metrics:
        rows = comparison.of(name)
        scenarios, found = matrix(rows)
        lines = [["", *(short[scenario] for scenario in scenarios)]]
        for configuration, cells in found.items():
            texts = (f"{format_number(row.mean)}{'*' if row.best else ' '}" if row else "" for row in cells)
            lines.append([short[configuration], *texts])
        parts.append(f"{_heading(rows[0])}\n{folded(lines, _WIDTH)}")
    if ratios:
        parts.append(_over_metrics(grouped(ratios, lambda one: one.metric), short))
    if standings:
        parts.append(_ranks_over_metrics(grouped(standings, lambda one: one.metric), short))
    return "\n\n".join([*parts, *_recorded(comparison, short)])


def matrix(rows: Sequence[Row]) -> tuple[list[str], dict[str, list[Row | None]]]:
    """Returns scenarios, and by configuration its row of each, None where it has none, of rows of one metric."""
    scenarios = list(dict.fromkeys(row.scenario for row in rows))
    values = {(row.configuration, row.scenario): row for row in rows}
    configurations = dict.fromkeys(row.configuration for row in rows)
    return scenarios, {name: [values.get((name, scenario)) for scenario in scenarios] for name in configurations}


def _over_metrics(ratios: Mapping[str, Sequence[Ratio]], short: Mapping[str, str]) -> str:
    every = [one for found in ratios.values() for one in found]
    lines = _by_metrics(ratios, short, lambda one: _interval(*one.ratio.numbers))
    windows = " or ".join(dict.fromkeys(map(told_windows, every)))
    missing = shortfall(min(one.windows for one in every), min(one.traces for one in every))
    note = f"\n{missing}" if missing else ""
    heading = f"ratio of means to {short[every[0].baseline]} over {windows}"
    return f"{heading}\n{folded(lines, _WIDTH)}{note}"


def _ranks_over_metrics(standings: Mapping[str, Sequence[Standing]], short: Mapping[str, str]) -> str:
    first = [found[0] for found in standings.values()]
    lines = _by_metrics(standings, short, lambda one: f"{one.average_rank:.2f}")
    lines.append(["Friedman p", *(f"{one.friedman_p:.2g}" for one in first)])
    lines.append(["critical difference", *(f"{one.critical_difference:.2f}" for one in first)])
    return f"average rank over {first[0].blocks} blocks\n{folded(lines, _WIDTH)}"


def _by_metrics(
    found: Mapping[str, Sequence[Any]], short: Mapping[str, str], form: Callable[[Any], str]
) -> list[list[str]]:
    """Head and lines of a table of configurations by metrics."""
    values = {(one.configuration, metric): form(one) for metric, rows in found.items() for one in rows}
    names = dict.fromkeys(name for name, _ in values)
    return [["", *found], *([short[name], *(values.get((name, metric), "") for metric in found)] for name in names)]


def _recorded(comparison: Comparison, short: Mapping[str, str]) -> Iterator[str]:
    """Waiting times beside those that the traces recorded, where any did."""
    lines = [
        [joined(short[scenario], short[configuration]), *(cell for cell, _ in found.cells())]
        for (scenario, configuration), found in by_configuration(comparison.entries).items()
    ]
    if lines:
        yield f"waiting time beside the recorded one (s)\n{folded([['', *HEADS], *lines], _WIDTH)}\n{NOTE}"


def means(comparison: Comparison) -> str:
    """The means with their intervals as text, the best of each column marked with an asterisk."""
    return "\n\n".join(_means(comparison, short_labels(comparison), intervals=True))


def _means(comparison: Comparison, short: Mapping[str, str], *, intervals: bool = False) -> Iterator[str]:
    values = {(row.scenario, row.configuration, row.metric): row for row in comparison.rows}
    for scenario, rows in grouped(comparison.rows, lambda row: row.scenario).items():
        lines = [[short[scenario], *comparison.metrics]]
        for configuration in dict.fromkeys(row.configuration for row in rows):
            found = [values[scenario, configuration, metric] for metric in comparison.metrics]
            cells = (_interval(row.mean, row.low, row.high) if intervals else format_number(row.mean) for row in found)
            marked = (f"{cell}{'*' if row.best else ' '}" for cell, row in zip(cells, found, strict=True))
            lines.append([short[configuration], *marked])
        yield folded(lines, _WIDTH)


def _heading(row: Row) -> str:
    name, *notes = filter(None, (row.metric, row.unit, str(direction(row.metric))))
    return f"{name} ({', '.join(notes)})" if notes else name


def _details(rows: Sequence[Row], short: Mapping[str, str]) -> Iterator[str]:
    heading = _heading(rows[0])
    middle = not all(math.isnan(row.iqm) for row in rows)
    for scenario, found in grouped(rows, lambda row: row.scenario).items():
        lines = [["", "runs", "mean", *(["interquartile mean"] if middle else []), "difference", "pairs"]]
        for row in found:
            ours = [short[row.configuration], f"{row.runs:,}", _interval(row.mean, row.low, row.high)]
            ours += [_interval(row.iqm, row.iqm_low, row.iqm_high)] if middle else []
            pairs = f"{row.pairs:,} {row.paired_by}{'s' * (row.pairs > 1)}" if row.pairs else ""
            difference = _interval(row.difference, row.difference_low, row.difference_high, signed=True)
            lines.append([*ours, *(["baseline", ""] if row.baseline else [difference, pairs])])
        yield f"{heading}{f' with {short[scenario]}' if scenario else ''}\n{folded(lines, _WIDTH)}"


def _ratios(ratios: Sequence[Ratio], short: Mapping[str, str]) -> str:
    first = ratios[0]
    lines = [["", "windows", "ratio of means", "geometric mean", "interquartile mean", "probability of improvement"]]
    for one in ratios:
        lines.append(
            [
                short[one.configuration],
                told_windows(one),
                *(_interval(*each.numbers) for each in (one.ratio, one.geometric, one.middle, one.improvement)),
            ]
        )
    missing = shortfall(min(one.windows for one in ratios), min(one.traces for one in ratios))
    note = f"\n{missing}" if missing else ""
    return f"{first.metric} relative to {short[first.baseline]}\n{folded(lines, _WIDTH)}{note}"


def told_windows(ratio: Ratio) -> str:
    """Windows, traces and seeds of a ratio in words."""
    seeds = f", {ratio.seeds} seeds" if ratio.seeds > 1 else ""
    return f"{ratio.windows:,} of {ratio.traces:,} trace{'s' * (ratio.traces > 1)}{seeds}"


def _ranks(standings: Sequence[Standing], short: Mapping[str, str]) -> str:
    first = standings[0]
    lines = [["", "average rank", "probability of improvement"]]
    for one in standings:
        better = "baseline" if one.baseline else _interval(*one.improvement.numbers)
        lines.append([short[one.configuration], f"{one.average_rank:.2f}", better])
    return (
        f"ranking by {first.metric} over {first.blocks} blocks: Friedman p = {first.friedman_p:.2g}, "
        f"critical difference {first.critical_difference:.2f}\n{folded(lines, _WIDTH)}"
    )


def _best(comparison: Comparison, short: Mapping[str, str]) -> Iterator[str]:
    for name in comparison.metrics:
        winners: dict[str, list[str]] = {}
        for row in comparison.of(name):
            if row.best:
                winners.setdefault(row.scenario, []).append(short[row.configuration])
        for scenario, configurations in winners.items():
            yield f"{name}{f' with {short[scenario]}' if scenario else ''}: {' and '.join(configurations)}"


def _interval(value: float, low: float, high: float, *, signed: bool = False) -> str:
    bounds = "" if math.isnan(low) else f" [{format_number(low)}, {format_number(high)}]"
    return format_number(value, signed=signed) + bounds


def write_latex(comparison: Comparison, path: Path, *, name: str = "compare") -> None:
    """Writes a table ``tab:NAME`` for papers: means with their intervals, the best in bold, by ``booktabs``.

    Raises:
        OSError: It cannot be written.
    """
    metrics, short = comparison.metrics, short_labels(comparison)
    values = {(row.scenario, row.configuration, row.metric): row for row in comparison.rows}
    heads = [latex_text(metric.replace("_", " ")) for metric in metrics]
    units = [_latex_unit(values, metric) for metric in metrics]
    lines = [" & ".join(["", *heads]) + r" \\", " & ".join(["", *units]) + r" \\", r"\midrule"]
    for number, (scenario, rows) in enumerate(grouped(comparison.rows, lambda row: row.scenario).items()):
        if scenario:
            rule = [r"\addlinespace"] if number else []
            lines += [*rule, rf"\multicolumn{{{len(metrics) + 1}}}{{l}}{{\emph{{{latex_text(short[scenario])}}}}} \\"]
        for configuration in dict.fromkeys(row.configuration for row in rows):
            found = [values[scenario, configuration, metric] for metric in metrics]
            means = [f"${_latex_number(row.mean, bold=row.best)}$" for row in found]
            lines.append(" & ".join([latex_text(short[configuration]), *means]) + r" \\")
            if any(not math.isnan(row.low) for row in found):
                lines.append(" & ".join(["", *map(_latex_bounds, found)]) + r" \\")
    base = next(row.configuration for row in comparison.rows if row.baseline)
    caption = (
        f"Means of {len(comparison.entries)} runs with {CONFIDENCE:.0%} bootstrap intervals over {comparison.sample}; "
        f"the best of each column in bold, baseline {short[base]}."
    )
    content = [
        r"% \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{latex_text(caption)}}}",
        rf"\label{{tab:{name}}}",
        *booktabs(len(metrics), lines),
        r"\end{table}",
    ]
    with files.replacing(path) as file:
        file.write("\n".join(content) + "\n")


def _latex_bounds(row: Row) -> str:
    if math.isnan(row.low):
        return ""
    return rf"{{\scriptsize $[{_latex_number(row.low)},\ {_latex_number(row.high)}]$}}"


def _latex_number(value: float, *, bold: bool = False) -> str:
    """A number for the mathematics mode: whole from 1000 on, thin spaces between thousands, a power of ten."""
    text = format_number(float(round(value)) if 1e3 <= abs(value) < 1e9 else value).replace(",", r"\,")
    if text == "-":
        return r"\mathrm{-}"
    mantissa, exponent, power = text.partition("e")
    number = rf"{mantissa} \cdot 10^{{{int(power)}}}" if exponent else text
    return rf"\mathbf{{{number}}}" if bold else number


def _latex_unit(values: Mapping[tuple[str, str, str], Row], metric: str) -> str:
    unit = next(row.unit for (_, _, name), row in values.items() if name == metric)
    return f"({latex_text(unit)})" if unit else ""


def booktabs(numbers: int, lines: Iterable[str]) -> list[str]:
    """Returns the lines of a table of LaTeX's package booktabs: a column of names, then columns of numbers."""
    return [rf"\begin{{tabular}}{{l{'r' * numbers}}}", r"\toprule", *lines, r"\bottomrule", r"\end{tabular}"]


def latex_text(text: str) -> str:
    """A text with LaTeX's special characters as themselves."""
    return re.sub(r"[\\~^&%$#_{}]", lambda found: _LATEX[found[0]], text).replace("…", r"\ldots{}")
