"""Common parts of the readers and writers of workload files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from hdsim.errors import WorkloadError
from hdsim.util.arrays import Ints
from hdsim.util.units import LONGEST_TIME

#: Largest values of columns, with their units; kill limits may be longer.
LIMITS = {
    **dict.fromkeys(("submission_time", "original_submission_time", "runtime", "requested_time"), (LONGEST_TIME, "s")),
    "memory": (1e12, "MB"),
    "storage": (1e12, "MB"),
    "memory_bandwidth": (1e12, "GB/s"),
}


#: Column of jobs that are pods already; no column of a workload.
IS_POD = "is_pod"


@dataclass(frozen=True)
class RawJobs:
    """Jobs as in a file, in file order, with infeasible jobs."""

    #: (J,) arrays by column name of :class:`hdsim.workload.model.Workload`, without columns that the format does
    #: not have.
    columns: dict[str, np.ndarray]
    where: Callable[[int, str], str]  # returns the place of a value in the file from its row and column name
    header: dict[str, Any] = field(default_factory=dict)  # header fields of the file
    profiles: dict[str, dict[str, Any]] = field(default_factory=dict)  # Batsim profiles by name, verbatim
    errors: tuple[WorkloadError, ...] = ()  # faults of malformed jobs, which have no rows
    further: dict[str, np.ndarray] = field(default_factory=dict)  # columns of one's own, (J,) each
    names: dict[str, dict[int, str]] = field(default_factory=dict)  # see :class:`hdsim.workload.model.Workload`

    def at(self, rows: Ints) -> RawJobs:
        """Returns some of the jobs."""
        columns, further = (
            {name: column[rows] for name, column in each.items()} for each in (self.columns, self.further)
        )
        where = self.where
        return replace(self, columns=columns, further=further, where=lambda row, column: where(int(rows[row]), column))


def raise_faults(errors: tuple[WorkloadError, ...], path: str | Path, shown: int = 10) -> None:
    """Raises one WorkloadError for the faults of a file, if any."""
    if not errors:
        return
    rest = len(errors) - shown
    hint = [WorkloadError(f"... and {rest} more; `hdsim workload validate {path}` lists them all")] if rest > 0 else []
    joined = WorkloadError.many([*errors[:shown], *hint])
    joined.errors = tuple(errors)
    raise joined


def plain(value: float) -> int | float:
    """Returns an integral number as int, so that files contain 5 rather than 5.0."""
    return int(value) if float(value).is_integer() else float(value)
