"""Slack of jobs: how long their starts may be put off."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from hdsim.errors import ConfigError
from hdsim.util.arrays import Floats, read_only
from hdsim.util.rules import duration, numbers_between
from hdsim.workload.model import Workload

#: Columns of one's own: seconds from the submission to the latest start, and the latest end.
SLACK, DEADLINE = "slack", "deadline"
#: Random stream of what is drawn here among those of a seed.
_STREAM = 11


def slack_of(workload: Workload) -> Floats | None:
    """Returns the (J,) seconds for which each start may be put off, NaN for jobs that declare none; None without any.

    They are the column `slack`, or else `deadline` (s on the clock of the submission times, for the end of a job)
    minus submission and requested time, at least 0, whatever part of the trace is replayed. Negative ones are none.

    Raises:
        WorkloadError: A column has other values than numbers.
    """
    if SLACK in workload.own_names:
        slack = _numbers(workload, SLACK)
    elif DEADLINE in workload.own_names:
        deadline = _numbers(workload, DEADLINE)
        left = np.maximum(deadline - workload.original_submission_time - workload.requested_time, 0.0)
        slack = np.where(deadline >= 0, left, np.nan)
    else:
        return None
    slack = np.where(slack >= 0, slack, np.nan)
    return None if np.isnan(slack).all() else slack


def with_slack(workload: Workload, share: float | None, time: Any, *, seed: int) -> Workload:
    """Returns jobs of which some, drawn at random until they have a share of the work, declare slack.

    Args:
        workload: The jobs.
        share: Share of the core-seconds of all jobs, 0..1; None leaves the jobs as they are.
        time: Slack in seconds, as a duration such as ``24h``, or ``[low, high]``, between which it is drawn.
        seed: Seed of the draws.

    Raises:
        ConfigError: An argument is none of these.
    """
    if share is None:
        return workload
    fault = numbers_between(0, 1).fault(share, "workload.slack.share")
    if fault is not None:
        raise fault
    bounds = [
        duration(one, "workload.slack.time", zero=True)
        for one in (time if isinstance(time, list | tuple) else (time, time))
    ]
    if len(bounds) != 2 or not bounds[0] <= bounds[1]:
        raise ConfigError(f"expected a time or [low, high], got {time!r}", where="workload.slack.time")
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_STREAM,)))
    jobs = rng.permutation(len(workload))
    work = (workload.runtime * workload.requested_cores)[jobs]
    drawn = rng.uniform(bounds[0], bounds[1], len(workload))
    before = np.cumsum(work) - work
    chosen = jobs[before < share * work.sum()]
    slack = np.full(len(workload), np.nan)
    slack[chosen] = drawn[chosen]
    return dataclasses.replace(workload, further={**workload.further, SLACK: read_only(slack)})


def _numbers(workload: Workload, name: str) -> Floats:
    column = workload.own_column(name)
    if column.dtype.kind not in "iuf":
        raise ConfigError(f"expected numbers of seconds in the column {name}", where=workload.source)
    return column.astype(np.float64)
