"""Numbers from the texts of sacct's columns, as expressions: durations, limits, amounts of TRES and memory."""

from __future__ import annotations

import math

import polars as pl

#: MiB of a unit of memory.
MIB = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
#: Texts that stand for nothing.
NOTHING = ("", "None", "None assigned", "Unknown", "(null)", "N/A", "none")


def something(name: str) -> pl.Expr:
    """Texts of a column, null for those that stand for nothing."""
    return pl.when(~pl.col(name).is_in(NOTHING)).then(pl.col(name))


def number(text: pl.Expr) -> pl.Expr:
    """Numbers such as 12 and 1.5K."""
    number = text.str.extract(r"^(-?[\d.]+)[KMGTP]?$", 1).cast(pl.Float64, strict=False)
    unit = text.str.extract(r"([KMGTP])$", 1)
    factors = {"K": 1024.0, "M": 1024.0**2, "G": 1024.0**3, "T": 1024.0**4, "P": 1024.0**5}
    return number * unit.replace_strict(factors, default=1.0, return_dtype=pl.Float64)


def duration(*texts: pl.Expr) -> pl.Expr:
    """Seconds of durations such as 3600, 01:00:00, 2-03:04:05 and -00:00:05."""
    return pl.coalesce(_seconds(text) for text in texts)


def _seconds(text: pl.Expr) -> pl.Expr:
    parts = text.str.extract_groups(r"^(-?)(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)$").struct
    days, hours, minutes, seconds = (
        parts.field(str(place)).cast(pl.Float64, strict=False).fill_null(0.0) for place in (2, 3, 4, 5)
    )
    sign = pl.when(parts.field("1") == "-").then(-1.0).otherwise(1.0)
    clock = pl.when(text.str.contains(":", literal=True)).then(
        sign * (days * 86_400 + hours * 3600 + minutes * 60 + seconds)
    )
    return pl.coalesce(text.str.extract(r"^(-?\d+(?:\.\d+)?)$", 1).cast(pl.Float64, strict=False), clock)


def limit(minutes: pl.Expr, text: pl.Expr) -> pl.Expr:
    """Seconds of limits: minutes, or [days-]hours:minutes:seconds; infinite for none, null if it is not known."""
    none = r"(?i)^(UNLIMITED|INFINITE|NOT_SET|Partition_Limit|-1)$"
    hours = text.str.extract(r"^(\d+)-(\d+)$", 2).cast(pl.Float64, strict=False) * 3600
    days = text.str.extract(r"^(\d+)-(\d+)$", 1).cast(pl.Float64, strict=False) * 86_400
    number = pl.coalesce(minutes, text).str.extract(r"^(\d+)$", 1).cast(pl.Float64, strict=False) * 60
    clock = pl.when(text.str.contains(":", literal=True)).then(_seconds(text))
    unlimited = pl.coalesce(minutes, text).str.contains(none)
    return pl.when(unlimited).then(math.inf).otherwise(pl.coalesce(number, clock, days + hours))


def amount_of(tres: pl.Expr, name: str) -> pl.Expr:
    """Amounts of one kind among TRES such as ``cpu=4,mem=8000M,node=1``; memory in MiB."""
    if name == "mem":
        return memory_of(tres)
    return number(tres.str.extract(rf"(?:^|,){name}=([\d.]+[KMGTP]?)", 1))


def memory_of(tres: pl.Expr) -> pl.Expr:
    """MiB of the memory among TRES."""
    amount = tres.str.extract(r"(?:^|,)mem=([\d.]+)", 1).cast(pl.Float64, strict=False)
    unit = tres.str.extract(r"(?:^|,)mem=[\d.]+([KMGTP])", 1)
    return amount * unit.replace_strict(MIB, default=1.0, return_dtype=pl.Float64)
