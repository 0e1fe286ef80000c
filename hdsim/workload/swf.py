"""Standard Workload Format: 18 numbers per line, ``;`` comments, -1 for unknown.

Format: https://www.cs.huji.ac.il/labs/parallel/workload/swf.html
Status (field 11): 0 failed, 1 completed, 2 to 4 partial executions (of a job that was checkpointed or swapped out,
beside the line that sums it up), 5 cancelled, -1 unknown.
"""

from __future__ import annotations

import functools
import io
import logging
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hdsim.errors import WorkloadError
from hdsim.util.arrays import distinct
from hdsim.util.files import write_bytes
from hdsim.util.inputs import read_bytes
from hdsim.util.text import number_in
from hdsim.workload.model import COLUMNS
from hdsim.workload.raw import RawJobs, plain

if TYPE_CHECKING:
    from hdsim.workload.model import Workload

_log = logging.getLogger(__name__)

FIELDS = (
    "job number",
    "submit time",
    "wait time",
    "run time",
    "allocated processors",
    "average CPU time",
    "used memory",
    "requested processors",
    "requested time",
    "requested memory",
    "status",
    "user",
    "group",
    "executable",
    "queue",
    "partition",
    "preceding job",
    "think time",
)
JOB, SUBMIT, WAIT, RUN, ALLOCATED, _, USED_MEMORY, REQUESTED, REQUESTED_TIME, REQUESTED_MEMORY = range(10)
STATUS, USER, GROUP, EXECUTABLE, QUEUE, PARTITION, PRECEDING = range(10, 17)
#: Values of the status: failed; partial executions beside the line of the whole job; cancelled.
FAILED, COMPLETED, PARTIAL, CANCELLED = 0, 1, (2, 3, 4), 5
#: Names of these values.
STATES = {FAILED: "failed", COMPLETED: "completed", **dict.fromkeys(PARTIAL, "partial"), CANCELLED: "cancelled"}

#: Uses of the status.
USES = ("recorded", "queued", "completed", "ignore")
#: Workload columns that are equal to an SWF field.
_IDENTITIES = {
    "job_id": JOB,
    "status": STATUS,
    "user": USER,
    "group": GROUP,
    "executable": EXECUTABLE,
    "queue": QUEUE,
    "partition": PARTITION,
}
#: Those of fields 12 to 16, in the order of the fields.
_OWNERS = ("user", "group", "executable", "queue", "partition")
_WHOLE = (*_IDENTITIES.values(), ALLOCATED, REQUESTED)
#: Integers above this are not exact in float64.
_EXACT = 2.0**53

#: Header keys begin with a capital letter; continuation lines may also contain a colon.
_KEY = re.compile(r"[A-Z][A-Za-z0-9_]*")

#: Begin of a line with a job, and a line of the header. Lines end as for `bytes.splitlines`.
_JOB = re.compile(rb"(?:^|\r)[^\S\r\n]*[^;\s]", re.MULTILINE)
_COMMENT = re.compile(rb"(?:^|\r);([^\r\n]*)", re.MULTILINE)

#: SWF memory is in KB, hdsim memory in MB (10^6 byte).
KB_PER_MB = 1000.0


