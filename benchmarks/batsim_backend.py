"""CPU time that backend batsim costs hdsim: the whole scheduler's side, agent and socket included, per job.

Once wherever the system puts hdsim and its Batsim, once with both on one core, as is the default.

python benchmarks/batsim_backend.py            # hdsim batsim-serve as the Batsim side, a process of its own
python benchmarks/batsim_backend.py --jobs 10000 --agents fcfs easy
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
from pathlib import Path

import numpy as np
from yardstick import arrangements, rounds

import hdsim
from hdsim.batsim.backend import Settings, run
from hdsim.generators import lublin

#: ms of CPU time a job that the scheduler's side may cost.
LIMIT = 0.15
MACHINE = hdsim.Platform.homogeneous(nodes=256, cores_per_node=1, gflops_per_core=10.0)


def cpu_seconds() -> float:
    """CPU time of this process and all its threads, in s."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(workload: hdsim.Workload, agent: str, *, energy: bool) -> tuple[float, int]:
    """CPU time of a run in s, the files written and read included, and the number of messages."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "batsim")
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m hdsim batsim-serve "$@"\n')
        program.chmod(0o755)
        begin = cpu_seconds()
        settings = Settings(executable=str(program), energy=energy, one_core=False)
        _, facts = run(MACHINE, workload, agent, Path(folder, "run"), settings)
        return cpu_seconds() - begin, facts["messages"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--agents", nargs="*", default=["fcfs", "sjf", "easy"])
    arguments = parser.parse_args()
    workload = lublin.generate(arguments.jobs, seed=1, cores=256)
    workload = workload.replaced(runtime=np.maximum(workload.runtime, 1.0), fixed_duration=True)
    for where, energy in ((where, energy) for where in arrangements() for energy in (False, True)):
        for agent in arguments.agents:
            messages: list[int] = []

            def milliseconds(agent: str = agent, energy: bool = energy, messages: list[int] = messages) -> float:
                seconds, number = measure(workload, agent, energy=energy)
                messages.append(number)
                return seconds / len(workload) * 1e3

            measured = rounds(milliseconds, arguments.rounds)
            print(
                f"{where}: {agent:6} {'P-states' if energy else 'delays':8} "
                f"{messages[0] / len(workload):.2f} messages a job, "
                f"{min(measured.values):.3f} ms of CPU a job at best, {measured.middle:.3f} in the middle; "
                f"limit {LIMIT} ms; {measured}",
                flush=True,
            )


if __name__ == "__main__":
    main()
