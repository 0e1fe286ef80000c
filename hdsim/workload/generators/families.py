"""The Lublin-Feitelson model and families of its traces, with parameters that are drawn for each trace, as generators.

Results on one family need not hold on another one; agents are trained on some families and tested on others.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.errors import ConfigError, WorkloadError, not_one_of
from hdsim.util.resources import bundled
from hdsim.util.rules import (
    FLAG,
    NOT_NEGATIVE,
    NULL,
    POSITIVE,
    Rule,
    check_keys,
    integers_from,
    is_finite,
    lists_of,
    numbers_between,
    require,
    texts,
)
from hdsim.workload.generators.base import Generator, require_split, seed_in
from hdsim.workload.generators.kinds import Kind, is_kind
from hdsim.workload.generators.lublin import generate

if TYPE_CHECKING:
    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload

#: Parameters of a family: arguments of :func:`hdsim.workload.generators.lublin.generate`, as numbers, as ``[low,
#: high]`` or, for cores, typed and estimates, as lists of equally likely values.
Parameters = Mapping[str, Any]

#: Families by name. Parameters that are not given are those of :data:`DEFAULTS`.
FAMILIES: Mapping[str, Parameters] = {
    "home": {},
    "small": {"cores": 64},
    "large": {"cores": [1024, 2048]},
    "typed": {"typed": True},
    "tsafrir": {"estimates": "tsafrir"},
    "light": {"load": [0.4, 0.65]},
    "serial": {"serial": [0.5, 0.8], "load": [0.7, 0.95]},
    "bursty": {"burstiness": [1.2, 1.5], "load": [0.6, 0.85]},
    "wide": {"width_factor": [1.5, 2.5], "runtime_factor": [0.25, 0.5], "load": [0.55, 0.7]},
    "random": {
        "cores": [64, 128, 256, 512, 1024, 2048],
        "typed": [False, True],
        "estimates": ["none", "tsafrir"],
        "load": [0.45, 1.0],
        "runtime_factor": [0.2, 2.0],
        "width_factor": [0.5, 2.5],
        "serial": [0.05, 0.7],
        "burstiness": [0.8, 1.5],
    },
}
#: The model of the trace lublin_256 of the evaluation of RLScheduler: one class of jobs, known run times.
DEFAULTS: Parameters = {
    "cores": 256,
    "typed": False,
    "estimates": "none",
    "load": None,
    "runtime_factor": 1.0,
    "width_factor": 1.0,
    "serial": None,
    "burstiness": 1.0,
}
#: Drawn requested times may, in one of some hundred traces, be too short for its jobs; other jobs are drawn then.
_ATTEMPTS = 8
_CHOICES = ("cores", "typed", "estimates")
#: Uniform in their logarithm.
_FACTORS = ("runtime_factor", "width_factor", "burstiness")
_RULES = {
    "cores": integers_from(1),
    "typed": FLAG,
    "estimates": Rule("none or tsafrir", lambda value: value in ("none", "tsafrir")),
    "load": POSITIVE,
    "serial": numbers_between(0, 1),
    **dict.fromkeys(_FACTORS, POSITIVE),
}


def draw_workload(family: str | Parameters, seed: int, jobs: int, *, split: str = "train", **changes: Any) -> Workload:
    """Draws a trace of a family or of a kind; equal arguments give equal traces.

    Args:
        family: Name of a family of :data:`FAMILIES`, or its parameters; or a kind, a file or a bundled name
            (:mod:`hdsim.workload.generators.kinds`), whose only parameters are ``load`` and ``cores``, numbers.
        seed: Number of the trace in its split.
        jobs: Number of jobs.
        split: One of :data:`hdsim.workload.generators.base.SPLITS`. Traces of different splits have different seeds.
        **changes: Parameters that replace those of the family, such as ``load=[0.5, 0.6]``. The size of the machine,
            ``cores``, is ``Workload.cluster_cores`` of the trace.

    Raises:
        ConfigError: There is no such family or split, or a parameter is not allowed.
        WorkloadError: The model cannot generate such a trace.
    """
    require_split(split)
    family = texts(family)
    if isinstance(family, str) and family not in FAMILIES and is_kind(family):
        check_keys("workload.kind", changes, ("load", "cores"))
        kind = Kind(family, jobs, split, changes.get("load"), changes.get("cores"))
        return kind.generate(None, seed)
    parameters = _parameters(family, changes)
    own = seed_in(split, seed)
    rng = np.random.default_rng(own)
    # Every parameter has one draw, so that a change of one changes no other.
    chosen = {key: _between(key, value, rng.random()) for key, value in parameters.items()}
    for attempt in range(_ATTEMPTS):
        try:
            trace = generate(jobs, int(own.spawn(1)[0].generate_state(1, np.uint64)[0]), **chosen)
            break
        except WorkloadError:
            if attempt + 1 == _ATTEMPTS:
                raise
    name = family if isinstance(family, str) else "custom"
    told = ", ".join(f"{key} {value:g}" if is_finite(value) else f"{key} {value}" for key, value in chosen.items())
    header = {**trace.header, "Note": f"family {name}, {split} {seed}: {told}"}
    return dataclasses.replace(trace, source=f"<family {name}, {split} {seed}>", header=header)


def _parameters(family: str | Parameters, changes: Parameters) -> dict[str, Any]:
    """Returns all parameters of a family in the order of `DEFAULTS`, after a check of each."""
    where = "workload.family"
    if isinstance(family, str):
        if family not in FAMILIES:
            raise ConfigError(not_one_of(family, (*FAMILIES, *bundled("kinds"))), where=where)
        family = FAMILIES[family]
    parameters = {**DEFAULTS, **family, **changes}
    for key, value in parameters.items():
        if key not in _RULES:
            raise ConfigError(not_one_of(key, _RULES), where=f"{where}.{key}")
        if value is None and DEFAULTS[key] is None:
            continue
        several = isinstance(value, list | tuple)
        values = list(value) if several else [value]
        good = bool(values) and all(map(_RULES[key].accepts, values))
        if several and key not in _CHOICES:
            good = good and len(values) == 2 and values[0] <= values[1]
        if not good:
            form = "a list of such values" if key in _CHOICES else "[low, high] of such"
            raise ConfigError(f"expected {_RULES[key].expected}, or {form}, got {value!r}", where=f"{where}.{key}")
    return parameters


def _between(key: str, value: Any, level: float) -> Any:
    """Returns the value of a parameter at a level from 0 to 1."""
    if not isinstance(value, list | tuple):
        return value
    if key in _CHOICES:
        return value[int(level * len(value))]
    low, high = value
    if key in _FACTORS:
        return math.exp(math.log(low) + (math.log(high) - math.log(low)) * level)
    return low + (high - low) * level


#: Arguments of the model that are no settings.
_FIXED = ("seed", "classes")
_INTEGERS = {"jobs": integers_from(1), "processors": integers_from(1) | NULL, "cores": integers_from(1)}
_LUBLIN_RULES = _INTEGERS | {
    "typed": FLAG,
    "max_estimate": POSITIVE | NULL,
    "arrival_factor": NOT_NEGATIVE,
    **dict.fromkeys(("load", "serial"), NOT_NEGATIVE | NULL),
    **dict.fromkeys(_FACTORS, POSITIVE),
    "memory": lists_of(NOT_NEGATIVE, "a list of MB per core such as [500, 1000]") | NULL,
}


class Lublin(Generator):
    """The Lublin-Feitelson model with the settings of :func:`hdsim.workload.generators.lublin.generate`.

    `processors`, or `cores`, are by default the platform's.
    """

    def __init__(self, **settings: Any) -> None:
        self._settings = _checked(settings, inspect.signature(generate).parameters, _LUBLIN_RULES)

    def generate(self, platform: Platform | None, seed: int) -> Workload:
        return generate(**{"cores": 256, **_on(platform, self._settings)}, seed=seed)


class Family(Generator):
    """A family of traces, with `family` and the settings of :func:`draw_workload`.

    `processors`, or `cores`, are by default the platform's.
    """

    def __init__(self, **settings: Any) -> None:
        self._settings = _checked(settings, ("family", "split", "jobs", *DEFAULTS), _INTEGERS)

    def generate(self, platform: Platform | None, seed: int) -> Workload:
        settings = _on(platform, self._settings)
        return draw_workload(settings.pop("family", "home"), seed, **settings)


def _checked(given: Mapping[str, Any], known: Iterable[str], rules: Mapping[str, Rule]) -> dict[str, Any]:
    settings = {"jobs": 10_000, **given}
    check_keys("workload.generate", settings, ["model", "processors", *(key for key in known if key not in _FIXED)])
    require("workload.generate", rules, settings)
    return settings | {key: int(settings[key]) for key in _INTEGERS if settings.get(key) is not None}


def _on(platform: Platform | None, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with the size of the machine."""
    settings = dict(settings)
    cores = settings.pop("processors", None) or (platform.n_cpu_cores if platform else None)
    return settings if cores is None else {"cores": cores, **settings}
