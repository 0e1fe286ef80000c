"""CPU time of hdsim on both sides of Batsim's protocol, beside pybatsim and a real Batsim.

EASY backfilling on 256 hosts, over ipc sockets; each figure is user and system time of a whole process, start and files
included, the median of rounds in turns, all on one CPU: between CPUs the system time of wake-ups of threads, which both
have alike, varies threefold. Of pybatsim there is the same algorithm (easyNoTopology of tests/) and its own
easyBackfill, which tries contiguous cores alone. Fails where a ratio is above its limit: hdsim as scheduler to each of
them, with each simulator, and `hdsim batsim-serve` to Batsim, if there is one.

    python benchmarks/batsim.py [--jobs 10000] [--rounds 3] [--batsim /path/to/batsim] [--trace lublin_256.swf]

The jobs are generated with a mean queue of about 250 jobs, or those of a trace, such as RLScheduler's lublin_256 (111).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

from hdsim.workload.batsim_json import write_batsim
from hdsim.workload.generators import lublin
from hdsim.workload.load import load_workload

#: Largest ratio of CPU times allowed, hdsim's by the other's, from 10,000 jobs on; with fewer the start prevails.
LIMITS_OF_SCHEDULER = {"easyNoTopology": 0.5, "easyBackfill": 0.7}
LIMIT_OF_SIMULATOR = 0.7
HDSIM = [sys.executable, "-m", "hdsim"]
EASY = Path(__file__).resolve().parents[1] / "tests" / "batsim_schedulers" / "easyNoTopology.py"
#: Schedulers of pybatsim.
PYBATSIM = {"easyNoTopology": str(EASY), "easyBackfill": "easyBackfill"}


def cpu_seconds(scheduler: list[str], simulator: list[str], inputs: Path, folder: Path) -> tuple[float, float]:
    """CPU time of the two processes in seconds.

    Args:
        scheduler: Command of the scheduler, which binds its socket.
        simulator: Command of the simulator, without the options that name files.
        inputs: Folder with the simulator's input, which the scheduler may have to write first.
        folder: Working directory of both.
    """
    # Bytecode is kept, as that of installed packages is.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def start(command: list[str], log: str) -> subprocess.Popen[bytes]:
        with (folder / log).open("wb") as output:
            return subprocess.Popen(command, cwd=folder, stdout=output, stderr=output, env=environment)

    processes = [start(scheduler, "scheduler.log")]
    while not (inputs / "workload.json").exists():
        if processes[0].poll() is not None:
            raise SystemExit(f"{scheduler} failed: {(folder / 'scheduler.log').read_text()[-500:]}")
        time.sleep(0.02)
    files = ["-p", str(inputs / "platform.xml"), "-w", str(inputs / "workload.json"), "-e", str(folder / "out")]
    processes.append(start([*simulator, *files], "simulator.log"))
    seconds = []
    for process in processes:
        _, status, used = os.wait4(process.pid, 0)
        if status:
            raise SystemExit(f"{process.args} failed: {(folder / 'scheduler.log').read_text()[-500:]}")
        seconds.append(used.ru_utime + used.ru_stime)
    return seconds[0], seconds[1]


def measure(simulator: list[str], jobs: Path) -> dict[str, tuple[float, float]]:
    """CPU time in seconds of each scheduler and of the simulator beside it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inputs, endpoint = folder / "run" / "batsim", f"ipc://{folder}/socket"
        ours = [
            *HDSIM,
            "run",
            "backend=batsim",
            f"backend.socket={endpoint}",
            "backend.timeout=600",
            "agent=easy",
            "platform=homogeneous_256",
            f"workload.path={jobs}",
            f"hydra.run.dir={folder}/run",
        ]
        launcher, options = [sys.executable, "-m", "batsim.cmds.launcher"], ["-v", "warning", "-t", "600000"]
        command = [*simulator, "-s", endpoint]
        return {
            "hdsim": cpu_seconds(ours, command, inputs, folder),
            **{
                name: cpu_seconds([*launcher, scheduler, "-s", endpoint, *options], command, inputs, folder)
                for name, scheduler in PYBATSIM.items()
            },
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batsim", help="a real Batsim 3 or 4")
    parser.add_argument("--trace", help="take the first jobs of this trace instead of generated ones")
    arguments = parser.parse_args()
    if arguments.trace:
        workload = load_workload(arguments.trace, jobs=arguments.jobs, memory_bandwidth="none", memory="none")
    else:
        workload = lublin.generate(arguments.jobs, seed=1, cores=256)
    runtime = np.maximum(workload.runtime, 1.0)
    workload = workload.replaced(runtime=runtime, walltime=runtime + 1.0, fixed_duration=True)
    if not arguments.trace:
        # About 100,000 s of waiting, as with lublin_256.
        workload = workload.scaled_arrivals(0.35)
    simulators = {"batsim-serve": [*HDSIM, "batsim-serve", "-q"]}
    if arguments.batsim:
        simulators["Batsim"] = [arguments.batsim, "-q"]
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    found: dict[str, list[dict[str, tuple[float, float]]]] = {name: [] for name in simulators}
    with tempfile.TemporaryDirectory() as folder:
        jobs = Path(folder, "jobs.json")
        write_batsim(workload, jobs)
        for _ in range(arguments.rounds):
            for name, command in simulators.items():
                found[name].append(measure(command, jobs))
    failed = False

    def compare(what: str, ours: list[float], theirs: list[float], limit: float) -> None:
        nonlocal failed
        ratio = median(ours) / median(theirs)
        failed |= ratio > limit
        print(f"{what}: {median(ours):.2f} s to {median(theirs):.2f} s of CPU, {ratio:.2f}, limit {limit}", flush=True)

    for name, rounds in found.items():
        for scheduler, limit in LIMITS_OF_SCHEDULER.items():
            ours, theirs = ([turn[which][0] for turn in rounds] for which in ("hdsim", scheduler))
            compare(f"hdsim to {scheduler} of pybatsim as schedulers of {name}", ours, theirs, limit)
    if arguments.batsim:
        ours, theirs = ([turn["easyNoTopology"][1] for turn in found[name]] for name in simulators)
        compare("batsim-serve to Batsim as simulators for pybatsim", ours, theirs, LIMIT_OF_SIMULATOR)
    if failed and arguments.jobs >= 10_000:
        raise SystemExit("a ratio is above its limit")


if __name__ == "__main__":
    main()
