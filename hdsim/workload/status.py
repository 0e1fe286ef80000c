"""Meaning of the status of jobs in SWF (field 11), and of a job number that several lines have.

Status: 0 failed, 1 completed, 2 to 4 partial executions (of a job that was checkpointed or swapped out, beside the line
that sums it up), 5 cancelled, -1 unknown. Format: https://www.cs.huji.ac.il/labs/parallel/workload/swf.html
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hdsim.workload.raw import RawJobs
from hdsim.workload.swf import CANCELLED, COMPLETED, FAILED, PARTIAL

#: Uses of the status.
USES = ("recorded", "completed", "ignore")

_log = logging.getLogger(__name__)


def apply_status(raw: RawJobs, use: str, path: str | Path | None = None) -> RawJobs:
    """Leaves out lines that are no jobs to replay, which one warning counts, and makes failures end as failures.

    Partial executions are left out where another line has the whole job, and so are jobs that were cancelled before
    they started: they never took a core. Jobs that failed, or were cancelled while they ran, end as COMPLETED_FAILED
    after their run time.

    `use` is one of `USES`; without a path there is no warning.
    """
    if use == "ignore":
        return raw
    status, runtime, ids = (raw.columns[name] for name in ("status", "runtime", "job_id"))
    partial = np.isin(status, PARTIAL)
    left_out = {
        "partial executions (status 2 to 4) of jobs with a line of their own": partial & np.isin(ids, ids[~partial]),
        "jobs cancelled before they started (status 5, no run time)": (status == CANCELLED) & (runtime <= 0),
    }
    if use == "completed":
        left_out["jobs that failed, were cancelled or continued"] = ~np.isin(status, (COMPLETED, -1))
    keep, told = np.ones(len(status), bool), []
    for reason, rows in left_out.items():
        if count := int((rows & keep).sum()):
            told.append(f"{count} {reason}")
        keep &= ~rows
    if told:
        what = "workload.status=ignore keeps all lines"
        if path is not None:
            _log.warning("%s: left out %d of %d lines: %s; %s", path, (~keep).sum(), len(keep), ", ".join(told), what)
        raw = _rows(raw, np.flatnonzero(keep))
    status, runtime = raw.columns["status"], raw.columns["runtime"]
    failed = (status == FAILED) | ((status == CANCELLED) & (runtime > 0))
    if failed.any():
        raw = replace(raw, columns=raw.columns | {"return_code": failed.astype(np.int64)})
    return raw


def distinct_ids(raw: RawJobs, path: str | Path | None = None) -> RawJobs:
    """Gives jobs whose number an earlier line has the number with .1, .2 and so on; a warning counts them.

    Without a path there is no warning.
    """
    ids = raw.columns["job_id"]
    if len(np.unique(ids)) == len(ids):
        return raw
    names, seen, taken = [], Counter[int](), set(map(str, ids.tolist()))
    for number in ids.tolist():
        name, copy = str(number), seen[number]
        while copy and (name := f"{number}.{copy}") in taken:
            copy += 1
        seen[number] = copy + 1
        taken.add(name)
        names.append(name)
    if path is not None:
        count, example = len(ids) - len(seen), _first(names)
        _log.warning("%s: %d jobs have the number of an earlier one and are named such as %s", path, count, example)
    return replace(raw, columns=raw.columns | {"job_id": np.array(names, object)})


def _first(names: list[str]) -> str:
    return next(name for name in names if "." in name)


def _rows(raw: RawJobs, rows: NDArray[np.int64]) -> RawJobs:
    """Returns some of the jobs."""
    columns = {name: column[rows] for name, column in raw.columns.items()}
    return replace(raw, columns=columns, where=lambda row, column: raw.where(int(rows[row]), column))
