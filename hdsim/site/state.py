"""Reading of what scontrol and sinfo print: reservations and the states of nodes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hdsim.errors import ConfigError
from hdsim.site.formats import (
    expand_nodes,
    fold_nodes,
    lowered,
    parse_counts,
    parse_date,
    parse_pairs,
    printed_rows,
    read_text,
    read_value,
    split_list,
)
from hdsim.site.notes import Notes

#: States of nodes that take no jobs, by the beginning of Slurm's word.
_OUT_OF_SERVICE = ("down", "drain", "drng", "fail", "maint", "unk", "inval", "futr", "boot", "power", "reserved_down")
#: Flags of reservations that are not simulated: those of repetition, and of jobs and nodes that come in otherwise.
_FLAGS = ("HOURLY", "DAILY", "WEEKDAY", "WEEKEND", "WEEKLY", "TIME_FLOAT", "FLEX", "MAGNETIC", "REPLACE")
#: Keys of a reservation without influence.
_IGNORED = ("duration", "nodecnt", "corecnt", "state", "burstbuffer", "watts", "tres", "maxstartdelay", "cores")


def read_reservations(path: Path, zone: str, notes: Notes) -> dict[str, Any]:
    """Returns the documents of reservations by name from ``scontrol show reservation``, with or without ``-o``.

    Raises:
        ConfigError: The file cannot be read, or has no such lines.
    """
    made: dict[str, Any] = {}
    text = read_text(path)
    parts = re.split(r"(?=ReservationName=)", text)
    if len(parts) == 1 and text.strip() and "no reservations" not in text.lower():
        expected = "expected ReservationName=... as scontrol -o show reservation prints"
        raise ConfigError(f"{expected}, got '{text.strip()[:60]}'", where=str(path))
    line = 1 + parts[0].count("\n")
    for part in parts[1:]:
        where = f"{path}:{line}"
        line += part.count("\n")
        values = {key: value for key, value in lowered(parse_pairs(part)).items() if value not in ("(null)", "n/a", "")}
        name = values.pop("reservationname", "")
        one: dict[str, Any] = {}
        for edge in ("start", "end"):
            one[edge] = read_value(
                values.pop(f"{edge}time", ""), lambda date: parse_date(date, zone), f"{where}: {name}"
            )
        if not name or one["end"] <= one["start"]:
            notes.leave_out(path.name, "reservations without a name, or that end before they start", where)
            continue
        one["nodes"] = values.pop("nodes", "")
        for key in ("users", "accounts", "flags"):
            if key in values:
                one[key] = list(split_list(values.pop(key)))
        for flag in one.get("flags", ()):
            if flag.upper() in _FLAGS:
                repeats = "; the reservation is taken once" if flag.upper() in _FLAGS[:5] else ""
                notes.leave_out(path.name, f"Flags={flag}: not simulated{repeats}", f"{where}: {name}")
        for key in ("users", "accounts"):
            if any(owner.startswith("-") for owner in one.get(key, ())):
                notes.leave_out(path.name, f"{key} that may not use a reservation: not simulated", f"{where}: {name}")
        if "partitionname" in values:
            one["partition"] = values.pop("partitionname")
        if "licenses" in values:
            one["licenses"] = read_value(values.pop("licenses"), parse_counts, f"{where}: {name}")
            notes.leave_out(path.name, "reserved licences: not simulated", f"{where}: {name}")
        if values.pop("coreids", ""):
            notes.leave_out(path.name, "cores of nodes: all those of the nodes are reserved", f"{where}: {name}")
            values.pop("nodename", "")
        for key in values:
            if key not in _IGNORED:
                notes.leave_out(path.name, f"{key}: not used", f"{where}: {name}")
        made[name] = one
    notes.read[path.name] = len(made)
    return made


def read_sinfo(path: Path, notes: Notes) -> str:
    """Returns the nodes out of service, in Slurm's form, from ``sinfo`` with the columns STATE and NODELIST.

    Raises:
        ConfigError: The file cannot be read, or has no such columns.
    """
    down: list[str] = []
    read = 0
    for row, _ in printed_rows(path, ("STATE", "NODELIST"), "a header with STATE and NODELIST, as sinfo prints"):
        read += 1
        if row["STATE"].lower().startswith(_OUT_OF_SERVICE):
            down += expand_nodes(row["NODELIST"])
    notes.read[path.name] = read
    return fold_nodes(dict.fromkeys(down)) if down else ""
