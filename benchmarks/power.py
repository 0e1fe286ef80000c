"""CPU time of replays with nodes that sleep and with hard caps beside that of the same replay without.

The replay without is one by events; `compiled` is its CPU time in compiled code, `nodes` that by events where nodes may
be taken out of service, which needs cores by node as nodes that sleep do.

python benchmarks/power.py
python benchmarks/power.py --jobs 2000 --platforms gaia --agents easy fcfs
"""

from __future__ import annotations

import argparse
import logging
import time
from typing import Any

import hdsim
from hdsim.simulation.simulation import Simulation
from hdsim.workload.load import load_workload

STATES = {
    "on": {"watts": 60},
    "idle": {"watts": 45},
    "off": {"watts": 6},
    "going_down": {"watts": 50, "seconds": 30},
    "booting": {"watts": 120, "seconds": 180},
}
CLASS = "hdsim.power.PowerManagement"
#: Settings of the replays by name; the first is the one without.
REPLAYS: dict[str, dict[str, Any]] = {
    "without": {},
    "nodes": {"failures": "external"},
    "states": {"power": {"_target_": CLASS}},
    "suspend 10 min": {"power": {"_target_": CLASS, "suspend_time": 600}},
    "suspend 1 h": {"power": {"_target_": CLASS, "suspend_time": 3600}},
    "cap 1": {"power": {"_target_": CLASS, "cap": 1.0}},
    "cap 0.9": {"power": {"_target_": CLASS, "cap": 0.9}},
    "cap 0.7": {"power": {"_target_": CLASS, "cap": 0.7}},
}


def machine(name: str) -> hdsim.Platform:
    """A platform of hdsim whose nodes can sleep."""
    document = hdsim.load_platform(name).to_dict()
    for kind in document["types"]["node"].values():
        kind["states"] = STATES
    return hdsim.Platform.from_dict(document)


def seconds(
    platform: hdsim.Platform, jobs: hdsim.Workload, agent: str, keys: dict[str, Any], *, compiled: bool, rounds: int
) -> float:
    """Least CPU time of a replay in s."""
    best = float("inf")
    for _ in range(rounds):
        simulation = Simulation(platform, jobs, agent, **keys)
        if not compiled:
            # A simulation that has begun goes on by events.
            simulation.run_until(0.0)
        begin = time.process_time()
        result = simulation.run()
        best = min(best, time.process_time() - begin)
        assert (result.engine["mode"] == "events") != compiled, result.engine
    return best


def main() -> None:
    """Prints a row for each replay."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--platforms", nargs="+", default=["homogeneous_256", "gaia"])
    parser.add_argument("--agents", nargs="+", default=["fcfs", "easy"])
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    logging.disable(logging.WARNING)
    print(f"{'platform':16} {'agent':6} {'replay':15} {'us/job':>8} {'x events':>9} {'x compiled':>11}")
    for name in asked.platforms:
        platform = machine(name)
        jobs = load_workload("lublin_4000", platform)[: asked.jobs]
        for agent in asked.agents:
            # The kernels are compiled, or read, first.
            for keys in REPLAYS.values():
                seconds(platform, jobs[:50], agent, keys, compiled=False, rounds=1)
            seconds(platform, jobs[:50], agent, {}, compiled=True, rounds=1)
            compiled = seconds(platform, jobs, agent, {}, compiled=True, rounds=asked.rounds)
            print(f"{name:16} {agent:6} {'compiled':15} {compiled / len(jobs) * 1e6:8.0f}")
            without = 0.0
            for label, keys in REPLAYS.items():
                taken = seconds(platform, jobs, agent, keys, compiled=False, rounds=asked.rounds)
                without = without or taken
                row = f"{name:16} {agent:6} {label:15} {taken / len(jobs) * 1e6:8.0f}"
                print(f"{row} {taken / without:9.2f} {taken / compiled:11.1f}", flush=True)


if __name__ == "__main__":
    main()
