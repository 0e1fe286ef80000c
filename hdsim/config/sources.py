"""Folders of configuration files as Hydra's plug-ins see them: where they are searched for, and how they are read."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import yaml
from hydra import initialize_config_dir
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin

from hdsim.errors import ConfigError

_SOURCES: Any = Plugins.instance().discover(ConfigSource)
_FILES: Any = next(kind for kind in _SOURCES if kind.scheme() == "file")
#: Most values of a configuration file.
_MOST = 100_000


class _Files(_FILES):
    """Configuration files, each read once; Hydra changes the contents that it gets."""

    def __init__(self, provider: str, path: str) -> None:
        super().__init__(provider, path)
        self._read: dict[str, bytes] = {}

    @staticmethod
    def scheme() -> str:
        return "hdsim"

    def load_config(self, config_path: str) -> ConfigResult:
        if config_path not in self._read:
            _check_size(Path(self.path, config_path).with_suffix(".yaml"))
            self._read[config_path] = pickle.dumps(super().load_config(config_path))
        return pickle.loads(self._read[config_path])

    def __deepcopy__(self, memo: dict[int, Any]) -> _Files:
        return self  # Each composition copies the sources.


class _SearchPath(SearchPathPlugin):
    """Adds a user's folder, and has folders read by `_Files`."""

    extra: Path | None = None

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        if self.extra is not None:
            search_path.append("command-line", str(self.extra))
        for element in search_path.get_path():
            scheme, _, path = element.path.rpartition("://")
            if scheme in ("", "file"):
                element.path = f"{_Files.scheme()}://{path}"


def initialize(folder: Path, extra: Path | None) -> Any:
    """Initializes Hydra, in place of an earlier time, with folders of primary configurations and of further options.

    Returns:
        The `Hydra` object.
    """
    for plugin in (_Files, _SearchPath):
        Plugins.instance().register(plugin)
    _SearchPath.extra = extra
    GlobalHydra.instance().clear()
    initialize_config_dir(str(folder), job_name="hdsim", version_base="1.3")
    return GlobalHydra.instance().hydra


def _check_size(file: Path) -> None:
    """Checks that a configuration file is small enough with all of its aliases replaced by what they stand for.

    Raises:
        ConfigError: It is not.
    """
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
