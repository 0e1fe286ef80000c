"""Reading and parsing of input files, with errors that name the place of the fault."""

from __future__ import annotations

import csv
import errno
import gzip
import hashlib
import io
import json
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from hdsim.errors import HdsimError

#: Stands for standard input in place of a file.
STANDARD_INPUT = "-"
_GZIP_MAGIC = b"\x1f\x8b"
#: Unpacked size that every gzip file may have, in bytes; parsed it may take ten times as much memory.
_ANY_RATIO = 32 * 10**6
#: Traces and platforms shrink to a fifth to a twentieth; a decompression bomb to a thousandth.
_LARGEST_RATIO = 30
#: Rows of a block of a CSV file.
_BLOCK = 2**15
#: Escape of a half of a UTF-16 pair, which alone is no character and cannot be written to a file.
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def read_bytes(path: str | Path, error: type[HdsimError], what: str) -> tuple[bytes, str]:
    """Reads a file, ``-`` for standard input, unpacked if it is gzip; returns it and the sha256 of what is on disk.

    Gzip is recognised by its first bytes and required of a name that ends in ``.gz``. `what` describes the file for the
    error, such as ``"workload file"``.

    Raises:
        HdsimError: The file is missing, unreadable, broken gzip or gzip that unpacks to far more than its size.
    """
    where = str(path)
    try:
        data = _standard_input() if where == STANDARD_INPUT else Path(path).read_bytes()
    except (OSError, ValueError) as fault:
        raise error(f"expected a readable {what}: {getattr(fault, 'strerror', None) or fault}", where=where) from None
    digest = hashlib.sha256(data).hexdigest()
    if not data.startswith(_GZIP_MAGIC):
        if Path(path).suffix == ".gz":
            raise error(f"expected gzip data (first bytes 1f 8b), got {data[:2].hex(' ') or 'nothing'}", where=where)
        return data, digest
    limit = max(_ANY_RATIO, _LARGEST_RATIO * len(data))
    try:
        with gzip.open(io.BytesIO(data)) as packed:
            content = packed.read(limit + 1)
    except (EOFError, OSError, zlib.error) as fault:
        raise error(f"expected a complete gzip file: {fault}", where=where) from None
    if len(content) > limit:
        raise error(
            f"expected at most {limit // 10**6} MB in a gzip file of {len(data)} B, got more; "
            "a file that was unpacked with gunzip may be of any size",
            where=where,
        )
    return content, digest


@cache
def _standard_input() -> bytes:
    """Reads standard input, once in a process."""
    return sys.stdin.buffer.read()


def read_text(path: str | Path, error: type[HdsimError], what: str) -> str:
    """Reads a text file in UTF-8, unpacked if it is gzip; arguments and errors as for :func:`read_bytes`."""
    return _decoded(read_bytes(path, error, what)[0], str(path), error)


def regular_text(path: Path) -> str:
    """Reads a text file in UTF-8 that is no pipe or device, which would be waited for.

    Raises:
        OSError: There is no such file.
    """
    if not path.is_file():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    return path.read_text(encoding="utf-8")


def read_csv(path: str | Path, error: type[HdsimError], what: str) -> tuple[list[str], list[list[str]]]:
    """Reads a CSV file: its header, and its rows, each with as many fields as the header.

    Arguments and errors are those of :func:`read_bytes`; another error is that the file is no such table.

    Raises:
        HdsimError: As there, or the file is not such a table.
    """
    blocks = csv_blocks(path, error, what)
    (header,) = next(blocks)
    return header, [row for block in blocks for row in block]


