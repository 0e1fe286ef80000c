"""Measurement of profiles: durations of tasks that run as stress-ng processes under CPU limits."""

from __future__ import annotations

import itertools
import json
import os
import platform
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hdsim.errors import ConfigError
from hdsim.gangs.limits import AffinityLimits, CpuLimits
from hdsim.gangs.profile import DurationProfile, write_profile
from hdsim.gangs.stressors import Stressors, version
from hdsim.util.files import csv_text, dump_json
from hdsim.util.inputs import parse_json, read_csv, read_text

_POINTS, _CONDITIONS = "points.csv", "conditions.json"
_COLUMNS = ("task", "size", "shares", "try", "duration")
#: Files of stressors lie in memory where possible: durations are of the processor, not of a disk.
_MEMORY = Path("/dev/shm")

#: Task, workload size, CPU share in millicores, number of the try.
Point = tuple[str, float, int, int]


@dataclass(frozen=True)
class Measurement:
    """A measurement of tasks on this machine, at the points of a grid."""

    tasks: tuple[str, ...]  # names of the J tasks
    sizes: tuple[float, ...]  # (Z,) workload sizes, ascending
    shares: tuple[int, ...]  # (S,) CPU shares in millicores, ascending
    tries: int  # measurements of each task, size and share
    stressors: Stressors  # command lines of the tasks
    limits: CpuLimits  # CPU limits of their processes
    timeout: float  # longest duration of a point in seconds

    def check(self) -> None:
        """Checks that this machine can execute the tasks under the limits, or raises ConfigError."""
        self.stressors.check(self.tasks)
        self.limits.check(self.shares)
        cores = len(os.sched_getaffinity(0))
        used = min(cores, self.stressors.instances or cores)
        if self.shares[-1] > 1000 * used:
            raise ConfigError(
                f"expected at most {1000 * used} millicores, all that a task with stressors.instances="
                f"{self.stressors.instances} can use on {cores} cores, got {self.shares[-1]}",
                where="shares",
            )
        if isinstance(self.limits, AffinityLimits) and "affinity" in self.tasks:
            message = f"expected tasks that {self.limits.method} can limit; affinity sets its own CPU affinity"
            raise ConfigError(message, where="tasks")

    @property
    def points(self) -> list[Point]:
        """The points: all of the first try before those of the second, so that a drift of the machine affects all."""
        grid = itertools.product(range(1, self.tries + 1), self.tasks, self.sizes, self.shares)
        return [(task, size, share, number) for number, task, size, share in grid]

    def expected(self, point: Point) -> float:
        """Returns a number in proportion to the expected duration of a point."""
        return point[1] / point[2]

    def conditions(self) -> dict[str, Any]:
        """Returns what durations depend on besides the point: the machine, its limits, the work of a unit."""
        model = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        return {
            "cpu": model[1] if model else platform.machine(),
            "cores": len(os.sched_getaffinity(0)),
            "kernel": f"{platform.system()} {platform.release()}",
            "program": version(),
            "limits": self.limits.method,
            "stressors": asdict(self.stressors),
        }

    def measured(self, directory: Path) -> dict[Point, float]:
        """Returns durations of points of the grid that an earlier run has left in a directory.

        Raises:
            ConfigError: They were measured under other conditions, or a file is damaged.
        """
        path = directory / _CONDITIONS
        if not path.exists():
            return {}
        before = parse_json(read_text(path, ConfigError, "file"), path, ConfigError)
        for name, value in self.conditions().items():
            known = before.get(name) if isinstance(before, dict) else None
            if known != value:
                raise ConfigError(
                    f"expected the conditions of the points measured there, {name} {json.dumps(known)}, got "
                    f"{json.dumps(value)}; a new hydra.run.dir takes other conditions",
                    where=str(path),
                )
        found = _read_points(directory / _POINTS)
        return {point: found[point] for point in self.points if point in found}

    def run(self, directory: Path, before: Mapping[Point, float]) -> Iterator[tuple[Point, float]]:
        """Measures the points that have not been measured before, and appends each to the file in a directory.

        Yields:
            Point and duration in seconds.

        Raises:
            ConfigError: A point takes longer than the timeout.
            BackendError: stress-ng fails.
        """
        if not (directory / _CONDITIONS).exists():
            (directory / _POINTS).write_text(csv_text([_COLUMNS]))
            dump_json(directory / _CONDITIONS, self.conditions())
        memory = _MEMORY if os.access(_MEMORY, os.W_OK) else None
        with (
            self.limits,
            tempfile.TemporaryDirectory(prefix="hdsim-", dir=memory) as scratch,
            (directory / _POINTS).open("a") as file,
        ):
            for point in self.points:
                if point not in before:
                    duration = self._duration(point, Path(scratch))
                    file.write(csv_text([[*point, repr(duration)]]))
                    file.flush()
                    yield point, duration

    def _duration(self, point: Point, scratch: Path) -> float:
        task, size, share, _ = point
        self.limits.change({task: share})
        command = self.stressors.command(task, size, scratch)
        begin = time.monotonic()
        process = self.limits.start(
            task, command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            output, _ = process.communicate(timeout=self.timeout)
        except subprocess.TimeoutExpired:
            raise ConfigError(
                f"expected at most {self.timeout:g} s, got more: {task}, size {size:g}, {share} millicores",
                where="timeout",
            ) from None
        duration = time.monotonic() - begin
        self.stressors.verify(task, size, process.returncode, output)
        return duration

    def write(self, directory: Path, durations: Mapping[Point, float]) -> None:
        """Writes ``profile.csv``, the mean duration of the tries, and ``metrics.json``, with their variation."""
        shape = (self.tries, len(self.tasks), len(self.sizes), len(self.shares))
        tries = np.array([durations[point] for point in self.points]).reshape(shape)
        mean = tries.mean(axis=0)
        write_profile(
            directory / "profile.csv",
            DurationProfile(self.tasks, np.array(self.sizes), np.array(self.shares, dtype=float), mean),
        )
        metrics: dict[str, float] = {"points": tries.size}
        if self.tries > 1:
            metrics["variation"] = float((tries.std(axis=0, ddof=1) / mean).mean())
        dump_json(directory / "metrics.json", metrics)


def _read_points(path: Path) -> dict[Point, float]:
    with path.open("r+b") as file:  # A killed process may leave a part of a line.
        file.truncate(file.read().rfind(b"\n") + 1)
    _, rows = read_csv(path, ConfigError, "file of measured points")
    durations = {}
    for line, (task, size, share, number, duration) in enumerate(rows, 2):
        try:
            durations[task, float(size), int(share), int(number)] = float(duration)
        except ValueError:
            message = f"expected {', '.join(_COLUMNS)}, got {','.join(rows[line - 2])}"
            raise ConfigError(message, where=f"{path}:{line}") from None
    return durations
