"""The jobs of a site as columns, from a workload with columns of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.errors import WorkloadError

if TYPE_CHECKING:
    from hdsim.workload.model import Workload

#: Columns of jobs that are there at the begin of a replay, see :mod:`hdsim.site.beginning`.
RUNNING, QUEUED, HELD = "running_since", "queued_since", "running_cpus"
#: Seconds between the submission and the moment from which the command has counted ``--begin=now+1hour``.
_APART = 5.0
#: Columns of `jobs_table` by the columns of one's own that an import writes.
_OWN = {
    "cpus": "cpus",
    "nodes": "nodes",
    "most_nodes": "most_nodes",
    "use_min_nodes": "use_min_nodes",
    "per_task": "per_task",
    "tasks_per_node": "tasks_per_node",
    "min_cpus": "min_cpus",
    "memory_mib": "memory",
    "memory_per": "memory_per",
    "whole": "whole",
    "whole_cores": "whole_cores",
    "exclusive_user": "exclusive_user",
    "nice": "nice",
    "constraints": "constraints",
    "reservation": "reservation",
    "licenses": "licenses",
    "gres": "gres",
    "gpus_asked": "gpus",
    "gpus_per_task": "gpus_per_task",
    "cpus_per_gpu": "cpus_per_gpu",
    "held": "held",
    "dependency": "dependency",
    "array_limit": "array_limit",
    "required_nodes": "required_nodes",
    "excluded_nodes": "excluded_nodes",
    "partitions": "partition",
}


def read_log(folder: Path) -> Workload:
    """Reads the jobs of a folder of ``hdsim site import``, also those that were cancelled before they started.

    Raises:
        WorkloadError: There are none, or the file is damaged.
    """
    from hdsim.workload.load import load_workload

    return load_workload(folder / "jobs.parquet", memory="none", memory_bandwidth="none", status="queued")


def columns_of(workload: Workload) -> dict[str, list[Any]]:
    """Returns the columns that :func:`hdsim.site.jobs_table.jobs_table` takes; None where a job has no value.

    Submissions are on the clock of the workload from the first one on, so that scaled arrivals count; a job becomes
    eligible as long after its submission as was recorded, ``timed`` where ``--begin`` has told when. Jobs that are
    there at the begin were submitted before, see :mod:`hdsim.site.beginning`.
    """
    first = float(workload.original_submission_time[0])
    submitted = first + workload.submission_time
    columns: dict[str, list[Any]] = {
        "job_id": workload.job_id.tolist(),
        "submit": submitted.tolist(),
        "cpus": workload.requested_cores.tolist(),
        "requested_time": workload.requested_time.tolist(),
        "partition": names(workload, "partition"),
        "user": names(workload, "user"),
        "account": names(workload, "group"),
        "qos": names(workload, "queue"),
    }
    if "executable" in workload.names:
        columns["name"] = names(workload, "executable")
    for own, name in _OWN.items():
        if own in workload.further:
            given = _plain(workload.further[own])
            usual = columns.get(name, given)
            columns[name] = [other if value is None else value for value, other in zip(given, usual, strict=True)]
    if "eligible" in workload.further:
        later = np.fmax(workload.further["eligible"].astype(np.float64) - workload.original_submission_time, 0.0)
        columns["eligible"] = np.where(np.isnan(later), submitted, submitted + later).tolist()
    if "begin" in workload.further:
        begin, recorded = workload.further["begin"].astype(np.float64), workload.original_submission_time
        if "eligible" in workload.further:
            recorded = np.fmax(workload.further["eligible"].astype(np.float64), recorded)
        columns["timed"] = ((begin > workload.original_submission_time) & (abs(begin - recorded) < _APART)).tolist()
    if QUEUED in workload.further:
        since = np.asarray(workload.further[QUEUED], np.float64)
        columns["submit"] = np.where(np.isnan(since), submitted, since).tolist()
        if "eligible" in workload.further:
            recorded = np.fmax(workload.further["eligible"].astype(np.float64), since)
            eligible = np.where(np.isnan(recorded), since, recorded)
            columns["eligible"] = np.where(np.isnan(since), columns["eligible"], eligible).tolist()
    return columns


def names(workload: Workload, column: str) -> list[Any]:
    """Returns the names behind the numbers of a column, None for unknown ones.

    Raises:
        WorkloadError: The workload has numbers without names.
    """
    numbers, known = getattr(workload, column), workload.names.get(column, {})
    missing = next((number for number in np.unique(numbers).tolist() if number >= 0 and number not in known), None)
    if missing is not None:
        raise WorkloadError(
            f"{column}: expected names, as the jobs of 'hdsim site import' have, got the number {missing}",
            where=workload.source,
        )
    return [known.get(number) for number in numbers.tolist()]


def _plain(column: np.ndarray) -> list[Any]:
    """Values of a column as Python objects, None for NaN and empty texts."""
    if column.dtype.kind == "f":
        return [None if value != value else value for value in column.tolist()]
    return [None if value in (None, "") else value for value in column.tolist()]
