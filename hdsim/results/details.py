"""Execution of jobs: computing, sending messages or waiting at barriers, slowed down or not, on few nodes or on many.

Jobs without a program compute all the time. Of a job that failures have cut short, the last start counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from hdsim.platform.model import Platform
    from hdsim.results.replay import FullReplay
    from hdsim.results.segments import Segments

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Columns that count something; all others are times and ratios, NaN for a job that has not ended.
COUNTS = ("supersteps", "nodes")
NAMES = (
    "supersteps",
    "computation_time",
    "communication_time",
    "barrier_waiting_time",
    "communication_share",
    "slowdown_factor",
    "nodes",
    "node_spread",
)

#: Columns of the workload that job_details.csv has where the trace has them; -1 for unknown.
OWNERS = ("user", "group", "queue", "partition")


def columns(result: FullReplay) -> dict[str, Callable[[], NDArray[Any]]]:
    """Makers of the columns by name, each of (J,).

    ``supersteps`` done; ``computation_time`` (seconds of simulated time from the begin of each computation to the end
    of its last task), ``communication_time`` (seconds in exchanges of messages and at the latency of barriers),
    ``barrier_waiting_time`` (seconds of the computation that a task has waited on average for slower ones),
    ``communication_share`` of the execution
    time; ``slowdown_factor``, see :func:`slowdown_factor`; ``nodes`` (0 for a job that never started) and
    ``node_spread``, the nodes over the fewest that have as many cores (NaN where cores have no ids).
    """
    time_breakdown = result.time_breakdown
    jobs = len(result.workload)
    execution = result.finish_time - result.starting_time

    def spent(activity: str) -> Floats:
        seconds = 0.0 if time_breakdown is None else np.array(getattr(time_breakdown, activity))
        return np.where(np.isnan(execution), np.nan, seconds)

    def spread() -> Floats:
        used = result.jobs["nodes"].astype(np.float64)
        used[(used == 0) | (result.segments.amounts is not None)] = np.nan
        return used / fewest_nodes(result.platform, result.workload.requested_cores)

    return {
        "supersteps": lambda: (
            np.zeros(jobs, np.int64) if time_breakdown is None else np.array(time_breakdown.supersteps)
        ),
        "computation_time": lambda: execution.copy() if time_breakdown is None else spent("computation"),
        "communication_time": lambda: spent("communication"),
        "barrier_waiting_time": lambda: spent("waiting"),
        "communication_share": lambda: result.jobs["communication_time"] / np.where(execution == 0, 1.0, execution),
        "slowdown_factor": lambda: slowdown_factor(result),
        "nodes": lambda: nodes(result),
        "node_spread": spread,
    }


def slowdown_factor(result: FullReplay) -> Floats:
    """Execution time over the time that the same takes on the same cores undisturbed, at least 1.

    Undisturbed means cores at peak speed and links without messages of other jobs. Of a job that was killed, what it
    has done counts; the step it was in counts as undisturbed for as long as it would have taken.

    Returns:
        (J,) ratios, NaN for a job that has not ended.
    """
    execution = result.finish_time - result.starting_time
    if result.time_breakdown is not None:
        alone = np.array(result.time_breakdown.uncontended)
    else:
        alone = _uncontended_time(result)
    alone = np.minimum(alone, execution)
    return np.asarray(np.divide(execution, alone, out=np.where(np.isnan(execution), np.nan, 1.0), where=alone > 0))


def nodes(result: FullReplay) -> Ints:
    """Returns the (J,) number of nodes on which each job has cores or GPUs, 0 for a job that never started."""
    platform = result.platform
    counts = np.zeros(len(result.workload), np.int64)
    held = result.segments.last_attempts
    if held.amounts is not None:
        counts[held.job] = [len(amounts.nodes) for amounts in held.amounts]
    elif len(held):
        counts[held.job] = held.held.groups(platform.processor_node[platform.core_processor])
    return counts


def fewest_nodes(platform: Platform, cores: Ints) -> Ints:
    """Returns the (J,) least number of nodes with as many cores between them as each job has: `cores`, (J,)."""
    largest_first = np.sort(platform.node_cpu_cores)[::-1]
    return np.searchsorted(np.cumsum(largest_first), cores) + 1


def _uncontended_time(result: FullReplay) -> Floats:
    """(J,) s that each job without a program takes on the cores it has held, at their peak speed."""
    workload, last = result.workload, result.latest
    slowest = np.ones(len(workload))
    slowest[last.job] = _slowest(last)
    alone = np.where(workload.fixed_duration, workload.runtime, workload.runtime / slowest)
    earlier = result.earlier
    attempt = np.full(len(workload), -1)
    attempt[last.job] = last.attempt
    same = earlier.rows(np.flatnonzero(earlier.attempt == attempt[earlier.job]))
    if not len(same):
        return alone
    held = last.rows(np.flatnonzero(np.isin(last.job, same.job))).joined(same)
    # Core-seconds at the reference speed that each job with several segments has yet to do.
    work: dict[int, float] = {}
    rates = held.cpu_cores * _slowest(held)
    for job, begin, end, rate in zip(
        held.job.tolist(), held.begin.tolist(), held.end.tolist(), rates.tolist(), strict=True
    ):
        if workload.fixed_duration[job]:
            continue
        if job not in work:
            work[job], alone[job] = float(workload.runtime[job] * workload.requested_cores[job]), 0.0
        seconds = min(end - begin, work[job] / rate)
        work[job] -= seconds * rate
        alone[job] += seconds
    return alone


def _slowest(held: Segments) -> Floats:
    """(A,) speed of the slowest core of each segment in reference speeds."""
    platform = held.platform
    if not len(held) or platform.homogeneous_speed:
        return np.ones(len(held))
    speed = np.where(platform.is_gpu, np.inf, platform.gflops / platform.reference_gflops)
    if held.amounts is not None:
        of_node = np.minimum.reduceat(speed, platform.node_first_processor[:-1])
        return np.array([of_node[amounts.nodes].min() for amounts in held.amounts])
    used = held.usage
    return np.minimum.reduceat(speed[used.processor], np.searchsorted(used.segment, np.arange(len(held))))