def read_swf(path: str | Path, *, waits: bool = False) -> tuple[RawJobs, str]:
    """Reads a trace: the jobs in file order with malformed lines as errors, and the sha256 of the file.

    Processors are field 8, else 5; requested time is field 9, else the run time; memory is field 10, else 7, else 0.
    Fields after the 18th are ignored. With `waits`, field 3 is the column ``recorded_wait``, which no replay sees.

    Raises:
        WorkloadError: The file cannot be read or contains no job.
    """
    content, digest = read_bytes(path, WorkloadError, "workload file")
    lines: NDArray[np.int64] | None = None
    errors: tuple[WorkloadError, ...] = ()
    table = _parse_quickly(content)
    if table is None:
        table, lines, errors = _parse_line_by_line(content, path)
    if not len(table) and not errors:
        raise WorkloadError("expected at least one job, got an empty trace", where=str(path))
    if not len(table) and len(errors) > 1:
        _require_fields(content, path)

    @functools.cache
    def line_numbers() -> NDArray[np.int64]:
        return np.array([line for line, _ in _data_lines(content)], np.int64) if lines is None else lines

    requested = table[:, REQUESTED] > 0
    own_memory = table[:, REQUESTED_MEMORY] > 0

    def where(row: int, column: str) -> str:
        number = {
            "submission_time": SUBMIT,
            "runtime": RUN,
            "requested_time": REQUESTED_TIME if table[row, REQUESTED_TIME] > 0 else RUN,
            "requested_cores": REQUESTED if requested[row] or table[row, ALLOCATED] == -1 else ALLOCATED,
            "memory": REQUESTED_MEMORY if own_memory[row] else USED_MEMORY,
        }[column]
        return f"{path}:{line_numbers()[row]}: field {number + 1} ({FIELDS[number]})"

    memory = np.where(own_memory, table[:, REQUESTED_MEMORY], table[:, USED_MEMORY])
    columns: dict[str, np.ndarray] = {
        **{name: table[:, number].astype(np.int64) for name, number in _IDENTITIES.items()},
        # Any negative number stands for an owner that is unknown.
        **{name: np.maximum(table[:, _IDENTITIES[name]], -1).astype(np.int64) for name in _OWNERS},
        "submission_time": table[:, SUBMIT].copy(),
        "runtime": table[:, RUN].copy(),
        "requested_cores": np.where(requested, table[:, REQUESTED], table[:, ALLOCATED]).astype(np.int64),
        "requested_time": np.where(table[:, REQUESTED_TIME] > 0, table[:, REQUESTED_TIME], table[:, RUN]),
        "memory": np.maximum(memory, 0.0) / KB_PER_MB,
    }
    if waits:
        columns["recorded_wait"] = table[:, WAIT].copy()
    elif after := int((table[:, PRECEDING] > 0).sum()):
        told = "%s: the preceding jobs of %d jobs (field 17) are ignored: each is submitted at its recorded time"
        _log.warning(told, path, after)
    return RawJobs(columns, where, header=_header(content), errors=errors), digest


def _parse_quickly(content: bytes) -> NDArray[np.float64] | None:
    """Returns (J, 18) fields, None if any line is malformed."""
    if not _JOB.search(content):
        return np.empty((0, 18))
    try:
        table = np.loadtxt(io.BytesIO(content), comments=";", usecols=range(18), ndmin=2, encoding="latin-1")
    except ValueError:
        return None
    whole = table[:, _WHOLE]
    if np.isfinite(table).all() and (whole == np.floor(whole)).all() and (np.abs(whole) < _EXACT).all():
        return table
    return None


def _parse_line_by_line(
    content: bytes, path: str | Path
) -> tuple[NDArray[np.float64], NDArray[np.int64], tuple[WorkloadError, ...]]:
    """Returns (J, 18) fields and (J,) line numbers of the valid lines, and the faults of the others."""
    rows: list[list[float]] = []
    lines: list[int] = []
    errors: list[WorkloadError] = []
    for line, text in _data_lines(content):
        row, faults = _parse_line(text, f"{path}:{line}")
        if faults:
            errors += faults
        else:
            rows.append(row)
            lines.append(line)
    return np.array(rows, np.float64).reshape(-1, 18), np.array(lines, np.int64), tuple(errors)


def _require_fields(content: bytes, path: str | Path) -> None:
    """Checks that some line has as many fields as a job of SWF; one WorkloadError tells that none has."""
    lines = list(_data_lines(content))
    if any(len(text.split()) >= 18 for _, text in lines):
        return
    number, first = lines[0]
    columns = {word.strip().lower() for word in re.split(r"[|,;\t]", first)}
    sacct = "; it looks like the output of sacct, which `hdsim site import` reads" if "jobid" in columns else ""
    raise WorkloadError(
        "expected an SWF trace with 18 fields a job, a .parquet file or a .json file in the format of Batsim, got "
        f"{len(lines):,} lines with fewer fields, the first '{first[:60]}'{sacct}",
        where=f"{path}:{number}",
    )


