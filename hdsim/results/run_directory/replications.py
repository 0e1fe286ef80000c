"""Runs that differ in the seed alone."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from hdsim.results.run_directory.inputs import file_digest
from hdsim.results.run_directory.manifest import read_manifest


def seed_warning(directories: Iterable[Path]) -> str | None:
    """Returns a warning if replays that differ in the seed alone have the same results, else None.

    Args:
        directories: Run directories with results. Trainings among them are left out.
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
