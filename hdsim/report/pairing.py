"""Assigns runs to scenarios, configurations and replications by the differences of their settings."""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hdsim.errors import ConfigError
from hdsim.results.run_directory.directory import RunDirectory
from hdsim.results.run_directory.manifest import read_manifest, told_status
from hdsim.util.plugins import short_name

Key = tuple[tuple[str, str], ...]
#: Settings without influence on the result of a training.
_BOOKKEEPING = ("train.log_every", "train.checkpoint_every", "train.tensorboard")
#: Configuration groups whose option is a class with settings.
MODELS = ("backend", "contention", "network", "failures", "controller")
#: Settings of a classic agent in the order of its short name.
_WORDS = ("backfill", "job_policy", "core_policy")
#: Replays of test windows in the directory of a training.
EVALUATION = "evaluation.csv"
#: Settings in which replications of one configuration differ.
REPLICATION = ("seed", "workload.start", "start")


@dataclass(frozen=True)
class Entry:
    """A run, and where it belongs.

    Attributes:
        path: Its directory.
        metrics: Its metrics.
        scenario: Settings shared with the compared runs.
        configuration: Settings of its configuration.
        replication: Seed and part of the trace.
    """

    path: Path
    metrics: Mapping[str, float]
    scenario: Key
    configuration: Key
    replication: Key


def without_dead(directories: Iterable[Path]) -> tuple[list[Path], dict[Path, str]]:
    """Separates runs whose process was killed, with a description of the time, from the others."""
    found, dead = [], {}
    for path in directories:
        manifest = read_manifest(path)
        if manifest["status"] == "dead":
            dead[path] = told_status(manifest)
        else:
            found.append(path)
    return found, dead


def run_directories(path: Path) -> list[Path]:
    """The run directory itself, or those inside a sweep in order of their starts."""
    if (path / "manifest.json").is_file():
        return [path]
    if not path.is_dir():
        raise ConfigError("expected a run directory or a sweep, got a path where there is none", where=str(path))
    found = [manifest.parent for manifest in path.rglob("manifest.json")]
    if not found:
        raise ConfigError("expected a run directory or a sweep, got a directory without any run", where=str(path))
    return sorted(found, key=lambda run: (str(read_manifest(run).get("start")), run))


def evaluated_entries(directories: list[Path], first: Path) -> tuple[list[Entry], Key]:
    """Reads the replays of the test windows of trainings, and finds the baseline's configuration.

    Of the agents of a training only the shipped one takes part. The baseline is the best classic policy of the training
    `first`.

    Raises:
        ConfigError: A training did not finish; all such are listed.
    """
    entries = []
    settings, _ = _load_all(directories)
    facts = [read_manifest(path)["training"] for path in directories]
    keys = dict.fromkeys(key for setting in settings for key in setting)
    differing = [key for key in keys if _differs(key, settings) and key not in REPLICATION]
    shared = [key for key in differing if key.partition(".")[0] not in ("agent", "train")]
    # Trainings of one algorithm are distinguished by their settings, those of several by its name.
    own = {name: _own([setting for setting, fact in zip(settings, facts, strict=True) if fact["agent"] == name])
           for name in {fact["agent"] for fact in facts}}  # fmt: skip
    places: set[tuple[Key, Key, Key]] = set()
    for path, setting, fact in zip(directories, settings, facts, strict=True):
        shipped = fact["shipped"].partition(".")[0]
        with (path / EVALUATION).open(encoding="utf-8", newline="") as file:
            for cells in csv.DictReader(file):
                agent, window = cells.pop("agent"), cells.pop("window")
                if agent in ("best", "final") and agent != shipped:
                    continue
                learned = agent == shipped
                configuration = (
                    ("agent", fact["agent"] if learned else agent),
                    *(_key(setting, own[fact["agent"]]) if learned else ()),
                )
                place = (_key(setting, shared), configuration, (("seed", setting["seed"]), ("window", window)))
                # Trainings of one seed have replayed the classic policies alike.
                if learned or place not in places:
                    places.add(place)
                    entries.append(Entry(path, {name: float(cell) for name, cell in cells.items()}, *place))
    best = facts[directories.index(first)]["best_classic"]
    return entries, (("agent", best),) if best else entries[0].configuration


def _own(settings: list[dict[str, str]]) -> list[str]:
    """Settings of agent and training that differ between trainings of one algorithm, except logging settings."""
    keys = dict.fromkeys(key for setting in settings for key in setting if key.partition(".")[0] in ("agent", "train"))
    return [key for key in keys if _differs(key, settings) and key not in (*REPLICATION, *_BOOKKEEPING)]


