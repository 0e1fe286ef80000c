"""The workload model: read-only columns with one row per job.

Times are in seconds, memory in MB (10^6 byte) per core, bandwidth in GB/s per core. Run times and requested times refer
to the reference speed (the mean speed of the cores of the platform) and scale inversely with the speed of a core.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hdsim.errors import WorkloadError, nearest
from hdsim.util.arrays import Floats, Ints, read_only
from hdsim.util.copies import itself
from hdsim.workload.programs import StepType, parts_of
from hdsim.workload.raw import LIMITS

#: Columns by type with their default values (None: required).
FLOATS: dict[str, float | None] = {
    "submission_time": None,
    "original_submission_time": None,
    "runtime": None,
    "requested_time": None,
    "walltime": np.inf,
    "memory": 0.0,
    "memory_bandwidth": 0.0,
    "cpu": 1.0,
    "storage": 0.0,
}
INTS: dict[str, int | None] = {
    "requested_cores": None,
    "requested_gpus": 0,
    "user": -1,
    "group": -1,
    "queue": -1,
    "partition": -1,
    "executable": -1,
    "status": -1,
    "return_code": 0,
    "priority": 0,
}
_OBJECTS = {"profile": "", "extra": None, "program": None, "gang": None, "constraints": None}
#: Columns of numbers and ids, which files have; names of other columns may also be those of columns of one's own.
PLACED = ("job_id", *FLOATS, *INTS, "fixed_duration")
COLUMNS = (*PLACED, *_OBJECTS)


@dataclass(frozen=True, eq=False, kw_only=True)
class Workload:
    """Jobs in order of submission, ties in file order. Each column is a read-only (J,) array.

    A workload is read by :func:`hdsim.workload.load.load_workload` or created by :meth:`from_columns`.

    Attributes:
        job_id: int64, or object if the file has other ids.
        submission_time: Seconds, 0 for the first job.
        original_submission_time: Seconds on the clock of the trace.
        runtime: Reference seconds, >= 0 (traces with coarse clocks contain 0).
        requested_time: Reference seconds, the user's estimate.
        walltime: Seconds after which the job is killed, inf = never.
        requested_cores: int64, >= 1.
        requested_gpus: int64, >= 0, GPUs of the whole job, in proportion to its cores on each node.
        memory: MB per core, 0 = none or unknown.
        memory_bandwidth: GB/s per core, 0 = none.
        cpu: Cores that each requested core takes, such as 0.5; other than 1 only where cores have no ids.
        storage: MB of ephemeral storage per core, other than 0 only where cores have no ids.
        user, group, queue, partition, executable: int64, -1 = unknown.
        status: int64, SWF field 11, -1 = unknown.
        fixed_duration: bool, the duration does not depend on the speed of the cores (delay profiles of Batsim).
        return_code: int64, profile field ``ret`` of Batsim; a job with a code other than 0 fails.
        priority: int64, priority of the pods of a job, 0 by default; higher ones first under the order ``priority``.
        profile: object, name of the Batsim profile, "" for none.
        extra: object, further fields of a Batsim job as a dict, or None.
        program: object, :class:`hdsim.workload.programs.Program`, None for a rigid job that only computes.
        gang: object, :class:`hdsim.gangs.simulation.Gang`, None for a job whose allocation does not change by itself.
        constraints: object, :class:`hdsim.workload.constraints.Constraints` of the pods of a job, None for a job that
            may be on any node without taints; other than None only where cores have no ids.
        further: Columns of one's own by name, (J,) arrays each, such as those of a Parquet file; see `own_column`.
        profiles: Batsim profiles by name, verbatim.
        names: Names behind the numbers of the columns user, group, queue, partition and executable, by column, where
            the file has names.
        name: Name of the workload in job ids of Batsim (``w0!1``).
        source: Origin of the jobs.
        sha256: Digest of the file, None without a file.
        header: Header fields of the file (SWF: MaxProcs, UnixStartTime ...; Batsim: nb_res ...).
        dropped: Fault of each infeasible job of the file.
        settings: Arguments of :func:`hdsim.workload.load.load_workload`; empty for other jobs, also for some of its.
        reference_gflops: Speed that `runtime` refers to in GFLOP/s, None if the file has seconds.
        site: Rules of the site that ran the jobs, a :class:`hdsim.site.model.Site`, None where they are not known.
        used: Usage of the site's accounts before the jobs, a :class:`hdsim.site.accounts.Used`, None for none.
    """

    __deepcopy__ = itself

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
    cpu: Floats
    storage: Floats
    user: Ints
    group: Ints
    queue: Ints
    partition: Ints
    executable: Ints
    status: Ints
    fixed_duration: NDArray[np.bool_]
    return_code: Ints
    priority: Ints
    profile: NDArray[np.object_]
    extra: NDArray[np.object_]
    program: NDArray[np.object_]
    gang: NDArray[np.object_]
    constraints: NDArray[np.object_]
    further: dict[str, NDArray[Any]] = field(default_factory=dict)
    profiles: dict[str, dict[str, Any]] = field(default_factory=dict)
    names: dict[str, dict[int, str]] = field(default_factory=dict)
    name: str = "w0"
    source: str = "<columns>"
    sha256: str | None = None
    header: dict[str, Any] = field(default_factory=dict)
    dropped: tuple[WorkloadError, ...] = ()
    reference_gflops: float | None = None
    site: Any = None
    used: Any = None
    settings: dict[str, Any] = field(default_factory=dict, init=False)

    @classmethod
    def from_columns(
        cls, *, submission_time: ArrayLike, runtime: ArrayLike, requested_cores: ArrayLike, **given: Any
    ) -> Workload:
        """Creates a workload from columns, which are copied, sorted by submission and shifted to start at 0.

        Args:
            submission_time: (J,) seconds; also the default of `original_submission_time`.
            runtime: (J,) reference seconds.
            requested_cores: (J,) cores.
            **given: Further columns, (J,) or one value for all jobs. Defaults: job ids 0 to J-1, requested time = run
                time, no walltime, no memory, no bandwidth, everything else unknown. `extra` also takes columns of
                one's own by name, such as ``{"deadline": [60, 90]}``. And attributes of the workload that are no
                columns, such as `further`, `profiles`, `header` and `source`, also the place in error messages.

        Raises:
            WorkloadError: There is no job, a column is unknown or of a wrong length, or a value is not allowed.
        """
        others = {key: value for key in _OTHERS if (value := given.pop(key, None)) is not None}
        source = others.get("source", cls.source)
        given |= {"submission_time": submission_time, "runtime": runtime, "requested_cores": requested_cores}
        for key in given:
            if key not in COLUMNS:
                allowed, near = ", ".join(COLUMNS), nearest(key, (*COLUMNS, *_OTHERS))
                raise WorkloadError(f"unknown column '{key}'{near}; allowed: {allowed}", where=source)
        jobs = np.size(submission_time)
        if jobs == 0:
            raise WorkloadError("expected at least one job, got none", where=source)
        given.setdefault("job_id", np.arange(jobs))
        given.setdefault("original_submission_time", submission_time)
        given.setdefault("requested_time", runtime)
        made = {key: _column(key, given.get(key), jobs, source) for key in COLUMNS}
        further = _further(others.pop("further", {}), jobs, source)
        order = np.argsort(made["submission_time"], kind="stable")
        if not np.array_equal(order, np.arange(jobs)):
            made = {key: column[order] for key, column in made.items()}
            further = {name: column[order] for name, column in further.items()}
        made["submission_time"] = made["submission_time"] - made["submission_time"][0]
        return cls(**_frozen(made), further=_frozen(further), **others)

    @classmethod
    def empty(cls, source: str = "<empty>") -> Workload:
        """Creates a workload without jobs, for backends whose jobs are not known before time 0."""
        columns = {key: _column(key, None, 0, source) for key in COLUMNS if key != "job_id"}
        return cls(**_frozen({"job_id": np.zeros(0, np.int64), **columns}), source=source)

    def __len__(self) -> int:
        return len(self.runtime)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restores a pickled workload; pickling loses the read-only flag of arrays."""
        _frozen({key: state[key] for key in COLUMNS} | state["further"])
        self.__dict__.update(state)

    def __repr__(self) -> str:
        return f"<Workload {self.source}: {len(self):,} jobs>"

    def __getitem__(self, jobs: slice) -> Workload:
        if not isinstance(jobs, slice):
            raise TypeError(f"expected a slice such as workload[10:20], got {jobs!r}; see Workload.select")
        return self.select(jobs)

    def select(self, jobs: slice | ArrayLike) -> Workload:
        """Returns some jobs (slice, mask or indices) in order of submission, the first one submitted at 0.

        Raises:
            WorkloadError: No job is selected, or an index is out of range.
        """
        everything = np.arange(len(self))
        try:
            # A slice has no job twice, and sorting takes a tenth of the time of np.unique.
            rows = np.sort(everything[jobs]) if isinstance(jobs, slice) else np.unique(everything[np.asarray(jobs)])
        except IndexError as error:
            raise WorkloadError(f"cannot select from {len(self)} jobs: {error}", where=self.source) from error
        if not len(rows):
            raise WorkloadError(
                f"expected at least one of {len(self)} jobs to be selected, got none", where=self.source
            )
        columns = self.columns_at(rows)
        columns["submission_time"] = read_only(columns["submission_time"] - columns["submission_time"][0])
        profiles = parts_of(set(columns["profile"].tolist()), self.profiles) if self.profiles else {}
        return dataclasses.replace(self, **columns, profiles=profiles)

    def columns_at(self, rows: slice | Ints) -> dict[str, Any]:
        """The columns of some jobs and `further`, as :func:`dataclasses.replace` takes them."""
        further = {name: read_only(column[rows]) for name, column in self.further.items()}
        return {**_frozen({key: getattr(self, key)[rows] for key in COLUMNS}), "further": further}

    def rows(self, first: int) -> Workload:
        """The jobs from a row on, their times on the clock of all; they may be none."""
        return dataclasses.replace(self, **self.columns_at(slice(first, None)))

    def scaled_arrivals(self, factor: float) -> Workload:
        """Returns the workload with inter-arrival times scaled by a factor and the same `original_submission_time`.

        Raises:
            WorkloadError: The factor is negative or not finite.
        """
        if not (np.isfinite(factor) and factor >= 0):
            raise WorkloadError(f"arrival_factor: expected a finite number of at least 0, got {factor}")
        with np.errstate(over="ignore"):  # infinite times are refused
            times = self.submission_time * factor
        return self.replaced(submission_time=times)

    def replaced(self, **columns: ArrayLike) -> Workload:
        """Returns the workload with some columns replaced, by (J,) values or one for all jobs; submission times ascend.

        Raises:
            WorkloadError: A column has the wrong length or a value is not allowed.
        """
        made = {key: _column(key, value, len(self), self.source) for key, value in columns.items()}
        return dataclasses.replace(self, **_frozen(made))

    @cached_property
    def own_names(self) -> tuple[str, ...]:
        """Names of the columns of `further`, and of the fields of `extra` that some job has."""
        fields = (key for one in self.extra.tolist() if one for key in one)
        return tuple(dict.fromkeys([*self.further, *fields]))

    def own_column(self, name: str) -> NDArray[Any]:
        """Returns a column of `further`, or else a field of `extra` as a (J,) column.

        Numbers of `extra` are float64, NaN where a job has none; other values are objects, None where a job has none.

        Raises:
            WorkloadError: There is no such column and no job has the field.
        """
        if name in self.further:
            return self.further[name]
        if name not in self._own_columns:
            self._own_columns[name] = self._own_column(name)
        return self._own_columns[name]

    def own_fields(self, job: int) -> dict[str, Any]:
        """Returns the values of a job in `further` and `extra`."""
        fields = dict(self.extra[job] or {})
        for name, column in self.further.items():
            value = column[job]
            fields[name] = value.item() if isinstance(value, np.generic) else value
        return fields

    @cached_property
    def _own_columns(self) -> dict[str, NDArray[Any]]:
        return {}

    def _own_column(self, name: str) -> NDArray[Any]:
        if name not in self.own_names:
            message = f"expected a field of some job, got '{name}'{nearest(name, self.own_names)}; there are: "
            raise WorkloadError(f"{message}{', '.join(self.own_names) or 'none'}", where=self.source)
        fields: list[Mapping[str, Any]] = [one or {} for one in self.extra.tolist()]
        values = [one.get(name) for one in fields]
        if all(value is None or isinstance(value, int | float) for value in values):
            column = np.array([math.nan if value is None else float(value) for value in values])
        else:
            column = _objects(name, values, len(self), self.source)
        return read_only(column)

    @cached_property
    def trace_time(self) -> Floats:
        """(J,) submission times for files in seconds, on the clock of the trace unless arrivals were changed."""
        original = self.original_submission_time
        return original if np.array_equal(original - original[0], self.submission_time) else self.submission_time

    @cached_property
    def has_programs(self) -> bool:
        """Whether any job has a program."""
        return self.program.tolist().count(None) < len(self)

    @cached_property
    def has_gangs(self) -> bool:
        """Whether any job is a gang."""
        return self.gang.tolist().count(None) < len(self)

    @cached_property
    def has_constraints(self) -> bool:
        """Whether any job has placement constraints."""
        return self.constraints.tolist().count(None) < len(self)

    @cached_property
    def ends_in_delay(self) -> NDArray[np.bool_]:
        """Which jobs end in a delay, (J,): at its walltime a delay is stopped, while a computation completes.

        Source: Batsim 4.2.1, where SimGrid's timeout comes after the end of an execution at the same date.
        """
        last = [program is not None and program.steps[-1].kind == StepType.DELAY for program in self.program.tolist()]
        return self.fixed_duration | np.array(last, np.bool_)

    @cached_property
    def asks_for_gpus(self) -> bool:
        """Whether any job requests GPUs."""
        return bool(self.requested_gpus.any())

    @cached_property
    def requested_resources(self) -> Ints:
        """(J,) requested cores and GPUs together."""
        if not self.asks_for_gpus:
            return self.requested_cores
        return read_only(self.requested_cores + self.requested_gpus)

    @property
    def cluster_cores(self) -> int:
        """Cores of the machine of the trace: the value of the header, at least those of the largest job."""
        largest = int(self.requested_cores.max())
        for key in ("MaxProcs", "nb_res"):
            try:
                return max(int(self.header[key]), largest)
            except (KeyError, TypeError, ValueError):
                continue
        return largest

    @property
    def offered_load(self) -> float:
        """Requested core-seconds relative to those of `cluster_cores` cores until the last submission."""
        span = float(self.submission_time[-1])
        work = float(np.dot(self.runtime, self.requested_cores))
        return work / (self.cluster_cores * span) if span > 0 else np.inf


