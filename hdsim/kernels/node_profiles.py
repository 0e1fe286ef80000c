"""Availability profiles of nodes for conservative backfilling: unreserved resources of each node over time."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.kernels.compiling import lean_kernel, part_of_kernel
from hdsim.kernels.profiles import (
    Bools,
    Chunk,
    Floats,
    Holdings,
    Ints,
    JobRequests,
    Releases,
    add_amounts,
    capacity,
    chunk_of,
    later,
)

#: Room of a node that limits nothing, in chunks.
_UNLIMITED = (1 << 31) - 1
#: Kinds of chunks whose room on each node is kept for each step.
_KEPT = 8


class NodeSpeeds(NamedTuple):
    """Speeds of nodes relative to the reference speed, without GPUs.

    Attributes:
        slowest: (N,) speed of the slowest processor of each node.
        fastest: (N,) speed of the fastest one, with a margin for rounding.
        preferred: (N,) nodes by descending speed of the fastest one.
    """

    slowest: Floats
    fastest: Floats
    preferred: Ints


class NodeProfile(NamedTuple):
    """Unreserved resources of nodes over time: from ``times[i]`` to ``times[i + 1]``, the last without end.

    Attributes:
        times: (S,) beginnings of steps in seconds, ascending. One step for each running and each queued job and one
            more are enough.
        row: (S,) row of the next arrays of each step, then the rows that are not in use.
        idle: (S,) upper bound of the unreserved CPU of all nodes together, in cores.
        free: (S, R, N) unreserved amounts.
        total: (S, K) chunks of each kind that fit, or did before others were reserved, infinite if unknown.
        kind: (S, L) kinds whose room on each node is known, or -1; that of kind k is at place k % L.
        rooms: (S, L, N) chunks of these kinds that fit on each node.
        allowed: (M, N) nodes in service that constraints allow.
        speeds: Speeds of the nodes.
        room: (N,) space for the chunks that fit on each node during several steps.
        counts: (N,) space for the chunks that fit during one.
        nodes: (N,) space for the nodes of a job.
        taken: (N,) space for its chunks on each of them.
        length: (1,) number of steps.
    """

    times: Floats
    row: Ints
    idle: Floats
    free: Floats
    total: Floats
    kind: Ints
    rooms: NDArray[np.int32]
    allowed: Bools
    speeds: NodeSpeeds
    room: NDArray[np.int32]
    counts: Floats
    nodes: Ints
    taken: Ints
    length: Ints


def make_node_profile(free: Floats, allowed: Bools, speeds: NodeSpeeds) -> NodeProfile:
    """Returns a profile without space for steps.

    Args:
        free: (R, N) amounts.
        allowed: (M, N) nodes in service that constraints allow.
        speeds: Speeds of the nodes.
    """
    n = free.shape[1]
    times, steps, kinds = np.zeros((2, 0)), np.zeros(0, np.int64), np.zeros((0, 0), np.int64)
    rooms, room, nodes = np.zeros((0, 0, n), np.int32), np.zeros(n, np.int32), np.zeros((2, n), np.int64)
    amounts, total = np.zeros((0, *free.shape)), kinds.astype(np.float64)
    space = room, np.zeros(n), *nodes, np.zeros(1, np.int64)
    return NodeProfile(times[0], steps, times[1], amounts, total, kinds, rooms, allowed, speeds, *space)


def with_steps(profile: NodeProfile, size: int, kinds: int) -> NodeProfile:
    """Returns a profile, moved to larger arrays if there is no space for `size` steps or kinds of chunks."""
    old, known = profile.total.shape
    if size <= old and kinds <= known:
        return profile
    size = max(2 * size, old)
    row, free, kept = np.arange(size), np.empty((size, *profile.free.shape[1:])), min(kinds, _KEPT)
    total, kind = np.full((size, kinds), math.inf), np.full((size, kept), -1)
    row[:old], free[:old], total[:old, :known] = profile.row, profile.free, profile.total
    times, idle = np.resize(profile.times, size), np.resize(profile.idle, size)
    rooms = np.empty((size, kept, len(profile.room)), np.int32)
    return profile._replace(times=times, row=row, idle=idle, free=free, total=total, kind=kind, rooms=rooms)


@lean_kernel
def plan_nodes(
    profile: NodeProfile, free: Floats, jobs: JobRequests, releases: Releases, holdings: Holdings, now: float
) -> None:
    """Makes a profile of the running jobs alone; see `plan`.

    Args:
        profile: The profile.
        free: (R, N) amounts that are free now.
        jobs: Requests.
        releases: Expected ends of running jobs.
        holdings: Their cores on nodes.
        now: Present time in seconds.
    """
    for i in range(len(profile.row)):
        profile.row[i] = i
    profile.times[0], profile.length[0], profile.idle[0] = now, 1, 0.0
    for node in range(free.shape[1]):
        profile.idle[0] += max(free[0, node], 0.0)
        for i in range(len(free)):
            profile.free[0, i, node] = free[i, node]
    profile.total[0] = math.inf
    profile.kind[0] = -1
    for i in range(releases.length[0]):
        row = profile.row[_split(profile, later(releases.end[i], now))]
        job = releases.job[i]
        chunk = chunk_of(jobs, job)
        for place in range(holdings.first[job], holdings.last[job]):
            cores = holdings.cores[place]
            add_amounts(profile.free[row], chunk, holdings.node[place], cores)
            profile.idle[row] += cores * chunk.cpu


@lean_kernel
def forward_nodes(profile: NodeProfile, now: float) -> None:
    """Removes the time before `now`, at which or before which the profile begins."""
    past, count = 0, profile.length[0]
    while past + 1 < count and profile.times[past + 1] <= now:
        past += 1
    for i in range(past, count):
        profile.times[i - past] = profile.times[i]
        profile.row[i - past], profile.row[i] = profile.row[i], profile.row[i - past]
    profile.length[0] = count - past
    profile.times[0] = now


@lean_kernel
def _split(profile: NodeProfile, time: float) -> int:
    """Returns the step that begins at `time`, after the begin of the profile; it is created if it does not exist."""
    times, row, count = profile.times, profile.row, profile.length[0]
    step = count
    while times[step - 1] >= time:
        step -= 1
    if step == count or times[step] > time:
        new = row[count]
        for i in range(count, step, -1):
            times[i], row[i] = times[i - 1], row[i - 1]
        times[step], row[step] = time, new
        old, free, total, kind, rooms = row[step - 1], profile.free, profile.total, profile.kind, profile.rooms
        profile.idle[new] = profile.idle[old]
        for i in range(free.shape[1]):
            for node in range(free.shape[2]):
                free[new, i, node] = free[old, i, node]
        for i in range(total.shape[1]):
            total[new, i] = total[old, i]
        for i in range(kind.shape[1]):
            kind[new, i] = kind[old, i]
            for node in range(rooms.shape[2]):
                rooms[new, i, node] = rooms[old, i, node]
        profile.length[0] = count + 1
    return step


@lean_kernel
def steps_until(times: Floats, count: int, step: int, duration: float) -> int:
    """Returns the step behind the last one during a job that starts at the begin of a step.

    Args:
        times: (S,) beginnings of steps in seconds.
        count: Number of steps.
        step: The step.
        duration: Expected duration of the job in seconds.
    """
    last, end = step + 1, later(times[step] + duration, times[step])
    while last < count and times[last] < end:
        last += 1
    return last


@part_of_kernel
def _count_room(profile: NodeProfile, chunk: Chunk, row: int) -> float:
    """Returns the chunks of a job that fit during a step, after which those on each node are known."""
    kinds, rooms, total, counts = profile.kind[row], profile.rooms[row], profile.total[row], profile.counts
    place = chunk.kind % len(kinds)
    if kinds[place] != chunk.kind:
        total[chunk.kind] = capacity(profile.free[row], profile.allowed, chunk, 0, len(counts), counts)
        kinds[place] = chunk.kind
        for node in range(len(counts)):
            rooms[place, node] = min(counts[node], _UNLIMITED)
    return total[chunk.kind]


@part_of_kernel
def _narrow(profile: NodeProfile, chunk: Chunk, step: int) -> int:
    """Reduces the room to that during one more step and returns its sum.

    The least number of chunks is the one for the least amounts: it never decreases with an amount.
    """
    row, room, total = profile.row[step], profile.room, 0
    _count_room(profile, chunk, row)
    other = profile.rooms[row, chunk.kind % profile.kind.shape[1]]
    for node in range(len(room)):
        room[node] = min(room[node], other[node])
        total += int(room[node])
    return total


@lean_kernel
def room_until(profile: NodeProfile, chunk: Chunk, last: int) -> int:
    """Counts the chunks of a job that fit during all steps before `last`; see :attr:`NodeProfile.room`."""
    profile.room[:] = _UNLIMITED
    total = 0
    for step in range(last):
        total = _narrow(profile, chunk, step)
    return total


@part_of_kernel
def _next_start(profile: NodeProfile, chunk: Chunk, shortest: float, step: int, stop: int) -> int:
    """Returns the first step from `step` to `stop` - 1 at which a job has room for `shortest` seconds, or -1."""
    times, row, total, idle, count = profile.times, profile.row, profile.total, profile.idle, profile.length[0]
    # Sums of thousandths have an error far below one.
    kind, number, cpu = chunk.kind, chunk.number, chunk.number * chunk.cores * chunk.cpu - 1e-4
    while step < stop:
        # All nodes together need room during each of the steps, which is known at less cost than the room during all.
        last, fits = step, True
        while fits and last < count and (last == step or times[last] < times[step] + shortest):
            at = row[last]
            fits = total[at, kind] >= number and idle[at] >= cpu and _count_room(profile, chunk, at) >= number
            last += 1
        if not fits:
            step = last
            continue
        # Without room from one of the steps to the last one, no start up to that step has room.
        profile.room[:] = _UNLIMITED
        last -= 1
        while last >= step and _narrow(profile, chunk, last) >= number:
            last -= 1
        if last < step:
            return step
        step = last + 1
    return -1


@part_of_kernel
def _fit(profile: NodeProfile, chunk: Chunk, time: float, fixed: bool, speed: Floats, step: int) -> tuple[int, float]:
    """Chooses the fastest nodes with room for a job that starts at the begin of a step.

    Args:
        profile: The profile, which takes the nodes and the chunks on each.
        chunk: The chunks.
        time: Requested time in seconds.
        fixed: The time holds at any speed.
        speed: (N,) speed of each node.
        step: The step.

    Returns:
        The number of nodes, 0 if the job does not fit, and its duration at the lowest of their speeds in seconds.
    """
    room, nodes, taken, last, behind = profile.room, profile.nodes, profile.taken, step, step + 1
    room[:] = _UNLIMITED
    while True:
        while last < behind:
            if _narrow(profile, chunk, last) < chunk.number:
                return 0, 0.0
            last += 1
        count, slowest, left = 0, math.inf, chunk.number
        for node in profile.speeds.preferred:
            if room[node] > 0:
                nodes[count], taken[count] = node, min(room[node], left)
                left -= taken[count]
                count += 1
                slowest = min(slowest, speed[node])
                if not left:
                    break
        duration = time if fixed else time / slowest
        behind = steps_until(profile.times, profile.length[0], step, duration)
        if behind <= last:
            return count, duration


@lean_kernel
def hold(profile: NodeProfile, chunk: Chunk, nodes: Ints, cores: Ints, step: int, duration: float) -> None:
    """Reserves cores of nodes for a job that starts at the begin of a step.

    Args:
        profile: The profile.
        chunk: The chunks of the job.
        nodes: (k,) its nodes.
        cores: (k,) cores on each.
        step: The step.
        duration: Expected duration in seconds.
    """
    start = profile.times[step]
    last = _split(profile, later(start + duration, start))
    free, total, kind, place = profile.free, profile.total, profile.kind, chunk.kind % profile.kind.shape[1]
    for row in profile.row[step:last]:
        for k in range(len(nodes)):
            add_amounts(free[row], chunk, nodes[k], -cores[k])
        profile.idle[row] -= chunk.number * chunk.cores * chunk.cpu
        for i in range(kind.shape[1]):
            if i != place or kind[row, i] != chunk.kind:
                kind[row, i] = -1
        if kind[row, place] == chunk.kind:
            total[row, chunk.kind] -= chunk.number
            for k in range(len(nodes)):
                profile.rooms[row, place, nodes[k]] -= cores[k] // chunk.cores


@lean_kernel
def _earliest(
    profile: NodeProfile, jobs: JobRequests, job: int, speed: Floats, step: int, stop: int
) -> tuple[int, int, float]:
    """Returns the first step from `step` to `stop` - 1 at which a job can start on the fastest nodes with room, or -1.

    Args:
        profile: The profile, which takes the nodes and the chunks on each.
        jobs: Requests.
        job: The job.
        speed: (N,) speed of each node.
        step: First step.
        stop: Step behind the last one.

    Returns:
        The step, the number of nodes and the duration in seconds.
    """
    speeds, chunk, time, fixed = profile.speeds, chunk_of(jobs, job), jobs.time[job], jobs.fixed[job]
    shortest = time if fixed else time / speeds.fastest[speeds.preferred[0]]
    while True:
        step = _next_start(profile, chunk, shortest, step, stop)
        if step < 0:
            return -1, 0, 0.0
        used, duration = _fit(profile, chunk, time, fixed, speed, step)
        if used:
            return step, used, duration
        step += 1


@lean_kernel
def reserve_nodes(profile: NodeProfile, jobs: JobRequests, job: int, first: int) -> float:
    """Reserves the earliest start of a job at or after step `first` on the fastest nodes with room.

    Returns:
        The start in seconds, infinite if there is none.
    """
    step, used, duration = _earliest(profile, jobs, job, profile.speeds.slowest, first, profile.length[0])
    if step < 0:
        return math.inf
    chunk, start = chunk_of(jobs, job), profile.times[step]
    for k in range(used):
        profile.taken[k] *= chunk.cores
    hold(profile, chunk, profile.nodes[:used], profile.taken[:used], step, duration)
    return start


@lean_kernel
def reserve_ahead(profile: NodeProfile, jobs: JobRequests, queued: Ints, first: int, starts: Floats) -> int:
    """Reserves later starts of queued jobs in order, up to a job that may start now.

    Jobs behind the last one that might start now are left out: if nothing ends, they can be reserved later.

    Args:
        profile: The profile.
        jobs: Requests.
        queued: (Q,) queued jobs in order.
        first: Place of the first of them to reserve for.
        starts: (Q,) takes their starts in seconds, negatively infinite for the job that may start now.

    Returns:
        Place of that job or of the first one that is left out, Q if there is none.
    """
    last, fastest = len(queued), profile.speeds.fastest
    for place in range(first, last):
        # A job that cannot start now at the highest speeds cannot start before a job ends either: later starts need
        # room for longer, and every reservation leaves less.
        while last > place and _earliest(profile, jobs, queued[last - 1], fastest, 0, 1)[0] < 0:
            last -= 1
        if place == last:
            return place
        if _earliest(profile, jobs, queued[place], fastest, 0, 1)[0] == 0:
            starts[place] = -math.inf
            return place
        starts[place] = reserve_nodes(profile, jobs, queued[place], 1)
    return len(queued)
