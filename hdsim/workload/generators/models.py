"""The Lublin-Feitelson model and its families as generators with settings."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from hdsim.errors import ConfigError, nearest
from hdsim.util.rules import FLAG, NOT_NEGATIVE, NULL, POSITIVE, Rule, integers_from, require
from hdsim.workload.generators.base import Generator
from hdsim.workload.generators.families import DEFAULTS, draw_workload
from hdsim.workload.generators.lublin import generate

if TYPE_CHECKING:
    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload

#: Arguments of the model that are no settings.
_FIXED = ("seed", "classes")
_INTEGERS = {"jobs": integers_from(1), "processors": integers_from(1) | NULL, "cores": integers_from(1)}
_RULES = _INTEGERS | {
    "typed": FLAG,
    "max_estimate": POSITIVE | NULL,
    "arrival_factor": NOT_NEGATIVE,
    **dict.fromkeys(("load", "serial"), NOT_NEGATIVE | NULL),
    **dict.fromkeys(("runtime_factor", "width_factor", "burstiness"), POSITIVE),
    "memory": Rule(
        "a list of MB per core such as [500, 1000]",
        lambda value: isinstance(value, list | tuple) and bool(value) and all(map(NOT_NEGATIVE.accepts, value)),
    )
    | NULL,
}


class Lublin(Generator):
    """The Lublin-Feitelson model; `processors`, or `cores`, are by default the platform's.

    Args:
        **settings: Arguments of :func:`hdsim.workload.generators.lublin.generate`.
    """

    def __init__(self, **settings: Any) -> None:
        self._settings = _checked(settings, inspect.signature(generate).parameters, _RULES)

    def generate(self, platform: Platform | None, seed: int) -> Workload:
        """See :meth:`Generator.generate`."""
        return generate(**{"cores": 256, **_on(platform, self._settings)}, seed=seed)


class Family(Generator):
    """A family of traces; `processors`, or `cores`, are by default the platform's.

    Args:
        **settings: `family` and arguments of :func:`hdsim.workload.generators.families.draw_workload`.
    """

    def __init__(self, **settings: Any) -> None:
        self._settings = _checked(settings, ("family", "split", "jobs", *DEFAULTS), _INTEGERS)

    def generate(self, platform: Platform | None, seed: int) -> Workload:
        """See :meth:`Generator.generate`."""
        settings = _on(platform, self._settings)
        return draw_workload(settings.pop("family", "home"), seed, **settings)


def _checked(given: Mapping[str, Any], known: Iterable[str], rules: Mapping[str, Rule]) -> dict[str, Any]:
    settings = {"jobs": 10_000, **given}
    allowed = ["model", "processors", *(key for key in known if key not in _FIXED)]
    for key in settings:
        if key not in allowed:
            raise ConfigError(
                f"unknown key{nearest(key, allowed)}; allowed: {', '.join(allowed)}", where=f"workload.generate.{key}"
            )
    require("workload.generate", rules, settings)
    return settings | {key: int(settings[key]) for key in _INTEGERS if settings.get(key) is not None}


def _on(platform: Platform | None, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with the size of the machine."""
    settings = dict(settings)
    cores = settings.pop("processors", None) or (platform.n_cpu_cores if platform else None)
    return settings if cores is None else {"cores": cores, **settings}
