"""JSON workloads of Batsim, with the profile fields of HDeepRM: ``req_time, req_ops, mem, mem_bw``.

Format: https://batsim.readthedocs.io/en/latest/input-workload.html
"""

from __future__ import annotations

import json
import logging
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import orjson

from hdsim.errors import WorkloadError
from hdsim.util.arrays import objects
from hdsim.util.files import write_bytes
from hdsim.util.inputs import keys_once, parse_json, read_bytes
from hdsim.util.text import shown, unused
from hdsim.util.units import LONGEST_TIME
from hdsim.workload.pods import pod_columns, read_pods, written_pods
from hdsim.workload.programs import Compiler, Program
from hdsim.workload.raw import RawJobs, plain

if TYPE_CHECKING:
    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload

#: Job fields with a meaning; all others are copied verbatim.
_JOB_FIELDS = ("id", "subtime", "res", "profile", "walltime", "kubernetes", "gpus", "nvidia.com/gpu")
_MEANT = frozenset(_JOB_FIELDS)
#: Fields for the GPUs of a job: the name in hdsim and the name of the resource in Kubernetes.
_GPU_FIELDS = _JOB_FIELDS[-2:]
#: Keys of the document besides its header.
_PARTS = ("jobs", "profiles")
_NAMED = ("user", "group", "queue", "partition", "executable")
_IDENTITIES = (*_NAMED, "status")
#: Fields of other systems by which jobs wait for others.
_DEPENDENCIES = ("dependency", "dependencies", "depends", "depends_on", "deps", "preceding_job")
#: Fields of jobs that need no look at their values.
_UNCHECKED = frozenset((*_JOB_FIELDS, "status"))
#: Values of fields that say nothing.
_NOTHING: tuple[Any, ...] = (None, "", -1, [], {})
#: Jobs with equal values of these columns and equal requested times share a profile.
_DEMAND = ("runtime", "fixed_duration", "memory", "memory_bandwidth", "return_code")
_GIGA = 1e9
#: Limit of numbers, since JSON has integers that no float can represent.
_HUGE = 1e300

_log = logging.getLogger(__name__)


class _Demand(NamedTuple):
    """The demand of a profile in the units of the workload columns; NaN for values that it does not have."""

    runtime: float
    fixed_duration: bool
    requested_time: float
    memory: float
    memory_bandwidth: float
    return_code: int
    program: Program | None = None


def read_batsim(path: str | Path, reference_gflops: float | None) -> tuple[RawJobs, str]:
    """Reads a JSON workload to replay: the jobs in file order, and the sha256 of the file.

    Malformed jobs, and those that depend on others, are errors; a warning counts the jobs with fields that change
    nothing. The reference speed in GFLOP/s converts operations of profiles to seconds.

    Raises:
        WorkloadError: The file is not a JSON object with jobs and profiles, or has no job.
    """
    data, digest = read_document(path)
    raw = jobs_of(data, str(path), reference_gflops)
    unused: Counter[str] = Counter()
    errors = list(raw.errors)
    for index, job in enumerate(data["jobs"]):
        if not isinstance(job, dict) or job.keys() <= _UNCHECKED:
            continue
        for key in [key for key in job if key not in _UNCHECKED]:
            value = job[key]
            if value in _NOTHING:
                continue
            where = f"{path}: jobs[{index}].{key}"
            if key in _DEPENDENCIES:
                message = f"expected jobs that wait for no others, which hdsim does not simulate, got {shown(value)}"
                errors.append(WorkloadError(message, where=where))
            elif key not in _NAMED:
                unused[key] += 1
            elif not isinstance(value, str) and not (type(value) is int and value >= 0):
                message = f"expected a name or a whole number of at least 0, got {shown(value)}"
                errors.append(WorkloadError(message, where=where))
    if unused:
        fields = ", ".join(f"{shown(key.encode(errors='replace'))} ({n} jobs)" for key, n in unused.most_common(5))
        more = ", ..." if len(unused) > 5 else ""
        _log.warning("%s: fields of jobs that change nothing: %s%s", path, fields, more)
    return replace(raw, errors=tuple(errors)), digest


