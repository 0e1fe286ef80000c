"""Assigns runs to scenarios, configurations and replications by the differences of their settings."""

from __future__ import annotations

import csv
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from hdsim.errors import ConfigError
from hdsim.report import labels
from hdsim.report.labels import Key
from hdsim.results.metrics import Metric, is_own
from hdsim.results.own_metrics import recorded
from hdsim.results.run_directory.manifest import read_manifest, told_damage, told_status
from hdsim.results.run_directory.reader import read_metrics
from hdsim.util.inputs import regular_text

_Item = TypeVar("_Item")
_Group = TypeVar("_Group", bound=Hashable)

#: Settings without influence on the result of a training.
_BOOKKEEPING = (
    "train.log_every",
    "train.checkpoint_every",
    "train.tensorboard",
    "train.rollouts",
    "train.workers",
    "train.ray_address",
    "train.ray_timeout",
)
#: Replays of test windows in the directory of a training.
EVALUATION = "evaluation.csv"
#: Settings in which replications of one configuration differ.
REPLICATION = ("seed", "workload.seed", "workload.start", "start")


@dataclass(frozen=True)
class PlacedRun:
    """A run, its metrics, and where it belongs.

    Attributes:
        scenario: Settings shared with the compared runs.
        configuration: Settings of its configuration.
        replication: Seed and part of the trace.
        part: Column and value of the jobs that it has, None for all.
    """

    path: Path
    metrics: Mapping[str, float]
    scenario: Key
    configuration: Key
    replication: Key
    part: tuple[str, str] | None = None


@dataclass(frozen=True)
class Finished:
    """A finished run."""

    path: Path
    manifest: Mapping[str, Any]
    metrics: Mapping[str, float]


def finished(directories: Iterable[Path]) -> tuple[list[Finished], dict[Path, str]]:
    """Reads finished runs; by directory, why others are left out: failed, dead, still running, or damaged."""
    found, left_out = [], {}
    for path in directories:
        try:
            manifest = read_manifest(path)
            if manifest["status"] != "finished":
                left_out[path] = told_status(manifest).partition("\n")[0]
            elif not any((path / name).is_file() for name in ("jobs.csv", "supersteps.csv")):
                left_out[path] = "a directory without jobs.csv"
            else:
                run = Finished(path, manifest, read_metrics(path, manifest))
                if damage := told_damage(path, manifest):
                    left_out[path] = damage
                else:
                    found.append(run)
        except ConfigError as error:
            left_out[path] = error.message
    return found, left_out


def check_definitions(runs: Iterable[Finished], names: Iterable[str]) -> None:
    """Checks that compared metrics of the user have one unit and one direction in all runs.

    Raises:
        ConfigError: Two runs differ in those of a metric.
    """
    compared = {part for name in names if is_own(name) for part in (name, name.partition("_")[2])}
    known: dict[str, tuple[Path, Metric]] = {}
    for run in runs:
        for name, metric in recorded(run.manifest.get("own_metrics") or {}).items():
            first, other = known.setdefault(name, (run.path, metric))
            if name in compared and other[:2] != metric[:2]:
                meant = " and ".join(
                    f"{each.direction.name.lower()} [{each.unit or '1'}] in {path}"
                    for path, each in ((first, other), (run.path, metric))
                )
                raise ConfigError(f"expected one direction and unit in all runs, got {meant}", where=f"metric {name}")


def other_sources(runs: Iterable[Finished]) -> list[str]:
    """Returns a line for each difference between the software, or the contents of inputs, of runs.

    Packages that only some runs have loaded are left out, since agents differ in what they need.
    """
    values: dict[str, Counter[str]] = defaultdict(Counter)
    for run in runs:
        for package, version in (run.manifest.get("versions") or {}).items():
            values[package][str(version)] += 1
        values["commit of hdsim"][str(run.manifest.get("git_commit"))] += 1
        for entry in run.manifest.get("inputs") or []:
            values[f"{entry['kind']} {entry['path']}"][f"sha256 {entry['sha256'][:12]}"] += 1
    return [
        f"{name}: " + ", ".join(f"{value} ({count} run{'s' * (count != 1)})" for value, count in counts.items())
        for name, counts in values.items()
        if len(counts) > 1
    ]


