"""Waits of the jobs of a site by partition, QOS, account, size and week: recorded, simulated, and after changes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.site.formats import time_zone
from hdsim.site.workload import QUEUED, RUNNING, names
from hdsim.util.arrays import Floats

if TYPE_CHECKING:
    from hdsim.site.model import Site
    from hdsim.workload.model import Workload

#: Upper ends of the classes of size, in CPUs.
_SIZES = (1, 8, 64, 512)
#: Days of a part of the log where it has less than three weeks.
_SHORT = 21
#: Fewest weeks or days whose errors say something.
_PARTS = 3
#: Fewest jobs of an account or a user that wins or loses.
_FEWEST = 5
#: Ratio of mean simulated and recorded waits, or its inverse, from which on the one says nothing about the other.
_FAR = 5.0


@dataclass(frozen=True)
class Group:
    """Jobs that have something in common: mean waits in seconds by series, NaN without a job that started."""

    kind: str
    name: str
    jobs: int
    means: Mapping[str, float]


@dataclass(frozen=True)
class Calibration:
    """Agreement of the simulation without changes with the record.

    Attributes:
        ratio: Mean simulated over mean recorded wait.
        error: Median relative error of the mean waits of the weeks (days), after the ratio.
        worst: The largest one.
        parts: Number of weeks or days.
        unit: ``weeks`` or ``days``.
    """

    ratio: float
    error: float
    worst: float
    parts: int
    unit: str

    @property
    def explains(self) -> bool:
        """Whether the simulated waits are near enough to the recorded ones to scale them."""
        return 1.0 / _FAR <= self.ratio <= _FAR

    def band(self, wait: float) -> tuple[float, float]:
        """Returns bounds of the real wait for a simulated one, NaN where the simulation does not explain the record."""
        if not self.explains or math.isnan(self.error):
            return math.nan, math.nan
        return wait / self.ratio / (1.0 + self.error), wait / self.ratio * (1.0 + self.error)


def groups_of(workload: Workload, site: Site) -> dict[str, list[str]]:
    """Returns the group of each job by kind: partition, QOS, account, size and week (day)."""
    zone = time_zone(site.time_zone)
    submitted = workload.original_submission_time
    days = float(submitted[-1] - submitted[0]) / 86_400.0
    unit = "week" if days >= _SHORT else "day"

    def part(seconds: float) -> str:
        date = datetime.fromtimestamp(seconds, zone)
        return str((date - timedelta(days=date.weekday() if unit == "week" else 0)).date())

    sizes = [_size(int(cpus)) for cpus in workload.requested_cores.tolist()]
    return {
        "partition": [str(name or "-") for name in names(workload, "partition")],
        "qos": [str(name or "-") for name in names(workload, "queue")],
        "account": [str(name or "-") for name in names(workload, "group")],
        "size": sizes,
        unit: [part(seconds) for seconds in submitted.tolist()],
    }


def _size(cpus: int) -> str:
    below = 0
    for end in _SIZES:
        if cpus <= end:
            return f"{end} CPU" if end == 1 else f"{below + 1} to {end} CPUs"
        below = end
    return f"over {below} CPUs"


def tables(groups: Mapping[str, Sequence[str]], series: Mapping[str, Floats], most: int = 12) -> Iterator[Group]:
    """Yields the groups of each kind with the mean waits of each series; of accounts the `most` with the most jobs."""
    for kind, labels in groups.items():
        array = np.array(labels, object)
        found, counts = np.unique(array.astype(str), return_counts=True)
        order = sorted(range(len(found)), key=lambda row: _order(kind, str(found[row]), int(counts[row])))
        for row in order[:most] if kind == "account" else order:
            rows = array == found[row]
            yield Group(
                kind, str(found[row]), int(counts[row]), {name: _mean(waits[rows]) for name, waits in series.items()}
            )


def reserved(site: Site, workload: Workload) -> str:
    """Returns the reservations of a site that lie in the period of submissions: names, nodes, begins and lengths."""
    first, last = (float(workload.original_submission_time[row]) for row in (0, -1))
    zone = time_zone(site.time_zone)
    return "; ".join(
        f"{name}: {one.nodes or 'no nodes'} from {datetime.fromtimestamp(one.start, zone):%Y-%m-%d %H:%M} "
        f"for {(one.end - one.start) / 3600.0:.4g} h"
        for name, one in site.reservations.items()
        if one.start < last and one.end > first
    )


def waited_before(workload: Workload) -> Floats:
    """Returns the (J,) seconds that jobs have waited before the begin of a replay, NaN for those that run then."""
    if QUEUED not in workload.further:
        return np.zeros(len(workload))
    since = np.asarray(workload.further[QUEUED], np.float64)
    runs = ~np.isnan(np.asarray(workload.further[RUNNING], np.float64))
    before = np.nan_to_num(workload.original_submission_time - since)
    return np.where(runs, np.nan, before)


def _order(kind: str, name: str, count: int) -> tuple[Any, ...]:
    if kind == "account":
        return (-count, name)
    if kind == "size":
        first = "".join(letter for letter in name.split(" to ")[0] if letter.isdecimal())
        return (name.startswith("over"), int(first))
    return (name,)


def _mean(waits: Floats) -> float:
    return float(np.nanmean(waits)) if not np.isnan(waits).all() else math.nan


def comparable(series: Mapping[str, Floats]) -> dict[str, Floats]:
    """Returns waits by series, all NaN for jobs that start in only one of the series ``simulated`` and ``changed``."""
    alike = np.isnan(series["simulated"]) == np.isnan(series["changed"])
    return {name: np.where(alike, waits, np.nan) for name, waits in series.items()}


def calibrate(groups: Mapping[str, Sequence[str]], recorded: Floats, simulated: Floats) -> Calibration:
    """Returns how well simulated waits agree with recorded ones, over the jobs that have both."""
    unit = "week" if "week" in groups else "day"
    both = ~np.isnan(recorded) & ~np.isnan(simulated)
    mean = _mean(recorded[both]) if both.any() else math.nan
    ratio = _mean(simulated[both]) / mean if mean > 0 else math.nan
    errors = []
    labels = np.array(groups[unit], object)
    for name in sorted(set(groups[unit])):
        rows = both & (labels == name)
        if rows.any() and _mean(recorded[rows]) > 0 and ratio > 0:
            errors.append(abs(_mean(simulated[rows]) / ratio / _mean(recorded[rows]) - 1.0))
    error, worst = (float(np.median(errors)), max(errors)) if len(errors) >= _PARTS else (math.nan, math.nan)
    return Calibration(ratio, error, worst, len(errors), f"{unit}s")


def winners(
    workload: Workload, before: Floats, after: Floats, most: int = 5
) -> tuple[list[tuple[str, int, float]], list[tuple[str, int, float]]]:
    """Returns users with shorter and with longer waits: name and account, jobs, change of the mean wait in seconds."""
    users, accounts = names(workload, "user"), names(workload, "group")
    owners = np.array(
        [f"{user or '-'} ({account or '-'})" for user, account in zip(users, accounts, strict=True)], object
    )
    both = ~np.isnan(before) & ~np.isnan(after)
    found, place = np.unique(owners[both].astype(str), return_inverse=True)
    count = np.bincount(place)
    change = np.bincount(place, after[both] - before[both]) / np.maximum(count, 1)
    rows = [(str(found[row]), int(count[row]), float(change[row])) for row in np.flatnonzero(count >= _FEWEST).tolist()]
    rows.sort(key=lambda row: (row[2], row[0]))
    return [row for row in rows if row[2] < 0][:most], [row for row in reversed(rows) if row[2] > 0][:most]
