"""Workloads in Parquet: one row a job, columns with the names of those of a workload, and columns of one's own.

Columns that a file lacks, and values that are null, have the defaults of :mod:`hdsim.workload.model`. Texts in the
columns user, group, queue, partition and executable are names. Every other column becomes one of `Workload.further`.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.errors import WorkloadError
from hdsim.util.arrays import objects
from hdsim.util.files import write_bytes
from hdsim.util.inputs import STANDARD_INPUT, read_bytes
from hdsim.util.plugins import optional
from hdsim.workload.model import COLUMNS, FLOATS, INTS, PLACED, Workload
from hdsim.workload.raw import RawJobs

if TYPE_CHECKING:
    import polars as pl

_REQUIRED = ("submission_time", "runtime", "requested_cores")
#: Columns whose texts are names.
_NAMED = ("user", "group", "queue", "partition", "executable")
#: Key of the file's metadata that has the header as JSON.
_HEADER = "hdsim.header"
_MAGIC = b"PAR1"
#: Integers above this are not exact in float64.
_EXACT = 2.0**53
#: Rows of a part of the file; a fixed number makes equal workloads equal bytes.
_ROW_GROUP = 1 << 17


def is_parquet(path: str | Path) -> bool:
    """Returns whether a file name is that of a workload in Parquet; of standard input, the content."""
    if str(path) == STANDARD_INPUT:
        return read_bytes(path, WorkloadError, "workload file")[0].startswith(_MAGIC)
    return Path(path).suffix == ".parquet"


def read_parquet(path: str | Path) -> tuple[RawJobs, str]:
    """Reads a workload: the jobs in file order with malformed rows as errors, and the sha256 of the file.

    Of columns of one's own, `RawJobs.further`, numbers and truth values keep their types where no
    job lacks one, numbers are float64 with NaN otherwise, everything else is objects with None. Dates become seconds
    since 1970 and durations seconds.

    Raises:
        ConfigError: Polars is not installed.
        WorkloadError: The file cannot be read, is no Parquet, or lacks a column or has one of a wrong type.
    """
    pl = optional("polars")
    content, digest = read_bytes(path, WorkloadError, "workload file")
    if not content.startswith(_MAGIC):
        raise WorkloadError(f"expected a Parquet file (first bytes PAR1), got {content[:4]!r}", where=str(path))
    try:
        frame = pl.read_parquet(io.BytesIO(content), use_statistics=False)
        header = json.loads(pl.read_parquet_metadata(io.BytesIO(content)).get(_HEADER, "{}"))
    except (pl.exceptions.PolarsError, OSError, ValueError) as error:
        raise WorkloadError(f"expected a complete Parquet file: {_line(error)}", where=str(path)) from None
    missing = [name for name in _REQUIRED if name not in frame.columns]
    if missing:
        got = ", ".join(frame.columns[:20]) or "none"
        raise WorkloadError(f"expected the columns {', '.join(missing)} too, got {got}", where=str(path))
    if not frame.height:
        raise WorkloadError("expected at least one job, got an empty table", where=str(path))
    columns: dict[str, np.ndarray] = {"job_id": np.arange(frame.height), "status": np.full(frame.height, -1)}
    further: dict[str, np.ndarray] = {}
    names: dict[str, dict[int, str]] = {}
    for name in frame.columns:
        series = _in_seconds(frame[name], pl)
        if name in _NAMED and series.dtype in (pl.String, pl.Categorical, pl.Enum, pl.Null):
            columns[name], names[name] = _numbered(series.cast(pl.String))
        elif name == "job_id":
            columns[name] = _ids(series, path)
        elif name in PLACED:
            columns[name] = _known(series, frame, path)
        else:
            further[name] = _own(series, pl)
    columns.setdefault("memory", np.zeros(frame.height))
    columns.setdefault("requested_time", columns["runtime"])
    bad = np.zeros(frame.height, np.bool_)
    errors = []
    for name, column in columns.items():
        if name not in (*FLOATS, *INTS):
            continue
        whole = (column == np.floor(column)) & (np.abs(column) < _EXACT)
        good = whole if name in INTS else np.isfinite(column) | (name == "walltime")
        for row in np.flatnonzero(~good & ~bad).tolist():
            expected = "a whole number" if name in INTS else "a finite number"
            got = "none" if math.isnan(column[row]) else f"{column[row]:g}"
            errors.append(WorkloadError(f"expected {expected}, got {got}", where=f"{path}: row {row + 1}: {name}"))
        bad |= ~good
    rows = np.flatnonzero(~bad)
    made = {name: column[rows] for name, column in columns.items()}
    made |= {name: column.astype(np.int64) for name, column in made.items() if name in INTS}

    def where(row: int, column: str) -> str:
        return f"{path}: row {rows[row] + 1}: {column}"

    further = {name: column[rows] for name, column in further.items()}
    return RawJobs(made, where, header=header, errors=tuple(errors), names=names, further=further), digest


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _in_seconds(series: pl.Series, pl: Any) -> pl.Series:
    """Returns dates as seconds since 1970, durations as seconds and other columns as they are."""
    if series.dtype == pl.Datetime:
        return series.dt.epoch("us") / 1e6
    if series.dtype == pl.Duration:
        return series.dt.total_microseconds() / 1e6
    return series


def _numbered(series: pl.Series) -> tuple[np.ndarray, dict[int, str]]:
    """Returns numbers for texts, in alphabetical order from 0, -1 for none; and the texts by number."""
    known = sorted({name for name in series.unique().to_list() if name})
    numbers = {name: number for number, name in enumerate(known)}
    column = np.array([numbers.get(name, -1) for name in series.to_list()], np.int64)
    return column, dict(enumerate(known))


def _ids(series: pl.Series, path: str | Path) -> np.ndarray:
    """Returns the ids of jobs: int64, or objects."""
    if series.null_count():
        row = int(series.is_null().arg_max() or 0)
        raise WorkloadError("expected an id, got none", where=f"{path}: row {row + 1}: job_id")
    if series.dtype.is_integer():
        return series.to_numpy().astype(np.int64)
    return objects(series.to_list())


def _known(series: pl.Series, frame: pl.DataFrame, path: str | Path) -> np.ndarray:
    """Returns a column of a workload as float64, the default where a job has none; NaN is none too."""
    name = series.name
    if name == "fixed_duration" and not series.dtype.is_numeric():
        series = series.cast(int, strict=False)
    if not (series.dtype.is_numeric() or series.null_count() == len(series)):
        raise WorkloadError(f"expected numbers, got {series.dtype}", where=f"{path}: {name}")
    column = series.cast(float).to_numpy().copy()
    lacking = np.isnan(column)
    if lacking.any() and name not in _REQUIRED:
        default: Any = FLOATS.get(name, INTS.get(name))
        if name == "requested_time":
            default = frame["runtime"].cast(float).to_numpy()[lacking]
        elif name == "original_submission_time":
            default = frame["submission_time"].cast(float).to_numpy()[lacking]
        column[lacking] = 0 if default is None else default
    return column.astype(np.bool_) if name == "fixed_duration" else column


def _own(series: pl.Series, pl: Any) -> np.ndarray:
    """Returns a column of one's own."""
    if series.dtype.is_numeric():
        numbers: np.ndarray = series.cast(pl.Float64).to_numpy() if series.null_count() else series.to_numpy()
        return numbers.copy()
    if series.dtype == pl.Boolean and not series.null_count():
        return series.to_numpy().copy()
    return objects(series.to_list())