def read_document(path: str | Path) -> tuple[Any, str]:
    """Returns the JSON document of a workload file and the sha256 of the file.

    Raises:
        WorkloadError: The file cannot be read or is not JSON.
    """
    content, digest = read_bytes(path, WorkloadError, "workload file")
    return parse_json(content, path, WorkloadError, pairs=keys_once), digest


def jobs_of(data: Any, path: str, reference_gflops: float | None) -> RawJobs:
    """Converts the object of a Batsim JSON workload from `path` to jobs in its order, malformed ones to errors.

    Raises:
        WorkloadError: The document is not an object with jobs and profiles, or has no job.
    """
    jobs, profiles = _parts(data, path)
    errors: list[WorkloadError] = []
    compiler = Compiler(profiles, reference_gflops, path)
    demands: dict[tuple[str, int], _Demand | None] = {}
    rows: list[tuple[Any, ...]] = []
    places: list[int] = []
    seen: set[str] = set()
    for index, job in enumerate(jobs):
        where = f"{path}: jobs[{index}]"
        found = len(errors)
        if not isinstance(job, dict):
            errors.append(WorkloadError(f"expected an object, got {shown(job)}", where=where))
            continue
        identity = job.get("id")
        if isinstance(identity, bool) or not isinstance(identity, int | str):
            errors.append(WorkloadError(f"expected a number or a text, got {shown(identity)}", where=f"{where}.id"))
        elif (text := str(identity)) in seen:
            errors.append(WorkloadError(f"expected unique ids, got {shown(identity)} again", where=f"{where}.id"))
        else:
            seen.add(text)
        submitted = _number(job, "subtime", where, errors)
        cores = _whole(job, "res", where, errors)
        gpus = _gpus(job, where, errors)
        walltime = _walltime(job, where, errors)
        pods = read_pods(job["kubernetes"], f"{where}.kubernetes", errors) if "kubernetes" in job else None
        name = job.get("profile")
        demand = None
        if not isinstance(name, str) or name not in profiles:
            errors.append(
                WorkloadError(
                    f"expected the name of a profile in 'profiles', got {shown(name)}", where=f"{where}.profile"
                )
            )
        elif len(errors) == found:
            if (name, cores) not in demands:
                demands[name, cores] = _demand(name, profiles[name], cores, compiler, path, errors)
            demand = demands[name, cores]
        if len(errors) > found or demand is None:
            continue
        extra = {}
        if not job.keys() <= _MEANT:
            extra = {key: value for key, value in job.items() if key not in _MEANT}
        if "walltime" in job and walltime == math.inf:
            extra["walltime"] = job["walltime"]
        requested = demand.requested_time
        if math.isnan(requested):
            requested = walltime if walltime <= LONGEST_TIME else demand.runtime
        rows.append((identity, submitted, cores, walltime, name, extra or None, requested, gpus, pods, demand))
        places.append(index)
    columns, names = _columns(rows)
    return RawJobs(
        columns,
        lambda row, column: f"{path}: jobs[{places[row]}].{_place_of(column)}",
        header={key: value for key, value in data.items() if key not in _PARTS},
        profiles=profiles,
        errors=tuple(errors),
        names=names,
    )


def _parts(data: Any, path: str | Path) -> tuple[list[Any], dict[str, Any]]:
    if not isinstance(data, dict):
        raise WorkloadError(f"expected an object with 'jobs' and 'profiles', got {shown(data)}", where=str(path))
    jobs, profiles = data.get("jobs"), data.get("profiles")
    if not isinstance(jobs, list):
        raise WorkloadError(f"expected a list, got {shown(jobs)}", where=f"{path}: jobs")
    if not isinstance(profiles, dict):
        raise WorkloadError(f"expected an object, got {shown(profiles)}", where=f"{path}: profiles")
    if not jobs:
        raise WorkloadError("expected at least one job, got an empty list", where=f"{path}: jobs")
    return jobs, profiles


