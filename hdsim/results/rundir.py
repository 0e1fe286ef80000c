"""A run directory: what a replay leaves on disk, in the file formats of Batsim where Batsim has one.

``jobs.csv``, ``schedule.csv`` and ``machine_states.csv`` have the columns of Batsim's ``out_*.csv``, so that evalys and
other tools read them. Every file appears whole or not at all.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import platform as host
import signal as signals
import subprocess
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.state import FinalState
from hdsim.errors import BackendError, ConfigError, HdsimError
from hdsim.failures import Outages
from hdsim.platform import power
from hdsim.platform.model import Platform
from hdsim.results import details, series
from hdsim.results.attempts import Attempts
from hdsim.util.files import replacing
from hdsim.util.intervals import interval_sets, parse_interval_sets
from hdsim.util.version import __version__

if TYPE_CHECKING:
    from hdsim.results.result import Result
    from hdsim.workload.model import Workload

Floats = NDArray[np.float64]

#: Columns of jobs.csv, which are those of Batsim's out_jobs.csv.
JOB_COLUMNS = (
    "job_id", "workload_name", "profile", "submission_time", "requested_number_of_resources", "requested_time",
    "success", "final_state", "starting_time", "execution_time", "finish_time", "waiting_time", "turnaround_time",
    "stretch", "allocated_resources", "consumed_energy", "metadata",
)  # fmt: skip
_STARTED_ROW = '%s,%s,%s,%.6f,%d,%.6f,%d,%s,%.6f,%.6f,%.6f,%.6f,%.6f,%.6f,%s,%.6f,""\n'
_REJECTED_ROW = '%s,%s,%s,%.6f,%d,%.6f,%d,%s,,,,,,,,,""\n'
_TEXTS = {"job_id", "workload_name", "profile", "final_state", "allocated_resources", "metadata"}
_INTEGERS = {"requested_number_of_resources", "success"}

#: States in which a job has a row in jobs.csv: it is done with.
_DONE = (
    FinalState.COMPLETED_SUCCESSFULLY,
    FinalState.COMPLETED_FAILED,
    FinalState.COMPLETED_WALLTIME_REACHED,
    FinalState.COMPLETED_KILLED,
    FinalState.REJECTED,
)
#: Columns of a workload that decide what is replayed.
_DIGESTED = (
    "submission_time", "runtime", "requested_time", "walltime", "requested_cores", "memory", "memory_bandwidth",
    "fixed_duration", "return_code",
)  # fmt: skip
_INTERRUPTION_COLUMNS = ("job_id", "starting_time", "end_time", "lost_time", "requeued", "allocated_resources")
_CONTENTION_COLUMNS = ("time", "lost_cores", "exchanging_tasks")
#: Most steps of each curve of contention.csv: several a pixel of any screen.
_CONTENTION_STEPS = 20_000
_MANIFEST = "manifest.json"
_OUTPUTS = (
    "jobs.csv", "schedule.csv", "machine_states.csv", "metrics.json", "platform.json", "oversubscription.csv",
    "outages.csv", "interruptions.csv", "job_details.csv", "contention.csv",
)  # fmt: skip


class RunDirectory:
    """Writes a run directory: `start`, then one of `finish`, `interrupt` and `fail`.

    Args:
        path: The directory; it is made if need be, and results of an earlier run in it are removed by `start`.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._manifest: dict[str, Any] = {}
        self._begin = datetime.now(UTC)

    def start(
        self,
        config: Mapping[str, Any],
        platform: Platform | None = None,
        workload: Workload | None = None,
        *,
        seed: int | None = None,
    ) -> None:
        """Makes the directory and the manifest of a run that has just begun.

        Args:
            config: The whole configuration.
            platform: None when the run fails before it is read.
            workload: None when the run fails before it is read.
            seed: Seed of the replay; by default the configuration's.

        Raises:
            ConfigError: The directory cannot be made.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"expected a directory that can be made: {error.strerror}", where=str(self.path)
            ) from None
        for name in _OUTPUTS:
            (self.path / name).unlink(missing_ok=True)
        self._begin = datetime.now(UTC)
        self._manifest = {
            "status": "running",
            "start": self._begin.isoformat(timespec="milliseconds"),
            "seeds": {"seed": config.get("seed") if seed is None else seed},
            "config": _plain(config),
            "inputs": list(_inputs(config, platform, workload)),
            "platform": platform and {"name": platform.name, "cores": platform.n_cores, "nodes": platform.n_nodes},
            "workload": workload and {"name": workload.name, "jobs": len(workload), "sha256": digest(workload)},
            "git_commit": _git_commit(),
            "command": sys.argv,
        }
        self._write_manifest()

    def finish(self, result: Result, **facts: Any) -> None:
        """Writes all results; of an interrupted replay, those of the jobs that were done by then.

        Args:
            result: The replay.
            **facts: What else the manifest is to tell.
        """
        self._results(result)
        self._end("interrupted" if result.interrupted else "finished", simulated_seconds=result.end_time, **facts)

    def interrupt(self, result: Result, signal: int) -> None:
        """Writes the results of the jobs that were done when a signal came.

        Args:
            result: The replay until then.
            signal: Number of the signal.
        """
        self._results(result)
        self._end("interrupted", simulated_seconds=result.end_time, signal=signals.Signals(signal).name)

    def fail(self, error: BaseException) -> None:
        """Keeps in the manifest why there are no results; of a failed backend, also the results until then.

        Args:
            error: What went wrong; a KeyboardInterrupt is an interruption and no failure.
        """
        if isinstance(error, BackendError) and error.result is not None:
            self._results(error.result)
        if isinstance(error, HdsimError):
            self._end("failed", error=str(error))
        elif isinstance(error, KeyboardInterrupt):
            self._end("interrupted", error=str(error) or "interrupted")
        else:
            told = "".join(traceback.format_exception(error))
            self._end("failed", error=f"{type(error).__name__}: {error}", traceback=told)

    @staticmethod
    def is_finished(path: str | Path) -> bool:
        """Whether a directory holds a run that came to its end."""
        try:
            return bool(read_manifest(path)["status"] == "finished")
        except ConfigError:
            return False

    def finished_with(self, config: Mapping[str, Any]) -> bool:
        """Whether the directory holds a finished run of this very configuration."""
        return self.is_finished(self.path) and read_manifest(self.path)["config"] == _plain(config)

    def metrics(self) -> dict[str, float]:
        """Reads the metrics of the run in the directory.

        Raises:
            ConfigError: There are none.
        """
        return _read_metrics(self.path)

    def _results(self, result: Result) -> None:
        from hdsim.results.metrics import full

        write_jobs(self.path / "jobs.csv", result)
        _write_details(self.path / "job_details.csv", result)
        _write_schedule(self.path / "schedule.csv", result)
        _write_machine_states(self.path / "machine_states.csv", result)
        processors, starts, ends = result.oversubscribed
        if len(processors):
            with replacing(self.path / "oversubscription.csv") as file:
                file.write("processor,start,end\n")
                rows = zip(processors.tolist(), starts.tolist(), ends.tolist(), strict=True)
                file.writelines(f"{processor},{start:.6f},{end:.6f}\n" for processor, start, end in rows)
        if len(result.contention):
            _write_contention(self.path / "contention.csv", result)
        if result.outages is not None:
            _write_outages(self.path / "outages.csv", result.outages)
            _write_interruptions(self.path / "interruptions.csv", result)
        _write_json(self.path / "platform.json", result.platform.to_dict())
        _write_json(self.path / "metrics.json", full(result))

    def _end(self, status: str, **more: Any) -> None:
        self._manifest |= {"status": status, "duration": (datetime.now(UTC) - self._begin).total_seconds(), **more}
        self._write_manifest()

    def _write_manifest(self) -> None:
        # At the end more packages have been loaded than at the start.
        _write_json(self.path / _MANIFEST, self._manifest | {"versions": _versions()})


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
        given_up: (G,) jobs that have failed for good because nodes failed under them too often.
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
    given_up: NDArray[np.int64]
    outages: Outages | None
    contention: Floats

    @property
    def config(self) -> dict[str, Any]:
        """Configuration of the run."""
        config: dict[str, Any] = self.manifest["config"]
        return config

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
        last = Attempts.last(job, start[job], end[job], self.sizes, self.cores, self.given_up)
        return last.joined(self.interrupted_attempts)

    @cached_property
    def usage(self) -> power.Usage:
        """Which processors every start of a job occupied."""
        return power.usage(self.platform, self.attempts.sizes, self.attempts.cores)


def read(path: str | Path) -> Run:
    """Reads a run directory.

    Args:
        path: A directory whose run finished or was interrupted.

    Raises:
        ConfigError: It is no run directory, its run failed or still goes on, or a file in it is missing or damaged.
    """
    path = Path(path)
    manifest = read_manifest(path)
    status = manifest["status"]
    if status not in ("finished", "interrupted"):
        reason = f": {manifest['error']}" if status == "failed" and manifest.get("error") else ""
        raise ConfigError(f"expected a finished run, got one that is {status}{reason}", where=str(path))
    jobs = _read_jobs(path / "jobs.csv")
    platform = Platform.from_dict(_read_json(path / "platform.json"), str(path / "platform.json"))
    cut_short, outages = _read_interruptions(path / "interruptions.csv", jobs), _read_outages(path / "outages.csv")
    last, back = np.flatnonzero(~cut_short.requeued), np.flatnonzero(cut_short.requeued)
    jobs |= _read_details(path / "job_details.csv")
    spans = _read_spans(path / "oversubscription.csv")
    run = Run(
        path, manifest, _read_metrics(path), platform, jobs, spans, cut_short.rows(back), cut_short.job[last], outages,
        _read_contention(path / "contention.csv"),
    )  # fmt: skip
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


def read_manifest(path: str | Path) -> dict[str, Any]:
    """Reads the manifest of a run directory.

    Raises:
        ConfigError: It is no run directory, or its manifest is damaged.
    """
    path = Path(path)
    if not path.is_dir():
        raise ConfigError(
            "expected a run directory, got " + ("a file" if path.exists() else "nothing"), where=str(path)
        )
    if not (path / _MANIFEST).is_file():
        runs = sorted(str(found.parent) for found in path.glob(f"*/{_MANIFEST}"))
        got = f"a sweep; one of its runs is {runs[0]!r}" if runs else f"a directory without {_MANIFEST}"
        raise ConfigError(f"expected a run directory, got {got}", where=str(path))
    manifest = _read_json(path / _MANIFEST)
    if not isinstance(manifest.get("status"), str) or not isinstance(manifest.get("config"), dict):
        raise ConfigError("expected the keys status and config", where=str(path / _MANIFEST))
    return manifest


def write_jobs(path: Path, result: Result) -> None:
    """Writes jobs.csv: one row for each job that ended or was rejected, in the order of the workload.

    Args:
        path: The file.
        result: A replay.
    """
    rows = np.flatnonzero(np.isin(result.state, _DONE))
    rejected = (result.state[rows] == FinalState.REJECTED).tolist()
    workload = result.workload
    columns: list[list[Any]] = [
        _quoted(workload.job_id[rows].tolist()),
        _quoted([workload.name]) * len(rows),
        _quoted(workload.profile[rows].tolist()),
        *(result.jobs[name][rows].tolist() for name in JOB_COLUMNS[3:-1]),
    ]
    with replacing(path) as file:
        file.write(",".join(JOB_COLUMNS) + "\n")
        file.writelines(
            _REJECTED_ROW % row[:8] if refused else _STARTED_ROW % row
            for row, refused in zip(zip(*columns, strict=True), rejected, strict=True)
        )


def _write_details(path: Path, result: Result) -> None:
    """Writes job_details.csv: how each job of jobs.csv ran, in the same order."""
    rows = np.flatnonzero(np.isin(result.state, _DONE))
    names = list(details.columns(result))
    ids = _quoted(result.workload.job_id[rows].tolist())
    columns = zip(*(result.jobs[name][rows].tolist() for name in names), strict=True)
    numbers = ",".join("%d" if name in details.COUNTS else "%.6f" for name in names)
    with replacing(path) as file:
        file.write(",".join(("job_id", *names)) + "\n")
        file.writelines(f"{own},{(numbers % row).replace('nan', '')}\n" for own, row in zip(ids, columns, strict=True))


def _write_schedule(path: Path, result: Result) -> None:
    """Writes schedule.csv, the run in one row; what hdsim has no notion of is 0 or empty."""
    metrics, counts = result.metrics, np.bincount(result.state, minlength=len(FinalState))
    ended = int(np.count_nonzero(~np.isnan(result.finish_time)))
    success, rejected = (int(counts[state]) for state in (FinalState.COMPLETED_SUCCESSFULLY, FinalState.REJECTED))
    submitted = len(result.state) - int(counts[FinalState.NOT_SUBMITTED])
    computing = float(result.attempts.sizes @ (result.attempts.end - result.attempts.start))
    unavailable = series.down_resources(result).integral()
    row = {
        "batsim_version": f"hdsim-{__version__}",
        "consumed_joules": result.energy_joules,
        "makespan": metrics["makespan"],
        **{
            f"{kind}_{ours}": metrics[f"{kind}_{ours}"]
            for kind in ("max", "mean")
            for ours in ("slowdown", "turnaround_time", "waiting_time")
        },
        "nb_computing_machines": result.platform.n_cores,
        "nb_grouped_switches": 0,
        "nb_jobs": submitted,
        "nb_jobs_finished": ended,
        "nb_jobs_killed": ended - success,
        "nb_jobs_rejected": rejected,
        "nb_jobs_success": success,
        "nb_machine_switches": 0,
        "scheduling_time": None,
        "simulation_time": result.wall_seconds,
        "success_rate": success / submitted if submitted else 0.0,
        "time_computing": computing,
        "time_idle": result.platform.n_cores * result.end_time - computing - unavailable,
        "time_sleeping": 0.0,
        "time_switching_off": 0.0,
        "time_switching_on": 0.0,
        "time_unavailable": unavailable,
    }
    with replacing(path) as file:
        file.write(",".join(row) + "\n")
        file.write(",".join(_cell(value) for value in row.values()) + "\n")


def _cell(value: float | str | None) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return f"{value:.6f}" if isinstance(value, float) else str(value)


def _write_machine_states(path: Path, result: Result) -> None:
    """Writes machine_states.csv: cores by state from each change on. In hdsim no core is switched off.

    Cores of nodes that are down are in none of the states.
    """
    busy, down = series.busy_resources(result), series.down_resources(result)
    times = np.union1d(busy.times, down.times)
    computing = busy.at(times).astype(np.int64)
    idle = result.platform.n_cores - computing - down.at(times).astype(np.int64)
    with replacing(path) as file:
        file.write("time,nb_sleeping,nb_switching_on,nb_switching_off,nb_idle,nb_computing\n")
        rows = zip(times.tolist(), idle.tolist(), computing.tolist(), strict=True)
        file.writelines(f"{time:.6f},0,0,0,{waiting},{serving}\n" for time, waiting, serving in rows)


def _write_contention(path: Path, result: Result) -> None:
    """Writes contention.csv: two curves, the steps of each thinned so that no peak is lost."""
    lost, sending = (steps(result).thinned(_CONTENTION_STEPS) for steps in (series.lost_cores, series.exchanging_tasks))
    times = np.union1d(lost.times, sending.times)
    with replacing(path) as file:
        file.write(",".join(_CONTENTION_COLUMNS) + "\n")
        rows = zip(times.tolist(), lost.at(times).tolist(), sending.at(times).tolist(), strict=True)
        file.writelines(f"{time:.6f},{cores:.6f},{tasks:.0f}\n" for time, cores, tasks in rows)


def _write_outages(path: Path, outages: Outages) -> None:
    """Writes outages.csv, which `failures=trace` takes; `up` is empty for a node that stays down."""
    with replacing(path) as file:
        file.write("node,down,up\n")
        rows = zip(outages.node.tolist(), outages.down.tolist(), outages.up.tolist(), strict=True)
        file.writelines(f"{node},{down!r},{up!r}\n".replace("inf", "") for node, down, up in rows)


def _write_interruptions(path: Path, result: Result) -> None:
    """Writes interruptions.csv: one row for each start of a job that a failure has cut short."""
    ran = result.attempts
    cut = ran.rows(np.flatnonzero(ran.requeued | np.isin(ran.job, result.given_up)))
    ids = _quoted(result.workload.job_id[cut.job].tolist())
    cores = interval_sets(cut.cores, cut.sizes)
    with replacing(path) as file:
        file.write(",".join(_INTERRUPTION_COLUMNS) + "\n")
        numbers = (column.tolist() for column in (cut.start, cut.end, cut.lost, cut.requeued))
        file.writelines(
            "{},{:.6f},{:.6f},{:.6f},{:d},{}\n".format(*row) for row in zip(ids, *numbers, cores, strict=True)
        )


def _read_jobs(path: Path) -> dict[str, NDArray[Any]]:
    header, rows = _read_csv(path)
    missing = [name for name in JOB_COLUMNS if name not in header]
    if missing:
        raise ConfigError(f"expected Batsim's job columns, {', '.join(missing)} missing", where=f"{path}:1")
    texts = dict(zip(header, zip(*rows, strict=True), strict=True)) if rows else dict.fromkeys(header, ())
    columns = {
        name: np.array(texts[name], object) if name in _TEXTS else _numbers(path, name, texts[name])
        for name in JOB_COLUMNS
    }
    for name in _INTEGERS:
        columns[name] = columns[name].astype(np.int64)
    states = {state.name for state in _DONE}
    for line, state in enumerate(columns["final_state"].tolist(), 2):
        if state not in states:
            raise ConfigError(
                f"final_state: expected one of {', '.join(sorted(states))}, got '{state}'", where=f"{path}:{line}"
            )
    return columns


def _read_details(path: Path) -> dict[str, NDArray[Any]]:
    if not path.exists():
        return {}
    header, rows = _read_csv(path)
    texts = list(zip(*rows, strict=True)) if rows else [()] * len(header)
    columns = {name: _numbers(path, name, texts[i]) for i, name in enumerate(header) if i}
    return columns | {name: columns[name].astype(np.int64) for name in details.COUNTS}


def _read_spans(path: Path) -> tuple[NDArray[np.int32], Floats, Floats]:
    if not path.exists():
        return np.zeros(0, np.int32), np.zeros(0), np.zeros(0)
    header, rows = _read_csv(path)
    columns = [_numbers(path, name, texts) for name, texts in zip(header, zip(*rows, strict=True), strict=True)]
    if header != ["processor", "start", "end"] or not columns:
        raise ConfigError("expected rows of processor,start,end", where=str(path))
    return columns[0].astype(np.int32), columns[1], columns[2]


def _read_contention(path: Path) -> Floats:
    """(E, 3) changes."""
    if not path.exists():
        return np.zeros((0, 3))
    header, rows = _read_csv(path)
    if header != list(_CONTENTION_COLUMNS):
        raise ConfigError(f"expected rows of {','.join(_CONTENTION_COLUMNS)}", where=str(path))
    time, *values = (_numbers(path, name, [row[i] for row in rows]) for i, name in enumerate(header))
    return np.stack([time, *(np.diff(column, prepend=0.0) for column in values)], axis=1)


def _read_outages(path: Path) -> Outages | None:
    if not path.exists():
        return None
    header, rows = _read_csv(path)
    if header != ["node", "down", "up"]:
        raise ConfigError("expected rows of node,down,up", where=str(path))
    node, down, up = (_numbers(path, name, [row[i] for row in rows]) for i, name in enumerate(header))
    return Outages(node.astype(np.int64), down, np.where(np.isnan(up), math.inf, up))


def _read_interruptions(path: Path, jobs: Mapping[str, NDArray[Any]]) -> Attempts:
    """Reads the interrupted starts of the given jobs; those of others are left out."""
    if not path.exists():
        return Attempts.none()
    header, rows = _read_csv(path)
    if header != list(_INTERRUPTION_COLUMNS):
        raise ConfigError(f"expected rows of {','.join(_INTERRUPTION_COLUMNS)}", where=str(path))
    row_of_job = {job: row for row, job in enumerate(jobs["job_id"].tolist())}
    rows = [row for row in rows if row[0] in row_of_job]
    job = np.array([row_of_job[row[0]] for row in rows], np.int64)
    start, end, lost, requeued = (_numbers(path, header[i], [row[i] for row in rows]) for i in (1, 2, 3, 4))
    try:
        cores = parse_interval_sets(row[5] for row in rows)
    except ValueError as error:
        raise ConfigError(f"allocated_resources: expected interval sets: {error}", where=str(path)) from None
    return Attempts(job, start, end, jobs["requested_number_of_resources"][job], cores, lost, requeued == 1)


def _read_csv(path: Path) -> tuple[list[str], list[list[str]]]:
    if not path.is_file():
        raise ConfigError(f"expected a run directory with {path.name}, which is missing", where=str(path.parent))
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.reader(file)
        header = next(reader, [])
        rows = list(reader)
    for line, row in enumerate(rows, 2):
        if len(row) != len(header):
            raise ConfigError(f"expected {len(header)} fields, got {len(row)}", where=f"{path}:{line}")
    return header, rows


def _numbers(path: Path, name: str, texts: Iterable[str]) -> Floats:
    """(J,) numbers, NaN for an empty field."""
    try:
        return np.array([float(text or "nan") for text in texts])
    except ValueError as error:
        raise ConfigError(f"{name}: expected numbers: {error}", where=str(path)) from None


def _read_metrics(path: Path) -> dict[str, float]:
    metrics = _read_json(path / "metrics.json")
    return {name: math.nan if value is None else float(value) for name, value in metrics.items()}


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ConfigError(f"expected a run directory with {path.name}, which is missing", where=str(path.parent))
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"expected JSON: {error}", where=str(path)) from None
    if not isinstance(content, dict):
        raise ConfigError("expected a JSON object", where=str(path))
    return content


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    with replacing(path) as file:
        json.dump(_plain(content), file, indent=2, ensure_ascii=False, allow_nan=False)
        file.write("\n")


def _plain(value: Any) -> Any:
    """Turns a value into what comes back from JSON: paths become text, NaN and infinities null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(child) for child in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _quoted(texts: list[Any]) -> list[Any]:
    """Quotes the texts that need it in a CSV file."""
    return [
        '"' + text.replace('"', '""') + '"' if isinstance(text, str) and any(c in text for c in ',"\r\n') else text
        for text in texts
    ]


