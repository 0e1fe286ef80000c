"""Reads a run directory back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.state import FinalState
from hdsim.errors import ConfigError
from hdsim.failures import Outages
from hdsim.platform import power
from hdsim.platform.model import Platform
from hdsim.results import details
from hdsim.results.attempts import Attempts
from hdsim.results.run_directory.formats import (
    CONTENTION_COLUMNS,
    DONE,
    INTERRUPTION_COLUMNS,
    JOB_COLUMNS,
    WALL_METRICS,
    integers,
    is_number,
    numbers,
    read_csv,
    read_json,
)
from hdsim.results.run_directory.manifest import read_manifest, told_status
from hdsim.util.intervals import parse_interval_sets
from hdsim.util.text import shown

Floats = NDArray[np.float64]

_TEXTS = {"job_id", "workload_name", "profile", "final_state", "allocated_resources", "metadata"}
_INTEGERS = {"requested_number_of_resources", "success"}


@dataclass(frozen=True)
class Run:
    """A run read back from its directory, with what :mod:`hdsim.results.series` and reports need.

    It has only the jobs that have a row in ``jobs.csv`` (those that ended or were rejected), and times of 6 decimals;
    job indices count these rows. Attributes that a :class:`hdsim.results.result.Result` also has mean the same.

    Attributes:
        path: The directory.
        manifest: Content of manifest.json.
        metrics: Metrics by name, NaN where there is none.
        platform: The platform.
        jobs: Columns of jobs.csv by name: float64, int64 or str objects, NaN for a time that does not exist; the GPUs
            of a job that never started are not known, and 0.
        oversubscribed: Spans in which a processor's bandwidth was oversubscribed: processors, starts and ends in s.
        interrupted_attempts: Starts of these jobs that failures have cut short, but the last of those given up.
        failed_permanently: (G,) jobs that have failed for good because nodes failed under them too often.
        outages: When nodes were down, None where they do not fail.
        contention: (E, 3) changes of lost speed and of tasks that send messages, without what no report can show.
    """

    path: Path
    manifest: dict[str, Any]
    metrics: dict[str, float]
    platform: Platform
    jobs: Mapping[str, NDArray[Any]]
    oversubscribed: tuple[NDArray[np.int32], Floats, Floats]
    interrupted_attempts: Attempts
    failed_permanently: NDArray[np.int64]
    outages: Outages | None
    contention: Floats

    @property
    def config(self) -> dict[str, Any]:
        """Configuration of the run."""
        config: dict[str, Any] = self.manifest["config"]
        return config

    @property
    def dead(self) -> str | None:
        """Since when a run is dead whose process was killed; None for any other run."""
        return told_status(self.manifest) if self.manifest["status"] == "dead" else None

    @property
    def starting_time(self) -> Floats:
        """(J,) s, NaN for a rejected job."""
        return self.jobs["starting_time"]

    @property
    def finish_time(self) -> Floats:
        """(J,) s, NaN for a rejected job."""
        return self.jobs["finish_time"]

    @property
    def busy_until(self) -> Floats:
        """(J,) s, the finish of each job."""
        return self.jobs["finish_time"]

    @cached_property
    def end_time(self) -> float:
        """End of the period accounted for, s."""
        finish = self.finish_time
        return float(self.manifest.get("simulated_seconds", finish[~np.isnan(finish)].max(initial=0.0)))

    @cached_property
    def state(self) -> NDArray[np.int8]:
        """(J,) :class:`hdsim.cluster.state.FinalState`."""
        return np.array([FinalState[name] for name in self.jobs["final_state"].tolist()], np.int8)

    @cached_property
    def started(self) -> NDArray[np.int64]:
        """(S,) jobs that started, in order of their starts."""
        order = np.argsort(self.starting_time, kind="stable")
        return order[: np.count_nonzero(~np.isnan(self.starting_time))]

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """(S,) core ids of each of them: cores and GPUs."""
        sizes: NDArray[np.int64] = self.jobs["requested_number_of_resources"][self.started]
        return sizes

    @cached_property
    def cores(self) -> NDArray[np.int32]:
        """(sum of sizes,) core ids of each of them in turn, ascending within a job."""
        return parse_interval_sets(self.jobs["allocated_resources"][self.started].tolist())

    @cached_property
    def attempts(self) -> Attempts:
        """Every start of a job, those cut short by failures among them."""
        job, start, end = self.started, self.starting_time, self.busy_until
        last = Attempts.last(job, start[job], end[job], self.sizes, self.cores, self.failed_permanently)
        return last.joined(self.interrupted_attempts)

    @cached_property
    def usage(self) -> power.Usage:
        """Which processors every start of a job occupied."""
        return power.usage(self.platform, self.attempts.sizes, self.attempts.cores)


def read(path: str | Path) -> Run:
    """Reads a run directory.

    Args:
        path: A directory whose run finished, was interrupted, or was killed after it had written results; or that of a
            training, which may have been cut short at any time.

    Raises:
        ConfigError: It is no run directory, its run failed, still goes on or died without results, or a file in it is
            missing or damaged.
    """
    path = Path(path)
    manifest = read_manifest(path)
    status = manifest["status"]
    # A training that was cut short has its records, and no replay.
    records_only = (
        status in ("interrupted", "dead") and (path / "progress.csv").is_file() and not (path / "jobs.csv").is_file()
    )
    if status not in ("finished", "interrupted") and not (
        records_only or (status == "dead" and (path / "metrics.json").is_file())
    ):
        raise ConfigError(f"expected a finished run, got one that is {told_status(manifest)}", where=str(path))
    jobs = _job_columns(path / "jobs.csv", *((JOB_COLUMNS, []) if records_only else read_csv(path / "jobs.csv")))
    platform = Platform.from_dict(read_json(path / "platform.json"), str(path / "platform.json"))
    cut_short, outages = (
        _read_interruptions(path / "interruptions.csv", jobs),
        _read_outages(path / "outages.csv", platform),
    )
    last, back = np.flatnonzero(~cut_short.requeued), np.flatnonzero(cut_short.requeued)
    jobs |= _read_details(path / "job_details.csv", jobs)
    spans = _read_spans(path / "oversubscription.csv", platform)
    run = Run(
        path,
        manifest,
        {} if records_only else read_metrics(path),
        platform,
        jobs,
        spans,
        cut_short.rows(back),
        cut_short.job[last],
        outages,
        _read_contention(path / "contention.csv"),
    )
    try:
        held = run.cores
    except ValueError as error:
        raise ConfigError(
            f"allocated_resources: expected interval sets: {error}", where=str(path / "jobs.csv")
        ) from None
    if len(held) != run.sizes.sum() or (len(held) and not 0 <= held.min() <= held.max() < platform.n_cores):
        raise ConfigError(
            f"allocated_resources: expected as many of {platform.n_cores} cores as each job asked for",
            where=str(path / "jobs.csv"),
        )
    count = len(jobs["job_id"])
    jobs |= {"restarts": run.attempts.restarts(count), "lost_core_seconds": run.attempts.lost_by_job(count)}
    jobs["requested_gpus"] = np.zeros(count, np.int64)
    if platform.n_gpus:
        jobs["requested_gpus"][run.attempts.job] = run.attempts.gpus(platform)
    return run


def _job_columns(path: Path, header: Sequence[str], rows: Sequence[Sequence[str]]) -> dict[str, NDArray[Any]]:
    missing = [name for name in JOB_COLUMNS if name not in header]
    if missing:
        raise ConfigError(f"expected Batsim's job columns, {', '.join(missing)} missing", where=f"{path}:1")
    texts = dict(zip(header, zip(*rows, strict=True), strict=True)) if rows else dict.fromkeys(header, ())
    columns: dict[str, NDArray[Any]] = {}
    for name in JOB_COLUMNS:
        read = integers if name in _INTEGERS else numbers
        columns[name] = np.array(texts[name], object) if name in _TEXTS else read(path, name, texts[name])
    states = {state.name for state in DONE}
    for line, state in enumerate(columns["final_state"].tolist(), 2):
        if state not in states:
            raise ConfigError(
                f"final_state: expected one of {', '.join(sorted(states))}, got '{state}'", where=f"{path}:{line}"
            )
    started, ended = ~np.isnan(columns["starting_time"]), columns["finish_time"] >= columns["starting_time"]
    good = ~np.isnan(columns["submission_time"]) & (started == ended)
    if not good.all():
        line = 2 + int(np.argmin(good))
        raise ConfigError("expected a submission, and a finish after a start", where=f"{path}:{line}")
    return columns


def _read_details(path: Path, jobs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    if not path.exists():
        return {}
    header, rows = read_csv(path)
    if header[:1] != ["job_id"] or [row[0] for row in rows] != jobs["job_id"].tolist():
        raise ConfigError("expected the jobs of jobs.csv, in the same order", where=str(path))
    missing = [name for name in details.COUNTS if name not in header]
    if missing:
        raise ConfigError(f"expected the columns {', '.join(missing)}", where=f"{path}:1")
    return {
        name: (integers if name in details.COUNTS else numbers)(path, name, [row[i] for row in rows])
        for i, name in enumerate(header)
        if i
    }


def _read_numbers(path: Path, columns: Sequence[str], below: Mapping[str, int]) -> list[NDArray[Any]] | None:
    """Columns of numbers, some of which are indices below a limit; None without a file."""
    if not path.exists():
        return None
    header, rows = read_csv(path)
    if header != list(columns):
        raise ConfigError(f"expected rows of {','.join(columns)}", where=str(path))
    texts = {name: [row[i] for row in rows] for i, name in enumerate(header)}
    return [
        integers(path, name, texts[name], below[name]) if name in below else numbers(path, name, texts[name])
        for name in columns
    ]


def _read_spans(path: Path, platform: Platform) -> tuple[NDArray[np.int32], Floats, Floats]:
    columns = _read_numbers(path, ("processor", "start", "end"), {"processor": platform.n_processors})
    processor, start, end = columns or [np.zeros(0, np.int64), np.zeros(0), np.zeros(0)]
    if not (start <= end).all():
        raise ConfigError("expected an end after each start", where=str(path))
    return processor.astype(np.int32), start, end


def _read_contention(path: Path) -> Floats:
    """(E, 3) changes."""
    columns = _read_numbers(path, CONTENTION_COLUMNS, {})
    if columns is None:
        return np.zeros((0, 3))
    if np.isnan(columns).any():
        raise ConfigError("expected a number in every field", where=str(path))
    time, *values = columns
    return np.stack([time, *(np.diff(column, prepend=0.0) for column in values)], axis=1)


def _read_outages(path: Path, platform: Platform) -> Outages | None:
    columns = _read_numbers(path, ("node", "down", "up"), {"node": platform.n_nodes})
    if columns is None:
        return None
    node, down, up = columns
    up = np.where(np.isnan(up), math.inf, up)
    if not (down <= up).all():
        raise ConfigError("expected down, and up after it or nothing", where=str(path))
    return Outages(node, down, up)


def _read_interruptions(path: Path, jobs: Mapping[str, NDArray[Any]]) -> Attempts:
    """Reads the interrupted starts of the given jobs; those of others are left out."""
    if not path.exists():
        return Attempts.none()
    header, rows = read_csv(path)
    if header != list(INTERRUPTION_COLUMNS):
        raise ConfigError(f"expected rows of {','.join(INTERRUPTION_COLUMNS)}", where=str(path))
    row_of_job = {job: row for row, job in enumerate(jobs["job_id"].tolist())}
    rows = [row for row in rows if row[0] in row_of_job]
    job = np.array([row_of_job[row[0]] for row in rows], np.int64)
    start, end, lost, requeued = (numbers(path, header[i], [row[i] for row in rows]) for i in (1, 2, 3, 4))
    try:
        cores = parse_interval_sets(row[5] for row in rows)
    except ValueError as error:
        raise ConfigError(f"allocated_resources: expected interval sets: {error}", where=str(path)) from None
    return Attempts(job, start, end, jobs["requested_number_of_resources"][job], cores, lost, requeued == 1)


def read_metrics(path: Path) -> dict[str, float]:
    """Returns the metrics of a run directory, NaN for null; those of wall time come from its manifest.

    Raises:
        ConfigError: metrics.json is missing or damaged.
    """
    manifest, metrics = read_manifest(path), read_json(path / "metrics.json")
    metrics |= {name: manifest[name] for name in WALL_METRICS if name in manifest}
    for name, value in metrics.items():
        if value is not None and not is_number(value):
            raise ConfigError(
                f"{name}: expected a number or null, got {shown(value)}", where=str(path / "metrics.json")
            )
    return {name: math.nan if value is None else float(value) for name, value in metrics.items()}
