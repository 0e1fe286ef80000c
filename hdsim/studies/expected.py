"""Expected numbers of a study, as they stand in the documentation, and their comparison with what came out."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hdsim.errors import ConfigError, nearest
from hdsim.report.statistics import Interval
from hdsim.studies.study import Expected
from hdsim.studies.tables import Table, shown

_NUMBER = r"[+-]?[\d,]*\.?\d+(?:e[+-]?\d+)?"
_FORMS = {
    "bounds": re.compile(rf"({_NUMBER}) to ({_NUMBER})"),
    "least": re.compile(rf"at least ({_NUMBER})"),
    "most": re.compile(rf"at most ({_NUMBER})"),
    "interval": re.compile(rf"({_NUMBER}) \[({_NUMBER}), ({_NUMBER})\]"),
    "number": re.compile(rf"({_NUMBER})"),
}


@dataclass(frozen=True)
class Finding:
    """An expected number, as in the file of the study, and what came out: the number, or why there is none."""

    table: str
    row: str
    column: str
    expected: str
    found: str
    holds: bool


def findings(expected: Expected, tables: Mapping[str, Table]) -> Iterator[Finding]:
    """Compares expected numbers with tables.

    Args:
        expected: Texts by table, row and column: ``72.8`` (rounded to as many decimals), ``15.4 [8.9, 22.8]`` (a number
            with its interval), ``1 to 2``, ``at least 2``, ``at most 5``; or any other text, which the cell must be.
        tables: Tables by name.

    Raises:
        ConfigError: An expected number is a mapping or a list.
    """
    for name, rows in expected.items():
        table = tables[name]
        for row, columns in rows.items():
            if not isinstance(columns, Mapping):
                raise ConfigError("expected a mapping of columns", where=f"expected.{name}.{row}")
            for column, text in columns.items():
                if not isinstance(text, str):
                    raise ConfigError("expected a text", where=f"expected.{name}.{row}.{column}")
                cells = table.rows.get(row)
                if cells is None:
                    found, holds = f"no such row{nearest(row, table.rows)}", False
                elif column not in cells:
                    found, holds = f"no such column{nearest(column, cells)}", False
                else:
                    found, holds = shown(cells[column], column), agrees(text, cells[column])
                yield Finding(name, row, column, text, found, holds)


def agrees(expected: str, cell: Interval | float | str) -> bool:
    """Whether a cell is as expected; see :func:`findings` for the forms."""
    if isinstance(cell, str):
        return cell == expected
    value = cell.value if isinstance(cell, Interval) else cell
    form, match = next(
        ((form, match) for form, pattern in _FORMS.items() if (match := pattern.fullmatch(expected))), ("", None)
    )
    if match is None:
        return False
    first, *rest = match.groups()
    match form:
        case "bounds":
            return _number(first) <= value <= _number(rest[0])
        case "least":
            return value >= _number(first)
        case "most":
            return value <= _number(first)
        case "interval":
            return isinstance(cell, Interval) and all(
                itertools.starmap(_rounds, zip((first, *rest), (cell.value, cell.low, cell.high), strict=True))
            )
    return _rounds(first, value)


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def _rounds(text: str, value: float) -> bool:
    """Whether a value is the number when it is rounded to as many digits; either way of rounding a half is right."""
    mantissa, _, exponent = text.partition("e")
    step = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    number = _number(text)
    return math.isfinite(value) and abs(value - number) <= step / 2 * (1 + 1e-9) + 2 * math.ulp(number)
