"""Writers of the CSV files of a run directory.

``jobs.csv``, ``schedule.csv`` and ``machine_states.csv`` have the columns of Batsim's ``out_*.csv``, so that evalys and
other tools read them. Every file appears whole or not at all.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.state import FinalState
from hdsim.failures import Outages
from hdsim.platform.node_state import STATE_NAMES, NodeState
from hdsim.platform.states import CAP_KINDS, StateSpans
from hdsim.results import details, series
from hdsim.results.metrics import full, slowdown
from hdsim.results.period import Period
from hdsim.results.run_directory.formats import (
    ALLOCATION_COLUMNS,
    CAP_COLUMNS,
    CONTENTION_COLUMNS,
    DONE,
    FREQUENCY_COLUMN,
    HOUR_COLUMNS,
    INTERRUPTION_COLUMNS,
    JOB_COLUMNS,
    JOB_COST_COLUMNS,
    NODE_STATE_COLUMNS,
    OWNER_COLUMNS,
    WALL_METRICS,
    schedule_csv,
    write_json,
)
from hdsim.util.arrays import Ints, distinct
from hdsim.util.files import csv_fields, replacing, write_csv

if TYPE_CHECKING:
    from hdsim.results.costs import Costs
    from hdsim.results.replay import FullReplay

log = logging.getLogger(__name__)

_STARTED_ROW = '%s,%s,%s,%.6f,%d,%.6f,%d,%s,%.6f,%.6f,%.6f,%.6f,%.6f,%.6f,%s,%.6f,""\n'
_REJECTED_ROW = '%s,%s,%s,%.6f,%d,%.6f,%d,%s,,,,,,,,,""\n'
#: Final state of a run after which the job was queued again.
_CUT_SHORT = FinalState.COMPLETED_KILLED.name
#: Batsim's names of the states of cores of nodes that are not up, in its order.
_ASLEEP = {
    NodeState.OFF: "sleeping",
    NodeState.BOOTING: "switching_on",
    NodeState.GOING_DOWN: "switching_off",
}
#: Number of jobs whose rows are made at a time.
_BLOCK = 1 << 16
#: Maximum number of steps of each curve of contention.csv: several per pixel of a screen.
_CONTENTION_STEPS = 20_000


def write_results(path: Path, result: FullReplay) -> dict[str, Any]:
    """Writes all results of a replay; of an interrupted one, those of the jobs that ended until then.

    Returns:
        Entries of the manifest: the simulated time in seconds, and what depends on wall time.
    """
    write_jobs(path / "jobs.csv", result)
    _write_details(path / "job_details.csv", result)
    _write_schedule(path / "schedule.csv", result)
    _write_machine_states(path / "machine_states.csv", result)
    if len(result.oversubscribed[0]):
        columns = ("processor", "start", "end")
        _write_rows(path / "oversubscription.csv", columns, "{},{:.6f},{:.6f}", *result.oversubscribed)
    if len(result.contention):
        _write_contention(path / "contention.csv", result)
    if result.outages is not None:
        _write_outages(path / "outages.csv", result.outages)
    if result.node_states is not None:
        _write_node_states(path / "node_states.csv", result.node_states)
    if result.caps:
        _write_caps(path / "caps.csv", result)
    if result.outages is not None or result.earlier.requeued.any():
        _write_interruptions(path / "interruptions.csv", result)
    if result.failed_starts:
        _write_failed_starts(path / "failed_starts.csv", result)
    held = result.segments
    if held.attempts is not held or (held.speed != 1.0).any() or held.ghz is not None:
        _write_allocations(path / "allocations.csv", result)
    if result.gangs:
        from hdsim.gangs.output import write_gangs

        begins, ids = result.starting_time.tolist(), result.workload.job_id
        write_gangs(path / "gangs.csv", {str(ids[job]): (begins[job], run) for job, run in result.gangs.items()})
    if result.costs is not None:
        _write_costs(path, result, result.costs)
    metrics = full(result)
    write_json(path / "metrics.json", {name: metrics[name] for name in metrics if name not in WALL_METRICS})
    wall = {name: result.metrics[name] for name in WALL_METRICS}
    facts: dict[str, Any] = {"simulated_seconds": result.end_time, "simulation_time": result.wall_seconds, **wall}
    if result.period != Period():
        # Outwards to the 6 decimals that jobs.csv has.
        begin, end = result.period.begin, min(result.period.end, result.end_time)
        facts["period"] = [math.floor(begin * 1e6) / 1e6, math.ceil(end * 1e6) / 1e6]
    return facts


def _write_costs(path: Path, result: FullReplay, costs: Costs) -> None:
    """Writes costs_by_hour.csv, costs_by_job.csv and costs_by_owner.csv; what is not known is empty.

    Of runs of more than 100 years there are no costs by hour.
    """
    rows: Iterable[Sequence[Any]]
    if costs.lists_hours:
        hours = costs.hours()
        columns = [*hours.amounts, hours.peak_watts, hours.price, hours.carbon]
        rows = zip(hours.begins, hours.dates, *columns, strict=True)
        write_csv(path / "costs_by_hour.csv", HOUR_COLUMNS, ([_cell(one) for one in row] for row in rows))
    else:
        log.warning("costs_by_hour.csv is left out: the run is longer than 100 years")
    ran = costs.paying
    columns = [*(amounts[ran] for amounts in costs.jobs), costs.job_peaks[ran]]
    rows = zip(result.workload.job_id[ran].tolist(), *columns, strict=True)
    write_csv(path / "costs_by_job.csv", JOB_COST_COLUMNS, ([_cell(one) for one in row] for row in rows))
    rows = ((one.by, one.name, one.jobs, *one.amounts, one.peak_watts) for one in costs.owners())
    write_csv(path / "costs_by_owner.csv", OWNER_COLUMNS, ([_cell(one) for one in row] for row in rows))


def _cell(value: Any) -> str:
    """A value as text with 9 digits, empty for NaN."""
    if not isinstance(value, float):
        return str(value)
    return "" if math.isnan(value) else f"{value:.9g}"


def _write_rows(path: Path, names: Sequence[str], line: str, *columns: Sequence[Any] | NDArray[Any]) -> None:
    """Writes a CSV file of columns, `line` being the format of a row."""
    with replacing(path) as file:
        file.write(",".join(names) + "\n")
        lists = (column.tolist() if isinstance(column, np.ndarray) else column for column in columns)
        file.writelines(f"{line}\n".format(*row) for row in zip(*lists, strict=True))


def write_jobs(path: Path, result: FullReplay) -> None:
    """Writes jobs.csv: one row for each job that ended or was rejected, in the order of the workload.

    Further columns are those of the scheduler. Runs that it has noted as earlier ones have rows before that of the job.
    """
    workload, earlier = result.workload, _earlier_rows(result)
    with replacing(path) as file:
        file.write(",".join((*JOB_COLUMNS, *csv_fields(list(result.columns)))) + "\n")
        for rows in _done(result):
            columns: list[list[Any]] = [
                csv_fields(workload.job_id[rows].tolist()),
                csv_fields([workload.name]) * len(rows),
                csv_fields(workload.profile[rows].tolist()),
                *(result.jobs[name][rows].tolist() for name in JOB_COLUMNS[3:-1]),
            ]
            rejected = (result.state[rows] == FinalState.REJECTED).tolist()
            lines = (
                _REJECTED_ROW % row[:8] if refused else _STARTED_ROW % row
                for row, refused in zip(zip(*columns, strict=True), rejected, strict=True)
            )
            if not result.columns:
                file.writelines(lines)
                continue
            own = zip(*(_fields(column[rows].tolist()) for column in result.columns.values()), strict=True)
            for job, line, row in zip(rows.tolist(), lines, own, strict=True):
                file.writelines(earlier.get(job, ()))
                file.write(f"{line[:-1]},{','.join(row)}\n")


def _earlier_rows(result: FullReplay) -> dict[int, list[str]]:
    """Rows of the runs that the scheduler has noted as earlier ones, by job; the energy is in the row of the job."""
    if not result.earlier_runs:
        return {}
    workload, ran = result.workload, result.segments.attempts
    begins, ends, texts = ran.begin.tolist(), ran.end.tolist(), ran.texts
    found: dict[int, list[str]] = {}
    for row, key in enumerate(zip(ran.job.tolist(), ran.attempt.tolist(), strict=True)):
        if key not in result.earlier_runs:
            continue
        job, begin, end = key[0], begins[row], ends[row]
        submitted = float(workload.submission_time[job])
        of_job = csv_fields([workload.job_id[job], workload.name, workload.profile[job]])
        asked = int(workload.requested_resources[job]), float(workload.requested_time[job])
        times = begin, end - begin, end, begin - submitted, end - submitted
        stretch = float(slowdown(np.array([end - submitted]), np.array([end - begin]))[0])
        line = _STARTED_ROW % (*of_job, submitted, *asked, 0, _CUT_SHORT, *times, stretch, texts[row], 0.0)
        noted = result.earlier_runs[key]
        own = _fields(noted.get(name) for name in result.columns)
        found.setdefault(job, []).append(f"{line[:-1]},{','.join(own)}\n")
    return found


def _fields(values: Iterable[Any]) -> list[str]:
    """Values as fields of CSV, empty for those that are missing."""
    shown = [
        ("" if math.isnan(value) else f"{value:.6f}") if isinstance(value, float) else "" if value is None else value
        for value in values
    ]
    return [str(field) for field in csv_fields(shown)]


def _done(result: FullReplay) -> Iterator[Ints]:
    """Rows of the jobs that ended or were rejected, in blocks, since a row of Python objects takes a kilobyte."""
    rows = np.flatnonzero(np.isin(result.state, DONE))
    for begin in range(0, len(rows), _BLOCK):
        yield rows[begin : begin + _BLOCK]


def _write_details(path: Path, result: FullReplay) -> None:
    """Writes job_details.csv: execution details of each job of jobs.csv, in the same order."""
    known = {name: column for name in details.OWNERS if ((column := getattr(result.workload, name)) >= 0).any()}
    made = {name: result.jobs[name] for name in details.NAMES}
    numbers = ",".join("%d" if name in details.COUNTS else "%.6f" for name in details.NAMES)
    owners = [(column, result.workload.names.get(name, {})) for name, column in known.items()]
    with replacing(path) as file:
        file.write(",".join(("job_id", *made, *known)) + "\n")
        for rows in _done(result):
            ids = csv_fields(result.workload.job_id[rows].tolist())
            columns = zip(*(column[rows].tolist() for column in made.values()), strict=True)
            texts = [
                csv_fields([names.get(number, str(number)) for number in column[rows].tolist()])
                for column, names in owners
            ]
            lines = zip(ids, columns, *texts, strict=True)
            file.writelines(
                ",".join((str(own), (numbers % row).replace("nan", ""), *owned)) + "\n" for own, row, *owned in lines
            )


def _write_schedule(path: Path, result: FullReplay) -> None:
    """Writes schedule.csv, the run in one row; what hdsim does not have is 0 or empty."""
    metrics, counts = result.metrics, np.bincount(result.state, minlength=len(FinalState))
    ended = int(np.count_nonzero(~np.isnan(result.finish_time)))
    success, rejected = (int(counts[state]) for state in (FinalState.COMPLETED_SUCCESSFULLY, FinalState.REJECTED))
    submitted = len(result.state) - int(counts[FinalState.NOT_SUBMITTED])
    computing = float(result.segments.resources @ (result.segments.end - result.segments.begin))
    unavailable = series.down_resources(result).integral()
    asleep = {state: series.away_resources(result, state).integral() for state in _ASLEEP}
    cores = np.diff(result.platform.node_first_core)
    spans = result.node_states
    switched = 0 if spans is None else int(cores[spans.node[spans.state != NodeState.OFF]].sum())
    text = schedule_csv(
        submitted,
        ended,
        success,
        consumed_joules=result.energy_joules,
        makespan=metrics["makespan"],
        **{
            f"{kind}_{quantity}": metrics[f"{kind}_{quantity}"]
            for kind in ("max", "mean")
            for quantity in ("slowdown", "turnaround_time", "waiting_time")
        },
        nb_computing_machines=result.platform.n_cores,
        nb_jobs_rejected=rejected,
        time_computing=computing,
        time_idle=result.platform.n_cores * result.end_time - computing - unavailable - sum(asleep.values()),
        **{f"time_{name}": asleep[state] for state, name in _ASLEEP.items()},
        nb_machine_switches=switched,
        time_unavailable=unavailable,
    )
    with replacing(path) as file:
        file.write(text)


def _write_machine_states(path: Path, result: FullReplay) -> None:
    """Writes machine_states.csv: cores by state from each change on.

    Cores of nodes that are down are in none of the states.
    """
    busy, down = series.busy_resources(result), series.down_resources(result)
    asleep = {name: series.away_resources(result, state) for state, name in _ASLEEP.items()}
    times = distinct(*(steps.times for steps in (busy, down, *asleep.values())))
    computing = busy.at(times).astype(np.int64)
    columns = {name: steps.at(times).astype(np.int64) for name, steps in asleep.items()}
    idle = result.platform.n_cores - computing - down.at(times).astype(np.int64) - sum(columns.values())
    names = ("time", *(f"nb_{name}" for name in columns), "nb_idle", "nb_computing")
    _write_rows(path, names, "{:.6f},{},{},{},{},{}", times, *columns.values(), idle, computing)


def _write_contention(path: Path, result: FullReplay) -> None:
    """Writes contention.csv: two curves, the steps of each thinned with all peaks kept."""
    lost, sending = (steps(result).thinned(_CONTENTION_STEPS) for steps in (series.lost_cores, series.exchanging_tasks))
    times = distinct(lost.times, sending.times)
    _write_rows(path, CONTENTION_COLUMNS, "{:.6f},{:.6f},{:.0f}", times, lost.at(times), sending.at(times))


def _write_outages(path: Path, outages: Outages) -> None:
    """Writes outages.csv, which `failures=trace` takes; `up` is empty for a node that stays down."""
    ends = ["" if up == math.inf else repr(up) for up in outages.up.tolist()]
    _write_rows(path, ("node", "down", "up"), "{},{!r},{}", outages.node, outages.down, ends)


def _write_node_states(path: Path, spans: StateSpans) -> None:
    """Writes node_states.csv: when nodes were going down, off or booting; at other times they were up, or down."""
    names = [STATE_NAMES[state] for state in spans.state.tolist()]
    _write_rows(path, NODE_STATE_COLUMNS, "{},{},{!r},{!r}", spans.node, names, spans.begin, spans.end)


def _write_caps(path: Path, result: FullReplay) -> None:
    """Writes caps.csv: the steps of the limits on the power of nodes, without watts where there is no limit."""
    rows = [
        (cap.name, CAP_KINDS[not cap.hard], f"{time!r}", f"{watts!r}" if watts < math.inf else "")
        for cap in result.caps
        for time, watts in zip(cap.times.tolist(), cap.watts.tolist(), strict=True)
    ]
    write_csv(path, CAP_COLUMNS, rows)


def _write_interruptions(path: Path, result: FullReplay) -> None:
    """Writes interruptions.csv: one row for each start of a job that a failure has cut short."""
    ran = result.segments.attempts
    cut = ran.rows(np.flatnonzero(ran.requeued | np.isin(ran.job, result.failed_permanently)))
    ids = csv_fields(result.workload.job_id[cut.job].tolist())
    line = "{},{:.6f},{:.6f},{:.6f},{:d},{}"
    _write_rows(path, INTERRUPTION_COLUMNS, line, ids, cut.begin, cut.end, cut.lost, cut.requeued, cut.texts)


def _write_failed_starts(path: Path, result: FullReplay) -> None:
    """Writes failed_starts.csv: one row for each start that the backend has refused."""
    ids = result.workload.job_id
    rows = ((ids[job], f"{asked:.6f}", f"{told:.6f}", reason) for job, asked, told, reason in result.failed_starts)
    write_csv(path, ("job_id", "requested", "refused", "reason"), rows)


def _write_allocations(path: Path, result: FullReplay) -> None:
    """Writes allocations.csv: the allocation segments of all jobs in order of their begins.

    There is a column ghz if a job had another frequency than the nominal one.
    """
    held = result.segments
    ids = csv_fields(result.workload.job_id[held.job].tolist())
    columns = (ids, held.attempt, held.begin, held.end, held.texts, held.speed)
    names, line = ALLOCATION_COLUMNS, "{},{},{:.6f},{:.6f},{},{:.6f}"
    table = held.platform.frequencies
    if held.ghz is None or table is None:
        _write_rows(path, names, line, *columns)
    else:
        ghz = np.where(np.isnan(held.ghz), table.nominal, held.ghz)
        _write_rows(path, (*names, FREQUENCY_COLUMN), line + ",{!r}", *columns, ghz)
