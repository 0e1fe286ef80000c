"""Tasks as processes of this machine, with CPU limits that change in place."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from hdsim.gangs import stressors
from hdsim.gangs.limits import cpu_limits
from hdsim.gangs.real.launcher import Launcher
from hdsim.gangs.stressors import Stressors
from hdsim.util.process import ending

#: Millicores of a process until it has a session: with a small share the start of Python would take seconds.
_STARTING = 1000


class Processes(Launcher):
    """Each task is a process of this machine; its CPU shares are the limit of that process and its descendants.

    Limits are those of :func:`hdsim.gangs.limits.cpu_limits`.
    """

    def __init__(self, limits: str = "auto") -> None:
        self._limits = cpu_limits(limits)
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def __exit__(self, *error: object) -> None:
        self._limits.__exit__(*error)

    def check(self, stressors: Stressors, tasks: Sequence[str], least: int, zookeeper: str | None) -> None:
        """Checks stress-ng and the limits."""
        stressors.check(tasks)
        self._limits.check([least], "shares.start")

    def start(self, task: str, member: str, millicores: int) -> None:
        """Starts a process."""
        folder = self.site.folder / member
        folder.mkdir()
        self._limits.change({member: max(_STARTING, millicores)})
        with (folder / "task.log").open("wb") as log:
            process = self._limits.start(
                member,
                [sys.executable, *self.site.arguments(task, member, str(folder))],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._started[member] = process
        threading.Thread(target=self._wait, args=(process,), daemon=True).start()

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        self.site.wake()

    def limit(self, member: str, millicores: int) -> None:
        """Sets the limit of a process."""
        self._limits.change({member: millicores})

    def fault(self, member: str, patience: float = 0.0) -> str | None:
        """Returns how a process has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._started[member].wait(patience)
        return ending(self._started[member].poll(), self.site.folder / member / "task.log")

    def stop(self, members: Sequence[str]) -> None:
        """Kills processes with all their descendants."""
        for member in members:
            self._limits.stop(member)

    def facts(self) -> Mapping[str, Any]:
        """Returns the method of the limits and the version of stress-ng."""
        return {"limits": self._limits.method, "stressors": stressors.version()}