def run_entries(directories: list[Path], first: Path) -> tuple[list[Entry], Key]:
    """Reads the runs, and finds their differences and the baseline's configuration.

    Args:
        directories: The runs.
        first: The run with the baseline's configuration.

    Raises:
        ConfigError: Runs cannot be compared; all are listed.
    """
    settings, metrics = _load_all(directories)
    keys = dict.fromkeys(key for setting in settings for key in setting)
    differing = [key for key in keys if _differs(key, settings)]
    replication = [key for key in differing if key in REPLICATION]
    other = [key for key in differing if key not in REPLICATION]
    configuration = [key for key in other if key.partition(".")[0] in ("agent", "controller")] or other
    scenario = [key for key in other if key not in configuration]
    base = _key(settings[directories.index(first)], configuration)
    ran_base = {_key(setting, scenario) for setting in settings if _key(setting, configuration) == base}
    if any(_key(setting, scenario) not in ran_base for setting in settings):
        configuration, scenario = other, []
    entries = [
        Entry(path, numbers, *(_key(setting, names) for names in (scenario, configuration, replication)))
        for path, setting, numbers in zip(directories, settings, metrics, strict=True)
    ]
    places = Counter((entry.scenario, entry.configuration, entry.replication) for entry in entries)
    if places.most_common(1)[0][1] == 1:
        return entries, next(entry.configuration for entry in entries if entry.path == first)
    # The configurations are equal; the names of the directories distinguish the runs.
    names = _distinct_names(directories)
    entries = [
        Entry(entry.path, entry.metrics, entry.scenario, (("", names[entry.path]), *entry.configuration), ())
        for entry in entries
    ]
    return entries, next(entry.configuration for entry in entries if entry.path == first)


def _load_all(directories: Iterable[Path]) -> tuple[list[dict[str, str]], list[Mapping[str, float]]]:
    """Settings and metrics of finished runs.

    Raises:
        ConfigError: Runs cannot be read or did not finish; all are listed.
    """
    errors, configs, metrics = [], [], []
    for path in directories:
        try:
            config, numbers = _load(path)
        except ConfigError as error:
            errors.append(error)
        else:
            configs.append(config)
            metrics.append(numbers)
    if errors:
        raise ConfigError.many(errors)
    if len({_class_of(config.get("agent")) for config in configs}) > 1:
        configs = [_with_agent_name(config) for config in configs]
    return [dict(_flat(_named(config))) for config in configs], metrics


def _load(path: Path) -> tuple[dict[str, Any], Mapping[str, float]]:
    """Configuration and metrics of a finished run."""
    manifest = read_manifest(path)
    status = manifest["status"]
    if status != "finished":
        raise ConfigError(f"expected a finished run, got one that is {status}", where=str(path))
    if not any((path / name).is_file() for name in ("jobs.csv", "supersteps.csv")):
        raise ConfigError("expected a finished run, got a directory without jobs.csv", where=str(path))
    return manifest["config"], RunDirectory(path).metrics()


def _named(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with the short names of its models, ``contention=fair_share``, and their settings."""
    models = {group: config[group] for group in MODELS if isinstance(config.get(group), Mapping)}
    rest = {key: value for key, value in config.items() if key not in models}
    for group, model in models.items():
        rest[group] = short_name(model)
        rest |= {f"{group}.{key}": value for key, value in model.items() if key not in ("path", "_target_")}
    return rest


def _class_of(agent: Any) -> str:
    """Class or file of an agent, empty for a classic one."""
    return str(agent.get("path") or agent.get("_target_") or "") if isinstance(agent, Mapping) else ""


def _with_agent_name(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration with the agent by its name: its class, or the words of a classic agent's short name."""
    agent = config.get("agent")
    if not isinstance(agent, Mapping):
        return config
    words = [str(agent[key]) for key in _WORDS if agent.get(key) not in (None, "none")]
    name = Path(_class_of(agent)).stem if agent.get("path") else _class_of(agent).rpartition(".")[2]
    rest = {f"agent.{key}": value for key, value in agent.items() if key not in (*_WORDS, "path", "_target_")}
    return {**config, "agent": name or "-".join(words), **rest}


def _differs(key: str, settings: Sequence[Mapping[str, str]]) -> bool:
    """Whether runs differ in a setting; settings of a model or a named agent count among runs with it only."""
    group = key.partition(".")[0]
    if key == group:
        return len({setting.get(key) for setting in settings}) > 1
    values = defaultdict(set)
    for setting in settings:
        if group not in MODELS or key in setting:
            values[setting.get(group)].add(setting.get(key))
    return any(len(found) > 1 for found in values.values())


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", "none" if value is None else str(value)


def _key(setting: Mapping[str, str], names: Iterable[str]) -> Key:
    return tuple((name, setting.get(name, "none")) for name in names)


def key_text(key: Key) -> str:
    """Settings as text: ``job_policy=first backfill=easy``."""
    last = Counter(name.rpartition(".")[2] for name, _ in key)
    parts = []
    for name, value in key:
        short = name.rpartition(".")[2]
        label = short if last[short] == 1 else name
        parts.append(f"{label}={value}" if label else value)
    return " ".join(parts)


def _distinct_names(directories: list[Path]) -> dict[Path, str]:
    """The shortest ends of paths that are all different."""
    for parts in range(1, max(len(path.parts) for path in directories) + 1):
        names = {path: "/".join(path.parts[-parts:]) for path in directories}
        if len(set(names.values())) == len(directories):
            break
    return names


def joined(*parts: str) -> str:
    """Joins the texts that are not empty."""
    return " | ".join(part for part in parts if part) or "all runs"
