"""Amounts of the trackable resources (TRES) of a site that jobs take: in any case, for each CPU and each node.

Source: ``job_set_alloc_tres`` and ``assoc_mgr_tres_weighted`` of Slurm 22.05.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from hdsim.errors import nearest
from hdsim.site.jobs_table import SiteJobs, gpu_types
from hdsim.site.model import Site
from hdsim.util.arrays import Floats, Ints

#: TRES of which slurmctld counts nothing for jobs, so that weights of them are without influence.
_UNCOUNTED = ("energy", "vmem", "pages", "fs/disk")
#: TRES of nodes, of which the greatest counts with PriorityFlags=MAX_TRES; the others are added.
_OF_NODES = ("cpu", "mem", "node", "gres")


class Amounts(NamedTuple):
    """(Q,) amounts of a TRES that jobs take: in any case, for each CPU and for each node."""

    fixed: Floats
    per_cpu: Floats
    per_node: Floats

    def of(self, cpus: Ints, nodes: Ints) -> Floats:
        """Returns the (Q,) amounts of jobs with CPUs on nodes."""
        return np.asarray(self.fixed + self.per_cpu * cpus + self.per_node * nodes)


def tres_of(site: Site) -> list[str]:
    """Returns the TRES of a site of which jobs take some."""
    types = gpu_types(site)
    gpus = dict.fromkeys(["gres/gpu", *(f"gres/{name}" for name in types)])
    return ["cpu", "mem", "node", "billing", *gpus, *(f"license/{name}" for name in site.licenses)]


def amounts(site: Site, jobs: SiteJobs, tres: str, rows: Ints, weights: Mapping[str, float]) -> Amounts:
    """Returns what (Q,) jobs take of a TRES.

    GPUs that jobs ask for without a type are of the site's type if it has one only, and of none otherwise.

    Args:
        site: The site.
        jobs: Its jobs.
        tres: Name of the TRES, one of `tres_of`.
        rows: The jobs.
        weights: TRESBillingWeights of the partition that they are in.

    Raises:
        KeyError: The site has no such TRES, or jobs take none of it.
    """
    asked, none = jobs.demands, np.zeros(len(rows))
    kind, _, name = tres.partition("/")
    if tres == "cpu" or (tres == "billing" and not weights):
        return Amounts(none, 1.0 / jobs.per_counted[rows], none)
    if tres == "billing":
        parts = [(weights[each], amounts(site, jobs, each, rows, {})) for each in billed(weights)]
        return Amounts(*(sum((factor * part[k] for factor, part in parts), none) for k in range(3)))
    if tres == "node":
        return Amounts(none, none, none + 1.0)
    if tres == "mem":
        return Amounts(none, asked.memory_per_cpu[rows], asked.memory_per_node[rows])
    if kind == "license" and name in site.licenses:
        return Amounts(jobs.licenses[rows, list(site.licenses).index(name)].astype(np.float64), none, none)
    types = gpu_types(site)
    if kind == "gres" and (name == "gpu" or name in types):
        of_type = np.ones(len(rows), np.bool_)
        if name != "gpu":
            of_type = asked.gpu_type[rows] == (types.index(name) if len(types) > 1 else asked.gpu_type[rows])
        in_all, on_each = (np.where(of_type, gpus[rows], 0.0) for gpus in (asked.all_gpus, asked.gpus))
        return Amounts(in_all, none, on_each)
    raise KeyError(tres)


def is_counted(tres: str) -> bool:
    """Whether slurmctld counts a TRES for jobs."""
    return tres not in _UNCOUNTED


def billed(weights: Iterable[str]) -> list[str]:
    """Returns the TRES of weights that count."""
    return [name for name in weights if is_counted(name) and name != "billing"]


def is_of_nodes(tres: str) -> bool:
    """Whether MAX_TRES takes the greatest of this and others of the kind."""
    return tres.split("/")[0] in _OF_NODES


def unknown_weights(site: Site) -> list[str]:
    """Returns the weights of TRES that are not simulated, each in words."""
    found, known = [], tres_of(site)

    def told(parameter: str, names: Iterable[str], allowed: list[str]) -> None:
        for name in names:
            if name not in allowed and is_counted(name):
                found.append(f"{parameter}={name}{nearest(name, allowed)} (expected one of {', '.join(allowed)})")

    weighed = site.priority.weight_tres if site.priority.type == "multifactor" else {}
    told("PriorityWeightTRES", weighed, known)
    for name, one in site.partitions.items():
        told(f"partition {name}: TRESBillingWeights", one.billing_weights, known)
    if "billing" in weighed and any(one.billing_weights for one in site.partitions.values()):
        found.append("PriorityWeightTRES=billing beside TRESBillingWeights")
    return found
