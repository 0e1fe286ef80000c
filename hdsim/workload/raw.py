"""What readers and writers of workload files share: raw columns of jobs and reports of faults."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hdsim.errors import WorkloadError


@dataclass(frozen=True)
class RawJobs:
    """Jobs as a file states them, in file order, before impossible ones are dropped.

    Attributes:
        columns: (J,) arrays under the names of the columns of :class:`hdsim.workload.model.Workload`. Columns the
            format cannot express are absent.
        where: Row and column name -> the place in the file that this value came from.
        header: Header fields of the file.
        profiles: Batsim profiles by name, verbatim.
        errors: Faults that make lines unreadable; their rows are absent.
    """

    columns: dict[str, np.ndarray]
    where: Callable[[int, str], str]
    header: dict[str, Any] = field(default_factory=dict)
    profiles: dict[str, dict[str, Any]] = field(default_factory=dict)
    errors: tuple[WorkloadError, ...] = ()


def raise_faults(errors: tuple[WorkloadError, ...], path: str | Path, shown: int = 10) -> None:
    """Raises one error for the faults of a file, if there are any.

    Args:
        errors: The faults.
        path: The file, for the hint on how to see those left out.
        shown: How many to spell out.

    Raises:
        WorkloadError: There are faults.
    """
    if not errors:
        return
    rest = len(errors) - shown
    hint = [WorkloadError(f"... and {rest} more; `hdsim workload validate {path}` lists them all")] if rest > 0 else []
    joined = WorkloadError.many([*errors[:shown], *hint])
    joined.errors = tuple(errors)
    raise joined


def plain(value: float) -> int | float:
    """The number as an int where it is whole, so that files say 5 rather than 5.0."""
    return int(value) if float(value).is_integer() else float(value)


def unused(name: str, taken: Container[str]) -> str:
    """The name, with a number behind it if it is taken."""
    candidate, number = name, 2
    while candidate in taken:
        candidate = f"{name}_{number}"
        number += 1
    return candidate
