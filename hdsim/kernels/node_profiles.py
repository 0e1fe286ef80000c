"""Availability profiles of nodes for conservative backfilling: unreserved resources of each node over time."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from hdsim.kernels.compiling import kernel
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
        exact: (S, K) whether just as many fit.
        allowed: (M, N) nodes in service that constraints allow.
        speeds: Speeds of the nodes.
        least: (R, N) space for the least amounts of several steps.
        room: (N,) space for chunks on each node.
        length: (1,) number of steps.
    """

    times: Floats
    row: Ints
    idle: Floats
    free: Floats
    total: Floats
    exact: Bools
    allowed: Bools
    speeds: NodeSpeeds
    least: Floats
    room: Floats
    length: Ints


def make_node_profile(free: Floats, allowed: Bools, speeds: NodeSpeeds) -> NodeProfile:
    """Returns a profile without space for steps.

    Args:
        free: (R, N) amounts.
        allowed: (M, N) nodes in service that constraints allow.
        speeds: Speeds of the nodes.
    """
    none, kinds, nodes = np.zeros(0), np.zeros((0, 0)), free.shape[1]
    steps = none, none.astype(np.int64), none, np.zeros((0, *free.shape)), kinds, kinds.astype(np.bool_)
    return NodeProfile(*steps, allowed, speeds, np.empty_like(free), np.empty(nodes), np.zeros(1, np.int64))


def with_steps(profile: NodeProfile, size: int, kinds: int) -> NodeProfile:
    """Returns a profile, moved to larger arrays if there is no space for `size` steps or kinds of chunks."""
    old, known = profile.total.shape
    if size <= old and kinds <= known:
        return profile
    size = max(2 * size, old)
    row, free = np.arange(size), np.empty((size, *profile.least.shape))
    total, exact = np.full((size, kinds), math.inf), np.zeros((size, kinds), np.bool_)
    row[:old], free[:old] = profile.row, profile.free
    total[:old, :known], exact[:old, :known] = profile.total, profile.exact
    times, idle = np.resize(profile.times, size), np.resize(profile.idle, size)
    return profile._replace(times=times, row=row, idle=idle, free=free, total=total, exact=exact)


@kernel
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
    profile.times[0], profile.length[0] = now, 1
    profile.free[0], profile.idle[0] = free, np.maximum(free[0], 0.0).sum()
    profile.total[:] = math.inf
    profile.exact[:] = False
    for i in range(releases.length[0]):
        row = profile.row[_split(profile, later(releases.end[i], now))]
        job = releases.job[i]
        chunk = chunk_of(jobs, job)
        for place in range(holdings.first[job], holdings.last[job]):
            cores = holdings.cores[place]
            add_amounts(profile.free[row], chunk, holdings.node[place], cores)
            profile.idle[row] += cores * chunk.cpu


@kernel
def forward_nodes(profile: NodeProfile, now: float) -> None:
    """Removes the time before `now`, at which or before which the profile begins."""
    past, count = 0, profile.length[0]
    while past + 1 < count and profile.times[past + 1] <= now:
        past += 1
    if past:
        unused = profile.row[:past].copy()
        for i in range(past, count):
            profile.times[i - past], profile.row[i - past] = profile.times[i], profile.row[i]
        profile.row[count - past : count] = unused
        profile.length[0] = count - past
    profile.times[0] = now


@kernel
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
        old, free, total, exact = row[step - 1], profile.free, profile.total, profile.exact
        profile.idle[new] = profile.idle[old]
        for i in range(free.shape[1]):
            for node in range(free.shape[2]):
                free[new, i, node] = free[old, i, node]
        for kind in range(total.shape[1]):
            total[new, kind], exact[new, kind] = total[old, kind], exact[old, kind]
        profile.length[0] = count + 1
    return step


@kernel
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


@kernel
def room_within(
    free: Floats, row: Ints, allowed: Bools, chunk: Chunk, first: int, last: int, least: Floats, room: Floats
) -> float:
    """Counts the chunks of a job that fit during all steps from `first` to `last` - 1.

    Chunks are counted for the least amounts, which gives the least number: it never decreases with an amount.

    Args:
        free: See :class:`NodeProfile`, as are `row`, `allowed` and `least`.
        row: Rows of the steps.
        allowed: Allowed nodes.
        chunk: The chunks.
        first: First step.
        last: Step behind the last one.
        least: Space for the least amounts.
        room: (N,) takes the chunks that fit on each node.

    Returns:
        Their sum.
    """
    # Loops over flat arrays are several times as fast.
    rows, flat = free.reshape(len(free), least.size), least.reshape(least.size)
    amounts = rows[row[first]]
    for i in range(len(flat)):
        flat[i] = amounts[i]
    for step in range(first + 1, last):
        amounts = rows[row[step]]
        for i in range(len(flat)):
            flat[i] = min(flat[i], amounts[i])
    return capacity(least, allowed, chunk, 0, len(room), room)


