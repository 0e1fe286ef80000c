"""Folders of configuration files as Hydra's plug-ins see them: where they are searched for, and how they are read."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from hydra import initialize_config_dir
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin

from hdsim.config.aliases import check_size


class _ReadOnce(ConfigSource):
    """Another source, each of whose configurations is read once; Hydra changes those that it gets.

    Its path is ``hdsim://`` and that of the other one, such as ``hdsim://file:///folder``.
    """

    def __init__(self, provider: str, path: str) -> None:
        super().__init__(provider, path)
        scheme, _, self._folder = self.path.partition("://")
        kinds = {kind.scheme(): kind for kind in Plugins.instance().discover(ConfigSource)}  # type: ignore[attr-defined]
        self._source: ConfigSource = kinds[scheme](provider, self.path)  # type: ignore[call-arg, assignment]
        self._read: dict[str, bytes] = {}

    @staticmethod
    def scheme() -> str:
        return "hdsim"

    def load_config(self, config_path: str) -> ConfigResult:
        if config_path not in self._read:
            check_size(Path(self._folder, config_path).with_suffix(".yaml"))
            self._read[config_path] = pickle.dumps(self._source.load_config(config_path))
        result: ConfigResult = pickle.loads(self._read[config_path])
        return result

    def is_group(self, config_path: str) -> bool:
        return self._source.is_group(config_path)

    def is_config(self, config_path: str) -> bool:
        return self._source.is_config(config_path)

    def available(self) -> bool:
        return self._source.available()

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        return self._source.list(config_path, results_filter)

    def __deepcopy__(self, memo: dict[int, Any]) -> _ReadOnce:
        return self  # Each composition copies the sources.


class _SearchPath(SearchPathPlugin):
    """Adds a user's folder, and has everything read once."""

    extra: Path | None = None

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        if self.extra is not None:
            search_path.append("command-line", str(self.extra))
        for element in search_path.get_path():
            path = element.path if "://" in element.path else f"file://{element.path}"
            element.path = f"{_ReadOnce.scheme()}://{path}"


def initialize(folder: Path, extra: Path | None) -> Any:
    """Initializes Hydra, in place of an earlier time.

    Args:
        folder: The folder of primary configurations.
        extra: A further folder of options.

    Returns:
        The `Hydra` object.
    """
    for plugin in (_ReadOnce, _SearchPath):
        Plugins.instance().register(plugin)
    _SearchPath.extra = extra
    GlobalHydra.instance().clear()
    initialize_config_dir(str(folder), job_name="hdsim", version_base="1.3")
    return GlobalHydra.instance().hydra