def write_parquet(workload: Workload, path: str | Path) -> None:
    """Writes a workload; equal workloads give equal bytes. Columns of which all values are defaults are left out.

    Submission times are those of `Workload.trace_time`; fields of `extra` become columns.

    Raises:
        ConfigError: Polars is not installed.
        WorkloadError: The file cannot be written, or the format has no place for a job.
    """
    pl = optional("polars")
    for what, found in (
        ("programs", workload.has_programs),
        ("gangs", workload.has_gangs),
        ("placement constraints", workload.has_constraints),
    ):
        if found:
            raise WorkloadError(f"expected jobs without {what}, which Parquet has no place for", where=workload.source)
    plain = Workload.from_columns(**{name: getattr(workload, name) for name in _REQUIRED})
    columns: dict[str, Any] = {}
    ids = workload.job_id.tolist()
    columns["job_id"] = ids if workload.job_id.dtype.kind == "i" else list(map(str, ids))
    columns["submission_time"] = workload.trace_time
    for name in ("runtime", "requested_time", *FLOATS, *INTS, "fixed_duration"):
        column = getattr(workload, name)
        if name in columns or name == "original_submission_time":
            continue
        if name in ("runtime", "requested_time", "requested_cores") or not np.array_equal(column, getattr(plain, name)):
            columns[name] = _written(column, workload.names.get(name, {}))
    own = {key for fields in workload.extra.tolist() for key in fields or ()} - set(COLUMNS)
    columns |= {name: _plain_values(workload.own_column(name)) for name in sorted({*own, *workload.further})}
    frame = pl.DataFrame({name: pl.Series(name, values, strict=False) for name, values in columns.items()})
    write_table(frame, path, workload.header)


def write_table(frame: pl.DataFrame, path: str | Path, header: Mapping[str, Any]) -> None:
    """Writes a table whose columns are those of a workload in Parquet; equal tables give equal bytes.

    Raises:
        WorkloadError: The file cannot be written.
    """
    target = io.BytesIO()
    metadata = {_HEADER: json.dumps(dict(header), sort_keys=True, default=str)} if header else None
    frame.write_parquet(target, row_group_size=_ROW_GROUP, metadata=metadata)
    write_bytes(path, target.getvalue(), WorkloadError)


def _written(column: np.ndarray, names: Mapping[int, str]) -> Any:
    """Returns the values of a column of a workload, null for no limit; numbers with names as these."""
    if names:
        return [None if value == -1 else names.get(value, str(value)) for value in column.tolist()]
    if column.dtype.kind == "f" and np.isinf(column).any():
        return [None if math.isinf(value) else value for value in column.tolist()]
    return column


def _plain_values(column: np.ndarray) -> Any:
    """Returns the values of a column of one's own; those that a column cannot hold together are texts in JSON."""
    if column.dtype != object:
        return (
            [None if math.isnan(value) else value for value in column.tolist()] if column.dtype.kind == "f" else column
        )
    values = column.tolist()
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {str} or kinds <= {bool} or kinds <= {list}:
        return values
    return [value if value is None or isinstance(value, str) else json.dumps(value, default=str) for value in values]
