"""Series of measured values: files, and generated ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np

from hdsim.errors import ConfigError
from hdsim.gangs import workloads
from hdsim.util.arrays import Floats
from hdsim.util.inputs import read_csv
from hdsim.util.text import number_in

#: Values of a file that count, as in Kube_Gang_Scheduling.
_MOST_VALUES = 5000


@dataclass(frozen=True)
class Series:
    """A series of (L,) measured values, the oldest first; `period` is the number of values in a day."""

    name: str
    values: Floats
    period: int

    def until(self, end: int) -> Series:
        """Returns the first `end` values as a series."""
        return Series(self.name, self.values[:end], self.period)


def read_all(source: str, names: Sequence[str], rows: int, columns: int, period: int | None, seed: int) -> list[Series]:
    """Reads or generates series that are long enough to forecast their last rows.

    The source is ``generated``, from a seed, or a folder with ``<name>.csv`` or ``<name>.csv.gz`` for each series, with
    the column ``value`` and, unless the number of values in a day (`period`) is given, ``timestamp`` (ISO 8601).

    Raises:
        ConfigError: A file is missing, is no such table, or is too short.
    """
    if source == workloads.GENERATED:
        found = [Series(name, workloads.series(seed, number), workloads.DAY) for number, name in enumerate(names)]
    else:
        found = [_read(Path(source), name, period) for name in names]
    for one in found:
        least = 3 * max(one.period, columns) + rows + columns - 1
        if len(one.values) < least:
            message = (
                f"expected at least {least} values in {one.name} for {rows} rows of {columns} columns after three "
                f"days of {one.period} values, got {len(one.values)}"
            )
            raise ConfigError(message, where="series")
    return found


def first_row(series: Series, rows: int, columns: int) -> int:
    """Returns the place in a series of the first of the last rows, from each of which `columns` values follow."""
    return len(series.values) - rows - columns + 1


def _read(folder: Path, name: str, period: int | None) -> Series:
    path = workloads.csv_file(folder, name)
    header, rows = read_csv(path, ConfigError, "series")
    needed = ("value",) if period else ("timestamp", "value")
    if missing := [column for column in needed if column not in header]:
        hint = "; the key period takes the place of timestamps" if "timestamp" in missing else ""
        raise ConfigError(
            f"expected a column {' and '.join(missing)}, got {','.join(header)[:80]}{hint}", where=f"{path}:1"
        )
    del rows[_MOST_VALUES:]
    column = header.index("value")
    values = []
    for line, row in enumerate(rows, 2):
        try:
            values.append(number_in(row[column]))
        except ValueError:
            values.append(np.nan)
        if not np.isfinite(values[-1]):
            raise ConfigError(f"expected a finite number as value, got {row[column]!r}", where=f"{path}:{line}")
    return Series(
        name, np.array(values), period or _values_of_a_day(path, [row[header.index("timestamp")] for row in rows])
    )


def _values_of_a_day(path: Path, timestamps: Sequence[str]) -> int:
    times = []
    for line, text in enumerate(timestamps, 2):
        try:
            times.append(datetime.fromisoformat(text).replace(tzinfo=None))
        except ValueError:
            message = f"expected a timestamp such as 2014-07-01 00:30:00, got {text!r}"
            raise ConfigError(message, where=f"{path}:{line}") from None
    steps = sorted(later - earlier for earlier, later in pairwise(times))
    step = steps[len(steps) // 2] if steps else timedelta()
    if step <= timedelta():
        raise ConfigError("expected timestamps that grow; the key period takes their place", where=str(path))
    return max(round(timedelta(days=1) / step), 1)
