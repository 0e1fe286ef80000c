"""Held-out windows of a trace, which agents are evaluated on and not trained on."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from hdsim.errors import ConfigError
from hdsim.util.arrays import Flags

log = logging.getLogger(__name__)

#: Numbers of windows without `train.validation` and `train.test`, on traces that are long enough.
VALIDATION, TEST = 4, 10


def held_out(
    trace_jobs: int,
    jobs: int,
    *,
    validation: int | Sequence[int] | None,
    test: int | Sequence[int] | None,
    kept: int = 0,
) -> tuple[list[int], list[int]]:
    """First jobs of the validation and of the test windows of a trace.

    Named windows of one kind may overlap; windows of different kinds have no job in common. Fewer windows than the
    default numbers are a warning in the log.

    Args:
        trace_jobs: Jobs of the trace.
        jobs: Jobs of a window.
        validation: First jobs of the windows; or their number: adjacent windows before the test windows. None:
            :data:`VALIDATION` windows, or fewer on a short trace; see `kept`.
        test: First jobs of the windows; or their number: adjacent windows at the end of the trace. None: :data:`TEST`
            windows, or fewer.
        kept: Jobs of an episode of the training, 0 if it has other traces. If the default numbers do not leave as
            many, half of the trace is held out, or less, so that one episode is left.

    Raises:
        ConfigError: The trace is too short, a window is outside of it, or windows of different kinds share jobs.
    """
    validation, test = _default_counts(trace_jobs, jobs, validation, test, kept)
    free = np.ones(trace_jobs, bool)
    tested = _starts(test, jobs, free, "train.test")
    return _starts(validation, jobs, free, "train.validation"), tested


def _default_counts(
    trace_jobs: int,
    jobs: int,
    validation: int | Sequence[int] | None,
    test: int | Sequence[int] | None,
    kept: int,
) -> tuple[int | Sequence[int], int | Sequence[int]]:
    """The numbers or first jobs of the windows, with the default numbers in place of None."""
    given = sum(each if isinstance(each, int) else len(each) for each in (validation, test) if each is not None)
    default = VALIDATION * (validation is None) + TEST * (test is None)
    if not default or (given + default) * jobs + kept <= trace_jobs:
        return VALIDATION if validation is None else validation, TEST if test is None else test
    fewer: list[str] = []
    most = min(trace_jobs // 2, trace_jobs - kept) if kept else trace_jobs
    room = max(most // jobs - given, 0)
    if validation is None:
        validation = max(room * VALIDATION // default, 1)
        room -= validation
        fewer.append(f"{validation} in place of {VALIDATION} validation windows")
    if test is None:
        test = max(room, 1)
        fewer.append(f"{test} in place of {TEST} test windows")
    log.warning(
        "%s, as the trace has %d windows of %d jobs (train.window_jobs); scores of few windows vary",
        " and ".join(fewer),
        trace_jobs // jobs,
        jobs,
    )
    return validation, test


def _starts(wanted: int | Sequence[int], jobs: int, free: Flags, where: str) -> list[int]:
    """First jobs of the windows of one kind, ascending for a number; removes their jobs from `free`."""
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


def _last(count: int, jobs: int, free: Flags, where: str) -> list[int]:
    """First jobs of the last `count` windows of free jobs."""
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
