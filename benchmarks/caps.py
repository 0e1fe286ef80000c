"""Slowdown of jobs under caps on the power, from the highest power without one down to half of it.

``python benchmarks/caps.py`` prints for each trace and cap the 95th percentile of the bounded slowdown (turnaround over
the run time without a cap), that as a multiple of its value without a cap, the mean wait, the share of jobs that ran
slower, and the highest power as a share of the cap. Caps are shares of the natural peak: the highest power of the same
jobs without a cap. It ends with an error if the power exceeds a cap at any instant, which the exact steps of the power
tell.

Agent EASY; nodes stay up and draw the power of their cores (10 W, 5 % of it idle). With ``--when-capped slow`` jobs
that would break the cap start at a lower frequency. Of the 10 W of a core 2 W are static, the others fall with the
1.68th power of the frequency, so that a core draws 45 % at half of it.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import Any

import numpy as np

import hdsim
from hdsim.power import WHEN_CAPPED
from hdsim.results import series
from hdsim.results.metrics import full
from hdsim.workload.frequency_bound import with_frequency_bound
from hdsim.workload.load import load_workload

SHARES = (None, 1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5)
#: File, nodes, cores per node, and first and last job by trace.
TRACES = {
    "ricc": ("RICC-2010-2.swf.gz", 1024, 8, 0, 3000),
    "nasa": ("NASA-iPSC-1993-3.1-cln.swf.gz", 128, 1, 6000, 9000),
    "theta": ("theta-synthetic-4360.swf", 4360, 1, 0, 3000),
}
#: W of a core at the nominal frequency, the part of it that does not depend on the frequency, and its frequencies.
WATTS, STATIC, GHZ = 10.0, 2.0, (1.2, 1.5, 1.8, 2.1, 2.4)


def points() -> list[dict[str, float]]:
    """Operating points of the processors."""
    dynamic = {ghz: (WATTS - STATIC) * (ghz / GHZ[-1]) ** 1.68 for ghz in GHZ}
    return [{"ghz": ghz, "static_watts": STATIC, "dynamic_watts": watts} for ghz, watts in dynamic.items()]


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("../shared/data/traces"))
    parser.add_argument("--traces", nargs="+", default=list(TRACES), choices=list(TRACES))
    parser.add_argument("--first", type=int, help="first job; the number of jobs stays")
    parser.add_argument("--when-capped", choices=WHEN_CAPPED, default="wait")
    parser.add_argument("--frequency-bound", type=float, default=0.5, help="share of run times, with slow")
    parser.add_argument("--shares", type=float, nargs="+", default=[share for share in SHARES if share])
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    for trace in given.traces:
        file, nodes, cores, first, last = TRACES[trace]
        platform = hdsim.Platform.homogeneous(nodes, cores, GHZ[-1], power_per_core=WATTS, frequencies=points())
        if given.first is not None:
            first, last = given.first, given.first + last - first
        jobs = load_workload(str(given.folder / file), platform)[first:last]
        jobs = with_frequency_bound(jobs, given.frequency_bound, seed=0)
        print(f"{trace}: {len(jobs):,} jobs")
        print("    cap  p95 slowdown  of none  mean wait (s)  slowed  peak/cap never run")
        peak = usual = 0.0
        for share in (None, *given.shares):
            power: Any = "none"
            if share is not None:
                power = {"cap": share * peak, "when_capped": given.when_capped}
                power = {"_target_": "hdsim.power.PowerManagement", **power}
            result = hdsim.simulate(platform, jobs, "easy", power=power)
            highest = float(series.power(result).values.max())
            peak = peak or highest
            limit = peak if share is None else share * peak
            # A cap is exact but for the rounding of sums of watts.
            assert highest <= limit * (1 + 1e-9), (trace, share, highest, limit)
            metrics = full(result)
            slowdown = metrics["p95_reference_slowdown"]
            usual = usual or slowdown
            ran = ~np.isnan(result.finish_time)
            slowed = 100 * float((result.finish_time - result.starting_time > jobs.runtime * (1 + 1e-9))[ran].mean())
            row = f"{slowdown:13.2f} {slowdown / usual:8.2f} {metrics['mean_waiting_time']:14.0f} {slowed:6.1f}%"
            row = f"{'none' if share is None else f'{share:.2f}':>5} {row} {highest / limit:9.6f}"
            print(f"  {row} {metrics['jobs_rejected']:9.0f}", flush=True)


if __name__ == "__main__":
    main()
