"""State of a replay but for the queue and for nodes: jobs, rules, clock, running jobs, and a log of starts and ends."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import part_of_kernel
from hdsim.kernels.heap import Heap, make_heap, push
from hdsim.scheduling.kernels.profiles import Releases, make_releases
from hdsim.scheduling.machine.walltime import reaches_walltime
from hdsim.scheduling.rules import HEAD_ALONE

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: The present.
CLOCK = np.dtype(
    [
        ("now", "f8"),  # seconds
        ("arrived", "i8"),  # jobs that have arrived
        ("queued", "i8"),  # jobs that wait
        ("idle", "i8"),  # cores
        ("events", "i8"),  # starts and ends so far
        ("head", "i8"),  # committed head, -1 for none
        ("reserved", "i8"),  # head that has the reservation, -1 for none
        ("shadow", "f8"),  # its expected start in seconds, until which backfilled jobs may run on any idle cores
        ("extra", "f8"),  # cores idle beside it then
        ("longest", "f8"),  # requested time in seconds above which `widest` limits a job
        ("widest", "f8"),  # the extra cores at the begin of the pass
        ("planned", "i8"),  # first place without a reservation in the plan, -1: there is no plan
        ("tried", "i8"),  # first place that the pass has not tried beside the reservations of the plan
    ],
    align=True,
)


class Rules(NamedTuple):
    """Rules of the agent and of the engine, as plain numbers, which stay in registers.

    Attributes:
        backfill: Number of :class:`hdsim.scheduling.rules.Backfilling`.
        commit: A head stays the head until it starts.
        batch: One scheduling pass per instant; otherwise one per event.
        ends_first: Then ends come before arrivals of the same instant, as in a fork.
        cores: Cores of the machine.
        depth: Most reservations of the plan.
    """

    backfill: int
    commit: bool
    batch: bool
    ends_first: bool
    cores: int
    depth: int


class JobColumns(NamedTuple):
    """Columns of J jobs.

    Attributes:
        arrival: (J,) s.
        runtime: (J,) s.
        requested: (J,) s.
        walltime: (J,) s after which jobs are killed; (0,) if none are, as the next.
        ends_in_delay: (J,) see ``Workload.ends_in_delay``.
        size: (J,) cores.
    """

    arrival: Floats
    runtime: Floats
    requested: Floats
    walltime: Floats
    ends_in_delay: Bools
    size: Ints


class Machine(NamedTuple):
    """The state but for the queue.

    Attributes:
        rules: The rules.
        clock: (1,) of type `CLOCK`.
        jobs: The jobs.
        arriving: (A,) jobs in order of their arrival, without those that are rejected.
        starting_time: (J,) s, NaN before the start.
        finish_time: (J,) s, NaN before the end.
        killed: (J,) whether a started job ends at its walltime.
        log: (2 J,) starts and ends in turn: i for the start of job i, ~i for its end; (0,) in a play-out.
        ends: Dates of the ends of running jobs, each with the place of the start in `log`; in a play-out with the job,
            see :mod:`hdsim.scheduling.machine.short_queue`; for contention see :mod:`hdsim.scheduling.machine.speeds`.
        releases: Expected ends of running jobs; without space where neither backfilling nor an order asks for them.
    """

    rules: Rules
    clock: Any
    jobs: JobColumns
    arriving: Ints
    starting_time: Floats
    finish_time: Floats
    killed: Bools
    log: Ints
    ends: Heap
    releases: Releases


@part_of_kernel
def end_or_limit(machine: Machine, job: int, date: float) -> float:
    """Returns when a started job ends that would end at a date, and notes whether it is killed at its walltime then."""
    jobs = machine.jobs
    if len(jobs.walltime):
        limit = machine.starting_time[job] + jobs.walltime[job]
        killed = machine.killed[job] = reaches_walltime(date, limit, jobs.ends_in_delay[job])
        if killed:
            return limit
    return date


@part_of_kernel
def log_start(machine: Machine, job: int, end: float) -> None:
    """Notes a job that begins to run and its end in seconds."""
    clock = machine.clock[0]
    push(machine.ends, end, clock.events)
    machine.log[clock.events] = job
    clock.events += 1


def make_machine(
    jobs: JobColumns,
    infeasible: Ints,
    *,
    backfill: int,
    commit: bool,
    batch: bool,
    cores: int,
    releases: bool,
    depth: int = 0,
) -> Machine:
    """Returns the state before the first event.

    Args:
        jobs: The jobs; their arrays must not be read-only, which is another type.
        infeasible: Jobs that are rejected.
        backfill: Number of :class:`hdsim.scheduling.rules.Backfilling`.
        commit: A head stays the head until it starts.
        batch: One scheduling pass per instant; otherwise one per event, arrivals first.
        cores: Number of cores.
        releases: Expected ends of running jobs are kept.
        depth: Most reservations of the plan.
    """
    count = len(jobs.size)
    running = min(count, cores) + 1
    # Jobs of any time may start beside each other if no head has a reservation.
    shadow = 0.0 if backfill in HEAD_ALONE else math.inf
    clock = np.array([(0.0, 0, 0, cores, 0, -1, -1, shadow, 0.0, shadow, 0.0, -1, 0)], CLOCK)
    return Machine(
        rules=Rules(int(backfill), bool(commit), bool(batch), False, int(cores), int(depth)),
        clock=clock.view(np.recarray),
        jobs=jobs,
        arriving=np.delete(np.arange(count), infeasible),
        starting_time=np.full(count, math.nan),
        finish_time=np.full(count, math.nan),
        killed=np.zeros(count, bool),
        log=np.zeros(2 * count, np.int64),
        ends=make_heap(running),
        releases=make_releases(running if releases else 0),
    )
