"""Nodes of episodes in batches: memory, several speeds, core policies by processor, contention, and their observation.

All that :mod:`hdsim.kernels.episodes` leaves to the nodes of a platform whose cores are not interchangeable.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels import nodes, progress, speeds
from hdsim.kernels.compiling import kernel, part_of_kernel
from hdsim.kernels.episode_state import State, Trace
from hdsim.kernels.heap import Heap, pop, push
from hdsim.kernels.machine_speeds import FEW
from hdsim.kernels.nodes import RANDOM, pick_at_random
from hdsim.kernels.pcg64 import uniform
from hdsim.kernels.profiles import JobRequests
from hdsim.kernels.rows import Flags, Floats, Ints, Numbers
from hdsim.kernels.walltime import reaches_walltime

#: Entries of `Grid.settings`: contention model or 0, and what the observation shows before the queue.
MODEL, SHOWN = range(2)
NOTHING, SMALL, NORMAL = range(3)
#: Entries of `Grid.numbers`: cores listed in `held`, dates set, most entries of the agenda before outdated ones are
#: removed, jobs started and whether jobs have ended since the last pass, and 1 + job whose speed is not above 0.
HELD, SEQUENCE, LIMIT, NEW, ENDED, STOPPED = range(6)


class Grid(NamedTuple):
    """Nodes of E episodes with at most J jobs each; N nodes, P processors, C cores, T jobs of all traces.

    Attributes:
        settings: (2,) settings.
        policies: (pairs,) core policy of each policy pair.
        requests: (T,) requests of the jobs.
        bandwidth: (T,) GB/s per core.
        fixed: (T,) whether the speed of the cores does not matter.
        speed: (C,) peak speed relative to the reference speed, infinite for GPUs.
        processor: (3, P) peak speeds in GFLOP/s, those under oversubscription, and cores in use when nothing runs.
        capacity: (N + P,) memory of nodes in bytes, and bandwidth of processors in GB/s.
        rows: (5, P) rows of processors for :mod:`hdsim.kernels.progress` before the first event.
        states: See :func:`hdsim.kernels.progress.write_cores`.
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
        first: (E, J) first of these cores of a job.
        sizes: (E, J) number of them.
        date: (E, J) end of a running job at its present rate in seconds, otherwise NaN.
        killed: (E, J) whether it ends at its walltime.
        dates: (E, A) heap of the dates, outdated ones among them.
        changes: (E, A) number of each date times J plus the job.
        entries: (E,) their number.
        numbers: (E, 6) state.
        seen_cores: (E, 2, C) cores as they are observed, see :mod:`hdsim.kernels.progress`, as the next three.
        seen_jobs: (E, 4, C).
        seen_processors: (E, 5, P).
        new: (E, C) first cores of the jobs that have started since the last pass.
        busy: (E, P) cores in use.
    """

    settings: Ints
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
    first: Ints
    sizes: Ints
    date: Floats
    killed: Flags
    dates: Floats
    changes: Ints
    entries: Ints
    numbers: Ints
    seen_cores: Ints
    seen_jobs: Floats
    seen_processors: Floats
    new: Ints
    busy: Ints


@part_of_kernel
def _store(e: int, grid: Grid) -> nodes.State:
    unused = grid.unused
    return unused[0], grid.idle[e], grid.processors[e], grid.nodes[e], unused[4], grid.amounts[e]


@part_of_kernel
def _sharing(e: int, grid: Grid) -> speeds.State:
    return (
        grid.core_ints[e], grid.core_floats[e], grid.sharing[2], grid.processor_floats[e],
        grid.job_ints[e], grid.job_floats[e], grid.work_ints[e], grid.work_floats[e],
    )  # fmt: skip


@part_of_kernel
def _nodes(e: int, grid: Grid) -> nodes.Nodes:
    return nodes.nodes_of(_store(e, grid))


@part_of_kernel
def clear(e: int, trace: Trace, state: State, grid: Grid) -> None:
    """Clears the nodes before the first event of an episode."""
    episode = state.episodes[e]
    _, idle, processors, of_nodes, _, amounts = grid.unused
    for i in range(len(idle)):
        grid.idle[e, i] = idle[i]
        grid.seen_cores[e, progress.FIRST, i] = progress.NONE
        for row in range(3):
            grid.core_ints[e, row, i] = grid.sharing[0][row, i]
        for row in range(2):
            grid.core_floats[e, row, i] = grid.sharing[1][row, i]
    for i in range(processors.shape[1]):
        for row in range(5):
            grid.processors[e, row, i] = processors[row, i]
    for i in range(of_nodes.shape[1]):
        for row in range(9):
            grid.nodes[e, row, i] = of_nodes[row, i]
    for i in range(len(amounts)):
        grid.amounts[e, i] = amounts[i]
    for i in range(grid.rows.shape[1]):
        for row in range(2):
            grid.processor_floats[e, row, i] = grid.sharing[3][row, i]
        for row in range(5):
            grid.seen_processors[e, row, i] = grid.rows[row, i]
    for i in range(grid.work_ints.shape[2]):
        for row in range(8):
            grid.work_ints[e, row, i] = 0
    for own in range(episode.stop - episode.first):
        job = episode.first + own
        grid.job_ints[e, 0, own], grid.job_ints[e, 1, own], grid.job_ints[e, 2, own] = -1, grid.fixed[job], 0
        for row in range(1, 4):
            grid.job_floats[e, row, own] = 0.0
        grid.job_floats[e, 0, own], grid.job_floats[e, 4, own] = grid.bandwidth[job], 1.0
        grid.date[e, own], grid.killed[e, own] = math.nan, False
    for i in range(grid.numbers.shape[1]):
        grid.numbers[e, i] = 0
    grid.numbers[e, LIMIT], grid.entries[e] = FEW, 0


@part_of_kernel
def end_jobs(e: int, trace: Trace, state: State, grid: Grid, batch: bool) -> int:
    """Ends the jobs whose date has come, without `batch` at most one; returns their number."""
    episode, jobs, store, ended = state.episodes[e], grid.date.shape[1], _store(e, grid), 0
    agenda = Heap(grid.dates[e], grid.changes[e], grid.entries[e : e + 1])
    while grid.entries[e] and grid.dates[e, 0] == episode.now:
        own = pop(agenda) % jobs
        # The date of an outdated entry is another one.
        if grid.date[e, own] == episode.now:
            job = episode.first + own
            grid.date[e, own], state.finish[e, own] = math.nan, episode.now
            state.log[e, episode.events] = ~own
            episode.events += 1
            state.ended[e, ended] = job
            ended += 1
            state.running[e] -= 1
            episode.idle += trace.cores[job]
            if grid.settings[MODEL]:
                speeds.finish(_sharing(e, grid), own)
            begin, count = grid.first[e, own], grid.sizes[e, own]
            for i in range(count):
                grid.ids[e, i] = grid.held[e, begin + i]
            nodes.release(store, grid.ids[e, :count], grid.requests.memory[job], grid.bandwidth[job])
            if grid.settings[SHOWN] == NORMAL:
                progress.end(grid.seen_cores[e], grid.ids[e, 0])
            grid.numbers[e, ENDED] = 1
        if not batch:
            break
    return ended


@part_of_kernel
def place(e: int, job: int, policy: int, trace: Trace, state: State, grid: Grid) -> bool:
    """Puts a queued job on cores; returns False if it does not fit."""
    episode, store, wanted = state.episodes[e], _store(e, grid), grid.requests
    if trace.cores[job] > episode.idle:
        return False
    number, cores, gpus, memory = wanted.number[job], wanted.cores[job], wanted.gpus[job], wanted.memory[job]
    bandwidth, ids, count = grid.bandwidth[job], grid.ids[e], 0
    if policy != RANDOM:
        count = nodes.pick(store, policy, number, cores, gpus, memory, bandwidth, nodes.UNLIMITED, ids)
    elif nodes.total_room(store, cores, gpus, memory, nodes.UNLIMITED) >= number:
        random = grid.words[e], grid.order[e], grid.among[e]
        count = pick_at_random(store, random, number, cores, gpus, memory, nodes.UNLIMITED, ids)
    if not count:
        return False
    now, own, begin = episode.now, job - episode.first, grid.numbers[e, HELD]
    nodes.allocate(store, ids[:count], memory, bandwidth)
    grid.first[e, own], grid.sizes[e, own], grid.numbers[e, HELD] = begin, count, begin + count
    slowest = math.inf
    for i in range(count):
        grid.held[e, begin + i] = ids[i]
        slowest = min(slowest, grid.speed[ids[i]])
    state.start[e, own] = now
    state.log[e, episode.events] = own
    episode.events += 1
    episode.idle -= trace.cores[job]
    state.running[e] += 1
    runtime = trace.jobs[job].runtime
    if grid.settings[SHOWN] == NORMAL:
        requested = trace.jobs[job].requested
        progress.begin(grid.seen_cores[e], grid.seen_jobs[e], ids[:count], requested, grid.fixed[job], now)
        grid.new[e, grid.numbers[e, NEW]] = ids[0]
    grid.numbers[e, NEW] += 1
    if grid.settings[MODEL]:
        kept = 0
        for i in range(count):
            if grid.speed[ids[i]] < math.inf:
                ids[kept] = ids[i]
                kept += 1
        speeds.begin(_sharing(e, grid), own, ids[:kept], runtime, 0.0, 1.0)
    else:
        _set_date(e, own, now + (runtime if grid.fixed[job] else runtime / slowest), trace, state, grid)
    return True


@part_of_kernel
def _set_date(e: int, own: int, date: float, trace: Trace, state: State, grid: Grid) -> None:
    """Sets the end of a running job."""
    jobs, numbers = grid.date.shape[1], grid.numbers[e]
    job = state.episodes[e].first + own
    agenda = Heap(grid.dates[e], grid.changes[e], grid.entries[e : e + 1])
    limit = state.start[e, own] + trace.jobs[job].walltime
    killed = reaches_walltime(date, limit, trace.jobs[job].delays)
    grid.killed[e, own] = killed
    if killed:
        date = limit
    grid.date[e, own] = date
    push(agenda, date, numbers[SEQUENCE] * jobs + own)
    numbers[SEQUENCE] += 1
    if grid.entries[e] >= numbers[LIMIT]:
        entries = grid.entries[e]
        grid.entries[e] = 0
        for i in range(entries):
            if grid.date[e, agenda.item[i] % jobs] == agenda.key[i]:
                push(agenda, agenda.key[i], agenda.item[i])
        numbers[LIMIT] = max(FEW, 2 * (grid.entries[e] + 1))


@part_of_kernel
def end_pass(e: int, trace: Trace, state: State, grid: Grid) -> None:
    """Updates the speeds of jobs, and what is observed of them, after the last decision of an instant."""
    numbers, now = grid.numbers[e], state.episodes[e].now
    if not numbers[NEW] and not numbers[ENDED]:
        return
    if grid.settings[SHOWN] == NORMAL:
        progress.update_rates(
            grid.seen_cores[e], grid.seen_jobs[e], grid.new[e, : numbers[NEW]], grid.unused[0], grid.sharing[2],
            grid.seen_processors[e], _nodes(e, grid).free_bandwidth, now,
        )  # fmt: skip
    numbers[NEW] = numbers[ENDED] = 0
    if grid.settings[MODEL]:
        sharing = _sharing(e, grid)
        for i in range(speeds.settle(sharing, grid.settings[MODEL], grid.parameters, now)):
            own, date = speeds.affected(sharing, i)
            if date == -math.inf:
                numbers[STOPPED] = own + 1
            elif not math.isnan(date):
                _set_date(e, own, date, trace, state, grid)


@part_of_kernel
def draw_scores(e: int, trace: Trace, state: State, grid: Grid) -> int:
    """Draws a score for each queued job, in order of submission; returns their number."""
    episode = state.episodes[e]
    count = episode.tail - episode.head
    for i in range(count):
        grid.listed[e, i] = trace.ranked[0, state.queue[e, 0, episode.head + i]]
        grid.scores[e, i] = uniform(grid.words[e])
    return count


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
    return busy_speed(grid.busy[e], _nodes(e, grid).free_bandwidth, grid.rows[progress.LIMIT], gflops, slowed)


@kernel
def busy_speed(busy: Ints, free: Floats, limit: Floats, peak: Floats, slowed: Floats) -> float:
    """Returns the sum of the speeds of busy cores.

    Args:
        busy: (P,) busy cores of each processor.
        free: (P,) free bandwidth in GB/s.
        limit: (P,) free bandwidth below which a processor is oversubscribed, GB/s.
        peak: (P,) speed of a core.
        slowed: (P,) speed of a core of an oversubscribed processor.
    """
    total = 0.0
    for p in range(len(busy)):
        total += busy[p] * (slowed[p] if free[p] < limit[p] else peak[p])
    return total


@part_of_kernel
def _count_busy(e: int, grid: Grid) -> None:
    for p in range(grid.busy.shape[1]):
        grid.busy[e, p] = np.int64(grid.processor[2, p]) - grid.processors[e, 3, p]


@part_of_kernel
def show(e: int, state: State, grid: Grid, seen: Numbers) -> None:
    """Writes what the observation shows of nodes, processors and cores."""
    if grid.settings[SHOWN] == NOTHING:
        return
    count = len(grid.capacity)
    write_shares(grid.amounts[e, :count], grid.capacity, seen[:count])
    if grid.settings[SHOWN] == NORMAL:
        _count_busy(e, grid)
        numbers = seen[count : count + 3 * len(grid.speed)]
        progress.write_cores(
            grid.seen_cores[e], grid.seen_jobs[e], grid.sharing[2], grid.seen_processors[e],
            _nodes(e, grid).free_bandwidth, grid.busy[e], grid.states, state.episodes[e].now, numbers,
        )  # fmt: skip


@kernel
def write_shares(free: Floats, capacity: Floats, out: Numbers) -> None:
    """Writes free amounts as shares of capacities, at least 0; 1 where the capacity is infinite."""
    for i in range(len(free)):
        share = free[i] / capacity[i] if capacity[i] < math.inf else 1.0
        out[i] = share if share > 0.0 else 0.0
