"""Cores of the jobs of a replay, in the order of the workload."""

from __future__ import annotations

import numpy as np

from hdsim import Result


def cores_of_jobs(result: Result) -> list[np.ndarray]:
    """Core ids that each job has held since its last start, ascending; none for one that never started."""
    held = result.segments.last_attempts
    cores = [np.zeros(0, np.int32)] * len(result.workload)
    for job, part in zip(held.job.tolist(), np.split(held.cores, np.cumsum(held.sizes)[:-1]), strict=False):
        cores[job] = part
    return cores
