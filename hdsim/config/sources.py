"""Folders of configuration files as Hydra's plug-ins see them: where they are searched for, and how they are read."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from hydra import initialize_config_dir
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin

from hdsim.config.aliases import check_size

_SOURCES: Any = Plugins.instance().discover(ConfigSource)
_FILES: Any = next(kind for kind in _SOURCES if kind.scheme() == "file")


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
            check_size(Path(self.path, config_path).with_suffix(".yaml"))
            self._read[config_path] = pickle.dumps(super().load_config(config_path))
        result: ConfigResult = pickle.loads(self._read[config_path])
        return result

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
    """Initializes Hydra, in place of an earlier time.

    Args:
        folder: The folder of primary configurations.
        extra: A further folder of options.

    Returns:
        The `Hydra` object.
    """
    for plugin in (_Files, _SearchPath):
        Plugins.instance().register(plugin)
    _SearchPath.extra = extra
    GlobalHydra.instance().clear()
    initialize_config_dir(str(folder), job_name="hdsim", version_base="1.3")
    return GlobalHydra.instance().hydra