@kernel
def _next_start(profile: NodeProfile, chunk: Chunk, shortest: float, step: int, stop: int) -> int:
    """Returns the first step from `step` to `stop` - 1 at which a job has room for `shortest` seconds, or -1."""
    times, row, total, exact, count = profile.times, profile.row, profile.total, profile.exact, profile.length[0]
    free, allowed, least, room, idle = profile.free, profile.allowed, profile.least, profile.room, profile.idle
    # Sums of thousandths have an error far below one.
    kind, number, cpu = chunk.kind, chunk.number, chunk.number * chunk.cores * chunk.cpu - 1e-4
    while step < stop:
        # All nodes together need room during each of the steps, which is known at less cost than the room during all.
        last, fits = step, True
        while fits and last < count and (last == step or times[last] < times[step] + shortest):
            at = row[last]
            fits = total[at, kind] >= number and idle[at] >= cpu
            if fits and not exact[at, kind]:
                total[at, kind] = room_within(free, row, allowed, chunk, last, last + 1, least, room)
                exact[at, kind] = True
                fits = total[at, kind] >= number
            last += 1
        if not fits:
            step = last
        elif room_within(free, row, allowed, chunk, step, last, least, room) >= number:
            return step
        else:
            step += 1
    return -1


@kernel
def _fit(
    profile: NodeProfile, jobs: JobRequests, job: int, speed: Floats, step: int, nodes: Ints, taken: Ints
) -> tuple[int, float]:
    """Chooses the fastest nodes with room for a job that starts at the begin of a step.

    Args:
        profile: The profile.
        jobs: Requests.
        job: The job.
        speed: (N,) speed of each node.
        step: The step.
        nodes: (N,) takes the nodes.
        taken: (N,) takes the chunks on each of them.

    Returns:
        The number of nodes, 0 if the job does not fit, and its duration at the lowest of their speeds in seconds.
    """
    free, row, allowed, least, room = profile.free, profile.row, profile.allowed, profile.least, profile.room
    chunk, preferred, last = chunk_of(jobs, job), profile.speeds.preferred, step + 1
    while room_within(free, row, allowed, chunk, step, last, least, room) >= chunk.number:
        count, slowest, left = 0, math.inf, chunk.number
        for node in preferred:
            if room[node] > 0:
                nodes[count], taken[count] = node, min(room[node], left)
                left -= taken[count]
                count += 1
                slowest = min(slowest, speed[node])
                if not left:
                    break
        duration = jobs.time[job] if jobs.fixed[job] else jobs.time[job] / slowest
        behind = steps_until(profile.times, profile.length[0], step, duration)
        if behind <= last:
            return count, duration
        last = behind
    return 0, 0.0


@kernel
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
    free, idle, exact = profile.free, profile.idle, profile.exact
    for row in profile.row[step:last]:
        for k in range(len(nodes)):
            add_amounts(free[row], chunk, nodes[k], -cores[k])
        idle[row] -= chunk.number * chunk.cores * chunk.cpu
        for kind in range(exact.shape[1]):
            exact[row, kind] = False


@kernel
def _shortest(speeds: NodeSpeeds, jobs: JobRequests, job: int) -> float:
    """Returns a lower bound of the expected duration of a job in seconds."""
    return jobs.time[job] if jobs.fixed[job] else jobs.time[job] / speeds.fastest[speeds.preferred[0]]


@kernel
def _may_start(profile: NodeProfile, jobs: JobRequests, job: int, nodes: Ints, taken: Ints) -> bool:
    """Returns whether a job might start now, on nodes that a core policy chooses.

    A job for which this is not so cannot start before a job ends either: later starts need room for longer.
    """
    if _next_start(profile, chunk_of(jobs, job), _shortest(profile.speeds, jobs, job), 0, 1) < 0:
        return False
    return _fit(profile, jobs, job, profile.speeds.fastest, 0, nodes, taken)[0] > 0


@kernel
def reserve_nodes(profile: NodeProfile, jobs: JobRequests, job: int, first: int) -> float:
    """Reserves the earliest start of a job at or after step `first` on the fastest nodes with room.

    Returns:
        The start in seconds, infinite if there is none.
    """
    number, step, count = len(profile.room), first, profile.length[0]
    chunk, nodes, taken = chunk_of(jobs, job), np.empty(number, np.int64), np.empty(number, np.int64)
    shortest = _shortest(profile.speeds, jobs, job)
    while True:
        step = _next_start(profile, chunk, shortest, step, count)
        if step < 0:
            return math.inf
        used, duration = _fit(profile, jobs, job, profile.speeds.slowest, step, nodes, taken)
        if used:
            start = profile.times[step]
            hold(profile, chunk, nodes[:used], taken[:used] * chunk.cores, step, duration)
            return start
        step += 1


@kernel
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
    nodes, taken = np.empty(len(profile.room), np.int64), np.empty(len(profile.room), np.int64)
    last = len(queued)
    for place in range(first, last):
        # Every reservation leaves less room.
        while last > place and not _may_start(profile, jobs, queued[last - 1], nodes, taken):
            last -= 1
        if place == last:
            return place
        if _may_start(profile, jobs, queued[place], nodes, taken):
            starts[place] = -math.inf
            return place
        starts[place] = reserve_nodes(profile, jobs, queued[place], 1)
    return len(queued)
