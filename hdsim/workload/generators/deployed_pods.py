"""Workloads of the pods of random deployments."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.errors import ConfigError, WorkloadError, nearest
from hdsim.util.rules import POSITIVE, Rule, integers_from, is_finite, numbers_between, require
from hdsim.util.units import in_bytes, parse_cpu, parse_size
from hdsim.workload.generators.base import Generator
from hdsim.workload.generators.deployments import Capacity, deployments
from hdsim.workload.raw import IS_POD, LIMITS, RawJobs

if TYPE_CHECKING:
    from collections.abc import Callable

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
    "replicas": Rule(
        "two numbers of pods such as [5, 15]",
        lambda value: isinstance(value, list | tuple) and len(value) == 2 and all(map(integers_from(1).accepts, value)),
    ),
    "cpu": _NUMBERS,
    "memory": _NUMBERS,
    "gpus": _NUMBERS,
    "rate": POSITIVE,
    "hold": POSITIVE,
}
#: Default arrival rate in pods per second, and default seconds from the last arrival to the end of an epoch.
_RATE, _HOLD = 1.0, 60.0


class Deployments(Generator):
    """Pods of random deployments.

    Args:
        **settings: See :func:`deployed_pods`.
    """

    def __init__(self, **settings: Any) -> None:
        self._settings = settings

    def generate(self, platform: Platform | None, seed: int) -> tuple[RawJobs, str]:
        """See :meth:`Generator.generate`."""
        return deployed_pods(self._settings, platform, seed)


def deployed_pods(spec: Mapping[str, Any], platform: Platform | None, seed: int) -> tuple[RawJobs, str]:
    """Draws a workload of random deployments; each replica is a job of one pod.

    Pods arrive one by one at a constant rate and run until the end of their epoch. The next epoch begins on the empty
    cluster.

    Args:
        spec: Settings: arguments of :func:`hdsim.workload.generators.deployments.deployments`, with ``cpu`` in cores or
            as texts such as "500m", ``memory`` in MB or as texts such as "2GiB", ``rate`` in pods per second and
            ``hold``, seconds from the last arrival to the end of the epoch.
        platform: The platform whose CPU, memory and pods the loads refer to.
        seed: Seed of the draws.

    Returns:
        The jobs and the name of their source.

    Raises:
        ConfigError: A setting cannot be used.
    """
    where = "workload.generate"
    settings = dict(spec)
    allowed = [*list(inspect.signature(deployments).parameters)[2:], "hold"]
    for key in settings:
        if key not in allowed:
            message = f"unknown key{nearest(key, allowed)}; allowed: {', '.join(allowed)}"
            raise ConfigError(message, where=f"{where}.{key}")
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