def _parse_line(text: str, where: str) -> tuple[list[float], list[WorkloadError]]:
    words = text.split()
    if len(words) < 18:
        return [], [WorkloadError(f"expected 18 fields, got {len(words)}", where=where)]
    row, faults = [], []
    for number, word in enumerate(words[:18]):
        try:
            value = number_in(word)
        except ValueError:
            value = np.nan
        row.append(value)
        whole = number in _WHOLE
        if not np.isfinite(value) or (whole and not (value.is_integer() and abs(value) < _EXACT)):
            expected = "a whole number" if whole else "a finite number"
            faults.append(
                WorkloadError(
                    f"expected {expected} (-1 = unknown), got '{word}'",
                    where=f"{where}: field {number + 1} ({FIELDS[number]})",
                )
            )
    return row, faults


def _data_lines(content: bytes) -> list[tuple[int, str]]:
    """Returns line numbers, from 1, and text of the lines with a job; comments may be in any encoding."""
    numbered = (
        (n, raw.partition(b";")[0].decode("utf-8", "backslashreplace")) for n, raw in enumerate(content.splitlines(), 1)
    )
    return [(number, text) for number, text in numbered if text.strip()]


def _header(content: bytes) -> dict[str, str]:
    """Returns the header comments ``; Key: value``; repeated keys and continuation lines are joined by line breaks."""
    header: dict[str, str] = {}
    last = None
    first = _JOB.search(content)
    for comment in _COMMENT.finditer(content, 0, first.start() if first else len(content)):
        text = comment[1].decode("utf-8", errors="replace").strip()
        key, colon, value = text.partition(":")
        if colon and _KEY.fullmatch(key) and value[:1] in ("", " ", "\t"):
            last, value = key, value.strip()
            header[last] = f"{header[last]}\n{value}" if last in header else value
        elif text and last is not None:
            header[last] += f"\n{text}"
    return header


def write_swf(workload: Workload, path: str | Path) -> None:
    """Writes a trace; equal workloads give equal bytes.

    Bandwidths and others without a field are left out, with a warning; fields 3, 6, 7, 17 and 18 are -1. Submission
    times are those of `Workload.trace_time`.

    Raises:
        WorkloadError: The file cannot be written.
    """
    write_bytes(path, format_swf(workload).encode(), WorkloadError)
    amounts = (workload.cpu != 1).any() or workload.storage.any() or workload.priority.any()
    without = {
        "ids that are no whole numbers": workload.job_id.dtype.kind != "i",
        "names of owners": any(workload.names.values()),
        "memory bandwidths": workload.memory_bandwidth.any(),
        "GPUs": workload.asks_for_gpus,
        "programs": workload.has_programs,
        "gangs": workload.has_gangs,
        "kill limits": np.isfinite(workload.walltime).any(),
        "durations whatever the speed of cores": workload.fixed_duration.any(),
        "demands of pods": amounts or workload.has_constraints,
        "requested times of 0": ((workload.requested_time == 0) & (workload.runtime > 0)).any(),
        "return codes": not np.isin(workload.return_code, (0, 1)).all(),
        "columns of your own": set(workload.own_names) - set(COLUMNS),
    }
    if lost := [name for name, found in without.items() if found]:
        _log.warning("%s: SWF has no place for %s, which are left out", path, ", ".join(lost))


