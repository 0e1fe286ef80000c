"""CPU time that backend batsim costs hdsim: the whole scheduler's side, agent and socket included, per job.

Once wherever the system puts hdsim and its Batsim, once with both on one core, as is the default; and beside both,
where pybatsim is installed, what pybatsim 3.2.1 costs with the same jobs and the same Batsim on the same machine.

python benchmarks/batsim_backend.py            # hdsim batsim-serve as the Batsim side, a process of its own
python benchmarks/batsim_backend.py --jobs 10000 --agents fcfs easy
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import resource
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
from yardstick import arrangements, free_port, rounds

import hdsim
from hdsim.backends.batsim.backend import Batsim
from hdsim.workload.batsim_json import write_batsim
from hdsim.workload.generators import lublin

#: ms of CPU time a job that the scheduler's side may cost.
LIMIT = 0.15
MACHINE = hdsim.Platform.homogeneous(nodes=256, cores_per_node=1, gflops_per_core=10.0)
#: First come, first served on pybatsim's API.
SCHEDULER = Path(__file__).resolve().parents[1] / "tests" / "batsim_schedulers" / "firstComeFirstServed.py"


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
        batsim = Batsim(executable=str(program), energy=energy)
        _, facts = batsim.run(MACHINE, workload, agent, Path(folder, "run"))
        return cpu_seconds() - begin, facts["messages"]


def pybatsim_seconds(workload: hdsim.Workload) -> float:
    """CPU time of a process of pybatsim in s, from its start to its end."""
    with tempfile.TemporaryDirectory() as folder:
        write_batsim(workload, Path(folder, "jobs.json"))
        endpoint = f"tcp://127.0.0.1:{free_port()}"
        options = {"cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        launcher = [sys.executable, "-m", "batsim.cmds.launcher", str(SCHEDULER), "-s", endpoint]
        scheduler = subprocess.Popen([*launcher, "-v", "warning", "-t", "600000"], **options)  # type: ignore[call-overload]
        server = [sys.executable, "-m", "hdsim", "batsim-serve", "-s", endpoint]
        subprocess.run([*server, "-p", "homogeneous_256", "-w", "jobs.json", "-e", "out"], check=True, **options)  # type: ignore[call-overload]
        used = os.wait4(scheduler.pid, 0)[2]
        return used.ru_utime + used.ru_stime


def pybatsim_milliseconds(workload: hdsim.Workload) -> float:
    """CPU time of pybatsim a job in ms, its start left out: by how much more jobs take longer."""
    few = len(workload) // 5
    return (pybatsim_seconds(workload) - pybatsim_seconds(workload[:few])) / (len(workload) - few) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--agents", nargs="*", default=["fcfs", "sjf", "easy"])
    arguments = parser.parse_args()
    workload = lublin.generate(arguments.jobs, seed=1, cores=256)
    workload = workload.replaced(runtime=np.maximum(workload.runtime, 1.0), fixed_duration=True)
    for where, energy in ((where, energy) for where in arrangements() for energy in (False, True)):
        theirs = None
        if not energy and importlib.util.find_spec("batsim"):
            theirs = rounds(partial(pybatsim_milliseconds, workload), arguments.rounds)
            print(
                f"{where}: pybatsim, {min(theirs.values):.3f} ms of CPU a job at best, "
                f"{theirs.middle:.3f} in the middle"
            )
        for agent in arguments.agents:
            messages: list[int] = []

            def milliseconds(agent: str = agent, energy: bool = energy, messages: list[int] = messages) -> float:
                seconds, number = measure(workload, agent, energy=energy)
                messages.append(number)
                return seconds / len(workload) * 1e3

            measured = rounds(milliseconds, arguments.rounds)
            beside = f" ({measured.middle / theirs.middle:.2f} of pybatsim's)" if theirs else ""
            print(
                f"{where}: {agent:6} {'P-states' if energy else 'delays':8} "
                f"{messages[0] / len(workload):.2f} messages a job, "
                f"{min(measured.values):.3f} ms of CPU a job at best, {measured.middle:.3f} in the middle{beside}; "
                f"limit {LIMIT} ms; {measured}",
                flush=True,
            )


if __name__ == "__main__":
    main()
