"""Changes of a site in short words: ``partition.long.max_time=24h``, ``nodes.gpu+=20``, ``reserve=n[1-4],...``."""

from __future__ import annotations

import itertools
import re
from typing import Any

from hdsim.errors import ConfigError, nearest
from hdsim.site.formats import expand_nodes, fold_nodes, parse_date, split_list
from hdsim.site.model import PARAMETERS, Site, site_of
from hdsim.util.inputs import parse_yaml
from hdsim.util.text import shown
from hdsim.util.units import parse_duration

#: Keys of a site by the words of changes.
_WORDS = {"partition": "partitions", "reservation": "reservations", "node": "nodes", "license": "licenses"}
_RESERVE = ("start", "duration", "users", "accounts", "name")


def changed(site: Site, changes: list[str]) -> Site:
    """Returns a site with changes, in their order.

    A change is ``KEY=VALUE`` with a key of the site file (``partition.long.max_time``, ``qos.high.priority``,
    ``priority.weight_age``, ``slurm.bf_max_job_test``), ``nodes.TYPE+=N`` or ``-=N``, or
    ``reserve=NODES,start=TIME,duration=TIME[,users=A:B][,accounts=A:B][,name=NAME]``.

    Raises:
        ConfigError: A change has another form, a key or a value is not allowed, or the site does not enforce limits.
    """
    for text in changes:
        found = re.fullmatch(r"([^=+\-\s]+(?:[.\-][^=+\-\s]+)*)\s*(\+=|-=|=)\s*(.*)", text, re.DOTALL)
        if not found:
            raise ConfigError(f"expected a change such as partition.long.max_time=24h or nodes.gpu+=20, got '{text}'")
        key, sign, value = found.groups()
        if key == "reserve" and sign == "=":
            site = _reserved(site, value, text)
        elif sign != "=":
            site = _with_nodes(site, key, int(f"{sign[0]}1"), value, text)
        else:
            site = _set(site, key, value, text)
    limit = next((text for text in changes if ".limits." in text.partition("=")[0]), "")
    if limit and not site.slurm.enforces_limits:
        raise ConfigError("expected slurm.enforce=[limits] as well, as the site enforces no limits", where=limit)
    return site


def _set(site: Site, key: str, value: str, text: str) -> Site:
    """Sets a key of the site file."""
    document = site.model_dump()
    parts = key.split(".")
    parts[0] = _WORDS.get(parts[0], parts[0])
    if parts[0] == "slurm" and len(parts) == 2 and (parts[1] in PARAMETERS or parts[1] not in document["slurm"]):
        parts.insert(1, "parameters")
    at: Any = document
    for depth, part in enumerate(parts[:-1]):
        if not isinstance(at, dict) or part not in at:
            raise _unknown(parts, depth, at, text)
        at = at[part]
    free = (
        parts[-2:-1] in (["parameters"], ["licenses"], ["weight_tres"], ["billing_weights"]) or "limits" in parts[:-1]
    )
    if not isinstance(at, dict) or (parts[-1] not in at and not free):
        raise _unknown(parts, len(parts) - 1, at, text)
    at[parts[-1]] = value_of(value)
    return site_of(document, text)


def value_of(text: str) -> Any:
    """Returns the value of a change, which is YAML or else a text."""
    try:
        return parse_yaml(text, ConfigError, "a value", "")
    except ConfigError:
        return text


def _unknown(parts: list[str], depth: int, at: Any, text: str) -> ConfigError:
    allowed = sorted(at) if isinstance(at, dict) else []
    place = ".".join(parts[:depth]) or "the site"
    expected = f"expected one of {', '.join(allowed)}" if allowed else f"{place} takes a value and has no keys"
    return ConfigError(f"{place}: {expected}, got '{parts[depth]}'{nearest(parts[depth], allowed)}", where=text)


def _with_nodes(site: Site, key: str, sign: int, value: str, text: str) -> Site:
    """Adds nodes like those of a type, or removes the last ones of it.

    Partitions that have the last node of the type get the new ones.
    """
    kind = key.partition(".")[2]
    if not key.startswith("nodes.") or kind not in site.nodes or not value.isdecimal():
        kinds = ", ".join(f"nodes.{name}" for name in site.nodes)
        example = f"nodes.{next(iter(site.nodes))}+=20"
        raise ConfigError(f"expected a number of nodes of {kinds}, such as {example}", where=text)
    number, document = int(value), site.model_dump()
    names = expand_nodes(site.nodes[kind].nodes)
    if sign < 0 and number >= len(names):
        raise ConfigError(f"expected at most {len(names) - 1} nodes to remove, got {number}", where=text)
    gone = set(names[len(names) - number :]) if sign < 0 else set()
    new = _following(names, number, {name for one in site.nodes.values() for name in expand_nodes(one.nodes)})
    new = new if sign > 0 else []
    document["nodes"][kind]["nodes"] = fold_nodes([*(name for name in names if name not in gone), *new])

    def updated(listed: str) -> str:
        if not listed or listed.upper() == "ALL":
            return listed
        before = expand_nodes(listed)
        after = [name for name in before if name not in gone] + (new if names[-1] in before else [])
        return fold_nodes(after) if after else ""

    for part in document["partitions"].values():
        part["nodes"] = updated(part["nodes"])
    for part in document["reservations"].values():
        part["nodes"] = updated(part["nodes"]) if sign < 0 else part["nodes"]
    document["down"] = updated(document["down"]) if sign < 0 else document["down"]
    return site_of(document, text)


def _following(names: list[str], number: int, taken: set[str]) -> list[str]:
    """Returns names that follow the last one of a type and that no node has."""
    found = re.fullmatch(r"(.*?)(\d+)", names[-1])
    stem, digits = (found[1], found[2]) if found else (f"{names[-1]}-", "0")
    made: list[str] = []
    following = int(digits)
    while len(made) < number:
        following += 1
        name = f"{stem}{following:0{len(digits)}}"
        if name not in taken:
            made.append(name)
    return made


def _reserved(site: Site, value: str, text: str) -> Site:
    """Adds a reservation."""
    parts = list(split_list(value))
    nodes = ",".join(itertools.takewhile(lambda part: "=" not in part, parts))
    pairs = [part.partition("=") for part in itertools.dropwhile(lambda part: "=" not in part, parts)]
    given = {key: found for key, _, found in pairs}
    wrong = len(given) < len(pairs) or not all(key in _RESERVE and found for key, _, found in pairs)
    if wrong or not nodes or not {"start", "duration"} <= set(given):
        raise ConfigError(
            "expected reserve=NODES,start=2026-03-09T08:00:00,duration=7d and users=A:B, accounts=A:B or name=NAME",
            where=text,
        )
    try:
        start = parse_date(given["start"], site.time_zone)
        end = start + parse_duration(given["duration"])
    except ValueError as error:
        raise ConfigError(str(error), where=text) from None
    name = given.get("name") or f"reserved{len(site.reservations) + 1}"
    if name in site.reservations:
        raise ConfigError(f"expected another name than that of a reservation, got {shown(name)}", where=text)
    document = site.model_dump()
    document["reservations"][name] = {
        "nodes": nodes,
        "start": start,
        "end": end,
        **{key: found.split(":") for key, found in given.items() if key in ("users", "accounts")},
    }
    return site_of(document, text)
