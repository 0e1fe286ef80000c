"""Runs that differ in the seed alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hdsim.results.run_directory.inputs import file_digest
from hdsim.results.run_directory.manifest import read_manifest


def idle_seeds(configs: Iterable[Mapping[str, Any]]) -> str | None:
    """Returns a warning if replays of a sweep differ in the seed alone and by their configurations nothing is drawn."""
    groups = Counter(
        json.dumps({**config, "seed": None}, sort_keys=True, default=str)
        for config in configs
        if "train" not in config and _draws_nothing(config)
    )
    equal = sum(count for count in groups.values() if count > 1)
    if not equal:
        return None
    return (
        f"{equal} runs differ in the seed alone, and nothing in them is drawn: their results will be equal; windows of "
        "the trace (workload.start=0,1000,2000 with workload.jobs) are replications"
    )


def _draws_nothing(config: Mapping[str, Any]) -> bool:
    """Whether a replay has a trace from a file, a classic policy without random orders, and no model that draws."""
    workload, agent = config.get("workload") or {}, config.get("agent") or {}
    models = [(config.get(group) or {}) for group in ("contention", "network", "failures", "power")]
    return (
        bool(workload.get("path"))
        and not workload.get("generate")
        and workload.get("runtime") != "hdeeprm"
        and (workload.get("bsp") or {}).get("supersteps") is None
        and not any(model.get("_target_") or model.get("path") for model in models)
        and not agent.get("_target_")
        and not agent.get("path")
        and "random" not in (agent.get("job_policy"), agent.get("core_policy"), agent.get("backfill_order"))
        and "job_policy" in agent
    )


def seed_warning(directories: Iterable[Path]) -> str | None:
    """Returns a warning if replays that differ in the seed alone have the same results, else None.

    Trainings among the directories are left out.
    """
    groups: dict[str, list[str]] = {}
    for path in directories:
        config = read_manifest(path)["config"]
        if "train" not in config:
            key = json.dumps({**config, "seed": None}, sort_keys=True)
            results = next(
                path / name for name in ("jobs.csv", "supersteps.csv", "rmse.csv") if (path / name).is_file()
            )
            groups.setdefault(key, []).append(file_digest(results))
    equal = [len(group) for group in groups.values() if len(group) > 1 and len(set(group)) == 1]
    if not equal:
        return None
    return (
        f"{sum(equal)} runs differ in the seed alone and have the same results, so they are no replications; the seed "
        "matters with workload=lublin, failures, drawn run times (workload.runtime=hdeeprm) or jobs (workload.bsp), "
        "bandwidths drawn for a contention model, random policies, and generated series or scenarios of hdsim bsp"
    )
