"""Files of studies: YAML that names commands, tables, figures and expected numbers."""

from __future__ import annotations

import re
import shlex
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from hdsim.errors import ConfigError, nearest
from hdsim.util.inputs import read_yaml
from hdsim.util.resources import bundled, resolve

_NAME = re.compile(r"\w[\w.-]*")
#: Types of the figures of a page by the endings of their files.
FIGURE_TYPES = {".png": "image/png", ".svg": "image/svg+xml"}
#: Expected texts by table, row and column.
Expected = Mapping[str, Mapping[str, Mapping[str, str]]]


@dataclass(frozen=True)
class TableSpec:
    """A table of a study: exactly one of `compare`, `runs` and `measure` says where its numbers come from.

    Attributes:
        title: Heading.
        compare: Names of commands whose runs are compared; the first run is the baseline.
        runs: Names of commands, each of whose runs is a row.
        measure: Python file beside the study, or dotted name of a module, with a function ``measure(runs, data,
            **settings)`` that returns a mapping from rows to mappings from columns to numbers.
        metrics: Columns of `compare` and `runs`.
        differences: Metrics of `compare` with a column of paired differences to the baseline.
        settings: Texts for `measure`, with the places of commands.
        note: A line below the table.
    """

    title: str = ""
    compare: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    measure: str = ""
    metrics: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class FigureSpec:
    """A figure of a study.

    Attributes:
        title: Heading.
        draw: Command line of ``hdsim`` that draws it to the directory ``$here``.
        file: Name of the file there.
    """

    title: str = ""
    draw: str = ""
    file: str = ""


