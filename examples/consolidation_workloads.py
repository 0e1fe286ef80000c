"""Writes the workloads of the experiment `consolidation`: BSP jobs bound by memory, and BSP jobs bound by messages.

    python examples/consolidation_workloads.py DIRECTORY

The jobs are invented. Those of both files arrive alike, have 8, 12 or 16 tasks and compute for about 1 s a superstep at
10 GFLOP/s. They differ in what else they need.
"""

import json
import sys
from pathlib import Path

import numpy as np

JOBS = 40
#: Seconds between two submissions, on average.
BETWEEN = 12.0
#: GB/s of memory bandwidth a task, pattern and bytes of each message.
NEEDS = {
    "memory_bound": (16, (("halo_2d", 100_000),)),
    "communication_bound": (1, (("halo_2d", 250_000_000), ("ring", 800_000_000))),
}


def workload(mem_bw, patterns):
    """A workload in Batsim's JSON."""
    rng = np.random.default_rng(2026)
    jobs, profiles = [], {}
    submitted = 0.0
    for number in range(1, JOBS + 1):
        tasks = int(rng.choice([8, 12, 16]))
        # Tasks have up to a tenth less to do than the one that has most.
        operations = 1e10 * (1 - 0.1 * rng.random(tasks))
        pattern, volume = patterns[number % len(patterns)]
        supersteps = int(rng.integers(20, 41))
        profiles[f"bsp{number}"] = {
            "type": "bsp",
            "supersteps": supersteps,
            "cpu": np.rint(operations).astype(np.int64).tolist(),
            "com": volume,
            "pattern": pattern,
            "l": 0.0001,
            "mem_bw": mem_bw,
            "req_time": 10 * supersteps,
        }
        jobs.append({"id": number, "subtime": round(submitted, 3), "res": tasks, "profile": f"bsp{number}"})
        submitted += rng.exponential(BETWEEN)
    return {"_made_by": "examples/consolidation_workloads.py", "nb_res": 256, "jobs": jobs, "profiles": profiles}


def written(content):
    """JSON with a line for each job and profile."""
    jobs = ",\n".join(f"    {json.dumps(job)}" for job in content["jobs"])
    profiles = ",\n".join(f"    {json.dumps(name)}: {json.dumps(p)}" for name, p in content["profiles"].items())
    head = f'  "_made_by": {json.dumps(content["_made_by"])},\n  "nb_res": {content["nb_res"]},\n'
    return f'{{\n{head}  "jobs": [\n{jobs}\n  ],\n  "profiles": {{\n{profiles}\n  }}\n}}\n'


if __name__ == "__main__":
    for name, needs in NEEDS.items():
        (Path(sys.argv[1]) / f"{name}.json").write_text(written(workload(*needs)))
