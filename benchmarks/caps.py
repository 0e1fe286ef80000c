"""Slowdown of jobs under caps on the power, from the highest power without one down to half of it.

``python benchmarks/caps.py`` prints for each trace and cap the 95th percentile of the bounded slowdown, the mean wait
and the highest power as a share of the cap. It ends with an error if the power exceeds a cap at any instant, which the
exact steps of the power tell. Agent EASY; nodes stay up and draw the power of their cores (10 W, 5 % of it idle).
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

import hdsim
from hdsim.results import series
from hdsim.results.metrics import full
from hdsim.workload.load import load_workload

SHARES = (None, 1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5)
#: File, nodes, cores per node, and first and last job by trace.
TRACES = {
    "ricc": ("RICC-2010-2.swf.gz", 1024, 8, 0, 3000),
    "nasa": ("NASA-iPSC-1993-3.1-cln.swf.gz", 128, 1, 6000, 9000),
}


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("../shared/data/traces"))
    parser.add_argument("--traces", nargs="+", default=list(TRACES))
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    for trace in given.traces:
        file, nodes, cores, first, last = TRACES[trace]
        platform = hdsim.Platform.homogeneous(nodes, cores)
        jobs = load_workload(str(given.folder / file), platform)[first:last]
        print(f"{trace}: {len(jobs):,} jobs")
        print(f"  {'cap':>5} {'p95 slowdown':>13} {'mean wait (s)':>14} {'peak/cap':>9} never run")
        peak = 0.0
        for share in SHARES:
            power = "none" if share is None else {"_target_": "hdsim.power.PowerManagement", "cap": share * peak}
            result = hdsim.simulate(platform, jobs, "easy", power=power)
            highest = float(series.power(result).values.max())
            peak = peak or highest
            limit = peak if share is None else share * peak
            # A cap is exact but for the rounding of sums of watts.
            assert highest <= limit * (1 + 1e-9), (trace, share, highest, limit)
            metrics = full(result)
            row = f"{metrics['p95_bounded_slowdown']:13.2f} {metrics['mean_waiting_time']:14.0f} {highest / limit:9.6f}"
            print(
                f"  {'none' if share is None else f'{share:.2f}':>5} {row} {metrics['jobs_rejected']:9.0f}", flush=True
            )


if __name__ == "__main__":
    main()
