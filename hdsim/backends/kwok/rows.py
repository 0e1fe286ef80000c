"""Pods as rows of a workload."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hdsim.backends.kwok.members import Member
from hdsim.kubernetes.objects import PodView
from hdsim.workload.model import Workload

#: Requested time in seconds of a pod that tells none.
_UNKNOWN = 3600.0


def rows_of(jobs: Sequence[Sequence[Member]], now: float, time_scale: float) -> Workload:
    """Makes the jobs of pods: one pod, or a gang of equal ones.

    The requested time is ``activeDeadlineSeconds``, otherwise the annotation ``hdsim.io/duration``, otherwise an hour.

    All jobs are submitted `now`; `time_scale` is the number of simulated seconds in a second.
    """
    pods = [members[0].pod for members in jobs]
    size = np.array([len(members) for members in jobs])
    seconds = [_requested_seconds(pod) * time_scale for pod in pods]
    # A tuple of numbers and objects would be an array of two dimensions.
    ids, constraints = np.empty(len(pods), object), np.empty(len(pods), object)
    ids[:] = [f"{pod.namespace}/{pod.group}" if pod.group else pod.key for pod in pods]
    constraints[:] = [pod.constraints for pod in pods]
    rows = Workload.from_columns(
        submission_time=np.zeros(len(pods)),
        runtime=seconds,
        requested_cores=size,
        job_id=ids,
        cpu=[pod.requests.cpu for pod in pods],
        memory=[pod.requests.memory / 1e6 for pod in pods],
        storage=[pod.requests.storage / 1e6 for pod in pods],
        requested_gpus=size * [pod.requests.gpus for pod in pods],
        priority=[pod.priority for pod in pods],
        constraints=constraints,
        source="<cluster>",
    )
    return rows.replaced(submission_time=np.full(len(pods), now))


def _requested_seconds(pod: PodView) -> float:
    if pod.deadline is not None:
        return pod.deadline
    return _UNKNOWN if pod.duration is None else pod.duration
