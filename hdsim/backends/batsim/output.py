"""The CSV files that Batsim writes, of a simulation in Batsim's place."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.state import FinalState
from hdsim.errors import ConfigError
from hdsim.results.run_directory.formats import JOB_COLUMNS, schedule_csv
from hdsim.util.files import csv_fields, csv_text, writable, write_bytes
from hdsim.util.intervals import format_interval_set

#: P-states in Batsim's table of hosts that change to one in which they compute, and to one in which they sleep.
_TO_COMPUTATION, _TO_SLEEP = -1, -2


class JobRow(NamedTuple):
    """The columns of a job that the workload determines."""

    job_id: str
    workload: str
    profile: str
    submission: float  # s
    size: int
    walltime: float  # s, inf = none


class JobOutcome(NamedTuple):
    """The end of a job; a rejected job has no times."""

    job: int
    state: int
    start: float = math.nan  # s
    finish: float = math.nan  # s
    alloc: str = ""
    joules: float = -1.0  # -1 where energy is not counted


class _Move(Enum):
    """Changes of hosts: the start or end of a job, a P-state, sleep, and availability."""

    START = auto()
    END = auto()
    SWITCH = auto()
    GO_DOWN = auto()
    SLEEP = auto()
    BOOT = auto()
    WAKE = auto()
    COME = auto()
    GO = auto()


class _Machines(NamedTuple):
    """Totals of the hosts, and their number by state over time."""

    #: Time in seconds, and hosts that sleep, boot, go down, are idle and compute, at each change.
    told: list[tuple[float, Sequence[int]]]
    #: Seconds until the last change of each host, summed.
    seconds: float
    away_seconds: float
    #: Seconds in GO_DOWN, SLEEP and BOOT, each up to the last change of each host, summed.
    asleep_seconds: dict[_Move, float]


#: Moves after which a host is not up.
_ASLEEP = (_Move.SLEEP, _Move.BOOT, _Move.GO_DOWN)


class OutputWriter:
    """Collects the rows of Batsim's files in memory until `write`, with energy and P-states if told so.

    `describe` returns the columns of a job that the workload determines.
    """

    def __init__(self, hosts: int, describe: Callable[[int], JobRow], *, energy: bool) -> None:
        self._hosts = hosts
        self._describe = describe
        self._energy = energy
        self.submitted = 0  # number of jobs submitted
        self.metadata: dict[int, str] = {}  # metadata that the scheduler has set
        self.jobs: list[JobOutcome] = []  # jobs that have ended or were rejected, in this order
        # Changes of hosts in order of time, from which the states of the hosts follow.
        self._moves: list[tuple[float, Sequence[int], _Move]] = []
        self._pstates: list[tuple[float, str, int]] = []
        self._joules: list[tuple[float, float, str, float, float]] = []
        self._switches = self._grouped_switches = 0
        self._last_reading = (0.0, 0.0)
        #: joules_at_first_submission: The energy counted by then.
        self.joules_at_first_submission = self._joules_at_last_end = 0.0

    def start(self, now: float, hosts: Sequence[int]) -> None:
        """Adds the start of a job."""
        self._moves.append((now, hosts, _Move.START))

    def end(self, now: float, hosts: Sequence[int], outcome: JobOutcome) -> None:
        """Adds the end of a job."""
        self._moves.append((now, hosts, _Move.END))
        self.jobs.append(outcome)

    def reject(self, job: int) -> None:
        """Adds a rejected job."""
        self.jobs.append(JobOutcome(job, FinalState.REJECTED))

    def begin(self, states: NDArray[np.int64], asleep: Sequence[int]) -> None:
        """Sets the P-states of the hosts at time 0, in which some are asleep."""
        if asleep:
            self._moves.append((0.0, asleep, _Move.SLEEP))
        for state in np.unique(states).tolist():
            self._pstates.append((0.0, format_interval_set(np.flatnonzero(states == state).tolist()), state))

    def switch(self, now: float, hosts: Sequence[int], down: Sequence[int], up: Sequence[int], *, sleeps: bool) -> None:
        """Adds the begin of a change of hosts to a P-state.

        Of these some go down into sleep and some boot from it. `sleeps` says whether the first host will sleep.
        """
        self._pstates.append((now, format_interval_set(hosts), _TO_SLEEP if sleeps else _TO_COMPUTATION))
        self._switches += len(hosts)
        self._grouped_switches += 1
        # The last one writes a row of the states.
        self._moves += [(now, down, _Move.GO_DOWN), (now, up, _Move.BOOT)]
        at_once = sorted(set(hosts).difference(down, up)) if down or up else hosts
        self._moves.append((now, at_once, _Move.SWITCH))

    def settle(self, now: float, hosts: Sequence[int], *, sleeps: bool) -> None:
        """Adds that hosts that went down or booted are asleep or awake."""
        self._moves.append((now, hosts, _Move.SLEEP if sleeps else _Move.WAKE))

    def switched(self, now: float, hosts: Sequence[int], state: int, *, at_once: bool) -> None:
        """Adds that a change of hosts to a P-state is over."""
        self._pstates.append((now, format_interval_set(hosts), state))
        if not at_once:
            self._moves.append((now, (), _Move.SWITCH))

    def available(self, now: float, hosts: Sequence[int], *, there: bool) -> None:
        """Adds a change of the availability of hosts."""
        self._moves.append((now, hosts, _Move.COME if there else _Move.GO))

    def energy(self, now: float, joules: float, kind: str, least_watts: float) -> None:
        """Adds the energy counted until an event: start (s) or end (e) of a job, change of a P-state (p)."""
        if kind == "e":
            self._joules_at_last_end = joules
        then, before = self._last_reading
        watts = (joules - before) / (now - then) if now > then else math.nan
        self._last_reading = now, joules
        self._joules.append((now, joules, kind, least_watts, watts))

    def summary(self) -> str:
        """Returns the number of jobs by final state, as a sentence."""
        counts = Counter(outcome.state for outcome in self.jobs)
        told = [f"{counts[state]:,} {state.name.lower()}" for state in FinalState if counts[state]]
        last = max((outcome.finish for outcome in self.jobs if outcome.finish == outcome.finish), default=0.0)
        return f"{self.submitted:,} jobs submitted: {', '.join(told) or 'none done'}; last finish at {last:.6f} s"

    def _machines(self) -> _Machines:
        """Returns the states of the hosts over time."""
        told: list[tuple[float, Sequence[int]]] = []
        busy: set[int] = set()
        asleep: dict[int, tuple[_Move, float]] = {}
        counts = dict.fromkeys(_ASLEEP, 0)
        asleep_seconds = dict.fromkeys(_ASLEEP, 0.0)
        away: dict[int, float] = {}
        away_seconds = 0.0
        last_change = dict.fromkeys(range(self._hosts), 0.0)
        for now, hosts, move in self._moves:
            last_change.update(dict.fromkeys(hosts, now))
            if move is _Move.COME:
                away_seconds += sum(now - away.pop(host, now) for host in hosts)
            elif move is _Move.GO:
                away = dict.fromkeys(hosts, now) | away
            elif move in counts or move is _Move.WAKE:
                for host in hosts:
                    before, since = asleep.pop(host, (None, now))
                    if before is not None:
                        counts[before] -= 1
                        asleep_seconds[before] += now - since
                    if move is not _Move.WAKE:
                        counts[move] += 1
                        asleep[host] = move, now
            else:
                if move is _Move.START:
                    busy.update(hosts)
                elif move is _Move.END:
                    busy.difference_update(hosts)
                computing = len(busy)
                idle = self._hosts - computing - len(away.keys() - busy - asleep.keys()) - len(asleep)
                told.append((now, (*counts.values(), idle, computing)))
        return _Machines(told, sum(last_change.values()), away_seconds, asleep_seconds)

    def write(self, prefix: str, *, scheduling_seconds: float, wall_seconds: float) -> list[Path]:
        """Writes ``PREFIX_jobs.csv`` and the others; returns their paths. Folders in the prefix are made.

        The seconds of real time are those spent on waiting for the scheduler, and those of the whole simulation.

        Raises:
            ConfigError: They cannot be written.
        """
        jobs = [(self._describe(outcome.job), outcome) for outcome in self.jobs]
        machines = self._machines()
        files: dict[str, tuple[Sequence[str], Iterable[Sequence[object]]]] = {
            "machine_states": (
                ("time", "nb_sleeping", "nb_switching_on", "nb_switching_off", "nb_idle", "nb_computing"),
                ([_short(now), *numbers] for now, numbers in machines.told),
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
        make_folder(prefix)
        texts = {
            "jobs": ",".join(JOB_COLUMNS) + "\n" + "".join([self._job_line(*job) for job in jobs]),
            "schedule": self._schedule(jobs, machines, scheduling_seconds, wall_seconds),
        }
        for name, (header, rows) in files.items():
            texts[name] = csv_text([header, *rows])
        paths = []
        for name, content in texts.items():
            paths.append(Path(f"{prefix}_{name}.csv"))
            write_bytes(paths[-1], content.encode("utf-8", "replace"), ConfigError)
        return paths

    def _job_line(self, row: JobRow, outcome: JobOutcome) -> str:
        """Returns a line of ``jobs.csv``, of which Batsim always quotes the last column."""
        walltime = -1.0 if row.walltime == math.inf else row.walltime
        state = FinalState(outcome.state)
        names = ",".join(csv_fields(row[:3]))
        success = int(state == FinalState.COMPLETED_SUCCESSFULLY)
        head = f"{names},{row.submission:.6f},{row.size},{walltime:.6f},{success},{state.name}"
        metadata = self.metadata.get(outcome.job, "").replace('"', '""')
        if state == FinalState.REJECTED:
            return f'{head},,,,,,,,,"{metadata}"\n'
        start, finish = outcome.start, outcome.finish
        execution, wait = finish - start, start - row.submission
        return (
            f"{head},{start:.6f},{execution:.6f},{finish:.6f},{wait:.6f},{wait + execution:.6f},"
            f'{_stretch(wait, execution):.6f},{outcome.alloc},{outcome.joules:.6f},"{metadata}"\n'
        )

    def _schedule(
        self,
        jobs: Sequence[tuple[JobRow, JobOutcome]],
        machines: _Machines,
        scheduling_seconds: float,
        wall_seconds: float,
    ) -> str:
        ended = [(row, outcome) for row, outcome in jobs if outcome.state != FinalState.REJECTED]
        success = sum(outcome.state == FinalState.COMPLETED_SUCCESSFULLY for _, outcome in ended)
        waits = [outcome.start - row.submission for row, outcome in ended]
        turnarounds = [outcome.finish - row.submission for row, outcome in ended]
        stretches = [_stretch(outcome.start - row.submission, outcome.finish - outcome.start) for row, outcome in ended]
        computing = sum(((outcome.finish - outcome.start) * row.size for row, outcome in ended), 0.0)
        # Batsim divides by all submitted jobs, and counts a host as idle until its last change of state.
        submitted = max(self.submitted, 1)
        asleep = machines.asleep_seconds
        return schedule_csv(
            self.submitted,
            len(ended),
            success,
            # As in Batsim, energy counts from the first submission to the last completion, the makespan from 0.
            consumed_joules=self._joules_at_last_end - self.joules_at_first_submission,
            makespan=max((outcome.finish for _, outcome in ended), default=0.0),
            max_slowdown=max(stretches, default=0.0),
            max_turnaround_time=max(turnarounds, default=0.0),
            max_waiting_time=max(waits, default=0.0),
            mean_slowdown=sum(stretches) / submitted,
            mean_turnaround_time=sum(turnarounds) / submitted,
            mean_waiting_time=sum(waits) / submitted,
            nb_computing_machines=self._hosts,
            nb_grouped_switches=self._grouped_switches,
            nb_jobs_rejected=len(jobs) - len(ended),
            nb_machine_switches=self._switches,
            scheduling_time=scheduling_seconds,
            simulation_time=wall_seconds,
            time_computing=computing,
            time_idle=machines.seconds - computing - machines.away_seconds - sum(asleep.values()),
            time_sleeping=asleep[_Move.SLEEP],
            time_switching_off=asleep[_Move.GO_DOWN],
            time_switching_on=asleep[_Move.BOOT],
            time_unavailable=machines.away_seconds,
        )


def make_folder(prefix: str) -> None:
    """Makes the folders in the prefix of the files; ConfigError if that is not possible."""
    with writable("a prefix of files", prefix):
        Path(prefix).parent.mkdir(parents=True, exist_ok=True)


def _stretch(wait: float, execution: float) -> float:
    """Returns turnaround by execution; of a job of 0 s, infinity after a wait and 1 without one."""
    if execution:
        return (wait + execution) / execution
    return math.inf if wait else 1.0


def _six(value: float) -> str:
    return f"{value:.6f}"


def _short(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".")