#: Attributes of a workload that are no columns and may be given.
_OTHERS = tuple(each.name for each in dataclasses.fields(Workload) if each.init and each.name not in COLUMNS)


def _column(key: str, value: Any, jobs: int, source: str) -> np.ndarray:
    """Returns a column as a checked array of its type."""
    if key == "extra" and isinstance(value, Mapping):
        value = _fields_of_jobs(value, jobs, source)
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
        value = False if key == "fixed_duration" else FLOATS.get(key, INTS.get(key))
    try:
        column: np.ndarray = np.asarray(value, np.bool_ if key == "fixed_duration" else np.float64)
        column = np.broadcast_to(column, jobs)
    except (TypeError, ValueError) as error:
        raise WorkloadError(f"{key}: expected {jobs} numbers: {error}", where=source) from error
    if key in FLOATS:
        _require(~np.isnan(column), key, column, "a number", source)
        if key == "walltime":
            _require(column > 0, key, column, "more than 0 s (inf = no limit)", source)
        else:
            _require(np.isfinite(column), key, column, "a finite number", source)
            if key not in ("submission_time", "original_submission_time"):
                _require(column >= 0, key, column, "at least 0", source)
            if key in LIMITS:
                limit, unit = LIMITS[key]
                _require(column <= limit, key, column, f"at most {limit:g} {unit}", source)
    elif key in INTS:
        _require(column == np.floor(column), key, column, "a whole number", source)
        least = {"requested_cores": 1, "requested_gpus": 0}.get(key)
        if least is not None:
            _require(column >= least, key, column, f"at least {least}", source)
        column = column.astype(np.int64)
    return np.array(column)


