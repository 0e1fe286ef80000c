"""Partitions and reservations of a run of a Slurm site: their nodes, and how busy these were."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.report.charts import ChartTable, Fact, Panel, View
from hdsim.results.series import StepFunction
from hdsim.util.arrays import Flags

if TYPE_CHECKING:
    from hdsim.results.run_directory.reader import Run


@dataclass(frozen=True)
class Reserved:
    """A reservation within the period of a run.

    Attributes:
        name: Its name.
        begin: Seconds since the first submission, not before it.
        end: The same, not after the end of the run.
        nodes: (N,) whether it has each node of the platform.
        holders: Users and accounts whose jobs may use it, in words.
    """

    name: str
    begin: float
    end: float
    nodes: Flags
    holders: str


def rules_of(run: Run) -> Mapping[str, Any]:
    """Returns the rules of the site of a run, empty without one."""
    site = run.config.get("site")
    return site if isinstance(site, Mapping) else {}


def nodes_of_partitions(run: Run) -> dict[str, Flags]:
    """Returns the (N,) nodes of each partition by its name, empty for a run without a site."""
    return {name: _listed(run, one.get("nodes")) for name, one in (rules_of(run).get("partitions") or {}).items()}


def reservations(run: Run) -> list[Reserved]:
    """Returns the reservations that lie within the period of a run, in order of their begins."""
    first = (run.manifest.get("workload") or {}).get("begin")
    found = []
    for name, one in (rules_of(run).get("reservations") or {}).items() if first is not None else ():
        begin, end = max(one["start"] - first, 0.0), min(one["end"] - first, run.end_time)
        nodes = _listed(run, one.get("nodes"))
        if begin < end and nodes.any():
            holders = [*(one.get("users") or ()), *(one.get("accounts") or ())]
            found.append(Reserved(name, begin, end, nodes, ", ".join(holders) or "nobody"))
    return sorted(found, key=lambda one: (one.begin, one.name))


def _listed(run: Run, text: str | None) -> Flags:
    """(N,) the nodes of a list in Slurm's form; ALL stands for every node."""
    from hdsim.site.formats import expand_nodes

    names = run.platform.node_names
    if text and text.upper() == "ALL":
        return np.ones(len(names), np.bool_)
    kept = set(expand_nodes(text)) if text else set()
    return np.array([name in kept for name in names], np.bool_)


def busy_share(run: Run, nodes: Flags, begin: float, end: float) -> float:
    """Returns the share of the CPU cores of nodes, (N,), that jobs held from one time to another, in seconds."""
    platform, held = run.platform, run.segments.until(end)
    node = platform.processor_node[platform.core_processor]
    counted = nodes[node] & ~platform.is_gpu[platform.core_processor]
    if not counted.any() or not len(held) or end <= begin:
        return 0.0
    before = np.append(0, np.cumsum(counted))
    cores = held.held.sums(before[held.held.last + 1] - before[held.held.first])
    seconds = np.maximum(np.minimum(held.end, end) - np.maximum(held.begin, begin), 0.0)
    return float(cores @ seconds) / (float(counted.sum()) * (end - begin))


def reserved_cores(run: Run) -> StepFunction | None:
    """Returns the share of the CPU cores that are reserved, in percent, over time; None without a reservation."""
    found = reservations(run)
    if not found:
        return None
    edges = np.unique([0.0, *(time for one in found for time in (one.begin, one.end) if time < run.end_time)])
    cores = run.platform.node_cpu_cores
    values = [
        float(cores[np.any([one.nodes for one in found if one.begin <= time < one.end] or [cores < 0], axis=0)].sum())
        for time in edges.tolist()
    ]
    return StepFunction(edges, 100.0 * np.array(values) / run.platform.n_cpu_cores, run.end_time)


def reserved(run: Run) -> Panel | None:
    """The reservations and how busy they were."""
    found = reservations(run)
    if not found:
        return None
    share = [100.0 * busy_share(run, one.nodes, one.begin, one.end) for one in found]
    columns = (
        Fact("reservation", [one.name for one in found]),
        Fact("from", np.array([one.begin for one in found]), "time"),
        Fact("for", np.array([one.end - one.begin for one in found]), "duration"),
        Fact("nodes", np.array([one.nodes.sum() for one in found], np.int32), "number"),
        Fact("busy (%)", np.array(share), "number"),
        Fact("users and accounts", [one.holders for one in found]),
    )
    note = "Nodes that only some jobs may use for a time, and the share of their cores that jobs held in it."
    return Panel("Reservations", note, (View("reservations", "Table", ChartTable(columns, (1, 2))),))
