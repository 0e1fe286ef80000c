"""CPU time of replays with nodes that sleep and with hard caps beside that of the same replay without.

Each row has the time of a replay by events and in compiled code, from its set-up to its metrics, and how often that of
the replay without in the same kind of execution goes into it; a dash where compiled code does not have it. `nodes` is a
replay where nodes may be taken out of service, which needs cores by node as nodes that sleep do.

python benchmarks/power.py
python benchmarks/power.py --jobs 2000 --platforms gaia --agents easy fcfs
python benchmarks/power.py --jobs 20000 --traces ricc nasa --compiled
"""

from __future__ import annotations

import argparse
import logging
import time
from pathlib import Path
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
#: File, nodes and cores per node by trace.
TRACES = {
    "ricc": ("RICC-2010-2.swf.gz", 1024, 8),
    "nasa": ("NASA-iPSC-1993-3.1-cln.swf.gz", 128, 1),
}


def machine(name: str) -> hdsim.Platform:
    """A platform of hdsim whose nodes can sleep."""
    document = hdsim.load_platform(name).to_dict()
    for kind in document["types"]["node"].values():
        kind["states"] = STATES
    return hdsim.Platform.from_dict(document)


def seconds(
    platform: hdsim.Platform, jobs: hdsim.Workload, agent: str, keys: dict[str, Any], *, compiled: bool, rounds: int
) -> float | None:
    """Least CPU time of a replay in s, None if compiled code does not have it."""
    best = float("inf")
    for _ in range(rounds):
        begin = time.process_time()
        simulation = Simulation(platform, jobs, agent, **keys)
        if not compiled:
            # A simulation that has begun goes on by events.
            simulation.run_until(0.0)
        result = simulation.run()
        result.metrics.copy()
        best = min(best, time.process_time() - begin)
        if compiled and result.engine["mode"] == "events":
            return None
    return best


def measure(name: str, platform: hdsim.Platform, jobs: hdsim.Workload, asked: argparse.Namespace) -> None:
    """Prints a row for each agent and replay."""
    for agent in asked.agents:
        without: dict[bool, float] = {}
        for label, keys in REPLAYS.items():
            row = f"{name:16} {agent:6} {label:15}"
            for compiled in (True,) if asked.compiled else (False, True):
                # The kernels are compiled, or read, first.
                taken = seconds(platform, jobs[:50], agent, keys, compiled=compiled, rounds=1)
                if taken is not None:
                    taken = seconds(platform, jobs, agent, keys, compiled=compiled, rounds=asked.rounds)
                if taken is None:
                    row += f" {'-':>8} {'-':>7}"
                else:
                    base = without.setdefault(compiled, taken)
                    row += f" {taken / len(jobs) * 1e6:8.1f} {taken / base:7.2f}"
            print(row, flush=True)


def main() -> None:
    """Prints a row for each replay."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--platforms", nargs="*", default=["homogeneous_256", "gaia"])
    parser.add_argument("--traces", nargs="*", default=[], choices=TRACES)
    parser.add_argument("--folder", type=Path, default=Path("../shared/data/traces"), help="of the traces")
    parser.add_argument("--agents", nargs="+", default=["fcfs", "easy"])
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compiled", action="store_true", help="no replays by events")
    asked = parser.parse_args()
    logging.disable(logging.WARNING)
    kinds = [("us/job", "x")] * (1 if asked.compiled else 2)
    columns = " ".join(f"{unit:>8} {times:>7}" for unit, times in kinds)
    print(f"{'platform':16} {'agent':6} {'replay':15} {columns}{'' if asked.compiled else '   (events, compiled)'}")
    for name in asked.platforms:
        platform = machine(name)
        measure(name, platform, load_workload("lublin_4000", platform)[: asked.jobs], asked)
    for name in asked.traces:
        file, nodes, cores = TRACES[name]
        platform = hdsim.Platform.homogeneous(nodes, cores, power_per_core=80 / cores, states=STATES)
        measure(name, platform, load_workload(str(asked.folder / file), platform)[: asked.jobs], asked)


if __name__ == "__main__":
    main()
