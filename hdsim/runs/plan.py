"""The runs of a sweep and their directories.

A directory is named by the keys that vary in the sweep, ``agent=easy,seed=2``. A configuration that already has a run
in the folder of the sweep keeps that run's directory, whatever its name: a sweep that is extended by a key changes the
names of its runs, not the place of their results.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hdsim.errors import ConfigError
from hdsim.results.run_directory.formats import plain
from hdsim.results.run_directory.manifest import MANIFEST, read_manifest

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from hdsim.config.composer import Composer

#: Characters in the name of a directory.
_LONGEST = 120
#: Characters that names of directories do not have.
_UNSAFE = re.compile(r"[^\w.+=,@%()-]+")


@dataclass(frozen=True)
class PlannedRun:
    """A planned run; its directory is absolute.

    Attributes:
        overrides: The overrides that it was composed with.
        varied: The keys that vary in the sweep, with this run's values as they are written in overrides.
        composed: Hydra's composition of the configuration.
    """

    directory: Path
    config: dict[str, Any]
    overrides: tuple[str, ...]
    varied: Mapping[str, str]
    composed: DictConfig


@dataclass(frozen=True)
class Sweep:
    """The runs of a sweep, no two of the same configuration; `directory`, absolute, is the folder of theirs."""

    directory: Path
    runs: tuple[PlannedRun, ...]

    def shard(self, number: int, count: int) -> Sweep:
        """Returns part `number` of `count` of the runs, counted from 1; the parts are disjoint and complete.

        Raises:
            ConfigError: There are more parts than runs.
        """
        if count > len(self.runs):
            raise ConfigError(
                f"expected at most as many parts as runs, {len(self.runs)}, got {number}/{count}", where="--shard"
            )
        return Sweep(self.directory, self.runs[number - 1 :: count])


def plan(composer: Composer, overrides: Sequence[str]) -> Sweep:
    """Plans the runs of a sweep of overrides, as `Composer.overrides` returns them.

    Raises:
        ConfigError: An override is wrong.
    """
    from hdsim.config.composer import unused

    compositions = composer.sweep(overrides)
    directory = compositions[0].directory.absolute()
    if compositions[0].is_named_by_time and directory.exists():
        directory = unused(directory)
        for composition in compositions:
            composition.move(directory)
    varied = _varied([composition.overrides for composition in compositions])
    # Of equal configurations, such as those of seed=1,1, the first is planned.
    keys = [_key(composition.config) for composition in compositions]
    first = {key: number for number, key in reversed(list(enumerate(keys)))}
    planned = dict(sorted(first.items(), key=lambda item: item[1]))
    names = _names([varied[number] for number in planned.values()])
    places = _places(dict(zip(planned, names, strict=True)), directory)
    runs: dict[str, PlannedRun] = {}
    for key, number in planned.items():
        composition = compositions[number]
        place = composition.subdirectory or places[key]
        if place in runs:
            raise ConfigError(f"expected a directory for each run, got '{place}' for two", where="hydra.sweep.subdir")
        composition.enter(place)
        runs[place] = PlannedRun(
            directory / place, composition.config, composition.overrides, varied[number], composition.hydra
        )
    return Sweep(directory, tuple(runs.values()))


def _varied(overrides: Sequence[Sequence[str]]) -> list[dict[str, str]]:
    """Values of the overrides that differ between runs; the overrides of each run have the same keys."""
    # In alphabetical order: the order of the overrides does not matter.
    columns = [column for column in zip(*overrides, strict=True) if len(set(column)) > 1]
    columns.sort(key=lambda column: column[0].lstrip("+~"))
    pairs = [[text.partition("=") for text in column] for column in columns]
    return [{column[run][0].lstrip("+~"): column[run][2] for column in pairs} for run in range(len(overrides))]


def _names(varied: Sequence[Mapping[str, str]]) -> list[str]:
    """Names of directories, different also where file names ignore case."""
    names = [_name(each) for each in varied]
    count = Counter(name.casefold() for name in names)
    return [
        name if count[name.casefold()] == 1 else _with_hash(name, json.dumps(each))
        for name, each in zip(names, varied, strict=True)
    ]


def _name(varied: Mapping[str, str]) -> str:
    parts = [f"{key}={_UNSAFE.sub('_', _short(value))}" for key, value in varied.items()]
    name = ",".join(parts) or "run"
    if len(name) <= _LONGEST:
        return name
    width = (_LONGEST - 9) // len(parts) - 1
    return _with_hash(",".join(part[:width] for part in parts), name)


def _short(value: str) -> str:
    """A value without quotes, and the name of a file instead of its path."""
    value = value.strip("'\"")
    return Path(value).name if "/" in value and not value.startswith(("[", "{")) else value


def _with_hash(name: str, content: str) -> str:
    return f"{name[: _LONGEST - 9]}-{hashlib.sha256(content.encode()).hexdigest()[:8]}"


def _key(config: Mapping[str, Any]) -> str:
    return json.dumps(plain(config), sort_keys=True)


def _places(names: Mapping[str, str], directory: Path) -> dict[str, str]:
    """Directories of configurations, each with a name by its key, in the folder of a sweep.

    A configuration keeps the directory of an earlier run of it. Any other takes its name, with a hash if a run of
    another configuration has left results there.
    """
    manifests = {}
    for path in sorted(directory.glob(f"*/{MANIFEST}")):
        with contextlib.suppress(ConfigError):
            manifests[path.parent.name] = read_manifest(path.parent)
    # Of several runs of one configuration a finished one counts.
    known = {
        _key(manifest["config"]): name
        for name, manifest in sorted(manifests.items(), key=lambda item: item[1]["status"] == "finished")
    }
    taken = {name for name, manifest in manifests.items() if manifest["status"] != "failed"} | {
        place for key, place in known.items() if key in names
    }
    return {key: known.get(key) or (_with_hash(name, key) if name in taken else name) for key, name in names.items()}
