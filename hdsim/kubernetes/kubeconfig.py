"""Kubeconfig files: adding and removing a cluster."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

from hdsim.errors import ConfigError
from hdsim.util.files import replacing
from hdsim.util.inputs import read_yaml

_LISTS = ("clusters", "contexts", "users")
#: Extension of a context that `add_cluster` has made: the contexts that were current before, the latest one first.
_BEFORE = "hdsim.io/current-before"


def default_kubeconfig() -> Path:
    """Returns the file that kubectl changes: the first of ``KUBECONFIG``, else ``~/.kube/config``."""
    files = [file for file in os.environ.get("KUBECONFIG", "").split(os.pathsep) if file]
    return Path(files[0]) if files else Path.home() / ".kube" / "config"


def add_cluster(path: Path, source: Path | None) -> None:
    """Adds the entries of a kubeconfig file to another one, whose current context is then that of the first.

    Entries of the same name are replaced. The context notes which ones were current before. A new file can be read by
    its owner only.

    Without a source, it only checks that the file can be changed.

    Raises:
        ConfigError: It is no kubeconfig file, or it cannot be written.
    """
    config = _read(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"expected a folder that can be made: {error.strerror}", where=str(path.parent)) from None
    if not os.access(path.parent, os.W_OK) or path.is_dir():
        raise ConfigError("expected a file that can be written", where=str(path))
    if source is None:
        return
    added = _read(source)
    for key in _LISTS:
        names = [entry["name"] for entry in added[key]]
        if key == "contexts":
            before = [name for name in (config["current-context"], *_before(config)) if name and name not in names]
            for entry in added[key]:
                entry["context"]["extensions"] = [{"name": _BEFORE, "extension": {"contexts": before}}]
        config[key] = [entry for entry in config[key] if entry["name"] not in names] + added[key]
    config["current-context"] = added["current-context"]
    _write(path, config)


def remove_cluster(path: Path, name: str) -> None:
    """Removes the cluster, context and user of a name; a file without others is deleted, a missing file is left so.

    If its context is the current one, that becomes the latest that was current before and is still there.

    Raises:
        ConfigError: It is no kubeconfig file.
    """
    if not path.exists():
        return
    config = _read(path)
    before = _before(config)
    for key in _LISTS:
        config[key] = [entry for entry in config[key] if entry["name"] != name]
    if not any(config[key] for key in _LISTS):
        path.unlink()
        return
    if config["current-context"] == name:
        left = [entry["name"] for entry in config["contexts"]]
        config["current-context"] = next((each for each in before if each in left), "")
    _write(path, config)


def _before(config: dict[str, Any]) -> list[str]:
    """Returns the contexts that were current before the current one, as far as `add_cluster` has noted them."""
    for entry in config["contexts"]:
        context = entry.get("context")
        if entry["name"] == config["current-context"] and isinstance(context, dict):
            for each in context.get("extensions") or ():
                if each.get("name") == _BEFORE:
                    return list(each["extension"]["contexts"])
    return []


def _read(path: Path) -> dict[str, Any]:
    config: dict[str, Any] = {"apiVersion": "v1", "kind": "Config", "current-context": ""}
    found = read_yaml(path, ConfigError, "a kubeconfig file") if path.exists() else {}
    if not isinstance(found or {}, dict):
        raise ConfigError(f"expected a kubeconfig file, got a {type(found).__name__}", where=str(path))
    config |= found or {}
    for key in _LISTS:
        config[key] = config.get(key) or []
        if not all(isinstance(entry, dict) and "name" in entry for entry in config[key]):
            raise ConfigError(f"expected a kubeconfig file with a list of named {key}", where=str(path))
    return config


def _write(path: Path, config: dict[str, Any]) -> None:
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    with replacing(path) as file:
        os.fchmod(file.fileno(), mode)
        yaml.safe_dump(config, file, sort_keys=False)
