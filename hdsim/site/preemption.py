"""Rules of preemption of a site: between QOS (preempt/qos) or partitions (preempt/partition_prio).

Source of which jobs are suspended: "Preemption" and "Gang Scheduling" of Slurm's documentation, and the behaviour of
slurmctld 22.05, which was measured.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from hdsim.site.formats import expand_nodes
from hdsim.site.jobs_table import SiteJobs
from hdsim.site.kernels.layers import Layers, make_layers
from hdsim.site.kernels.preempting import Preemption
from hdsim.site.model import Site
from hdsim.site.platform import nodes_of
from hdsim.util.arrays import Flags, Ints

#: Modes in which preempted jobs end: cancelled, or back in the queue.
MODES = ("CANCEL", "REQUEUE")
_SUSPEND = "SUSPEND"


def modes_of(site: Site) -> list[str]:
    """Returns the mode of each group of jobs, QOS or partitions in their order: CANCEL, REQUEUE, SUSPEND or OFF."""
    words = [(mode or site.preemption.mode).upper() for mode in _modes(site)]
    return [word.replace("GANG", "").replace("WITHIN", "").strip(",") or "OFF" for word in words]


def suspends(site: Site) -> bool:
    """Whether jobs of partitions of lower tiers are suspended for others."""
    given = site.preemption
    return given.type == "partition_prio" and given.gang and given.mode.upper() == _SUSPEND


def _with_common_nodes(site: Site) -> list[tuple[str, str]]:
    """Returns the pairs of partitions with common nodes."""
    every = {name for name, _ in nodes_of(site)}
    nodes = {
        name: every if one.nodes.upper() == "ALL" else {*expand_nodes(one.nodes)}
        for name, one in site.partitions.items()
    }
    return [pair for pair in itertools.combinations(nodes, 2) if nodes[pair[0]] & nodes[pair[1]]]


def _unclear_sharing(site: Site) -> list[str]:
    """Returns the pairs of partitions whose jobs would share CPUs in turns, or never be on one node, in words."""
    modes, found = dict(zip(site.partitions, modes_of(site), strict=True)), []
    for name, other_name in _with_common_nodes(site):
        one, other = site.partitions[name], site.partitions[other_name]
        both = f"partitions {name} and {other_name} with common nodes"
        if one.priority_tier == other.priority_tier and not modes[name] == modes[other_name] == "OFF":
            found.append(f"PreemptMode=GANG: {both} and of one PriorityTier, whose jobs run in turns")
        elif one.forces != other.forces:
            found.append(f"PreemptMode=GANG: {both}, one of them with OverSubscribe=FORCE")
    return found


def layers_of(site: Site, members: Flags, cpus: Ints) -> Layers:
    """Returns the layers of jobs on the CPUs of nodes, none where no job is suspended.

    Args:
        site: The site.
        members: (P, N) nodes of the partitions.
        cpus: (N,) CPUs of the nodes.
    """
    parts = list(site.partitions.values()) if suspends(site) else []
    tier = np.array([one.priority_tier for one in parts], np.int64)
    off = np.array([mode == "OFF" for mode in modes_of(site)[: len(parts)]], np.bool_)
    blocks = (tier[:, np.newaxis] <= tier[np.newaxis]) | off[np.newaxis]
    forced = np.array([one.forces for one in parts], np.bool_)
    return make_layers(blocks, forced, np.argsort(-tier, kind="stable"), members.shape[1], int(cpus.max(initial=0)))


def suspended_jobs(layers: Layers) -> set[int]:
    """Returns the jobs that stand still, as jobs of higher tiers that run have some of their CPUs."""
    found: set[int] = set()
    busy = np.zeros(layers.left.shape, np.bool_)
    for partition in layers.order.tolist():
        own = layers.job[partition]
        hit = np.unique(own[busy & (own >= 0)])
        found.update(hit.tolist())
        busy |= (own >= 0) & ~np.isin(own, hit)
    return found


def _modes(site: Site) -> list[str | None]:
    """The mode of each group of jobs, None for that of the cluster."""
    if site.preemption.type == "qos":
        return [one.preempt_mode for one in site.qos.values()]
    return [one.preempt_mode for one in site.partitions.values()]


def refused(site: Site) -> list[str]:
    """Returns the rules of preemption that are not simulated, each in words."""
    if site.preemption.gang and not suspends(site) and _with_common_nodes(site):
        return ["PreemptMode=GANG"]
    if site.preemption.type == "none":
        return []
    modes = {*modes_of(site)}
    found = [f"PreemptMode={word}" for word in sorted(modes - {*MODES, "OFF", *([_SUSPEND] * suspends(site))})]
    if suspends(site):
        found += [f"PreemptMode={word} beside PreemptMode=SUSPEND,GANG" for word in sorted(modes & {*MODES})]
        found += _unclear_sharing(site)
        found += ["PreemptMode=SUSPEND with select/linear"] * (site.slurm.select == "linear")
    if any("WITHIN" in (mode or "").upper() for mode in (site.preemption.mode, *_modes(site))):
        found.append("PreemptMode=WITHIN")
    return found


def rules_of(site: Site, jobs: SiteJobs) -> Preemption:
    """Returns the rules of preemption between the jobs of a site."""
    kind, parameters = site.preemption.type, site.slurm.parameters
    modes = modes_of(site)
    ends = np.array([mode in MODES for mode in modes], np.bool_)
    if kind == "qos":
        names, classes = list(site.qos), list(site.qos.values())
        group, rank = jobs.qos, [min(one.priority, 0xFFFF) for one in classes]
        beats = np.array([[name in one.preempt for name in names] for one in classes], np.bool_)
        exempt = [one.preempt_exempt_time for one in classes]
        grace = [one.grace_time for one in classes]
    else:
        parts = list(site.partitions.values())
        group = np.array([rows[0] for rows in jobs.partitions], np.int64)
        rank = [one.priority_tier for one in parts]
        beats = np.array([[one.priority_tier > other.priority_tier for other in parts] for one in parts], np.bool_)
        exempt = [None] * len(parts)
        grace = [one.grace_time for one in parts]
    usual = site.preemption.exempt_time
    beats = beats.reshape(len(rank), len(rank)) & ends & (kind != "none")
    ints, flags = np.zeros((3, len(jobs)), np.int64), np.zeros((2, len(jobs)), np.bool_)
    return Preemption(
        enabled=bool(beats.any()),
        by_partition=kind != "qos",
        group=group,
        beats=beats,
        exempt=np.array([_least(usual if one is None else one) for one in exempt], np.float64),
        waits=np.array(grace) > 0.0,
        rank=np.array(rank, np.int64),
        start=np.zeros(len(jobs)),
        youngest=bool(parameters.get("preempt_youngest_first", False)),
        reorders=int(parameters.get("preempt_reorder_count", 1)),
        strict=bool(parameters.get("preempt_strict_order", False)),
        candidate=ints[0],
        covers=ints[1],
        victim=ints[2],
        noted=flags[0],
        leaving=flags[1],
        length=np.zeros(1, np.int64),
    )


def _least(seconds: float) -> float:
    """Seconds that a job is exempt; without a limit, none."""
    return 0.0 if math.isinf(seconds) else seconds


def grace_of(site: Site, group: int) -> float:
    """Returns the seconds that a preempted job of a group runs on."""
    if site.preemption.type == "qos":
        return list(site.qos.values())[group].grace_time
    return list(site.partitions.values())[group].grace_time
