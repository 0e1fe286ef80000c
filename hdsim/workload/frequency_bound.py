"""The share of a job's run time that is bound by the frequency of its cores."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from hdsim.errors import ConfigError, WorkloadError
from hdsim.util.arrays import Floats, read_only
from hdsim.util.rules import is_finite
from hdsim.workload.model import Workload

#: Column of one's own: the share, from 0 to 1.
FREQUENCY_BOUND = "frequency_bound"
#: Random stream of what is drawn here among those of a seed.
_STREAM = 12
_KEY = "workload.frequency_bound"


def frequency_bound_of(workload: Workload) -> Floats:
    """Returns the (J,) shares of run time that are bound by the frequency: the column, 1 for jobs without a value.

    Raises:
        WorkloadError: A value is no number from 0 to 1.
    """
    share = _column(workload)
    if share is None:
        return np.ones(len(workload))
    return np.where(np.isnan(share), 1.0, share)


def with_frequency_bound(workload: Workload, share: Any, *, seed: int) -> Workload:
    """Returns jobs of which each without a value of its own is bound by the frequency to a share of its run time.

    Args:
        workload: The jobs.
        share: The share, from 0 to 1, or ``[low, high]``, between which that of each job is drawn; None leaves the jobs
            as they are.
        seed: Seed of the draws.

    Raises:
        ConfigError: The share is none of these.
        WorkloadError: A value of the column is no number from 0 to 1.
    """
    if share is None:
        return workload
    bounds = list(share) if isinstance(share, list | tuple) else [share, share]
    if len(bounds) != 2 or not all(is_finite(one) for one in bounds) or not 0 <= bounds[0] <= bounds[1] <= 1:
        raise ConfigError(f"expected a share from 0 to 1, or [low, high], got {share!r}", where=_KEY)
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_STREAM,)))
    drawn = rng.uniform(bounds[0], bounds[1], len(workload))
    known = _column(workload)
    column = drawn if known is None else np.where(np.isnan(known), drawn, known)
    return dataclasses.replace(workload, further={**workload.further, FREQUENCY_BOUND: read_only(column)})


def _column(workload: Workload) -> Floats | None:
    if FREQUENCY_BOUND not in workload.own_names:
        return None
    column = workload.own_column(FREQUENCY_BOUND)
    share = column.astype(np.float64) if column.dtype.kind in "iuf" else np.full(len(column), -1.0)
    wrong = np.flatnonzero(~(np.isnan(share) | ((share >= 0) & (share <= 1))))
    if len(wrong):
        message = f"expected {FREQUENCY_BOUND} from 0 to 1, got {column[wrong[0]]!r} of job {workload.job_id[wrong[0]]}"
        raise WorkloadError(message, where=workload.source or None)
    return share