def other_replays(runs: Iterable[Finished], entries: Iterable[PlacedRun]) -> list[str]:
    """Returns a line each if jobs, or platforms, differ between runs whose settings say that they are the same.

    Settings do not tell platforms and workloads that are no files, such as those that a program makes.
    """
    manifests = {run.path: run.manifest for run in runs}
    groups: dict[Hashable, dict[Path, Mapping[str, Any]]] = defaultdict(dict)
    for entry in entries:
        beside = [part for part in entry.configuration if part[0] and part[0].partition(".")[0] not in labels.SUBJECTS]
        groups[entry.scenario, tuple(beside), entry.replication][entry.path] = manifests[entry.path]
    lines = []
    for what, digest in (
        ("jobs", lambda manifest: (manifest.get("workload") or {}).get("sha256")),
        ("platforms", lambda manifest: (manifest.get("results") or {}).get("platform.json")),
    ):
        found = []
        for group in groups.values():
            by_digest = {digest(manifest): path for path, manifest in group.items()}
            by_digest.pop(None, None)
            if len(by_digest) > 1:
                found.append(list(by_digest.values())[:2])
        if found:
            first, second = found[0]
            of = "" if len(groups) == 1 else f" in {len(found)} of {len(groups)} replications"
            lines.append(
                f"{what} differ{of} that the settings call the same, such as {first} and {second}: differences between "
                f"these runs are not those of the agents alone"
            )
    return lines


def run_directories(path: Path) -> list[Path]:
    """The run directory itself, or those inside a sweep in the order of its plan."""
    if (path / "manifest.json").is_file():
        return [path]
    if not path.is_dir():
        raise ConfigError("expected a run directory or a sweep, got a path where there is none", where=str(path))
    found = [manifest.parent for manifest in path.rglob("manifest.json")]
    if not found:
        raise ConfigError("expected a run directory or a sweep, got a directory without any run", where=str(path))
    return sorted(found, key=lambda run: (_number(run), _started(run), run))


def _number(run: Path) -> int:
    """Number of a run in its sweep, whose processes may start runs in another order; 0 outside of sweeps."""
    try:
        found = re.search(r"^    num: (\d+)$", regular_text(run / ".hydra/hydra.yaml"), re.MULTILINE)
    except (OSError, UnicodeDecodeError):
        return 0
    return int(found[1]) if found else 0


def _started(run: Path) -> str:
    try:
        return str(read_manifest(run).get("start"))
    except ConfigError:
        return ""


def evaluated_entries(runs: Sequence[Finished], first: Path) -> tuple[list[PlacedRun], Key]:
    """Reads the replays of the test windows of trainings, and finds the baseline's configuration.

    Of the agents of a training only the shipped one takes part. The baseline is the best classic policy of the training
    `first`.
    """
    entries = []
    directories = [run.path for run in runs]
    settings = labels.settings([run.manifest["config"] for run in runs])
    facts = [run.manifest["training"] for run in runs]
    differing = [name for name in labels.differing(settings) if name not in REPLICATION]
    shared = [name for name in differing if name.partition(".")[0] not in ("agent", "train")]
    # Trainings of one algorithm are distinguished by their settings, those of several by its name.
    own = {
        agent: _own([setting for setting in settings if setting["agent"] == agent])
        for agent in {setting["agent"] for setting in settings}
    }
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
                    entries.append(PlacedRun(path, {name: float(cell) for name, cell in cells.items()}, *place))
    best = facts[directories.index(first)]["best_classic"]
    return entries, (("agent", best),) if best else entries[0].configuration


def _own(settings: list[dict[str, str]]) -> list[str]:
    """Settings of agent and training that differ between trainings of one algorithm, except logging settings."""
    excluded = ("agent", "agent.checkpoint", *REPLICATION, *_BOOKKEEPING)
    differing = (name for name in labels.differing(settings) if name.partition(".")[0] in ("agent", "train"))
    return [name for name in differing if name not in excluded]


def run_entries(runs: Sequence[Finished], first: Path) -> tuple[list[PlacedRun], Key]:
    """Finds the differences of runs, and the configuration of the baseline, which is that of the run `first`."""
    directories = [run.path for run in runs]
    settings = labels.settings([run.manifest["config"] for run in runs])
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
        PlacedRun(
            run.path,
            run.metrics,
            labels.key(setting, scenario),
            labels.key(setting, configuration),
            labels.key(setting, replication),
        )
        for run, setting in zip(runs, settings, strict=True)
    ]
    places = Counter((entry.scenario, entry.configuration, entry.replication) for entry in entries)
    if places.most_common(1)[0][1] == 1:
        return entries, next(entry.configuration for entry in entries if entry.path == first)
    # The configurations are equal; the names of the directories distinguish the runs.
    names = labels.distinct_ends(directories)
    entries = [replace(entry, configuration=(("", names[entry.path]),), replication=()) for entry in entries]
    return entries, next(entry.configuration for entry in entries if entry.path == first)


def renamed(entries: list[PlacedRun], given: Mapping[str, str | Path]) -> dict[Key, Key]:
    """Returns keys of the user's labels by the configurations that they stand for.

    `given` has by label a run of the configuration, or a sweep of such runs; a training stands for its agent.

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


def grouped(items: Iterable[_Item], key: Callable[[_Item], _Group]) -> dict[_Group, list[_Item]]:
    """Returns items by a key, groups and items in the order in which they come."""
    groups: dict[_Group, list[_Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def joined(*parts: str) -> str:
    """Joins the texts that are not empty."""
    return " | ".join(part for part in parts if part) or "all runs"
