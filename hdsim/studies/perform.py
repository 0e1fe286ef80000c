"""Executes a study: its commands, tables, figures and page."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from numbers import Real
from pathlib import Path
from typing import Any

from hdsim.errors import ConfigError, PluginError, nearest
from hdsim.report.compare import compare
from hdsim.report.labels import labels
from hdsim.report.pairing import run_directories
from hdsim.report.statistics import Interval
from hdsim.results.run_directory.directory import RunDirectory
from hdsim.results.run_directory.formats import read_json, write_json
from hdsim.results.run_directory.manifest import git_commit, machine, read_manifest, versions
from hdsim.studies.expected import Finding, findings
from hdsim.studies.study import FigureSpec, Study, TableSpec, filled
from hdsim.studies.tables import Cell, Table, of_comparison, write
from hdsim.util.plugins import loaded, optional

#: Executes a command line of ``hdsim``; it raises an exception where the command fails.
Launch = Callable[[Sequence[str]], None]


@dataclass(frozen=True)
class StudyOutcome:
    """Results of a study.

    Attributes:
        tables: Tables by name.
        figures: File of each figure by name.
        findings: Expected numbers and what came out.
        runs: Run directories by command.
        facts: Versions, seeds, machine, commit, begin and duration; as ``study.json`` has them.
    """

    study: Study
    directory: Path
    tables: Mapping[str, Table]
    figures: Mapping[str, Path]
    findings: Sequence[Finding]
    runs: Mapping[str, Sequence[Path]]
    facts: Mapping[str, Any]


def perform(study: Study, directory: Path, launch: Launch, *, data: Path, figures: bool = True) -> StudyOutcome:
    """Executes a study in a directory; runs that are finished there are used as they are.

    `launch` executes a command line of ``hdsim``; `data` is the folder of the reference data.

    Raises:
        HdsimError: Reference data are missing, or a table cannot be made.
    """
    for name in study.needs:
        if not (data / name).exists():
            raise ConfigError(
                f"expected {name} of the reference data, which the study {study.name} needs and hdsim does not have",
                where=f"--data {data}",
            )
    begin = datetime.now(UTC)
    places = {"data": data.resolve(), "runs": (directory / "runs").resolve(), "study": study.path.parent.resolve()}
    _check_directory(study, directory, places)
    for name, line in study.commands.items():
        run = places["runs"] / name
        launch([*shlex.split(filled(line, **places)), f"hydra.run.dir='{run}'", f"hydra.sweep.dir='{run}'"])
    tables = {name: _table(study, spec, places) for name, spec in study.tables.items()}
    for name, table in tables.items():
        write(table, directory / "tables" / name)
    drawn = {
        name: _drawn(figure, directory / "figures" / name, places, launch)
        for name, figure in study.figures.items()
        if figures
    }
    runs = {name: run_directories(places["runs"] / name) for name in study.commands}
    found = list(findings(study.expected, tables))
    facts = {
        "study": study.name,
        "status": "as expected" if all(finding.holds for finding in found) else "differs",
        "start": begin.isoformat(timespec="seconds"),
        "duration": (datetime.now(UTC) - begin).total_seconds(),
        "machine": machine(),
        "versions": versions(),
        "git_commit": git_commit(),
        "seeds": sorted({seed for runs_of in runs.values() for path in runs_of for seed in _seeds(path)}),
        "commands": {name: filled(line, **places) for name, line in study.commands.items()},
        "expected": [asdict(finding) for finding in found],
    }
    write_json(directory / "study.json", facts)
    return StudyOutcome(study, directory, tables, drawn, found, runs, facts)


def _check_directory(study: Study, directory: Path, places: Mapping[str, Path]) -> None:
    """Checks that runs in the directory are of the same commands on the same files, and keeps these for the next time.

    The directory itself may lie elsewhere than before.
    """
    path, inputs = directory / "commands.json", {name: place for name, place in places.items() if name != "runs"}
    commands = {name: filled(line, **inputs) for name, line in study.commands.items()}
    if path.exists() and (before := read_json(path)) != commands:
        changed = [name for name in {**before, **commands} if before.get(name) != commands.get(name)]
        raise ConfigError(
            f"expected the runs of the same commands, got others for {', '.join(changed)}", where=f"-o {directory}"
        )
    write_json(path, commands)


def _seeds(path: Path) -> Iterator[int]:
    seed = (read_manifest(path).get("seeds") or {}).get("seed")
    if isinstance(seed, int):
        yield seed


def _table(study: Study, spec: TableSpec, places: Mapping[str, Path]) -> Table:
    if spec.measure:
        return Table(spec.title, _measured(study, spec, places), spec.note)
    folders = [places["runs"] / name for name in (*spec.compare, *spec.runs)]
    if spec.compare:
        comparison = compare(folders, spec.metrics)
        for metric in spec.differences:
            if metric not in comparison.metrics:
                raise ConfigError(
                    f"expected a metric of the table, got '{metric}'{nearest(metric, comparison.metrics)}",
                    where=f"{study.path}: differences",
                )
        return of_comparison(spec.title, comparison, spec.differences, spec.note)
    rows: dict[str, dict[str, Cell]] = {}
    for folder in folders:
        paths = run_directories(folder)
        names = labels([read_manifest(path)["config"] for path in paths]) if len(paths) > 1 else [""]
        for path, name in zip(paths, names, strict=True):
            metrics = RunDirectory(path).metrics()
            for metric in spec.metrics:
                if metric not in metrics:
                    raise ConfigError(
                        f"expected a metric of the run, got '{metric}'{nearest(metric, metrics)}", where=str(path)
                    )
            rows[f"{folder.name} {name}".strip()] = {metric: metrics[metric] for metric in spec.metrics or metrics}
    return Table(spec.title, rows, spec.note)


def _measured(study: Study, spec: TableSpec, places: Mapping[str, Path]) -> Mapping[str, Mapping[str, Cell]]:
    where, file = f"{study.path}: measure", study.path.parent / spec.measure
    if file.suffix != ".py":
        module = optional(spec.measure)
    elif file.is_file():
        module = loaded(file, f"hdsim_study_{file.stem}", where=where)
    else:
        raise ConfigError("expected a Python file beside the study, got nothing", where=str(file))
    settings = {key: filled(text, **places) for key, text in spec.settings.items()}
    arguments = {"runs": places["runs"], "data": places["data"], **settings}
    try:
        signature = inspect.signature(module.measure)
        allowed = [name for name in signature.parameters if name not in ("runs", "data")]
        takes_all = any(one.kind is one.VAR_KEYWORD for one in signature.parameters.values())
        for key in () if takes_all else spec.settings:
            if key not in allowed:
                raise ConfigError(
                    f"unknown setting{nearest(key, allowed)}; allowed: {', '.join(allowed) or 'none'}",
                    where=f"{study.path}: settings.{key}",
                )
        signature.bind(**arguments)
    except (AttributeError, TypeError) as error:
        raise ConfigError(f"expected a function measure(runs, data, **settings): {error}", where=where) from None
    try:
        rows = module.measure(**arguments)
    except SystemExit as error:
        raise PluginError(f"measure raised SystemExit({error})", where=where) from error
    _check_rows(rows, where)
    checked: Mapping[str, Mapping[str, Cell]] = rows
    return checked


def _check_rows(rows: Any, where: str) -> None:
    """Checks what a function `measure` has returned.

    Raises:
        ConfigError: It is no mapping from rows to mappings from columns to numbers, intervals or texts.
    """
    expected = "expected of measure a mapping from rows to mappings from columns to numbers"
    if not isinstance(rows, Mapping):
        raise ConfigError(f"{expected}, got {type(rows).__name__}", where=where)
    for row, cells in rows.items():
        if not isinstance(row, str) or not isinstance(cells, Mapping) or not all(map(_is_text, cells)):
            raise ConfigError(f"{expected}, got {cells!r} in the row {row!r}", where=where)
        for column, cell in cells.items():
            if not isinstance(cell, Interval | Real | str):
                raise ConfigError(f"{expected}, got {cell!r} in the row {row}, column {column}", where=where)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _drawn(figure: FigureSpec, here: Path, places: Mapping[str, Path], launch: Launch) -> Path:
    launch(shlex.split(filled(figure.draw, **places, here=here)))
    return here / figure.file
