"""The manifest of a run: how it is read, and what it tells of the software."""

from __future__ import annotations

import platform as host
import subprocess
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from hdsim.errors import ConfigError
from hdsim.results.run_directory.formats import read_json
from hdsim.util.version import __version__

MANIFEST = "manifest.json"


def read_manifest(path: str | Path) -> dict[str, Any]:
    """Reads the manifest of a run directory.

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
    if not isinstance(manifest.get("status"), str) or not isinstance(manifest.get("config"), dict):
        raise ConfigError("expected the keys status and config", where=str(path / MANIFEST))
    return manifest


def versions() -> dict[str, str]:
    """Versions of hdsim, of Python and of every installed package that has been imported."""
    from importlib.metadata import version

    owners = _distributions()
    loaded = {name.partition(".")[0] for name in tuple(sys.modules)}
    used = sorted({owner for name in loaded for owner in owners.get(name, ())} - {"hdsim"})
    return {"hdsim": __version__, "python": host.python_version()} | {name: version(name) for name in used}


@lru_cache(maxsize=1)
def _distributions() -> Mapping[str, list[str]]:
    from importlib.metadata import packages_distributions

    return packages_distributions()


@lru_cache(maxsize=1)
def git_commit() -> str | None:
    """Commit of the checkout hdsim runs from, with ``-dirty`` when files differ from it; None outside a checkout."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
