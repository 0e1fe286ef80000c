"""A clock that runs faster than the wall's, for processes that libfaketime is loaded into."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

#: Variables of an environment that make the clock.
_VARIABLES = ("FAKETIME", "FAKETIME_SHARED", "LD_PRELOAD")
#: Folder of the files that processes with one clock share.
_SHARED = Path("/dev/shm")


def command(faketime: str, factor: float) -> list[str]:
    """Returns the command of a process that keeps a clock, which begins now and runs `factor` times as fast.

    Its child is a sleep whose environment is that of the clock; the clock ends with that child.
    """
    now = datetime.now().strftime("%Y-%m-%d %H:%M:%S")
    return [faketime, "-f", f"@{now} x{factor:g}", "sleep", "infinity"]


def environment_of(keeper: int, seconds: float) -> dict[str, str]:
    """Returns the variables of the clock of a keeper, by its process id; empty without one within some seconds."""
    import psutil

    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(psutil.Error):
            for process in psutil.Process(keeper).children():
                found = {key: value for key, value in process.environ().items() if key in _VARIABLES}
                if len(found) == len(_VARIABLES):
                    # Otherwise each process would begin at the clock's first second.
                    return {**found, "FAKETIME_DONT_RESET": "1"}
        time.sleep(0.02)
    return {}


def shared_files(environment: Mapping[str, str]) -> list[Path]:
    """Returns the files that libfaketime leaves behind in shared memory if the keeper of the clock is killed."""
    names = [word.strip("/") for word in environment.get("FAKETIME_SHARED", "").split()]
    return [path for name in names for path in (_SHARED / name, _SHARED / f"sem.{name}")]
