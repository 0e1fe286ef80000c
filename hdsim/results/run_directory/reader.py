"""Reader of run directories."""

from __future__ import annotations

import gc
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from procset import ProcSet

from hdsim.cluster.state import FinalState
from hdsim.cluster.stores.quantities import NodeAmounts
from hdsim.errors import ConfigError
from hdsim.failures import Outages
from hdsim.platform.model import Platform
from hdsim.platform.node_state import STATE_NAMES
from hdsim.platform.states import CAP_KINDS, MACHINE, Cap, StateSpans
from hdsim.results import details
from hdsim.results.metrics import register
from hdsim.results.own_metrics import recorded
from hdsim.results.period import Period
from hdsim.results.run_directory.formats import (
    ALLOCATION_COLUMNS,
    CAP_COLUMNS,
    CONTENTION_COLUMNS,
    DONE,
    FREQUENCY_COLUMN,
    INTERRUPTION_COLUMNS,
    JOB_COLUMNS,
    NODE_STATE_COLUMNS,
    OWN_COLUMNS,
    POD_TIMES,
    RUN,
    WALL_METRICS,
    Reader,
    integers,
    is_number,
    numbers,
    read_columns,
    read_csv,
    read_json,
    texts_reader,
)
from hdsim.results.run_directory.manifest import damaged, read_manifest, told_status
from hdsim.results.segments import Segments
from hdsim.util.arrays import Floats, Ints
from hdsim.util.intervals import IntervalSets
from hdsim.util.text import shown

log = logging.getLogger(__name__)

_TEXTS = {"job_id", "workload_name", "profile", "final_state", "allocated_resources", "metadata"}
_OF_STARTED = ("requested_time", "execution_time", "waiting_time", "turnaround_time")
_INTEGERS = {"requested_number_of_resources", "success"}


@dataclass(frozen=True)
class Run:
    """A run read back from its directory, with what :mod:`hdsim.results.series` and reports need.

    It has only the jobs that have a row in ``jobs.csv`` (those that ended or were rejected), and times of 6 decimals;
    job indices count these rows. Attributes of :class:`hdsim.results.replay.Replay` are documented there.

    Attributes:
        path: The directory.
        manifest: Content of manifest.json.
        jobs: Columns of jobs.csv by name: float64, int64 or str objects, NaN for a time that does not exist; the GPUs
            of a job that never started are not known, and 0.
        pods: Times of pods in seconds since the run began, NaN if there is none: ``created``, ``bound``, ``running``
            and ``finished``; empty for a run without pods.
        cap: The limit on the power of all nodes, None without one.
    """

    path: Path
    manifest: dict[str, Any]
    metrics: dict[str, float]
    platform: Platform
    jobs: Mapping[str, NDArray[Any]]
    oversubscribed: tuple[NDArray[np.int32], Floats, Floats]
    segments: Segments
    outages: Outages | None
    node_states: StateSpans | None
    pods: Mapping[str, Floats]
    contention: Floats
    cap: Cap | None

    @property
    def config(self) -> dict[str, Any]:
        """Configuration of the run."""
        config: dict[str, Any] = self.manifest["config"]
        return config

    @property
    def dead(self) -> str | None:
        """Status of a run whose process was killed, for a message; None for other runs."""
        return told_status(self.manifest) if self.manifest["status"] == "dead" else None

    @property
    def starting_time(self) -> Floats:
        """(J,) s, NaN for a rejected job."""
        return self.jobs["starting_time"]

    @property
    def finish_time(self) -> Floats:
        """(J,) s, NaN for a rejected job."""
        return self.jobs["finish_time"]

    @cached_property
    def allocations(self) -> list[ProcSet]:
        """(J,) cores of each job; see :meth:`hdsim.results.segments.Segments.allocations`."""
        return self.segments.allocations(len(self.starting_time))

    @cached_property
    def end_time(self) -> float:
        """End of the period accounted for, in seconds."""
        finish = self.finish_time
        return float(self.manifest.get("simulated_seconds", finish[~np.isnan(finish)].max(initial=0.0)))

    @property
    def period(self) -> Period:
        """The period that means are taken over."""
        return period_of(self.manifest)

    @property
    def counted(self) -> NDArray[np.bool_]:
        """(J,) whether statistics count a job: it has ended, and was submitted in the period."""
        return self.period.counts(self.jobs["submission_time"], self.finish_time)

    @cached_property
    def state(self) -> NDArray[np.int8]:
        """(J,) :class:`hdsim.cluster.state.FinalState`."""
        return np.array([FinalState[name] for name in self.jobs["final_state"].tolist()], np.int8)


