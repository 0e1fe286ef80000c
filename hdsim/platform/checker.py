"""Checks of JSON documents that collect every fault."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from hdsim.errors import PlatformError, nearest
from hdsim.util.rules import is_finite
from hdsim.util.text import LABEL_VALUE, LABEL_VALUES, shown


class Section(NamedTuple):
    """Types of a platform by name, None if they could not be read, the checker of their document and their path there.

    References into a section that could not be read are not checked, since its own fault is reported.
    """

    content: Mapping[str, Any] | None
    checker: Checker
    prefix: str

    @property
    def names(self) -> Sequence[str] | None:
        """Names of the types, None if they could not be read."""
        return None if self.content is None else [name for name in self.content if not name.startswith("_")]


class Types:
    """The type definitions of a platform by section, and the sha256 of each type library by path."""

    def __init__(self) -> None:
        self.sections: dict[str, Section] = {}
        self.files: dict[str, str] = {}


class Checker:
    """Collects the faults of a document; a check returns a usable value also after a fault."""

    def __init__(self, source: str, errors: list[PlatformError]) -> None:
        self.source = source
        self.errors = errors

    def fault(self, path: str, message: str) -> None:
        """Adds a fault at a path of the document."""
        self.errors.append(PlatformError(message, where=f"{self.source}: {path}" if path else self.source))

    def tree(self, value: Any, path: str) -> None:
        """Checks a whole document for duplicate keys and numbers that are not finite."""
        if isinstance(value, Mapping):
            for key in getattr(value, "duplicates", ()):
                self.fault(child_path(path, key), "expected each key once, got it twice")
            for key, child in value.items():
                self.tree(child, child_path(path, key))
        elif isinstance(value, list | tuple):
            for index, child in enumerate(value):
                self.tree(child, f"{path}[{index}]")
        elif is_number(value) and not is_finite(value):
            self.fault(path, f"expected a finite number, got {shown(value)}")

    def object(
        self, value: Any, path: str, required: Iterable[str] = (), optional: Iterable[str] = (), *, extra: bool = False
    ) -> Mapping[str, Any]:
        """Returns a JSON object without its comments; `extra` permits further keys."""
        if not isinstance(value, Mapping):
            self.fault(path, f"expected an object {{...}}, got {shown(value)}")
            return {}
        present = {key: child for key, child in value.items() if not key.startswith("_")}
        missing = [key for key in required if present.get(key) is None]
        absent = [*missing, *(key for key in optional if key not in present)]
        allowed = [*required, *optional]
        for key in missing:
            self.fault(child_path(path, key), "expected a value, got none")
        for key in present:
            # If further keys are permitted, a key that resembles a missing key is a misspelling of it.
            if key not in allowed and (not extra or nearest(key, absent)):
                hint = nearest(key, absent) or nearest(key, allowed)
                self.fault(child_path(path, key), f"unknown key{hint}; allowed: {', '.join(allowed)}")
        return present

    def items(self, holder: Mapping[str, Any], key: str, path: str) -> list[tuple[str, Any]]:
        """Returns the elements of a non-empty list with their paths, an empty list if the key is absent."""
        value, path = holder.get(key), child_path(path, key)
        if value is None:
            return []
        if not isinstance(value, list | tuple) or not value:
            self.fault(path, f"expected a list [...] of at least one element, got {shown(value)}")
            return []
        return [(f"{path}[{index}]", child) for index, child in enumerate(value)]

    def text(self, holder: Mapping[str, Any], key: str, path: str, default: str = "") -> str:
        """Returns a text that is not empty."""
        value = holder.get(key)
        if value is None:
            return default
        if not isinstance(value, str) or not value:
            self.fault(child_path(path, key), f"expected a text, got {shown(value)}")
            return default
        return value

    def label(self, holder: Mapping[str, Any], key: str, path: str) -> str:
        """Returns the value of a label or taint of Kubernetes, empty if absent."""
        value = holder.get(key)
        if value is None or (isinstance(value, str) and LABEL_VALUE.fullmatch(value)):
            return value or ""
        self.fault(child_path(path, key), f"expected {LABEL_VALUES}, got {shown(value)}")
        return ""

    def count(self, holder: Mapping[str, Any], key: str, path: str) -> int:
        """Returns an integer of at least 1."""
        value = holder.get(key)
        if value is None or is_count(value):
            return 1 if value is None else int(value)
        self.fault(child_path(path, key), f"expected a whole number of at least 1, got {shown(value)}")
        return 1

    def number(
        self, holder: Mapping[str, Any], key: str, path: str, unit: str, *, zero: bool = False, default: float = 1.0
    ) -> float:
        """Returns a number above 0, or of at least 0 if `zero` is set."""
        value = holder.get(key)
        if value is None:
            return default
        if is_number(value):
            if not is_finite(value):
                return default
            if value > 0 or (zero and value == 0):
                return float(value)
        bound = "of at least 0" if zero else "above 0"
        self.fault(child_path(path, key), f"expected a number {bound} ({unit}), got {shown(value)}")
        return default

    def quantity(
        self, holder: Mapping[str, Any], key: str, path: str, parse: Callable[[str], float], default: float
    ) -> float:
        """Returns a value with a unit."""
        value = holder.get(key)
        if value is None:
            return default
        try:
            return parse(value)
        except ValueError as error:
            self.fault(child_path(path, key), str(error))
            return default

    def reference(self, holder: Mapping[str, Any], key: str, path: str, types: Types, section: str) -> str:
        """Returns the name of an existing type."""
        name = self.text(holder, key, path)
        names = types.sections[section].names
        if name and names is not None and name not in names:
            shown = ", ".join(f"'{known}'" for known in names[:12]) or "nothing, as no type is defined"
            more = f" and {len(names) - 12} more" if len(names) > 12 else ""
            self.fault(child_path(path, key), f"expected one of {shown}{more}, got '{name}'{nearest(name, names)}")
        return name


def child_path(path: str, key: str) -> str:
    """Returns the path of a value in an object."""
    if re.fullmatch(r"\w+", str(key)):
        return f"{path}.{key}" if path else str(key)
    return f"{path}[{str(key)!r}]"


def is_number(value: Any) -> bool:
    """Returns whether a JSON value is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_count(value: Any) -> bool:
    """Returns whether a JSON value is an integer of at least 1 that a float can hold."""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 2**53
