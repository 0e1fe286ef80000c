"""Which jobs of a trace an agent learns from, and which it is judged by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hdsim.errors import ConfigError

if TYPE_CHECKING:
    from hdsim.workload import Workload


@dataclass(frozen=True)
class Windows:
    """Parts of a trace that have no job in common, but that windows of one kind may overlap.

    Attributes:
        training: What is left of the trace, in pieces; windows of training are drawn from them.
        validation: Windows for the evaluations during training, which choose the best checkpoint.
        test: Windows for the evaluation after it.
    """

    training: list[Workload]
    validation: list[Workload]
    test: list[Workload]


def split(
    workload: Workload, jobs: int, *, validation: int | Sequence[int], test: int | Sequence[int], train: bool
) -> Windows:
    """Splits a trace.

    Args:
        workload: The trace.
        jobs: Jobs of a window.
        validation: First jobs of the windows; or how many there are, taken side by side from the end of what the
            test windows leave.
        test: The same; those that are counted are taken from the end of the trace.
        train: Something has to be left for training, at least one window.

    Raises:
        ConfigError: The trace is too short, or a window does not lie in it or shares jobs with one of the other kind.
    """
    free = np.ones(len(workload), bool)
    tested = _starts(test, jobs, free, "train.test")
    validated = _starts(validation, jobs, free, "train.validation")
    edges = np.flatnonzero(np.diff(np.concatenate([[0], free, [0]])))
    pieces = [(first, last) for first, last in edges.reshape(-1, 2).tolist() if last - first >= jobs]
    if train and not pieces:
        raise ConfigError(
            f"expected jobs left for training beside the windows of {jobs} jobs for validation and test, the trace has "
            f"only {len(workload)} jobs; fewer or smaller windows, or train.traces, help",
            where="train",
        )
    return Windows(
        [workload[first:last] for first, last in pieces],
        [workload[first : first + jobs] for first in validated],
        [workload[first : first + jobs] for first in tested],
    )


def _starts(wanted: int | Sequence[int], jobs: int, free: np.ndarray, where: str) -> list[int]:
    """First jobs of the windows of one kind, ascending where they are counted; takes their jobs out of `free`."""
    if isinstance(wanted, int):
        starts: list[int] = []
        last = len(free)
        while len(starts) < wanted:
            while last >= jobs and not free[last - jobs : last].all():
                last -= 1
            if last < jobs:
                raise ConfigError(
                    f"expected a trace with {wanted} windows of {jobs} jobs to hold out, it has {len(free)} jobs",
                    where=where,
                )
            starts.insert(0, last - jobs)
            last -= jobs
    else:
        starts = [int(start) for start in wanted]
        for start in starts:
            if not 0 <= start <= len(free) - jobs:
                raise ConfigError(
                    f"expected first jobs from 0 to {len(free) - jobs} for windows of {jobs} jobs, got {start}",
                    where=where,
                )
            if not free[start : start + jobs].all():
                raise ConfigError(f"expected windows without jobs of test windows, got one from {start}", where=where)
    for start in starts:
        free[start : start + jobs] = False
    return starts