def period_of(manifest: Mapping[str, Any]) -> Period:
    """Returns the period that the means of a run are taken over."""
    return Period(*(manifest.get("period") or ()))


@contextmanager
def _collecting_later() -> Iterator[None]:
    """Holds the garbage collection, which would pass over every row of a file again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@_collecting_later()
def read_jobs(path: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Reads columns of the jobs of a run: ``job_id`` as it is, and times as numbers.

    Raises:
        ConfigError: ``jobs.csv`` is missing or damaged.
    """
    return _last_runs(path / "jobs.csv", lambda header: _job_readers(path / "jobs.csv", header, names))


def _last_runs(path: Path, readers: Callable[[list[str]], dict[str, Reader]]) -> dict[str, NDArray[Any]]:
    """Reads columns of jobs.csv, of a job with several runs, whose rows follow each other, those of the last one."""
    number = {RUN: partial(integers, path, RUN)}
    columns = read_columns(path, lambda header: readers(header) | (number if RUN in header else {}))
    if not columns.pop(RUN, np.zeros(0)).any():
        return columns
    job = columns["job_id"]
    last = np.append(job[1:] != job[:-1], True)
    return {name: column[last] for name, column in columns.items()}


def _job_readers(path: Path, header: Sequence[str], names: Sequence[str]) -> dict[str, Reader]:
    """Readers of columns of jobs.csv, by name."""
    if missing := [name for name in names if name not in header]:
        raise ConfigError(f"expected Batsim's job columns, {', '.join(missing)} missing", where=f"{path}:1")
    return {
        name: texts_reader()
        if name in _TEXTS or name in OWN_COLUMNS
        else partial(integers if name in _INTEGERS else numbers, path, name)
        for name in names
    }