def _inputs(
    config: Mapping[str, Any], platform: Platform | None, workload: Workload | None
) -> Iterator[dict[str, str]]:
    """Every file that a run reads, with its digest."""
    if platform and platform.sha256:
        yield {"kind": "platform", "path": platform.source, "sha256": platform.sha256}
    if platform:
        for path, digest in platform.type_files.items():
            yield {"kind": "platform types", "path": path, "sha256": digest}
    if workload and workload.sha256:
        yield {"kind": "workload", "path": workload.source, "sha256": workload.sha256}
    for kind, group, key in (
        ("agent", "agent", "path"),
        ("contention", "contention", "path"),
        ("network", "network", "path"),
        ("failures", "failures", "path"),
        ("outages", "failures", "file"),
    ):
        part = config.get(group)
        own = part.get(key) if isinstance(part, Mapping) else None
        if own and Path(own).is_file():
            yield {"kind": kind, "path": str(own), "sha256": hashlib.sha256(Path(own).read_bytes()).hexdigest()}


def digest(workload: Workload) -> str:
    """sha256 of what is replayed: equal for equal jobs, wherever they came from."""
    digest = hashlib.sha256()
    for name in (*_DIGESTED, "requested_gpus") if workload.asks_for_gpus else _DIGESTED:
        digest.update(getattr(workload, name).tobytes())
    if workload.has_programs:
        for row, program in enumerate(workload.program.tolist()):
            if program is not None:
                digest.update(b"%d:%s" % (row, program.fingerprint))
    return digest.hexdigest()


def _versions() -> dict[str, str]:
    """Versions of hdsim, of Python and of every installed package that has been imported."""
    from importlib.metadata import version

    owners = _distributions()
    loaded = {name.partition(".")[0] for name in tuple(sys.modules)}
    used = sorted({owner for name in loaded for owner in owners.get(name, ())} - {"hdsim"})
    return {"hdsim": __version__, "python": host.python_version()} | {name: version(name) for name in used}


@lru_cache(maxsize=1)
def _distributions() -> Mapping[str, list[str]]:
    from importlib.metadata import packages_distributions

    return packages_distributions()


@lru_cache(maxsize=1)
def _git_commit() -> str | None:
    """Commit of the checkout hdsim runs from, with ``-dirty`` when files differ from it; None outside a checkout."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