def _columns(rows: list[tuple[Any, ...]]) -> tuple[dict[str, np.ndarray], dict[str, dict[int, str]]]:
    """Returns the columns, and the names behind their numbers by column."""
    of_jobs = zip(*rows, strict=True) if rows else [()] * 10
    ids, submitted, cores, walltime, profile, extra, requested, gpus, pods, demands = of_jobs
    columns: dict[str, np.ndarray] = {
        "job_id": np.array(ids, np.int64) if all(map(_fits, ids)) else objects(ids),
        "submission_time": np.array(submitted, np.float64),
        "requested_cores": np.array(cores, np.int64),
        "walltime": np.array(walltime, np.float64),
        "profile": objects(profile),
        "extra": objects(extra),
        "requested_time": np.array(requested, np.float64),
        "requested_gpus": np.array(gpus, np.int64),
        "fixed_duration": np.array([demand.fixed_duration for demand in demands], np.bool_),
        **pod_columns(pods),
        "program": objects([demand.program for demand in demands]),
        "return_code": np.array([demand.return_code for demand in demands], np.int64),
    }
    for key in ("runtime", "memory", "memory_bandwidth"):
        columns[key] = np.array([getattr(demand, key) for demand in demands], np.float64)
    names: dict[str, dict[int, str]] = {}
    given = {key for fields in extra if fields for key in fields}
    for key in _IDENTITIES:
        if key not in given:
            columns[key] = np.full(len(rows), -1)
            continue
        values = [(fields or {}).get(key, -1) for fields in extra]
        # A number that no column can hold is a name.
        values = [str(value) if type(value) is int and not _fits(value) else value for value in values]
        codes = _codes(values) if key in _NAMED else {}
        if codes:
            names[key] = {code: name for name, code in codes.items()}
        numbers = [codes.get(value, -1) if isinstance(value, str) else value for value in values]
        columns[key] = np.array([value if _fits(value) else -1 for value in numbers], np.int64)
    return columns, names


def _codes(values: list[Any]) -> dict[str, int]:
    """Numbers names in alphabetical order, from the first number above those among the values."""
    first = 1 + max((value for value in values if _fits(value)), default=-1)
    return {name: first + place for place, name in enumerate(sorted({v for v in values if isinstance(v, str) and v}))}


def _fits(value: Any) -> bool:
    return type(value) is int and abs(value) < 2**63


def _place_of(column: str) -> str:
    own = {"submission_time": "subtime", "requested_cores": "res", "requested_gpus": "gpus", "storage": "kubernetes"}
    return own.get(column, f"profile ({column})")


def _demand(
    name: str, profile: Any, cores: int, compiler: Compiler, path: str | Path, errors: list[WorkloadError]
) -> _Demand | None:
    """Reads a profile for a job of some cores; None after a fault, which is appended to `errors`."""
    where = f"{path}: profiles.{name}"
    if not isinstance(profile, dict):
        errors.append(WorkloadError(f"expected an object, got {shown(profile)}", where=where))
        return None
    found = len(errors)
    program = None
    if profile.get("type") == "delay":
        runtime = _number(profile, "delay", where, errors)
    else:
        try:
            # A job without cores is answered where jobs are checked.
            program = compiler.program(name, max(cores, 1))
        except WorkloadError as error:
            errors.append(error)
            return None
        runtime = program.runtime
    demand = _Demand(
        runtime=runtime,
        fixed_duration=profile.get("type") == "delay",
        requested_time=_number(profile, "req_time", where, errors, default=math.nan, least=0),
        memory=_number(profile, "mem", where, errors, default=0.0, least=0),
        memory_bandwidth=_number(profile, "mem_bw", where, errors, default=0.0, least=0),
        return_code=_whole(profile, "ret", where, errors, default=0),
        program=None if program is None or program.is_rigid else program,
    )
    return demand if len(errors) == found else None


def _number(
    values: dict[str, Any],
    key: str,
    where: str,
    errors: list[WorkloadError],
    *,
    default: float | None = None,
    least: float = -math.inf,
) -> float:
    """Returns a finite number of a job or profile; NaN after a fault, which is appended to `errors`."""
    value: Any = values.get(key)
    if (type(value) is float or type(value) is int) and -_HUGE < value < _HUGE and value >= least:
        return float(value)
    if default is not None and key not in values:
        return default
    limit = "" if least == -math.inf else f" of at least {least:g}"
    errors.append(WorkloadError(f"expected a finite number{limit}, got {shown(value)}", where=f"{where}.{key}"))
    return math.nan