@_collecting_later()
def read(path: str | Path, *, full: bool = True) -> Run:
    """Reads a run directory.

    Args:
        path: A directory whose run finished, was interrupted, or was killed after it had written results; or that of a
            training, which may have been cut short at any time.
        full: With the columns of job_details.csv, which take as long as a third of the others.

    Raises:
        ConfigError: It is no run directory, its run failed, is still running or died without results, or a file is
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
    if damage := damaged(path, manifest):
        log.warning("%s: %s: not what the run has written", path, ", ".join(damage))
    jobs = _no_jobs() if records_only else _job_columns(path / "jobs.csv")
    platform = Platform.from_dict(read_json(path / "platform.json"), str(path / "platform.json"))
    cut_short = _read_interruptions(path / "interruptions.csv", jobs, platform)
    if (path / "allocations.csv").exists():
        segments = _read_allocations(path / "allocations.csv", jobs, platform, cut_short)
    else:
        segments = _attempts(path / "jobs.csv", jobs, platform, cut_short)
    jobs |= _read_details(path / "job_details.csv", jobs) if full else {}
    spans = _read_spans(path / "oversubscription.csv", platform)
    count = len(jobs["job_id"])
    jobs |= {"restarts": segments.restarts(count), "lost_core_seconds": segments.lost_by_job(count)}
    jobs["requested_gpus"] = np.zeros(count, np.int64)
    if platform.n_gpus:
        # The first segment of a job, assigned last, has what the job asked for.
        jobs["requested_gpus"][segments.job[::-1]] = segments.gpus[::-1]
    return Run(
        path,
        manifest,
        {} if records_only else read_metrics(path, manifest),
        platform,
        jobs,
        spans,
        segments,
        _read_outages(path / "outages.csv", platform),
        _read_node_states(path / "node_states.csv", platform),
        _read_pods(path / "pods.csv"),
        _read_contention(path / "contention.csv"),
        _read_cap(path / "caps.csv", platform),
    )


def _read_pods(path: Path) -> dict[str, Floats]:
    header, rows = read_csv(path) if path.exists() else ([], [])
    missing = [name for name in POD_TIMES if name not in header]
    if rows and missing:
        raise ConfigError(f"expected columns of pods, {', '.join(missing)} missing", where=f"{path}:1")
    return {name: numbers(path, name, [row[header.index(name)] for row in rows]) for name in POD_TIMES if rows}


def _no_jobs() -> dict[str, NDArray[Any]]:
    readers = _job_readers(Path("jobs.csv"), JOB_COLUMNS, JOB_COLUMNS)
    return {name: reader([]) for name, reader in readers.items()}


def _names(header: Sequence[str]) -> list[str]:
    """Columns of jobs.csv that a run has."""
    return [*JOB_COLUMNS, *(name for name in OWN_COLUMNS if name in header)]


def _job_columns(path: Path) -> dict[str, NDArray[Any]]:
    columns = _last_runs(path, lambda header: _job_readers(path, header, _names(header)))
    states = {state.name for state in DONE}
    for line, state in enumerate(columns["final_state"].tolist(), 2):
        if state not in states:
            raise ConfigError(
                f"final_state: expected one of {', '.join(sorted(states))}, got '{state}'", where=f"{path}:{line}"
            )
    started, ended = ~np.isnan(columns["starting_time"]), columns["finish_time"] >= columns["starting_time"]
    told = ~np.isnan([columns[name] for name in _OF_STARTED]).any(axis=0)
    good = ~np.isnan(columns["submission_time"]) & (started == ended) & (told | ~started)
    if not good.all():
        line = 2 + int(np.argmin(good))
        raise ConfigError(
            "expected a submission, and the other times of a job that has started", where=f"{path}:{line}"
        )
    return columns


def _read_details(path: Path, jobs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    if not path.exists():
        return {}

    def readers(header: list[str]) -> dict[str, Reader]:
        known = [name for name in details.OWNERS if name in header]
        if header != ["job_id", *details.NAMES, *known]:
            raise ConfigError(
                f"expected the columns job_id,{','.join(details.NAMES)}, then any of {','.join(details.OWNERS)}",
                where=f"{path}:1",
            )
        of_numbers = {name: integers if name in details.COUNTS else numbers for name in details.NAMES}
        return {name: texts_reader() for name in ("job_id", *known)} | {
            name: partial(reader, path, name) for name, reader in of_numbers.items()
        }

    columns = read_columns(path, readers)
    if columns.pop("job_id").tolist() != jobs["job_id"].tolist():
        raise ConfigError("expected the jobs of jobs.csv, in the same order", where=str(path))
    return {name: _owners(path, name, column) if name in details.OWNERS else column for name, column in columns.items()}


def _owners(path: Path, name: str, column: NDArray[np.object_]) -> NDArray[Any]:
    """Users, groups, queues or partitions: numbers of at least -1, or texts where any is a name."""
    if all(text.lstrip("-").isdecimal() for text in set(column)):
        return integers(path, name, column, least=-1)
    return column


def _read_table(
    path: Path, columns: Sequence[str], readers: Mapping[str, Reader] | None = None
) -> list[NDArray[Any]] | None:
    """The columns of a table, numbers unless they have another reader; None without a file."""
    if not path.exists():
        return None

    def all_readers(header: list[str]) -> dict[str, Reader]:
        if header != list(columns):
            raise ConfigError(f"expected rows of {','.join(columns)}", where=str(path))
        return {name: partial(numbers, path, name) for name in columns} | dict(readers or {})

    return list(read_columns(path, all_readers).values())


def _read_spans(path: Path, platform: Platform) -> tuple[NDArray[np.int32], Floats, Floats]:
    processors = partial(integers, path, "processor", below=platform.n_processors)
    columns = _read_table(path, ("processor", "start", "end"), {"processor": processors})
    processor, start, end = columns or [np.zeros(0, np.int64), np.zeros(0), np.zeros(0)]
    if not (start <= end).all():
        raise ConfigError("expected an end after each start", where=str(path))
    return processor.astype(np.int32), start, end


def _read_contention(path: Path) -> Floats:
    """(E, 3) changes."""
    columns = _read_table(path, CONTENTION_COLUMNS)
    if columns is None:
        return np.zeros((0, 3))
    if np.isnan(columns).any():
        raise ConfigError("expected a number in every field", where=str(path))
    time, *values = columns
    return np.stack([time, *(np.diff(column, prepend=0.0) for column in values)], axis=1)


def _read_outages(path: Path, platform: Platform) -> Outages | None:
    nodes = partial(integers, path, "node", below=platform.n_nodes)
    columns = _read_table(path, ("node", "down", "up"), {"node": nodes})
    if columns is None:
        return None
    node, down, up = columns
    up = np.where(np.isnan(up), math.inf, up)
    if not (down <= up).all():
        raise ConfigError("expected down, and up after it or nothing", where=str(path))
    return Outages(node, down, up)


def _read_node_states(path: Path, platform: Platform) -> StateSpans | None:
    def states(texts: Sequence[str]) -> NDArray[np.int64]:
        unknown = next((text for text in texts if text not in STATE_NAMES), None)
        if unknown is not None:
            raise ConfigError(f"state: expected one of {', '.join(STATE_NAMES)}, got '{unknown}'", where=str(path))
        return np.array([STATE_NAMES.index(text) for text in texts], np.int64)

    nodes = partial(integers, path, "node", below=platform.n_nodes)
    columns = _read_table(path, NODE_STATE_COLUMNS, {"node": nodes, "state": states})
    if columns is None:
        return None
    spans = StateSpans(*columns)
    if not (spans.begin <= spans.end).all():
        raise ConfigError("expected an end after each begin", where=str(path))
    return spans


def _read_cap(path: Path, platform: Platform) -> Cap | None:
    """The limit on the power of all nodes."""
    columns = _read_table(path, CAP_COLUMNS, {name: texts_reader() for name in ("cap", "kind")})
    if columns is None:
        return None
    name, kind, time, watts = columns
    rows = name == MACHINE
    if not rows.any():
        return None
    time, watts = time[rows], np.where(np.isnan(watts[rows]), math.inf, watts[rows])
    if time[0] != 0 or not (np.diff(time) > 0).all():
        raise ConfigError("expected ascending times from 0 on", where=str(path))
    return Cap(MACHINE, np.ones(platform.n_nodes, bool), time, watts, bool(kind[rows][0] == CAP_KINDS[0]))


def _read_interruptions(path: Path, jobs: Mapping[str, NDArray[Any]], platform: Platform) -> Segments:
    """Reads the attempts of the given jobs that failures have cut short, the last of failed jobs among them."""
    if not path.exists():
        return Segments.none(platform)
    job, texts = _rows_of_jobs(path, INTERRUPTION_COLUMNS, jobs)
    begin, end, lost, requeued = (numbers(path, name, texts[name]) for name in INTERRUPTION_COLUMNS[1:5])
    held, amounts = _held(path, texts["allocated_resources"], begin, end, platform)
    attempts: dict[int, int] = {}
    attempt = np.zeros(len(job), np.int64)
    for row, one in enumerate(job.tolist()):
        attempt[row] = attempts[one] = attempts.get(one, -1) + 1
    return Segments(platform, job, attempt, begin, end, held, np.ones(len(job)), lost, requeued == 1, amounts)


def _attempts(path: Path, jobs: Mapping[str, NDArray[Any]], platform: Platform, cut_short: Segments) -> Segments:
    """The segments of jobs that have been neither resized nor changed in speed: one for each attempt."""
    start, finish = jobs["starting_time"], jobs["finish_time"]
    job = np.argsort(start, kind="stable")[: np.count_nonzero(~np.isnan(start))]
    texts = jobs["allocated_resources"][job].tolist()
    amounts = _amounts(path, texts, platform)
    held = _core_ids(path, texts, platform) if amounts is None else IntervalSets.empty(len(job))
    # A scheduler with reasons may give jobs whole nodes.
    asked = jobs["requested_number_of_resources"][job]
    if amounts is None and not (held.sizes > 0 if "reason" in jobs else held.sizes == asked).all():
        raise ConfigError("allocated_resources: expected as many cores as each job asked for", where=str(path))
    cut = cut_short.rows(np.flatnonzero(cut_short.requeued))
    begin, end = start[job], finish[job]
    lost = np.where(np.isin(job, cut_short.job[~cut_short.requeued]), end - begin, 0.0)
    attempt = np.bincount(cut.job, minlength=len(start))[job]
    none = np.zeros(len(job), bool)
    return Segments(platform, job, attempt, begin, end, held, np.ones(len(job)), lost, none, amounts).joined(cut)


def _read_allocations(
    path: Path, jobs: Mapping[str, NDArray[Any]], platform: Platform, cut_short: Segments
) -> Segments:
    job, texts = _rows_of_jobs(path, ALLOCATION_COLUMNS, jobs, (FREQUENCY_COLUMN,))
    attempt = integers(path, "attempt", texts["attempt"], len(job))
    begin, end, speed = (numbers(path, name, texts[name]) for name in ("begin", "end", "speed"))
    held, amounts = _held(path, texts["allocated_resources"], begin, end, platform)
    lost, requeued = np.zeros(len(job)), np.zeros(len(job), bool)
    last = {key: row for row, key in enumerate(zip(job.tolist(), attempt.tolist(), strict=True))}
    for key, seconds, again in zip(
        zip(cut_short.job.tolist(), cut_short.attempt.tolist(), strict=True),
        cut_short.lost.tolist(),
        cut_short.requeued.tolist(),
        strict=True,
    ):
        if key in last:
            lost[last[key]], requeued[last[key]] = seconds, again
    ghz = None
    if FREQUENCY_COLUMN in texts:
        ghz, table = numbers(path, FREQUENCY_COLUMN, texts[FREQUENCY_COLUMN]), platform.frequencies
        if table is None or not np.isin(ghz, table.ghz).all():
            raise ConfigError("expected frequencies of the processor types of the platform", where=str(path))
        ghz = np.where(ghz == table.nominal, np.nan, ghz)
    columns = attempt, begin, end, held, speed, lost, requeued, amounts, ghz
    return Segments(platform, job, *columns).with_losses_spread()


def _rows_of_jobs(
    path: Path, columns: Sequence[str], jobs: Mapping[str, NDArray[Any]], further: Sequence[str] = ()
) -> tuple[Ints, dict[str, list[str]]]:
    """Reads the rows of the given jobs, those of others left out: the index of the job of each, and columns of text.

    `further` columns may follow.
    """
    header, rows = read_csv(path)
    if header == [*columns, *further]:
        columns = header
    if header != list(columns):
        raise ConfigError(f"expected rows of {','.join(columns)}", where=str(path))
    row_of_job = {job: row for row, job in enumerate(jobs["job_id"].tolist())}
    rows = [row for row in rows if row[0] in row_of_job]
    texts = {name: [row[i] for row in rows] for i, name in enumerate(columns)}
    return np.array([row_of_job[name] for name in texts["job_id"]], np.int64), texts


def _held(
    path: Path, texts: Sequence[str], begin: Floats, end: Floats, platform: Platform
) -> tuple[IntervalSets, NDArray[np.object_] | None]:
    """Core ids of each row, or its amounts of nodes."""
    amounts = _amounts(path, texts, platform)
    if amounts is not None:
        return IntervalSets.empty(len(texts)), amounts
    held = _core_ids(path, texts, platform)
    if not (begin <= end).all() or not held.counts.all():
        raise ConfigError("expected an end after each begin, and cores in each row", where=str(path))
    return held, None


def _amounts(path: Path, texts: Sequence[str], platform: Platform) -> NDArray[np.object_] | None:
    """CPU and GPUs of nodes from texts ``NODE:CPU[:GPUS] ...``; None if the texts have core ids instead."""
    if not any(":" in text for text in texts):
        return None
    index = {name: node for node, name in enumerate(platform.node_names)}
    amounts = np.empty(len(texts), object)
    for row, text in enumerate(texts):
        try:
            parts = [part.split(":") for part in text.split()]
            nodes = np.array([index[part[0]] for part in parts], np.int64)
            cpu = np.array([part[1] for part in parts], np.float64)
            gpus = np.array([(*part, 0)[2] for part in parts], np.int64)
        except (KeyError, IndexError, ValueError):
            raise ConfigError(
                f"allocated_resources: expected NODE:CPU of nodes of the platform, got {shown(text)}", where=str(path)
            ) from None
        unknown, unmeasured = np.zeros(len(nodes), np.int64), np.zeros(len(nodes))
        amounts[row] = NodeAmounts(nodes, unknown, cpu, unmeasured, gpus, unknown, unmeasured)
    return amounts


def _core_ids(path: Path, texts: Sequence[str], platform: Platform) -> IntervalSets:
    """Core ids of each text."""
    try:
        return IntervalSets.parse(texts, platform.n_cores)
    except ValueError as error:
        raise ConfigError(f"allocated_resources: expected interval sets: {error}", where=str(path)) from None


def read_metrics(path: Path, manifest: Mapping[str, Any]) -> dict[str, float]:
    """Returns the metrics of a run directory, NaN for null; those of wall time come from its manifest.

    Raises:
        ConfigError: metrics.json is missing or damaged.
    """
    register(recorded(manifest.get("own_metrics") or {}))
    metrics = read_json(path / "metrics.json")
    metrics |= {name: manifest[name] for name in WALL_METRICS if name in manifest}
    for name, value in metrics.items():
        if value is not None and not is_number(value):
            raise ConfigError(
                f"{name}: expected a number or null, got {shown(value)}", where=str(path / "metrics.json")
            )
    return {name: math.nan if value is None else float(value) for name, value in metrics.items()}
