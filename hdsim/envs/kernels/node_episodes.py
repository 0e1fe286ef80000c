"""Nodes of episodes in batches: memory, several speeds, core policies by processor, contention, and their observation.

All that :mod:`hdsim.envs.kernels.episodes` leaves to the nodes of a platform whose cores are not interchangeable.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.kernels import nodes
from hdsim.cluster.kernels.chunks import JobRequests
from hdsim.cluster.kernels.nodes import RANDOM, pick_at_random
from hdsim.cluster.kernels.pcg64 import uniform
from hdsim.contention.kernels import speeds
from hdsim.decisions.kernels import progress
from hdsim.decisions.kernels.rows import Flags, Floats, Ints, Numbers
from hdsim.envs.kernels.episode_state import State, Trace
from hdsim.kernels.compiling import part_of_kernel
from hdsim.kernels.heap import pop, push
from hdsim.scheduling.machine.loop import OVER, PAUSED
from hdsim.scheduling.machine.speeds import FEW, remove_outdated
from hdsim.scheduling.machine.state import Machine, end_or_limit

#: Numbers of the parts that the observation shows before the queue.
NOTHING, SMALL, NORMAL = range(3)

#: State of the nodes of an episode beside that of its machine.
PRESENT = np.dtype(
    [
        ("first", "i8"),  # first job of the window in all traces
        ("held", "i8"),  # cores listed in `Grid.held`
        ("changes", "i8"),  # dates set
        ("limit", "i8"),  # most entries of the agenda before outdated ones are removed
        ("new", "i8"),  # jobs started since the last pass
        ("ended", "?"),  # whether jobs have ended since then
        ("stopped", "i8"),  # 1 + job whose speed is not above 0, or 0
    ],
    align=True,
)


class Grid(NamedTuple):
    """Nodes of E episodes with at most J jobs each; N nodes, P processors, C cores, T jobs of all traces.

    Attributes:
        model: Contention model or 0.
        shown: Number of these parts.
        present: (E,) of type `PRESENT`.
        policies: (pairs,) core policy of each policy pair.
        requests: (T,) requests of the jobs.
        bandwidth: (T,) GB/s per core.
        fixed: (T,) whether the speed of the cores does not matter.
        speed: (C,) peak speed relative to the reference speed, infinite for GPUs.
        processor: (3, P) peak speeds in GFLOP/s, those under oversubscription, and cores in use when nothing runs.
        capacity: (N + P,) memory of nodes in bytes, and bandwidth of processors in GB/s.
        rows: (5, P) rows of processors for :mod:`hdsim.decisions.kernels.progress` before the first event.
        states: See :func:`hdsim.decisions.kernels.progress.write_cores`.
        parameters: Parameters of the contention model.
        unused: The nodes before the first event.
        sharing: The progress of jobs before the first event.
        idle: (E, C) part of the nodes of each episode, see `unused`, also for the next three.
        processors: (E, 5, P + 1).
        nodes: (E, 9, N + 1).
        amounts: (E, N + P + N).
        core_ints: (E, 3, C) part of the progress of each episode, see `sharing`, also for the next six.
        core_floats: (E, 2, C).
        processor_floats: (E, 2, P).
        job_ints: (E, 3, J).
        job_floats: (E, 5, J).
        work_ints: (E, 8, C + P + 1).
        work_floats: (E, 4, C).
        words: (E, 3, 4) random generators.
        order: (E, C) space for a random order of cores.
        among: (E, C) False.
        scores: (E, J) random scores of queued jobs.
        listed: (E, J) the jobs.
        ids: (E, C) chosen cores.
        held: (E, H) cores of the started jobs in order of their starts.
        begin: (E, J) first of these cores of a job.
        sizes: (E, J) number of them.
        date: (E, J) end of a running job at its present rate in seconds, otherwise NaN. Ends of the machine with other
            dates are outdated; their items are the number of the change times J plus the job.
        seen_cores: (E, 2, C) cores as they are observed, as the next three; see
            :mod:`hdsim.decisions.kernels.progress`.
        seen_jobs: (E, 4, C).
        seen_processors: (E, 5, P).
        new: (E, C) first cores of the jobs that have started since the last pass.
        busy: (E, P) cores in use.
    """

    model: int
    shown: int
    present: Any
    policies: Ints
    requests: JobRequests
    bandwidth: Floats
    fixed: Flags
    speed: Floats
    processor: Floats
    capacity: Floats
    rows: Floats
    states: Numbers
    parameters: Floats
    unused: nodes.State
    sharing: speeds.State
    idle: Flags
    processors: Ints
    nodes: Ints
    amounts: Floats
    core_ints: Ints
    core_floats: Floats
    processor_floats: Floats
    job_ints: Ints
    job_floats: Floats
    work_ints: Ints
    work_floats: Floats
    words: NDArray[np.uint64]
    order: Ints
    among: Flags
    scores: Floats
    listed: Ints
    ids: Ints
    held: NDArray[np.int32]
    begin: Ints
    sizes: Ints
    date: Floats
    seen_cores: Ints
    seen_jobs: Floats
    seen_processors: Floats
    new: Ints
    busy: Ints

    def clear(self, e: int, first: int, jobs: int) -> None:
        """Clears the nodes before the first event of an episode, a window of jobs of all traces."""
        state: tuple[NDArray[Any], ...] = (self.idle, self.processors, self.nodes, self.amounts)
        unused = [self.unused[i] for i in (1, 2, 3, 5)]
        state += (self.core_ints, self.core_floats, self.processor_floats, self.work_ints, self.seen_processors)
        unused += [*(self.sharing[i] for i in (0, 1, 3, 6)), self.rows]
        for own, before in zip(state, unused, strict=True):
            own[e] = before
        self.seen_cores[e, progress.FIRST] = progress.NONE
        window = slice(first, first + jobs)
        ints, floats = self.job_ints[e, :, :jobs], self.job_floats[e, :, :jobs]
        ints[0], ints[1], ints[2] = -1, self.fixed[window], 0
        floats[0], floats[1:4], floats[4] = self.bandwidth[window], 0.0, 1.0
        self.date[e, :jobs] = math.nan
        self.present[e] = (first, 0, 0, FEW, 0, False, 0)


@part_of_kernel
def _store(e: int, grid: Grid) -> nodes.State:
    unused = grid.unused
    return unused[0], grid.idle[e], grid.processors[e], grid.nodes[e], unused[4], grid.amounts[e]


@part_of_kernel
def _sharing(e: int, grid: Grid) -> speeds.State:
    return (
        grid.core_ints[e],
        grid.core_floats[e],
        grid.sharing[2],
        grid.processor_floats[e],
        grid.job_ints[e],
        grid.job_floats[e],
        grid.work_ints[e],
        grid.work_floats[e],
    )


@part_of_kernel
def _nodes(e: int, grid: Grid) -> nodes.Nodes:
    return nodes.nodes_of(_store(e, grid))


@part_of_kernel
def next_instant(e: int, machine: Machine, grid: Grid) -> int:
    """Moves the clock to the next event and carries out the events of a pass.

    See :mod:`hdsim.scheduling.machine.loop`.
    """
    clock, batch, arriving, dates = machine.clock[0], machine.rules.batch, machine.arriving, machine.jobs.arrival
    arrived = clock.arrived
    arrival = dates[arriving[arrived]] if arrived < len(arriving) else math.inf
    now = min(arrival, _first_end(e, machine, grid))
    if now == math.inf:
        return OVER
    clock.now = now
    while _first_end(e, machine, grid) == now and (batch or arrival > now):
        _end_first(e, machine, grid)
        if not batch:
            return PAUSED
    while arrival == now:
        clock.queued += 1
        arrived += 1
        arrival = dates[arriving[arrived]] if batch and arrived < len(arriving) else math.inf
    clock.arrived = arrived
    return PAUSED


@part_of_kernel
def _first_end(e: int, machine: Machine, grid: Grid) -> float:
    """Returns the date of the first end of a running job, infinite if there is none; removes outdated ones."""
    ends = machine.ends
    while ends.length[0]:
        if grid.date[e, ends.item[0] % grid.date.shape[1]] == ends.key[0]:
            return ends.key[0]
        pop(ends)
    return math.inf


@part_of_kernel
def _end_first(e: int, machine: Machine, grid: Grid) -> None:
    """Ends the running job whose end is the first."""
    clock, present = machine.clock[0], grid.present[e]
    job = pop(machine.ends) % grid.date.shape[1]
    of_all = present.first + job
    grid.date[e, job], machine.finish_time[job] = math.nan, clock.now
    machine.log[clock.events] = ~job
    clock.events += 1
    clock.idle += machine.jobs.size[job]
    if grid.model:
        speeds.finish(_sharing(e, grid), job)
    begin, count = grid.begin[e, job], grid.sizes[e, job]
    for i in range(count):
        grid.ids[e, i] = grid.held[e, begin + i]
    nodes.release(_store(e, grid), grid.ids[e, :count], grid.requests.memory[of_all], grid.bandwidth[of_all])
    if grid.shown == NORMAL:
        progress.end(grid.seen_cores[e], grid.ids[e, 0])
    present.ended = True


@part_of_kernel
def place(e: int, job: int, policy: int, machine: Machine, grid: Grid) -> bool:
    """Puts a queued job, for which there are idle cores, on nodes; returns False if it does not fit."""
    clock, present, store, wanted = machine.clock[0], grid.present[e], _store(e, grid), grid.requests
    of_all = present.first + job
    number, cores, gpus, memory = (
        wanted.number[of_all],
        wanted.cores[of_all],
        wanted.gpus[of_all],
        wanted.memory[of_all],
    )
    bandwidth, ids, count = grid.bandwidth[of_all], grid.ids[e], 0
    if policy != RANDOM:
        count = nodes.pick(store, policy, number, cores, gpus, memory, bandwidth, nodes.UNLIMITED, ids)
    elif nodes.total_room(store, cores, gpus, memory, nodes.UNLIMITED) >= number:
        random = grid.words[e], grid.order[e], grid.among[e]
        count = pick_at_random(store, random, number, cores, gpus, memory, nodes.UNLIMITED, ids)
    if not count:
        return False
    now, begin = clock.now, present.held
    nodes.allocate(store, ids[:count], memory, bandwidth)
    grid.begin[e, job], grid.sizes[e, job], present.held = begin, count, begin + count
    slowest = math.inf
    for i in range(count):
        grid.held[e, begin + i] = ids[i]
        slowest = min(slowest, grid.speed[ids[i]])
    machine.starting_time[job] = now
    machine.log[clock.events] = job
    clock.events += 1
    clock.queued -= 1
    clock.idle -= machine.jobs.size[job]
    if grid.shown == NORMAL:
        requested = machine.jobs.requested[job]
        progress.begin(grid.seen_cores[e], grid.seen_jobs[e], ids[:count], requested, grid.fixed[of_all], now)
        grid.new[e, present.new] = ids[0]
    present.new += 1
    runtime = machine.jobs.runtime[job]
    if grid.model:
        kept = 0
        for i in range(count):
            if grid.speed[ids[i]] < math.inf:
                ids[kept] = ids[i]
                kept += 1
        speeds.begin(_sharing(e, grid), job, ids[:kept], runtime, 0.0, 1.0)
    else:
        _set_date(e, job, now + (runtime if grid.fixed[of_all] else runtime / slowest), machine, grid)
    return True


@part_of_kernel
def _set_date(e: int, job: int, date: float, machine: Machine, grid: Grid) -> None:
    """Sets the end of a running job."""
    ends, present, jobs = machine.ends, grid.present[e], grid.date.shape[1]
    date = grid.date[e, job] = end_or_limit(machine, job, date)
    push(ends, date, present.changes * jobs + job)
    present.changes += 1
    if ends.length[0] >= present.limit:
        present.limit = remove_outdated(ends, grid.date[e])


@part_of_kernel
def end_pass(e: int, machine: Machine, grid: Grid) -> None:
    """Updates the speeds of jobs, and what is observed of them, after the last decision of an instant."""
    present, now = grid.present[e], machine.clock[0].now
    if not present.new and not present.ended:
        return
    if grid.shown == NORMAL:
        progress.update_rates(
            grid.seen_cores[e],
            grid.seen_jobs[e],
            grid.new[e, : present.new],
            grid.unused[0],
            grid.sharing[2],
            grid.seen_processors[e],
            _nodes(e, grid).free_bandwidth,
            now,
        )
    present.new, present.ended = 0, False
    if grid.model:
        sharing = _sharing(e, grid)
        for i in range(speeds.settle(sharing, grid.model, grid.parameters, now)):
            job, date = speeds.affected(sharing, i)
            if date == -math.inf:
                present.stopped = job + 1
            elif not math.isnan(date):
                _set_date(e, job, date, machine, grid)


@part_of_kernel
def draw_scores(e: int, queued: int, trace: Trace, state: State, grid: Grid) -> int:
    """Draws a score for each queued job, in order of submission; returns their number."""
    front = state.episodes[e].front
    for i in range(queued):
        grid.listed[e, i] = trace.ranked[0, state.queue[e, 0, front + i]]
        grid.scores[e, i] = uniform(grid.words[e])
    return queued


@part_of_kernel
def lowest_score(e: int, count: int, grid: Grid) -> int:
    """Returns the first of the listed jobs with the lowest score."""
    best = 0
    for i in range(count):
        if grid.scores[e, i] < grid.scores[e, best]:
            best = i
    return best


@part_of_kernel
def computing_power(e: int, grid: Grid) -> float:
    """Returns the GFLOP/s of the busy cores."""
    _count_busy(e, grid)
    gflops, slowed = grid.processor[0], grid.processor[1]
    return progress.busy_speed(grid.busy[e], _nodes(e, grid).free_bandwidth, grid.rows[progress.LIMIT], gflops, slowed)


@part_of_kernel
def _count_busy(e: int, grid: Grid) -> None:
    for p in range(grid.busy.shape[1]):
        grid.busy[e, p] = np.int64(grid.processor[2, p]) - grid.processors[e, 3, p]


@part_of_kernel
def show(e: int, now: float, grid: Grid, seen: Numbers) -> None:
    """Writes what the observation shows of nodes, processors and cores."""
    if grid.shown == NOTHING:
        return
    count = len(grid.capacity)
    for i in range(count):
        # The free share, at least 0; 1 where the capacity is infinite.
        share = grid.amounts[e, i] / grid.capacity[i] if grid.capacity[i] < math.inf else 1.0
        seen[i] = share if share > 0.0 else 0.0
    if grid.shown == NORMAL:
        _count_busy(e, grid)
        numbers = seen[count : count + 3 * len(grid.speed)]
        progress.write_cores(
            grid.seen_cores[e],
            grid.seen_jobs[e],
            grid.sharing[2],
            grid.seen_processors[e],
            _nodes(e, grid).free_bandwidth,
            grid.busy[e],
            grid.states,
            now,
            numbers,
        )
