"""Waiting times of a replay beside those of its SWF trace (field 3), or of its Parquet file (`recorded_start`).

The trace's own machine, its scheduler, its priorities and its outages made the recorded waiting times, so that the
difference shows how far platform and agent of the replay stand for them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hdsim.errors import WorkloadError
from hdsim.report.compare import jobs_of
from hdsim.report.labels import text
from hdsim.report.pairing import PlacedRun
from hdsim.results.metrics import statistics
from hdsim.results.run_directory.manifest import read_manifest
from hdsim.results.run_directory.reader import period_of
from hdsim.util.arrays import Floats
from hdsim.util.inputs import STANDARD_INPUT
from hdsim.util.text import format_number
from hdsim.workload.generators.base import is_generator
from hdsim.workload.load import is_json
from hdsim.workload.parquet import is_parquet, read_parquet
from hdsim.workload.raw import RawJobs
from hdsim.workload.swf import apply_status, distinct_ids, read_swf

#: Waiting times that differ by at most this many seconds, or by at most this factor, count as near.
_SECONDS, _FACTOR = 60.0, 2.0
#: Settings that change when the jobs of a trace come or how long they run, and the values that leave them as they are.
_UNCHANGED = {"arrival_factor": 1.0, "runtime": "trace", "generate": None, "cluster": False}

_NEAR = f"within {_SECONDS:g} s or a factor of {_FACTOR:g}"
_ORIGIN = "the trace's own machine and scheduler made the recorded times"
#: Explanation of a table of `HEADS`.
NOTE = f"near: {_NEAR}; {_ORIGIN}"
#: Names of `Waits.cells`.
HEADS = ("jobs", "simulated mean", "recorded mean", "simulated p95", "recorded p95", "near")

Jobs = Mapping[str, NDArray[Any]]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Waits:
    """(J,) waiting times in seconds of the jobs that started in the replay and have a recorded one."""

    simulated: Floats
    recorded: Floats

    @property
    def near(self) -> float:
        """Share of the jobs whose simulated time is near the recorded one: within a minute, or a factor of two."""
        low, high = np.minimum(self.simulated, self.recorded), np.maximum(self.simulated, self.recorded)
        return float(((high - low <= _SECONDS) | (high <= _FACTOR * low)).mean())

    def statistics(self) -> dict[str, list[float]]:
        """Returns the statistics of the simulated and of the recorded times, in seconds."""
        kinds = {"simulated": self.simulated, "recorded": self.recorded}
        return {name: [*statistics("", values).values()] for name, values in kinds.items()}

    def cells(self, form: Callable[[float], str] = format_number) -> list[tuple[str, float]]:
        """Returns the text and the value of each of `HEADS`; `form` makes the text of a time in seconds."""
        kinds = [statistics("time", values) for values in (self.simulated, self.recorded)]
        times = [found[name] for name in ("mean_time", "p95_time") for found in kinds]
        texts = [f"{len(self.recorded):,}", *map(form, times), f"{self.near:.0%}"]
        return list(zip(texts, [len(self.recorded), *times, self.near], strict=True))

    def __str__(self) -> str:
        """Returns the number of jobs, the share of near ones and what near means."""
        return f"{len(self.recorded):,} jobs have a recorded waiting time, {self.near:.0%} of them {_NEAR}; {_ORIGIN}"


def waits(path: Path, manifest: Mapping[str, Any], jobs: Jobs) -> Waits | None:
    """Returns the waiting times of a run and of its trace.

    The manifest names the trace and its SHA-256; of the jobs ``job_id``, ``submission_time`` and ``waiting_time`` are
    used.

    Returns:
        None if the trace has none, if arrivals or run times of the replay are not those of the trace, or if the file is
        gone or has changed, of which a warning tells.
    """
    times = _recorded(path, manifest)
    if not times:
        return None
    counted = period_of(manifest).has(jobs["submission_time"])
    return _pooled([({name: jobs[name][counted] for name in ("job_id", "waiting_time")}, times)])


def by_configuration(entries: Iterable[PlacedRun]) -> dict[tuple[str, str], Waits]:
    """Returns the waiting times of compared runs by the texts of scenario and configuration, as `waits` does of one."""
    runs: dict[tuple[str, str], list[tuple[Jobs, Mapping[str, float]]]] = {}
    for entry in entries:
        if times := _recorded(entry.path, read_manifest(entry.path)):
            names = text(entry.scenario), text(entry.configuration)
            runs.setdefault(names, []).append((jobs_of(entry.path, entry.part), times))
    found = {names: _pooled(parts) for names, parts in runs.items()}
    return {names: waits for names, waits in found.items() if waits is not None}


def _pooled(runs: Iterable[tuple[Jobs, Mapping[str, float]]]) -> Waits | None:
    """Waiting times of the jobs of several runs, each with the recorded ones by job id."""
    simulated, recorded = [], []
    for jobs, times in runs:
        simulated.append(jobs["waiting_time"])
        recorded.append(np.array([times.get(job, np.nan) for job in jobs["job_id"].tolist()], np.float64))
    found = Waits(np.concatenate(simulated), np.concatenate(recorded))
    known = ~np.isnan(found.simulated) & ~np.isnan(found.recorded)
    return Waits(found.simulated[known], found.recorded[known]) if known.any() else None


def _recorded(path: Path, manifest: Mapping[str, Any]) -> Mapping[str, float]:
    """Recorded waiting times in seconds by job id."""
    workload = manifest["config"].get("workload")
    trace = next((entry for entry in manifest.get("inputs") or () if entry["kind"] == "workload"), None)
    if not isinstance(workload, Mapping) or trace is None or (path / "progress.csv").is_file():
        return {}
    if any(workload.get(key, value) != value for key, value in _UNCHANGED.items()):
        return {}
    if trace["path"] == STANDARD_INPUT or is_json(trace["path"]) or is_generator(trace["path"]):
        return {}
    file = Path(manifest.get("working_directory") or "", trace["path"])
    return _of_trace(str(file), trace["sha256"], str(workload.get("status", "recorded")))


@lru_cache(maxsize=16)
def _of_trace(path: str, digest: str, use: str) -> Mapping[str, float]:
    """Waiting times of a trace in seconds by the ids that its jobs have in a run."""
    try:
        raw, found = _with_waits(read_parquet(path)) if is_parquet(path) else read_swf(path, waits=True)
    except WorkloadError as error:
        _log.warning("the recorded waiting times are left out: %s", error)
        return {}
    if found != digest:
        _log.warning("the recorded waiting times are left out: %s is not the file that was replayed", path)
        return {}
    if "recorded_wait" not in raw.columns:
        return {}
    raw = distinct_ids(apply_status(raw, use))
    recorded, ids = raw.columns["recorded_wait"], raw.columns["job_id"]
    return {str(ids[row]): float(recorded[row]) for row in np.flatnonzero(recorded >= 0)}


def _with_waits(read: tuple[RawJobs, str]) -> tuple[RawJobs, str]:
    """Adds the column ``recorded_wait`` to jobs of a file that have a column ``recorded_start`` of numbers."""
    raw, digest = read
    start = raw.further.get("recorded_start")
    if start is None or start.dtype == object:
        return read
    return replace(raw, columns=raw.columns | {"recorded_wait": start - raw.columns["submission_time"]}), digest
