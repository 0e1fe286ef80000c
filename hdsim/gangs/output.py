"""Files of gangs in a run directory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any

import numpy as np

from hdsim.gangs.accounting import Item
from hdsim.gangs.simulation import GangRun
from hdsim.util.arrays import Floats
from hdsim.util.files import dump_json, write_csv

#: Columns of a superstep before those of each task.
_COLUMNS = ("superstep", "row", "begin", "duration", "slowest_task", "replanned")
_OF_TASKS = ("shares", "size", "duration")


def write_run(
    path: Path, run: GangRun, begins: Floats | None = None, columns: Mapping[str, Sequence[str]] | None = None
) -> dict[str, Any]:
    """Writes ``supersteps.csv`` and ``metrics.json``; returns the simulated time in seconds for the manifest.

    (N,) begins in seconds are by default those of a simulation; further columns have (N,) cells.
    """
    further = columns or {}
    rows = _rows(run, _begins(run) if begins is None else begins)
    write_csv(
        path / "supersteps.csv",
        [*_COLUMNS, *_names(run.tasks), *further],
        ([*row, *(column[n] for column in further.values())] for n, row in enumerate(rows)),
    )
    dump_json(path / "metrics.json", run.metrics)
    return {"simulated_seconds": run.metrics["total"]}


def write_gangs(path: Path, runs: Mapping[str, tuple[float, GangRun]]) -> None:
    """Writes the supersteps of several gangs, by job id: begin of the gang in seconds, its supersteps."""
    tasks = tuple(dict.fromkeys(task for _, run in runs.values() for task in run.tasks))
    names = _names(tasks)
    rows: list[list[str]] = []
    for job_id, (begin, run) in runs.items():
        own = _names(run.tasks)
        for row in _rows(run, begin + _begins(run)):
            cells = dict(zip(own, row[len(_COLUMNS) :], strict=True))
            rows.append([job_id, *row[: len(_COLUMNS)], *(cells.get(name, "") for name in names)])
    write_csv(path, ["job_id", *_COLUMNS, *names], rows)


def _names(tasks: tuple[str, ...]) -> list[str]:
    return [f"{kind}_{task}" for kind in _OF_TASKS for task in tasks]


def _begins(run: GangRun) -> Floats:
    """(N,) begins of simulated supersteps in seconds, checkpoints included."""
    paid = run.penalty * np.concatenate([[0], run.replanned[1:].cumsum()])
    return np.concatenate([[0.0], run.durations[:-1].max(axis=1).cumsum()]) + paid


def _rows(run: GangRun, begin: Floats) -> Iterator[list[str]]:
    """Cells of each superstep."""
    duration, slowest = run.durations.max(axis=1), run.durations.argmax(axis=1)
    for n in range(len(duration)):
        yield [
            str(n),
            str(run.start + n),
            f"{begin[n]:.6f}",
            f"{duration[n]:.6f}",
            run.tasks[slowest[n]],
            f"{run.replanned[n]:d}",
            *map(str, run.shares[n].tolist()),
            *(f"{value:.6f}" for value in (*run.sizes[n], *run.durations[n])),
        ]


def write_accounting(path: Path, items: Sequence[Item]) -> None:
    """Writes ``accounting.csv`` to a run directory; its column ``seconds`` adds up to the total of the run."""
    names = [field.name for field in fields(Item)]
    write_csv(path / "accounting.csv", names, (map(_cell, astuple(item)) for item in items))


def _cell(value: str | float) -> str:
    return value if isinstance(value, str) else "" if math.isnan(value) else repr(value)
