"""A workload to which jobs are added during a replay."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from hdsim.workload.model import COLUMNS, Workload


class GrowingWorkload:
    """A workload to which jobs are appended in amortised constant time.

    Attributes:
        jobs: All jobs; earlier values of this attribute do not change.
    """

    def __init__(self, jobs: Workload) -> None:
        self.jobs = jobs
        # Columns with capacity for further jobs.
        self._buffers: dict[str, np.ndarray] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> GrowingWorkload:
        """Returns a copy with its own capacity."""
        return GrowingWorkload(self.jobs)

    def add(self, jobs: Workload) -> None:
        """Appends jobs, whose submission times are on the same clock."""
        known, total = len(self.jobs), len(self.jobs) + len(jobs)
        columns: dict[str, Any] = {}
        for key in COLUMNS:
            added, column = getattr(jobs, key), self._buffers.get(key, getattr(self.jobs, key))
            if len(column) < total or column.dtype != added.dtype:
                dtype = column.dtype if column.dtype == added.dtype else object
                buffer = np.empty(max(2 * known, total), dtype)
                buffer[:known] = column[:known]
                self._buffers[key] = column = buffer
            column[known:total] = added
            columns[key] = column[:total]
            columns[key].flags.writeable = False
        profiles = {**self.jobs.profiles, **jobs.profiles} if jobs.profiles else self.jobs.profiles
        self.jobs = dataclasses.replace(self.jobs, **columns, profiles=profiles)
