"""The size of YAML documents whose aliases multiply what is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hdsim.errors import ConfigError

#: Most values of a configuration file.
_MOST = 100_000


def check_size(file: Path) -> None:
    """Checks that a configuration file is small enough with all of its aliases replaced by what they stand for.

    Raises:
        ConfigError: It is not.
    """
    import yaml

    try:
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
        root = yaml.compose(text, Loader=yaml.SafeLoader) if "*" in text else None
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return  # the reader names the fault
    if root is not None and _values(root, {}) > _MOST:
        raise ConfigError(f"expected at most {_MOST:,} values, got more by aliases (*name)", where=str(file))


def _values(node: Any, known: dict[int, float]) -> float:
    """Number of values of a node, infinite if it is part of itself."""
    if id(node) not in known:
        known[id(node)] = float("inf")
        children = node.value if isinstance(node.value, list) else []
        parts = [part for child in children for part in (child if isinstance(child, tuple) else (child,))]
        known[id(node)] = 1.0 + sum(_values(part, known) for part in parts)
    return known[id(node)]
