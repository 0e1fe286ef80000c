"""Bundled files: beside the package in a checkout, inside the package in an installed wheel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from hdsim.errors import ConfigError, nearest

ResourceDir = Literal[
    "agents", "benchmarks", "checkpoints", "conf", "kinds", "platforms", "profiles", "studies", "workloads"
]

_PACKAGE = Path(__file__).resolve().parent.parent
# `hdsim/conf` exists in a wheel only.
_ROOT = _PACKAGE if (_PACKAGE / "conf").is_dir() else _PACKAGE.parent

#: Folders of kinds that are not named like these.
_FOLDERS = {
    "benchmarks": "conf/bench",
    "checkpoints": "agents/checkpoints",
    "kinds": "workloads/kinds",
    "profiles": "workloads/profiles",
    "studies": "conf/study",
}
_EXTENSIONS = {
    "checkpoints": (".safetensors",),
    "benchmarks": (".yaml",),
    "kinds": (".yaml",),
    "platforms": (".json", ".json.gz"),
    "profiles": (".csv", ".csv.gz"),
    "studies": (".yaml",),
    "workloads": (".swf", ".swf.gz", ".json", ".json.gz", ".parquet"),
}


def folder(kind: ResourceDir) -> Path:
    """Returns the folder of bundled files of a kind."""
    return _ROOT / _FOLDERS.get(kind, kind)


def groups() -> list[str]:
    """Returns the names of all groups of the configuration, which studies and benchmarks are not."""
    others = (folder("studies"), folder("benchmarks"))
    return sorted(path.name for path in folder("conf").iterdir() if path.is_dir() and path not in others)


@cache
def options(group: str) -> Mapping[str, Path]:
    """Returns the files of the options of a group by name."""
    return MappingProxyType({path.stem: path for path in sorted((folder("conf") / group).glob("*.yaml"))})


def bundled(
    kind: Literal["benchmarks", "checkpoints", "kinds", "platforms", "profiles", "studies", "workloads"],
) -> dict[str, Path]:
    """Returns the bundled files of a kind by name without extension, in alphabetical order."""
    found = {}
    for path in sorted(folder(kind).iterdir()):
        # Longest extension first: "x.swf.gz" is named "x".
        extension = next(
            (end for end in sorted(_EXTENSIONS[kind], key=len, reverse=True) if path.name.endswith(end)), None
        )
        if extension and path.is_file():
            found[path.name.removesuffix(extension)] = path
    return found


@cache
def name_of(kind: Literal["platforms", "workloads"], path: str) -> str:
    """Returns the name of a bundled file, and any other path as it is."""
    return next((name for name, file in bundled(kind).items() if str(file) == path), path)


def resolve(
    kind: Literal["benchmarks", "kinds", "platforms", "profiles", "studies", "workloads"],
    name_or_path: str | Path,
    *,
    where: str | None = None,
) -> Path:
    """Finds a file of a benchmark, a kind of load, a platform, a profile, a study or a workload, which exists.

    It has a path, is standard input (``-``), or has the name of a bundled file with or without extension or folder
    (``gaia``, ``gaia.json`` and ``platforms/gaia.json`` are one file everywhere). `where` is the key of the name.

    Raises:
        ConfigError: Neither a file nor a bundled file has that name.
    """
    path = Path(name_or_path).expanduser()
    if path.is_file() or str(path) == "-":
        return path
    files = bundled(kind)
    if path.parent in (Path(), Path(_FOLDERS.get(kind, kind))):
        for name, file in files.items():
            if path.name in (name, file.name):
                return file
    if path.is_dir():
        raise ConfigError(f"expected a file, got the directory '{path}'", where=where)
    raise ConfigError(
        f"expected a file or a bundled name, got '{name_or_path}'{near_file(path, _EXTENSIONS[kind], files)}, which "
        f"does not exist; bundled: {', '.join(files)}",
        where=where,
    )


def near_file(path: Path, extensions: tuple[str, ...], names: Iterable[str] = ()) -> str:
    """Returns ``" (did you mean 'DIR/x'?)"`` for the file beside a missing one, or the name, that is closest to it."""
    try:
        beside = [file.name for file in path.parent.iterdir() if file.name.endswith(extensions)]
    except OSError:
        beside = []
    close = nearest(path.name, [*beside, *names])
    return close.replace("'", f"'{path.parent}/", 1) if beside and path.parent != Path() else close
