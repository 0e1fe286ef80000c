"""Atomic writing of files, CSV and JSON."""

from __future__ import annotations

import contextlib
import csv
import fcntl
import glob
import gzip
import io
import json
import os
import secrets
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from hdsim.errors import ConfigError, HdsimError, is_mistake

#: End of the names of temporary files.
_TEMPORARY = ".tmp"
#: Seconds after which a temporary file without a lock is one that a killed process has left.
_LEFT_BEHIND = 60.0


@contextmanager
def replacing(path: Path, *, binary: bool = False) -> Iterator[IO[Any]]:
    """Opens a temporary file, of UTF-8 text or binary, that replaces `path` when it is complete.

    Raises:
        OSError: The file cannot be written; it is named in the error.
    """
    _remove_leftovers(path)
    # Unique among processes of all hosts and containers that share the folder.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}{_TEMPORARY}")
    try:
        with temporary.open("xb") if binary else temporary.open("x", encoding="utf-8", newline="") as file:
            _lock(file, fcntl.LOCK_EX)
            yield file
        temporary.replace(path)
    except OSError as error:
        # An error of `write`, such as a full disk, names no file.
        if error.filename in (None, str(temporary)):
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Locks a folder against other processes that ask for the same lock, where its file system has locks."""
    number = os.open(folder, os.O_RDONLY)
    try:
        _lock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)


def _remove_leftovers(path: Path) -> None:
    """Removes temporary files of a file that killed processes have left: old ones on which no process has a lock."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*{_TEMPORARY}"):
        with contextlib.suppress(OSError), left.open("rb") as file:
            if time.time() - left.stat().st_mtime > _LEFT_BEHIND and _lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB):
                left.unlink(missing_ok=True)


def _lock(file: IO[Any] | int, kind: int) -> bool:
    """Locks an open file or folder until it is closed; returns False if another process has it, or without locks."""
    try:
        fcntl.flock(file, kind)
    except OSError:
        return False
    return True


def synchronize(files: Iterable[Path]) -> None:
    """Waits until files and the entries of their folders are on the storage device."""
    folders = set()
    for path in files:
        _synchronize(path)
        folders.add(path.parent)
    for folder in folders:
        _synchronize(folder)


def _synchronize(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """Returns the lines of a CSV file; fields with a comma, a quote or a line break are quoted."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def csv_fields(texts: Iterable[Any]) -> list[Any]:
    """Returns fields quoted as by `csv_text`, for lines made with format strings; only str is quoted."""
    return [
        '"' + text.replace('"', '""') + '"' if isinstance(text, str) and any(c in text for c in ',"\r\n') else text
        for text in texts
    ]


def write_csv(path: Path, names: Sequence[str], rows: Iterable[Iterable[Any]]) -> None:
    """Writes a CSV file with a header atomically."""
    with replacing(path) as file:
        file.write(csv_text([names, *rows]))


def dump_json(path: Path, content: Any, **options: Any) -> None:
    """Writes a JSON document atomically; `options` are those of `json.dumps`.

    Bytes of a name of a file that are no UTF-8 are written as question marks.
    """
    text = json.dumps(content, indent=2, **options)
    with replacing(path, binary=True) as file:
        file.write(text.encode(errors="replace") + b"\n")


class GrowingCsv:
    """A CSV file that is written row by row; only the latest row may change.

    A new column rewrites the file, any other change writes one line. A killed process leaves complete lines.

    The first row replaces an older file. `cells` makes the fields of a row from the row and the names of the columns.
    """

    def __init__(self, path: Path, cells: Callable[[Any, Sequence[str]], Iterable[str]]) -> None:
        self._path, self._cells = path, cells
        self._names: list[str] = []
        self._rows = 0
        self._latest = 0  # offset of the latest line, bytes

    def write(self, names: Sequence[str], rows: Sequence[Any]) -> None:
        """Updates the file; of all rows, at least one, only the latest of the previous call may have changed."""
        appends = self._names == list(names)
        lines = [csv_text([self._cells(row, names)]) for row in (rows[self._rows - 1 :] if appends else rows)]
        if appends:
            with self._path.open("r+b") as file:
                file.truncate(self._latest)
                file.seek(self._latest)
                file.write("".join(lines).encode())
        else:
            with replacing(self._path) as file:
                file.writelines([csv_text([names]), *lines])
        self._names, self._rows = list(names), len(rows)
        self._latest = self._path.stat().st_size - len(lines[-1].encode())


@contextmanager
def writable(what: str, path: str | Path, error: type[HdsimError] = ConfigError) -> Iterator[None]:
    """Reports that something such as ``"a file"`` cannot be written as the user's mistake, if a path is the reason.

    The path is for an error that names no file.
    """
    try:
        yield
    except OSError as fault:
        if not is_mistake(fault):
            raise
        raise error(
            f"expected {what} that can be written: {fault.strerror}", where=str(fault.filename or path)
        ) from None


def write_bytes(path: str | Path, data: bytes, error: type[HdsimError]) -> None:
    """Writes a file atomically, compressed if its name ends in ``.gz``; equal data give equal bytes.

    Raises:
        HdsimError: The folder is missing or cannot be written.
    """
    path = Path(path)
    with writable("a place", path, error), replacing(path, binary=True) as file:
        file.write(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def shown(path: Path) -> str:
    """A path as users see and type it: relative to where they are, if it lies below, and quoted if need be."""
    return shlex.quote(str(path.relative_to(Path.cwd()) if Path.cwd() in path.parents else path))