def _whole(
    values: dict[str, Any], key: str, where: str, errors: list[WorkloadError], default: int | None = None
) -> int:
    value = values.get(key, default)
    if type(value) is not int or abs(value) >= 2**53:
        errors.append(WorkloadError(f"expected a whole number, got {shown(value)}", where=f"{where}.{key}"))
        return 0
    return value


def _gpus(job: dict[str, Any], where: str, errors: list[WorkloadError]) -> int:
    """Returns the GPUs of a job; values may be texts, as quantities of Kubernetes are."""
    given = [key for key in _GPU_FIELDS if key in job]
    if not given:
        return 0
    counts: dict[str, int] = {}
    for key in given:
        value = job[key]
        found = len(errors)
        number = int(value) if isinstance(value, str) and value.isdecimal() else value
        counts[key] = _whole({key: number}, key, where, errors)
        if counts[key] < 0 and len(errors) == found:
            errors.append(WorkloadError(f"expected at least 0 GPUs, got {shown(value)}", where=f"{where}.{key}"))
    if len(given) > 1 and len(set(counts.values())) > 1:
        errors.append(
            WorkloadError(
                f"expected the GPUs of the job under one name, got {' and '.join(map(str, counts.values()))} under "
                f"{' and '.join(counts)}",
                where=where,
            )
        )
    return max(counts.values())


def _walltime(job: dict[str, Any], where: str, errors: list[WorkloadError]) -> float:
    """Returns the walltime in seconds; an absent value and -1 mean none."""
    if job.get("walltime", -1) == -1:
        return math.inf
    walltime = _number(job, "walltime", where, errors)
    if walltime <= 0:
        errors.append(
            WorkloadError(
                f"expected more than 0 s, or -1 for none, got {shown(job['walltime'])}", where=f"{where}.walltime"
            )
        )
    return walltime


def write_batsim(workload: Workload, path: str | Path, platform: Platform | None = None) -> None:
    """Writes a JSON workload, packed if it is ``.json.gz``; equal workloads give equal bytes.

    See :func:`to_batsim` for the platform.

    Raises:
        WorkloadError: Job ids are not unique, or the file cannot be written.
    """
    write_bytes(path, _text(to_batsim(workload, platform)).encode(), WorkloadError)
    if platform is None and workload.reference_gflops is None and not workload.fixed_duration.all():
        told = (
            "run times become durations whatever the speed of cores; with a platform (--platform) they stay run times"
        )
        _log.warning("%s: %s", path, told)


def _text(content: dict[str, Any]) -> str:
    """Returns the JSON text with one line per job and profile."""
    jobs = ",\n".join(map(_json, content["jobs"]))
    profiles = ",\n".join([f"{_json(name)}:{_json(value)}" for name, value in content["profiles"].items()])
    parts = [f"{_json(key)}:{_json(value)}" for key, value in content.items() if key not in _PARTS]
    parts += [f'"jobs":[\n{jobs}]', f'"profiles":{{\n{profiles}}}']
    return "{" + ",\n".join(parts) + "}\n"


def _json(value: Any) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        # orjson does not support integers of more than 64 bits.
        return json.dumps(value)


