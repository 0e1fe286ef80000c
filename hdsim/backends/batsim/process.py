"""The other side of a conversation, started by hdsim, which it never outlives."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from hdsim.errors import BackendError

#: Lines of its log that an error quotes.
_QUOTED = 5
#: s within which a process that has closed its sockets is dead, if it is dying.
_DYING = 2.0
_PR_SET_PDEATHSIG = 1


class Process:
    """A child in a process group of its own; leaving the context kills whatever is left of the group.

    Args:
        command: Program and arguments.
        log: File that gets its output.
        name: What errors call it.

    Raises:
        BackendError: It cannot be started.
    """

    def __init__(self, command: Sequence[str], log: Path, name: str) -> None:
        self.command = list(command)
        self._log, self._name = log, name
        parent = os.getpid()
        libc = ctypes.CDLL(None) if sys.platform == "linux" else None

        def die_with_parent() -> None:
            # Not even a SIGKILL of hdsim leaves a child behind that would wait for a reply for ever.
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
                    start_new_session=True,
                    preexec_fn=die_with_parent,  # noqa: PLW1509 - makes two system calls, takes no lock
                )
        except OSError as error:
            raise BackendError(f"'{command[0]}' cannot be started: {error.strerror}: '{error.filename}'") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()

    def fault(self) -> str | None:
        """Says how the child died; None while it lives."""
        status = self._child.poll()
        if status is None:
            return None
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        return f"{how}{self._last_words()}"

    def last_fault(self) -> str | None:
        """Says how the child died that has just hung up; None if it lives on."""
        # It closes its sockets a moment before it is known to be dead.
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(_DYING)
        return self.fault()

    def wait(self, seconds: float) -> None:
        """Waits for a proper end.

        Raises:
            BackendError: It does not end in time, or with an error.
        """
        try:
            self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            raise BackendError(
                f"{self._name} has not ended {seconds:g} s after the end of the simulation{self._last_words()}"
            ) from None
        if self._child.returncode:
            raise BackendError(f"{self._name} {self.fault()}")

    def _last_words(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").split("\n")
        words = [line.strip() for line in lines if line.strip()][-_QUOTED:]
        return (
            f"; its last words in {self._log}: {' | '.join(words)}" if words else f"; it wrote nothing to {self._log}"
        )
