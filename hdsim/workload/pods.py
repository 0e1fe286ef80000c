"""Jobs of traces as gangs of equal pods, and the field ``kubernetes`` of the jobs of JSON workloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hdsim.errors import WorkloadError, nearest
from hdsim.platform.schema import QUANTITIES
from hdsim.util.text import shown
from hdsim.util.units import in_bytes, parse_cpu, parse_size
from hdsim.workload.constraints import Constraints
from hdsim.workload.raw import IS_POD, RawJobs, plain

if TYPE_CHECKING:
    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload

_CONSTRAINTS = ("nodeSelector", "affinity", "tolerations")
_STORAGE = "ephemeral-storage"
_FIELDS = ("cpu", _STORAGE, "priority", *_CONSTRAINTS)
#: Amounts that are given elsewhere, and where.
_ELSEWHERE = {
    "memory": "the memory of a pod is `mem` of the profile, in MB",
    "nvidia.com/gpu": "the GPUs of a job are a field beside `kubernetes`",
    "gpus": "the GPUs of a job are a field beside `kubernetes`",
}
_HIGHEST = 2**31


def as_pods(raw: RawJobs, platform: Platform | None, cores_per_pod: int | None = None) -> RawJobs:
    """Returns jobs as gangs of equal pods on a platform of quantities, and without the column ``is_pod``.

    A job of n cores becomes n / d pods of d cores, where d is the largest divisor of n up to a limit. The limit is
    `cores_per_pod`, by default the CPU of the smallest node and what its memory has room for. The requests of a pod are
    those of d cores; a job with GPUs has a number of pods that divides the number of its GPUs. Jobs that are pods
    already are left alone.
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


class Pods(NamedTuple):
    """Pods of a job, in the units of the columns of a workload."""

    cpu: float = 1.0
    storage: float = 0.0
    priority: int = 0
    constraints: Constraints | None = None


def read_pods(spec: Any, where: str, errors: list[WorkloadError]) -> Pods:
    """Reads the field of a job; faults at `where` are appended to the errors.

    It is an object with ``cpu`` (cores, or a text such as "500m") and ``ephemeral-storage`` (MB, or a text such as
    "10GiB") of each requested core, ``priority``, and ``nodeSelector``, ``affinity`` and ``tolerations`` as in a Pod
    spec.
    """

    def amount(key: str, default: float, parse: Any) -> float:
        value = spec.get(key, default)
        try:
            if isinstance(value, str):
                return float(parse(value))
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
                raise ValueError(f"expected a number of at least 0 or a text with a unit, got {shown(value)}")
        except ValueError as error:
            errors.append(WorkloadError(str(error), where=f"{where}.{key}"))
            return default
        return float(value)

    if not isinstance(spec, Mapping):
        errors.append(WorkloadError(f"expected an object, got {shown(spec)}", where=where))
        return Pods()
    for key in spec:
        if key not in _FIELDS:
            hint = f" ({_ELSEWHERE[key]})" if key in _ELSEWHERE else nearest(key, _FIELDS)
            message = f"unknown key{hint}; allowed: {', '.join(_FIELDS)}"
            errors.append(WorkloadError(message, where=f"{where}.{key}"))
    priority, constraints = spec.get("priority", 0), None
    if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) > _HIGHEST:
        errors.append(
            WorkloadError(f"expected a whole number of 32 bits, got {shown(priority)}", where=f"{where}.priority")
        )
        priority = 0
    try:
        constraints = Constraints.from_spec(spec)
    except ValueError as error:
        errors.append(WorkloadError(str(error), where=where))
    return Pods(amount("cpu", 1.0, parse_cpu), amount(_STORAGE, 0.0, parse_size), priority, constraints)


#: Amounts of the field: key, column, and value of jobs without the field.
_OWN = (("cpu", "cpu", 1.0), (_STORAGE, "storage", 0.0), ("priority", "priority", 0))


def pod_columns(pods: Sequence[Pods | None]) -> dict[str, np.ndarray]:
    """Returns the columns of the fields of all jobs, None for a job without the field; none if no job has it."""
    if not any(pods):
        return {}
    columns = {key: np.array([getattr(each or Pods(), key) for each in pods], object) for key in Pods._fields}
    for key in ("cpu", "storage", "priority"):
        columns[key] = columns[key].astype(np.float64)
    columns[IS_POD] = np.array([each is not None for each in pods], np.bool_)
    return columns


def written_pods(workload: Workload) -> dict[int, dict[str, Any]]:
    """Returns the field of each job, by row, without those whose values are those of jobs without the field."""
    own = [(key, getattr(workload, column), default) for key, column, default in _OWN]
    differ = np.array([each is not None for each in workload.constraints.tolist()])
    for _, column, default in own:
        differ = differ | (column != default)
    fields = {}
    for row in np.flatnonzero(differ).tolist():
        constraints = workload.constraints[row]
        spec = {key: plain(column[row]) for key, column, default in own if column[row] != default}
        fields[row] = spec if constraints is None else {**spec, **constraints.to_spec()}
    return fields