def _fields_of_jobs(columns: Mapping[str, ArrayLike], jobs: int, source: str) -> list[dict[str, Any] | None]:
    """Returns the fields of each job from columns of the user."""
    lists: dict[str, list[Any]] = {}
    for name, values in columns.items():
        if name in COLUMNS:
            raise WorkloadError(f"expected another name than that of a column, got '{name}'", where=f"{source}: extra")
        try:
            lists[name] = np.broadcast_to(np.asarray(values), jobs).tolist()
        except ValueError as error:
            raise WorkloadError(f"expected {jobs} values: {error}", where=f"{source}: extra['{name}']") from None
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)] or [None] * jobs


def _further(columns: Mapping[str, ArrayLike], jobs: int, source: str) -> dict[str, NDArray[Any]]:
    """Returns copies of columns of one's own; texts are objects."""
    made = {}
    for name, values in columns.items():
        if name in PLACED:
            raise WorkloadError(
                f"expected another name than that of a column, got '{name}'", where=f"{source}: further"
            )
        column = np.array(values)
        column = column.astype(object) if column.dtype.kind in "US" else column
        if column.shape != (jobs,):
            shape = " x ".join(map(str, column.shape))
            raise WorkloadError(f"expected {jobs} values, got {shape}", where=f"{source}: further['{name}']")
        made[name] = column
    return made


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
    return {key: read_only(column) for key, column in columns.items()}


