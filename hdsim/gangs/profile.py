"""Profiles of tasks: measured durations by size of the workload and CPU shares, interpolated between measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.errors import ConfigError, nearest
from hdsim.util.arrays import Floats, Ints
from hdsim.util.files import write_csv
from hdsim.util.inputs import read_csv
from hdsim.util.text import number_in
from hdsim.util.units import LONGEST_TIME

if TYPE_CHECKING:
    from scipy.interpolate import RectBivariateSpline

COLUMNS = ("Task Name", "Workload Size", "CPU Shares", "Duration")
#: A bicubic spline needs as many values in each direction.
_FEWEST = 4


@dataclass(frozen=True)
class DurationProfile:
    """Durations of tasks on a grid of workload sizes and CPU shares.

    Between grid points the duration is the interpolating bicubic spline; outside the grid it is that of the nearest
    point of the grid.
    """

    tasks: tuple[str, ...]  # names of the J tasks
    sizes: Floats  # (Z,) workload sizes, ascending
    shares: Floats  # (S,) CPU shares in millicores, ascending
    durations: Floats  # (J, Z, S) measured durations in seconds

    @cached_property
    def surfaces(self) -> tuple[RectBivariateSpline, ...]:
        """The interpolating splines of the tasks."""
        from scipy.interpolate import RectBivariateSpline

        return tuple(RectBivariateSpline(self.sizes, self.shares, grid) for grid in self.durations)

    def at(self, sizes: Floats, shares: Floats | Ints) -> Floats:
        """Returns (n, J) durations in seconds for (n, J) workload sizes and (J,) or (n, J) shares in millicores."""
        given = np.broadcast_to(shares, sizes.shape)
        columns = [surface.ev(sizes[:, j], given[:, j]) for j, surface in enumerate(self.surfaces)]
        return np.stack(columns, axis=1)

    def table(self, sizes: Floats, levels: Floats, derivative: int = 0) -> Floats:
        """Returns the (J, n, L) durations in seconds of all tasks in n supersteps for each of (L,) shares, ascending.

        `sizes` are (n, J) workload sizes, `derivative` the order of a derivative by the shares in place of the
        durations.
        """
        table = np.empty((len(self.tasks), len(sizes), len(levels)))
        for j, surface in enumerate(self.surfaces):
            # The spline takes ascending arguments and evaluates each only once.
            different, place = np.unique(sizes[:, j], return_inverse=True)
            table[j] = surface(different, levels, dy=derivative)[place]
        return table

    def of(self, tasks: Sequence[str]) -> DurationProfile:
        """Returns the profile of some of the tasks, in the given order; ConfigError for a task without one."""
        for task in tasks:
            if task not in self.tasks:
                message = f"expected a task of the profile ({', '.join(self.tasks)}), got '{task}'"
                raise ConfigError(message + nearest(task, self.tasks), where="tasks")
        rows = [self.tasks.index(task) for task in tasks]
        return DurationProfile(tuple(tasks), self.sizes, self.shares, self.durations[rows])


def read_profile(path: str | Path) -> DurationProfile:
    """Reads a profile: CSV with a row for each task, workload size and CPU share, in any order.

    Raises:
        ConfigError: The file is missing or no such table, or a task has no row for a size and share of the others.
    """
    header, rows = read_csv(path, ConfigError, "profile")
    if tuple(name.strip() for name in header) != COLUMNS:
        raise ConfigError(
            f"expected the columns {', '.join(COLUMNS)}, got {', '.join(header)}"[:200], where=f"{path}:1"
        )
    measured: dict[tuple[str, float, float], float] = {}
    for line, (task, *texts) in enumerate(rows, 2):
        size, share, duration = (
            _number(text, name, f"{path}:{line}") for text, name in zip(texts, COLUMNS[1:], strict=True)
        )
        if (task, size, share) in measured:
            raise ConfigError(
                f"expected one row for {task}, size {size:g} and {share:g} millicores, got a second one",
                where=f"{path}:{line}",
            )
        measured[task, size, share] = duration
    tasks = tuple(dict.fromkeys(task for task, *_ in measured))
    sizes, shares = (np.unique([key[part] for key in measured]) for part in (1, 2))
    for name, values in (("workload sizes", sizes), ("CPU shares", shares)):
        if len(values) < _FEWEST:
            raise ConfigError(f"expected at least {_FEWEST} {name}, got {len(values)}", where=str(path))
    grid = np.empty((len(tasks), len(sizes), len(shares)))
    for place in np.ndindex(grid.shape):
        key = (tasks[place[0]], float(sizes[place[1]]), float(shares[place[2]]))
        if key not in measured:
            message = f"expected a row for {key[0]}, size {key[1]:g} and {key[2]:g} millicores, found none"
            raise ConfigError(message, where=str(path))
        grid[place] = measured[key]
    return DurationProfile(tasks, sizes, shares, grid)


def write_profile(path: Path, profile: DurationProfile) -> None:
    """Writes a profile in the format that :func:`read_profile` reads, by task, then share, then size."""
    write_csv(path, COLUMNS, _rows(profile))


def _rows(profile: DurationProfile) -> Any:
    for task, grid in zip(profile.tasks, profile.durations.tolist(), strict=True):
        for s, share in enumerate(profile.shares.tolist()):
            for z, size in enumerate(profile.sizes.tolist()):
                yield task, f"{size:g}", f"{share:g}", repr(grid[z][s])


def _number(text: str, name: str, where: str) -> float:
    try:
        value = number_in(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= LONGEST_TIME:
        raise ConfigError(
            f"{name}: expected a number > 0 and at most {LONGEST_TIME:g}, got '{text.strip()}'", where=where
        )
    return value
