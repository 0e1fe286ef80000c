"""The files that Batsim reads and writes in a run with ``backend=batsim``."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.backends.batsim.protocol import SEPARATOR
from hdsim.cluster.state import FinalState
from hdsim.errors import BackendError

if TYPE_CHECKING:
    from hdsim.backends.batsim.session import BatsimSession
    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload

#: Seconds; Batsim prints times with six decimals, of values that may have been rounded before.
_TOLERANCE = 2e-6
_OUTPUTS = "out"
#: Columns of Batsim's table of jobs that its messages have stated before.
_STATED = ("workload_name", "job_id", "final_state", "starting_time", "finish_time", "allocated_resources")


class Files:
    """Input and output files of Batsim in the folder ``batsim`` of a run directory.

    With `energy` they describe P-states and tell the energy consumed, with `kill_at_walltime` jobs have their
    walltimes, and with `latencies` links have theirs, which Batsim's reports of events cross as well as messages of
    jobs.
    """

    def __init__(self, directory: Path, *, energy: bool, kill_at_walltime: bool, latencies: bool = False) -> None:
        self._folder = directory / "batsim"
        self._energy, self._kill_at_walltime, self._latencies = energy, kill_at_walltime, latencies
        # Seconds by which the report of an end may be late: reports of one date cross the route to the master in turn.
        self._delay = 0.0
        self.platform = self._folder / "platform.xml"
        self.workload = self._folder / "workload.json"
        self.log = self._folder / "batsim.log"

    def write(self, platform: Platform, workload: Workload) -> None:
        """Writes platform and workload in Batsim's formats, times from the first submission on."""
        from hdsim.platform.simgrid import to_xml
        from hdsim.workload.batsim_json import write_batsim

        self._folder.mkdir(parents=True, exist_ok=True)
        for old in self._folder.glob(f"{_OUTPUTS}_*"):
            old.unlink()
        if self._latencies:
            self._delay = platform.n_cores * float(platform.global_latency.max() + platform.local_latency.max())
        self.platform.write_bytes(to_xml(platform, pstates=self._energy, latencies=self._latencies))
        columns: dict[str, Any] = {"original_submission_time": workload.submission_time}
        if not self._kill_at_walltime:
            columns |= {"walltime": np.inf}
        write_batsim(workload.replaced(**columns), self.workload, platform)

    @property
    def options(self) -> list[str]:
        """Batsim's options that name the files."""
        outputs = self._folder / _OUTPUTS
        return ["-p", str(self.platform), "-w", str(self.workload), "-e", str(outputs)]

    def outcome(self, session: BatsimSession) -> dict[str, Any]:
        """Reads Batsim's own account and compares it with what was heard from it.

        Raises:
            BackendError: A file is missing or damaged, or tells another story.
        """
        schedule = _rows(self._folder / f"{_OUTPUTS}_schedule.csv", ("batsim_version", "consumed_joules"))
        path = self._folder / f"{_OUTPUTS}_jobs.csv"
        cluster = session.cluster
        abandoned = set(session.abandoned)
        untold = {row for row, state in enumerate(cluster.state) if state > FinalState.RUNNING} | abandoned
        states = [state.name for state in FinalState]
        name = str(path)
        for line, (workload, own, state, start, finish, hosts) in enumerate(_rows(path, _STATED), 2):
            where = f"{name}:{line}"
            job = session.rows.get(f"{workload}{SEPARATOR}{own}")
            if job is None:
                raise BackendError(f"unknown job '{own}'", where=where)
            untold.discard(job)
            told = FinalState.REJECTED.name if job in abandoned else states[cluster.state[job]]
            if state != told:
                raise _contradiction("final_state", state, told, where)
            if not math.isnan(cluster.finish_time[job]):
                _compare("starting_time", start, cluster.starting_time[job], _TOLERANCE, where)
                _compare("finish_time", finish, cluster.finish_time[job], _TOLERANCE + self._delay, where)
                session.check_allocation(job, hosts, f"{where}: allocated_resources")
        if untold:
            raise BackendError(f"expected a row for every job, {len(untold)} are missing", where=str(path))
        if len(schedule) != 1:
            raise BackendError(f"expected one row, got {len(schedule)}", where=str(self._folder))
        version, joules = schedule[0]
        return {
            "version": version or None,
            "consumed_joules": float(joules) if self._energy and joules else None,
            "abandoned_jobs": len(abandoned),
        }


def _rows(path: Path, columns: Sequence[str]) -> list[Sequence[str]]:
    """Some columns of a CSV file of Batsim, at least two; what is not there is empty."""
    if not path.is_file():
        raise BackendError("expected Batsim to have written this file, it is missing", where=str(path))
    with path.open(encoding="utf-8", newline="") as file:
        lines = csv.reader(file)
        header = next(lines, [])
        places = [header.index(column) if column in header else len(header) for column in columns]
        width = max(places) + 1
        chosen = itemgetter(*places)
        return [chosen(line if len(line) >= width else line + [""] * width) for line in lines if line]


def _compare(key: str, found: str, told: float, tolerance: float, where: str) -> None:
    """Compares a time in Batsim's output with what its messages said; a difference is an error."""
    try:
        same = math.isclose(float(found), told, rel_tol=1e-12, abs_tol=tolerance)
    except ValueError:
        same = False
    if not same:
        raise _contradiction(key, found, told, where)


def _contradiction(key: str, found: str, told: str | float, where: str) -> BackendError:
    return BackendError(f"{key}: expected {told}, as Batsim's messages said, got '{found}'", where=where)
