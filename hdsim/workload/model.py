"""Workloads: frozen columns with one row a job, and how they are made from trace files.

Times are seconds, memory MB (10^6 B) a core, bandwidth GB/s a core. Run times and estimates are those on a core of the
reference speed (the mean speed of the platform's cores); a core of another speed takes proportionally less or more.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hdsim.errors import WorkloadError, nearest
from hdsim.util.units import in_bytes
from hdsim.workload.programs import parts_of

if TYPE_CHECKING:
    from hdsim.platform.model import Platform
    from hdsim.workload.raw import RawJobs

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: GB/s a core; HDeepRM draws a job's bandwidth demand from these with equal probability.
BANDWIDTHS = (4.0, 8.0, 12.0, 16.0, 20.0, 24.0)
#: HDeepRM's run time as a share k of the requested time, and the probability of each k.
RUNTIME_SHARES = np.arange(1, 26) * 0.05
RUNTIME_PROBABILITIES = np.repeat([0.15, 0.09, 0.07, 0.04, 0.03, 0.02, 0.06, 0.08], [1, 1, 1, 5, 5, 10, 1, 1])

_log = logging.getLogger(__name__)

#: Columns by type, with the value of a job that says nothing about it (None: no such value).
_FLOATS: dict[str, float | None] = {
    "submission_time": None,
    "original_submission_time": None,
    "runtime": None,
    "requested_time": None,
    "walltime": np.inf,
    "memory": 0.0,
    "memory_bandwidth": 0.0,
}
_INTS: dict[str, int | None] = {
    "requested_cores": None,
    "requested_gpus": 0,
    "user": -1,
    "group": -1,
    "queue": -1,
    "partition": -1,
    "executable": -1,
    "status": -1,
    "return_code": 0,
}
_OBJECTS = {"profile": "", "extra": None, "program": None}
COLUMNS = ("job_id", *_FLOATS, *_INTS, "fixed_duration", *_OBJECTS)


@dataclass(frozen=True, eq=False, kw_only=True)
class Workload:
    """Jobs in order of submission, ties in file order. Every column is a read-only (J,) array.

    Make one with :func:`load_workload` or :meth:`from_columns`.

    Attributes:
        job_id: int64, or object where a file uses other ids.
        submission_time: s, the first job at 0.
        original_submission_time: s in the clock of the trace, whatever part of it was taken.
        runtime: s at the reference speed, >= 0 (0 is real: short jobs of coarse clocks).
        requested_time: s at the reference speed, the user's estimate.
        walltime: s of wall clock after which the job is killed, inf = never.
        requested_cores: int64, >= 1.
        requested_gpus: int64, >= 0, GPUs of the whole job; on each of its nodes they are in proportion to its cores.
        memory: MB a core, 0 = none or unknown.
        memory_bandwidth: GB/s a core, 0 = none.
        user, group, queue, partition, executable: int64, -1 = unknown.
        status: int64, SWF field 11, -1 = unknown.
        fixed_duration: bool, lasts `runtime` seconds whatever the speed of its cores (Batsim's delay profiles).
        return_code: int64, Batsim's profile field ``ret``; not 0 means the job fails.
        profile: object, Batsim profile name, "" for none.
        extra: object, further fields of a Batsim job as a dict, or None.
        program: object, :class:`hdsim.workload.programs.Program` of a job that does more than compute for `runtime`, or
            None.
        profiles: Batsim profiles by name, verbatim.
        name: Name of the workload in Batsim's job ids (``w0!1``).
        source: Where the jobs came from.
        sha256: Digest of the file, None when not from a file.
        header: Header fields of the file (SWF: MaxProcs, UnixStartTime ...; Batsim: nb_res ...).
        dropped: Why each dropped job of the file could not be replayed, one error a job.
        reference_gflops: GFLOP/s that `runtime` refers to, None when the file gave seconds.
    """

    job_id: np.ndarray
    submission_time: Floats
    original_submission_time: Floats
    runtime: Floats
    requested_time: Floats
    walltime: Floats
    requested_cores: Ints
    requested_gpus: Ints
    memory: Floats
    memory_bandwidth: Floats
    user: Ints
    group: Ints
    queue: Ints
    partition: Ints
    executable: Ints
    status: Ints
    fixed_duration: NDArray[np.bool_]
    return_code: Ints
    profile: NDArray[np.object_]
    extra: NDArray[np.object_]
    program: NDArray[np.object_]
    profiles: dict[str, dict[str, Any]] = field(default_factory=dict)
    name: str = "w0"
    source: str = "<columns>"
    sha256: str | None = None
    header: dict[str, Any] = field(default_factory=dict)
    dropped: tuple[WorkloadError, ...] = ()
    reference_gflops: float | None = None

    @classmethod
    def from_columns(
        cls,
        *,
        submission_time: ArrayLike,
        runtime: ArrayLike,
        requested_cores: ArrayLike,
        profiles: dict[str, dict[str, Any]] | None = None,
        name: str = "w0",
        source: str = "<columns>",
        sha256: str | None = None,
        header: dict[str, Any] | None = None,
        dropped: tuple[WorkloadError, ...] = (),
        reference_gflops: float | None = None,
        **columns: ArrayLike,
    ) -> Workload:
        """Makes a workload from columns, which are copied, sorted by submission and shifted to start at 0.

        Args:
            submission_time: (J,) s; kept as `original_submission_time` unless that is given too.
            runtime: (J,) s.
            requested_cores: (J,).
            profiles: See the attributes, like all that follow.
            name: See the attributes.
            source: See the attributes; also the place named in errors.
            sha256: See the attributes.
            header: See the attributes.
            dropped: See the attributes.
            reference_gflops: See the attributes.
            **columns: Any further column, (J,) or one value for all jobs. Defaults: job ids 0 to J-1, requested time =
                run time, no kill limit, no memory, no bandwidth, everything else unknown.

        Raises:
            WorkloadError: No job, an unknown column, columns of different lengths, or values that no job can have.
        """
        given: dict[str, Any] = dict(
            submission_time=submission_time, runtime=runtime, requested_cores=requested_cores, **columns
        )
        for key in given:
            if key not in COLUMNS:
                allowed = ", ".join(COLUMNS)
                raise WorkloadError(f"unknown column '{key}'{nearest(key, COLUMNS)}; allowed: {allowed}", where=source)
        jobs = np.size(submission_time)
        if jobs == 0:
            raise WorkloadError("expected at least one job, got none", where=source)
        given.setdefault("job_id", np.arange(jobs))
        given.setdefault("original_submission_time", submission_time)
        given.setdefault("requested_time", runtime)
        made = {key: _column(key, given.get(key), jobs, source) for key in COLUMNS}
        order = np.argsort(made["submission_time"], kind="stable")
        if not np.array_equal(order, np.arange(jobs)):
            made = {key: column[order] for key, column in made.items()}
        made["submission_time"] = made["submission_time"] - made["submission_time"][0]
        return cls(
            **_frozen(made),
            profiles=profiles or {},
            name=name,
            source=source,
            sha256=sha256,
            header=header or {},
            dropped=dropped,
            reference_gflops=reference_gflops,
        )

    def __len__(self) -> int:
        return len(self.runtime)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restores a pickled workload; arrays come out of a pickle writeable."""
        _frozen({key: state[key] for key in COLUMNS})
        self.__dict__.update(state)

    def __repr__(self) -> str:
        return f"<Workload {self.source}: {len(self)} jobs>"

    def __getitem__(self, jobs: slice) -> Workload:
        if not isinstance(jobs, slice):
            raise TypeError(f"expected a slice such as workload[10:20], got {jobs!r}; see Workload.select")
        return self.select(jobs)

    def select(self, jobs: slice | ArrayLike) -> Workload:
        """Takes some of the jobs, in their order, with the first one submitted at 0.

        Args:
            jobs: Slice, (J,) mask or indices.

        Raises:
            WorkloadError: No job is selected, or an index is out of range.
        """
        everything = np.arange(len(self))
        try:
            rows = np.unique(everything[jobs if isinstance(jobs, slice) else np.asarray(jobs)])
        except IndexError as error:
            raise WorkloadError(f"cannot select from {len(self)} jobs: {error}", where=self.source) from error
        if not len(rows):
            raise WorkloadError(
                f"expected at least one of {len(self)} jobs to be selected, got none", where=self.source
            )
        columns = {key: getattr(self, key)[rows] for key in COLUMNS}
        columns["submission_time"] = columns["submission_time"] - columns["submission_time"][0]
        profiles = parts_of(set(columns["profile"].tolist()), self.profiles) if self.profiles else {}
        return dataclasses.replace(self, **_frozen(columns), profiles=profiles)

    def scaled_arrivals(self, factor: float) -> Workload:
        """Multiplies all inter-arrival times; `original_submission_time` stays.

        Args:
            factor: Below 1 the jobs come faster; 0 brings all at once.

        Raises:
            WorkloadError: The factor is negative or not finite.
        """
        if not (np.isfinite(factor) and factor >= 0):
            raise WorkloadError(f"arrival_factor: expected a finite number of at least 0, got {factor}")
        return self.replaced(submission_time=self.submission_time * factor)

    def replaced(self, **columns: ArrayLike) -> Workload:
        """The same jobs with some columns exchanged.

        Args:
            **columns: (J,) values, or one value for all jobs; submission times must stay in order.

        Raises:
            WorkloadError: A column has the wrong length or values that no job can have.
        """
        made = {key: _column(key, value, len(self), self.source) for key, value in columns.items()}
        return dataclasses.replace(self, **_frozen(made))

    @cached_property
    def trace_time(self) -> Floats:
        """(J,) s, submission times to write to a file: in the clock of the trace unless arrivals were changed."""
        original = self.original_submission_time
        return original if np.array_equal(original - original[0], self.submission_time) else self.submission_time

    @cached_property
    def has_programs(self) -> bool:
        """Whether any job does more than compute."""
        return self.program.tolist().count(None) < len(self)

    @cached_property
    def asks_for_gpus(self) -> bool:
        """Whether any job asks for GPUs."""
        return bool(self.requested_gpus.any())

    @cached_property
    def requested_resources(self) -> Ints:
        """(J,) core ids that a job is given: its cores and its GPUs."""
        if not self.asks_for_gpus:
            return self.requested_cores
        total = self.requested_cores + self.requested_gpus
        total.flags.writeable = False
        return total

    @property
    def cluster_cores(self) -> int:
        """Cores of the machine the trace comes from: as its header says, at least those of the largest job."""
        largest = int(self.requested_cores.max())
        for key in ("MaxProcs", "nb_res"):
            try:
                return max(int(self.header[key]), largest)
            except (KeyError, TypeError, ValueError):
                continue
        return largest

    @property
    def offered_load(self) -> float:
        """Core-seconds asked for, by what `cluster_cores` cores could give until the last submission."""
        span = float(self.submission_time[-1])
        work = float(np.dot(self.runtime, self.requested_cores))
        return work / (self.cluster_cores * span) if span > 0 else np.inf


def _column(key: str, value: Any, jobs: int, source: str) -> np.ndarray:
    """One column as an array of its type, checked."""
    if key in _OBJECTS:
        return _objects(key, _OBJECTS[key] if value is None else value, jobs, source)
    if key == "job_id":
        ids = np.asarray(value)
        return (
            ids.astype(np.int64)
            if ids.dtype.kind in "iu" and ids.shape == (jobs,)
            else _objects(key, value, jobs, source)
        )
    if value is None:
        value = False if key == "fixed_duration" else _FLOATS.get(key, _INTS.get(key))
    try:
        column: np.ndarray = np.asarray(value, np.bool_ if key == "fixed_duration" else np.float64)
        column = np.broadcast_to(column, jobs)
    except (TypeError, ValueError) as error:
        raise WorkloadError(f"{key}: expected {jobs} numbers: {error}", where=source) from error
    if key in _FLOATS:
        _require(~np.isnan(column), key, column, "a number", source)
        if key == "walltime":
            _require(column > 0, key, column, "more than 0 s (inf = no limit)", source)
        else:
            _require(np.isfinite(column), key, column, "a finite number", source)
            if key not in ("submission_time", "original_submission_time"):
                _require(column >= 0, key, column, "at least 0", source)
    elif key in _INTS:
        _require(column == np.floor(column), key, column, "a whole number", source)
        least = {"requested_cores": 1, "requested_gpus": 0}.get(key)
        if least is not None:
            _require(column >= least, key, column, f"at least {least}", source)
        column = column.astype(np.int64)
    return np.array(column)


def _objects(key: str, value: Any, jobs: int, source: str) -> np.ndarray:
    column = np.empty(jobs, object)
    try:
        column[:] = value
    except ValueError as error:
        raise WorkloadError(f"{key}: expected {jobs} values: {error}", where=source) from error
    return column


def _require(good: np.ndarray, key: str, column: np.ndarray, expected: str, source: str) -> None:
    if not good.all():
        row = int(np.argmin(good))
        raise WorkloadError(f"{key}[{row}]: expected {expected}, got {column[row]}", where=source)


def _frozen(columns: dict[str, np.ndarray]) -> dict[str, Any]:
    for column in columns.values():
        column.flags.writeable = False
    return columns


def load_workload(
    path: str | Path,
    platform: Platform | None = None,
    *,
    jobs: int | None = None,
    start: int = 0,
    arrival_factor: float = 1.0,
    seed: int = 0,
    memory_bandwidth: str | float = "draw",
    memory: str | float = "trace",
    runtime: str = "trace",
    walltime: str = "trace",
    strict: bool = False,
    name: str = "w0",
) -> Workload:
    """Reads jobs from a trace.

    Jobs that cannot be replayed (a negative run time or submission time, no processors, larger than the platform) are
    dropped first, then jobs are sorted by submission, then bandwidths and run times are drawn, then `start` and `jobs`
    select: a part of a trace is the same whichever part is taken.

    Args:
        path: SWF, or Batsim/HDeepRM JSON (known by ``.json``); each may be gzip.
        platform: The platform to replay on. Without one no job is too large. JSON files whose profiles count
            operations need one, for its reference speed.
        jobs: How many jobs to take, None = all.
        start: Index of the first job to take.
        arrival_factor: Multiplies inter-arrival times.
        seed: Of the draws.
        memory_bandwidth: GB/s a core of all jobs, "none", "trace" (SWF: none), or "draw": one of :data:`BANDWIDTHS`
            for each job of an SWF file, while the jobs of a JSON file keep their own.
        memory: MB a core of all jobs, "none", or "trace".
        runtime: "trace"; "requested" (the estimates are exact); or "hdeeprm" (a random share of the requested time,
            :data:`RUNTIME_SHARES`). Jobs with programs always keep theirs.
        walltime: Kill limit: "trace" (SWF has none), "requested" (the requested time) or "none".
        strict: A job that cannot be replayed is an error.
        name: Name of the workload.

    Raises:
        WorkloadError: The file cannot be read, is malformed or leaves no job, or an argument is not allowed.
    """
    _choice("runtime", runtime, ("trace", "requested", "hdeeprm"))
    _choice("walltime", walltime, ("trace", "requested", "none"))
    if jobs is not None and jobs < 1:
        raise WorkloadError(f"expected at least 1 job or null for all, got {jobs}", where="workload.jobs")
    raw, digest = _read(path, platform.reference_gflops if platform else None)
    from hdsim.workload.raw import raise_faults

    raise_faults(raw.errors, path)
    faults = _impossible(raw, platform)
    if faults and strict:
        raise_faults(tuple(error for errors in faults.values() for error in errors), path)
    columns = _without(raw, faults, path)
    if (np.diff(columns["submission_time"]) < 0).any():
        _log.warning("%s: submission times out of order; the jobs are sorted", path)
    workload = Workload.from_columns(
        **columns,
        profiles=raw.profiles,
        name=name,
        source=str(path),
        sha256=digest,
        header=raw.header,
        dropped=tuple(errors[0] for errors in faults.values()),
        reference_gflops=platform.reference_gflops if platform and raw.profiles else None,
    )
    if memory_bandwidth == "draw" and "memory_bandwidth" in columns:
        memory_bandwidth = "trace"
    workload = _synthesised(workload, seed, memory_bandwidth, memory, runtime, walltime)
    if start or jobs is not None:
        if not 0 <= start < len(workload):
            raise WorkloadError(
                f"expected a first job from 0 to {len(workload) - 1}, got {start} ({len(workload)} jobs in {path})",
                where="workload.start",
            )
        if jobs is not None and start + jobs > len(workload):
            _log.warning("%s: %d jobs asked for from job %d on, there are %d", path, jobs, start, len(workload) - start)
        workload = workload[start : None if jobs is None else start + jobs]
    return workload if arrival_factor == 1.0 else workload.scaled_arrivals(arrival_factor)


def validate_workload(path: str | Path, platform: Platform | None = None) -> list[WorkloadError]:
    """All faults of a workload file: malformed places and jobs that cannot be replayed.

    Args:
        path: SWF or Batsim/HDeepRM JSON, possibly gzip.
        platform: Also check that each job fits on it.
    """
    try:
        raw, _ = _read(path, platform.reference_gflops if platform else 1.0)
    except WorkloadError as error:
        return [fault for fault in error.errors if isinstance(fault, WorkloadError)]
    impossible = [error for errors in _impossible(raw, platform).values() for error in errors]
    return [*raw.errors, *impossible]


def is_json(path: str | Path) -> bool:
    """Whether the file's name says it is Batsim JSON, packed or not."""
    return ".json" in Path(path).suffixes[-2:]


def _read(path: str | Path, reference_gflops: float | None) -> tuple[RawJobs, str]:
    if is_json(path):
        from hdsim.workload.batsim_json import read_batsim

        return read_batsim(path, reference_gflops)
    from hdsim.workload.swf import read_swf

    return read_swf(path)


def _impossible(raw: RawJobs, platform: Platform | None) -> dict[int, list[WorkloadError]]:
    """Row -> why that job cannot be replayed."""
    columns = raw.columns
    cores, memory = columns["requested_cores"], columns["memory"]
    faults: dict[int, list[WorkloadError]] = {}

    def check(good: np.ndarray, column: str, expected: str, got: np.ndarray) -> None:
        for row in np.flatnonzero(~good).tolist():
            error = WorkloadError(f"expected {expected}, got {got[row]:g}", where=raw.where(row, column))
            faults.setdefault(row, []).append(error)

    largest = f"1 to {platform.n_cpu_cores} (the platform's cores)" if platform else "at least 1"
    fits = cores >= 1
    if platform:
        fits &= cores <= platform.n_cpu_cores
    check(fits, "requested_cores", largest, cores)
    for column in ("submission_time", "runtime"):
        check(columns[column] >= 0, column, "at least 0 s", columns[column])
    if platform:
        gpus = columns.get("requested_gpus", np.zeros_like(cores))
        room = cores_with_memory(platform, memory, np.maximum(cores, 1), gpus)
        for row in np.flatnonzero(fits & (room < cores)).tolist():
            if gpus[row]:
                parts = math.gcd(cores[row], gpus[row])
                column = "requested_gpus"
                message = (
                    f"expected room for {parts} x {cores[row] // parts} cores and {gpus[row] // parts} GPUs, each of "
                    f"these on one node, got a platform with room for {room[row] * parts / cores[row]:g}"
                )
            else:
                column = "memory"
                message = (
                    f"expected memory for {cores[row]} cores, got {memory[row]:g} MB a core, "
                    f"which the platform's nodes have for {room[row]:g} cores"
                )
            faults.setdefault(row, []).append(WorkloadError(message, where=raw.where(row, column)))
    return dict(sorted(faults.items()))


def cores_with_memory(platform: Platform, memory: Floats, cores: Ints | int = 1, gpus: Ints | int = 0) -> Floats:
    """How large a job may be on an empty platform.

    Args:
        platform: The platform.
        memory: (J,) MB a core.
        cores: (J,) cores of each job, and
        gpus: (J,) its GPUs, whose proportion must be the same on each of its nodes.

    Returns:
        (J,) cores that the platform's nodes can give to a job that takes so much memory with each, and so many GPUs.
    """
    needed = in_bytes(memory)
    parts = np.gcd(cores, gpus)
    cores_of_part, gpus_of_part = cores // parts, gpus // parts
    room = np.zeros(len(memory))
    with np.errstate(divide="ignore", invalid="ignore"):
        for (idle, devices, capacity), count in platform.node_kinds:
            held = np.where(needed > 0, np.floor(capacity / needed), np.inf)
            fitting = np.minimum(idle, held) // cores_of_part
            served = np.where(gpus_of_part > 0, devices // gpus_of_part, np.inf)
            room += count * np.minimum(fitting, served) * cores_of_part
    return room


def _without(raw: RawJobs, faults: dict[int, list[WorkloadError]], path: str | Path) -> dict[str, np.ndarray]:
    """The columns without the rows at fault, which are counted in one warning."""
    jobs = len(raw.columns["runtime"])
    if not faults:
        return raw.columns
    reasons = Counter(errors[0].where.rpartition(": ")[2] for errors in faults.values() if errors[0].where)
    first = next(iter(faults.values()))[0]
    if len(faults) == jobs:
        raise WorkloadError(f"expected at least one job that can be replayed, all {jobs} cannot; the first: {first}")
    counted = ", ".join(f"{count} x {reason}" for reason, count in reasons.most_common(5))
    _log.warning("%s: dropped %d of %d jobs (%s); the first: %s", path, len(faults), jobs, counted, first)
    keep = np.ones(jobs, bool)
    keep[list(faults)] = False
    return {key: column[keep] for key, column in raw.columns.items()}


def _synthesised(
    workload: Workload, seed: int, memory_bandwidth: str | float, memory: str | float, runtime: str, walltime: str
) -> Workload:
    bandwidth_rng, runtime_rng = (np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(2))
    new: dict[str, Any] = {}
    if memory_bandwidth == "draw":
        new["memory_bandwidth"] = bandwidth_rng.choice(BANDWIDTHS, len(workload))
    elif memory_bandwidth != "trace":
        new["memory_bandwidth"] = _amount("memory_bandwidth", memory_bandwidth, "draw")
    if memory != "trace":
        new["memory"] = _amount("memory", memory, "trace")
    if runtime != "trace":
        drawn = workload.requested_time
        if runtime == "hdeeprm":
            drawn = drawn * runtime_rng.choice(RUNTIME_SHARES, len(workload), p=RUNTIME_PROBABILITIES)
        # What a program says cannot be said otherwise by one number.
        rigid = [program is None for program in workload.program.tolist()]
        new["runtime"] = np.where(rigid, drawn, workload.runtime)
    if walltime != "trace":
        requested = np.where(workload.requested_time > 0, workload.requested_time, np.inf)
        new["walltime"] = requested if walltime == "requested" else np.inf
    return workload.replaced(**new) if new else workload


def _amount(key: str, value: str | float, other: str) -> float:
    """A constant from a setting that is a number or "none", and no longer the word `other`."""
    if value == "none":
        return 0.0
    try:
        amount = float(value)
    except ValueError:
        amount = np.nan
    if not (np.isfinite(amount) and amount >= 0):
        raise WorkloadError(
            f"expected '{other}', 'none' or a number of at least 0, got '{value}'", where=f"workload.{key}"
        )
    return amount


def _choice(key: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise WorkloadError(
            f"expected one of {', '.join(allowed)}, got '{value}'{nearest(value, allowed)}", where=f"workload.{key}"
        )
