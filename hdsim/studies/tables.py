"""Tables of a study: from comparisons, from runs, or measured; as CSV, Markdown and LaTeX."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hdsim.report.compare import Comparison
from hdsim.report.compare_output import booktabs, latex_text
from hdsim.report.page import words
from hdsim.report.pairing import joined
from hdsim.report.statistics import Interval
from hdsim.results.metrics import unit
from hdsim.util import files
from hdsim.util.text import format_number

Cell = Interval | float | str
#: End of the names of columns of differences.
_DIFFERENCE = ", difference"


@dataclass(frozen=True)
class Table:
    """A table with a heading, cells by row and column, which are the same in all rows, and a note, a line below."""

    title: str
    rows: Mapping[str, Mapping[str, Cell]]
    note: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(dict.fromkeys(column for cells in self.rows.values() for column in cells))

    def heads(self) -> list[str]:
        """The columns in words, metrics with their units."""
        names = [(column.partition(", ")[0], column) for column in self.columns]
        return [words(column) + (f" ({unit(metric)})" if unit(metric) else "") for metric, column in names]

    def lines(self) -> list[list[str]]:
        """The cells as texts, a line a row, its name first."""
        return [
            [name, *(shown(cells.get(column, ""), column) for column in self.columns)]
            for name, cells in self.rows.items()
        ]


def of_comparison(title: str, comparison: Comparison, differences: Collection[str] = (), note: str = "") -> Table:
    """A table of means, for some metrics with their differences to the baseline."""
    rows: dict[str, dict[str, Cell]] = {}
    for row in comparison.rows:
        cells = rows.setdefault(joined(row.scenario, row.configuration), {})
        cells[row.metric] = row.mean
        if row.metric in differences:
            cells[row.metric + _DIFFERENCE] = (
                "baseline"
                if row.baseline
                else Interval(row.difference, row.difference_low, row.difference_high, row.pairs)
            )
    return Table(title, rows, note)


def shown(cell: Cell, column: str) -> str:
    """A cell of a column as text; differences have signs."""
    if isinstance(cell, Interval):
        bounds = ", ".join(map(format_number, (cell.low, cell.high)))
        value = format_number(cell.value, signed=column.endswith(_DIFFERENCE))
        return value + (f" [{bounds}]" if not math.isnan(cell.low) else "")
    return cell if isinstance(cell, str) else format_number(cell)


def write(table: Table, stem: Path) -> list[Path]:
    """Writes a table as ``STEM.csv`` with full precision, ``STEM.md`` and ``STEM.tex`` (booktabs).

    Returns:
        The files.
    """
    stem.parent.mkdir(parents=True, exist_ok=True)
    names: list[str] = [""]
    lines: list[list[object]] = [[name] for name in table.rows]
    for column in table.columns:
        found = [cells.get(column, "") for cells in table.rows.values()]
        spread = any(isinstance(cell, Interval) for cell in found)
        names += [column, *([f"{column}, low", f"{column}, high"] if spread else [])]
        for line, cell in zip(lines, found, strict=True):
            if isinstance(cell, Interval):
                line += ["" if math.isnan(value) else value for value in (cell.value, cell.low, cell.high)]
            else:
                line += [cell, *(["", ""] if spread else [])]
    files.write_csv(stem.with_suffix(".csv"), names, lines)
    head, body = ["", *table.heads()], table.lines()
    _write(stem.with_suffix(".md"), [_markdown(head), _markdown(["---"] * len(head)), *map(_markdown, body)])
    tex = booktabs(len(table.columns), [_latex(head), r"\midrule", *map(_latex, body)])
    _write(stem.with_suffix(".tex"), tex)
    return [stem.with_suffix(ending) for ending in (".csv", ".md", ".tex")]


def _write(path: Path, lines: Sequence[str]) -> None:
    with files.replacing(path) as file:
        file.write("\n".join(lines) + "\n")


def _markdown(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _latex(cells: Sequence[str]) -> str:
    return rf"{' & '.join(map(latex_text, cells))} \\"
