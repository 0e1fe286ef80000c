"""Settings of learning agents: fields of a dataclass whose values have a rule."""

from __future__ import annotations

import math
from dataclasses import Field, field
from typing import Any

from hdsim.util.rules import ANYTHING, FLAG, NULL, Rule, integers_from, lists_of, numbers_between

_WIDTHS = lists_of(integers_from(1), "a list of whole numbers >= 1", holds=ANYTHING.accepts)


def number(default: float, low: float = 0.0, high: float = math.inf) -> Any:
    """A setting that is a number in low..high; a field of an agent's dataclass."""
    return field(default=default, metadata={"rule": numbers_between(low, high), "type": lambda value: value})


def integer(default: int | None, low: int = 1) -> Any:
    """A setting that is a whole number, at least `low`, or None by default; a field of an agent's dataclass."""
    rule = integers_from(low) if default is not None else integers_from(low) | NULL
    return field(default=default, metadata={"rule": rule, "type": lambda value: None if value is None else int(value)})


def word(default: str, *others: str) -> Any:
    """A setting that is one of several words; a field of an agent's dataclass."""
    allowed = (default, *others)
    return field(default=default, metadata={"rule": Rule(" or ".join(allowed), lambda value: value in allowed)})


def layer_widths(*default: int) -> Any:
    """A setting that lists whole numbers, such as widths of hidden layers; a field of an agent's dataclass."""
    return field(default=default, metadata={"rule": _WIDTHS, "type": lambda widths: list(map(int, widths))})


def checked(setting: Field[Any], value: Any) -> Any:
    """The value of a setting, whole numbers as integers.

    Raises:
        ConfigError: It is not what the setting takes.
    """
    rule = setting.metadata.get("rule", FLAG if isinstance(setting.default, bool) else ANYTHING)
    if fault := rule.fault(value, f"agent.{setting.name}"):
        raise fault
    return setting.metadata["type"](value) if "type" in setting.metadata else value