class GrowingWorkload:
    """A workload to which jobs are appended in amortised constant time."""

    def __init__(self, jobs: Workload) -> None:
        self.jobs = jobs  # all jobs; earlier values of this attribute do not change
        # Columns with capacity for further jobs.
        self._buffers: dict[str, np.ndarray] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> GrowingWorkload:
        """Returns a copy with its own capacity."""
        return GrowingWorkload(self.jobs)

    def add(self, jobs: Workload) -> None:
        """Appends jobs, whose submission times are on the same clock."""
        columns: dict[str, Any] = {}
        for key in COLUMNS:
            columns[key] = self._joined(key, getattr(self.jobs, key), getattr(jobs, key))
        # A column that only some of the jobs have is no longer one.
        shared = [name for name in self.jobs.further if name in jobs.further]
        columns["further"] = {name: self._joined(name, self.jobs.further[name], jobs.further[name]) for name in shared}
        profiles = {**self.jobs.profiles, **jobs.profiles} if jobs.profiles else self.jobs.profiles
        self.jobs = dataclasses.replace(self.jobs, **columns, profiles=profiles)

    def _joined(self, key: str, first: np.ndarray, added: np.ndarray) -> np.ndarray:
        """Returns a column with appended values."""
        known, total = len(first), len(first) + len(added)
        column = self._buffers.get(key, first)
        if len(column) < total or column.dtype != added.dtype:
            dtype = column.dtype if column.dtype == added.dtype else object
            buffer = np.empty(max(2 * known, total), dtype)
            buffer[:known] = column[:known]
            self._buffers[key] = column = buffer
        column[known:total] = added
        return read_only(column[:total])
