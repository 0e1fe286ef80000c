"""Demands of the jobs of sacct beside CPUs and memory: options of submission, GPUs, licences, whole nodes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import polars as pl

from hdsim.site.formats import expand_nodes, parse_counts
from hdsim.site.model import Site
from hdsim.site.platform import nodes_of
from hdsim.site.sacct_values import NOTHING
from hdsim.site.submit_lines import INTERESTING, UNREAD, submit_options, unread_options

#: Columns of what the commands of submission ask for, with their types and what stands where they say nothing.
_OF_LINES: dict[str, tuple[Any, Any]] = {
    **dict.fromkeys(
        (
            *("constraints", "dependency", "excluded_nodes", "gres", "licenses", "required_nodes", "partitions"),
            *("gpus_asked", "gpus_per_task"),
        ),
        (pl.String, None),
    ),
    "reservation": (pl.String, None),
    "memory_per": (pl.String, None),
    "nodes": (pl.Int64, None),
    "most_nodes": (pl.Int64, None),
    "per_task": (pl.Int64, None),
    "tasks_per_node": (pl.Int64, None),
    "min_cpus": (pl.Int64, None),
    "use_min_nodes": (pl.Boolean, False),
    "cpus_per_gpu": (pl.Int64, None),
    "array_limit": (pl.Int64, None),
    "nice": (pl.Int64, 0),
    "begin": (pl.String, None),
    "held": (pl.Boolean, False),
    "whole": (pl.Boolean, False),
    "whole_cores": (pl.Boolean, False),
    "exclusive_user": (pl.Boolean, False),
}


def of_lines(lines: pl.Series) -> list[pl.Series]:
    """Returns columns ``of_line_...`` of what the commands of submission ask for."""
    said = lines.str.contains(INTERESTING).fill_null(False)
    known: dict[str, dict[str, Any]] = {}
    columns: dict[str, list[Any]] = {name: [default] * len(lines) for name, (_, default) in _OF_LINES.items()}
    places = said.arg_true().to_list()
    for place, line in zip(places, lines.filter(said).to_list(), strict=True):
        if line not in known:
            known[line] = submit_options(line)
        for name, value in known[line].items():
            columns[name][place] = value
    return [pl.Series(f"of_line_{name}", values, _OF_LINES[name][0], strict=False) for name, values in columns.items()]


def unread(lines: pl.Series) -> dict[str, list[int]]:
    """Returns the rows of commands of submission with options that nothing simulates, by option."""
    said = lines.str.contains(UNREAD).fill_null(False)
    known: dict[str, list[str]] = {}
    found: dict[str, list[int]] = {}
    for row, line in zip(said.arg_true().to_list(), lines.filter(said).to_list(), strict=True):
        if line not in known:
            known[line] = unread_options(line)
        for option in known[line]:
            found.setdefault(option, []).append(row)
    return found


def gres(jobs: pl.DataFrame) -> list[pl.Series]:
    """Returns the number of GPUs of each job, and the generic resources of each of its nodes."""
    asked = _each(jobs["req_tres"].str.extract_all(r"gres/[^,]+").list.join(","), _of_tres)
    got = _each(jobs["alloc_tres"].str.extract_all(r"gres/[^,]+").list.join(","), _of_tres)
    from_gres = _each(jobs["req_gres"], _of_gres)
    got_gres = _each(jobs["alloc_gres"], _of_gres)
    nodes = jobs["nodes"].fill_null(1).clip(1).to_list()
    on = jobs["got_nodes"].to_list()
    started = jobs["start"].is_not_null().to_list()
    lines, cpus = jobs["of_line_gres"].to_list(), jobs["got_cpus"].to_list()
    gpus, gres = [0] * jobs.height, [""] * jobs.height
    for row, (wanted, had, old, old_got, line) in enumerate(zip(asked, got, from_gres, got_gres, lines, strict=True)):
        if not (wanted or had or old or old_got or line):
            continue
        # A number for all of the job is spread over its nodes; one for each node grows with them.
        spread = on[row] if had and _gpus(had) == _gpus(wanted) else nodes[row]
        each = {name: math.ceil(number / spread) for name, number in wanted.items()} if wanted else dict(old)
        if line and (said := _of_gres(line)):
            each = said
        gres[row] = ",".join(f"{name}:{number}" for name, number in sorted(each.items()))
        if started[row] and had:
            gpus[row] = _gpus(had)
        elif started[row] and old_got:
            gpus[row] = int(_gpus(old_got) * on[row])
        elif wanted:
            gpus[row] = _gpus(wanted)
        else:
            gpus[row] = int(_gpus(each) * nodes[row])
        if gpus[row] and started[row]:
            gpus[row] = _in_parts(cpus[row] or 1, gpus[row], on[row] or 1)
    return [pl.Series("gpus", gpus, pl.Int64), pl.Series("gres", [text or None for text in gres], pl.String)]


def _in_parts(cpus: int, gpus: int, nodes: int) -> int:
    """Returns the most GPUs that can be divided with the CPUs into equal parts, at least one for each node."""
    return next((number for number in range(gpus, 0, -1) if math.gcd(cpus, number) >= min(nodes, cpus)), gpus)


def _each(texts: pl.Series, read: Callable[[str], dict[str, int]]) -> Iterable[dict[str, int]]:
    """Yields what each text has; a text is read once."""
    known: dict[str | None, dict[str, int]] = {None: {}, "": {}}
    for text in texts.to_list():
        if text not in known:
            known[text] = read(text)
        yield known[text]


def _of_tres(text: str) -> dict[str, int]:
    """Numbers by kind of ``gres/gpu:a100=2,gres/gpu=2``: of a kind with types those of the types."""
    found: dict[str, int] = {}
    for name, number in re.findall(r"gres/([^=,]+)=(\d+)", text):
        found[name] = int(number)
    typed = {name.split(":")[0] for name in found if ":" in name}
    return {name: number for name, number in found.items() if number and name not in typed}


def _of_gres(text: str) -> dict[str, int]:
    """Numbers by kind of ``gpu:a100:2,gpu:1`` or ``gres:gpu:2``; a malformed text has none."""
    found: dict[str, int] = {}
    for part in re.sub(r"\([^)]*\)", "", text).split(","):
        words = part.strip().removeprefix("gres:").removeprefix("gres/").replace("=", ":").split(":")
        number = int(words.pop()) if len(words) > 1 and re.fullmatch(r"\d{1,9}", words[-1]) else 1
        name = ":".join(words)
        if re.fullmatch(r"[\w.:-]+", name) and number and name not in NOTHING:
            found[name] = found.get(name, 0) + number
    return found


def _gpus(kinds: Mapping[str, int]) -> int:
    return sum(number for name, number in kinds.items() if name.split(":")[0] == "gpu")


def licenses(jobs: pl.DataFrame) -> pl.Series:
    """Returns the licences that each job asks for, such as ``matlab:2``."""
    tres = jobs["req_tres"].str.extract_all(r"license/[^,]+").list.join(",")
    of_tres = tres.str.replace_all("license/", "", literal=True).str.replace_all("=", ":", literal=True)
    of_tres = of_tres.to_frame("text").select(pl.when(pl.col("text") != "").then("text")).to_series()
    frame = jobs.select(of_tres.alias("tres"), "licenses", "of_line_licenses")
    return frame.select(pl.coalesce("tres", "licenses", "of_line_licenses").alias("licenses")).to_series()


def counts(text: str) -> dict[str, int]:
    """Returns numbers by name of ``matlab:2,ansys``; a malformed text is a name."""
    try:
        return parse_counts(text)
    except ValueError:
        return {text: 1}


def _nodes(text: str) -> list[str]:
    try:
        return expand_nodes(text)
    except ValueError:
        return []


def whole(jobs: pl.DataFrame, site: Site) -> pl.Series:
    """Returns which jobs got all CPUs of their nodes and more than they asked for, not by whole cores and sockets.

    Those of partitions that give whole nodes are none of them: in others they take what they ask for.
    """
    cpus = {name: kind.cpus for name, kind in nodes_of(site)}
    exclusive = [name for name, are in zip(site.partitions, site.whole_nodes, strict=True) if are]
    own = ~pl.col("partition").is_in(exclusive).fill_null(False)
    more = jobs.filter(pl.col("got_cpus") > pl.col("cpus"), pl.col("nodelist").is_not_null(), own)
    sums: dict[str, int] = {}
    for text in more["nodelist"].unique():
        names = [text] if text in cpus else _nodes(text)
        sums[text] = sum(cpus.get(name, 0) for name in names)
    if not sums:
        return pl.repeat(False, jobs.height, eager=True)
    found = pl.col("nodelist").replace_strict(sums, default=0, return_dtype=pl.Int64)
    words = site.slurm.consumable
    units = [
        kind.threads_per_core * (kind.cores_per_socket if "SOCKET" in words else 1)
        for kind in site.nodes.values()
        if {"SOCKET", "CORE"} & words
    ]
    # Each node gives whole cores, or whole sockets, on which CPUs are in turn.
    unit, rounded = max(units, default=1), pl.col("got_nodes") * (max(units, default=1) - 1)
    if "SOCKET" in words:
        sockets = max(kind.sockets for kind in site.nodes.values())
        rounded = pl.min_horizontal("cpus", pl.col("got_nodes") * sockets) * unit - pl.col("cpus")
    made = (pl.col("got_cpus") - pl.col("cpus") > rounded) & (pl.col("got_cpus") == found)
    return jobs.select((made & own).fill_null(False)).to_series()
