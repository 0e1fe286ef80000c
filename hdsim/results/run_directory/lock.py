"""The lock of a run directory: one process at a time writes there."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import stat
import time
import weakref
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hdsim.errors import ConfigError
from hdsim.util.text import shown

_LOCK = ".lock"
#: Seconds for which a lock is tried, since `owner` takes it for an instant, and between two tries.
_PATIENCE, _PAUSE = 1.0, 0.002


class Lock:
    """Exclusive access to a run directory, from construction to `release` or to the end of the process.

    The operating system's lock (flock) of the file ``.lock`` ends with the process. The file holds host, process id and
    time: for messages, and for other hosts, on which a lock may not be visible.

    Attributes:
        owner: ``host``, ``pid`` and ``start`` of this process's work.

    Raises:
        ConfigError: Another process has the lock, or a process of another host has not given it back.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / _LOCK
        start = datetime.now(UTC).isoformat(timespec="milliseconds")
        self.owner = {"host": socket.gethostname(), "pid": os.getpid(), "start": start}
        deadline = time.monotonic() + _PATIENCE
        while True:
            file = _open(self._path, os.O_RDWR | os.O_CREAT)
            other = _owner(file, fcntl.LOCK_EX)
            if other is not None:
                os.close(file)
                if time.monotonic() > deadline:
                    raise _in_use(directory, other)
                time.sleep(_PAUSE)
                continue
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file), self._path.stat()):
                    break
            os.close(file)  # The previous owner removed the file between the two calls.
        os.ftruncate(file, 0)
        os.pwrite(file, json.dumps(self.owner).encode(), 0)
        self._close = weakref.finalize(self, os.close, file)
        _HELD.add(self)

    @classmethod
    def of(cls, directory: Path) -> Lock:
        """Returns the lock of a directory, the one that this process has or a new one; the directory is made.

        Raises:
            ConfigError: The directory cannot be made, or see :class:`Lock`.
        """
        path = directory / _LOCK
        for lock in tuple(_HELD):
            if lock._path == path and lock._close.alive:
                return lock
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"expected a directory that can be made: {error.strerror}", where=str(directory)
            ) from None
        return cls(directory)

    def release(self) -> None:
        """Releases the lock and removes its file."""
        if self._close.alive:
            self._path.unlink(missing_ok=True)
            self._close()


#: The locks of this process. A fork closes its copies of their files, which would keep a lock beyond the process's end.
_HELD: weakref.WeakSet[Lock] = weakref.WeakSet()
os.register_at_fork(after_in_child=lambda: [lock._close() for lock in tuple(_HELD)])


def owner(directory: Path) -> dict[str, Any] | None:
    """Returns host, pid and start of another process that uses a run directory, None if none does."""
    if any(lock._path == directory / _LOCK and lock._close.alive for lock in tuple(_HELD)):
        return None
    try:
        file = _open(directory / _LOCK, os.O_RDONLY)
    except (OSError, ConfigError):
        return None
    try:
        return _owner(file, fcntl.LOCK_SH)
    finally:
        os.close(file)


def _open(path: Path, flags: int) -> int:
    """Opens the file of a lock."""
    try:
        file = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise _no_lock(path) from None
        raise
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise _no_lock(path)
    return file


def _no_lock(path: Path) -> ConfigError:
    return ConfigError("expected a file that hdsim made, got a link, a pipe or a device; remove it", where=str(path))


def _in_use(directory: Path, other: dict[str, Any]) -> ConfigError:
    return ConfigError(
        f"expected a run directory that no other process uses, got one in use by {told(other)}; if that process has "
        f"ended, remove '{directory / _LOCK}'",
        where=str(directory),
    )


def told(owner: dict[str, Any]) -> str:
    """Returns the facts of a process for a message."""
    # The file may be of another origin: control characters do not reach the terminal.
    pid, host, start = (shown(str(owner.get(name, "?")).encode(errors="replace")) for name in ("pid", "host", "start"))
    return f"process {pid} on host {host} since {start}"


def _owner(file: int, kind: int) -> dict[str, Any] | None:
    """Another holder of the lock of an open file; None: the caller now has it."""
    facts: Any = None
    with contextlib.suppress(ValueError, RecursionError):
        facts = json.loads(os.pread(file, 4096, 0))
    facts = facts if isinstance(facts, dict) else {}
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return facts
    except OSError:
        pass  # A file system without locks.
    return facts if facts.get("host", socket.gethostname()) != socket.gethostname() else None
