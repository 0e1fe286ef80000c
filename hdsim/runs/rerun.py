"""Runs repeated from their manifests: inputs found again and checked, software compared, results compared by bytes."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hdsim.config.keys import check
from hdsim.errors import ConfigError
from hdsim.results.run_directory.directory import OUTPUTS
from hdsim.results.run_directory.inputs import Change, changed_inputs, digest, imported_files, inputs
from hdsim.results.run_directory.manifest import MANIFEST, read_manifest, told_status

if TYPE_CHECKING:
    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload

#: Files that depend on wall time: the manifest, the rows of a training, and the checkpoint to resume it from.
_TIMED = (MANIFEST, "progress.csv", "state.safetensors")
#: Files that equal runs write with equal bytes.
_RESULTS = ("*.csv", "metrics.json", "platform.json", "*.safetensors", "best.json", "final.json", "model_card.md")
_SHOWN = 60


@dataclass(frozen=True)
class Original:
    """A finished run that is to be repeated.

    `moved` has the present place of each input, or folder of inputs, that lies elsewhere now.
    """

    directory: Path
    manifest: Mapping[str, Any]
    moved: Mapping[str, Path]

    @classmethod
    def read(cls, directory: Path, moved: Mapping[str, Path]) -> Original:
        """Reads the manifest of a run.

        Raises:
            ConfigError: The run is not finished, no command of hdsim made it, or `moved` names none of its inputs.
        """
        manifest = read_manifest(directory)
        where = str(directory)
        if manifest["status"] != "finished":
            raise ConfigError(f"expected a finished run, got one that is {told_status(manifest)}", where=where)
        if not manifest.get("kind"):
            raise ConfigError("expected a run whose manifest names the subcommand (kind), got none", where=where)
        original = cls(directory, manifest, moved)
        for old in moved:
            if not any(original._path(entry["path"]).is_relative_to(original._path(old)) for entry in original._inputs):
                raise ConfigError(
                    f"expected one of {', '.join(entry['path'] for entry in original._inputs)}, got '{old}'",
                    where="--input",
                )
        return original

    @property
    def _inputs(self) -> list[dict[str, str]]:
        return self.manifest.get("inputs") or []

    def _path(self, text: str) -> Path:
        """The path that a text of the manifest meant."""
        return Path(self.manifest.get("working_directory") or "", text).absolute()

    def _present(self, text: str) -> Path:
        """The place where an input is now."""
        path = self._path(text)
        for old, new in self.moved.items():
            if path.is_relative_to(self._path(old)):
                return new.absolute() / path.relative_to(self._path(old))
        return path

    @cached_property
    def config(self) -> dict[str, Any]:
        """The configuration; what names an input, or a folder of inputs, is the absolute path of its present place.

        Raises:
            ConfigError: It is none that `hdsim` could have written.
        """
        read = [self._path(entry["path"]) for entry in self._inputs]
        named = {str(path) for file in read for path in (file, *file.parents)}

        def found(value: Any) -> Any:
            if isinstance(value, Mapping):
                return {key: found(child) for key, child in value.items()}
            if isinstance(value, list):
                return [found(child) for child in value]
            is_named = isinstance(value, str) and value and str(self._path(value)) in named
            return str(self._present(value)) if is_named else value

        return check({key: found(value) for key, value in self.manifest["config"].items()})

    def changed_files(self) -> list[Change]:
        """Files named in the configuration, and imported modules, that differ from those of the run, or are gone."""
        named = set(_texts(self.config))
        entries = [{**entry, "path": str(self._present(entry["path"]))} for entry in self._inputs]
        return changed_inputs(
            [entry for entry in entries if entry["kind"] == "module" or entry["path"] in named], self.config
        )

    def changed_contents(self, platform: Platform | None, workload: Workload | None) -> list[Change]:
        """Inputs that have been read and differ from those of the run, bundled files among them, and other jobs."""
        then = {(entry["kind"], entry["sha256"]): entry["path"] for entry in self._inputs if entry["kind"] != "module"}
        now = {(entry["kind"], entry["sha256"]): entry["path"] for entry in inputs(self.config, platform, workload)}
        lost = [key for key in then if key not in now]
        changes = []
        for key, path in now.items():
            if key not in then:
                earlier = next((other for other in lost if other[0] == key[0]), (key[0], ""))
                changes.append(Change(key[0], path, earlier[1], key[1]))
        jobs = (self.manifest.get("workload") or {}).get("sha256")
        if workload is not None and not changes and jobs != digest(workload):
            changes.append(Change("jobs", workload.name, jobs or "", digest(workload)))
        return changes

    def changed_modules(self) -> list[Change]:
        """Python files outside of installed packages that have been imported now, and not by the run."""
        then = {entry["sha256"] for entry in self._inputs}
        return [
            Change(entry["kind"], entry["path"], "", entry["sha256"])
            for entry in imported_files()
            if entry["sha256"] not in then
        ]

    def import_modules(self) -> None:
        """Makes the modules of the run, rather than others of their names, importable in any working directory."""
        folders: dict[str, None] = {}
        for entry in self._inputs:
            if entry["kind"] == "module":
                folder = self._present(entry["path"]).parent
                while (folder / "__init__.py").is_file():
                    folder = folder.parent
                folders.pop(str(folder), None)
                folders[str(folder)] = None
        # Each once: what looks for packages reads every entry of the path.
        sys.path[:0] = reversed(folders)

    def compare(self, directory: Path) -> Iterator[tuple[str, str | None]]:
        """Compares the results of a repetition in another directory, byte by byte.

        Yields:
            Name of each file of results, and its first difference in words, None if the bytes are equal.
        """
        names = {
            str(path.relative_to(folder))
            for folder, patterns in ((directory, _RESULTS), (self.directory, (*OUTPUTS, "*.safetensors")))
            for pattern in patterns
            for path in folder.rglob(pattern)
            if path.name not in _TIMED
        }
        for name in sorted(names, key=lambda name: (name not in OUTPUTS[:1], name)):
            yield name, _difference(self.directory / name, directory / name)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for child in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(child)


def _difference(old: Path, new: Path) -> str | None:
    """The first difference between two files in words; None: their bytes are equal."""
    for path, told in ((old, "was not written then"), (new, "is not written now")):
        if not path.is_file():
            return told
    before, after = old.read_bytes(), new.read_bytes()
    if before == after:
        return None
    if old.suffix == ".safetensors":
        number = next((place for place, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), len(before))
        return f"differs from byte {number:,} on"
    lines, others = (content.decode(errors="backslashreplace").splitlines(keepends=True) for content in (before, after))
    pairs = zip_longest(lines, others, fillvalue="")
    number, was, now = next((number, a, b) for number, (a, b) in enumerate(pairs, 1) if a != b)
    if old.suffix == ".csv" and number > 1:
        header, row, other = (_fields(line) for line in (lines[0], was, now))
        cells = [f"{name} {a} then, {b} now" for name, a, b in zip(header, row, other, strict=False) if a != b]
        if cells:
            return f"line {number:,} ({header[0]} {row[0]}): {'; '.join(cells)}"
    if was.strip() != now.strip():
        was, now = was.strip(), now.strip()
    return f"line {number:,}: {_shown(was)} then, {_shown(now)} now"


def _fields(line: str) -> list[str]:
    """The fields of a line of CSV, none if it is too long."""
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def _shown(line: str) -> str:
    return repr(line if len(line) <= _SHOWN else f"{line[:_SHOWN]}...") if line else "nothing"
