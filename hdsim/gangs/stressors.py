"""Tasks of a gang as processes of stress-ng."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hdsim.errors import BackendError, ConfigError, nearest

_PROGRAM = "stress-ng"


@dataclass(frozen=True)
class Stressors:
    """Command lines of stress-ng for tasks with a workload.

    A task of workload size z executes `scale` x `operations` x z operations (rounded, at least one) of the stressor
    with its name, which stress-ng divides among its instances.
    """

    operations: Mapping[str, float]  # operations per unit of workload, by name of the stressor
    scale: float = 1.0  # factor of all operations
    instances: int = 1  # processes of a task; one uses one core at most. 0: as many as the machine has cores.

    def command(self, task: str, size: float, scratch: Path) -> list[str]:
        """Returns program and arguments that execute a workload once, with temporary files in a folder."""
        options = ["--quiet", "--metrics-brief", "--no-rand-seed", "--temp-path", str(scratch)]
        return [_PROGRAM, *options, f"--{task}", str(self.instances), f"--{task}-ops", str(self.count(task, size))]

    def count(self, task: str, size: float) -> int:
        """Returns the operations of a workload."""
        return max(1, round(self.scale * self.operations[task] * size))

    def verify(self, task: str, size: float, status: int, output: str) -> None:
        """Raises BackendError if a command has not executed its workload: stress-ng skips what a machine lacks."""
        executed = re.search(rf"\] {re.escape(task)} +(\d+)\s", output)
        count = int(executed[1]) if executed else 0
        if status or count < self.count(task, size):
            raise BackendError(
                f"expected {self.count(task, size)} operations of stress-ng --{task}, got {count}, status {status}"
                + (f": {output.strip().splitlines()[0]}" if output.strip() else "")
            )

    def check(self, tasks: Iterable[str]) -> None:
        """Checks that stress-ng can execute tasks.

        Raises:
            ConfigError: stress-ng is missing, a task is none of its stressors, or its operations are not given.
        """
        known = _output("--stressors").split()
        for task in tasks:
            if task not in known:
                message = f"expected a stressor of {version()}, got '{task}'{nearest(task, known)}"
                raise ConfigError(f"{message}; all of them: stress-ng --stressors", where="tasks")
            if task not in self.operations:
                message = f"expected the operations per unit of workload of {task}, got none"
                raise ConfigError(message, where="stressors.operations")


def version() -> str:
    """Returns the name and version of stress-ng; ConfigError if it is missing."""
    name, _, number = _output("--version").partition(", version ")
    return f"{name} {number.split()[0]}" if number else name.strip()


def _output(option: str) -> str:
    if shutil.which(_PROGRAM) is None:
        raise ConfigError(f"expected the program {_PROGRAM}, found none: apt install stress-ng")
    return subprocess.run([_PROGRAM, option], capture_output=True, text=True, check=True).stdout
