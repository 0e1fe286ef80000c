"""Reading and validation of platform files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hdsim.errors import PlatformError
from hdsim.platform.checker import Checker, Section, Types
from hdsim.platform.model import Platform
from hdsim.platform.schema import SECTIONS, PlatformSpec, check_document, inline_types
from hdsim.util.inputs import keys_twice, parse_json, read_bytes
from hdsim.util.resources import resolve


def load_platform(path: str | Path, types: str | Path | None = None, kind: str | None = None) -> Platform:
    """Reads a platform file (``.json`` or ``.json.gz``).

    Args:
        path: The file, or the name of a bundled platform such as ``"gaia"``.
        types: Folder of ``network_types.json``, ``node_types.json``, ``processor_types.json`` and
            ``memory_types.json``. By default the types are inline in the file or in these files beside it, in
            ``types/`` or in ``../types``.
        kind: Kind of the platform, see :class:`Platform`; None: as in the file.

    Raises:
        PlatformError: The file cannot be read or has faults, all of which are listed, or there is no such kind.
        ConfigError: There is no such file or bundled platform.
    """
    path = resolve("platforms", path)
    spec, digest, errors = _check(path, None if types is None else Path(types))
    if spec is None:
        raise PlatformError.many(errors)
    platform = Platform.from_spec(spec, str(path), digest)
    return platform if kind is None else platform.of_kind(kind)


def validate_platform(path: str | Path, types: str | Path | None = None) -> list[PlatformError]:
    """Returns all faults of a platform file and of its type libraries."""
    return _check(Path(path), None if types is None else Path(types))[2]


def _read_json(path: Path, errors: list[PlatformError]) -> tuple[Any, str] | None:
    """Returns the content of a JSON file and its sha256, None after a fault, which is appended to `errors`."""
    try:
        content, digest = read_bytes(path, PlatformError, "platform file")
        return parse_json(content, path, PlatformError, pairs=_pairs), digest
    except PlatformError as error:
        errors.append(error)
        return None


class _Object(dict[str, Any]):
    """A JSON object with a record of its duplicate keys."""

    duplicates: tuple[str, ...] = ()


def _pairs(pairs: list[tuple[str, Any]]) -> _Object:
    result = _Object(pairs)
    if len(result) < len(pairs):
        result.duplicates = keys_twice(pairs)
    return result


def _check(path: Path, types: Path | None) -> tuple[PlatformSpec | None, str | None, list[PlatformError]]:
    """Returns the platform of a file, None if it has faults, the sha256 of the file and the faults."""
    errors: list[PlatformError] = []
    content = _read_json(path, errors)
    if content is None:
        return None, None, errors
    document, digest = content

    def find_types(document: Mapping[str, Any], checker: Checker) -> Types:
        if types is None and "types" in document:
            return inline_types(document, checker)
        return _library_types(path, types, checker)

    spec, errors = check_document(document, str(path), find_types)
    return spec, digest, errors


def _library_types(path: Path, folder: Path | None, checker: Checker) -> Types:
    types = Types()
    folders = [folder] if folder is not None else [path.parent, path.parent / "types", path.parent.parent / "types"]
    for section in SECTIONS:
        names = (f"{section}_types.json", f"{section}_types.json.gz")
        file = next((place / name for place in folders for name in names if (place / name).is_file()), None)
        content, library = None, checker
        if file is not None:
            library = Checker(str(file), checker.errors)
            read = _read_json(file, checker.errors)
            if read is not None:
                content, types.files[str(file)] = read
                library.tree(content, "")
                content = dict(library.object(content, "", extra=True))
        elif section in ("node", "processor"):
            places = ", ".join(str(place) for place in folders)
            checker.fault("", f"expected types inline (key 'types') or a file {names[0]} in {places}, got neither")
        else:
            # Optional: a platform without links or memory needs no such library.
            content = {}
        types.sections[section] = Section(content, library, "")
    return types
