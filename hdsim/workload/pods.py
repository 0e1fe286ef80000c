"""Jobs of traces as gangs of equal pods."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hdsim.platform.schema import QUANTITIES
from hdsim.util.units import in_bytes
from hdsim.workload.raw import IS_POD, RawJobs

if TYPE_CHECKING:
    from hdsim.platform.model import Platform


def as_pods(raw: RawJobs, platform: Platform | None, cores_per_pod: int | None = None) -> RawJobs:
    """Returns jobs as gangs of equal pods on a platform of quantities, and without the column ``is_pod``.

    A job of n cores becomes n / d pods of d cores, where d is the largest divisor of n up to a limit. The limit is
    `cores_per_pod`, by default the CPU of the smallest node and what its memory has room for. The requests of a pod are
    those of d cores; a job with GPUs has a number of pods that divides the number of its GPUs.

    Args:
        raw: Jobs of a trace; those that are pods already are left alone.
        platform: The platform of the replay.
        cores_per_pod: Most cores of a pod, None for as many as the smallest node holds.
    """
    columns = dict(raw.columns)
    size = columns["requested_cores"]
    is_pod = columns.pop(IS_POD, np.zeros(len(size), np.bool_))
    if platform is None or platform.kind != QUANTITIES:
        return replace(raw, columns=columns)
    open_to_all = np.array([not any(taint.forbids for taint in taints) for taints in platform.node_taints])
    counted = open_to_all if open_to_all.any() else ~open_to_all
    cpu, memory = float(platform.node_cpu[counted].min()), float(in_bytes(platform.memory)[counted].min())
    gpus = columns.get("requested_gpus", np.zeros(len(size), np.int64))
    demands = np.stack([size, gpus, in_bytes(columns["memory"])], axis=1)
    rows = np.flatnonzero(~is_pod & (size > 1) & (size <= platform.n_cpu_cores))
    distinct, inverse = np.unique(demands[rows], axis=0, return_inverse=True)
    largest = [
        _cores_of_pod(int(n), int(g), cores_per_pod or min(cpu, memory / m if m > 0 else cpu))
        for n, g, m in distinct.tolist()
    ]
    cores = np.ones(len(size), np.int64)
    cores[rows] = np.array(largest, np.int64)[inverse.ravel()]
    columns["requested_cores"] = size // cores
    columns["cpu"] = columns.get("cpu", 1.0) * cores
    for name in ("memory", "memory_bandwidth", "storage"):
        if name in columns:
            columns[name] = columns[name] * cores
    return replace(raw, columns=columns)


def _cores_of_pod(cores: int, gpus: int, limit: float) -> int:
    """Returns the largest divisor of `cores` up to a limit that leaves a number of pods which divides the GPUs."""
    allowed = [pods for pods in range(1, cores + 1) if cores % pods == 0 and cores <= pods * limit and not gpus % pods]
    # Pods of several cores and GPUs that fit nowhere stay with the store, which places them in even smaller chunks.
    return cores // allowed[0] if allowed else 1
