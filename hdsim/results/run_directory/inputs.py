"""Inputs of a run: files with their digests, and the jobs that are replayed."""

from __future__ import annotations

import hashlib
import os
import site
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hdsim.util.inputs import STANDARD_INPUT
from hdsim.util.resources import folder

if TYPE_CHECKING:
    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload

#: Columns of a workload that affect a replay.
_DIGESTED = (
    "submission_time",
    "runtime",
    "requested_time",
    "walltime",
    "requested_cores",
    "memory",
    "memory_bandwidth",
    "fixed_duration",
    "return_code",
)
#: File in the folder of a site; its platform and jobs are inputs of their own.
_SITE = "site.yaml"
#: Files in a folder of series for gangs.
SERIES = ("*.csv", "*.csv.gz")
#: Folders of the code whose version a manifest holds.
_VERSIONED = tuple(
    str(path) + os.sep
    for path in (
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib")),
        *site.getsitepackages(),
        site.getusersitepackages(),
        Path(__file__).parents[2],
        folder("agents"),
    )
)


def inputs(config: Mapping[str, Any], platform: Platform | None, workload: Workload | None) -> Iterator[dict[str, str]]:
    """Yields every file that a run reads, with its digest.

    These are files of platform and workload, and each text of the configuration that is the path of a file.

    Yields:
        ``kind`` (the configuration's key), ``path`` and ``sha256``.
    """
    read = []
    if platform and platform.sha256:
        read.append(("platform", platform.source, platform.sha256))
    if platform:
        read += [("platform types", path, digest) for path, digest in platform.type_files.items()]
    if workload and workload.sha256:
        read.append(("workload", workload.source, workload.sha256))
    kinds = {kind for kind, *_ in read}
    read += [(kind, path, file_digest(path)) for kind, path in _files(config) if kind not in kinds]
    for kind, path, sha256 in read:
        yield {"kind": kind, "path": str(path), "sha256": sha256}


def imported_files() -> Iterator[dict[str, str]]:
    """Yields the imported Python files outside of installed packages, as `inputs` does."""
    for module in tuple(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if path and is_own_code(path):
            yield {"kind": "module", "path": path, "sha256": file_digest(path)}


def is_own_code(path: str) -> bool:
    """Whether a Python file belongs to neither hdsim nor an installed package."""
    return path.endswith(".py") and not path.startswith(_VERSIONED)


class Change(NamedTuple):
    """An input whose content differs from that of an earlier run.

    Attributes:
        kind: Key of the configuration.
        path: The file as the manifest or the configuration names it.
        then, now: Its digests, empty if it was no input then or is gone now.
    """

    kind: str
    path: str
    then: str
    now: str

    def __str__(self) -> str:
        gone = " (standard input, which cannot be read again)" if self.path == STANDARD_INPUT else ""
        return f"{self.kind} '{self.path}'{gone}"


def changed_inputs(recorded: list[dict[str, str]], config: Mapping[str, Any]) -> list[Change]:
    """Compares the inputs of a configuration with those that are recorded of an earlier run of it.

    Returns:
        Each file that has changed, is gone, or was none of the inputs.
    """
    known = {(entry["kind"], entry["sha256"]) for entry in recorded}
    files = {(entry["kind"], entry["path"]): entry["sha256"] for entry in recorded}
    for kind, path in _files(config):
        if (kind, file_digest(path)) not in known:
            files.setdefault((kind, path), "")
    compared = [Change(*key, sha256, file_digest(key[1])) for key, sha256 in files.items()]
    return [change for change in compared if change.then != change.now]


def digest(workload: Workload) -> str:
    """Returns the sha256 of the jobs; equal jobs from different sources have the same."""
    digest = hashlib.sha256()
    for name in (*_DIGESTED, "requested_gpus") if workload.asks_for_gpus else _DIGESTED:
        digest.update(getattr(workload, name).tobytes())
    if workload.has_programs:
        for row, program in enumerate(workload.program.tolist()):
            if program is not None:
                digest.update(b"%d:%s" % (row, program.fingerprint))
    if workload.has_gangs:
        for row, gang in enumerate(workload.gang.tolist()):
            if gang is not None:
                digest.update(b"%d:%s" % (row, gang.fingerprint))
    return digest.hexdigest()


def file_digest(path: str | Path) -> str:
    """Returns the sha256 of a file, of the rules of a site, or of the tables in a directory; else an empty text."""
    path = Path(path)
    try:
        if (path / _SITE).is_file():
            return file_digest(path / _SITE)
        if path.is_dir():
            files = [*sorted(path.glob("*.csv*")), path / "platform.json"]
            return hashlib.sha256("".join(map(file_digest, files)).encode()).hexdigest()
        stat = path.stat()
        return _file_digest(path, stat.st_size, stat.st_mtime_ns)
    except OSError:
        return ""


# The runs of a sweep share input files.
@lru_cache(maxsize=256)
def _file_digest(path: Path, size: int, changed: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _files(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yields key and path of each text in a configuration that is an input, the folder of a site among them."""
    for key, value in config.items():
        for child in value if isinstance(value, list | tuple) else [value]:
            if isinstance(child, Mapping):
                yield from _files(child, f"{prefix}{key}.")
            elif (
                isinstance(child, str | Path)
                and str(child)  # an empty text names no file, least of all the working directory
                and (is_input(Path(child)) or (key == "path" and (Path(child) / _SITE).is_file()))
            ):
                yield f"{prefix}{key}".removesuffix(".path"), str(child)


def input_files(config: Mapping[str, Any]) -> Iterator[tuple[str, Path]]:
    """Yields key and path of each file and directory that a configuration names."""
    for kind, path in _files(config):
        yield kind, Path(path)


def is_input(path: Path) -> bool:
    """Whether a path names a file, a run directory or a folder of series."""
    try:
        return path.is_file() or (path / "manifest.json").is_file() or any(map(any, map(path.glob, SERIES)))
    except OSError:  # The text is too long for a path.
        return False
