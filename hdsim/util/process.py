"""A child process that never outlives hdsim."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from hdsim.errors import BackendError

#: Lines of its log that an error quotes.
_QUOTED = 5
#: Seconds in which a process that has closed its sockets is expected to end.
_DYING = 2.0
_PR_SET_PDEATHSIG = 1


class Process:
    """A child in a process group of its own, which is killed at the end of the context.

    Its output goes to a file; `name` is its name in errors, and `ended` is called in a thread when it has ended.

    Raises:
        BackendError: It cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        name: str,
        *,
        environment: Mapping[str, str] | None = None,
        ended: Callable[[], object] | None = None,
    ) -> None:
        self.command = list(command)
        self._log, self._name = log, name
        parent = os.getpid()
        libc = ctypes.CDLL(None) if sys.platform == "linux" else None

        def die_with_parent() -> None:
            # A SIGKILL of hdsim kills the child, which would wait for a reply forever.
            if libc is not None:
                libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
                if os.getppid() != parent:
                    os._exit(1)

        try:
            with log.open("wb") as file:
                self._child = subprocess.Popen(
                    self.command,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    start_new_session=True,
                    preexec_fn=die_with_parent,  # noqa: PLW1509 - makes two system calls, takes no lock
                )
        except OSError as error:
            raise BackendError(f"'{command[0]}' cannot be started: {error.strerror}: '{error.filename}'") from None

        if ended is not None:
            threading.Thread(target=self._tell, args=(ended,), daemon=True).start()

    def _tell(self, ended: Callable[[], object]) -> None:
        self._child.wait()
        ended()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()

    @property
    def pid(self) -> int:
        """Process id."""
        return self._child.pid

    def fault(self) -> str | None:
        """Returns how the child has ended; None while it runs."""
        return ending(self._child.poll(), self._log)

    def last_fault(self) -> str | None:
        """Returns how a child that has closed its connection has ended; None if it still runs."""
        # The sockets of a process close before its end is known.
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(_DYING)
        return self.fault()

    def wait(self, seconds: float) -> None:
        """Waits for the child to end with status 0 in some seconds; BackendError if it does not."""
        try:
            self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            raise BackendError(
                f"{self._name} has not ended {seconds:g} seconds after the end of the simulation"
                f"{_last_words(self._log)}"
            ) from None
        if self._child.returncode:
            raise BackendError(f"{self._name} {self.fault()}")


def ending(status: int | None, log: Path) -> str | None:
    """Returns how a child has ended by its return code, None while it runs, and the end of its log."""
    if status is None:
        return None
    how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
    return f"{how}{_last_words(log)}"


def _last_words(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    words = [line.strip() for line in lines if line.strip()][-_QUOTED:]
    return f"; the end of {log}: {' | '.join(words)}" if words else f"; it wrote nothing to {log}"
