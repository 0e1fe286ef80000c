"""Parts of compared runs: the jobs of each partition, account, QOS or user as a scenario of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hdsim.errors import ConfigError, nearest
from hdsim.report.jobs import utilization_of
from hdsim.report.pairing import PlacedRun
from hdsim.results.metrics import bounded_slowdown, slowdown, statistics
from hdsim.results.run_directory.reader import Run, read

#: Columns by which the jobs of runs are parted.
COLUMNS = ("partition", "account", "qos", "user", "group", "queue", "reason")


def parted(entries: Sequence[PlacedRun], column: str) -> list[PlacedRun]:
    """Returns an entry for each value of a column in each run, with the metrics of its jobs.

    The utilization is the share of the whole machine that they held in the period of the means.

    Raises:
        ConfigError: A run has no such column.
    """
    if column not in COLUMNS:
        raise ConfigError(
            f"expected one of {', '.join(COLUMNS)}, got '{column}'{nearest(column, COLUMNS)}", where="--by"
        )
    found = [part for entry in entries for part in _parts(entry, column)]
    names = sorted({entry.part[1] for entry in found if entry.part})
    return sorted(found, key=lambda entry: names.index(entry.part[1]) if entry.part else 0)


def _parts(entry: PlacedRun, column: str) -> list[PlacedRun]:
    run = run_of(entry.path)
    if column not in run.jobs:
        have = ", ".join(name for name in COLUMNS if name in run.jobs) or "none"
        raise ConfigError(f"expected a run whose jobs have a {column}; it has {have}", where=f"--by: {entry.path}")
    owners = np.unique(run.jobs[column][run.counted])
    return [
        replace(
            entry,
            metrics=_metrics(run, run.counted & (run.jobs[column] == owner)) | {"utilization": float(share) / 100.0},
            scenario=(*entry.scenario, (column, str(owner))),
            part=(column, str(owner)),
        )
        for owner, share in zip(owners.tolist(), utilization_of(run, column, owners).tolist(), strict=True)
    ]


def _metrics(run: Run, rows: NDArray[np.bool_]) -> dict[str, float]:
    waits, turnaround, execution = (
        run.jobs[name][rows] for name in ("waiting_time", "turnaround_time", "execution_time")
    )
    return {
        **statistics("waiting_time", waits),
        **statistics("turnaround_time", turnaround),
        **statistics("slowdown", slowdown(turnaround, execution)),
        **statistics("bounded_slowdown", bounded_slowdown(turnaround, execution)),
    }


def rows_of(path: Path, part: tuple[str, str], ids: Sequence[Any]) -> NDArray[np.bool_]:
    """Returns which of the jobs of a run, by their ids, are of a part: a column and its value."""
    jobs: Mapping[str, NDArray[Any]] = run_of(path).jobs
    members = set(jobs["job_id"][jobs[part[0]].astype(str) == part[1]].tolist())
    return np.array([job in members for job in ids], np.bool_)


@lru_cache(maxsize=16)
def run_of(path: Path) -> Run:
    """Returns a run as `read` does, the last ones kept."""
    return read(path)
