"""Platform and workload of a configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hdsim.errors import ConfigError
from hdsim.util.resources import resolve

if TYPE_CHECKING:
    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload


def read_platform(config: Mapping[str, Any]) -> Platform:
    """Reads the platform of a configuration.

    Raises:
        HdsimError: There is none, or it cannot be used.
    """
    return _platform(*_platform_key(config))


def read_workload(config: Mapping[str, Any], trace: str | None = None, where: str = "workload.path") -> Workload:
    """Reads or generates the workload of a configuration.

    Args:
        config: The configuration.
        trace: Another trace than the configuration's, or the name of a generator.
        where: Key that names the trace, for error messages.

    Raises:
        HdsimError: There is none, or it cannot be used.
    """
    source = _source(config) if trace is None else _trace(trace, where)
    settings = {"source": source, "seed": config["seed"]} | config["workload"]
    return _workload(_platform_key(config), json.dumps(settings))


def find_inputs(config: Mapping[str, Any]) -> None:
    """Finds platform and workload of a configuration, without reading them.

    Raises:
        ConfigError: A file is missing.
    """
    _platform_key(config)
    _source(config)


def _source(config: Mapping[str, Any]) -> str | dict[str, Any]:
    """The trace, or the settings of the generator."""
    path, generate = config["workload"]["path"], config["workload"]["generate"]
    if (path is None) == (generate is None):
        raise ConfigError(
            f"expected a trace or the settings of a generator (workload.generate), got "
            f"{'neither' if path is None else 'both'}",
            where="workload.path",
        )
    return dict(generate) if path is None else _trace(path, "workload.path")


def _trace(name: str, where: str) -> str | dict[str, Any]:
    from hdsim.workload.load import GENERATORS

    return {"model": name} if name in GENERATORS else str(resolve("workloads", name, where=where))


def _platform_key(config: Mapping[str, Any]) -> tuple[Path, str | None, str | None]:
    settings = config["platform"]
    return resolve("platforms", settings["path"], where="platform.path"), settings["types"], settings.get("kind")


# The runs of a sweep share platforms and workloads, which are immutable.
@lru_cache(maxsize=4)
def _platform(path: Path, types: str | None, kind: str | None) -> Platform:
    from hdsim.platform.load import load_platform

    return load_platform(path, types, kind)


@lru_cache(maxsize=4)
def _workload(platform_key: tuple[Path, str | None, str | None], settings: str) -> Workload:
    from hdsim.workload.load import load_workload

    platform, options = _platform(*platform_key), json.loads(settings)
    source, bsp = options.pop("source"), options.pop("bsp")
    del options["path"], options["generate"]
    workload = load_workload(source, platform, **options)
    if bsp["supersteps"] is None:
        return workload
    from hdsim.workload.generators.bsp import with_supersteps

    return with_supersteps(workload, platform, **bsp, seed=options["seed"])
