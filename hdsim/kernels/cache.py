"""Folders of the machine code of kernels, named by digests of their sources.

Machine code is kept in ``HDSIM_CACHE``, else ``$XDG_CACHE_HOME/hdsim``, else ``~/.cache/hdsim``, in a folder for each
module, named by a digest of the module and of all modules of the package that it imports, directly or not: a kernel is
compiled again after a change of any of these, since the kernels that it calls are part of its machine code. Folders of
other digests are removed 30 days after their last use.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

log = logging.getLogger(__name__)

# Age at which the machine code of other versions is removed, in seconds.
_UNUSED = 30 * 86400.0

#: The package, and its absolute imports in a source.
_ROOT = Path(__file__).resolve().parent.parent
_IMPORT = re.compile(rf"^ *import ({_ROOT.name}[\w.]*)", re.MULTILINE)
_IMPORT_FROM = re.compile(rf"^ *from ({_ROOT.name}[\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)


@cache
def _imports(module: str) -> tuple[bytes, set[str]]:
    """Returns the source of a module of the package, and names that it imports from the package."""
    path = _ROOT.parent.joinpath(*module.split(".")).with_suffix(".py")
    source = path.read_bytes() if path.is_file() else b""
    names = set(_IMPORT.findall(text := source.decode()))
    for parent, members in _IMPORT_FROM.findall(text):
        names |= {parent, *(f"{parent}.{member}" for member in re.findall(r"\w+", members))}
    return source, names


def digest(module: str) -> str:
    """Digest of the sources that the machine code of a module depends on, and of settings that change the code."""
    sources: dict[str, bytes] = {}
    left = {module, f"{__package__}.compiling"}
    while left:
        name = left.pop()
        sources[name], imported = _imports(name)
        left |= imported - sources.keys()
    digest = hashlib.sha256(os.environ.get("NUMBA_BOUNDSCHECK", "").encode())
    for name in sorted(name for name, source in sources.items() if source):
        digest.update(f"{name}\n".encode() + sources[name])
    return digest.hexdigest()[:16]


@cache
def folder_of(module: str) -> Path | None:
    """Folder of the machine code of a module, None where nothing can be written."""
    parent = writable_folder()
    if parent is None:
        return None
    folder = parent / digest(module)
    try:
        _own(folder)
        os.utime(folder)
    except OSError as error:
        log.info("compiled kernels of %s are not kept: %s", module, error)
        return None
    return folder


def _own(folder: Path) -> None:
    """Makes a folder that only this user can read: machine code is executed.

    Raises:
        OSError: It cannot be made, or belongs to another user.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if folder.lstat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user")
    folder.chmod(0o700)


@contextlib.contextmanager
def locked(folder: str | Path, byte: int = 0) -> Iterator[None]:
    """Holds a lock of a folder among processes, the one of a number; where it cannot be had, none."""
    with contextlib.ExitStack() as opened:
        with contextlib.suppress(OSError):  # a folder that is gone, a file system without locks
            file = opened.enter_context(Path(folder, ".lock").open("w"))
            fcntl.lockf(file, fcntl.LOCK_EX, 1, byte)
        yield


@cache
def writable_folder() -> Path | None:
    """Folder of the folders of machine code, None where nothing can be written."""
    chosen = os.environ.get("HDSIM_CACHE")
    try:
        base = Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hdsim"
        folder = base / "kernels"
        _own(folder)
        tempfile.TemporaryFile(dir=folder).close()
        for other in folder.iterdir():
            if other.stat().st_mtime < time.time() - _UNUSED:
                shutil.rmtree(other, ignore_errors=True)
    except (OSError, RuntimeError) as error:
        level = logging.WARNING if chosen else logging.INFO
        log.log(level, "compiled kernels are not kept, each process compiles them anew: %s", error)
        return None
    return folder
