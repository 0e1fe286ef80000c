"""Texts of Slurm's files and commands: times, memory, TRES and lists of nodes.

Sources: the manual pages slurm.conf(5), sbatch(1) and sacct(1) of Slurm 22.05. A text that has another form is a
ValueError whose message says what was expected.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from hdsim.errors import ConfigError
from hdsim.util.dates import instant

#: Words for no limit.
UNLIMITED = ("UNLIMITED", "INFINITE", "NOT_SET", "-1")
_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+(?:\.\d+)?))?", re.ASCII)
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)([nc]?)", re.ASCII | re.IGNORECASE)
_UNITS = {"K": 1 / 1024, "": 1.0, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
#: Factors of numbers such as ``10K`` in amounts of TRES that are no memory.
_FACTORS = {"": 1.0, "K": 1024.0, "M": 1024.0**2, "G": 1024.0**3, "T": 1024.0**4, "P": 1024.0**5}
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)", re.ASCII | re.IGNORECASE)


def parse_time(text: str) -> float:
    """Returns the seconds of a time limit, infinite for none.

    The forms are ``minutes``, ``minutes:seconds``, ``hours:minutes:seconds``, ``days-hours``, ``days-hours:minutes``
    and ``days-hours:minutes:seconds``.
    """
    if text.upper() in UNLIMITED:
        return math.inf
    found = _TIME.fullmatch(text)
    if not found:
        raise ValueError(f"expected a time such as 30, 1:30:00 or 2-12 (days-hours) or UNLIMITED, got '{text}'")
    days, *parts = found.groups()
    numbers = [float(part) for part in parts if part is not None]
    if days is not None:
        hours, minutes, seconds = (*numbers, 0.0, 0.0)[:3]
    elif len(numbers) == 3:
        hours, minutes, seconds = numbers
    else:
        hours, (minutes, seconds) = 0.0, (*numbers, 0.0)[:2]
    return int(days or 0) * 86_400 + hours * 3600 + minutes * 60 + seconds


def parse_elapsed(text: str) -> float:
    """Returns the seconds of a duration as sacct prints it: ``[days-]hours:minutes:seconds`` or ``minutes:seconds``."""
    found = _TIME.fullmatch(text)
    if not found or ":" not in text:
        raise ValueError(f"expected a duration such as 01:30:00 or 2-12:00:00, got '{text}'")
    return parse_time(text)


def format_time(seconds: float) -> str:
    """Returns a duration as Slurm prints it: ``[days-]hours:minutes:seconds``, UNLIMITED for infinite seconds."""
    if math.isinf(seconds):
        return "UNLIMITED"
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"{f'{days}-' if days else ''}{hour:02}:{minute:02}:{second:02}"


def parse_memory(text: str) -> tuple[float, str]:
    """Returns the MiB of an amount such as ``4000M``, ``62.50G`` or ``2Gn``, and to what they refer.

    That is ``"n"`` for a node and ``"c"`` for a CPU, as sacct wrote it until Slurm 20.11, and empty for all of the job.
    """
    found = _MEMORY.fullmatch(text)
    if not found:
        raise ValueError(f"expected an amount of memory such as 4000M or 62.50G, got '{text}'")
    number, unit, per = found.groups()
    return float(number) * _UNITS[unit.upper()], per.lower()


def parse_tres(text: str) -> dict[str, float]:
    """Returns amounts by TRES, memory in MiB: ``cpu=4,mem=62.50G,gres/gpu:ta=1``; -1 (no limit) is left out."""
    amounts = {}
    for item in filter(None, text.split(",")):
        name, equals, value = item.partition("=")
        if not (name and equals):
            raise ValueError(f"expected TRES such as cpu=4,mem=8G,gres/gpu=1, got '{text}'")
        if value == "-1":
            continue
        if name == "mem":
            amounts[name] = parse_memory(value)[0]
            continue
        found = _NUMBER.fullmatch(value)
        if not found:
            raise ValueError(f"expected a number of {name}, got '{value}'")
        amounts[name] = float(found[1]) * _FACTORS[found[2].upper()]
    return amounts


def parse_gres(text: str) -> dict[str, int]:
    """Returns the number of each kind of generic resource of a node: ``gpu:a100:4(S:0-1),shard:8`` by ``gpu:a100``."""
    amounts: dict[str, int] = {}
    for item in filter(None, re.sub(r"\([^)]*\)", "", text).split(",")):
        if item.lower() in ("(null)", "none", "n/a", ""):
            continue
        *name, last = item.split(":")
        count = re.fullmatch(r"(\d+)([KMGTP]?)", last, re.ASCII | re.IGNORECASE)
        if not name or not count:
            name, number = [item], 1.0
        else:
            number = float(count[1]) * _FACTORS[count[2].upper()]
        kind = ":".join(part for part in name if part.lower() != "no_consume")
        amounts[kind] = amounts.get(kind, 0) + int(number)
    return amounts


#: Most nodes of a list; Slurm has 65,533 at most.
_MOST_NODES = 1 << 16


def _count_of_nodes(part: str) -> int:
    """The number of names of a part of a list of nodes, as far as its ranges tell."""
    lists = (re.findall(r"(\d+)(?:-(\d+))?", inside) for inside in re.findall(r"\[([^\]]*)\]", part))
    return math.prod(sum(int(last or first) - int(first) + 1 for first, last in ranges) for ranges in lists)


def expand_nodes(text: str) -> list[str]:
    """Returns the names of a list of nodes such as ``n[1-3,7],login1``, in its order and without repetition.

    Raises:
        ValueError: The list has another form, or more nodes than any cluster.
    """
    from ClusterShell.NodeSet import NodeSet, NodeSetParseError
    from ClusterShell.NodeUtils import GroupResolver

    if any(_count_of_nodes(part) > _MOST_NODES for part in split_list(text)):
        raise ValueError(f"expected at most {_MOST_NODES:,} nodes, got '{text}'")
    try:
        # Each part for itself keeps the order of the list.
        parts = [NodeSet(part, resolver=GroupResolver()) for part in split_list(text)]
    except NodeSetParseError as error:
        raise ValueError(f"expected a list of nodes such as n[1-4,7], got '{text}': {error}") from None
    return list(dict.fromkeys(name for part in parts for name in part))


def fold_nodes(names: Iterable[str]) -> str:
    """Returns a list of nodes in Slurm's form, such as ``n[1-3,7]``."""
    from ClusterShell.NodeSet import NodeSet
    from ClusterShell.NodeUtils import GroupResolver

    folded: Any = NodeSet.fromlist(list(names), resolver=GroupResolver())
    return str(folded)


