"""Feasibility of jobs on an empty platform."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from hdsim.errors import WorkloadError
from hdsim.util.units import in_bytes

if TYPE_CHECKING:
    from hdsim.platform.model import Platform
    from hdsim.util.arrays import Floats, Ints
    from hdsim.workload.model import Workload
    from hdsim.workload.raw import RawJobs


def infeasible_rows(raw: RawJobs, platform: Platform | None) -> dict[int, list[WorkloadError]]:
    """Returns the faults of each infeasible job by row."""
    columns = raw.columns
    cores, memory = columns["requested_cores"], columns["memory"]
    faults: dict[int, list[WorkloadError]] = {}

    def check(good: np.ndarray, column: str, expected: str, got: np.ndarray) -> None:
        for row in np.flatnonzero(~good).tolist():
            error = WorkloadError(f"expected {expected}, got {got[row]:g}", where=raw.where(row, column))
            faults.setdefault(row, []).append(error)

    largest = f"1 to {platform.n_cpu_cores} (the platform's cores)" if platform else "at least 1"
    fits = cores >= 1
    cpu = columns.get("cpu", np.ones(len(cores)))
    if platform:
        fits &= cores * cpu <= platform.n_cpu_cores
    check(fits, "requested_cores", largest, cores)
    for column in ("submission_time", "runtime"):
        check(columns[column] >= 0, column, "at least 0 s", columns[column])
    if platform:
        gpus = columns.get("requested_gpus", np.zeros_like(cores))
        capacity = feasible_cores(platform, memory, np.maximum(cores, 1), gpus, cpu)
        for row in np.flatnonzero(fits & (capacity < cores)).tolist():
            if gpus[row]:
                parts = math.gcd(cores[row], gpus[row])
                column = "requested_gpus"
                message = (
                    f"expected capacity for {parts} x {cores[row] // parts} cores and {gpus[row] // parts} GPUs, "
                    f"each of these on one node, got capacity for {capacity[row] * parts / cores[row]:g}"
                )
            else:
                column = "memory"
                message = (
                    f"expected memory for {cores[row]} cores, got {memory[row]:g} MB a core, "
                    f"which the platform's nodes have for {capacity[row]:g} cores"
                )
            faults.setdefault(row, []).append(WorkloadError(message, where=raw.where(row, column)))
    return dict(sorted(faults.items()))


def infeasible_jobs(platform: Platform, jobs: Workload) -> Ints:
    """Rows of the jobs that do not fit on the empty platform."""
    if jobs.memory.any() or jobs.asks_for_gpus:
        return np.flatnonzero(
            jobs.requested_cores > feasible_cores(platform, jobs.memory, jobs.requested_cores, jobs.requested_gpus)
        )
    return np.flatnonzero(jobs.requested_cores > platform.n_cpu_cores)


def feasible_cores(
    platform: Platform, memory: Floats, cores: Ints | int = 1, gpus: Ints | int = 0, cpu: Floats | float = 1.0
) -> Floats:
    """Computes the (J,) cores that jobs with these memories and proportions of GPUs can use on an empty platform.

    `memory` is (J,) MB per core, `cores` and `gpus` are those requested, in the same proportion on each node of a job,
    and `cpu` is the CPU of each requested core in cores.
    """
    needed = in_bytes(memory)
    parts = np.gcd(cores, gpus)
    cores_of_part, gpus_of_part = cores // parts, gpus // parts
    capacity = np.zeros(len(memory))
    with np.errstate(divide="ignore", invalid="ignore"):
        for (idle, devices, memory_of_node, pods), count in platform.node_kinds:
            held = np.where(needed > 0, np.floor(memory_of_node / needed), np.inf)
            # A quotient of thousandths this close to an integer is one.
            computing = np.where(cpu > 0, np.floor(idle / cpu + 1e-9), np.inf)
            fitting = np.minimum(computing, held) // cores_of_part
            served = np.where(gpus_of_part > 0, devices // gpus_of_part, np.inf)
            capacity += count * np.minimum(np.minimum(fitting, served), pods) * cores_of_part
    return capacity
