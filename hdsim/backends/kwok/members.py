"""The pods of jobs: their states on the way to a node, their rows of a workload, and their records in pods.csv."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from hdsim.backends.kwok.anti_affinity import Label, requirements_of
from hdsim.cluster.requests import Amounts
from hdsim.kubernetes.objects import PodView
from hdsim.util.arrays import objects
from hdsim.util.files import write_csv
from hdsim.workload.constraints import Constraints
from hdsim.workload.model import Workload

#: Requested time in seconds of a pod that tells none.
_UNKNOWN = 3600.0


class PodPhase(Enum):
    """State of a pod that hdsim schedules."""

    WAITING = auto()
    BINDING = auto()  # a binding has no answer yet
    BOUND = auto()
    ENDED = auto()
    GONE = auto()  # deleted


@dataclass(slots=True, eq=False)
class Member:
    """A pod of a job; times are on the clock of the backend, NaN for what has not happened."""

    pod: PodView  # its latest view
    created: float
    requests: Amounts  # amounts that its job requests for it
    job: int = -1  # its job, -1 before it belongs to one
    phase: PodPhase = PodPhase.WAITING
    node: str = ""  # node that is chosen or that it is bound to, empty for none
    attempts: int = 0  # bindings that were asked for
    decided: float = math.nan  # decision of the scheduler
    bound: float = math.nan  # answer to the binding
    running: float = math.nan  # first sight of its phase Running
    finished: float = math.nan  # end or deletion
    succeeded: bool = False
    told: str = ""  # reason of the last event FailedScheduling
    refusal: str = ""  # reason of the last refused binding
    #: Labels of the nodes that the anti-affinity of other pods keeps its job off, each with the key of a pod there.
    kept_off: Mapping[Label, str] = field(default_factory=dict)

    @property
    def constraints(self) -> Constraints | None:
        """Nodes that its job may be on, None for all without taints."""
        if not self.kept_off:
            return self.pod.constraints
        return (self.pod.constraints or Constraints()).and_also(requirements_of(self.kept_off))


def rows_of(jobs: Sequence[Sequence[Member]], now: float, time_scale: float) -> Workload:
    """Makes the jobs of pods: one pod, or a gang of equal ones.

    The requested time is ``activeDeadlineSeconds``, otherwise the annotation ``hdsim.io/duration``, otherwise an hour.

    All jobs are submitted `now`; `time_scale` is the number of simulated seconds in a second.
    """
    pods = [members[0].pod for members in jobs]
    size = np.array([len(members) for members in jobs])
    seconds = [_requested_seconds(pod) * time_scale for pod in pods]
    rows = Workload.from_columns(
        submission_time=np.zeros(len(pods)),
        runtime=seconds,
        requested_cores=size,
        job_id=objects([f"{pod.namespace}/{pod.group}" if pod.group else pod.key for pod in pods]),
        cpu=[pod.requests.cpu for pod in pods],
        memory=[pod.requests.memory / 1e6 for pod in pods],
        storage=[pod.requests.storage / 1e6 for pod in pods],
        requested_gpus=size * [pod.requests.gpus for pod in pods],
        priority=[pod.priority for pod in pods],
        constraints=objects([members[0].constraints for members in jobs]),
        source="<cluster>",
    )
    return rows.replaced(submission_time=np.full(len(pods), now))


def _requested_seconds(pod: PodView) -> float:
    if pod.deadline is not None:
        return pod.deadline
    return _UNKNOWN if pod.duration is None else pod.duration


class Record(NamedTuple):
    """A row of pods.csv: all that is kept of a pod that was deleted; see :class:`Member`."""

    namespace: str
    name: str
    node: str
    created: float
    decided: float
    bound: float
    running: float
    finished: float
    attempts: int

    @classmethod
    def of(cls, member: Member) -> Self:
        """Returns the record of a pod."""
        node = member.pod.node or (member.node if not math.isnan(member.bound) else "")
        times = member.created, member.decided, member.bound, member.running, member.finished
        return cls(member.pod.namespace, member.pod.name, node, *times, member.attempts)


def write_pods(path: Path, records: Iterable[Record]) -> None:
    """Writes pods.csv: a row for each pod in order of its creation, empty where something has not happened."""
    rows = sorted(records, key=lambda each: (each.created, f"{each.namespace}/{each.name}"))
    write_csv(path, Record._fields, (tuple(map(_shown, row)) for row in rows))


def _shown(value: object) -> object:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.6f}"
    return value


def latencies(records: Sequence[Record], time_scale: float) -> dict[str, dict[str, float]]:
    """Returns quantiles of the seconds from arrival to decision, and from decision to binding, of decided pods."""
    decided = [each for each in records if not math.isnan(each.decided)]
    samples = {
        "decision_latency_seconds": [each.decided - each.created for each in decided],
        "binding_latency_seconds": [each.bound - each.decided for each in decided if not math.isnan(each.bound)],
    }
    return {
        name: {f"p{share}": round(float(np.percentile(values, share)) / time_scale, 6) for share in (50, 99)}
        for name, values in samples.items()
        if values
    }
