"""Reader of the run directories of gangs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hdsim.errors import ConfigError
from hdsim.results.run_directory.formats import is_number, numbers, read_csv
from hdsim.results.run_directory.manifest import read_manifest, told_status
from hdsim.results.run_directory.reader import read_metrics
from hdsim.util.arrays import Floats, Ints

SUPERSTEPS, ACCOUNTING = "supersteps.csv", "accounting.csv"


@dataclass(frozen=True)
class GangRecord:
    """Supersteps of a gang, read back from a run directory.

    Attributes:
        path: The directory.
        manifest: Content of manifest.json.
        tasks: Names of the J tasks.
        row: (N,) row of the series of each superstep.
        begin: (N,) s from the begin of the run, checkpoints included.
        duration: (N,) s until the last task is at the barrier.
        replanned: (N,) whether the shares were planned before the superstep.
        durations: (N, J) durations of the tasks in seconds.
        shares: (N, J) CPU shares in millicores; None if the file has none.
        sizes: (N, J) workload sizes; None if the file has none.
        accounting: Seconds of the total by cause; empty without an accounting.
    """

    path: Path
    manifest: dict[str, Any]
    tasks: tuple[str, ...]
    row: Ints
    begin: Floats
    duration: Floats
    replanned: NDArray[np.bool_]
    durations: Floats
    shares: Floats | None
    sizes: Floats | None
    accounting: Mapping[str, float]

    @property
    def config(self) -> dict[str, Any]:
        """Configuration of the run."""
        config: dict[str, Any] = self.manifest["config"]
        return config

    @property
    def cut_short(self) -> str | None:
        """Status of a run that has not finished, for a message; None for a finished one."""
        return None if self.manifest["status"] == "finished" else told_status(self.manifest)

    @property
    def end(self) -> Floats:
        """(N,) s from the begin of the run."""
        return self.begin + self.duration

    @cached_property
    def plans(self) -> Ints:
        """(P,) first superstep of each plan: of consecutive supersteps without a checkpoint."""
        return np.flatnonzero(np.append(True, self.replanned[1:]))

    @cached_property
    def slowest(self) -> Ints:
        """(N,) number of the slowest task, the first one of several."""
        return self.durations.argmax(axis=1)

    @cached_property
    def waiting(self) -> Floats:
        """(N, J) s that the tasks wait at the barrier."""
        return np.maximum(self.duration[:, None] - self.durations, 0.0)

    @cached_property
    def metrics(self) -> dict[str, float]:
        """Metrics of metrics.json; without it, those of the supersteps there are."""
        if (self.path / "metrics.json").is_file():
            return read_metrics(self.path, self.manifest)
        duration, checkpoints = float(self.duration.sum()), int(self.replanned[1:].sum())
        penalty = self.config.get("penalty")
        total = duration + penalty * checkpoints if is_number(penalty) and penalty else math.nan
        return {"duration": duration, "checkpoints": checkpoints, "total": total}


def is_gang(path: Path) -> bool:
    """Whether a directory holds the supersteps of a gang and no replay of jobs."""
    return (path / SUPERSTEPS).is_file() and not (path / "jobs.csv").is_file()


def read_gang(path: str | Path) -> GangRecord:
    """Reads the run directory of a gang; of one that was cut short, the supersteps until then.

    Raises:
        ConfigError: It is no run directory, or supersteps.csv is damaged, has no superstep or no durations of tasks.
    """
    path = Path(path)
    file = path / SUPERSTEPS
    header, rows = read_csv(file)
    texts = dict(zip(header, zip(*rows, strict=True), strict=True)) if rows else {}
    tasks = tuple(name.removeprefix("duration_") for name in header if name.startswith("duration_"))
    if not rows or not tasks:
        got = f"the columns {', '.join(header)}" if rows else "none"
        message = f"expected supersteps with a column duration_TASK of each task, got {got}"
        raise ConfigError(message[:300], where=str(file))

    def column(name: str) -> Floats:
        found = numbers(file, name, texts[name])
        wrong = np.flatnonzero(~(found >= 0))
        if len(wrong):
            message = f"{name}: expected a number >= 0, got {texts[name][wrong[0]]!r}"
            raise ConfigError(message, where=f"{file}:{wrong[0] + 2}")
        return found

    def columns(kind: str) -> Floats | None:
        names = [f"{kind}_{task}" for task in tasks]
        return np.stack([column(name) for name in names], axis=1) if all(name in texts for name in names) else None

    durations = columns("duration")
    assert durations is not None
    duration = column("duration") if "duration" in texts else durations.max(axis=1)
    shares = columns("shares")
    if "replanned" in texts:
        replanned = column("replanned") > 0
    else:
        replanned = np.zeros(len(rows), bool)
        if shares is not None:
            replanned[1:] = (np.diff(shares, axis=0) != 0).any(axis=1)
    begin = column("begin") if "begin" in texts else np.append(0.0, duration[:-1].cumsum())
    if (np.diff(begin) < 0).any():
        line = int(np.argmax(np.diff(begin) < 0)) + 3
        raise ConfigError("begin: expected ascending times", where=f"{file}:{line}")
    row = column("row").astype(np.int64) if "row" in texts else np.arange(len(rows))
    return GangRecord(
        path,
        read_manifest(path),
        tasks,
        row,
        begin,
        duration,
        replanned,
        durations,
        shares,
        columns("size"),
        _accounting(path / ACCOUNTING),
    )


def _accounting(path: Path) -> dict[str, float]:
    if not path.is_file():
        return {}
    header, rows = read_csv(path)
    if header[:2] != ["cause", "seconds"]:
        raise ConfigError(f"expected the columns cause,seconds, got {','.join(header)}"[:200], where=f"{path}:1")
    seconds = numbers(path, "seconds", [row[1] for row in rows])
    return dict(zip([row[0] for row in rows], seconds.tolist(), strict=True))
