"""The whole replay of a stock agent on nodes: memory, several speeds, core policies by processor, contention.

Instants, passes and their order are those of the engine, as is the order of all sums.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels import nodes, speeds
from hdsim.kernels.compiling import kernel, lean_kernel, part_of_kernel
from hdsim.kernels.heap import Heap, pop, push
from hdsim.kernels.pcg64 import Words, shuffle
from hdsim.kernels.profiles import (
    Holdings,
    JobRequests,
    Releases,
    add_release,
    admit,
    fill_beside,
    fill_exactly,
    head_reservation,
    longest_before,
    remove_release,
    reserve_head,
)
from hdsim.kernels.queue_tree import QueueTree, enter, leave, next_fitting
from hdsim.kernels.rules import Backfilling
from hdsim.kernels.walltime import reaches_walltime

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Random generator, and the order of cores and the chosen ones: (C,) numbers and (C,) False.
Random = tuple[Words, Ints, Bools]

#: Core policy `random`; the others are those of :func:`hdsim.kernels.nodes.pick`.
RANDOM = -6
#: More chunks than a job has.
MANY = 1 << 62
#: Entries of `NodeReplay.rules`: backfilling algorithm, whether a head stays the head, whether there is one pass per
#: instant, core policy, contention model, whether only the number of idle cores decides if a job fits, whether all
#: cores have the same speed.
_BACKFILL, _COMMIT, _BATCH, _POLICY, _MODEL, _COUNTS, _ALIKE = range(7)
#: Entries of `NodeReplay.numbers`: arrived jobs, queued jobs, starts, running jobs, idle cores, committed head, head
#: that has the reservation, number of the dates set so far, most entries of the agenda before outdated ones are
#: removed, number of the changes of idle cores, job whose speed is not above 0.
ARRIVED, QUEUED, STARTED, RUNNING, IDLE, HEAD, RESERVED, SEQUENCE, LIMIT, CHANGES, STOPPED = range(11)
#: Entries of `NodeReplay.dates`: present time, fastest speed, and of the reservation its shadow time, extra cores and
#: margin.
NOW, FASTEST, SHADOW, EXTRA, MARGIN = range(5)
#: Rows of `NodeReplay.ints`: place in the order of the queue, place in the order of candidates, cores, number of the
#: start, job of a start, first range of the cores of a start, whether a started job ends at its walltime, whether a run
#: time equal to the walltime reaches it, whether speeds do not matter.
RANK, PLACE, SIZE, START, JOB, HELD, KILLED, IN_DELAY, AT_PEAK = range(9)
#: Rows of `NodeReplay.floats`: submission, run time at reference speed, walltime, start, finish, end at the present
#: rate and expected end in seconds; NaN where there is none.
SUBMISSION, RUNTIME, WALLTIME, BEGIN, FINISH, DATE, EXPECTED = range(7)
#: Results of `replay`: it has used up its instants, it needs more space, it is at the end, or the contention model has
#: stopped a job.
PAUSED, FULL, OVER, BROKEN = range(4)

#: Number of entries of the agenda up to which outdated ones are kept, as in the engine.
FEW = 256


class Candidates(NamedTuple):
    """Queued jobs in the order of candidates: a tree for each kind of chunks, or one for all kinds if there are many.

    Room and the room beside the reservation are known for each kind, so that the search in its tree passes over jobs
    that are too large.

    Attributes:
        queue: The trees, one behind the other.
        tree: (T + 1,) first node of each tree.
        first: (T + 1,) first entry of each tree in `job`.
        job: (J,) the jobs of the places in each tree, in the order of candidates.
        place: (J,) place of each job in its tree.
        cores: (T,) cores of a chunk of each tree, 0 if it has jobs of several kinds.
        found: (T,) rank in the order of candidates of the next candidate of each tree.
        next: (T,) place in each tree at which the search continues.
    """

    queue: QueueTree
    tree: Ints
    first: Ints
    job: Ints
    place: Ints
    cores: Ints
    found: Ints
    next: Ints


class NodeReplay(NamedTuple):
    """The state of a replay.

    Attributes:
        rules: (7,) rules of the agent and of the engine.
        numbers: (11,) state.
        dates: (5,) state.
        ints: (9, J + 1) integers of jobs.
        floats: (7, J) numbers of jobs.
        jobs: Requests.
        bandwidth: (J,) GB/s per core.
        arriving: (A,) the jobs in order of their arrival, without those that are rejected.
        first: (R,) first core id of each range of cores of a start, ascending for each start.
        last: (R,) last core id.
        ids: (C,) chosen core ids.
        random: Random generator of the core policy `random` and its working memory, None under other policies, so that
            only a run that needs it compiles it.
        speed: (C,) peak speed relative to the reference speed, infinite for GPUs.
        slowest: (N,) the lowest speed of the cores of each node.
        rooms: (2, K) chunks of each kind that fit on all nodes together, and the number of changes when it was counted.
        beside: (2, K) chunks of each kind that may run beside the reservation, and an upper bound; -1: not counted.
        limit: (N,) space for the limits of a job on each node.
        agenda: Dates of running jobs, outdated ones among them, each with its number times J plus the job.
        waiting: Rank of queued jobs, and of some that backfilling has started.
        candidates: Queued jobs in the order of candidates.
        releases: Expected ends of running jobs.
        holdings: Cores of started jobs on nodes, for reservations on nodes.
        free: (R, N) free amounts at the shadow time of the reservation.
        allowed: (1, N) nodes in service.
        nodes: Idle cores, free memory and free bandwidth.
        progress: Progress of running jobs under contention.
        parameters: (R, P) parameters of the contention model.
    """

    rules: Ints
    numbers: Ints
    dates: Floats
    ints: Ints
    floats: Floats
    jobs: JobRequests
    bandwidth: Floats
    arriving: Ints
    first: NDArray[np.int32]
    last: NDArray[np.int32]
    ids: Ints
    random: Random | None
    speed: Floats
    slowest: Floats
    rooms: Ints
    beside: Ints
    limit: Ints
    agenda: Heap
    waiting: Heap
    candidates: Candidates
    releases: Releases
    holdings: Holdings
    free: Floats
    allowed: Bools
    nodes: nodes.State
    progress: speeds.State
    parameters: Floats


@lean_kernel
def replay(state: NodeReplay, instants: int) -> int:
    """Simulates at most a number of instants."""
    rules, numbers, dates, ints, floats = state.rules, state.numbers, state.dates, state.ints, state.floats
    jobs, bandwidth, arriving, ids = state.jobs, state.bandwidth, state.arriving, state.ids
    agenda, waiting, rooms, beside, limit = state.agenda, state.waiting, state.rooms, state.beside, state.limit
    releases, holdings, free, allowed = state.releases, state.holdings, state.free, state.allowed
    candidates = state.candidates
    first, last, progress, store = state.first, state.last, state.progress, state.nodes
    batch, commit, backfill = rules[_BATCH] != 0, rules[_COMMIT] != 0, rules[_BACKFILL]
    model, counts = rules[_MODEL], rules[_COUNTS] != 0
    alike, bounded = rules[_ALIKE] != 0, backfill == Backfilling.EASY and not counts
    for _ in range(instants):
        # A pass takes at most one range for each core.
        if ints[HELD, numbers[STARTED]] + len(ids) > len(first):
            return FULL
        if backfill != Backfilling.NONE and not counts and holdings.length[0] + len(ids) > len(holdings.node):
            return FULL
        arrived = numbers[ARRIVED]
        arrival = floats[SUBMISSION, arriving[arrived]] if arrived < len(arriving) else math.inf
        if arrival == math.inf and not numbers[RUNNING]:
            return OVER
        now = min(arrival, agenda.key[0]) if agenda.length[0] else arrival
        dates[NOW] = now

        ended = False
        while agenda.length[0] and agenda.key[0] == now and (batch or arrival > now):
            job = pop(agenda) % floats.shape[1]
            # The date of an outdated entry is another one.
            if floats[DATE, job] == now:
                ended = True
                floats[FINISH, job], floats[DATE, job] = now, math.nan
                numbers[RUNNING] -= 1
                numbers[IDLE] += ints[SIZE, job]
                numbers[CHANGES] += 1
                if model:
                    speeds.finish(progress, job)
                start = ints[START, job]
                count = _list(first, last, ints[HELD, start], ints[HELD, start + 1], ids)
                nodes.release(store, ids[:count], jobs.memory[job], bandwidth[job])
                if backfill != Backfilling.NONE:
                    remove_release(releases, floats[EXPECTED, job], job)
                    numbers[RESERVED] = -1
            if not batch:
                break

        while arrived < len(arriving) and floats[SUBMISSION, arriving[arrived]] == now:
            job = arriving[arrived]
            arrived += 1
            numbers[QUEUED] += 1
            push(waiting, float(ints[RANK, job]), job)
            if backfill != Backfilling.NONE:
                tree = jobs.kind[job] if len(candidates.cores) > 1 else 0
                enter(_tree(candidates, tree), candidates.place[job], float(ints[SIZE, job]), jobs.time[job])
            if not batch:
                break
        submitted = arriving[numbers[ARRIVED]] if arrived > numbers[ARRIVED] else floats.shape[1]
        if not ended and arrived == numbers[ARRIVED]:
            continue
        numbers[ARRIVED] = arrived

        head, place, anew, shadow, longest, extra = -1, 0, True, 0.0, 0.0, 0.0
        if backfill == Backfilling.GREEDY:
            # There is no head: while no job ends, blocked jobs stay blocked, and nothing is reserved.
            head, anew, shadow, longest, extra = floats.shape[1], ended, math.inf, math.inf, math.inf
            candidates.found[:], candidates.next[:] = -1, 0
        while numbers[QUEUED] and (numbers[IDLE] or (commit and head < 0)):
            if head < 0:
                job = numbers[HEAD]
                while job < 0:
                    job = waiting.item[0]
                    if not math.isnan(floats[BEGIN, job]):
                        pop(waiting)
                        job = -1
            else:
                job = _next_candidate(candidates, ints, numbers, rooms, beside, place, longest, extra)
                if job < 0:
                    break
                place = ints[PLACE, job] + 1
                # While no job ends and the head is the same, blocked jobs stay blocked where equal cores are counted.
                if job == head or not (anew or job >= submitted):
                    continue
                late = now + jobs.time[job] / (1.0 if ints[AT_PEAK, job] else dates[FASTEST]) > shadow
                if bounded and late:
                    if not _has_room(jobs, store, job, rooms, numbers[CHANGES]):
                        continue
                    if 0 <= beside[1, jobs.kind[job]] < jobs.number[job]:
                        continue
                    if not _may_stay(store, free, allowed, jobs, head, dates[MARGIN], job, beside, limit):
                        continue
            count, size = 0, ints[SIZE, job]
            if size <= numbers[IDLE] and _has_room(jobs, store, job, rooms, numbers[CHANGES]):
                wanted = jobs.number[job], jobs.cores[job], jobs.gpus[job], jobs.memory[job]
                count = _pick(store, rules[_POLICY], state.random, *wanted, bandwidth[job], nodes.UNLIMITED, ids)
            if not count:
                if head >= 0:
                    continue
                if commit:
                    numbers[HEAD] = job
                if backfill != Backfilling.EASY or not numbers[IDLE]:
                    break
                head = job
                stale = numbers[RESERVED] != head or (releases.length[0] > 0 and releases.end[0] <= now)
                anew = stale or not (counts and alike)
                if stale:
                    numbers[RESERVED] = head
                    if counts:
                        dates[SHADOW], dates[EXTRA] = head_reservation(releases, now, float(numbers[IDLE]), float(size))
                    else:
                        _copy_free(store, free)
                        dates[SHADOW], dates[MARGIN] = reserve_head(free, allowed, jobs, releases, holdings, head, now)
                        # An upper bound: admission also depends on the nodes of the cores.
                        dates[EXTRA] = _idle(free) - size
                        beside[:] = -1
                elif submitted == floats.shape[1]:
                    break
                shadow, extra = dates[SHADOW], dates[EXTRA]
                # An upper bound; the estimates below decide.
                longest = longest_before(shadow, now, dates[FASTEST])
                candidates.found[:], candidates.next[:] = -1, 0
                continue

            slowest = _slowest(state.speed, ids[:count])
            end = now + (jobs.time[job] if ints[AT_PEAK, job] else jobs.time[job] / slowest)
            if backfill != Backfilling.NONE and not counts:
                _hold(store, holdings, job, ids[:count])
            if head < 0:
                numbers[HEAD] = numbers[RESERVED] = -1
            elif backfill == Backfilling.EASY and end > shadow:
                admitted = _admit(counts, dates, free, allowed, jobs, holdings, head, job, size)
                if not admitted and not late and not ints[AT_PEAK, job]:
                    # Nodes all of whose cores are fast enough for an end by the shadow time.
                    for node in range(len(limit)):
                        limit[node] = size if now + jobs.time[job] / state.slowest[node] <= shadow else 0
                    wanted = jobs.number[job], jobs.cores[job], jobs.gpus[job], jobs.memory[job]
                    count = _pick(store, rules[_POLICY], state.random, *wanted, bandwidth[job], limit, ids)
                    if count:
                        admitted, slowest = True, _slowest(state.speed, ids[:count])
                        end = now + jobs.time[job] / slowest
                        if not counts:
                            _hold(store, holdings, job, ids[:count])
                if not admitted and not counts:
                    # Nodes where the head keeps its room.
                    margin = dates[MARGIN]
                    if _limit(store, free, allowed, jobs, head, margin, job, limit) >= jobs.number[job]:
                        wanted = jobs.number[job], jobs.cores[job], jobs.gpus[job], jobs.memory[job]
                        count = _pick(store, rules[_POLICY], state.random, *wanted, bandwidth[job], limit, ids)
                        slowest = _slowest(state.speed, ids[:count])
                        end = now + (jobs.time[job] if ints[AT_PEAK, job] else jobs.time[job] / slowest)
                        _hold(store, holdings, job, ids[:count])
                        admitted = _admit(counts, dates, free, allowed, jobs, holdings, head, job, size)
                if not admitted:
                    continue

            chosen = ids[:count]
            if bounded:
                beside[:] = -1
            start = numbers[STARTED]
            numbers[STARTED] = start + 1
            numbers[QUEUED] -= 1
            numbers[RUNNING] += 1
            numbers[IDLE] -= size
            numbers[CHANGES] += 1
            ints[JOB, start], ints[START, job], floats[BEGIN, job] = job, start, now
            ints[HELD, start + 1] = _record(first, last, ints[HELD, start], chosen)
            nodes.allocate(store, chosen, jobs.memory[job], bandwidth[job])
            if backfill != Backfilling.NONE:
                leave(_tree(candidates, jobs.kind[job] if len(candidates.cores) > 1 else 0), candidates.place[job])
                floats[EXPECTED, job] = end
                add_release(releases, end, job, float(size))
                if not counts:
                    holdings.length[0] = holdings.last[job]
            if model:
                kept = 0
                for core in chosen:
                    if state.speed[core] < math.inf:
                        chosen[kept] = core
                        kept += 1
                speeds.begin(progress, job, chosen[:kept], floats[RUNTIME, job], 0.0, 1.0)
            else:
                duration = floats[RUNTIME, job] if ints[AT_PEAK, job] else floats[RUNTIME, job] / slowest
                _set_date(numbers, ints, floats, agenda, job, now + duration)

        if model:
            for i in range(speeds.settle(progress, model, state.parameters, now)):
                job, date = speeds.affected(progress, i)
                if date == -math.inf:
                    numbers[STOPPED] = job
                    return BROKEN
                if not math.isnan(date):
                    _set_date(numbers, ints, floats, agenda, job, date)
    return PAUSED


@lean_kernel
def _set_date(numbers: Ints, ints: Ints, floats: Floats, agenda: Heap, job: int, date: float) -> None:
    """Sets the end of a running job."""
    jobs, limit = floats.shape[1], floats[BEGIN, job] + floats[WALLTIME, job]
    killed = reaches_walltime(date, limit, ints[IN_DELAY, job] != 0)
    ints[KILLED, job] = killed
    if killed:
        date = limit
    floats[DATE, job] = date
    push(agenda, date, numbers[SEQUENCE] * jobs + job)
    numbers[SEQUENCE] += 1
    if agenda.length[0] >= numbers[LIMIT]:
        entries = agenda.length[0]
        agenda.length[0] = 0
        for i in range(entries):
            if floats[DATE, agenda.item[i] % jobs] == agenda.key[i]:
                push(agenda, agenda.key[i], agenda.item[i])
        numbers[LIMIT] = max(FEW, 2 * (agenda.length[0] + 1))


@part_of_kernel
def _tree(candidates: Candidates, tree: int) -> QueueTree:
    """Returns one of the trees."""
    begin, end = candidates.tree[tree], candidates.tree[tree + 1]
    return QueueTree(candidates.queue.size[begin:end], candidates.queue.requested[begin:end])


@part_of_kernel
def _next_candidate(
    candidates: Candidates,
    ints: Ints,
    numbers: Ints,
    rooms: Ints,
    beside: Ints,
    place: int,
    longest: float,
    extra: float,
) -> int:
    """Returns the first candidate from a place on that may be short or narrow enough, -1 if there is none.

    Args:
        candidates: The queued jobs.
        ints: See `NodeReplay`, also for the next three.
        numbers: See there.
        rooms: See there.
        beside: See there.
        place: Rank in the order of candidates.
        longest: Requested time in seconds above which a job may not end before the shadow time.
        extra: Cores of a job that may run beyond it.
    """
    best, job = MANY, -1
    for tree in range(len(candidates.found)):
        if candidates.found[tree] < place:
            cores, widest, beyond = float(candidates.cores[tree]), float(numbers[IDLE]), extra
            if cores:
                if rooms[1, tree] == numbers[CHANGES]:
                    widest = min(widest, rooms[0, tree] * cores)
                if beside[1, tree] >= 0:
                    beyond = min(beyond, beside[1, tree] * cores)
            begin = candidates.next[tree]
            begin = next_fitting(_tree(candidates, tree), begin, 0.0, widest, math.inf, longest, -1.0, beyond)
            candidates.found[tree] = MANY
            if begin >= 0:
                candidates.next[tree] = begin + 1
                candidates.found[tree] = ints[PLACE, candidates.job[candidates.first[tree] + begin]]
        if candidates.found[tree] < best:
            best = candidates.found[tree]
            job = candidates.job[candidates.first[tree] + candidates.next[tree] - 1]
    return job


@part_of_kernel
def _slowest(speed: Floats, ids: Ints) -> float:
    """Returns the lowest speed of some cores."""
    slowest = math.inf
    for core in ids:
        slowest = min(slowest, speed[core])
    return slowest


@part_of_kernel
def _admit(
    counts: bool,
    dates: Floats,
    free: Floats,
    allowed: Bools,
    jobs: JobRequests,
    holdings: Holdings,
    head: int,
    job: int,
    size: int,
) -> bool:
    """Reserves the cores of a job that ends after the shadow time; False if the head does not fit beside it."""
    if counts:
        if size > dates[EXTRA]:
            return False
    else:
        held = slice(holdings.first[job], holdings.last[job])
        on, taken = holdings.node[held], holdings.cores[held]
        margin = admit(free, allowed, jobs, head, dates[MARGIN], job, on, taken)
        if margin < 0:
            return False
        dates[MARGIN] = margin
    dates[EXTRA] -= size
    return True


@part_of_kernel
def _count_rooms(store: nodes.State, jobs: JobRequests, job: int) -> None:
    """Counts the chunks of a job that fit on each node now, in `Nodes.rooms`."""
    nodes.total_room(store, jobs.cores[job], jobs.gpus[job], jobs.memory[job], nodes.UNLIMITED)


@part_of_kernel
def _may_stay(
    store: nodes.State,
    free: Floats,
    allowed: Bools,
    jobs: JobRequests,
    head: int,
    margin: float,
    job: int,
    beside: Ints,
    limit: Ints,
) -> bool:
    """Returns whether there are nodes for a job on which it may run beyond the shadow time."""
    kind, number, room = jobs.kind[job], jobs.number[job], nodes.nodes_of(store).rooms
    if beside[0, kind] < 0:
        _count_rooms(store, jobs, job)
        beside[0, kind], beside[1, kind] = fill_beside(free, allowed, jobs, head, margin, job, room, MANY, limit)
    if beside[0, kind] < number <= beside[1, kind]:
        _count_rooms(store, jobs, job)
        beside[:, kind] = fill_exactly(free, allowed, jobs, head, margin, job, room, MANY, limit)
    return number <= beside[0, kind]


@part_of_kernel
def _limit(
    store: nodes.State, free: Floats, allowed: Bools, jobs: JobRequests, head: int, margin: float, job: int, limit: Ints
) -> int:
    """Limits the chunks of a job on each node such that the head keeps its room; returns the sum of the limits."""
    room, number = nodes.nodes_of(store).rooms, jobs.number[job]
    _count_rooms(store, jobs, job)
    least, most = fill_beside(free, allowed, jobs, head, margin, job, room, number, limit)
    if least < number <= most:
        least = fill_exactly(free, allowed, jobs, head, margin, job, room, number, limit)
    return least


@part_of_kernel
def _pick(
    store: nodes.State,
    policy: int,
    random: Random | None,
    number: int,
    cores: int,
    gpus: int,
    memory: float,
    bandwidth: float,
    limit: Ints,
    ids: Ints,
) -> int:
    """Chooses cores for a job; see :func:`hdsim.kernels.nodes.pick`."""
    if random is None:
        return nodes.pick(store, policy, number, cores, gpus, memory, bandwidth, limit, ids)
    if len(limit) and nodes.total_room(store, cores, gpus, memory, limit) < number:
        return 0
    return pick_at_random(store, random, number, cores, gpus, memory, limit, ids)


@part_of_kernel
def pick_at_random(
    store: nodes.State, random: Random, number: int, cores: int, gpus: int, memory: float, limit: Ints, ids: Ints
) -> int:
    """Chooses cores for a job that fits within limits in a random order; see :func:`hdsim.kernels.nodes.pick`."""
    (words, order, among), state, idle = random, nodes.nodes_of(store), 0
    for processor in range(len(state.processor_idle)):
        left = 0 if state.is_gpu[processor] else state.processor_idle[processor]
        core = state.first_core[processor]
        while left:
            if state.idle[core]:
                order[idle] = core
                idle += 1
                left -= 1
            core += 1
    shuffle(words, order[:idle])
    count = nodes.pick_listed(store, order[:idle], number, cores, gpus, memory, limit, among, ids)
    for core in ids[:count]:
        among[core] = False
    return count


@part_of_kernel
def _has_room(jobs: JobRequests, store: nodes.State, job: int, rooms: Ints, changes: int) -> bool:
    """Returns whether the chunks of a job fit."""
    kind = jobs.kind[job]
    if rooms[1, kind] != changes:
        wanted = jobs.cores[job], jobs.gpus[job], jobs.memory[job]
        rooms[0, kind] = nodes.total_room(store, *wanted, nodes.UNLIMITED)
        rooms[1, kind] = changes
    return rooms[0, kind] >= jobs.number[job]


@part_of_kernel
def _record(first: NDArray[np.int32], last: NDArray[np.int32], place: int, ids: Ints) -> int:
    """Writes the ranges of ascending ids from a place on and returns the place behind them."""
    for i in range(len(ids)):
        if i == 0 or ids[i] != ids[i - 1] + 1:
            first[place] = ids[i]
            place += 1
        last[place - 1] = ids[i]
    return place


@part_of_kernel
def _list(first: NDArray[np.int32], last: NDArray[np.int32], begin: int, end: int, ids: Ints) -> int:
    """Writes the ids of some ranges and returns their number."""
    count = 0
    for i in range(begin, end):
        for core in range(first[i], last[i] + 1):
            ids[count] = core
            count += 1
    return count


@part_of_kernel
def _hold(store: nodes.State, holdings: Holdings, job: int, ids: Ints) -> None:
    """Writes the cores of a job on nodes behind those in use."""
    state = nodes.nodes_of(store)
    place = holdings.first[job] = holdings.length[0]
    for core in ids:
        processor = state.core_processor[core]
        node = state.processor_node[processor]
        if state.is_gpu[processor]:
            continue
        if place == holdings.first[job] or holdings.node[place - 1] != node:
            holdings.node[place], holdings.cores[place] = node, 0
            place += 1
        holdings.cores[place - 1] += 1
    holdings.last[job] = place


@part_of_kernel
def _copy_free(store: nodes.State, free: Floats) -> None:
    """Copies the free amounts of nodes."""
    state = nodes.nodes_of(store)
    for node in range(free.shape[1]):
        free[0, node] = state.node_idle[node]
        free[1, node] = state.node_memory[node]
        if len(free) > 2:
            free[2, node], free[3, node], free[4, node] = state.node_gpus[node], math.inf, 0.0


@kernel
def _idle(free: Floats) -> float:
    """Returns the idle cores of all nodes."""
    total = 0.0
    for node in range(free.shape[1]):
        total += max(free[0, node], 0.0)
    return total
