"""Rules for the values of settings."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral, Real
from typing import Any

from hdsim.errors import ConfigError, nearest
from hdsim.util.units import DURATION_UNITS, LONGEST_TIME, parse_duration


@dataclass(frozen=True)
class Rule:
    """A rule for the value of a setting; `expected` describes the allowed values for error messages."""

    expected: str
    accepts: Callable[[Any], bool]

    def __or__(self, other: Rule) -> Rule:
        return Rule(f"{self.expected} or {other.expected}", lambda value: self.accepts(value) or other.accepts(value))

    def fault(self, value: Any, where: str) -> ConfigError | None:
        """Returns the error for a value, None if it is allowed."""
        if self.accepts(value):
            return None
        return ConfigError(f"expected {self.expected}, got {'null' if value is None else repr(value)}", where=where)


def is_finite(value: Any) -> bool:
    """Returns whether a value is a finite number that a float can represent, NumPy's included."""
    if type(value) is float:  # the abstract class below takes ten times as long
        return math.isfinite(value)
    try:
        return type(value) is not bool and isinstance(value, Real) and math.isfinite(value)
    except OverflowError:
        return False


def integers_from(minimum: int) -> Rule:
    """Integers of at least a minimum; a float without a fractional part counts as an integer."""
    return Rule(f"a whole number >= {minimum}", lambda value: is_finite(value) and value >= minimum and value % 1 == 0)


def numbers_between(low: float, high: float) -> Rule:
    """Numbers within limits, which count."""
    expected = f"a number >= {low:g}" if high == math.inf else f"a number from {low:g} to {high:g}"
    return Rule(expected, lambda value: is_finite(value) and low <= value <= high)


def lists_of(items: Rule, expected: str, length: int | None = None, holds: Callable[[Any], bool] = bool) -> Rule:
    """Lists and tuples of allowed items, `length` of them if given, for which something holds: by default some item."""
    return Rule(
        expected,
        lambda value: (
            isinstance(value, list | tuple)
            and length in (None, len(value))
            and all(map(items.accepts, value))
            and holds(value)
        ),
    )


def ascends(values: Sequence[float]) -> bool:
    """Whether each of some numbers is above the one before; none are not."""
    return bool(values) and all(low < high for low, high in pairwise(values))


NUMBER = Rule("a number", is_finite)
POSITIVE = Rule("a number > 0", lambda value: is_finite(value) and value > 0)
NOT_NEGATIVE = Rule("a number >= 0", lambda value: is_finite(value) and value >= 0)
SECONDS = numbers_between(0, LONGEST_TIME)
TEXT = Rule("a text", lambda value: isinstance(value, str) and value != "")
NULL = Rule("null", lambda value: value is None)
FLAG = Rule("true or false", lambda value: isinstance(value, bool))
#: Integers of any type, such as NumPy's.
SEED = Rule(
    "a whole number >= 0", lambda value: type(value) is not bool and isinstance(value, Integral) and int(value) >= 0
)
ANYTHING = Rule("anything", lambda value: True)
TEXTS = lists_of(
    Rule("a text", lambda value: isinstance(value, str)), "a list of texts such as [--quiet]", holds=ANYTHING.accepts
)
INTEGERS = lists_of(integers_from(0), "a list of whole numbers such as [0, 1024]")


def check_keys(group: str, given: Iterable[str], allowed: Collection[str]) -> None:
    """Raises ConfigError for an unknown key of a group, with the nearest one and those that are allowed."""
    for key in given:
        if key not in allowed:
            message = f"unknown key{nearest(key, allowed)}; allowed: {', '.join(allowed)}"
            raise ConfigError(message, where=f"{group}.{key}")


def require(group: str, rules: Mapping[str, Rule], values: Mapping[str, Any]) -> None:
    """Raises ConfigError for the settings of a group that are not allowed; all of them are listed."""
    faults = [rule.fault(values[key], f"{group}.{key}") for key, rule in rules.items() if key in values]
    found = [fault for fault in faults if fault is not None]
    if found:
        raise ConfigError.many(found)


def texts(settings: Any) -> Any:
    """Returns a setting, or several in mappings and lists, with paths as text, as which files have them."""
    if isinstance(settings, os.PathLike):
        return os.fspath(settings)
    if isinstance(settings, Mapping):
        return {key: texts(value) for key, value in settings.items()}
    return [texts(value) for value in settings] if type(settings) is list else settings


def has_values(settings: Mapping[str, Any] | None) -> bool:
    """Whether any setting of a group is given."""
    return settings is not None and any(value is not None for value in settings.values())


def duration(value: float | str, where: str, *, zero: bool = False) -> float:
    """Returns a setting in seconds, given as a number or as a text with a unit; `zero` allows 0.

    Raises:
        ConfigError: The setting is not a duration.
    """
    try:
        seconds = parse_duration(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ConfigError(str(error), where=where) from None
    if not is_finite(seconds) or seconds < 0 or (seconds == 0 and not zero):
        least = ">= 0" if zero else "> 0"
        raise ConfigError(
            f"expected seconds {least} or a text with a unit ({', '.join(DURATION_UNITS)}), got {value!r}", where=where
        )
    return float(seconds)
