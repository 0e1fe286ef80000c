"""Workloads from trace files: read, checked, drawn from and cut."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.errors import WorkloadError, nearest
from hdsim.workload.feasibility import infeasible_rows
from hdsim.workload.model import Workload

if TYPE_CHECKING:
    from hdsim.platform.model import Platform
    from hdsim.workload.raw import RawJobs

#: GB/s a core; HDeepRM draws a job's bandwidth demand from these with equal probability.
BANDWIDTHS = (4.0, 8.0, 12.0, 16.0, 20.0, 24.0)
#: HDeepRM's run time as a share k of the requested time, and the probability of each k.
RUNTIME_SHARES = np.arange(1, 26) * 0.05
RUNTIME_PROBABILITIES = np.repeat([0.15, 0.09, 0.07, 0.04, 0.03, 0.02, 0.06, 0.08], [1, 1, 1, 5, 5, 10, 1, 1])

_log = logging.getLogger(__name__)


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
    faults = infeasible_rows(raw, platform)
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
    infeasible = [error for errors in infeasible_rows(raw, platform).values() for error in errors]
    return [*raw.errors, *infeasible]


def is_json(path: str | Path) -> bool:
    """Whether the file's name says it is Batsim JSON, packed or not."""
    return ".json" in Path(path).suffixes[-2:]


def _read(path: str | Path, reference_gflops: float | None) -> tuple[RawJobs, str]:
    if is_json(path):
        from hdsim.workload.batsim_json import read_batsim

        return read_batsim(path, reference_gflops)
    from hdsim.workload.swf import read_swf

    return read_swf(path)


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