def split_list(text: str) -> Iterator[str]:
    """Yields the parts of a list at commas outside of brackets."""
    for part in re.split(r",(?![^\[]*\])", text):
        if part.strip():
            yield part.strip()


def parse_pairs(line: str) -> dict[str, str]:
    """Returns the values by key of a line ``Key=Value Key=Value``; a value in quotes may have blanks."""
    found = re.findall(r"([\w/.:-]+)=(\"[^\"]*\"|'[^']*'|\S*)", line)
    return {key: value.strip("\"'") for key, value in found}


def parse_date(text: str, zone: str) -> float:
    """Returns the seconds since 1970 of a date as :func:`hdsim.util.dates.instant` reads it, of a zone by its name."""
    return instant(text, time_zone(zone))


def date_text(seconds: float, zone: str) -> str:
    """Returns the local time of seconds since 1970 as `parse_date` reads it, without parts of a second."""
    return datetime.fromtimestamp(seconds, time_zone(zone)).strftime("%Y-%m-%dT%H:%M:%S")


def time_zone(name: str) -> ZoneInfo:
    """Returns a time zone.

    Raises:
        ConfigError: There is no such time zone.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(
            f"expected a time zone such as Europe/Berlin or UTC, got '{name}'", where="timezone"
        ) from None


def parse_counts(text: str) -> dict[str, int]:
    """Returns the numbers by name of a list such as ``matlab:2,ansys``; a name alone stands for one."""
    counts: dict[str, int] = {}
    for item in split_list(text):
        name, _, number = item.partition(":")
        if number and not number.isdecimal():
            raise ValueError(f"expected names with numbers such as matlab:2,ansys, got '{text}'")
        counts[name] = counts.get(name, 0) + int(number or 1)
    return counts


def read_text(path: Path) -> str:
    """Returns the text of a file.

    Raises:
        ConfigError: The file cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise ConfigError(f"expected a file: {error.strerror}", where=str(path)) from None


def printed_rows(
    path: Path, needed: Collection[str], expected: str, with_bars: str = ""
) -> Iterator[tuple[dict[str, str], str]]:
    """Yields each row of a table that a command prints, by upper-case names of columns, and its place.

    Between columns are vertical bars, if they are in the header, or blanks. The header is the first line with the
    `needed` columns. Texts of the column `with_bars` may have vertical bars.

    Raises:
        ConfigError: The file cannot be read, has no header (`expected` says which one), or a row has another number of
            columns.
    """
    header: list[str] = []
    barred = False
    for place, line in enumerate(read_text(path).splitlines(), 1):
        barred = "|" in line if not header else barred
        cells = [cell.strip() for cell in line.split("|")] if barred else line.split()
        if not header:
            names = [cell.upper() for cell in cells]
            header = names if set(needed) <= set(names) else []
        elif cells:
            more = len(cells) - len(header)
            if barred and more > 0 and with_bars in header:
                at = header.index(with_bars)
                cells[at : at + more + 1] = ["|".join(cells[at : at + more + 1])]
            if len(cells) != len(header):
                raise ConfigError(f"expected {len(header)} columns, got {len(cells)}", where=f"{path}:{place}")
            yield dict(zip(header, cells, strict=True)), f"{path}:{place}"
    if not header:
        raise ConfigError(f"expected {expected}", where=str(path))


def read_value(text: str, read: Callable[[str], Any], where: str) -> Any:
    """Returns a value read from its text.

    Raises:
        ConfigError: The text has another form than expected.
    """
    try:
        return read(text)
    except ValueError as error:
        raise ConfigError(str(error), where=where) from None


def lowered(pairs: Mapping[str, str]) -> dict[str, str]:
    """The values by key in lower case: Slurm's keys may be written in any case."""
    return {key.lower(): value for key, value in pairs.items()}
