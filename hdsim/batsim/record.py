"""What happened in a simulation in Batsim's place, in the CSV files that Batsim writes."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim import __version__
from hdsim.batsim.protocol import format_hosts
from hdsim.errors import ConfigError
from hdsim.readers import write_bytes
from hdsim.rundir import JOB_COLUMNS
from hdsim.state import FinalState

#: P-state of a host that is on its way to another.
_SWITCHING = -1


class JobRow(NamedTuple):
    """A job that ended or was rejected, in which case it has no times."""

    job_id: str
    workload: str
    profile: str
    submission: float  # s
    size: int
    walltime: float  # s, inf = none
    state: FinalState
    start: float = math.nan  # s
    finish: float = math.nan  # s
    alloc: str = ""
    joules: float = -1.0  # -1 where energy is not counted


class Record:
    """Collects rows while the simulation goes on, so that nothing but memory is touched before `write`.

    Attributes:
        metadata: What the scheduler noted on jobs, by full job id.

    Args:
        hosts: Number of hosts.
        energy: Energy and P-states are of interest.
    """

    def __init__(self, hosts: int, *, energy: bool) -> None:
        self._hosts = hosts
        self._energy = energy
        self.metadata: dict[str, str] = {}
        self._jobs: list[tuple[str, JobRow]] = []
        self._machines: list[tuple[float, int, int]] = []
        self._pstates: list[tuple[float, str, int]] = []
        self._joules: list[tuple[float, float, str, float, float]] = []
        self._computing = 0
        self._unavailable: dict[int, float] = {}
        self._busy = np.zeros(hosts, bool)
        self._last_change = np.zeros(hosts)
        self._unavailable_seconds = 0.0
        self._switches = self._grouped_switches = 0
        self._last_reading = (0.0, 0.0)
        self.submitted = 0

    def start(self, now: float, hosts: NDArray[np.int64]) -> None:
        """A job starts on hosts."""
        self._computing += len(hosts)
        self._busy[hosts] = True
        self._change(now, hosts)

    def end(self, now: float, hosts: NDArray[np.int64], job_id: str, row: JobRow) -> None:
        """A job leaves its hosts."""
        self._computing -= len(hosts)
        self._busy[hosts] = False
        self._change(now, hosts)
        self._jobs.append((job_id, row))

    def reject(self, job_id: str, row: JobRow) -> None:
        """A job is turned away."""
        self._jobs.append((job_id, row))

    def begin(self, states: NDArray[np.int64]) -> None:
        """The P-states of the hosts at time 0."""
        for state in np.unique(states).tolist():
            self._pstates.append((0.0, format_hosts(np.flatnonzero(states == state).tolist()), state))

    def switch(self, now: float, hosts: Sequence[int], state: int) -> None:
        """Hosts change to a P-state, at once."""
        text = format_hosts(hosts)
        self._pstates += [(now, text, _SWITCHING), (now, text, state)]
        self._switches += len(hosts)
        self._grouped_switches += 1
        self._change(now, np.asarray(hosts))

    def available(self, now: float, hosts: Sequence[int], *, there: bool) -> None:
        """Hosts go away or come back."""
        for host in hosts:
            if there:
                self._unavailable_seconds += now - self._unavailable.pop(host, now)
            else:
                self._unavailable.setdefault(host, now)
        self._last_change[np.asarray(hosts)] = now

    def energy(self, now: float, joules: float, kind: str, least_watts: float) -> None:
        """The energy counted until an event: start (s) or end (e) of a job, change of a P-state (p)."""
        then, before = self._last_reading
        watts = (joules - before) / (now - then) if now > then else math.nan
        self._last_reading = now, joules
        self._joules.append((now, joules, kind, least_watts, watts))

    def summary(self) -> str:
        """The jobs by what became of them, for people."""
        counts = Counter(row.state for _, row in self._jobs)
        told = [f"{counts[state]:,} {state.name.lower()}" for state in FinalState if counts[state]]
        last = max((row.finish for _, row in self._jobs if row.finish == row.finish), default=0.0)
        return f"{self.submitted:,} jobs submitted: {', '.join(told) or 'none done'}; last finish at {last:.6f} s"

    @property
    def done(self) -> int:
        """Jobs that have ended or were rejected."""
        return len(self._jobs)

    def _change(self, now: float, hosts: NDArray[np.int64]) -> None:
        self._last_change[hosts] = now
        away = sum(not self._busy[host] for host in self._unavailable)
        self._machines.append((now, self._hosts - self._computing - away, self._computing))

    def write(self, prefix: str, *, scheduling_seconds: float, wall_seconds: float) -> list[Path]:
        """Writes ``PREFIX_jobs.csv`` and the others; returns their paths.

        Args:
            prefix: May have folders in it, which are made.
            scheduling_seconds: s of real time spent on waiting for the scheduler.
            wall_seconds: s of real time of the whole simulation.

        Raises:
            ConfigError: They cannot be written.
        """
        files = {
            "jobs": (JOB_COLUMNS, self._job_rows()),
            "schedule": self._schedule(scheduling_seconds, wall_seconds),
            "machine_states": (
                ("time", "nb_sleeping", "nb_switching_on", "nb_switching_off", "nb_idle", "nb_computing"),
                ([_short(now), 0, 0, 0, idle, computing] for now, idle, computing in self._machines),
            ),
        }
        if self._energy:
            files["pstate_changes"] = (
                ("time", "machine_id", "new_pstate"),
                ([_short(now), hosts, state] for now, hosts, state in self._pstates),
            )
            files["consumed_energy"] = (
                ("time", "energy", "event_type", "wattmin", "epower"),
                (
                    [_six(now), _six(joules), kind, _six(least), "NA" if math.isnan(watts) else _six(watts)]
                    for now, joules, kind, least, watts in self._joules
                ),
            )
        paths = []
        try:
            Path(prefix).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"expected a prefix that can be written to: {error.strerror}", where=prefix) from None
        for name, (header, rows) in files.items():
            text = io.StringIO()
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow(header)
            writer.writerows(rows)
            paths.append(Path(f"{prefix}_{name}.csv"))
            write_bytes(paths[-1], text.getvalue().encode("utf-8", "replace"))
        return paths

    def _job_rows(self) -> Iterator[list[object]]:
        for full_id, row in self._jobs:
            rejected = row.state == FinalState.REJECTED
            walltime = -1.0 if row.walltime == math.inf else row.walltime
            values: list[object] = [row.job_id, row.workload, row.profile, _six(row.submission), row.size]
            values += [_six(walltime), int(row.state == FinalState.COMPLETED_SUCCESSFULLY), row.state.name]
            if rejected:
                values += [""] * 8
            else:
                execution, wait = row.finish - row.start, row.start - row.submission
                times = (row.start, execution, row.finish, wait, wait + execution, _stretch(wait, execution))
                values += [*map(_six, times), row.alloc, _six(row.joules)]
            yield [*values, self.metadata.get(full_id, "")]

    def _schedule(self, scheduling_seconds: float, wall_seconds: float) -> tuple[tuple[str, ...], list[list[object]]]:
        ended = [row for _, row in self._jobs if row.state != FinalState.REJECTED]
        success = sum(row.state == FinalState.COMPLETED_SUCCESSFULLY for row in ended)
        waits = [row.start - row.submission for row in ended]
        turnarounds = [row.finish - row.submission for row in ended]
        stretches = [_stretch(row.start - row.submission, row.finish - row.start) for row in ended]
        computing = sum((row.finish - row.start) * row.size for row in ended)
        # Batsim divides by all submitted jobs, and counts a host as idle until its last change of state.
        jobs = max(self.submitted, 1)
        values: dict[str, object] = {
            "batsim_version": f"hdsim-{__version__}",
            "consumed_joules": self._last_reading[1],
            "makespan": max((row.finish for row in ended), default=0.0)
            - min((row.submission for _, row in self._jobs), default=0.0),
            "max_slowdown": max(stretches, default=0.0),
            "max_turnaround_time": max(turnarounds, default=0.0),
            "max_waiting_time": max(waits, default=0.0),
            "mean_slowdown": sum(stretches) / jobs,
            "mean_turnaround_time": sum(turnarounds) / jobs,
            "mean_waiting_time": sum(waits) / jobs,
            "nb_computing_machines": self._hosts,
            "nb_grouped_switches": self._grouped_switches,
            "nb_jobs": self.submitted,
            "nb_jobs_finished": len(ended),
            "nb_jobs_killed": len(ended) - success,
            "nb_jobs_rejected": len(self._jobs) - len(ended),
            "nb_jobs_success": success,
            "nb_machine_switches": self._switches,
            "scheduling_time": scheduling_seconds,
            "simulation_time": wall_seconds,
            "success_rate": success / jobs,
            "time_computing": computing,
            "time_idle": float(self._last_change.sum()) - computing - self._unavailable_seconds,
            "time_sleeping": 0.0,
            "time_switching_off": 0.0,
            "time_switching_on": 0.0,
            "time_unavailable": self._unavailable_seconds,
        }
        row = [_six(value) if isinstance(value, float) else value for value in values.values()]
        return tuple(values), [row]


def _stretch(wait: float, execution: float) -> float:
    """Turnaround by execution; Batsim's division by 0 gives infinity, or no number for a job that did not wait."""
    if execution:
        return (wait + execution) / execution
    return math.inf if wait else math.nan


def _six(value: float) -> str:
    return f"{value:.6f}"


def _short(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".")
