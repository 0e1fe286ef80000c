"""Assigns runs to scenarios, configurations and replications by the differences of their settings."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hdsim.errors import ConfigError
from hdsim.report import labels
from hdsim.report.labels import Key
from hdsim.results.run_directory.directory import RunDirectory
from hdsim.results.run_directory.manifest import read_manifest, told_status

#: Settings without influence on the result of a training.
_BOOKKEEPING = (
    "train.log_every", "train.checkpoint_every", "train.tensorboard",
    "train.rollouts", "train.workers", "train.ray_address", "train.ray_timeout",
)  # fmt: skip
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
    differing = [name for name in labels.differing(settings) if name not in REPLICATION]
    shared = [name for name in differing if name.partition(".")[0] not in ("agent", "train")]
    # Trainings of one algorithm are distinguished by their settings, those of several by its name.
    own = {agent: _own([setting for setting in settings if setting["agent"] == agent])
           for agent in {setting["agent"] for setting in settings}}  # fmt: skip
    places: set[tuple[Key, Key, Key]] = set()
    for path, setting, fact in zip(directories, settings, facts, strict=True):
        shipped = fact["shipped"].partition(".")[0]
        with (path / EVALUATION).open(encoding="utf-8", newline="") as file:
            for cells in csv.DictReader(file):
                agent, window = cells.pop("agent"), cells.pop("window")
                if agent in ("best", "final") and agent != shipped:
                    continue
                learned = agent == shipped
                configuration: Key = (("agent", agent),)
                if learned:
                    name = setting["agent"]
                    configuration = (("agent", name), ("agent.checkpoint", shipped), *labels.key(setting, own[name]))
                place = (labels.key(setting, shared), configuration, (("seed", setting["seed"]), ("window", window)))
                # Trainings of one seed have replayed the classic policies alike.
                if learned or place not in places:
                    places.add(place)
                    entries.append(Entry(path, {name: float(cell) for name, cell in cells.items()}, *place))
    best = facts[directories.index(first)]["best_classic"]
    return entries, (("agent", best),) if best else entries[0].configuration


def _own(settings: list[dict[str, str]]) -> list[str]:
    """Settings of agent and training that differ between trainings of one algorithm, except logging settings."""
    excluded = ("agent", "agent.checkpoint", *REPLICATION, *_BOOKKEEPING)
    differing = (name for name in labels.differing(settings) if name.partition(".")[0] in ("agent", "train"))
    return [name for name in differing if name not in excluded]


def run_entries(directories: list[Path], first: Path) -> tuple[list[Entry], Key]:
    """Reads the runs, and finds their differences and the baseline's configuration.

    Args:
        directories: The runs.
        first: The run with the baseline's configuration.

    Raises:
        ConfigError: Runs cannot be compared; all are listed.
    """
    settings, metrics = _load_all(directories)
    differing = labels.differing(settings)
    replication = [name for name in differing if name in REPLICATION]
    other = [name for name in differing if name not in REPLICATION]
    configuration = [name for name in other if name.partition(".")[0] in labels.SUBJECTS] or other
    scenario = [name for name in other if name not in configuration]
    base = labels.key(settings[directories.index(first)], configuration)
    ran_base = {labels.key(setting, scenario) for setting in settings if labels.key(setting, configuration) == base}
    if any(labels.key(setting, scenario) not in ran_base for setting in settings):
        configuration, scenario = other, []
    configuration = labels.told(settings, configuration)
    entries = [
        Entry(path, numbers, *(labels.key(setting, names) for names in (scenario, configuration, replication)))
        for path, setting, numbers in zip(directories, settings, metrics, strict=True)
    ]
    places = Counter((entry.scenario, entry.configuration, entry.replication) for entry in entries)
    if places.most_common(1)[0][1] == 1:
        return entries, next(entry.configuration for entry in entries if entry.path == first)
    # The configurations are equal; the names of the directories distinguish the runs.
    names = labels.distinct_ends(directories)
    entries = [replace(entry, configuration=(("", names[entry.path]),), replication=()) for entry in entries]
    return entries, next(entry.configuration for entry in entries if entry.path == first)


def renamed(entries: list[Entry], given: Mapping[str, str | Path]) -> dict[Key, Key]:
    """Returns keys of the user's labels by the configurations that they stand for.

    Args:
        entries: The entries.
        given: By label a run of the configuration, or a sweep of such runs; a training stands for its agent.

    Raises:
        ConfigError: A run takes no part, its runs have several configurations, or two configurations have one label.
    """
    names: dict[Key, Key] = {}
    for name, run in given.items():
        where = f"--label {name}={run}"
        runs = {path.resolve() for path in run_directories(Path(run))}
        meant = {entry.configuration for entry in entries if entry.path in runs}
        meant = {key for key in meant if dict(key).get("agent.checkpoint", labels.NONE) != labels.NONE} or meant
        if not meant:
            raise ConfigError("expected a run that is compared, got another one", where=where)
        if len(meant) > 1:
            found = ", ".join(sorted(map(labels.text, meant)))
            raise ConfigError(f"expected runs of one configuration, got {found}", where=where)
        names[meant.pop()] = (("", name),)
    kept = {labels.text(entry.configuration) for entry in entries if entry.configuration not in names}
    taken = [name for name in given if name in kept]
    if taken or len(names) < len(given):
        raise ConfigError(
            f"expected one label for each configuration, got {', '.join(taken or given)}", where="--label"
        )
    return names


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
    return labels.settings(configs), metrics


def _load(path: Path) -> tuple[dict[str, Any], Mapping[str, float]]:
    """Configuration and metrics of a finished run."""
    manifest = read_manifest(path)
    status = manifest["status"]
    if status != "finished":
        raise ConfigError(f"expected a finished run, got one that is {status}", where=str(path))
    if not any((path / name).is_file() for name in ("jobs.csv", "supersteps.csv")):
        raise ConfigError("expected a finished run, got a directory without jobs.csv", where=str(path))
    return manifest["config"], RunDirectory(path).metrics()


def joined(*parts: str) -> str:
    """Joins the texts that are not empty."""
    return " | ".join(part for part in parts if part) or "all runs"
