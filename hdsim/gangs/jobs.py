"""Gangs as jobs of a workload."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hdsim.gangs.controllers import MEDIUM
from hdsim.gangs.planner import static_shares
from hdsim.gangs.simulation import Gang
from hdsim.util.arrays import objects
from hdsim.workload.model import COLUMNS, Workload


def gang_jobs(gangs: Sequence[Gang], submission_time: ArrayLike = 0.0) -> Workload:
    """Returns a workload of gangs.

    A gang is a job of one part, so that it is on one node. It requests the shares that its tasks have before the first
    plan. Its run time is the estimate :func:`estimated_seconds`; how long it takes follows from its supersteps.

    Submission times are (G,) or one for all, in seconds.
    """
    estimates = [estimated_seconds(gang) for gang in gangs]
    return Workload.from_columns(
        job_id=[f"gang{number}" for number in range(len(gangs))],
        submission_time=np.broadcast_to(submission_time, len(gangs)),
        runtime=estimates,
        requested_cores=np.ones(len(gangs)),
        cpu=[gang.least / 1000.0 for gang in gangs],
        fixed_duration=True,
        gang=objects(gangs),
        source="gangs",
    )


def beside(gangs: Workload, others: Workload) -> Workload:
    """Returns the gangs and other jobs as one workload; the first job of each arrives at its own first submission.

    Name, source, profiles and names are those of the others.
    """
    columns: dict[str, Any] = {}
    for name in COLUMNS:
        parts = [getattr(gangs, name), getattr(others, name)]
        columns[name] = np.concatenate([part.astype(object) for part in parts] if name == "job_id" else parts)
    joined = Workload.from_columns(**columns, source=others.source)
    return dataclasses.replace(others, **{name: getattr(joined, name) for name in COLUMNS})


def estimated_seconds(gang: Gang) -> float:
    """Seconds of a gang whose tasks have workloads of medium size and the shares that EXPPO plans for these."""
    sizes = np.full((1, len(gang.tasks)), MEDIUM)
    shares = static_shares(gang.planner.profile, gang.budget, MEDIUM)
    return gang.supersteps * float(gang.planner.profile.at(sizes, shares).max())
