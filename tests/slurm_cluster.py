"""A Slurm cluster of emulated nodes for tests, and a look at it by Slurm's own commands."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from hdsim.slurm.emulated import EmulatedCluster, Shape

PATIENCE = 60.0  # s, until a wait has failed


class SlurmCluster:
    """A cluster in a folder; its commands talk to the real slurmctld."""

    def __init__(self, folder: Path, shape: Shape) -> None:
        self.emulated = EmulatedCluster(folder)
        self.shape = shape
        self.emulated.up(shape, PATIENCE)

    def command(self, *words: object) -> str:
        """What a command of Slurm prints."""
        environment = {"PATH": "/usr/bin:/bin", "HOME": "/", "SLURM_CONF": str(self.emulated.conf)}
        done = subprocess.run([*map(str, words)], env=environment, cwd="/", capture_output=True, text=True)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def submit(self, *options: str, seconds: float = 1.0, naps: int = 1) -> int:
        """Submits a job that sleeps, several times if it may be suspended: time goes on for who sleeps."""
        body = f"for nap in $(seq {naps}); do sleep {seconds / naps}; done" if naps > 1 else f"sleep {seconds}"
        return int(self.command("sbatch", "--parsable", "--output=/dev/null", *options, f"--wrap={body}"))

    def states(self) -> dict[int, str]:
        """State of each job that slurmctld lists."""
        rows = self.command("squeue", "--noheader", "--states=all", "--format=%A %T").split("\n")
        return {int(row.split()[0]): row.split()[1] for row in rows if row}

    def process(self, name: str) -> psutil.Process:
        """The process of a daemon."""
        pid = dict(self.emulated.daemons())[name]
        assert pid is not None, f"{name} does not run"
        return psutil.Process(pid)

    def kill(self, name: str) -> Callable[[], object]:
        """Kills a daemon; returns what starts it again."""
        process = self.process(name)
        command, environment = process.cmdline(), process.environ()
        process.kill()
        psutil.wait_procs([process], timeout=10)
        return lambda: self.emulated.start(name, command, environment)

    def allocated(self) -> list[int]:
        """The jobs that slurmctld has started, in order, by its log."""
        text = (self.emulated.folder / "log" / "slurmctld.log").read_text()
        found = re.findall(r"sched: Allocate JobId=(\d+)|sched/backfill: _start_job: Started JobId=(\d+)", text)
        return [int(main or backfill) for main, backfill in found]

    def of_run(self, name: str) -> Counter[tuple[str, str]]:
        """Comment and state of the jobs that a run of a name has submitted, with their numbers.

        Jobs that were cancelled since slurmctld has forgotten their ends have completed.
        """
        shown = self.command("squeue", "--noheader", "--states=all", "--format=%T %k").replace(
            "CANCELLED hdsim-ended", "COMPLETED hdsim"
        )
        return Counter((row.split()[1], row.split()[0]) for row in shown.split("\n") if f" hdsim:{name}:" in row)

    def ended(self, name: str) -> int:
        """Number of jobs of a run that have ended."""
        return sum(number for (_, state), number in self.of_run(name).items() if state == "COMPLETED")


@contextmanager
def slurm_cluster(folder: Path, shape: Shape) -> Iterator[SlurmCluster]:
    """A cluster that is taken down in the end."""
    cluster = SlurmCluster(folder, shape)
    try:
        yield cluster
    finally:
        if cluster.emulated.exists:
            cluster.emulated.down()


def processes_of(folder: Path) -> list[psutil.Process]:
    """Processes that have something to do with a folder: in their words, environments or open files."""
    found = []
    for process in psutil.process_iter():
        try:
            texts = [*process.cmdline(), *process.environ().values(), *(file.path for file in process.open_files())]
        except psutil.Error:
            continue
        if process.pid != os.getpid() and any(str(folder) in text for text in texts):
            found.append(process)
    return found


def wait_until(holds: Callable[[], Any], what: str) -> Any:
    """Returns the first true value of a function."""
    deadline = time.monotonic() + PATIENCE
    while not (value := holds()):
        assert time.monotonic() < deadline, f"still waiting for {what}"
        time.sleep(0.05)
    return value
