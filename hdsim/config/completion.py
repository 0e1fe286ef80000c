"""Completions of a word on the command line, computed at every TAB: without Hydra, and from few files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from hdsim.config.catalog import settings
from hdsim.config.keys import OPEN_GROUPS, SCHEMAS, flat
from hdsim.config.paths import takes_path
from hdsim.config.plugin_types import named_types
from hdsim.util.plugins import installed
from hdsim.util.resources import bundled, folder, groups, options


def overrides(incomplete: str, others: Iterable[str], command: str = "train") -> list[str]:
    """Completes an override: its key up to ``=``, then options, names and files.

    Args:
        incomplete: The word so far.
        others: The overrides before it, whose options have keys.
        command: The command, without ``hdsim``.
    """
    mark = incomplete[: len(incomplete) - len(incomplete.lstrip("+~"))]
    key, equals, value = incomplete.lstrip("+~").partition("=")
    if not equals:
        given = dict(text.partition("=")[::2] for text in others)
        return [f"{mark}{name}=" for name in dict.fromkeys(_keys(given, command)) if name.startswith(key)]
    last = re.split(r"[,\[]", value)[-1]
    front = value.removesuffix(last)
    return [f"{mark}{key}={front}{name}" for name in _values(key, last) if name.startswith(last)]


def inputs(kind: str, incomplete: str) -> list[str]:
    """Completes the name of a bundled file of a kind, such as ``platforms``, or the path of a file."""
    return [*(name for name in bundled(kind) if name.startswith(incomplete)), *paths(incomplete)]  # type: ignore[arg-type]


def paths(begin: str) -> list[str]:
    """Returns files, and folders with a slash, whose paths begin with a text."""
    front, slash, name = begin.rpartition("/")
    try:
        found = sorted(Path(f"{front}{slash}" or ".").expanduser().iterdir())
    except OSError:
        return []
    hidden = name.startswith(".")
    matches = [path for path in found if path.name.startswith(name) and (hidden or not path.name.startswith("."))]
    return [f"{front}{slash}{path.name}{'/' if path.is_dir() else ''}" for path in matches]


def _keys(given: Mapping[str, str], command: str) -> Iterator[str]:
    """Groups, the keys of their options on the command line or by default, and the keys of the command."""
    import yaml

    primary = yaml.safe_load((folder("conf") / "train.yaml").read_text(encoding="utf-8"))["defaults"]
    defaults = {group: option for entry in primary if isinstance(entry, dict) for group, option in entry.items()}
    for group in groups():
        yield group
        files, option = options(group), given.get(group) or defaults.get(group)
        if group == "agent":
            option = option if group in given and option in files else "classic"
        if group != "experiment" and option in files:
            yield from (f"{group}.{key}" for key in settings(files[str(option)]))
    yield from (key for key, _ in flat(SCHEMAS.get(command, SCHEMAS["train"]).rules))
    yield from ("agent.path", "agent._target_", "hydra.run.dir", "hydra.sweep.dir")


def _values(key: str, begin: str) -> Iterator[str]:
    if key in groups():
        yield from options(key)
        yield from (entry.name for entry in installed(key))
    if key in ("platform.path", "workload.path", "workload"):
        yield from bundled("platforms" if key.startswith("platform") else "workloads")
    if key == "agent":
        yield from _agents()
    if key in named_types():
        yield from named_types()[key].names()
    if key == "metrics":
        yield from (entry.name for entry in installed("metric"))
    if takes_path(key):
        yield from paths(begin)
    elif key in OPEN_GROUPS or key == "metrics":
        yield from (path for path in paths(begin) if path.endswith((".py", "/")))


def _agents() -> Iterator[str]:
    from hdsim.scheduling.agent import SHORT_NAMES
    from hdsim.scheduling.orders import ORDERS

    yield from SHORT_NAMES
    yield from ORDERS
    yield from (f"{backfill}-{order}" for backfill in ("easy", "conservative") for order in ORDERS)
