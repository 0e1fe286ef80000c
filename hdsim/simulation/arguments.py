"""Arguments of a simulation: files and bundled names become objects, and all become settings for the manifest."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hdsim.errors import ConfigError
from hdsim.platform.load import load_platform
from hdsim.platform.model import Platform
from hdsim.platform.schema import CORES
from hdsim.scheduling.agent import Agent, parse_name
from hdsim.simulation.setup import Model, model_settings
from hdsim.util.plugins import installed
from hdsim.util.resources import name_of
from hdsim.util.rules import SEED, texts
from hdsim.workload.load import load_workload
from hdsim.workload.model import Workload


def inputs(platform: Platform | str | Path, workload: Workload | str | Path, seed: int) -> tuple[Platform, Workload]:
    """Reads platform and workload where they are given as files or bundled names.

    Raises:
        HdsimError: A file cannot be used, or an argument has another type.
    """
    fault = SEED.fault(seed, "seed")
    if fault is not None:
        raise fault
    if isinstance(platform, str | Path):
        platform = load_platform(platform)
    if isinstance(workload, str | Path) and isinstance(platform, Platform):
        workload = load_workload(workload, platform, seed=seed)
    for name, value, kind in (("platform", platform, Platform), ("workload", workload, Workload)):
        if not isinstance(value, kind):
            article = f"a {kind.__name__}, a file or a bundled name"
            raise ConfigError(f"expected {article}, got {type(value).__name__}", where=name)
    return platform, workload


def settings(
    platform: Platform,
    workload: Workload,
    agent: Model | Agent,
    *,
    seed: int,
    backend: Mapping[str, Any],
    check: bool,
    **models: Model,
) -> dict[str, Any]:
    """Returns the settings of a replay in the form of a configuration of ``hdsim run``."""
    file = name_of("platforms", platform.source) if platform.sha256 else None
    return {
        "seed": seed,
        "check": check,
        "metrics": None,
        "warmup": None,
        "cooldown": None,
        "platform": {"path": file, "types": None, "kind": None if platform.kind == CORES else platform.kind},
        "workload": {**model_settings("workload", "default"), "path": None, **workload.settings},
        "agent": _agent_settings(agent),
        "backend": backend,
        **{group: dict(model_settings(group, spec)) for group, spec in models.items()},
        "env": {},
    }


def _agent_settings(agent: Model | Agent) -> dict[str, Any]:
    classic = model_settings("agent", "classic")
    agent = texts(agent)
    if isinstance(agent, Mapping):
        return dict(agent) if "_target_" in agent or "path" in agent else {**classic, **agent}
    if isinstance(agent, str):
        try:
            return {**classic, **parse_name(agent)}
        except ConfigError:
            (entry,) = installed("agent").select(name=agent)
            return {"_target_": entry.value.replace(":", ".")}
    kind, known = type(agent), vars(agent)
    kept = {name: known[name] for name in inspect.signature(kind).parameters if name in known}
    plain = {name: value for name, value in kept.items() if value is None or isinstance(value, str | int | float)}
    return {"_target_": f"{kind.__module__}.{kind.__qualname__}", **plain}
