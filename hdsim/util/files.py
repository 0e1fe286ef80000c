"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


@contextmanager
def replacing(path: Path, *, binary: bool = False) -> Iterator[IO[Any]]:
    """Opens a file for writing that takes its name, and the place of an older one, only when it is complete.

    Args:
        path: The file.
        binary: Bytes instead of UTF-8 text.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") if binary else temporary.open("w", encoding="utf-8", newline="") as file:
            yield file
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
