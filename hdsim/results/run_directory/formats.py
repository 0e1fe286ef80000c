"""File formats of a run directory: columns, and readers and writers of JSON and CSV."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.state import FinalState
from hdsim.errors import ConfigError
from hdsim.facility.quantities import QUANTITIES
from hdsim.util import inputs
from hdsim.util.files import dump_json
from hdsim.util.version import __version__

Floats = NDArray[np.float64]
#: Returns the values of texts as an array.
Reader = Callable[[Sequence[str]], NDArray[Any]]

#: Columns of jobs.csv, as in Batsim's out_jobs.csv.
JOB_COLUMNS = (
    "job_id",
    "workload_name",
    "profile",
    "submission_time",
    "requested_number_of_resources",
    "requested_time",
    "success",
    "final_state",
    "starting_time",
    "execution_time",
    "finish_time",
    "waiting_time",
    "turnaround_time",
    "stretch",
    "allocated_resources",
    "consumed_energy",
    "metadata",
)
#: Further columns of jobs.csv that reports use, texts that a scheduler with accounts and partitions writes.
OWN_COLUMNS = ("user", "account", "partition", "qos", "reason")
#: Further column with the number of earlier runs of the job, each of which has a row before.
RUN = "restart"

#: Columns of schedule.csv, which are those of Batsim's out_schedule.csv, with the values of what hdsim does not have.
_SCHEDULE: dict[str, str | float | None] = {
    "batsim_version": f"hdsim-{__version__}",
    "consumed_joules": None,
    "makespan": None,
    "max_slowdown": None,
    "max_turnaround_time": None,
    "max_waiting_time": None,
    "mean_slowdown": None,
    "mean_turnaround_time": None,
    "mean_waiting_time": None,
    "nb_computing_machines": None,
    "nb_grouped_switches": 0,
    "nb_jobs": None,
    "nb_jobs_finished": None,
    "nb_jobs_killed": None,
    "nb_jobs_rejected": None,
    "nb_jobs_success": None,
    "nb_machine_switches": 0,
    "scheduling_time": None,
    "simulation_time": None,
    "success_rate": None,
    "time_computing": None,
    "time_idle": None,
    "time_sleeping": 0.0,
    "time_switching_off": 0.0,
    "time_switching_on": 0.0,
    "time_unavailable": None,
}

#: Final states of the jobs in jobs.csv.
DONE = (
    FinalState.COMPLETED_SUCCESSFULLY,
    FinalState.COMPLETED_FAILED,
    FinalState.COMPLETED_WALLTIME_REACHED,
    FinalState.COMPLETED_KILLED,
    FinalState.REJECTED,
)
#: Times of pods.csv that reports show.
POD_TIMES = ("created", "bound", "running", "finished")
INTERRUPTION_COLUMNS = ("job_id", "starting_time", "end_time", "lost_time", "requeued", "allocated_resources")
ALLOCATION_COLUMNS = ("job_id", "attempt", "begin", "end", "allocated_resources", "speed")
#: Further column of the same: frequency in GHz, in runs where a job had another one than the nominal one.
FREQUENCY_COLUMN = "ghz"
#: Metrics that depend on wall time. The manifest holds them, so that equal runs have equal files.
WALL_METRICS = ("jobs_per_second",)
NODE_STATE_COLUMNS = ("node", "state", "begin", "end")
CAP_COLUMNS = ("cap", "kind", "time", "watts")
CONTENTION_COLUMNS = ("time", "lost_cores", "exchanging_tasks")
_COSTS = (*QUANTITIES, "peak_watts")
#: Columns of costs by hour, by job and by user and account.
HOUR_COLUMNS = ("begin", "date", *_COSTS, "price", "carbon")
JOB_COST_COLUMNS = ("job_id", *_COSTS)
OWNER_COLUMNS = ("by", "name", "jobs", *_COSTS)
#: Most texts that are kept to find equal ones.
_KNOWN = 2**16
#: Numbers beyond this are not from a run: energies of years of the largest machines are below.
_LARGEST = 1e18
#: Products of energies and squared times, and no number that a float cannot hold.
_LARGEST_IN_JSON = 1e100


def schedule_csv(submitted: int, finished: int, success: int, **values: float | int) -> str:
    """Returns the text of schedule.csv, the run in one row; a value that is absent or NaN is empty.

    The first arguments are numbers of jobs, killed ones among those finished; `values` are the other columns.
    """
    counts: dict[str, float] = {"nb_jobs": submitted, "nb_jobs_finished": finished, "nb_jobs_success": success}
    counts |= {"nb_jobs_killed": finished - success, "success_rate": success / submitted if submitted else 0.0}
    row = {**_SCHEDULE, **counts, **values}
    return ",".join(row) + "\n" + ",".join(map(_cell, row.values())) + "\n"


def _cell(value: float | str | None) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return f"{value:.6f}" if isinstance(value, float) else str(value)


def _require(path: Path) -> None:
    if not path.is_file():
        raise ConfigError(f"expected a run directory with {path.name}, which is missing", where=str(path.parent))


def read_csv(path: Path) -> tuple[list[str], list[list[str]]]:
    """Returns the header and the rows of a CSV file.

    Raises:
        ConfigError: The file is missing or no table.
    """
    _require(path)
    return inputs.read_csv(path, ConfigError, "file")


def read_columns(path: Path, readers: Callable[[list[str]], Mapping[str, Reader]]) -> dict[str, NDArray[Any]]:
    """Reads columns of a CSV file in blocks of rows, since the texts of all rows take ten times the memory of numbers.

    `readers` takes the header, and returns by name how each column is read.

    Raises:
        ConfigError: The file is missing or no table, or what `readers` and a reader raise.
    """
    _require(path)
    blocks = inputs.csv_blocks(path, ConfigError, "file")
    (header,) = next(blocks)
    wanted = {name: (header.index(name), reader) for name, reader in readers(header).items()}
    parts: dict[str, list[NDArray[Any]]] = {name: [reader([])] for name, (_, reader) in wanted.items()}
    for block in blocks:
        for name, (place, reader) in wanted.items():
            parts[name].append(reader([row[place] for row in block]))
    return {name: np.concatenate(found) for name, found in parts.items()}


def texts_reader() -> Reader:
    """Returns a reader of texts, of which equal ones are one object, such as states and sets of cores."""
    known: dict[str, str] = {}

    def read(texts: Sequence[str]) -> NDArray[np.object_]:
        found = np.array([known.setdefault(text, text) for text in texts], object)
        if len(known) > _KNOWN:
            known.clear()  # as of ids, which are all different
        return found

    return read


def numbers(path: Path, name: str, texts: Iterable[str]) -> Floats:
    """(J,) finite numbers, NaN for an empty field."""
    try:
        column = np.array([float(text or "nan") for text in texts])
    except ValueError as error:
        raise ConfigError(f"{name}: expected numbers: {error}", where=str(path)) from None
    if (np.abs(column) > _LARGEST).any():
        raise ConfigError(f"{name}: expected numbers up to {_LARGEST:g}", where=str(path))
    return column


def integers(
    path: Path, name: str, texts: Iterable[str], below: float = _LARGEST, *, least: int = 0
) -> NDArray[np.int64]:
    """(J,) whole numbers from `least` to less than `below`."""
    column = numbers(path, name, texts)
    if not ((column >= least) & (column < below) & (column % 1 == 0)).all():
        raise ConfigError(f"{name}: expected whole numbers from {least} to {below - 1:.0f}", where=str(path))
    return column.astype(np.int64)


def read_json(path: Path) -> dict[str, Any]:
    """Returns the object in a JSON file.

    Raises:
        ConfigError: The file is missing or holds no JSON object.
    """
    _require(path)
    content = inputs.parse_json(inputs.read_bytes(path, ConfigError, "file")[0], path, ConfigError)
    if not isinstance(content, dict):
        raise ConfigError("expected a JSON object", where=str(path))
    return content


def is_number(value: Any) -> bool:
    """Whether a value from JSON is a number of the size of a run's."""
    return type(value) in (int, float) and abs(value) <= _LARGEST_IN_JSON


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Writes a JSON object; NaN and infinities become null."""
    dump_json(path, plain(content), ensure_ascii=False, allow_nan=False)


def plain(value: Any) -> Any:
    """Converts a value to its form after a round trip through JSON: paths become text, NaN and infinities null."""
    if isinstance(value, Mapping):
        return {str(key): plain(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [plain(child) for child in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
