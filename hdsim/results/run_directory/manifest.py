"""The manifest of a run: reading, and versions of the software."""

from __future__ import annotations

import os
import platform as host
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import Distribution, PackageNotFoundError, distributions, version
from pathlib import Path
from typing import Any

from hdsim.errors import ConfigError
from hdsim.results.run_directory import lock
from hdsim.results.run_directory.formats import is_number, read_json
from hdsim.results.run_directory.inputs import file_digest
from hdsim.util.text import shown
from hdsim.util.version import __version__

MANIFEST = "manifest.json"
#: Keys that hdsim itself reads, by type; all but the first two may be absent.
_TYPES: dict[str, type] = {
    "status": str,
    "config": dict,
    "versions": dict,
    "seeds": dict,
    "workload": dict,
    "training": dict,
    "inputs": list,
    "results": dict,
    "own_metrics": dict,
    "period": list,
    "process": dict,
    "start": str,
    "duration": float,
    "simulated_seconds": float,
    "git_commit": str,
    "kind": str,
    "working_directory": str,
    "machine": dict,
    "failure": dict,
}
_NAMES = {str: "a text", dict: "an object", list: "a list", float: "a number"}


def read_manifest(path: str | Path) -> dict[str, Any]:
    """Reads the manifest of a run directory.

    The status "running" of a process that has ended, killed for example, is read as "dead"; ``dead_since`` is then the
    time of the last change in the directory.

    Raises:
        ConfigError: It is no run directory, or its manifest is damaged.
    """
    path = Path(path)
    if not path.is_dir():
        raise ConfigError(
            "expected a run directory, got " + ("a file" if path.exists() else "nothing"), where=str(path)
        )
    if not (path / MANIFEST).is_file():
        runs = sorted(str(found.parent) for found in path.glob(f"*/{MANIFEST}"))
        got = f"a sweep; one of its runs is {runs[0]!r}" if runs else f"a directory without {MANIFEST}"
        raise ConfigError(f"expected a run directory, got {got}", where=str(path))
    manifest = read_json(path / MANIFEST)
    for key, kind in _TYPES.items():
        value = manifest.get(key)
        fits = is_number(value) if kind is float else isinstance(value, kind)
        if not (fits or (value is None and key not in ("status", "config"))):
            raise ConfigError(f"{key}: expected {_NAMES[kind]}, got {shown(value)}", where=str(path / MANIFEST))
    for number, entry in enumerate(manifest.get("inputs") or []):
        if not (isinstance(entry, dict) and all(isinstance(entry.get(key), str) for key in ("kind", "path", "sha256"))):
            where = f"{path / MANIFEST}: inputs[{number}]"
            raise ConfigError(f"expected an object with kind, path and sha256, got {shown(entry)}", where=where)
    if manifest["status"] == "running" and lock.owner(path) is None:
        changed = max(file.stat().st_mtime for file in path.rglob("*"))
        since = datetime.fromtimestamp(changed, UTC).isoformat(timespec="seconds")
        manifest |= {"status": "dead", "dead_since": since}
    return manifest


def damaged(path: Path, manifest: Mapping[str, Any]) -> list[str]:
    """Returns the results in a run directory that are gone or not what the run has written, by the digests it kept."""
    kept = manifest.get("results") or {}
    return [name for name, sha256 in kept.items() if file_digest(path / name) != sha256]


def told_damage(path: Path, manifest: Mapping[str, Any]) -> str | None:
    """Returns which results of a finished run are damaged in words, None if none are."""
    names = damaged(path, manifest)
    return f"finished, but {', '.join(names)} {'is' if len(names) == 1 else 'are'} damaged" if names else None


def told_status(manifest: Mapping[str, Any]) -> str:
    """Returns the status of a run for a message."""
    if manifest["status"] == "dead":
        return f"dead since {manifest['dead_since']} ({lock.told(manifest.get('process') or {})})"
    return ": ".join(str(manifest[key]) for key in ("status", "error") if manifest.get(key))


