"""Columns of the files of a run directory, and how JSON and CSV are read and written there."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.state import FinalState
from hdsim.errors import ConfigError
from hdsim.util.files import replacing
from hdsim.util.inputs import parse_json

Floats = NDArray[np.float64]

#: Columns of jobs.csv, which are those of Batsim's out_jobs.csv.
JOB_COLUMNS = (
    "job_id", "workload_name", "profile", "submission_time", "requested_number_of_resources", "requested_time",
    "success", "final_state", "starting_time", "execution_time", "finish_time", "waiting_time", "turnaround_time",
    "stretch", "allocated_resources", "consumed_energy", "metadata",
)  # fmt: skip

#: States in which a job has a row in jobs.csv: it is done with.
DONE = (
    FinalState.COMPLETED_SUCCESSFULLY,
    FinalState.COMPLETED_FAILED,
    FinalState.COMPLETED_WALLTIME_REACHED,
    FinalState.COMPLETED_KILLED,
    FinalState.REJECTED,
)
INTERRUPTION_COLUMNS = ("job_id", "starting_time", "end_time", "lost_time", "requeued", "allocated_resources")
#: Metrics that depend on wall time: they are in the manifest, so that equal runs have equal files.
WALL_METRICS = ("jobs_per_second",)
CONTENTION_COLUMNS = ("time", "lost_cores", "exchanging_tasks")


def read_csv(path: Path) -> tuple[list[str], list[list[str]]]:
    """Returns the header and the rows of a CSV file.

    Raises:
        ConfigError: The file is missing, or a row has another number of fields than the header.
    """
    if not path.is_file():
        raise ConfigError(f"expected a run directory with {path.name}, which is missing", where=str(path.parent))
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.reader(file)
        header = next(reader, [])
        rows = list(reader)
    for line, row in enumerate(rows, 2):
        if len(row) != len(header):
            raise ConfigError(f"expected {len(header)} fields, got {len(row)}", where=f"{path}:{line}")
    return header, rows


def numbers(path: Path, name: str, texts: Iterable[str]) -> Floats:
    """(J,) numbers, NaN for an empty field."""
    try:
        return np.array([float(text or "nan") for text in texts])
    except ValueError as error:
        raise ConfigError(f"{name}: expected numbers: {error}", where=str(path)) from None


def read_json(path: Path) -> dict[str, Any]:
    """Returns the object in a JSON file.

    Raises:
        ConfigError: The file is missing or holds no JSON object.
    """
    if not path.is_file():
        raise ConfigError(f"expected a run directory with {path.name}, which is missing", where=str(path.parent))
    content = parse_json(path.read_bytes(), path, ConfigError)
    if not isinstance(content, dict):
        raise ConfigError("expected a JSON object", where=str(path))
    return content


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Writes a JSON object; NaN and infinities become null."""
    with replacing(path) as file:
        json.dump(plain(content), file, indent=2, ensure_ascii=False, allow_nan=False)
        file.write("\n")


def plain(value: Any) -> Any:
    """Turns a value into what comes back from JSON: paths become text, NaN and infinities null."""
    if isinstance(value, Mapping):
        return {str(key): plain(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [plain(child) for child in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
