"""Input files: read, unpacked and parsed, with errors that name the place of the fault."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hdsim.errors import HdsimError

_GZIP_MAGIC = b"\x1f\x8b"
#: Unpacked size that every gzip file may have, in bytes, and the most that any may have.
_ANY_RATIO, _LARGEST = 64 * 10**6, 10**9
#: Traces and platforms shrink to a tenth to a thirtieth; a decompression bomb to a thousandth.
_LARGEST_RATIO = 100


def read_bytes(path: str | Path, error: type[HdsimError], what: str) -> tuple[bytes, str]:
    """Reads a file, unpacked if it is gzip.

    Args:
        path: The file. Gzip is recognised by its first bytes and required of a name that ends in ``.gz``.
        error: Class of the error.
        what: What the file is, such as ``"workload file"``, for the error.

    Returns:
        The content, and the sha256 of the file as it is on disk.

    Raises:
        HdsimError: The file is missing, unreadable, broken gzip or gzip that unpacks to far more than its size.
    """
    where = str(path)
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as fault:
        raise error(f"expected a readable {what}: {getattr(fault, 'strerror', None) or fault}", where=where) from None
    digest = hashlib.sha256(data).hexdigest()
    if not data.startswith(_GZIP_MAGIC):
        if Path(path).suffix == ".gz":
            raise error(f"expected gzip data (first bytes 1f 8b), got {data[:2].hex(' ') or 'nothing'}", where=where)
        return data, digest
    limit = min(_LARGEST, max(_ANY_RATIO, _LARGEST_RATIO * len(data)))
    try:
        with gzip.open(io.BytesIO(data)) as packed:
            content = packed.read(limit + 1)
    except (EOFError, OSError, zlib.error) as fault:
        raise error(f"expected a complete gzip file: {fault}", where=where) from None
    if len(content) > limit:
        raise error(f"expected at most {limit // 10**6} MB in a gzip file of {len(data)} B, got more", where=where)
    return content, digest


def parse_json(
    content: bytes | str,
    path: str | Path,
    error: type[HdsimError],
    *,
    line: int = 1,
    pairs: Callable[[list[tuple[str, Any]]], Any] | None = None,
) -> Any:
    """Parses JSON.

    Args:
        content: The text, or its bytes in UTF-8.
        path: Its origin, for the error.
        error: Class of the error.
        line: Line of the file on which the text begins.
        pairs: Makes an object from its keys and values, a dict by default.

    Raises:
        HdsimError: The text is not JSON, is not UTF-8, or is nested too deeply.
    """
    where = str(path) if line == 1 else f"{path}:{line}"
    try:
        text = content.decode("utf-8-sig") if isinstance(content, bytes) else content
        return json.loads(text, object_pairs_hook=pairs)
    except UnicodeDecodeError as fault:
        message = f"got the byte 0x{fault.object[fault.start]:02x} at offset {fault.start}"
        raise error(f"expected JSON in UTF-8, {message}", where=where) from None
    except json.JSONDecodeError as fault:
        raise error(f"expected JSON: {fault.msg}", where=f"{path}:{fault.lineno + line - 1}:{fault.colno}") from None
    except RecursionError:
        raise error("expected JSON, got lists and objects nested too deeply", where=where) from None
    except ValueError as fault:
        # An integer of more digits than Python converts.
        raise error(f"expected JSON: {fault}", where=where) from None
