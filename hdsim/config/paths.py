"""Paths in a configuration: quoted for Hydra's parser, made absolute where a run changes the working directory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hdsim.config.plugin_types import named_types
from hdsim.results.run_directory.inputs import is_input

#: Last part of the keys that take a path, beside those that name a plug-in.
_KEYS = ("path", "types", "checkpoint", "recording", "start", "file", "executable", "socket", "dir", "usage")
#: Keys that take a path and are in no group.
_TOP_KEYS = ("site", "profile", "actual", "forecasts", "series")
#: Keys that take a path or a number.
_SERIES = ("facility.price", "facility.carbon", "facility.temperature")
#: Values that the parser of Hydra leaves unchanged: plain text, quoted text, lists, mappings, sweeps over functions,
#: references.
_PARSED = re.compile(r"[\w./\\:@%+*?|$-]*|'.*'|\".*\"|\[.*\]|\{.*\}|\w+\(.*\)|.*\$\{.*", re.ASCII | re.DOTALL)


def takes_path(key: str) -> bool:
    """Whether the value of a key is a path."""
    return key in (*_TOP_KEYS, *_SERIES) or ("." in key and key.rpartition(".")[2] in _KEYS) or key in named_types()


def quoted_path(override: str) -> str:
    """Returns an override of a path with quotes around each value that Hydra's parser needs them for.

    A comma separates the values of a sweep unless a file is named so. ``~/`` at its begin is the home directory.
    """
    key, equals, value = override.partition("=")
    if not (equals and takes_path(key)) or _PARSED.fullmatch(value):
        return override
    values = [value] if is_input(Path(value)) else value.split(",")
    values = [str(Path(text).expanduser()) if text.startswith("~/") else text for text in values]
    return f"{key}={','.join(text if _PARSED.fullmatch(text) else _quoted(text) for text in values)}"


def _quoted(text: str) -> str:
    # Hydra takes a backslash for an escape before a quote and at the end of a text only.
    escaped = re.sub(r"(\\*)(?='|$)", r"\1\1", text).replace("'", "\\'")
    return f"'{escaped}'"


def with_absolute_paths(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a configuration in which each text that names an existing file or run directory is an absolute path."""
    return {key: _absolute(value, types=key == "types") for key, value in config.items()}


def _absolute(value: Any, *, types: bool = False) -> Any:
    if isinstance(value, Mapping):
        return with_absolute_paths(value)
    if isinstance(value, list):
        return [_absolute(child) for child in value]
    if isinstance(value, str) and (is_input(Path(value)) or (types and Path(value).is_dir())):
        return str(Path(value).absolute())
    return value