@dataclass(frozen=True)
class Study:
    """A study.

    Attributes:
        path: Its file.
        title: A few words.
        question: The question, one sentence.
        answer: The claims.
        docs: Pages of the documentation with its numbers.
        needs: Files of the reference data that must be there.
        commands: Command lines of ``hdsim`` with runs by name. ``$data`` is the folder of the reference data, ``$runs``
            that of the commands' runs, ``$study`` that of the study's file.
        tables: Tables by name.
        figures: Figures by name.
        expected: Expected numbers.
        check: Keys that replace those above in the small version, ``commands``, ``tables`` and ``figures`` entry by
            entry.
    """

    path: Path
    title: str
    question: str
    answer: str = ""
    docs: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    commands: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, TableSpec] = field(default_factory=dict)
    figures: Mapping[str, FigureSpec] = field(default_factory=dict)
    expected: Expected = field(default_factory=dict)
    check: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the file without extension."""
        return self.path.stem

    @property
    def argument(self) -> str:
        """The argument of ``hdsim study``: the name of a bundled study, the path of another."""
        return self.name if bundled("studies").get(self.name) == self.path else str(self.path)

    def small(self) -> Study:
        """The version for ``--check``.

        Raises:
            ConfigError: It has none.
        """
        if not self.check.get("expected"):
            raise ConfigError("expected check.expected, the numbers of a small version, got none", where=str(self.path))
        _checked(Study, self.check, f"{self.path}: check")
        return replace(_made(self.path, _merged(_parsed(self.path), self.check)), check={})


def studies() -> dict[str, Study]:
    """Returns the bundled studies by name."""
    return {name: read_study(path) for name, path in bundled("studies").items()}


def read_study(name_or_path: str | Path) -> Study:
    """Reads a study from a YAML file, or the bundled one of a name.

    Raises:
        ConfigError: There is none, or it is wrong.
    """
    path = resolve("studies", name_or_path, where="NAME")
    document = _parsed(path)
    return replace(_made(path, document), check=document.get("check") or {})


def _parsed(path: Path) -> dict[str, Any]:
    # All scalars are texts: an expected number is as exact as its digits.
    document = read_yaml(path, ConfigError, "YAML", texts=True)
    if not isinstance(document, dict):
        raise ConfigError("expected a mapping with title, question, ...", where=str(path))
    return document


def _merged(document: Mapping[str, Any], small: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**document, **small, "check": {}}
    for key in ("commands", "tables", "figures"):
        known, given = document.get(key, {}), small.get(key, {})
        changed = {
            name: {**known.get(name, {}), **new} if isinstance(new, dict) else new for name, new in given.items()
        }
        # An empty text stands for an entry that the small version does without.
        merged[key] = {name: entry for name, entry in {**known, **changed}.items() if entry}
    return merged


def _made(path: Path, document: Mapping[str, Any]) -> Study:
    values = dict(_checked(Study, document, str(path)), path=path, check={})
    for key, kind in (("tables", TableSpec), ("figures", FigureSpec)):
        values[key] = {
            name: kind(**_checked(kind, entry, f"{path}: {key}.{name}")) for name, entry in values.get(key, {}).items()
        }
    for key in ("title", "question"):
        if not values.get(key):
            raise ConfigError("expected a text, got none", where=f"{path}: {key}")
    study = Study(**values)
    for name, table in study.tables.items():
        where = f"{path}: tables.{name}"
        if sum(map(bool, (table.compare, table.runs, table.measure))) != 1:
            raise ConfigError("expected one of compare, runs and measure", where=where)
        for key, source in (("settings", "measure"), ("differences", "compare")):
            if getattr(table, key) and not getattr(table, source):
                raise ConfigError(f"expected {key} of a table with {source}", where=where)
        for command in (*table.compare, *table.runs):
            if command not in study.commands:
                raise ConfigError(
                    f"expected the name of a command, got '{command}'{nearest(command, study.commands)}", where=where
                )
    for key, names in (("commands", study.commands), ("tables", study.tables), ("figures", study.figures)):
        for name in names:
            if not _NAME.fullmatch(name):
                expected = "a name of letters, digits, '-', '_' and '.', which becomes that of a file"
                raise ConfigError(f"expected {expected}, got '{name}'", where=f"{path}: {key}")
    for name, figure in study.figures.items():
        if not (figure.draw and figure.file):
            raise ConfigError("expected draw and file", where=f"{path}: figures.{name}")
        if Path(figure.file).suffix not in FIGURE_TYPES:
            endings = " or ".join(FIGURE_TYPES)
            raise ConfigError(
                f"expected a file that ends in {endings}, got '{figure.file}'", where=f"{path}: figures.{name}"
            )
    for line in (*study.commands.values(), *(figure.draw for figure in study.figures.values())):
        try:
            shlex.split(line)
        except ValueError as error:
            raise ConfigError(f"expected a command line, got '{line}': {error}", where=str(path)) from None
    for name in study.expected:
        if name not in study.tables:
            raise ConfigError(
                f"expected the name of a table, got '{name}'{nearest(name, study.tables)}", where=f"{path}: expected"
            )
    return study


def _checked(kind: type, document: Any, where: str) -> dict[str, Any]:
    """Values of a mapping whose keys are those of a class; where it has tuples, a single text stands for one of it."""
    if not isinstance(document, dict):
        raise ConfigError("expected a mapping", where=where)
    known = {item.name: item.type for item in fields(kind) if item.name != "path"}
    for key in document:
        if key not in known:
            raise ConfigError(f"unknown key '{key}'{nearest(key, known)}; allowed: {', '.join(known)}", where=where)
        told, fits = _KINDS.get(str(known[key]), _MAPPING)
        if not fits(document[key]):
            raise ConfigError(f"expected {told}", where=f"{where}: {key}")
    return {
        key: ((value,) if isinstance(value, str) else tuple(value)) if known[key] == "tuple[str, ...]" else value
        for key, value in document.items()
    }


def _texts(values: Any) -> bool:
    return all(isinstance(value, str) for value in values)


def _are_numbers(value: Any) -> bool:
    """Whether a value has the form of the expected numbers: texts by tables, rows and columns."""
    tables = value.values() if isinstance(value, dict) else [None]
    return all(
        isinstance(rows, dict) and all(isinstance(row, dict) and _texts(row.values()) for row in rows.values())
        for rows in tables
    )


#: Values of fields by their annotations: in words, and a test.
_MAPPING = ("a mapping", lambda value: isinstance(value, dict))
_KINDS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "Expected": ("numbers by tables, rows and columns", _are_numbers),
    "str": ("a text", lambda value: isinstance(value, str)),
    "tuple[str, ...]": ("a text or a list of texts", lambda value: isinstance(value, str | list) and _texts(value)),
    "Mapping[str, str]": ("a mapping of texts", lambda value: isinstance(value, dict) and _texts(value.values())),
}


def filled(line: str, **places: Path | str) -> str:
    """Returns a command line with ``$data``, ``$runs``, ``$study`` and ``$here`` replaced."""
    return string.Template(line).safe_substitute({name: str(place) for name, place in places.items()})