def csv_blocks(path: str | Path, error: type[HdsimError], what: str) -> Iterator[list[list[str]]]:
    """Yields the header of a CSV file, a block of one row, then blocks of its rows, so that few are in memory at once.

    Arguments and errors as for :func:`read_csv`.
    """
    data, _ = read_bytes(path, error, what)
    _decoded(data, str(path), error)
    reader = csv.reader(io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", newline=""))
    try:
        header = next(reader, [])
        if len(set(header)) < len(header):
            raise error(f"expected columns of different names, got {', '.join(header)}"[:200], where=f"{path}:1")
        yield [header]
        line = 2
        while block := list(islice(reader, _BLOCK)):
            for row in block:
                if len(row) != len(header):
                    raise error(f"expected {len(header)} fields, got {len(row)}", where=f"{path}:{line}")
                line += 1
            yield block
    except csv.Error as fault:
        raise error(f"expected CSV: {fault}", where=f"{path}:{reader.line_num}") from None


def parse_json(
    content: bytes | str,
    path: str | Path,
    error: type[HdsimError],
    *,
    line: int = 1,
    pairs: Callable[[list[tuple[str, Any]]], Any] | None = None,
) -> Any:
    """Parses JSON, a text or its bytes in UTF-8.

    Its origin `path` and the `line` of the file on which it begins are for the error. `pairs` makes an object from its
    keys and values, a dict by default.

    Raises:
        HdsimError: The text is not JSON, is not UTF-8, or is nested too deeply.
    """
    where = str(path) if line == 1 else f"{path}:{line}"
    text = _decoded(content, where, error) if isinstance(content, bytes) else content
    try:
        value = json.loads(text, object_pairs_hook=pairs)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as fault:
        raise error(f"expected JSON: {fault.msg}", where=f"{path}:{fault.lineno + line - 1}:{fault.colno}") from None
    except UnicodeEncodeError as fault:
        half = ascii(fault.object[fault.start])[1:-1]
        raise error(f"expected texts of whole characters, got the half {half} of one", where=where) from None
    except RecursionError:
        raise error("expected JSON, got lists and objects nested too deeply", where=where) from None
    except KeyTwiceError as fault:
        raise error(str(fault), where=where) from None
    except ValueError as fault:
        # An integer of more digits than Python converts.
        raise error(f"expected JSON: {str(fault).partition(';')[0]}", where=where) from None
    return value


class KeyTwiceError(ValueError):
    """A key that an object of JSON has twice."""


def keys_twice(pairs: list[tuple[str, Any]]) -> tuple[str, ...]:
    """Returns the keys that an object of JSON has more than once."""
    keys = [key for key, _ in pairs]
    return tuple(key for key in dict(pairs) if keys.count(key) > 1)


def keys_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Makes an object of JSON from its keys and values, for `parse_json`, which names a key that is there twice."""
    made = dict(pairs)
    if len(made) < len(pairs):
        raise KeyTwiceError(f"{keys_twice(pairs)[0]}: expected each key of an object once, got it twice")
    return made


def read_yaml(path: Path, error: type[HdsimError], what: str, *, several: bool = False, texts: bool = False) -> Any:
    """Reads a YAML file, with `several` all of its documents as a list, with `texts` all scalars as texts.

    `what` describes the content for the error, such as ``"a kubeconfig file"``.

    Raises:
        HdsimError: The file is missing, is not YAML or UTF-8, or is nested too deeply.
    """
    try:
        return parse_yaml(regular_text(path), error, what, path, several=several, texts=texts)
    except (OSError, ValueError) as fault:
        raise error(f"expected {what}: {' '.join(str(fault).split())}", where=str(path)) from None


def parse_yaml(
    text: str, error: type[HdsimError], what: str, where: str | Path, *, several: bool = False, texts: bool = False
) -> Any:
    """Parses YAML; see `read_yaml`.

    A key is in a mapping once, also ``on``, which is a text as a key. Numbers have no underscores: ``7_1`` is a text.

    Raises:
        HdsimError: It is not YAML, or is nested too deeply.
    """
    import yaml

    try:
        loader = _loader("BaseLoader" if texts else "SafeLoader")
        return list(yaml.load_all(text, loader)) if several else yaml.load(text, loader)
    except RecursionError:
        raise error(f"expected {what}, got lists and objects nested too deeply", where=str(where)) from None
    except (ValueError, yaml.YAMLError) as fault:
        told = " ".join(str(fault).split()).replace(' in "<unicode string>",', ",")
        raise error(f"expected {what}: {told}", where=str(where)) from None


@cache
def _loader(name: str) -> Any:
    """Returns a loader of YAML; see `parse_yaml`."""
    import yaml

    base: Any = getattr(yaml, f"C{name}", getattr(yaml, name))

    class Loader(base):
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen = set()
            for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
                if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                    if key.tag == "tag:yaml.org,2002:bool":
                        key.tag = self.DEFAULT_SCALAR_TAG
                    if key.value in seen:
                        told = f"the key {key.value} is there twice"
                        raise yaml.constructor.ConstructorError(None, None, told, key.start_mark)
                    seen.add(key.value)
            return super().construct_mapping(node, deep)

        def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
            tag = super().resolve(kind, value, implicit)
            number = tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
            return self.DEFAULT_SCALAR_TAG if number and "_" in value and implicit[0] else tag

    return Loader


def _decoded(content: bytes, where: str, error: type[HdsimError]) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        got = f"the byte 0x{content[fault.start]:02x} at offset {fault.start}"
        raise error(f"expected text in UTF-8, got {got}", where=where) from None
