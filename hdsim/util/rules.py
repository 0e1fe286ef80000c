"""What the values of settings may be, and the words in which errors say so."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hdsim.errors import ConfigError


@dataclass(frozen=True)
class Rule:
    """What a setting takes.

    Attributes:
        expected: The words an error message uses.
        accepts: Whether a value is one of them.
    """

    expected: str
    accepts: Callable[[Any], bool]

    def __or__(self, other: Rule) -> Rule:
        return Rule(f"{self.expected} or {other.expected}", lambda value: self.accepts(value) or other.accepts(value))

    def fault(self, value: Any, where: str) -> ConfigError | None:
        """The error that a value is, if it is one."""
        if self.accepts(value):
            return None
        return ConfigError(f"expected {self.expected}, got {'null' if value is None else repr(value)}", where=where)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def integers_from(minimum: int) -> Rule:
    """Integers of at least a minimum; a float without fraction is one."""
    return Rule(f"a whole number >= {minimum}", lambda value: _is_number(value) and value >= minimum and value % 1 == 0)


POSITIVE = Rule("a number > 0", lambda value: _is_number(value) and value > 0)
NOT_NEGATIVE = Rule("a number >= 0", lambda value: _is_number(value) and value >= 0)
TEXT = Rule("a text", lambda value: isinstance(value, str) and value != "")
NULL = Rule("null", lambda value: value is None)
FLAG = Rule("true or false", lambda value: isinstance(value, bool))
TEXTS = Rule(
    "a list of texts such as [--quiet]",
    lambda value: isinstance(value, list | tuple) and all(isinstance(text, str) for text in value),
)
INTEGERS = Rule(
    "a list of whole numbers such as [0, 1024]",
    lambda value: (
        isinstance(value, list) and len(value) > 0 and all(integers_from(0).accepts(number) for number in value)
    ),
)
ANYTHING = Rule("anything", lambda value: True)


def require(group: str, rules: Mapping[str, Rule], values: Mapping[str, Any]) -> None:
    """Checks settings of a group of the configuration.

    Raises:
        ConfigError: Values that the rules do not accept, all of them.
    """
    faults = [rule.fault(values[key], f"{group}.{key}") for key, rule in rules.items() if key in values]
    found = [fault for fault in faults if fault is not None]
    if found:
        raise ConfigError.many(found)
