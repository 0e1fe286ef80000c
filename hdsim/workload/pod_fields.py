"""The field ``kubernetes`` of the jobs of JSON workloads: what their pods request beside cores, memory and GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hdsim.errors import WorkloadError, nearest
from hdsim.util.text import shown
from hdsim.util.units import parse_cpu, parse_size
from hdsim.workload.constraints import Constraints
from hdsim.workload.raw import IS_POD, plain

if TYPE_CHECKING:
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


class Pods(NamedTuple):
    """Pods of a job, in the units of the columns of a workload."""

    cpu: float = 1.0
    storage: float = 0.0
    priority: int = 0
    constraints: Constraints | None = None


def read_pods(spec: Any, where: str, errors: list[WorkloadError]) -> Pods:
    """Reads the field of a job.

    Args:
        spec: Object with ``cpu`` (cores, or a text such as "500m") and ``ephemeral-storage`` (MB, or a text such as
            "10GiB") of each requested core, ``priority``, and ``nodeSelector``, ``affinity`` and ``tolerations`` as in
            a Pod spec.
        where: Place of the field.
        errors: Faults are appended here.
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


def pod_columns(pods: Sequence[Pods | None]) -> dict[str, np.ndarray]:
    """Returns the columns of the fields of all jobs, None for a job without the field; none if no job has it."""
    if not any(pods):
        return {}
    columns = {key: np.array([getattr(each or Pods(), key) for each in pods], object) for key in Pods._fields}
    for key in ("cpu", "storage", "priority"):
        columns[key] = columns[key].astype(np.float64)
    columns[IS_POD] = np.array([each is not None for each in pods], np.bool_)
    return columns


def write_pods(workload: Workload, row: int) -> dict[str, Any]:
    """Returns the field of a job, empty if all its values are those of jobs without the field."""
    constraints, spec = workload.constraints[row], {}
    for key, value, default in (
        ("cpu", workload.cpu[row], 1.0),
        (_STORAGE, workload.storage[row], 0.0),
        ("priority", workload.priority[row], 0),
    ):
        if value != default:
            spec[key] = plain(value)
    return spec if constraints is None else {**spec, **constraints.to_spec()}
