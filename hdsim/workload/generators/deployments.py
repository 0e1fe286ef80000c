"""Random deployments: groups of equal pods that arrive one after another until the cluster has a target load.

An epoch begins with an empty cluster and ends with the deployment that reaches a target; pods run until its end.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hdsim.errors import ConfigError, WorkloadError
from hdsim.util.rules import POSITIVE, Rule, check_keys, integers_from, is_finite, lists_of, numbers_between, require
from hdsim.util.units import in_bytes, parse_cpu, parse_size
from hdsim.workload.generators.base import Generator
from hdsim.workload.raw import IS_POD, LIMITS, RawJobs

if TYPE_CHECKING:
    from hdsim.platform.model import Platform

_SHARE = numbers_between(0, 1)
_NUMBERS = Rule(
    "a number, a text with a unit, or a list of them",
    lambda value: isinstance(value, str) or is_finite(value) or (isinstance(value, list | tuple) and bool(value)),
)
_RULES = {
    "cpu_load": _SHARE,
    "memory_load": _SHARE,
    "pod_load": _SHARE,
    "epochs": integers_from(1),
    "replicas": lists_of(integers_from(1), "two numbers of pods such as [5, 15]", 2),
    "cpu": _NUMBERS,
    "memory": _NUMBERS,
    "gpus": _NUMBERS,
    "rate": POSITIVE,
    "hold": POSITIVE,
}
#: Default arrival rate in pods per second, and default seconds from the last arrival to the end of an epoch.
_RATE, _HOLD = 1.0, 60.0


class PodRequests(NamedTuple):
    """Resources that a pod requests: CPU in cores, memory in bytes, GPUs."""

    cpu: float
    memory: float
    gpus: int = 0


@dataclass(frozen=True)
class Deployment:
    """A group of equal pods."""

    epoch: int  # epoch, from 0
    time: float  # arrival in seconds since the begin of the epoch
    replicas: int  # number of pods
    requests: PodRequests  # resources of each pod


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


class Deployments(Generator):
    """Pods of random deployments with the settings of :func:`deployed_pods`."""

    def __init__(self, **settings: Any) -> None:
        self._settings = settings

    def generate(self, platform: Platform | None, seed: int) -> tuple[RawJobs, str]:
        return deployed_pods(self._settings, platform, seed)


def deployed_pods(spec: Mapping[str, Any], platform: Platform | None, seed: int) -> tuple[RawJobs, str]:
    """Draws a workload of random deployments; each replica is a job of one pod. Returns it and the name of its source.

    Pods arrive one by one at a constant rate and run until the end of their epoch. The next epoch begins on the empty
    cluster. Settings are arguments of :func:`deployments`, with ``cpu`` in cores or as texts such as "500m", ``memory``
    in MB or as texts such as "2GiB", ``rate`` in pods per second and ``hold``, seconds from the last arrival to the end
    of the epoch; the loads refer to the platform's CPU, memory and pods.

    Raises:
        ConfigError: A setting cannot be used.
    """
    where = "workload.generate"
    settings = dict(spec)
    check_keys(where, settings, [*list(inspect.signature(deployments).parameters)[2:], "hold"])
    require(where, _RULES, settings)
    if platform is None:
        raise ConfigError("expected a platform, whose load the deployments reach, got none", where=where)
    for key, parse, unit in (("cpu", parse_cpu, 1.0), ("memory", parse_size, 1e6), ("gpus", float, 1.0)):
        if key in settings:
            settings[key] = _amounts(settings[key], parse, unit, f"{where}.{key}")
    for key in ("epochs", "replicas"):
        if key in settings:
            settings[key] = np.array(settings[key], np.int64).tolist()
    hold, rate = settings.pop("hold", _HOLD), settings.setdefault("rate", _RATE)
    capacity = Capacity(
        *(float(each.sum()) for each in (platform.node_cpu, in_bytes(platform.memory), platform.node_pods))
    )
    try:
        drawn = list(deployments(np.random.default_rng(seed), capacity, **settings))
    except WorkloadError as error:
        raise ConfigError(error.message, where=f"{where}.{error.where}") from None
    replicas = np.array([each.replicas for each in drawn])
    epoch = np.repeat([each.epoch for each in drawn], replicas)
    place = np.arange(len(epoch)) - np.repeat(np.cumsum(replicas) - replicas, replicas)
    arrival = np.repeat([each.time for each in drawn], replicas) + place / rate
    ends = np.cumsum([arrival[epoch == each].max() + hold for each in range(epoch[-1] + 1)])
    begins = np.append(0.0, ends[:-1])
    columns = {
        "job_id": np.arange(len(epoch)),
        "submission_time": begins[epoch] + arrival,
        "runtime": ends[epoch] - begins[epoch] - arrival,
        "requested_cores": np.ones(len(epoch), np.int64),
        "requested_gpus": np.repeat([each.requests.gpus for each in drawn], replicas).astype(np.int64),
        "cpu": np.repeat([each.requests.cpu for each in drawn], replicas),
        "memory": np.repeat([each.requests.memory / 1e6 for each in drawn], replicas),
        "memory_bandwidth": np.zeros(len(epoch)),
        "fixed_duration": np.ones(len(epoch), np.bool_),
        "executable": np.repeat(np.arange(len(drawn)), replicas),
        IS_POD: np.ones(len(epoch), np.bool_),
    }
    columns["requested_time"] = columns["runtime"]
    source = f"<deployments, seed {seed}>"
    return RawJobs(columns, lambda row, column: f"{source}: job {row}: {column}"), source


def _amounts(given: Any, parse: Callable[[str], float], unit: float, where: str) -> list[float]:
    """Returns one amount or a list of them as numbers; texts have units, numbers are multiples of `unit`."""
    amounts = []
    for value in given if isinstance(given, list | tuple) else [given]:
        try:
            number = parse(value) if isinstance(value, str) else float(value)
            if not 0 <= number <= LIMITS["memory"][0]:
                raise ValueError(f"expected amounts of at least 0, got {value!r}")
        except (TypeError, ValueError) as error:
            raise ConfigError(str(error), where=where) from None
        amounts.append(number * unit)
    return amounts
