"""Replays of policy pairs, job by job beside runs that Batsim 4.2.1 executed."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Mapping
from pathlib import Path

import numpy as np

import hdsim


def measure(runs: Path, data: Path, names: str) -> Mapping[str, Mapping[str, float]]:
    """Compares allocations, starts and finishes of all jobs.

    Args:
        runs: Not used.
        data: Folder of the reference data.
        names: Names of recorded runs, separated by blanks.

    Returns:
        By run: its jobs, those on the same cores, the largest differences of starts and finishes in seconds, of which
        Batsim writes six decimals, and the relative difference of the energy of all jobs.
    """
    return {name: _compared(data, name) for name in names.split()}


def _compared(data: Path, name: str) -> dict[str, float]:
    machine, _, pair = name.replace("_div20", "").partition("_")
    platform = hdsim.load_platform(data / f"hdeeprm/platforms/{machine}.json", types=data / "hdeeprm/types")
    jobs = hdsim.load_workload(data / "batsim_runs" / name / "workload.json.gz", platform=platform)
    found = hdsim.simulate(platform, jobs, pair, contention="threshold").jobs
    with gzip.open(data / "batsim_runs" / name / "out_jobs.csv.gz", "rt", encoding="utf-8") as file:
        lines = {int(line["job_id"]): line for line in csv.DictReader(file)}
    recorded = [lines[job] for job in jobs.job_id.tolist()]

    def difference(column: str) -> float:
        expected = np.array([float(line[column]) for line in recorded])
        return float(np.abs(found[column].round(6) - expected).max())

    cores = [line["allocated_resources"] for line in recorded]
    energy = sum(float(line["consumed_energy"]) for line in recorded)
    return {
        "jobs": len(jobs),
        "on the same cores": sum(map(str.__eq__, found["allocated_resources"].tolist(), cores)),
        "starts, largest difference, s": difference("starting_time"),
        "finishes, largest difference, s": difference("finish_time"),
        "energy of jobs, relative difference": abs(float(found["consumed_energy"].sum()) / energy - 1),
    }
