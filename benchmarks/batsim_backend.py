"""CPU time that backend batsim costs hdsim: the whole scheduler's side, agent and socket included, per job.

python benchmarks/batsim_backend.py            # hdsim batsim-serve as the Batsim side, a process of its own
python benchmarks/batsim_backend.py --jobs 10000 --agents fcfs easy
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
from pathlib import Path

import hdsim
from hdsim.batsim.backend import Settings, run
from hdsim.generators import lublin

MACHINE = hdsim.Platform.homogeneous(nodes=256, cores_per_node=1, gflops_per_core=10.0)


def cpu_seconds() -> float:
    """CPU time of this process and all its threads, in s."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(workload: hdsim.Workload, agent: str, *, energy: bool, rounds: int = 3) -> tuple[float, int]:
    """Least CPU time of a few rounds in s, and the messages; files are written and read in it too."""
    best, messages = float("inf"), 0
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder, "batsim")
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m hdsim batsim-serve "$@"\n')
            program.chmod(0o755)
            begin = cpu_seconds()
            _, facts = run(
                MACHINE, workload, agent, Path(folder, "run"), Settings(executable=str(program), energy=energy)
            )
            best = min(best, cpu_seconds() - begin)
            messages = facts["messages"]
    return best, messages


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--agents", nargs="*", default=["fcfs", "sjf", "easy"])
    arguments = parser.parse_args()
    workload = lublin.generate(arguments.jobs, seed=1, cores=256)
    seconds = workload.runtime.copy()
    seconds[seconds < 1] = 1.0
    workload = workload.replaced(runtime=seconds, fixed_duration=True)
    for energy in (False, True):
        for agent in arguments.agents:
            total, messages = measure(workload, agent, energy=energy)
            states = "with P-states" if energy else "delays only"
            print(
                f"{agent:8} {states:14} {total / len(workload) * 1e3:6.3f} ms of CPU a job, "
                f"{messages / len(workload):.2f} messages a job",
                flush=True,
            )


if __name__ == "__main__":
    main()
