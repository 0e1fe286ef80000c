"""Seconds of a single run, overhead of a run in a sweep, and speed-up by two processes.

python benchmarks/sweeps.py                       # a minute on an idle machine
python benchmarks/sweeps.py --runs 48 --jobs 4
python benchmarks/sweeps.py --launchers joblib ray

The overhead is that of runs of 10 jobs, from the difference between sweeps of many runs and of one; it includes the
replay and the files. The speed-up is that of runs of about a second, start of the command included. Each number is the
best of --repeat.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time

TINY = ("platform=teaching", "workload.jobs=10")
SECOND = ("platform=gaia", "workload=lublin", "workload.generate.jobs=25000", "agent=easy", "contention=fair_share")


def seconds(*arguments: str, repeat: int) -> float:
    """Wall time of ``hdsim run ARGUMENTS`` in a new directory."""
    best = float("inf")
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as folder:
            begin = time.perf_counter()
            subprocess.run(
                [sys.executable, "-m", "hdsim", "run", *arguments], cwd=folder, check=True, capture_output=True
            )
            best = min(best, time.perf_counter() - begin)
    return best


def sweep(runs: int) -> tuple[str, ...]:
    return "-m", f"seed=range(1,{runs + 1})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=24, help="runs of a second")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--launchers", nargs="*", default=(), choices=("joblib", "submitit_local", "ray"))
    options = parser.parse_args()
    seconds(*TINY, repeat=1)  # compiles the kernels
    print(f"single run of 10 jobs     {seconds(*TINY, repeat=max(3, options.repeat)):6.2f} s")
    one, many = (seconds(*TINY, *sweep(runs), repeat=options.repeat) for runs in (1, 61))
    print(f"overhead a run            {(many - one) / 60:6.3f} s")
    serial, parallel = (
        seconds(*SECOND, *sweep(options.runs), "--jobs", str(jobs), repeat=options.repeat) for jobs in (1, options.jobs)
    )
    print(f"{options.runs} runs, one process      {serial:6.2f} s")
    print(
        f"{options.runs} runs, {options.jobs} processes      {parallel:6.2f} s, {serial / parallel:.2f} times as fast"
    )
    for launcher in options.launchers:
        taken = seconds(*SECOND, *sweep(options.runs), f"hydra/launcher={launcher}", repeat=options.repeat)
        print(f"{options.runs} runs, {launcher:16s} {taken:6.2f} s, {serial / taken:.2f} times as fast")


if __name__ == "__main__":
    main()
