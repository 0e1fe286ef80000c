"""One trace under one policy in seven simulators: hdsim here, Batsim as recorded, the others as measured."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Mapping
from pathlib import Path

import numpy as np

import hdsim
from hdsim.report.statistics import Floats
from hdsim.results.metrics import bounded_slowdown

_JOBS, _CORES = 1000, 256
#: Runs of Batsim 4.2.1 with textbook schedulers; the requested time is the run time and 1 s.
_RECORDED = {"fcfs": "lublin1000-fcfsNoTopo", "easy": "lublin1000-easyNotopo-wt1"}


def measure(runs: Path, data: Path, policy: str) -> Mapping[str, Mapping[str, float | str]]:
    """Compares the starts of the first 1,000 jobs of ``lublin_256.swf`` on 256 cores.

    Args:
        runs: Not used.
        data: Folder of the reference data.
        policy: ``fcfs`` (nothing overtakes) or ``easy``.

    Returns:
        By simulator: version, makespan, mean waiting time, mean bounded slowdown, and the number of jobs that start as
        in Batsim.
    """
    platform = hdsim.Platform.homogeneous(nodes=_CORES // 4, cores_per_node=4, gflops_per_core=10.0)
    jobs = hdsim.load_workload(data / "traces/lublin_256.swf", platform=platform, jobs=_JOBS)
    jobs = jobs.replaced(requested_time=jobs.runtime + 1)
    recorded = _batsim(data / "batsim_runs" / _RECORDED[policy] / "out_jobs.csv.gz", jobs)
    rows: dict[str, dict[str, float | str]] = {}
    for name, batch in {"hdsim": True, "hdsim, a pass for each event": False}.items():
        starts = hdsim.simulate(platform, jobs, policy, batch_events=batch).starting_time
        rows[name] = _row("this one", jobs, starts, recorded)
    rows["Batsim"] = _row("4.2.1", jobs, recorded, recorded)
    with Path(__file__).with_suffix(".csv").open(encoding="utf-8") as file:
        for line in csv.DictReader(file):
            if line["policy"] == policy:
                numbers = {
                    key: float(value) for key, value in line.items() if key not in ("simulator", "policy", "version")
                }
                rows[line["simulator"]] = {"version": line["version"], **numbers}
    return rows


def _batsim(path: Path, jobs: hdsim.Workload) -> Floats:
    """(J,) starts in seconds after the first submission."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        starts = {int(line["job_id"]): float(line["starting_time"]) for line in csv.DictReader(file)}
    found = np.array([starts[job] for job in jobs.job_id.tolist()])
    return found - found.min() + jobs.submission_time[int(found.argmin())]


def _row(version: str, jobs: hdsim.Workload, starts: Floats, recorded: Floats) -> dict[str, float | str]:
    finish = starts + jobs.runtime
    return {
        "version": version,
        "makespan": float(finish.max() - jobs.submission_time.min()),
        "mean_waiting_time": float((starts - jobs.submission_time).mean()),
        "mean_bounded_slowdown": float(bounded_slowdown(finish - jobs.submission_time, jobs.runtime).mean()),
        "starts as Batsim's": float((starts == recorded).sum()),
    }
