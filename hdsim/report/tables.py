"""Tables of a page that a click on a head sorts, and intervals drawn inside their cells."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

#: Width and height of a drawn interval.
_WIDTH, _HEIGHT = 130, 18


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        html: Its content.
        value: Key of the order: a number, NaN last, or a text.
        best: It is set in bold.
        style: Style of the cell.
    """

    html: str
    value: float | str
    best: bool = False
    style: str = ""


def table(head: Iterable[str], rows: Iterable[Iterable[str]], attributes: str = "") -> str:
    """Returns the HTML of a table: head and cells as elements, attributes after a space."""
    body = "".join(f"<tr>{''.join(cells)}</tr>" for cells in rows)
    return f"<table{attributes}><thead><tr>{''.join(head)}</tr></thead><tbody>{body}</tbody></table>"


def sortable(caption: str, heads: Iterable[str], rows: Iterable[Sequence[Cell]]) -> str:
    """Returns the HTML of a table whose rows are sorted by a click on a head, or by the enter key on it.

    The caption names it for readers of the screen; a head without a name does not sort.
    """
    buttons = (f"<button type='button'>{escape(name)}</button>" if name else "" for name in heads)
    head = (f"<th scope='col'>{button}</th>" for button in buttons)
    body = (map(_cell, row, ["th", *["td"] * (len(row) - 1)]) for row in rows)
    named = f" class='sortable' aria-label='{escape(caption)}'"
    return f"<div class='scroll'>{table(head, body, named)}</div>"


def script() -> str:
    """Returns the element that makes the tables of a page sortable; once in a page, behind them."""
    return f"<script>{Path(__file__).with_name('sortable.js').read_text(encoding='utf-8')}</script>"


def _cell(cell: Cell, tag: str) -> str:
    scope = " scope='row'" if tag == "th" else ""
    number = "" if isinstance(cell.value, str) else f" data-value='{cell.value!r}'"
    style = f" style='{cell.style}'" if cell.style else ""
    return f"<{tag}{scope}{number}{style}>{f'<b>{cell.html}</b>' if cell.best else cell.html}</{tag}>"


def drawn(value: float, low: float, high: float, limits: tuple[float, float], mark: float | None = None) -> str:
    """Returns a mean with its interval, which is NaN if there is none, as SVG.

    The drawings of a column share the `limits` of the axis; `mark` is the place of a line across it, such as 0 for
    differences.
    """
    if math.isnan(value):
        return ""
    begin, end = limits

    def place(number: float) -> str:
        return f"{5 + (_WIDTH - 10) * (number - begin) / ((end - begin) or 1.0):.1f}"

    middle = _HEIGHT / 2
    parts = [f"<path class='axis' d='M5 {middle}H{_WIDTH - 5}'/>"]
    if mark is not None and begin <= mark <= end:
        parts.append(f"<path class='mark' d='M{place(mark)} 1V{_HEIGHT - 1}'/>")
    if not math.isnan(low):
        parts.append(f"<path class='bar' d='M{place(low)} {middle}H{place(high)}'/>")
    parts.append(f"<circle cx='{place(value)}' cy='{middle}' r='4'/>")
    box = f"width='{_WIDTH}' viewBox='0 0 {_WIDTH} {_HEIGHT}'"
    return f"<svg class='interval' {box} aria-hidden='true'>{''.join(parts)}</svg>"


def limits(values: Iterable[float], mark: float | None = None) -> tuple[float, float]:
    """Returns the ends of an axis for values; those that are NaN or infinite do not count."""
    found = [value for value in (*values, *([] if mark is None else [mark])) if math.isfinite(value)]
    return (min(found), max(found)) if found else (0.0, 1.0)
