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
        preferred: (N,) nodes by descending speed of their fastest processor.
        fastest: Upper bound of the speeds of processors, with a margin for rounding.
    """

    slowest: Floats
    preferred: Ints
    fastest: float


class NodeProfile(NamedTuple):
    """Unreserved resources of nodes over time: from ``times[i]`` to ``times[i + 1]``, the last without end.

    Attributes:
        times: (S,) beginnings of steps in seconds, ascending. One step for each running and each queued job and one
            more are enough.
        row: (S,) row of `idle` and `free` of each step, then the rows that are not in use.
        idle: (S,) upper bound of the unreserved CPU of all nodes together, in cores.
        free: (S, R, N) unreserved amounts.
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
    none, nodes = np.zeros(0), free.shape[1]
    steps = none, none.astype(np.int64), none, np.zeros((0, *free.shape))
    return NodeProfile(*steps, allowed, speeds, np.empty_like(free), np.empty(nodes), np.zeros(1, np.int64))


def with_steps(profile: NodeProfile, size: int) -> NodeProfile:
    """Returns a profile, moved to longer arrays if there is no space for `size` steps."""
    if size <= len(profile.times):
        return profile
    size *= 2
    row, free = np.arange(size), np.empty((size, *profile.least.shape))
    row[: len(profile.row)], free[: len(profile.free)] = profile.row, profile.free
    times, idle = np.resize(profile.times, size), np.resize(profile.idle, size)
    return profile._replace(times=times, row=row, idle=idle, free=free)


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
        profile.free[new], profile.idle[new] = profile.free[row[step - 1]], profile.idle[row[step - 1]]
        profile.length[0] = count + 1
    return step


@kernel
def steps_until(profile: NodeProfile, step: int, duration: float) -> int:
    """Returns the step behind the last one during a job that starts at the begin of a step."""
    start, last = profile.times[step], step + 1
    end = later(start + duration, start)
    while last < profile.length[0] and profile.times[last] < end:
        last += 1
    return last


@kernel
def room_within(profile: NodeProfile, chunk: Chunk, first: int, last: int) -> float:
    """Counts the chunks of a job that fit during all steps from `first` to `last` - 1, on each node and in total.

    Those of each node are in ``profile.room``. Chunks are counted for the least amounts, which gives the least number:
    it never decreases with an amount.
    """
    least, nodes = profile.least, len(profile.room)
    least[:] = profile.free[profile.row[first]]
    for step in range(first + 1, last):
        free = profile.free[profile.row[step]]
        for i in range(len(least)):
            for node in range(nodes):
                least[i, node] = min(least[i, node], free[i, node])
    return capacity(least, profile.allowed, chunk, 0, nodes, profile.room)


@kernel
def _shortest(profile: NodeProfile, jobs: JobRequests, job: int) -> float:
    """Returns a lower bound of the expected duration of a job in seconds."""
    return jobs.time[job] if jobs.fixed[job] else jobs.time[job] / profile.speeds.fastest


@kernel
def _may_start(profile: NodeProfile, jobs: JobRequests, job: int) -> bool:
    """Returns whether all nodes together have room for a job during each step of its least duration from now on."""
    chunk, end = chunk_of(jobs, job), profile.times[0] + _shortest(profile, jobs, job)
    for step in range(profile.length[0]):
        if step and profile.times[step] >= end:
            break
        enough = profile.idle[profile.row[step]] >= _least_cpu(chunk)
        if not enough or room_within(profile, chunk, step, step + 1) < chunk.number:
            return False
    return True


@kernel
def _least_cpu(chunk: Chunk) -> float:
    """Returns the CPU of a job in cores, less the error of sums of thousandths."""
    return chunk.number * chunk.cores * chunk.cpu - 1e-4


@kernel
def _preferred(profile: NodeProfile, chunks: int, nodes: Ints, taken: Ints) -> tuple[int, float]:
    """Takes chunks of the fastest nodes with room; returns the number of nodes and their lowest speed."""
    count, slowest, left = 0, math.inf, chunks
    for node in profile.speeds.preferred:
        if profile.room[node] > 0:
            nodes[count], taken[count] = node, min(profile.room[node], left)
            left -= taken[count]
            count += 1
            slowest = min(slowest, profile.speeds.slowest[node])
            if not left:
                break
    return count, slowest


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
    for i in range(step, _split(profile, later(start + duration, start))):
        row = profile.row[i]
        for k in range(len(nodes)):
            add_amounts(profile.free[row], chunk, nodes[k], -cores[k])
        profile.idle[row] -= chunk.number * chunk.cores * chunk.cpu


@kernel
def reserve_nodes(profile: NodeProfile, jobs: JobRequests, job: int, first: int) -> float:
    """Reserves the earliest start of a job at or after step `first` on the fastest nodes with room.

    Returns:
        The start in seconds, infinite if there is none.
    """
    times, count, chunk = profile.times, profile.length[0], chunk_of(jobs, job)
    least = _least_cpu(chunk)
    nodes, taken = np.empty(len(profile.room), np.int64), np.empty(len(profile.room), np.int64)
    shortest, step = _shortest(profile, jobs, job), first
    while step < count:
        # No start before the end of a step with too little CPU is possible, nor one with too little room meanwhile.
        last = step
        while profile.idle[profile.row[last]] >= least:
            last += 1
            if last == count or times[last] >= times[step] + shortest:
                break
        else:
            step = last + 1
            continue
        if room_within(profile, chunk, step, last) >= chunk.number:
            last = step + 1
            while room_within(profile, chunk, step, last) >= chunk.number:
                used, slowest = _preferred(profile, chunk.number, nodes, taken)
                duration = jobs.time[job] if jobs.fixed[job] else jobs.time[job] / slowest
                behind = steps_until(profile, step, duration)
                if behind <= last:
                    start = times[step]
                    hold(profile, chunk, nodes[:used], taken[:used] * chunk.cores, step, duration)
                    return start
                last = behind
        step += 1
    return math.inf


@kernel
def reserve_ahead(profile: NodeProfile, jobs: JobRequests, queued: Ints, first: int, starts: Floats) -> int:
    """Reserves later starts of queued jobs in order, up to a job that may start now.

    Args:
        profile: The profile.
        jobs: Requests.
        queued: (Q,) queued jobs in order.
        first: Place of the first of them to reserve for.
        starts: (Q,) takes their starts in seconds.

    Returns:
        Place of the job that may start now, Q if there is none.
    """
    for place in range(first, len(queued)):
        if _may_start(profile, jobs, queued[place]):
            return place
        starts[place] = reserve_nodes(profile, jobs, queued[place], 1)
    return len(queued)
