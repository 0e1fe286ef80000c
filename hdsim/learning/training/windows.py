"""Which windows of a trace agents are judged by; they learn from the rest of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hdsim.errors import ConfigError


def held_out(
    trace_jobs: int, jobs: int, *, validation: int | Sequence[int], test: int | Sequence[int]
) -> tuple[list[int], list[int]]:
    """First jobs of the validation and of the test windows of a trace.

    Windows of one kind may overlap where they are named; those of different kinds have no job in common.

    Args:
        trace_jobs: Jobs of the trace.
        jobs: Jobs of a window.
        validation: First jobs of the windows; or how many there are, taken side by side from the end of what the
            test windows leave.
        test: The same; those that are counted are taken from the end of the trace.

    Raises:
        ConfigError: The trace is too short, or a window does not lie in it or shares jobs with one of the other kind.
    """
    free = np.ones(trace_jobs, bool)
    tested = _starts(test, jobs, free, "train.test")
    return _starts(validation, jobs, free, "train.validation"), tested


def _starts(wanted: int | Sequence[int], jobs: int, free: NDArray[np.bool_], where: str) -> list[int]:
    """First jobs of the windows of one kind, ascending where they are counted; takes their jobs out of `free`."""
    starts = _last(wanted, jobs, free, where) if isinstance(wanted, int) else [int(start) for start in wanted]
    for start in starts:
        if not 0 <= start <= len(free) - jobs:
            raise ConfigError(
                f"expected first jobs from 0 to {len(free) - jobs} for windows of {jobs} jobs, got {start}", where=where
            )
        if not free[start : start + jobs].all():
            raise ConfigError(f"expected windows without jobs of test windows, got one from {start} on", where=where)
    for start in starts:
        free[start : start + jobs] = False
    return starts


def _last(count: int, jobs: int, free: NDArray[np.bool_], where: str) -> list[int]:
    """First jobs of the last so many windows of free jobs."""
    starts: list[int] = []
    end = len(free)
    while len(starts) < count:
        taken = np.flatnonzero(~free[max(end - jobs, 0) : end])
        if end < jobs:
            raise ConfigError(
                f"expected a trace with {count} windows of {jobs} jobs to hold out, it has {len(free)} jobs",
                where=where,
            )
        if len(taken):
            end = end - jobs + int(taken[0])
        else:
            end -= jobs
            starts.insert(0, end)
    return starts
