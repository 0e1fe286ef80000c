"""Platform and workload of a configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hdsim.errors import ConfigError
from hdsim.util.inputs import STANDARD_INPUT
from hdsim.util.resources import resolve

if TYPE_CHECKING:
    from hdsim.backends.base import Backend
    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload

Versions = tuple[tuple[str, int, int], ...]

#: Seed of what is drawn of the jobs of trainings.
_TRAINING_SEED = 1


def read_platform(config: Mapping[str, Any], backend: Backend | None = None) -> Platform:
    """Reads the platform of a configuration; its backend may have one of its own and may not know cores.

    Raises:
        HdsimError: There is none, or it cannot be used.
    """
    settings = config["platform"]
    if settings["path"] is None:
        if backend is None:
            raise ConfigError("expected a platform, got null; `hdsim run` can read a cluster", where="platform.path")
        return backend.read_platform()
    if settings["path"] == STANDARD_INPUT == config["workload"]["path"]:
        message = "expected - (standard input) for the platform or for the workload, got both"
        raise ConfigError(message, where="workload.path")
    from hdsim.platform.schema import QUANTITIES

    kind = settings["kind"] or (None if backend is None or backend.capabilities.core_ids else QUANTITIES)
    path = resolve("platforms", settings["path"], where="platform.path")
    return _platform(path, settings["types"], kind, _versions(path, settings["types"]))


def read_workload(
    config: Mapping[str, Any],
    platform: Platform,
    trace: str | None = None,
    where: str = "workload.path",
    *,
    backend: Backend | None = None,
) -> Workload:
    """Reads or generates the workload of a configuration.

    Args:
        config: The configuration.
        platform: Its platform.
        trace: Another trace than the configuration's, or the name of a generator.
        where: Key that names the trace, for error messages.
        backend: Its backend, which may have jobs of its own (``workload=cluster``).

    Raises:
        HdsimError: There is none, or it cannot be used.
    """
    if config["workload"]["cluster"] and trace is None:
        _source(config)
        if backend is None:
            raise ConfigError("expected false; `hdsim run` can read a cluster", where="workload.cluster")
        return backend.read_workload(platform)
    source = _source(config) if trace is None else _trace(trace, where)
    settings = {**config["workload"], "source": source, "seed": seed_of_jobs(config)}
    files = source.values() if isinstance(source, dict) else [source]
    return _of_site(config, _workload(platform, json.dumps(settings), _versions(*files)))


def _of_site(config: Mapping[str, Any], workload: Workload) -> Workload:
    """Returns the jobs of the part of the log that is replayed, with the rules of the site.

    An agent with a site of its own does without the rules.

    Raises:
        HdsimError: The part has no jobs, or the scheduler is not the site's.
    """
    site = config.get("site") or {}
    if site.get("path") is None:
        return workload
    versions = _versions(site["path"], Path(site["path"]) / "site.yaml")
    part = {key: value for key, value in (site.get("replay") or {}).items() if value is not None}
    own = "site" in config["agent"]
    if part and not own:
        raise ConfigError("expected agent=slurm, which alone knows the jobs that run", where=f"site.replay.{min(part)}")
    if part:
        workload = _part_of_log(workload, site, part, versions)
    return workload if own else replace(workload, site=_site(json.dumps(site), versions))


def _part_of_log(workload: Workload, site: Mapping[str, Any], part: dict[str, Any], versions: Versions) -> Workload:
    from hdsim.site.usage import part_of_log

    try:
        given = {key: None if part.get(key) is None else str(part[key]) for key in ("begin", "end", "usage")}
        return part_of_log(_site(json.dumps(site), versions), workload, **given)
    except ConfigError as error:
        where = error.where if error.where not in part else f"site.replay.{error.where}"
        raise ConfigError(error.message, where=where) from None


def seed_of_jobs(config: Mapping[str, Any]) -> int:
    """Seed of what is drawn of the jobs; that of a training would change the jobs that it is tested on.

    Configurations of earlier versions have no such key, and their trainings drew jobs from their seeds.
    """
    settings = config["workload"]
    if settings.get("seed") is not None:
        return int(settings["seed"])
    return _TRAINING_SEED if "train" in config and "seed" in settings else int(config["seed"])


def find_inputs(config: Mapping[str, Any]) -> None:
    """Finds platform and workload of a configuration of a sweep, without reading them.

    Raises:
        ConfigError: A file is missing, or is standard input, which only one run can read.
    """
    for group in ("platform", "workload"):
        if config[group]["path"] == STANDARD_INPUT:
            raise ConfigError("expected a file, which all runs of a sweep can read, got -", where=f"{group}.path")
    if config["platform"]["path"] is not None:
        resolve("platforms", config["platform"]["path"], where="platform.path")
    _source(config)


def _source(config: Mapping[str, Any]) -> str | dict[str, Any] | None:
    """The trace, or the settings of the generator; None for the jobs of a cluster."""
    settings = config["workload"]
    path, generate = settings["path"], settings["generate"]
    if settings["cluster"]:
        given = [key for key in ("path", "generate", "jobs", "start") if settings[key]]
        if given:
            raise ConfigError("expected none with workload=cluster", where=f"workload.{given[0]}")
        return None
    if (generate or {}).get("model") == "like":
        if path is None:
            raise ConfigError("expected the log that workload=like is fitted to, got null", where="workload.path")
        # The log that a generator is fitted to.
        generate, path = {**generate, "path": str(resolve("workloads", path, where="workload.path"))}, None
    if (path is None) == (generate is None):
        raise ConfigError(
            f"expected a trace or the settings of a generator (workload.generate), got "
            f"{'neither' if path is None else 'both'}",
            where="workload.path",
        )
    named = {}
    for key in ("family", "kind"):
        # Configurations of earlier versions have no kinds.
        if settings.get(key) is not None:
            if (generate or {}).get("model") != key:
                raise ConfigError(f"expected null without workload={key}, got {settings[key]}", where=f"workload.{key}")
            named[key] = settings[key]
    return {**generate, **named} if path is None else _trace(path, "workload.path")


def _trace(name: str, where: str) -> str | dict[str, Any]:
    from hdsim.workload.generators.base import is_generator

    return {"model": name} if is_generator(name) else str(resolve("workloads", name, where=where))


def _versions(*files: object) -> Versions:
    """Absolute path, time of change in ns and size in bytes of files; kept contents are those of equal versions."""
    found = []
    for file in files:
        path = Path(file) if isinstance(file, str | Path) else None
        if path is not None and path.is_file():
            status = path.stat()
            found.append((str(path.resolve()), status.st_mtime_ns, status.st_size))
    return tuple(found)


# The runs of a sweep share platforms and workloads, which are immutable, while their files are the same.
@lru_cache(maxsize=4)
def _platform(path: Path, types: str | None, kind: str | None, versions: Versions) -> Platform:
    from hdsim.platform.load import load_platform

    return load_platform(path, types, kind)


@lru_cache(maxsize=4)
def _site(settings: str, versions: Versions) -> Any:
    from hdsim.site.model import site_of_settings

    return site_of_settings(json.loads(settings), "site")


@lru_cache(maxsize=4)
def _workload(platform: Platform, settings: str, versions: Versions) -> Workload:
    from hdsim.workload.load import part_of

    options = json.loads(settings)
    slack, bound = options.pop("slack", None) or {"share": None, "time": None}, options.pop("frequency_bound", None)
    bsp, part = options.pop("bsp"), {key: options.pop(key) for key in ("jobs", "start", "arrival_factor")}
    workload = part_of(_trace_of(platform, json.dumps(options), versions), **part)
    if slack["share"] is not None:
        from hdsim.workload.slack import with_slack

        workload = with_slack(workload, **slack, seed=options["seed"])
    if bound is not None:
        from hdsim.workload.frequency_bound import with_frequency_bound

        workload = with_frequency_bound(workload, bound, seed=options["seed"])
    if bsp["supersteps"] is None:
        return workload
    from hdsim.workload.generators.bsp import with_supersteps

    return with_supersteps(workload, platform, **bsp, seed=options["seed"])


# Windows of a trace are read once.
@lru_cache(maxsize=2)
def _trace_of(platform: Platform, settings: str, versions: Versions) -> Workload:
    from hdsim.workload.load import load_workload

    options = json.loads(settings)
    for key in ("path", "generate", "family", "kind", "cluster"):
        options.pop(key, None)
    return load_workload(options.pop("source"), platform, **options)