def to_batsim(workload: Workload, platform: Platform | None = None) -> dict[str, Any]:
    """Returns a workload as a Batsim JSON object.

    Jobs keep the profiles of their file if these agree with the columns. All other jobs share one profile per distinct
    demand, ``parallel_homogeneous`` if the reference speed is known, otherwise ``delay``. That speed and ``nb_res`` are
    those of the platform, by default those of the workload.

    Raises:
        WorkloadError: Job ids are not unique.
    """
    reference = platform.reference_gflops if platform else workload.reference_gflops
    ids = workload.job_id.tolist()
    seen: set[str] = set()
    for identity in map(str, ids):
        if identity in seen:
            raise WorkloadError(f"expected unique ids, got {identity} again", where=workload.source)
        seen.add(identity)
    profiles = dict(workload.profiles)
    compiler = Compiler(profiles, reference, workload.source)
    kept = {
        (name, cores): _demand(name, profiles[name], cores, compiler, workload.source, [])
        for name, cores in set(zip(workload.profile.tolist(), workload.requested_cores.tolist(), strict=True))
        if name in profiles
    }
    made: dict[tuple[Any, ...], str] = {}
    jobs = []
    demands = [getattr(workload, key).tolist() for key in _DEMAND]
    others = (
        workload.trace_time,
        workload.requested_cores,
        workload.requested_gpus,
        workload.walltime,
        workload.requested_time,
    )
    rows = zip(zip(*demands, strict=True), *(column.tolist() for column in others), strict=True)
    columns = np.stack([getattr(workload, key) for key in _IDENTITIES], axis=1)
    identified, identities = (columns != -1).any(axis=1).tolist(), columns.tolist()
    own, programs, names = workload.extra.tolist(), workload.program.tolist(), workload.profile.tolist()
    pods = written_pods(workload)
    for row, (demand, submitted, cores, gpus, walltime, requested) in enumerate(rows):
        extra = {}
        if own[row] or workload.further:
            extra = {
                key: value
                for key, value in workload.own_fields(row).items()
                if key not in workload.further or not _is_none(value)
            }
        job: dict[str, Any] = {"id": ids[row], "subtime": plain(submitted), "res": cores}
        if gpus:
            job["gpus"] = gpus
        if walltime < math.inf:
            job["walltime"] = plain(walltime)
        if row in pods:
            job["kubernetes"] = pods[row]
        if extra:
            job |= {key: value for key, value in extra.items() if key not in job}
        for column, value in zip(_IDENTITIES, identities[row], strict=True) if extra or identified[row] else ():
            if value != -1:
                named = workload.names.get(column, {}).get(value, value)
                if str(job.get(column)) != str(named):
                    job[column] = named
            elif column in _NAMED and job.get(column) not in _NOTHING:
                del job[column]
        name = names[row]
        said = kept.get((name, cores))
        if programs[row] is not None:
            if said is None:
                raise WorkloadError(f"job {ids[row]}: expected the profile of its program", where=workload.source)
            _, _, memory, bandwidth, code = demand
            says = {"req_time": requested, "mem": memory, "mem_bw": bandwidth, "ret": code}
            if not _says(said, (said.runtime, *demand[1:]), requested, walltime):
                key = (name, *says.values())
                if key not in made:
                    made[key] = unused(name, profiles)
                    profiles[made[key]] = profiles[name] | {word: plain(value) for word, value in says.items()}
                name = made[key]
        elif said is None or not _says(said, demand, requested, walltime):
            name = made.get((*demand, requested))
            if name is None:
                name, profiles_entry = _profile(demand, requested, reference)
                name = unused(name, profiles)
                profiles[name] = profiles_entry
                made[(*demand, requested)] = name
        job["profile"] = name
        jobs.append(job)
    # Jobs without profiles are from other formats, whose headers differ.
    header = dict(workload.header) if workload.profiles else {}
    header["nb_res"] = platform.n_cores if platform else header.get("nb_res", workload.cluster_cores)
    return {**header, "jobs": jobs, "profiles": profiles}


def _is_none(value: Any) -> bool:
    """Whether a column of one's own has no value for a job."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def _says(kept: _Demand, demand: tuple[Any, ...], requested: float, walltime: float) -> bool:
    """Returns whether a profile agrees with the demand of a job."""
    states = kept.runtime, kept.fixed_duration, kept.memory, kept.memory_bandwidth, kept.return_code
    fallback = walltime if walltime < math.inf else kept.runtime
    return states == demand and requested == (fallback if math.isnan(kept.requested_time) else kept.requested_time)


def _profile(demand: tuple[Any, ...], requested: float, reference: float | None) -> tuple[str, dict[str, Any]]:
    """Returns a profile for a demand and a name that is unique for the demand."""
    runtime, fixed, memory, bandwidth, code = demand
    seconds, asked, megabytes, rate = words = [plain(runtime), plain(requested), plain(memory), plain(bandwidth)]
    profile: dict[str, Any]
    if fixed or reference is None:
        profile = {"type": "delay", "delay": seconds, "req_time": asked}
    else:
        operations = reference * _GIGA
        profile = {
            "type": "parallel_homogeneous",
            "com": 0,
            "cpu": runtime * operations,
            "req_time": asked,
            "req_ops": requested * operations,
        }
    profile |= {"mem": megabytes, "mem_bw": rate}
    if code:
        profile["ret"] = code
        words.append(code)
    return "_".join(["delay" if fixed else "job", *map(str, words)]), profile
