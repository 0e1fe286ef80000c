"""Cores of nodes as a part of the machine: memory, GPUs, several speeds, core policies by processor, and reservations.

A job that may start has its cores in `OnNodes.ids` until it does.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.kernels import nodes as cores
from hdsim.cluster.kernels.chunks import Holdings, JobRequests
from hdsim.cluster.kernels.nodes import Random
from hdsim.kernels.compiling import kernel, part_of_kernel
from hdsim.scheduling.kernels.profiles import (
    admit,
    fill_beside,
    fill_exactly,
    head_reservation,
    is_overdue,
    longest_before,
    reserve_head,
)
from hdsim.scheduling.learned.queue import ScoredQueue
from hdsim.scheduling.machine.queue_tree import QueueTree, enter, leave, next_fitting
from hdsim.scheduling.machine.ranked_queue import RankedQueue
from hdsim.scheduling.machine.state import Bools, Floats, Ints, Machine
from hdsim.scheduling.rules import Backfilling

#: More chunks than a job has.
MANY = 1 << 62
#: The present of the nodes.
NODES_STATE = np.dtype(
    [
        ("changes", "i8"),  # starts and ends so far
        ("picked", "i8"),  # cores and GPUs in `OnNodes.ids`
        ("slowest", "f8"),  # speed of the slowest of them
        ("ended", "?"),  # a job has ended since the last pass
        ("anew", "?"),  # jobs that have been refused may start now
        ("first_new", "i8"),  # first job that has arrived since the last pass
        ("margin", "f8"),  # chunks of the head that fit beside it at the shadow time
        ("passes", "i8"),  # searches for candidates so far
        ("ranges", "i8"),  # entries of `OnNodes.first` in use
    ],
    align=True,
)


class NodeRules(NamedTuple):
    """Constants of a replay, as plain numbers.

    Attributes:
        policy: Core policy, see :func:`hdsim.cluster.kernels.nodes.pick`.
        counts: Only the number of idle cores decides whether a job fits.
        alike: All cores have the same speed.
        bounded: Whether reservations are on nodes.
        holds: Cores of started jobs are noted in `OnNodes.holdings`.
        fastest: Fastest speed of a core.
    """

    policy: int
    counts: bool
    alike: bool
    bounded: bool
    holds: bool
    fastest: float


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


class OnNodes(NamedTuple):
    """Cores of nodes, J jobs, C cores, N nodes.

    Attributes:
        rules: Constants of the replay.
        state: (1,) of type `NODES_STATE`.
        store: Idle cores, free memory and free bandwidth.
        jobs: Requests.
        bandwidth: (J,) GB/s per core.
        expected: (J,) expected end of a running job in seconds.
        speed: (C,) peak speed relative to the reference speed, infinite for GPUs.
        slowest: (N,) the lowest speed of the cores of each node.
        ids: (C,) chosen cores and GPUs, ascending.
        limit: (N,) space for the limits of a job on each node.
        random: Random generator of the core policy `random` and its working memory, None under other policies, so that
            only a run that needs it compiles it.
        begin: (J,) first range of the cores of a started job, in the next two.
        end: (J,) the range behind the last one.
        first: (R,) first core id of each range, in order of starts and then ascending.
        last: (R,) last core id.
        holdings: Cores of started jobs on nodes.
        candidates: Queued jobs in static orders, with backfilling.
        tried: (J,) last search for candidates in which a job was tried, for the order ``learned``.
        rooms: (2, K) chunks of each kind that fit on all nodes together, and the number of changes when it was counted.
        beside: (2, K) chunks of each kind that may run beside the reservation, and an upper bound; -1: not counted.
        free: (R, N) free amounts at the shadow time of the reservation.
        allowed: (1, N) nodes in service.
    """

    rules: NodeRules
    state: Any
    store: cores.State
    jobs: JobRequests
    bandwidth: Floats
    expected: Floats
    speed: Floats
    slowest: Floats
    ids: Ints
    limit: Ints
    random: Random | None
    begin: Ints
    end: Ints
    first: NDArray[np.int32]
    last: NDArray[np.int32]
    holdings: Holdings
    candidates: Candidates
    tried: Ints
    rooms: Ints
    beside: Ints
    free: Floats
    allowed: Bools


@part_of_kernel
def lacks_space(nodes: OnNodes) -> bool:
    """Returns whether a pass might need more space for cores than there is: a range and a node for each core."""
    most = len(nodes.ids)
    if nodes.state[0].ranges + most > len(nodes.first):
        return True
    return nodes.rules.holds and nodes.holdings.length[0] + most > len(nodes.holdings.node)


# Choice of cores.


@part_of_kernel
def is_chosen(machine: Machine, nodes: OnNodes, job: int) -> bool:
    """Chooses cores for a job, and notes them where reservations are on nodes; returns False if it does not fit."""
    if machine.jobs.size[job] > machine.clock[0].idle or not _has_room(nodes, job):
        return False
    if not choose(nodes, job, nodes.limit[:0]):
        return False
    if nodes.rules.bounded:
        note_held(nodes, job)
    return True


@part_of_kernel
def choose(nodes: OnNodes, job: int, limit: Ints) -> bool:
    """Chooses cores for a job within limits of its chunks on each node; returns False if it does not fit."""
    state = nodes.state[0]
    count = _pick(nodes, nodes.random, job, limit)
    slowest = math.inf
    for core in nodes.ids[:count]:
        slowest = min(slowest, nodes.speed[core])
    state.picked, state.slowest = count, slowest
    return count > 0


@part_of_kernel
def _pick(nodes: OnNodes, random: Random | None, job: int, limit: Ints) -> int:
    """Chooses cores for a job; see :func:`hdsim.cluster.kernels.nodes.pick`."""
    jobs, store, ids = nodes.jobs, nodes.store, nodes.ids
    number, chunk, gpus, memory = jobs.number[job], jobs.cores[job], jobs.gpus[job], jobs.memory[job]
    if random is None:
        return cores.pick(store, nodes.rules.policy, number, chunk, gpus, memory, nodes.bandwidth[job], limit, ids)
    if len(limit) and cores.total_room(store, chunk, gpus, memory, limit) < number:
        return 0
    return cores.pick_at_random(store, random, number, chunk, gpus, memory, limit, ids)


@part_of_kernel
def _has_room(nodes: OnNodes, job: int) -> bool:
    """Returns whether the chunks of a job fit."""
    rooms, kind = nodes.rooms, nodes.jobs.kind[job]
    if rooms[1, kind] != nodes.state[0].changes:
        rooms[0, kind], rooms[1, kind] = _count_rooms(nodes, job), nodes.state[0].changes
    return rooms[0, kind] >= nodes.jobs.number[job]


@part_of_kernel
def _count_rooms(nodes: OnNodes, job: int) -> int:
    """Counts the chunks of a job that fit on each node now, in `Nodes.rooms`; returns their sum."""
    jobs = nodes.jobs
    return cores.total_room(nodes.store, jobs.cores[job], jobs.gpus[job], jobs.memory[job], nodes.limit[:0])


@part_of_kernel
def speed_of(nodes: OnNodes, job: int) -> float:
    """Returns the speed at which a job runs on the chosen cores, relative to the reference speed."""
    return 1.0 if nodes.jobs.fixed[job] else nodes.state[0].slowest


# Starts and ends.


@part_of_kernel
def take_cores(nodes: OnNodes, job: int) -> None:
    """Allocates the chosen cores to a job that starts."""
    state, first, last = nodes.state[0], nodes.first, nodes.last
    ids, place = nodes.ids[: state.picked], state.ranges
    nodes.begin[job] = place
    for i in range(len(ids)):
        if i == 0 or ids[i] != ids[i - 1] + 1:
            first[place] = ids[i]
            place += 1
        last[place - 1] = ids[i]
    nodes.end[job] = state.ranges = place
    cores.allocate(nodes.store, ids, nodes.jobs.memory[job], nodes.bandwidth[job])
    if nodes.rules.holds:
        nodes.holdings.length[0] = nodes.holdings.last[job]
    if nodes.rules.bounded:
        nodes.beside[:] = -1
    state.changes += 1


@part_of_kernel
def release_cores(nodes: OnNodes, job: int) -> None:
    """Releases the cores of a job that ends."""
    state, ids, count = nodes.state[0], nodes.ids, 0
    for i in range(nodes.begin[job], nodes.end[job]):
        for core in range(nodes.first[i], nodes.last[i] + 1):
            ids[count] = core
            count += 1
    cores.release(nodes.store, ids[:count], nodes.jobs.memory[job], nodes.bandwidth[job])
    state.changes += 1
    state.ended = True


@part_of_kernel
def note_held(nodes: OnNodes, job: int) -> None:
    """Notes the chosen cores on nodes, behind those in use."""
    store, holdings = cores.nodes_of(nodes.store), nodes.holdings
    place = holdings.first[job] = holdings.length[0]
    for core in nodes.ids[: nodes.state[0].picked]:
        processor = store.core_processor[core]
        node = store.processor_node[processor]
        if store.is_gpu[processor]:
            continue
        if place == holdings.first[job] or holdings.node[place - 1] != node:
            holdings.node[place], holdings.cores[place] = node, 0
            place += 1
        holdings.cores[place - 1] += 1
    holdings.last[job] = place


# Candidates.


@part_of_kernel
def enter_candidate(machine: Machine, nodes: OnNodes, job: int) -> None:
    """Adds a job that has arrived."""
    candidates = nodes.candidates
    tree = _tree(candidates, _tree_of(nodes, job))
    enter(tree, candidates.place[job], float(machine.jobs.size[job]), machine.jobs.requested[job])


@part_of_kernel
def leave_candidate(nodes: OnNodes, job: int) -> None:
    """Removes a job that starts."""
    leave(_tree(nodes.candidates, _tree_of(nodes, job)), nodes.candidates.place[job])


@part_of_kernel
def _tree_of(nodes: OnNodes, job: int) -> int:
    """Returns the tree of a job."""
    return nodes.jobs.kind[job] if len(nodes.candidates.cores) > 1 else 0


@part_of_kernel
def _tree(candidates: Candidates, tree: int) -> QueueTree:
    """Returns one of the trees."""
    begin, end = candidates.tree[tree], candidates.tree[tree + 1]
    return QueueTree(candidates.queue.size[begin:end], candidates.queue.requested[begin:end])


@part_of_kernel
def begin_search(nodes: OnNodes) -> None:
    """Begins a search for candidates."""
    nodes.state[0].passes += 1
    nodes.candidates.found[:], nodes.candidates.next[:] = -1, 0


@part_of_kernel
def next_ranked_on_nodes(machine: Machine, queue: RankedQueue, nodes: OnNodes, place: int) -> int:
    """Returns the first place from one on of a candidate that may start, -1 for none."""
    while True:
        job = _next_candidate(machine, queue, nodes, place)
        if job < 0:
            return -1
        place = queue.place[job]
        if is_chosen_beside(machine, nodes, job):
            return place
        place += 1


@part_of_kernel
def next_scored_on_nodes(machine: Machine, queue: ScoredQueue, nodes: OnNodes) -> int:
    """Returns the untried candidate of the lowest score that may start, -1 for none."""
    clock, jobs, this = machine.clock[0], machine.jobs, nodes.state[0].passes
    while True:
        best = -1
        for i in range(clock.queued):
            job = queue.job[i]
            if nodes.tried[job] == this or jobs.size[job] > clock.idle:
                continue
            if jobs.requested[job] > clock.longest and jobs.size[job] > clock.widest:
                continue
            if best < 0 or queue.score[i] < queue.score[best]:
                best = i
        if best < 0:
            return -1
        job = queue.job[best]
        nodes.tried[job] = this
        if is_chosen_beside(machine, nodes, job):
            return job


@part_of_kernel
def _next_candidate(machine: Machine, queue: RankedQueue, nodes: OnNodes, place: int) -> int:
    """Returns the first candidate from a place on that may be short or narrow enough, -1 if there is none."""
    clock, candidates, rooms, beside = machine.clock[0], nodes.candidates, nodes.rooms, nodes.beside
    best, job, changes = MANY, -1, nodes.state[0].changes
    for tree in range(len(candidates.found)):
        if candidates.found[tree] < place:
            chunk, widest, beyond = float(candidates.cores[tree]), float(clock.idle), clock.widest
            if chunk:
                if rooms[1, tree] == changes:
                    widest = min(widest, rooms[0, tree] * chunk)
                if beside[1, tree] >= 0:
                    beyond = min(beyond, beside[1, tree] * chunk)
            begin = candidates.next[tree]
            begin = next_fitting(_tree(candidates, tree), begin, 0.0, widest, math.inf, clock.longest, -1.0, beyond)
            candidates.found[tree] = MANY
            if begin >= 0:
                candidates.next[tree] = begin + 1
                candidates.found[tree] = queue.place[candidates.job[candidates.first[tree] + begin]]
        if candidates.found[tree] < best:
            best = candidates.found[tree]
            job = candidates.job[candidates.first[tree] + candidates.next[tree] - 1]
    return job


# The reservation of the head.


@part_of_kernel
def reserve_on_nodes(machine: Machine, nodes: OnNodes, head: int) -> bool:
    """Sets what may start beside the reservation of a head that does not fit; returns whether it is a new one."""
    clock, rules, state, releases = machine.clock[0], nodes.rules, nodes.state[0], machine.releases
    renewed = clock.reserved != head or is_overdue(releases, clock.now)
    # While no job ends and the head is the same, blocked jobs stay blocked where equal cores are counted.
    state.anew = renewed or not (rules.counts and rules.alike)
    if renewed:
        clock.reserved, size = head, float(machine.jobs.size[head])
        if rules.counts:
            clock.shadow, clock.extra = head_reservation(releases, clock.now, float(clock.idle), size)
        else:
            copy_free(nodes)
            clock.shadow, state.margin = reserve_head(
                nodes.free, nodes.allowed, nodes.jobs, releases, nodes.holdings, head, clock.now
            )
            # An upper bound: admission also depends on the nodes of the cores.
            clock.extra = _idle(nodes.free) - size
            nodes.beside[:] = -1
    # An upper bound; the estimates of `is_chosen_beside` decide.
    clock.longest = longest_before(clock.shadow, clock.now, rules.fastest)
    clock.widest = clock.extra
    begin_search(nodes)
    return renewed


@part_of_kernel
def is_chosen_beside(machine: Machine, nodes: OnNodes, job: int) -> bool:
    """Chooses cores for a candidate on which it does not delay the head, and reserves them beside the head.

    These are the first choice of the core policy; else its choice among nodes that are fast enough for an end by the
    shadow time; else among nodes where the head keeps its room.
    """
    clock, rules, state, jobs = machine.clock[0], nodes.rules, nodes.state[0], nodes.jobs
    now, shadow, time, fixed = clock.now, clock.shadow, jobs.time[job], jobs.fixed[job]
    # A refused job stays refused, unless something has changed.
    if job == clock.reserved or not (state.anew or job >= state.first_new):
        return False
    late = now + time / (1.0 if fixed else rules.fastest) > shadow
    if rules.bounded and late:
        if not _has_room(nodes, job):
            return False
        if 0 <= nodes.beside[1, jobs.kind[job]] < jobs.number[job]:
            return False
        if not _may_stay(nodes, clock.reserved, job):
            return False
    if not is_chosen(machine, nodes, job):
        return False
    if machine.rules.backfill != Backfilling.EASY or now + time / speed_of(nodes, job) <= shadow:
        return True
    if _is_admitted(machine, nodes, job):
        return True
    if not late and not fixed:
        for node in range(len(nodes.limit)):
            nodes.limit[node] = machine.jobs.size[job] if now + time / nodes.slowest[node] <= shadow else 0
        if choose(nodes, job, nodes.limit):
            if rules.bounded:
                note_held(nodes, job)
            return True
    if rules.bounded and _limit(nodes, clock.reserved, job) >= jobs.number[job]:
        choose(nodes, job, nodes.limit)
        note_held(nodes, job)
        return _is_admitted(machine, nodes, job)
    return False


@part_of_kernel
def _is_admitted(machine: Machine, nodes: OnNodes, job: int) -> bool:
    """Reserves the chosen cores for a job that ends after the shadow time; False if the head does not fit beside it."""
    clock, state, holdings, size = machine.clock[0], nodes.state[0], nodes.holdings, machine.jobs.size[job]
    if nodes.rules.counts:
        if size > clock.extra:
            return False
    else:
        held = slice(holdings.first[job], holdings.last[job])
        on, taken = holdings.node[held], holdings.cores[held]
        margin = admit(nodes.free, nodes.allowed, nodes.jobs, clock.reserved, state.margin, job, on, taken)
        if margin < 0:
            return False
        state.margin = margin
    clock.extra -= size
    return True


@part_of_kernel
def _may_stay(nodes: OnNodes, head: int, job: int) -> bool:
    """Returns whether there are nodes for a job on which it may run beyond the shadow time."""
    jobs, beside, free, allowed, limit = nodes.jobs, nodes.beside, nodes.free, nodes.allowed, nodes.limit
    kind, number, room, margin = (
        jobs.kind[job],
        jobs.number[job],
        cores.nodes_of(nodes.store).rooms,
        nodes.state[0].margin,
    )
    if beside[0, kind] < 0:
        _count_rooms(nodes, job)
        beside[0, kind], beside[1, kind] = fill_beside(free, allowed, jobs, head, margin, job, room, MANY, limit)
    if beside[0, kind] < number <= beside[1, kind]:
        _count_rooms(nodes, job)
        beside[:, kind] = fill_exactly(free, allowed, jobs, head, margin, job, room, MANY, limit)
    return number <= beside[0, kind]


@part_of_kernel
def _limit(nodes: OnNodes, head: int, job: int) -> int:
    """Limits the chunks of a job on each node such that the head keeps its room; returns the sum of the limits."""
    jobs, free, allowed, limit = nodes.jobs, nodes.free, nodes.allowed, nodes.limit
    number, room, margin = jobs.number[job], cores.nodes_of(nodes.store).rooms, nodes.state[0].margin
    _count_rooms(nodes, job)
    least, most = fill_beside(free, allowed, jobs, head, margin, job, room, number, limit)
    if least < number <= most:
        least = fill_exactly(free, allowed, jobs, head, margin, job, room, number, limit)
    return least


@part_of_kernel
def copy_free(nodes: OnNodes) -> None:
    """Copies the amounts that are free now to `OnNodes.free`."""
    store, free = cores.nodes_of(nodes.store), nodes.free
    for node in range(free.shape[1]):
        free[0, node] = store.node_idle[node]
        free[1, node] = store.node_memory[node]
        if len(free) > 2:
            free[2, node], free[3, node], free[4, node] = store.node_gpus[node], math.inf, 0.0


@kernel
def _idle(free: Floats) -> float:
    """Returns the idle cores of all nodes."""
    total = 0.0
    for node in range(free.shape[1]):
        total += max(free[0, node], 0.0)
    return total
