"""Rates of replays, and their ratios to bare loops of Python that only count cores, measured in the same process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import hdsim
from hdsim.studies.measures.bare_loops import bare_easy, bare_fcfs, columns
from hdsim.workload.generators import lublin

_CORES = 256
_AGENTS = ("fcfs", "sjf", "easy", "conservative")


def measure(runs: Path, data: Path, jobs: str, copies: str, rounds: str) -> Mapping[str, Mapping[str, float]]:
    """Replays generated traces.

    Args:
        runs: Not used.
        data: Not used.
        jobs: Jobs of the generated trace.
        copies: Copies of it, one after the other.
        rounds: Measurements of each replay, of which the shortest counts.

    Returns:
        By agent: jobs, CPU time of a replay with all metrics, jobs per second of CPU time, the rate of the bare loop
        (first come, first served for strict orders, EASY for backfilling), and the ratio of the two rates.
    """
    platform = hdsim.Platform.homogeneous(nodes=_CORES // 4, cores_per_node=4, gflops_per_core=10.0)
    trace = lublin.generate(int(jobs), seed=1, cores=_CORES)
    longer = _repeated(trace, int(copies))
    bare = {
        "fcfs": _rate(lambda: _strict(longer), len(longer), int(rounds)),
        # Textbook EASY takes time that grows with the square of the queue, so it gets the trace once.
        "easy": _rate(lambda: bare_easy(*columns(trace), _CORES), len(trace), int(rounds)),
    }
    rows = {}
    for agent in _AGENTS:
        hdsim.simulate(platform, trace[:100], agent)  # compiles kernels
        rate = _rate(partial(_metrics, platform, longer, agent), len(longer), int(rounds))
        other = bare["fcfs" if agent in ("fcfs", "sjf") else "easy"]
        rows[agent] = {
            "jobs": len(longer),
            "CPU time, s": len(longer) / rate,
            "jobs per s": rate,
            "bare loop, jobs per s": other,
            "ratio": rate / other,
        }
    return rows


def _metrics(platform: hdsim.Platform, workload: hdsim.Workload, agent: str) -> Any:
    return hdsim.simulate(platform, workload, agent).metrics


def _strict(workload: hdsim.Workload) -> Any:
    submit, runtime, _, size = columns(workload)
    return bare_fcfs(submit, runtime, size, _CORES)


def _rate(work: Callable[[], Any], jobs: int, rounds: int) -> float:
    best = float("inf")
    for _ in range(rounds):
        begin = time.process_time()
        work()
        best = min(best, time.process_time() - begin)
    return jobs / best


def _repeated(workload: hdsim.Workload, copies: int) -> hdsim.Workload:
    shift = np.repeat(np.arange(copies) * (workload.submission_time[-1] + 1), len(workload))
    names = ("runtime", "requested_time", "requested_cores")
    repeated: dict[str, Any] = {name: np.tile(getattr(workload, name), copies) for name in names}
    repeated["submission_time"] = np.tile(workload.submission_time, copies) + shift
    return hdsim.Workload.from_columns(**repeated)
