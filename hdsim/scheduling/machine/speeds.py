"""Speeds under contention as a part of the machine: ends of running jobs change their dates."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from hdsim.contention.kernels import speeds as progress
from hdsim.kernels.compiling import part_of_kernel
from hdsim.kernels.heap import Heap, push
from hdsim.scheduling.machine.nodes import OnNodes
from hdsim.scheduling.machine.state import Floats, Machine, end_or_limit

#: Number of entries of the agenda up to which outdated ones are kept, as in the engine.
FEW = 256
#: The agenda, which is `Machine.ends`: an item is the number of the date times J plus the job.
DATES = np.dtype(
    [
        ("set", "i8"),  # dates so far
        ("limit", "i8"),  # most entries before outdated ones are removed
        ("stopped", "i8"),  # job whose speed is not above 0, -1 for none
    ],
    align=True,
)


class Speeds(NamedTuple):
    """Contention.

    Attributes:
        model: Number of the contention model, see :mod:`hdsim.contention.kernels.speeds`.
        parameters: (R, P) its parameters.
        progress: Progress of running jobs.
        date: (J,) end of a running job at its present rate in seconds, otherwise NaN.
        dates: (1,) of type `DATES`.
    """

    model: int
    parameters: Floats
    progress: progress.State
    date: Floats
    dates: Any


@part_of_kernel
def is_outdated(machine: Machine, speeds: Speeds) -> bool:
    """Returns whether the first date is no longer that of its job."""
    ends = machine.ends
    return speeds.date[ends.item[0] % len(speeds.date)] != ends.key[0]


@part_of_kernel
def begin_progress(machine: Machine, nodes: OnNodes, speeds: Speeds, job: int) -> None:
    """Adds a job that starts on the chosen cores, which are no longer known then."""
    ids, kept = nodes.ids, 0
    for i in range(nodes.state[0].picked):
        # Nothing slows GPUs down.
        if nodes.speed[ids[i]] < math.inf:
            ids[kept] = ids[i]
            kept += 1
    progress.begin(speeds.progress, job, ids[:kept], machine.jobs.runtime[job], 0.0, 1.0)


@part_of_kernel
def end_progress(speeds: Speeds, job: int) -> None:
    """Removes a job that ends."""
    speeds.date[job] = math.nan
    progress.finish(speeds.progress, job)


@part_of_kernel
def settle(machine: Machine, speeds: Speeds) -> bool:
    """Updates speeds and dates after the starts and ends of an instant; False if a job has stopped."""
    for i in range(progress.settle(speeds.progress, speeds.model, speeds.parameters, machine.clock[0].now)):
        job, date = progress.affected(speeds.progress, i)
        if date == -math.inf:
            speeds.dates[0].stopped = job
            return False
        if not math.isnan(date):
            _set_date(machine, speeds, job, date)
    return True


@part_of_kernel
def _set_date(machine: Machine, speeds: Speeds, job: int, date: float) -> None:
    """Sets the end of a running job."""
    jobs, agenda, dates = len(speeds.date), machine.ends, speeds.dates[0]
    date = speeds.date[job] = end_or_limit(machine, job, date)
    push(agenda, date, dates.set * jobs + job)
    dates.set += 1
    if agenda.length[0] >= dates.limit:
        dates.limit = remove_outdated(agenda, speeds.date)


@part_of_kernel
def remove_outdated(agenda: Heap, date: Floats) -> int:
    """Removes the entries that are no longer the date of their job; returns the most entries before the next time."""
    entries = agenda.length[0]
    agenda.length[0] = 0
    for i in range(entries):
        if date[agenda.item[i] % len(date)] == agenda.key[i]:
            push(agenda, agenda.key[i], agenda.item[i])
    return max(FEW, 2 * (agenda.length[0] + 1))
