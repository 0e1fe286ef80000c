"""Rules of preemption of a site: between QOS (preempt/qos) or partitions (preempt/partition_prio)."""

from __future__ import annotations

import math

import numpy as np

from hdsim.site.jobs_table import SiteJobs
from hdsim.site.kernels.preempting import Preemption, make_preemption
from hdsim.site.model import Site

#: Modes in which preempted jobs end: cancelled, or back in the queue.
MODES = ("CANCEL", "REQUEUE")


def modes_of(site: Site) -> list[str]:
    """Returns the mode of each group of jobs, QOS or partitions in their order: CANCEL, REQUEUE, SUSPEND or OFF."""
    words = [(mode or site.preemption.mode).upper() for mode in _modes(site)]
    return [word.replace("GANG", "").replace("WITHIN", "").strip(",") or "OFF" for word in words]


def _modes(site: Site) -> list[str | None]:
    """The mode of each group of jobs, None for that of the cluster."""
    if site.preemption.type == "qos":
        return [one.preempt_mode for one in site.qos.values()]
    return [one.preempt_mode for one in site.partitions.values()]


def refused(site: Site) -> list[str]:
    """Returns the rules of preemption that are not simulated, each in words."""
    if site.preemption.type == "none":
        return []
    found = [f"PreemptMode={word}" for word in sorted({*modes_of(site)} - {*MODES, "OFF"})]
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
    return make_preemption(
        group,
        beats,
        np.array([_least(usual if one is None else one) for one in exempt], np.float64),
        np.array(grace) > 0.0,
        np.array(rank, np.int64),
        youngest=bool(parameters.get("preempt_youngest_first", False)),
        reorders=int(parameters.get("preempt_reorder_count", 1)),
        strict=bool(parameters.get("preempt_strict_order", False)),
        by_partition=kind != "qos",
    )


def _least(seconds: float) -> float:
    """Seconds that a job is exempt; without a limit, none."""
    return 0.0 if math.isinf(seconds) else seconds


def grace_of(site: Site, group: int) -> float:
    """Returns the seconds that a preempted job of a group runs on."""
    if site.preemption.type == "qos":
        return list(site.qos.values())[group].grace_time
    return list(site.partitions.values())[group].grace_time
