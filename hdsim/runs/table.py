"""The table of a sweep, ``runs.csv`` and ``runs.parquet``: one row for each run directory."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hdsim.errors import ConfigError
from hdsim.results.run_directory.manifest import MANIFEST, read_manifest, told_status
from hdsim.results.run_directory.reader import read_metrics
from hdsim.util.files import exclusive, replacing, write_csv
from hdsim.util.inputs import read_yaml

CSV, PARQUET = "runs.csv", "runs.parquet"


def write_table(directory: Path, *, parquet: bool = True) -> Path:
    """Writes the table of the runs in the folder of a sweep from their directories alone; returns the last file.

    ``runs.parquet`` is written where the package pyarrow is installed.

    Returns:
        The last file written.
    """
    # Of shards that end together, the last to write has read the last states.
    with exclusive(directory):
        columns = read_table(directory)
        write_csv(directory / CSV, list(columns), zip(*columns.values(), strict=True))
        if not parquet or importlib.util.find_spec("pyarrow") is None:
            return directory / CSV
        import pyarrow
        from pyarrow import parquet as tables

        with replacing(directory / PARQUET, binary=True) as file:
            tables.write_table(pyarrow.table(columns), file)
        return directory / PARQUET


def read_table(directory: Path) -> dict[str, list[Any]]:
    """Returns the columns of the table; each has values of one type, and None.

    These are ``directory``, ``status``, ``error`` with ``error_type``, ``error_where`` and ``simulated_time`` in
    seconds, ``seconds`` of execution, the keys that differ between the runs as they were given, ``seed``, the SHA-256
    of each input, ``hdsim`` (its version) and the metrics.
    """
    rows, settings = [], []
    for path in sorted(directory.glob(f"**/{MANIFEST}"), key=_in_numbers):
        with contextlib.suppress(ConfigError):
            rows.append(_row(path.parent, directory))
            settings.append(_settings(path.parent))
    keys = [key for key in dict.fromkeys(key for each in settings for key in each) if key != "seed"]
    varied = [key for key in keys if len({each.get(key) for each in settings}) > 1]
    parts = [
        (outcome, {key: _typed(each.get(key)) for key in varied}, inputs, metrics)
        for (outcome, inputs, metrics), each in zip(rows, settings, strict=True)
    ]
    columns: dict[str, list[Any]] = {}
    for group in zip(*parts, strict=True):
        for name in dict.fromkeys(name for part in group for name in part):
            columns[name] = _of_one_type([part.get(name) for part in group])
    return columns


def _in_numbers(path: Path) -> list[tuple[bool, int, str]]:
    """A key that sorts the numbers in names by their values: seed=2 comes before seed=10."""
    parts = re.split(r"([0-9]+)", str(path))
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]


def _row(path: Path, directory: Path) -> tuple[dict[str, Any], dict[str, Any], dict[str, float | None]]:
    """Outcome, inputs and metrics of a run."""
    manifest = read_manifest(path)
    failure = manifest.get("failure") or {}
    has_ended = manifest["status"] in ("finished", "failed", "interrupted")
    outcome = {
        "directory": str(path.relative_to(directory)),
        "status": manifest["status"],
        "error": manifest.get("error") if has_ended else told_status(manifest),
        "error_type": failure.get("kind"),
        "error_where": failure.get("where"),
        "simulated_time": failure.get("simulated_time"),
        "seconds": manifest.get("duration"),
    }
    digests = {
        f"{entry['kind'].replace(' ', '_')}_sha256": entry["sha256"]
        for entry in manifest.get("inputs") or []
        if entry["kind"] != "module"
    }
    inputs = {
        "seed": manifest["config"].get("seed"),
        **digests,
        "jobs_sha256": (manifest.get("workload") or {}).get("sha256"),
        "hdsim": (manifest.get("versions") or {}).get("hdsim"),
    }
    metrics = read_metrics(path, manifest) if manifest["status"] == "finished" else {}
    return outcome, inputs, {name: None if math.isnan(value) else value for name, value in metrics.items()}


def _settings(path: Path) -> dict[str, str]:
    """Values of the overrides that a run was composed with."""
    try:
        texts = read_yaml(path / ".hydra/overrides.yaml", ConfigError, "YAML")
    except ConfigError:
        return {}
    pairs = [text.partition("=") for text in texts if isinstance(text, str)] if isinstance(texts, list) else []
    return {key.lstrip("+~"): value for key, _, value in pairs}


def _typed(text: str | None) -> Any:
    """A value of an override as a number or a truth value if it is one."""
    try:
        value = json.loads(text or "null")
    except ValueError:
        return text
    return text if isinstance(value, list | dict) else value


def _of_one_type(values: Sequence[Any]) -> list[Any]:
    """A column whose values have one type: integers beside other numbers are floats, anything else beside is text."""
    types = {type(value) for value in values if value is not None}
    if len(types) <= 1:
        return list(values)
    convert = float if types == {int, float} else str
    return [None if value is None else convert(value) for value in values]
