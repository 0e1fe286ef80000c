"""Readers and writers of workload files, and what they share: raw columns of jobs and whole-file input and output."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hdsim.errors import WorkloadError
from hdsim.util.files import replacing

_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True)
class RawJobs:
    """Jobs as a file states them, in file order, before impossible ones are dropped.

    Attributes:
        columns: (J,) arrays under the names of the columns of :class:`hdsim.workload.model.Workload`. Columns the
            format cannot express are absent.
        where: Row and column name -> the place in the file that this value came from.
        header: Header fields of the file.
        profiles: Batsim profiles by name, verbatim.
        errors: Faults that make lines unreadable; their rows are absent.
    """

    columns: dict[str, np.ndarray]
    where: Callable[[int, str], str]
    header: dict[str, Any] = field(default_factory=dict)
    profiles: dict[str, dict[str, Any]] = field(default_factory=dict)
    errors: tuple[WorkloadError, ...] = ()


def read_bytes(path: str | Path) -> tuple[bytes, str]:
    """Reads a file, unpacked if it is gzip.

    Args:
        path: The file; gzip is known by its first bytes, and demanded of a name that ends in ``.gz``.

    Returns:
        The content, and the sha256 of the file as it is on disk.

    Raises:
        WorkloadError: The file is missing, unreadable or broken gzip.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise WorkloadError(f"expected a readable workload file: {error.strerror}", where=str(path)) from error
    digest = hashlib.sha256(data).hexdigest()
    if data.startswith(_GZIP_MAGIC):
        try:
            return gzip.decompress(data), digest
        except (EOFError, OSError, zlib.error) as error:
            raise WorkloadError(f"expected a complete gzip file: {error}", where=str(path)) from error
    if Path(path).suffix == ".gz":
        raise WorkloadError(f"expected gzip data (first bytes 1f 8b), got {data[:2].hex(' ')}", where=str(path))
    return data, digest


def write_bytes(path: str | Path, data: bytes) -> None:
    """Writes a file whole or not at all; a name that ends in ``.gz`` is packed, the same data to the same bytes.

    Raises:
        WorkloadError: The folder is missing or cannot be written.
    """
    path = Path(path)
    if path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    try:
        with replacing(path, binary=True) as file:
            file.write(data)
    except OSError as error:
        raise WorkloadError(f"expected a place that can be written: {error.strerror}", where=str(path)) from error


def raise_faults(errors: tuple[WorkloadError, ...], path: str | Path, shown: int = 10) -> None:
    """Raises one error for the faults of a file, if there are any.

    Args:
        errors: The faults.
        path: The file, for the hint on how to see those left out.
        shown: How many to spell out.

    Raises:
        WorkloadError: There are faults.
    """
    if not errors:
        return
    rest = len(errors) - shown
    hint = [WorkloadError(f"... and {rest} more; `hdsim workload validate {path}` lists them all")] if rest > 0 else []
    joined = WorkloadError.many([*errors[:shown], *hint])
    joined.errors = tuple(errors)
    raise joined


def plain(value: float) -> int | float:
    """The number as an int where it is whole, so that files say 5 rather than 5.0."""
    return int(value) if float(value).is_integer() else float(value)


def unused(name: str, taken: Container[str]) -> str:
    """The name, with a number behind it if it is taken."""
    candidate, number = name, 2
    while candidate in taken:
        candidate = f"{name}_{number}"
        number += 1
    return candidate