def other_software(manifest: Mapping[str, Any]) -> str | None:
    """Words for the first difference between the software of a run and the present one; None: there is none.

    Compared are hdsim (version and commit) and the packages of the classes that the configuration names.
    """
    used = manifest.get("versions") or {}
    now: dict[str, str | None] = {"hdsim": __version__}
    groups = [group for group in manifest["config"].values() if isinstance(group, Mapping)]
    for module in {str(group.get("_target_") or "hdsim").partition(".")[0] for group in groups} - {"hdsim"}:
        now |= dict(_packages().get(module, ()))
    for name, present in now.items():
        if used.get(name) != present:
            return f"{name} {used.get(name)} instead of {present}"
    if manifest.get("git_commit") != git_commit():
        return f"commit {manifest.get('git_commit')} of hdsim instead of {git_commit()}"
    return None


def changed_software(manifest: Mapping[str, Any]) -> list[str]:
    """Words for each difference between the software and the computer of a run and the present ones."""
    then: dict[str, Any] = dict(manifest.get("versions") or {})
    now: dict[str, Any] = {name: _version(name) for name in then}
    then |= {"commit of hdsim": manifest.get("git_commit"), **(manifest.get("machine") or {})}
    now |= {"commit of hdsim": git_commit(), **machine()}
    return [f"{name}: {then[name]} then, {now[name] or 'none'} now" for name in then if then[name] != now[name]]


@lru_cache
def _version(name: str) -> str | None:
    if name in ("hdsim", "python"):
        return __version__ if name == "hdsim" else host.python_version()
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def versions() -> dict[str, str]:
    """Returns the versions of hdsim, Python and every imported package."""
    loaded = {name.partition(".")[0] for name in tuple(sys.modules)}
    used = {name: number for module in loaded for name, number in _packages().get(module, ()) if name != "hdsim"}
    return {"hdsim": __version__, "python": host.python_version()} | dict(sorted(used.items()))


@lru_cache(maxsize=1)
def machine() -> dict[str, str | int]:
    """Returns the facts of this computer that results can depend on: operating system, CPU and number of its cores."""
    try:
        facts = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        facts = ""
    models = [line.partition(":")[2].strip() for line in facts.splitlines() if line.startswith("model name")]
    cpu = models[0] if models else host.processor() or host.machine()
    return {"system": host.platform(), "cpu": cpu, "cores": os.cpu_count() or 1}


@lru_cache(maxsize=1)
def _packages() -> Mapping[str, Sequence[tuple[str, str]]]:
    """Name and version of installed packages by the top-level modules that they bring.

    `packages_distributions` of importlib makes an object of each installed file and parses the whole metadata of each
    package, the description included, which takes a quarter of a second.
    """
    packages: dict[str, tuple[str, Distribution]] = {}
    for package in distributions():
        text = package.read_text("METADATA") or package.read_text("PKG-INFO") or ""
        # The first on the path is the one that `version` reads.
        packages.setdefault(_field("Name", text), (_field("Version", text), package))
    owners: dict[str, list[tuple[str, str]]] = {}
    for name, (number, package) in packages.items():
        listed = package.read_text("top_level.txt")
        lines = (listed or package.read_text("RECORD") or package.read_text("installed-files.txt") or "").splitlines()
        modules = (
            set(lines) if listed else {line.partition("/")[0].partition(",")[0].partition(".")[0] for line in lines}
        )
        for module in modules:
            owners.setdefault(module, []).append((name, number))
    return owners


def _field(name: str, metadata: str) -> str:
    found = re.search(rf"^{name}: *(.+)$", metadata, re.MULTILINE)
    return found[1].strip() if found else ""


@lru_cache(maxsize=1)
def git_commit() -> str | None:
    """Returns the commit of hdsim's checkout, with ``-dirty`` if files differ from it; None outside a checkout."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    # Without the lock that `git describe --dirty` takes, and leaves in the checkout if it is killed.
    command = ["git", "--no-optional-locks", "-C", str(root), "status", "--porcelain=2", "--branch", "-uno"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return None
    commit = told[0].removeprefix("# branch.oid ")
    return f"{commit}-dirty" if any(not line.startswith("#") for line in told) else commit
