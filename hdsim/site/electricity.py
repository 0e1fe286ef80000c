"""Power of the nodes of a site, and changes of its power management and of the price of electricity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hdsim.errors import ConfigError, nearest
from hdsim.site.changes import value_of
from hdsim.site.model import NodePower, Site

#: Keys of runs by short words of changes; others that begin with ``power.`` or ``facility.`` are keys of runs.
_WORDS = {
    "power.suspend": "power.suspend_time",
    "power.price": "facility.price",
    "power.carbon": "facility.carbon",
    "power.pue": "facility.pue",
}
_GROUPS = ("power", "facility")
#: Settings of power management without one of which the others have no effect.
_ACTING = {"cap", "suspend_time", "frequency", "path", "_target_"}


@dataclass(frozen=True)
class Electricity:
    """Settings of the replays of a site that are none of its rules.

    Attributes:
        power: Settings of power management, those of :class:`hdsim.power.PowerManagement`, which are changes.
        facility: Settings of a facility, which hold before and after the changes: they change no schedule.
    """

    power: dict[str, Any] = field(default_factory=dict)
    facility: dict[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.power or self.facility)


def electricity_of(changes: Sequence[str], keys: Mapping[str, Sequence[str]]) -> tuple[list[str], Electricity]:
    """Returns the changes that are rules of the site, and those of electricity.

    Args:
        changes: The changes.
        keys: Those of the groups ``power``, unless there is a class of one's own, and ``facility``.

    Raises:
        ConfigError: A key has two values; a change of electricity has no value or is none; or those of power neither
            limit it nor let nodes sleep.
    """
    rules, found, given = [], Electricity(), list[str]()
    for text in changes:
        given.append(text.partition("=")[0].strip())
        if given[-1] in given[:-1] and given[-1] != "reserve" and not given[-1].endswith(("+", "-")):
            raise ConfigError(f"expected one value of {given[-1]}, got a second one", where=text)
        key, sign, value = (part.strip() for part in text.partition("="))
        if key.partition(".")[0] not in _GROUPS or sign != "=":
            rules.append(text)
            continue
        group, _, name = _WORDS.get(key, key).partition(".")
        if not name or not value:
            message = "expected a change such as power.cap=0.8, power.suspend=600 or power.price=FILE"
            raise ConfigError(message, where=text)
        getattr(found, group)[name] = value_of(value)
    if not {"path", "_target_"} & set(found.power):
        _check_keys("power", found.power, keys["power"])
    _check_keys("facility", found.facility, keys["facility"])
    if found.power and not _ACTING & set(found.power):
        message = "expected power.cap or power.suspend beside it, without which it changes nothing"
        raise ConfigError(message, where=f"power.{next(iter(found.power))}")
    return rules, found


def _check_keys(group: str, given: Iterable[str], keys: Sequence[str]) -> None:
    known = {f"{group}.{key}" for key in keys} | {word for word, key in _WORDS.items() if key.startswith(group)}
    for key in (f"{group}.{name}" for name in given):
        if key not in known:
            told = f"unknown key{nearest(key, known)}; allowed: {', '.join(sorted(known))}"
            raise ConfigError(told, where=key)


def with_power(site: Site) -> Site:
    """Returns a site with the usual power of nodes where it is not known; see :class:`hdsim.site.model.NodePower`."""
    nodes = {
        name: kind if kind.power is not None else kind.model_copy(update={"power": NodePower()})
        for name, kind in site.nodes.items()
    }
    return site.model_copy(update={"nodes": nodes})


def assumed(site: Site) -> str:
    """Returns what `with_power` assumes, in words; empty where the power of all nodes is known."""
    kinds, usual = [name for name, kind in site.nodes.items() if kind.power is None], NodePower()
    if not kinds:
        return ""
    gpus = f", {usual.gpu:g} W a GPU" if any(site.nodes[name].gres for name in kinds) else ""
    return (
        f"of nodes {', '.join(kinds)} assumed: {usual.on:g} W up, beside it {usual.core:g} W a core{gpus} that "
        f"computes; {usual.off:g} W off, {usual.shutdown:g} s to go down, {usual.boot:g} s to boot "
        f"(nodes.{kinds[0]}.power in site.yaml sets them)"
    )
