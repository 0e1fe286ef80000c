"""Values as text for users: numbers, tables, and values of input files in error messages."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Container, Iterable, Sequence
from typing import Any

#: Values of labels of Kubernetes.
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?)?", re.ASCII)
#: The same in words.
LABEL_VALUES = "at most 63 letters, digits, '-', '_' and '.' between letters or digits"
_SHOWN = 60


def shown(value: Any) -> str:
    """Returns a parsed value of an input file, or its bytes, for an error message; at most 60 characters."""
    if value is None:
        return "nothing"
    try:
        if isinstance(value, bytes):
            text = value.decode("utf-8", "backslashreplace")
        else:
            text = json.dumps(value, ensure_ascii=False, default=repr)
        if not text.isprintable():
            text = ascii(text)[1:-1]
    except (ValueError, RecursionError):
        return "an integer of thousands of digits" if isinstance(value, int) else f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def number_in(text: str) -> float:
    """Returns the number in a field of a file, else raises ValueError; unlike `float` it takes no 1_000."""
    if "_" in text:
        raise ValueError(f"could not convert string to float: {text!r}")
    return float(text)


def format_number(value: float, *, signed: bool = False) -> str:
    """Returns a number for a table: integers in full, others with four decimals, or two from 10 on; "-" for none."""
    if not math.isfinite(value):
        return "-"
    sign, size = "+" if signed else "", abs(value)
    if size >= 1e9 or 0 < size < 1e-3:
        return f"{value:{sign}.4e}"
    decimals = 0 if value == int(value) else 2 if size >= 10 else 4
    return f"{value:{sign},.{decimals}f}"


def format_table(rows: Iterable[Sequence[object]]) -> str:
    """Returns columns of equal width, the first aligned left, the others right.

    All lines have as many cells; integers get thousands separators.
    """
    lines = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join([first.ljust(widths[0]), *map(str.rjust, rest, widths[1:])]).rstrip() for first, *rest in lines
    )


def folded(rows: Sequence[Sequence[str]], width: int) -> str:
    """Returns columns as by :func:`format_table` in lines of at most `width` characters.

    Columns that do not fit follow in another table, behind the first column; a blank line separates the tables.
    """
    first, *others = zip(*rows, strict=True)
    parts = [[first]]
    for column in others:
        longest = [max(map(len, found)) for found in (*parts[-1], column)]
        if len(parts[-1]) > 1 and sum(longest) + 2 * len(parts[-1]) > width:
            parts.append([first])
        parts[-1].append(column)
    return "\n\n".join(format_table([*zip(*part, strict=True)]) for part in parts)


def unused(name: str, taken: Container[str]) -> str:
    """Returns a name that is not in use: `name`, or `name` with a numeric suffix."""
    candidate, number = name, 2
    while candidate in taken:
        candidate = f"{name}_{number}"
        number += 1
    return candidate


def label_safe(text: str) -> str:
    """Returns a text as the value of a label of Kubernetes: letters, digits, '-', '_' and '.', at most 63."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:63].strip("-_.")


def natural(name: str) -> list[tuple[int, int | str]]:
    """Returns a key by which n2 comes before n10."""
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in re.findall(r"\d+|\D+", name)]
