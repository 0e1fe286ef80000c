"""A workload to which jobs are added while it is replayed."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from hdsim.workload.model import COLUMNS, Workload


class GrowingWorkload:
    """A workload that grows by jobs behind its last, each at a cost that does not depend on how many there are.

    Attributes:
        jobs: All jobs. A workload taken from here before stays as it was.

    Args:
        jobs: The first jobs.
    """

    def __init__(self, jobs: Workload) -> None:
        self.jobs = jobs
        # Columns with room behind the last job.
        self._roomy: dict[str, np.ndarray] = {}

    def add(self, jobs: Workload) -> None:
        """Adds jobs; their submission times count on the clock of those that are there."""
        known, total = len(self.jobs), len(self.jobs) + len(jobs)
        columns: dict[str, Any] = {}
        for key in COLUMNS:
            added, column = getattr(jobs, key), self._roomy.get(key, getattr(self.jobs, key))
            if len(column) < total or column.dtype != added.dtype:
                dtype = column.dtype if column.dtype == added.dtype else object
                roomy = np.empty(max(2 * known, total), dtype)
                roomy[:known] = column[:known]
                self._roomy[key] = column = roomy
            column[known:total] = added
            columns[key] = column[:total]
            columns[key].flags.writeable = False
        profiles = {**self.jobs.profiles, **jobs.profiles} if jobs.profiles else self.jobs.profiles
        self.jobs = dataclasses.replace(self.jobs, **columns, profiles=profiles)
