"""The page of a comparison: sortable tables, intervals, rankings, distributions, schedules side by side."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from urllib.parse import quote

from hdsim.report import labels, tables
from hdsim.report.charts import duration
from hdsim.report.compare import JOBS, Comparison, Row
from hdsim.report.compare_figures import ranks_svg, scenarios_svg, windows_svg
from hdsim.report.compare_output import matrix, short_labels, told_windows
from hdsim.report.compare_panels import panels
from hdsim.report.labels import text
from hdsim.report.page import Scale, decimals, page, scale, words
from hdsim.report.ranking import Standing
from hdsim.report.ratios import Ratio
from hdsim.report.recorded import HEADS, NOTE, by_configuration
from hdsim.report.relative import relative
from hdsim.report.statistics import CONFIDENCE
from hdsim.report.tables import Cell, sortable
from hdsim.results.claims import shortfall
from hdsim.results.metrics import direction
from hdsim.results.period import KEYS
from hdsim.results.run_directory.manifest import read_manifest
from hdsim.util import files

#: Links to reports in a row.
_MOST_LINKS = 12


def write_page(
    comparison: Comparison,
    standings: Sequence[Standing],
    path: Path,
    *,
    ratios: Sequence[Ratio] = (),
    to: str = "best",
) -> None:
    """Writes the page of a comparison as :func:`render` returns it, one file that needs no network.

    Raises:
        ConfigError: Results of a run are damaged.
        OSError: The page cannot be written.
    """
    with files.replacing(path) as file:
        file.write(render(comparison, standings, path.parent, ratios=ratios, to=to))


def render(
    comparison: Comparison,
    standings: Sequence[Standing],
    directory: Path,
    *,
    ratios: Sequence[Ratio] = (),
    to: str = "best",
) -> str:
    """Returns the page of a comparison.

    `to` is the reference of the heat map, ``best`` or ``baseline``. Reports of the runs are linked relative to
    `directory`.
    """
    short = short_labels(comparison)
    configurations = list(dict.fromkeys(row.configuration for row in comparison.rows))
    runs = len(comparison.runs)
    title = f"{len(configurations)} configurations, {runs} runs"
    by_scenario = _by_scenario(comparison, short)
    parts = [by_scenario, _means(comparison, short, directory, () if by_scenario else comparison.metrics)]
    parts += [_details(comparison.of(name), short) for name in comparison.metrics]
    if drawn := windows_svg(comparison):
        told = "A dot is the difference of a run to that of the baseline: blue is better, orange is worse."
        parts.append(_section("Single runs", told, drawn))
    if len(configurations) > 2:
        parts.append(_heat(comparison, short, to))
    if ratios:
        parts.append(_ratios(ratios, short))
    if standings:
        parts.append(_ranking(standings, short))
    parts.append(_recorded(comparison, short))
    manifest = read_manifest(next(iter(comparison.runs)))
    numbers = "".join(parts) + tables.script()
    return page(title, manifest, _heading(comparison, title, short), numbers, panels(comparison, short))


def _heading(comparison: Comparison, title: str, short: Mapping[str, str]) -> str:
    base = next(row for row in comparison.rows if row.baseline)
    inputs = labels.settings([read_manifest(path)["config"] for path in comparison.runs])
    shared = {name: {one.get(name, labels.NONE) for one in inputs} for name in ("platform", "workload", *KEYS)}
    sample = f"{CONFIDENCE:.0%} bootstrap over {comparison.sample}"
    facts = {
        "Baseline": short[base.configuration],
        **{name.capitalize(): ", ".join(sorted(found)) for name, found in shared.items() if found != {labels.NONE}},
        "Intervals": sample + (" (one run of each configuration)" if comparison.sample == JOBS else ""),
    }
    items = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts.items())
    warnings = ""
    if comparison.left_out:
        lines = [f"{path}: {reason}" for path, reason in comparison.left_out.items()]
        warnings += _warning(f"{len(lines)} of {len(lines) + len(comparison.runs)} runs are left out.", lines)
    if comparison.sources:
        warnings += _warning("The runs differ in software or inputs.", comparison.sources)
    return f"<h1>{escape(title)} <small>compared</small></h1>{warnings}<dl class='facts'>{items}</dl>"


def _warning(told: str, lines: Iterable[str]) -> str:
    listed = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<div class='warning'>{escape(told)}<ul>{listed}</ul></div>"


def _section(title: str, note: str, content: str) -> str:
    return f"<section class='part'><h2>{escape(title)}</h2><p>{escape(note)}</p>{content}</section>"


def _label(name: str, short: Mapping[str, str]) -> str:
    """A label, the whole of it under the pointer."""
    return escape(name) if short[name] == name else f"<span title='{escape(name)}'>{escape(short[name])}</span>"


def _names(row: Row, short: Mapping[str, str]) -> list[Cell]:
    """Label, and the scenario if there is one."""
    names = [Cell(_label(row.configuration, short), row.configuration)]
    return [*names, Cell(_label(row.scenario, short), row.scenario)] if row.scenario else names


def _heads(rows: Iterable[Row]) -> list[str]:
    return ["configuration", "scenario"] if any(row.scenario for row in rows) else ["configuration"]


def _by_scenario(comparison: Comparison, short: Mapping[str, str]) -> str:
    """Means of each metric, configurations by scenarios, and over the number by which these differ; empty for two."""
    if len({row.scenario for row in comparison.rows}) < 3:
        return ""
    figure, name = scenarios_svg(comparison)
    content = [f"<h3>Over {escape(name)}</h3>{figure}"] if figure else []
    for metric in comparison.metrics:
        rows = comparison.of(metric)
        unit = scale(metric, (row.mean for row in rows))
        scenarios, table = matrix(rows)
        lines = []
        for configuration, found in table.items():
            cells = [Cell(unit.html(one.mean), one.mean, one.best) if one else Cell("", math.nan) for one in found]
            lines.append([Cell(_label(configuration, short), configuration), *cells])
        better = ", ".join(filter(None, (unit.unit, str(direction(metric)))))
        heads = ["configuration", *(short[scenario] for scenario in scenarios)]
        content.append(f"<h3>{escape(words(metric).capitalize())} <small>{escape(better)}</small></h3>")
        content.append(sortable(f"{metric} by scenario", heads, lines))
    note = "Means; the best of each scenario in bold."
    return _section("Configurations by scenarios", note, "".join(content))


def _means(comparison: Comparison, short: Mapping[str, str], directory: Path, metrics: Sequence[str]) -> str:
    """Means of some metrics, and links to the reports of the runs; empty without either."""
    values = {(row.scenario, row.configuration, row.metric): row for row in comparison.rows}
    reports: dict[tuple[str, str], list[str]] = {}
    for entry in comparison.entries:
        found = reports.setdefault((text(entry.scenario), text(entry.configuration)), [])
        report = entry.path / "report.html"
        if report.is_file():
            link = quote(os.path.relpath(report, directory.resolve()))
            found.append(f"<a href='{escape(link)}'>{escape(text(entry.replication) or 'report')}</a>")
    links = any(reports.values())
    rows = []
    scales = {name: scale(name, (row.mean for row in comparison.of(name))) for name in metrics}
    for row in comparison.rows:
        if row.metric == comparison.metrics[0]:
            means = [values[row.scenario, row.configuration, metric] for metric in metrics]
            cells = [Cell(scales[one.metric].html(one.mean), one.mean, one.best) for one in means]
            linked = list(dict.fromkeys(reports[row.scenario, row.configuration]))
            more = f" and {len(linked) - _MOST_LINKS} more" if len(linked) > _MOST_LINKS else ""
            reported = [Cell(", ".join(linked[:_MOST_LINKS]) + more, float(len(linked)))] if links else []
            rows.append([*_names(row, short), *cells, *reported])
    heads = [*_heads(comparison.rows), *(_with_unit(name, scales[name]) for name in metrics)]
    heads += ["reports"] if links else []
    if not metrics:
        if comparison.entries[0].part:  # the same of every part
            rows = rows[: len({row.configuration for row in comparison.rows})]
        return _section("Reports", "Pages of the runs.", sortable("reports", heads, rows)) if links else ""
    note = "Means; the best of each column in bold. A click on a head sorts by it."
    return _section("Means", note, sortable("means", heads, rows))


def _with_unit(name: str, found: Scale) -> str:
    return f"{words(name)} ({found.unit})" if found.unit else words(name)


def _details(rows: Sequence[Row], short: Mapping[str, str]) -> str:
    found = scale(rows[0].metric, (row.mean for row in rows))
    differences = [v for row in rows for v in (row.difference, row.difference_low, row.difference_high)]
    by = replace(found, form=decimals((v / found.size for v in differences), largest=True))
    notes = ", ".join(filter(None, (found.unit, str(direction(rows[0].metric)))))
    ends = tables.limits(value for row in rows for value in (row.mean, row.low, row.high))
    apart = tables.limits(differences, 0.0)
    known = {
        name: any(not math.isnan(getattr(row, name)) for row in rows)
        for name in ("low", "iqm", "difference", "difference_low")
    }
    lines = []
    for row in rows:
        low, high = row.difference_low, row.difference_high
        told = "baseline" if row.baseline else by.html(row.difference, signed=True) if row.pairs else ""
        pairs = f"{row.pairs:,} {row.paired_by}{'s' * (row.pairs > 1)}" if row.pairs else ""
        columns = [
            ("mean", True, Cell(found.html(row.mean), row.mean, row.best)),
            ("interval", known["low"], Cell(_bounds(row.low, row.high, found.text), row.low)),
            ("difference", known["difference"], Cell(told, row.difference)),
            ("interval", known["difference_low"], Cell(_bounds(low, high, by.text), low)),
            ("", known["difference"], Cell(tables.drawn(row.difference, low, high, apart, 0.0), row.difference)),
            ("", True, Cell(tables.drawn(row.mean, row.low, row.high, ends), row.mean)),
            ("runs", True, Cell(f"{row.runs:,}", row.runs)),
            ("pairs", known["difference"], Cell(pairs, row.pairs)),
            ("interquartile mean", known["iqm"], Cell(found.html(row.iqm), row.iqm)),
        ]
        lines.append([*_names(row, short), *(cell for _, shown, cell in columns if shown)])
    heads = [*_heads(rows), *(head for head, shown, _ in columns if shown)]
    return _section(words(rows[0].metric).capitalize(), notes, sortable(rows[0].metric, heads, lines))


def _bounds(low: float, high: float, form: Callable[[float], str]) -> str:
    return "" if math.isnan(low) else f"[{form(low)}, {form(high)}]"


def _heat(comparison: Comparison, short: Mapping[str, str], to: str) -> str:
    found = relative(comparison, to)
    lines = []
    for row, factors, shades, told in zip(found.rows, found.factors, found.shades, found.texts, strict=True):
        cells = [
            Cell(str(text), float(factor), style=_shade(float(shade)))
            for factor, shade, text in zip(factors, shades, told, strict=True)
        ]
        lines.append([*_names(row, short), *cells])
    heads = [*_heads(comparison.rows), *(words(name) for name in found.metrics)]
    note = f"{found.note[0].upper()}{found.note[1:]}."
    marks = "".join(f"<span><i style='{_shade(shade)}'></i>{escape(text)}</span>" for text, shade in found.legend)
    key = f"<p class='key' aria-label='Scale'>{marks}</p>"
    return _section("Configurations by metrics", note, key + sortable("heat map", heads, lines))


def _shade(shade: float) -> str:
    """Background from -1, blue, to 1, orange."""
    color = "orange" if shade > 0 else "blue"
    return f"background:color-mix(in srgb,var(--{color}) {55 * abs(shade):.0f}%,var(--paper))"


def _ratios(ratios: Sequence[Ratio], short: Mapping[str, str]) -> str:
    rows = []
    for one in ratios:
        cells = [Cell(_label(one.configuration, short), one.configuration), Cell(words(one.metric), words(one.metric))]
        cells.append(Cell(told_windows(one), one.windows))
        for each in (one.ratio, one.geometric, one.middle, one.improvement):
            cells.append(Cell(f"{each.value:,.3f} {_bounds(each.low, each.high, '{:,.3f}'.format)}", each.value))
        rows.append(cells)
    heads = ["configuration", "metric", "windows", "ratio of means", "geometric mean", "interquartile mean"]
    note = f"Ratios to {ratios[0].baseline} on the same windows; intervals of resampled seeds, traces and windows."
    missing = shortfall(min(one.windows for one in ratios), min(one.traces for one in ratios))
    note += f" This is {missing}." if missing else ""
    return _section("Relative to the baseline", note, sortable("ratios", [*heads, "P(better than baseline)"], rows))


def _recorded(comparison: Comparison, short: Mapping[str, str]) -> str:
    """Waiting times beside those that the traces recorded, empty where none did."""
    rows = [
        [Cell(_label(configuration, short), configuration), Cell(_label(scenario, short), scenario)]
        + [Cell(told, value) for told, value in found.cells(duration)]
        for (scenario, configuration), found in by_configuration(comparison.entries).items()
    ]
    if not rows:
        return ""
    heads = ["configuration", "scenario", *HEADS]
    note = f"{NOTE[0].upper()}{NOTE[1:]}."
    return _section("Waiting time beside the recorded one", note, sortable("recorded waiting times", heads, rows))


def _ranking(standings: Sequence[Standing], short: Mapping[str, str]) -> str:
    first = standings[0]
    rows = [
        [
            Cell(_label(one.configuration, short), one.configuration),
            Cell(words(one.metric), words(one.metric)),
            Cell(f"{one.average_rank:.2f}", one.average_rank),
            Cell("baseline" if one.baseline else f"{better.value:.2f}", better.value),
            Cell(_bounds(better.low, better.high, "{:.2f}".format), better.low),
            Cell(tables.drawn(*better.numbers, (0.0, 1.0), 0.5), better.value),
            Cell(f"{one.friedman_p:.2g}", one.friedman_p),
        ]
        for one in standings
        for better in (one.improvement,)
    ]
    heads = ("configuration", "metric", "average rank", "P(better than baseline)", "interval", "", "Friedman p")
    note = (
        f"Over {first.blocks} blocks. Configurations joined by a bar do not differ at 5 % by Nemenyi's test "
        f"(critical difference {first.critical_difference:.2f})."
    )
    return _section("Ranking", note, sortable("ranking", heads, rows) + ranks_svg(standings, short))
