"""Random deployments: groups of equal pods that arrive one after another until the cluster has a target load.

An epoch begins with an empty cluster and ends with the deployment that reaches a target; pods run until its end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hdsim.errors import WorkloadError


class PodRequests(NamedTuple):
    """Resources that a pod requests: CPU in cores, memory in bytes, GPUs."""

    cpu: float
    memory: float
    gpus: int = 0


@dataclass(frozen=True)
class Deployment:
    """A group of equal pods.

    Attributes:
        epoch: Epoch, from 0.
        time: Arrival in seconds since the begin of the epoch.
        replicas: Number of pods.
        requests: Resources of each pod.
    """

    epoch: int
    time: float
    replicas: int
    requests: PodRequests


class Capacity(NamedTuple):
    """Resources of a cluster: CPU in cores, memory in bytes, pods."""

    cpu: float
    memory: float
    pods: float


def deployments(
    rng: np.random.Generator,
    capacity: Capacity,
    *,
    cpu_load: float = 0.2,
    memory_load: float = 0.2,
    pod_load: float = 0.2,
    epochs: int = 1,
    replicas: tuple[int, int] = (5, 15),
    cpu: Sequence[float] = (1.0,),
    memory: Sequence[float] = (2.0 * 2**30,),
    gpus: Sequence[int] = (0,),
    rate: float = math.inf,
) -> Iterator[Deployment]:
    """Draws deployments, the same ones for the same state of the generator.

    Replicas and requests of a deployment are uniform and independent. The last deployment of an epoch has as many
    replicas as the first of the three loads to reach its target needs.

    Args:
        rng: The generator.
        capacity: Resources of the cluster; only those of a resource may be infinite.
        cpu_load: Target of requested CPU as a share of the capacity, of ``memory_load`` and ``pod_load`` alike.
        memory_load: Target of requested memory.
        pod_load: Target of the number of pods.
        epochs: Number of epochs.
        replicas: Least and largest number of pods of a deployment.
        cpu: Cores of a pod to draw from.
        memory: Bytes of a pod to draw from.
        gpus: GPUs of a pod to draw from.
        rate: Pods per second; a deployment arrives after the pods before it.

    Raises:
        WorkloadError: An argument cannot be used.
    """
    targets = {"cpu_load": cpu_load, "memory_load": memory_load, "pod_load": pod_load}
    for name, load in targets.items():
        if not 0 < load <= 1:
            raise WorkloadError(f"expected a share in (0, 1], got {load}", where=name)
    low, high = replicas
    if not 1 <= low <= high:
        raise WorkloadError(
            f"expected two numbers of pods, the smaller one first, got {low} and {high}", where="replicas"
        )
    for name, choices in (("cpu", cpu), ("memory", memory), ("gpus", gpus)):
        if not len(choices) or not all(0 <= amount < math.inf for amount in choices):
            raise WorkloadError(f"expected amounts of at least 0, got {list(choices)}", where=name)
    if not rate > 0:
        raise WorkloadError(f"expected pods per second above 0, got {rate}", where="rate")
    limits = np.array(capacity, np.float64) * list(targets.values())
    if not np.isfinite(limits[2]) and not (np.isfinite(limits[:2]) & [min(cpu) > 0, min(memory) > 0]).any():
        raise WorkloadError("expected a resource that deployments fill up: CPU, memory or pods", where="capacity")
    for epoch in range(epochs):
        used, pods = np.zeros(3), 0
        while True:
            number = int(rng.integers(low, high + 1))
            requests = PodRequests(float(rng.choice(cpu)), float(rng.choice(memory)), int(rng.choice(gpus)))
            pod = np.array([requests.cpu, requests.memory, 1.0])
            # Pods until each target, of which the last one may exceed it.
            needed = np.ceil(np.divide(limits - used, pod, out=np.full(3, math.inf), where=pod > 0) - 1e-9).min()
            number = int(min(number, needed))
            if number > 0:
                yield Deployment(epoch, pods / rate, number, requests)
            if number >= needed:
                break
            used += number * pod
            pods += number
