"""Held-out windows of a trace, which agents are evaluated on and not trained on."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from hdsim.errors import ConfigError
from hdsim.util.arrays import Flags, Floats
from hdsim.util.units import parse_duration

log = logging.getLogger(__name__)

#: Numbers of windows without `train.validation` and `train.test`, on traces that are long enough.
VALIDATION, TEST = 4, 10


def held_out_windows(
    submission: Floats,
    window: int | str,
    *,
    validation: int | Sequence[int] | None,
    test: int | Sequence[int] | None,
    kept: int = 0,
) -> tuple[list[slice], list[slice]]:
    """Jobs of the validation and of the test windows of a trace.

    Args:
        submission: (J,) submission times in seconds, ascending.
        window: Jobs of a window; or a duration such as ``7d``: a window has the jobs of a period of that length, of
            which the last one ends with the trace. Periods without jobs are no windows.
        validation: See `held_out`; with a duration periods take the place of jobs.
        test: See there.
        kept: See there.

    Raises:
        ConfigError: See there, or the duration is none.
    """
    if not isinstance(window, str):
        found = held_out(len(submission), window, validation=validation, test=test, kept=kept)
        validating, testing = ([slice(first, first + window) for first in starts] for starts in found)
        return validating, testing
    try:
        seconds = parse_duration(window)
    except ValueError as error:
        raise ConfigError(str(error), where="train.window_jobs") from None
    if not seconds > 0:
        raise ConfigError(f"expected a duration above 0, got {window}", where="train.window_jobs")
    number = int((submission[-1] - submission[0]) // seconds) + 1
    bounds = np.searchsorted(submission, submission[-1] - seconds * np.arange(number, -1, -1), side="right")
    bounds[0] = 0
    parts = [slice(*pair) for pair in zip(bounds.tolist(), bounds[1:].tolist(), strict=False) if pair[0] < pair[1]]
    unit = f"periods of {window}"
    found = held_out(len(parts), 1, validation=validation, test=test, kept=min(kept, 1), unit=unit)
    validating, testing = ([parts[place] for place in places] for places in found)
    return validating, testing


def held_out(
    trace_jobs: int,
    jobs: int,
    *,
    validation: int | Sequence[int] | None,
    test: int | Sequence[int] | None,
    kept: int = 0,
    unit: str = "jobs",
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

        unit: The name of the parts of the trace in messages.

    Raises:
        ConfigError: The trace is too short, a window is outside of it, or windows of different kinds share jobs.
    """
    validation, test = _default_counts(trace_jobs, jobs, validation, test, kept, unit)
    free = np.ones(trace_jobs, bool)
    tested = _starts(test, jobs, free, "train.test", unit)
    return _starts(validation, jobs, free, "train.validation", unit), tested


def _default_counts(
    trace_jobs: int,
    jobs: int,
    validation: int | Sequence[int] | None,
    test: int | Sequence[int] | None,
    kept: int,
    unit: str,
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
        "%s, as the trace has %d windows of %d %s (train.window_jobs); scores of few windows vary",
        " and ".join(fewer),
        trace_jobs // jobs,
        jobs,
        unit,
    )
    return validation, test


def _starts(wanted: int | Sequence[int], jobs: int, free: Flags, where: str, unit: str) -> list[int]:
    """First jobs of the windows of one kind, ascending for a number; removes their jobs from `free`."""
    starts = _last(wanted, jobs, free, where, unit) if isinstance(wanted, int) else [int(start) for start in wanted]
    for start in starts:
        if not 0 <= start <= len(free) - jobs:
            raise ConfigError(
                f"expected first {unit} from 0 to {len(free) - jobs} for windows of {jobs} {unit}, got {start}",
                where=where,
            )
        if not free[start : start + jobs].all():
            raise ConfigError(f"expected windows without {unit} of test windows, got one from {start} on", where=where)
    for start in starts:
        free[start : start + jobs] = False
    return starts


def _last(count: int, jobs: int, free: Flags, where: str, unit: str) -> list[int]:
    """First jobs of the last `count` windows of free jobs."""
    starts: list[int] = []
    end = len(free)
    while len(starts) < count:
        taken = np.flatnonzero(~free[max(end - jobs, 0) : end])
        if end < jobs:
            raise ConfigError(
                f"expected a trace with {count} windows of {jobs} {unit} to hold out, it has {len(free)} {unit}",
                where=where,
            )
        if len(taken):
            end = end - jobs + int(taken[0])
        else:
            end -= jobs
            starts.insert(0, end)
    return starts
