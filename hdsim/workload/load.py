"""Reading, filtering, drawing and slicing of workload files."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.errors import WorkloadError, not_one_of
from hdsim.platform.schema import QUANTITIES
from hdsim.util.inputs import STANDARD_INPUT, read_bytes
from hdsim.util.resources import name_of, resolve
from hdsim.util.rules import NULL, SEED, Rule, integers_from, texts
from hdsim.util.text import number_in
from hdsim.workload.batsim_json import read_batsim
from hdsim.workload.feasibility import infeasible_rows
from hdsim.workload.generators.base import generated, is_generator
from hdsim.workload.model import Workload
from hdsim.workload.parquet import is_parquet, read_parquet
from hdsim.workload.pods import as_pods
from hdsim.workload.raw import LIMITS, RawJobs, raise_faults
from hdsim.workload.swf import USES, apply_status, distinct_ids, read_swf

if TYPE_CHECKING:
    from hdsim.platform.model import Platform

#: Memory bandwidth demands in GB/s per core that HDeepRM draws with equal probability.
BANDWIDTHS = (4.0, 8.0, 12.0, 16.0, 20.0, 24.0)
#: Run times of HDeepRM as shares of the requested time, and the probability of each share.
RUNTIME_SHARES = np.arange(1, 26) * 0.05
RUNTIME_PROBABILITIES = np.repeat([0.15, 0.09, 0.07, 0.04, 0.03, 0.02, 0.06, 0.08], [1, 1, 1, 5, 5, 10, 1, 1])

_JOBS = Rule("at least 1 job or null for all", (integers_from(1) | NULL).accepts)

_log = logging.getLogger(__name__)


def load_workload(
    source: str | Path | Mapping[str, Any],
    platform: Platform | None = None,
    *,
    jobs: int | None = None,
    start: int = 0,
    arrival_factor: float = 1.0,
    seed: int = 0,
    memory_bandwidth: str | float | Sequence[float] = "draw",
    memory: str | float = "trace",
    runtime: str = "trace",
    walltime: str = "trace",
    status: str = "recorded",
    strict: bool = False,
    cores_per_pod: int | None = None,
    name: str = "w0",
) -> Workload:
    """Reads a workload from a trace file, or generates it.

    Infeasible jobs (negative run time or submission time, no processors, larger than the platform) are dropped, jobs
    are sorted by submission, bandwidths and run times are drawn, and `start` and `jobs` select a slice. A job has the
    same drawn values in every slice.

    Args:
        source: SWF, or Batsim/HDeepRM JSON (recognised by ``.json``), both possibly gzip, a table in Parquet
            (``.parquet``, see :mod:`hdsim.workload.parquet`), or the name of a bundled trace such as
            ``"lublin_4000"``. A mapping, or the name of a generator (``"lublin"``), generates the trace from `seed`:
            ``{"model": "lublin", "jobs": 10000, "processors": 256, ...}`` with the arguments of
            :func:`hdsim.workload.generators.lublin.generate`; processors (or cores) are by default the platform's.
            ``{"model": "family", "family": "wide", "jobs": 10000, ...}`` draws a trace of a family, see
            :func:`hdsim.workload.generators.families.draw_workload`; a Python file (``"mine.py"``), ``package.Class``
            or the name of an installed package's one is a :class:`hdsim.workload.generators.Generator` of a user.
        platform: The platform of the replay; without it no job is too large. Required for JSON files whose profiles
            count operations, for its reference speed.
        jobs: Number of jobs of the slice, None = all.
        start: Index of the first job of the slice.
        arrival_factor: Factor of inter-arrival times.
        seed: Seed of the draws.
        memory_bandwidth: GB/s per core of all jobs, "none", "trace" (SWF: none), a sequence of which each job draws
            one, or "draw": one of :data:`BANDWIDTHS` for each job of an SWF file; jobs of a JSON file have their own.
        memory: MB per core of all jobs, "none", or "trace".
        runtime: "trace", "requested" (exact estimates), or "hdeeprm" (a random share of the requested time,
            :data:`RUNTIME_SHARES`). Jobs with programs keep their run times.
        walltime: "trace" (SWF has none), "requested" (the requested time) or "none".
        status: Use of field 11 of an SWF file and of the column ``status`` of Parquet: "recorded" (see
            :func:`hdsim.workload.swf.apply_status`, also for "queued"), "completed" (those jobs alone whose status is
            1 or unknown) or "ignore" (each line is a job that succeeds).
        strict: Whether an infeasible job is an error.
        cores_per_pod: See :func:`hdsim.workload.pods.as_pods`; for platforms of kind ``quantities``.
        name: Name of the workload.

    Raises:
        WorkloadError: The file cannot be read, is malformed or has no feasible job, or an argument is not allowed.
        ConfigError: There is no such file, bundled trace or generator, or the seed is not allowed.
    """
    _choice("runtime", runtime, ("trace", "requested", "hdeeprm"))
    _choice("walltime", walltime, ("trace", "requested", "none"))
    _choice("status", status, USES)
    _require("seed", SEED, seed)
    given: dict[str, Any] = {
        "memory_bandwidth": memory_bandwidth,
        "memory": memory,
        "runtime": runtime,
        "walltime": walltime,
        "status": status,
        "strict": strict,
        "cores_per_pod": cores_per_pod,
    }
    source = texts(source)
    if is_generator(source):
        source = {"model": source}
    digest: str | None = None
    if isinstance(source, Mapping):
        settings = {key: value for key, value in source.items() if key != "model"}
        raw, path = generated(source.get("model"), settings, platform, seed)
        given |= {"path": None, "generate": dict(source)}
    else:
        path = str(resolve("workloads", source))
        given |= {"path": name_of("workloads", path), "generate": None}
        raw, digest = _read(path, platform.reference_gflops if platform else None, status)
    raise_faults(raw.errors, path)
    if memory != "trace" and platform is not None and platform.kind == QUANTITIES:
        # The memory of a core decides how many cores a pod has.
        amount = np.full(len(raw.columns["memory"]), _amount("memory", memory, "trace"))
        raw, memory = replace(raw, columns=raw.columns | {"memory": amount}), "trace"
    raw = as_pods(raw, platform, cores_per_pod)
    faults = infeasible_rows(raw, platform)
    if faults and strict:
        raise_faults(tuple(error for errors in faults.values() for error in errors), path)
    raw = _without(raw, faults, path)
    columns = raw.columns
    if (np.diff(columns["submission_time"]) < 0).any():
        _log.warning("%s: submission times out of order; the jobs are sorted", path)
    workload = Workload.from_columns(
        **columns,
        further=raw.further,
        profiles=raw.profiles,
        names=raw.names,
        name=name,
        source=path,
        sha256=digest,
        header=raw.header,
        dropped=tuple(errors[0] for errors in faults.values()),
        reference_gflops=platform.reference_gflops if platform and raw.profiles else None,
    )
    if memory_bandwidth == "draw" and "memory_bandwidth" in columns:
        memory_bandwidth = "trace"
    workload = _synthesised(workload, seed, memory_bandwidth, memory, runtime, walltime)
    workload.settings.update(given)
    return part_of(workload, jobs=jobs, start=start, arrival_factor=arrival_factor)


def part_of(workload: Workload, *, jobs: int | None = None, start: int = 0, arrival_factor: float = 1.0) -> Workload:
    """Returns a slice of a workload that has been read as a whole; see :func:`load_workload`.

    Raises:
        WorkloadError: An argument is not allowed.
    """
    _require("workload.jobs", _JOBS, jobs)
    _require("workload.start", SEED, start)
    found, path = workload, workload.source
    if start or jobs is not None:
        if not 0 <= start < len(workload):
            raise WorkloadError(
                f"expected a first job from 0 to {len(workload) - 1}, got {start} ({len(workload)} jobs in {path})",
                where="workload.start",
            )
        if jobs is not None and start + jobs > len(workload):
            _log.warning("%s: expected %d jobs from job %d on, got %d", path, jobs, start, len(workload) - start)
        found = workload[start : None if jobs is None else start + jobs]
    if arrival_factor != 1.0:
        found = found.scaled_arrivals(arrival_factor)
    found.settings.update(workload.settings, jobs=jobs, start=start, arrival_factor=arrival_factor)
    return found


def validate_workload(path: str | Path, platform: Platform | None = None) -> list[WorkloadError]:
    """Returns all faults of a workload file: malformed lines, and jobs that do not fit on a platform, if given."""
    try:
        raw, _ = _read(path, platform.reference_gflops if platform else 1.0)
    except WorkloadError as error:
        return [fault for fault in error.errors if isinstance(fault, WorkloadError)]
    infeasible = [error for errors in infeasible_rows(as_pods(raw, platform), platform).values() for error in errors]
    if not (len(raw.columns["runtime"]) or raw.errors):
        return [WorkloadError("expected at least one job, got none", where=str(path))]
    return [*raw.errors, *infeasible]


def is_json(path: str | Path) -> bool:
    """Returns whether a file name is that of a Batsim JSON workload, possibly gzip; of standard input, the content."""
    if str(path) == STANDARD_INPUT:
        return read_bytes(path, WorkloadError, "workload file")[0].lstrip()[:1] == b"{"
    return ".json" in Path(path).suffixes[-2:]


def _read(path: str | Path, reference_gflops: float | None, status: str = "recorded") -> tuple[RawJobs, str]:
    if is_json(path):
        raw, digest = read_batsim(path, reference_gflops)
    else:
        raw, digest = read_parquet(path) if is_parquet(path) else read_swf(path)
        raw = distinct_ids(apply_status(raw, status, path), path)
    too_large = [
        WorkloadError(f"expected at most {limit:g} {unit}, got {column[row]:g}", where=raw.where(row, name))
        for name, (limit, unit) in LIMITS.items()
        if (column := raw.columns.get(name)) is not None
        for row in np.flatnonzero(column > limit).tolist()
    ]
    return replace(raw, errors=(*raw.errors, *too_large)), digest


def _without(raw: RawJobs, faults: dict[int, list[WorkloadError]], path: str | Path) -> RawJobs:
    """Returns the jobs without infeasible jobs, which one warning counts."""
    jobs = len(raw.columns["runtime"])
    if not faults:
        return raw
    reasons = Counter(errors[0].where.rpartition(": ")[2] for errors in faults.values() if errors[0].where)
    first = next(iter(faults.values()))[0]
    if len(faults) == jobs:
        raise WorkloadError(f"expected at least one feasible job, got {jobs} infeasible ones; the first: {first}")
    counted = ", ".join(f"{count} x {reason}" for reason, count in reasons.most_common(5))
    _log.warning("%s: dropped %d of %d jobs (%s); the first: %s", path, len(faults), jobs, counted, first)
    keep = np.ones(jobs, bool)
    keep[list(faults)] = False
    return raw.at(np.flatnonzero(keep))


def _synthesised(
    workload: Workload,
    seed: int,
    memory_bandwidth: str | float | Sequence[float],
    memory: str | float,
    runtime: str,
    walltime: str,
) -> Workload:
    bandwidth_rng, runtime_rng = (np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(2))
    new: dict[str, Any] = {}
    if memory_bandwidth == "draw":
        memory_bandwidth = BANDWIDTHS
    if not isinstance(memory_bandwidth, str | float | int):
        choices = [_amount("memory_bandwidth", each, "draw") for each in memory_bandwidth]
        new["memory_bandwidth"] = bandwidth_rng.choice(choices, len(workload))
    elif memory_bandwidth != "trace":
        new["memory_bandwidth"] = _amount("memory_bandwidth", memory_bandwidth, "draw")
    if memory != "trace":
        new["memory"] = _amount("memory", memory, "trace")
    if runtime != "trace":
        drawn = workload.requested_time
        if runtime == "hdeeprm":
            drawn = drawn * runtime_rng.choice(RUNTIME_SHARES, len(workload), p=RUNTIME_PROBABILITIES)
        # The run time of a job with a program is that of its program.
        rigid = [program is None for program in workload.program.tolist()]
        new["runtime"] = np.where(rigid, drawn, workload.runtime)
    if walltime != "trace":
        requested = np.where(workload.requested_time > 0, workload.requested_time, np.inf)
        new["walltime"] = requested if walltime == "requested" else np.inf
    return workload.replaced(**new) if new else workload


def _amount(key: str, value: str | float, other: str) -> float:
    """Returns the constant of a setting that is a number or "none"; `other` is a further allowed word."""
    if value == "none":
        return 0.0
    try:
        amount = number_in(str(value))
    except ValueError:
        amount = np.nan
    if not (np.isfinite(amount) and amount >= 0):
        raise WorkloadError(
            f"expected '{other}', 'none' or a number of at least 0, got '{value}'", where=f"workload.{key}"
        )
    return amount


def _require(key: str, rule: Rule, value: Any) -> None:
    fault = rule.fault(value, key)
    if fault is not None:
        raise WorkloadError(fault.message, where=key)


def _choice(key: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise WorkloadError(not_one_of(value, allowed), where=f"workload.{key}")
