"""Energy that nodes which go down save, and the wait that boots add: predictive management beside fixed time-outs.

``python benchmarks/idle_nodes.py`` prints for each trace and policy the energy saved as a share of that without power
management, the mean wait added, and the differences of the predictive policy, with a wait worth 15 or 30 kW, to each
fixed time-out, all means over windows of the trace with 95 % bootstrap intervals. A policy dominates another one if it
saves at least as much and adds at most as much wait. The policy was made on the first and the last window of the NASA
and RICC traces, which are left out here; that long times count as seen once was found on the windows themselves. It
takes ten minutes.

Agent EASY; each node draws 45 W idle beside its cores, 6 W off, goes down in 30 s at 50 W and boots in 180 s at 120 W.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import Any

import numpy as np

import hdsim
from hdsim.report.statistics import Interval, bootstrap
from hdsim.workload.load import load_workload

STATES = {
    "on": {"watts": 60},
    "idle": {"watts": 45},
    "off": {"watts": 6},
    "going_down": {"watts": 50, "seconds": 30},
    "booting": {"watts": 120, "seconds": 180},
}
#: W of the cores of a node that all compute.
CORES_WATTS = 80.0
MINUTES = (1, 5, 10, 30, 60, 120)
#: File, nodes, cores per node, and jobs of a window by trace.
TRACES = {
    "nasa": ("NASA-iPSC-1993-3.1-cln.swf.gz", 128, 1, 2500),
    "ricc": ("RICC-2010-2.swf.gz", 1024, 8, 3000),
    "theta": ("theta-synthetic-4360.swf", 4360, 1, 300),
}


def policies() -> dict[str, dict[str, Any]]:
    """Settings of power management by name."""
    rates = {"suspend_rate": None, "resume_rate": None}
    found = {
        f"{minutes} min": {"_target_": "hdsim.power.PowerManagement", "suspend_time": 60 * minutes, **rates}
        for minutes in MINUTES
    }
    for kilowatts in (15, 30):
        settings = {"wait_watts": 1000 * kilowatts, **rates}
        found[f"{kilowatts} kW"] = {"_target_": "hdsim.power.PredictiveSuspend", **settings}
    return found


def measured(folder: Path, trace: str, windows: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Returns, by policy, (W,) energy saved in % and (W,) mean wait added in s of windows of a trace."""
    file, nodes, cores, jobs = TRACES[trace]
    platform = hdsim.Platform.homogeneous(nodes, cores, power_per_core=CORES_WATTS / cores, states=STATES)
    log = load_workload(str(folder / file), platform)
    begins = np.linspace(0, len(log) - jobs, windows + 2).astype(int)[1:-1].tolist()
    rows: dict[str, list[tuple[float, float]]] = {name: [] for name in policies()}
    for begin in begins:
        window = log[begin : begin + jobs]
        usual = hdsim.simulate(platform, window, "easy")
        for name, power in policies().items():
            result = hdsim.simulate(platform, window, "easy", power=power)
            saved = 100 * (1 - result.energy_joules / usual.energy_joules)
            rows[name].append((saved, result.metrics["mean_waiting_time"] - usual.metrics["mean_waiting_time"]))
    return {name: (np.array(row)[:, 0], np.array(row)[:, 1]) for name, row in rows.items()}


def _text(interval: Interval) -> str:
    return f"{interval.value:+.2f} [{interval.low:+.2f}, {interval.high:+.2f}]"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("../shared/data/traces"))
    parser.add_argument("--traces", nargs="+", default=list(TRACES))
    parser.add_argument("--windows", type=int, default=8)
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    for trace in given.traces:
        found = measured(given.folder, trace, given.windows)
        print(f"{trace}: {given.windows} windows of {TRACES[trace][3]:,} jobs")
        print(f"  {'':10} {'energy saved (%)':26} {'wait added (s)':30}")
        for name, (energy, wait) in found.items():
            print(f"  {name:10} {_text(bootstrap(energy)):26} {_text(bootstrap(wait)):30}")
        for name in [name for name in found if name.endswith("kW")]:
            print(f"  {name} beside {'saves more (%)':26} {'adds more (s)':30} dominates")
            for fixed in [name for name in found if name.endswith("min")]:
                more, waits = (bootstrap(a - b) for a, b in zip(found[name], found[fixed], strict=True))
                word = "yes" if more.value >= 0 and waits.value <= 0 else "no"
                word = "yes, beyond chance" if more.low >= 0 and waits.high <= 0 else word
                print(f"  {fixed:12} {_text(more):26} {_text(waits):30} {word}", flush=True)


if __name__ == "__main__":
    main()