def format_swf(workload: Workload) -> str:
    """Returns a workload as SWF text."""
    header = {
        "Version": "2.2",
        **{key: value for key, value in workload.header.items() if isinstance(value, str) and _KEY.fullmatch(key)},
        "MaxJobs": str(len(workload)),
        "MaxRecords": str(len(workload)),
        "MaxProcs": str(workload.cluster_cores),
    }
    lines = [f"; {key}: {line}".rstrip() for key, value in header.items() for line in value.splitlines() or [""]]
    numbers = (
        workload.job_id if workload.job_id.dtype.kind == "i" else np.arange(1, len(workload) + 1),
        workload.trace_time,
        workload.runtime,
        workload.requested_cores,
        workload.requested_time,
        workload.memory,
        # A job that ends with an error has failed, whatever its status says.
        np.where((workload.return_code != 0) & (workload.status != CANCELLED), FAILED, workload.status),
        *(getattr(workload, name) for name in _OWNERS),
    )
    for job, submit, run, cores, requested, memory, *rest in zip(*(column.tolist() for column in numbers), strict=True):
        kilobytes = _kilobytes(memory) if memory > 0 else -1
        done = f"{job} {plain(submit)} -1 {plain(run)} {cores} -1 -1"
        asked = f"{cores} {plain(requested)} {kilobytes}"
        lines.append(f"{done} {asked} {' '.join(map(str, rest))} -1 -1")
    return "\n".join(lines) + "\n"


def _kilobytes(memory: float) -> int | float:
    """Returns memory in KB that reads back as exactly the given MB if possible."""
    nearest = round(memory * KB_PER_MB)
    return nearest if nearest / KB_PER_MB == memory else memory * KB_PER_MB


def apply_status(raw: RawJobs, use: str, path: str | Path | None = None) -> RawJobs:
    """Leaves out lines that are no jobs to replay, which one warning counts, and makes failures end as failures.

    Partial executions are left out where another line has the whole job, and so are jobs that were cancelled before
    they started: they never took a core. Jobs that failed, or were cancelled while they ran, end as COMPLETED_FAILED
    after their run time.

    `use` is one of `USES`; without a path there is no warning. With "queued", jobs that were cancelled before they
    started are kept, for a scheduler that takes them out of the queue itself.
    """
    if use == "ignore":
        return raw
    status, runtime, ids = (raw.columns[name] for name in ("status", "runtime", "job_id"))
    partial = np.isin(status, PARTIAL)
    whole = set(ids[~partial].tolist())
    partial[partial] = [identity in whole for identity in ids[partial].tolist()]
    left_out = {
        "partial executions (status 2 to 4) of jobs with a line of their own": partial,
        "jobs cancelled before they started (status 5, no run time)": (
            (status == CANCELLED) & (runtime <= 0) & (use != "queued")
        ),
    }
    if use == "completed":
        left_out["jobs that failed, were cancelled or continued"] = ~np.isin(status, (COMPLETED, -1))
    keep, told = np.ones(len(status), bool), []
    for reason, rows in left_out.items():
        if count := int((rows & keep).sum()):
            told.append(f"{count} {reason}")
        keep &= ~rows
    if told:
        what = "workload.status=ignore keeps all lines"
        if path is not None:
            _log.warning("%s: left out %d of %d lines: %s; %s", path, (~keep).sum(), len(keep), ", ".join(told), what)
        raw = raw.at(np.flatnonzero(keep))
    status, runtime = raw.columns["status"], raw.columns["runtime"]
    failed = (status == FAILED) | ((status == CANCELLED) & (runtime > 0))
    if failed.any():
        codes = raw.columns.get("return_code", np.zeros(len(failed), np.int64))
        raw = replace(raw, columns=raw.columns | {"return_code": np.where(failed & (codes == 0), 1, codes)})
    return raw


def distinct_ids(raw: RawJobs, path: str | Path | None = None) -> RawJobs:
    """Gives jobs whose number an earlier line has the number with .1, .2 and so on; a warning counts them.

    Without a path there is no warning.
    """
    ids = raw.columns["job_id"]
    if len(distinct(ids)) == len(ids):
        return raw
    names, seen, taken = [], Counter[int](), set(map(str, ids.tolist()))
    for number in ids.tolist():
        name, copy = str(number), seen[number]
        while copy and (name := f"{number}.{copy}") in taken:
            copy += 1
        seen[number] = copy + 1
        taken.add(name)
        names.append(name)
    if path is not None:
        count, example = len(ids) - len(seen), next(name for name in names if "." in name)
        _log.warning("%s: %d jobs have the number of an earlier one and are named such as %s", path, count, example)
    return replace(raw, columns=raw.columns | {"job_id": np.array(names, object)})
