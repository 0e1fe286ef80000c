"""Columns of the files of a run directory, and how JSON and CSV are read and written there."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.state import FinalState
from hdsim.errors import ConfigError
from hdsim.util import inputs
from hdsim.util.files import replacing

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
ALLOCATION_COLUMNS = ("job_id", "attempt", "begin", "end", "allocated_resources", "speed")
#: Metrics that depend on wall time: they are in the manifest, so that equal runs have equal files.
WALL_METRICS = ("jobs_per_second",)
CONTENTION_COLUMNS = ("time", "lost_cores", "exchanging_tasks")
#: Numbers beyond this are not from a run: energies of years of the largest machines are below.
_LARGEST = 1e18
#: Products of energies and squared times, and no number that a float cannot hold.
_LARGEST_IN_JSON = 1e100


def read_csv(path: Path) -> tuple[list[str], list[list[str]]]:
    """Returns the header and the rows of a CSV file.

    Raises:
        ConfigError: The file is missing or no table.
    """
    if not path.is_file():
        raise ConfigError(f"expected a run directory with {path.name}, which is missing", where=str(path.parent))
    return inputs.read_csv(path, ConfigError, "file")


def numbers(path: Path, name: str, texts: Iterable[str]) -> Floats:
    """(J,) finite numbers, NaN for an empty field."""
    try:
        column = np.array([float(text or "nan") for text in texts])
    except ValueError as error:
        raise ConfigError(f"{name}: expected numbers: {error}", where=str(path)) from None
    if (np.abs(column) > _LARGEST).any():
        raise ConfigError(f"{name}: expected numbers up to {_LARGEST:g}", where=str(path))
    return column


def integers(path: Path, name: str, texts: Iterable[str], below: float = _LARGEST) -> NDArray[np.int64]:
    """(J,) whole numbers from 0 to less than `below`."""
    column = numbers(path, name, texts)
    if not ((column >= 0) & (column < below) & (column % 1 == 0)).all():
        raise ConfigError(f"{name}: expected whole numbers from 0 to {below - 1:.0f}", where=str(path))
    return column.astype(np.int64)


def read_json(path: Path) -> dict[str, Any]:
    """Returns the object in a JSON file.

    Raises:
        ConfigError: The file is missing or holds no JSON object.
    """
    if not path.is_file():
        raise ConfigError(f"expected a run directory with {path.name}, which is missing", where=str(path.parent))
    content = inputs.parse_json(inputs.read_bytes(path, ConfigError, "file")[0], path, ConfigError)
    if not isinstance(content, dict):
        raise ConfigError("expected a JSON object", where=str(path))
    return content


def is_number(value: Any) -> bool:
    """Whether a value from JSON is a number of the size of a run's."""
    return type(value) in (int, float) and abs(value) <= _LARGEST_IN_JSON


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
