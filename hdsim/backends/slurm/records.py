"""Records of the jobs on their way through Slurm, and slurm_jobs.csv."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hdsim.slurm.objects import Demand, listed
from hdsim.util.files import write_csv

_COLUMNS = (
    *("job_id", "slurm_job_id", "asked_nodes", "nodes", "submitted", "decided", "released", "started", "confirmed"),
    *("finished", "releases", "state"),
)


@dataclass(slots=True, eq=False)
class Record:
    """A job; times are in seconds since the run began, NaN for what has not happened."""

    job: int  # its row of the workload
    job_id: int | str
    comment: str = ""  # that Slurm keeps, empty for a job that someone else has submitted
    id: int = 0  # its id in Slurm, 0 for none
    asked: tuple[str, ...] = ()  # nodes that the scheduler has chosen last
    nodes: tuple[str, ...] = ()  # nodes that it runs or ran on
    begin: int = 0  # its last start in seconds since 1970 by Slurm's clock, 0 before it
    submitted: float = math.nan
    decided: float = math.nan  # last decision of the scheduler
    released: float = math.nan  # answer to the last release
    started: float = math.nan  # by Slurm, which tells the second
    confirmed: float = math.nan  # first list of jobs that shows the start
    finished: float = math.nan
    releases: int = 0
    state: str = ""  # in Slurm, when it was seen last
    unsent: bool = False  # a release is to be sent
    refused: int = 0  # releases that failed one after another
    refusal: str = ""  # reason of the last one of them
    pause_until: float = 0.0  # monotonic time before which no release is sent
    taken_back: bool = False  # has run, or was released, before
    demand: Demand | None = None  # its request, None for a job of a trace
    done: bool = False  # has ended
    forgotten: bool = False  # has ended, which slurmctld has forgotten


def write_records(path: Path, records: Iterable[Record]) -> None:
    """Writes slurm_jobs.csv: a row for each job in order of the workload, empty where something has not happened."""
    rows = (
        (
            *(each.job_id, each.id or "", listed(each.asked), listed(each.nodes)),
            *(_shown(getattr(each, name)) for name in _COLUMNS[4:10]),
            *(each.releases, each.state),
        )
        for each in sorted(records, key=lambda each: each.job)
    )
    write_csv(path, _COLUMNS, rows)


def _shown(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.6f}"


def latencies(records: Sequence[Record], time_scale: float) -> dict[str, dict[str, float]]:
    """Returns quantiles of the seconds from decision to release, and from decision to the list that shows the start."""
    pairs = {
        "release_latency_seconds": [each.released - each.decided for each in records],
        "start_latency_seconds": [each.confirmed - each.decided for each in records],
    }
    found = {name: [value for value in values if not math.isnan(value)] for name, values in pairs.items()}
    return {
        name: {f"p{share}": round(float(np.percentile(values, share)) / time_scale, 6) for share in (50, 99)}
        for name, values in found.items()
        if values
    }
