"""Expected releases of resources, the reservation of the head (EASY) and availability profiles (conservative)."""

from __future__ import annotations

import math
import sys
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.kernels.chunks import (
    Chunk,
    Holdings,
    JobRequests,
    add_on_nodes,
    chunk_of,
    exchange,
    room_beside,
    room_on,
)
from hdsim.kernels.compiling import kernel, lean_kernel, part_of_kernel
from hdsim.kernels.heap import Heap, pop, push

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

#: Factor of an upper bound that rounding may not exceed.
ROUNDED_UP = 1 + 1e-9
#: The number before 1; a product with it is rounded to the number before the other factor.
_BELOW_ONE = 1 - 2**-53
_GREATEST = sys.float_info.max


class Releases(NamedTuple):
    """Expected ends of running jobs, ascending, ties by job.

    Attributes:
        end: (R,) expected ends in seconds.
        job: (R,) the jobs.
        cores: (R,) their cores.
        length: (1,) number of running jobs; the arrays may be longer.
    """

    end: Floats
    job: Ints
    cores: Floats
    length: Ints


class Profile(NamedTuple):
    """Unreserved cores over time: ``free[i]`` from ``times[i]`` to ``times[i + 1]``, the last entry without end.

    Attributes:
        times: (S,) beginnings of steps in seconds, ascending. One step for each running and each queued job and one
            more are enough.
        free: (S,) unreserved cores.
        length: (1,) number of steps; the arrays may be longer.
    """

    times: Floats
    free: Floats
    length: Ints


def make_releases(size: int) -> Releases:
    """Returns space for the expected ends of `size` running jobs."""
    return Releases(np.zeros(size), np.zeros(size, np.int64), np.zeros(size), np.zeros(1, np.int64))


def make_profile(size: int) -> Profile:
    """Returns space for `size` steps."""
    return Profile(np.zeros(size), np.zeros(size), np.zeros(1, np.int64))


def with_space(profile: Profile, size: int) -> Profile:
    """Returns a profile of cores, moved to longer arrays if there is no space for `size` steps."""
    if size <= len(profile.times):
        return profile
    return profile._replace(times=np.resize(profile.times, 2 * size), free=np.resize(profile.free, 2 * size))


@lean_kernel
def later(end: float, now: float) -> float:
    """Returns an expected end, just after `now` if it has passed."""
    return end if end > now else np.nextafter(now, math.inf)


@part_of_kernel
def just_before(date: float) -> float:
    """Returns the number before a date that is not negative; np.nextafter is a call, and slower."""
    return min(date * _BELOW_ONE, _GREATEST) if date > 0 else -1.0


@lean_kernel
def release_place(releases: Releases, end: float, job: int) -> int:
    """Returns the place of a job of expected `end` among the running ones."""
    first, last = 0, releases.length[0]
    while first < last:
        middle = (first + last) // 2
        at = releases.end[middle]
        if at < end or (at == end and releases.job[middle] < job):
            first = middle + 1
        else:
            last = middle
    return first


@lean_kernel
def add_release(releases: Releases, end: float, job: int, cores: float) -> None:
    """Adds a started job."""
    place, count = release_place(releases, end, job), releases.length[0]
    for i in range(count, place, -1):
        releases.end[i] = releases.end[i - 1]
        releases.job[i] = releases.job[i - 1]
        releases.cores[i] = releases.cores[i - 1]
    releases.end[place], releases.job[place], releases.cores[place] = end, job, cores
    releases.length[0] = count + 1


@lean_kernel
def remove_release(releases: Releases, end: float, job: int) -> None:
    """Removes a job that has ended, whose expected end was `end`."""
    releases.length[0] -= 1
    for i in range(release_place(releases, end, job), releases.length[0]):
        releases.end[i] = releases.end[i + 1]
        releases.job[i] = releases.job[i + 1]
        releases.cores[i] = releases.cores[i + 1]


@lean_kernel
def head_reservation(releases: Releases, now: float, idle: float, cores: float) -> tuple[float, float]:
    """Returns the reservation of the head of the queue if only the number of cores matters.

    Args:
        releases: Expected ends of running jobs.
        now: Present time in seconds.
        idle: Idle cores.
        cores: Cores of the head.

    Returns:
        The shadow time, the earliest expected start of the head in seconds, infinite if unknown, and the extra cores,
        idle beside the head at that time.
    """
    ends, freed, missing, shadow = releases.end, releases.cores, cores - idle, math.inf
    for i in range(releases.length[0]):
        date = ends[i] if ends[i] > now else now
        if missing <= 0 and date > shadow:
            break
        missing -= freed[i]
        shadow = date
    return (shadow if missing <= 0 else math.inf), -missing


@lean_kernel
def longest_before(shadow: float, now: float, fastest: float) -> float:
    """Returns an upper bound, with a margin for rounding, of the run times at reference speed that end by a date.

    Args:
        shadow: The date in seconds.
        now: Present time in seconds.
        fastest: Highest speed of a core relative to the reference.
    """
    return (shadow - now) * fastest * ROUNDED_UP if shadow > now else 0.0


@lean_kernel
def is_overdue(releases: Releases, now: float) -> bool:
    """Returns whether the expected end of a running job has passed."""
    return releases.length[0] > 0 and releases.end[0] <= now


@part_of_kernel
def may_start(
    size: float, requested: float, now: float, idle: float, shadow: float, longest: float, widest: float, extra: float
) -> bool:
    """Returns whether a job, or one of several, fits now and leaves the reservation of the head alone.

    Args:
        size: Cores of the job, or the least of several jobs.
        requested: Requested time in seconds, likewise.
        now: Present time in seconds.
        idle: Idle cores.
        shadow: Time in seconds until which a job may run on any of these.
        longest: Requested time in seconds above which a job is admitted by `widest` alone.
        widest: Most cores of a job whose requested time is above `longest`.
        extra: Cores of a job that may run beyond `shadow`.
    """
    return size <= idle and ((now + requested <= shadow and (requested <= longest or size <= widest)) or size <= extra)


@lean_kernel
def plan(profile: Profile, releases: Releases, now: float, idle: float) -> None:
    """Makes a profile of the running jobs alone.

    Args:
        profile: The profile.
        releases: Expected ends of running jobs; those that have passed are expected at any moment.
        now: Present time in seconds.
        idle: Idle cores.
    """
    times, free, last = profile.times, profile.free, 0
    times[0], free[0] = now, idle
    for i in range(releases.length[0]):
        date = later(releases.end[i], now)
        if date > times[last]:
            last += 1
            times[last], free[last] = date, free[last - 1]
        free[last] += releases.cores[i]
    profile.length[0] = last + 1


@lean_kernel
def forward(profile: Profile, now: float) -> None:
    """Removes the time before `now`, at which or before which the profile begins."""
    times, free, count, past = profile.times, profile.free, profile.length[0], 0
    while past + 1 < count and times[past + 1] <= now:
        past += 1
    if past:
        for i in range(past, count):
            times[i - past], free[i - past] = times[i], free[i]
        profile.length[0] = count - past
    times[0] = now


@lean_kernel
def reserve(profile: Profile, cores: float, duration: float, latest: float) -> float:
    """Reserves cores for some seconds and returns their earliest start in seconds, infinite if it is after `latest`."""
    times, free, count = profile.times, profile.free, profile.length[0]
    if free[count - 1] < cores:
        return math.inf
    i = 0
    while True:
        while free[i] < cores:
            i += 1
        if times[i] > latest:
            return math.inf
        end = later(times[i] + duration, times[i])
        j = i + 1
        while j < count and times[j] < end and free[j] >= cores:
            j += 1
        if j == count or times[j] >= end:
            break
        i = j
    if j == count or times[j] > end:
        for k in range(count, j, -1):
            times[k], free[k] = times[k - 1], free[k - 1]
        times[j], free[j] = end, free[j - 1]
        profile.length[0] = count + 1
    for k in range(i, j):
        free[k] -= cores
    return times[i]


# Nodes: free amounts are those of :mod:`hdsim.cluster.kernels.chunks`.


@lean_kernel
def reserve_head(
    free: Floats, allowed: Bools, jobs: JobRequests, releases: Releases, holdings: Holdings, head: int, now: float
) -> tuple[float, float]:
    """Returns the reservation of the head of the queue on nodes.

    Args:
        free: (R, N) free amounts, which become those at the shadow time without the head.
        allowed: (M, N) nodes in service that constraints allow.
        jobs: Requests.
        releases: Expected ends of running jobs.
        holdings: Their cores on nodes.
        head: The head.
        now: Present time in seconds.

    Returns:
        The shadow time, the earliest expected start of the head in seconds, infinite if unknown, and the margin: chunks
        of the head for which there is room beside it at that time.
    """
    chunk = chunk_of(jobs, head)
    margin, shadow = float(-chunk.number), math.inf
    for node in range(free.shape[1]):
        margin += room_on(free, allowed, chunk, node)
    for i in range(releases.length[0]):
        date = max(releases.end[i], now)
        if margin >= 0 and date > shadow:
            break
        job = releases.job[i]
        held = slice(holdings.first[job], holdings.last[job])
        nodes, cores = holdings.node[held], holdings.cores[held]
        margin += exchange(free, allowed, chunk, chunk_of(jobs, job), nodes, cores, 1)
        shadow = date
    return (shadow if margin >= 0 else math.inf), margin


@lean_kernel
def admit(
    free: Floats, allowed: Bools, jobs: JobRequests, head: int, margin: float, job: int, nodes: Ints, cores: Ints
) -> float:
    """Allocates the cores of a job that ends after the shadow time, unless the head does not fit beside it.

    Args:
        free: (R, N) amounts of `reserve_head`.
        allowed: (M, N) nodes in service that constraints allow.
        jobs: Requests.
        head: The head.
        margin: Its margin.
        job: The job.
        nodes: (k,) nodes of the job.
        cores: (k,) cores on each.

    Returns:
        The new margin; negative if the head does not fit and nothing has changed.
    """
    chunk = chunk_of(jobs, job)
    left = margin + exchange(free, allowed, chunk_of(jobs, head), chunk, nodes, cores, -1)
    if left < 0:
        add_on_nodes(free, chunk, nodes, cores)
    return left


@part_of_kernel
def _without_loss(free: Floats, allowed: Bools, head: Chunk, chunk: Chunk, node: int, most: int, before: float) -> int:
    """Returns the most chunks of a job on a node, of which `most` fit now, that leave the head its room `before`."""
    # Most often every chunk costs the head something, or none does.
    if room_beside(free, allowed, head, chunk, node, 1) != before:
        return 0
    if room_beside(free, allowed, head, chunk, node, most) == before:
        return most
    least, most = 1, most - 1
    while least < most:
        # The loss never decreases with the number.
        middle = (least + most + 1) // 2
        if room_beside(free, allowed, head, chunk, node, middle) != before:
            most = middle - 1
        else:
            least = middle
    return least


@kernel
def fill_beside(
    free: Floats,
    allowed: Bools,
    jobs: JobRequests,
    head: int,
    margin: float,
    job: int,
    room: Ints,
    wanted: int,
    limit: Ints,
) -> tuple[int, int]:
    """Limits the chunks of a job on each node such that the head keeps its room at the shadow time.

    Nodes give what costs the head nothing. If that is too little, the margin of the head is spent where a chunk of it
    makes room for most chunks of the job, on the first of equal nodes.

    Args:
        free: (R, N) amounts of `reserve_head`.
        allowed: (M, N) nodes in service that constraints allow.
        jobs: Requests.
        head: The head.
        margin: Its margin.
        job: The job.
        room: (N,) chunks of it that fit on each node now, at least 0.
        wanted: Chunks that are enough.
        limit: (N,) takes the limits.

    Returns:
        The sum of the limits, and an upper bound of the sum of any limits that leave the head its room.
    """
    first, chunk, n = chunk_of(jobs, head), chunk_of(jobs, job), len(room)
    total, rooms, count = 0, 0, 0
    for node in range(n):
        rooms += min(room[node], wanted)
    # Sections of the upper concave hull of chunks over lost chunks of the head: node, lost, chunks.
    lost, sections = np.empty(rooms + 1, np.int64), np.empty((3, rooms), np.int64)
    for node in range(n):
        limit[node] = 0
        if room[node] <= 0:
            continue
        most, before = min(room[node], wanted), room_on(free, allowed, first, node)
        at = _without_loss(free, allowed, first, chunk, node, most, before)
        limit[node] = at
        total += at
        if margin < 1 or at == most:
            continue
        lost[at] = 0
        for k in range(at + 1, most + 1):
            lost[k] = int(before - room_beside(free, allowed, first, chunk, node, k))
        while at < most and lost[at] < margin:
            best = -1
            for k in range(at + 1, most + 1):
                if lost[k] > margin:
                    break
                # The most chunks for a loss are those before the next loss.
                if k < most and lost[k + 1] == lost[k]:
                    continue
                if best < 0 or (k - at) * (lost[best] - lost[at]) >= (best - at) * (lost[k] - lost[at]):
                    best = k
            if best < 0:
                break
            sections[0, count], sections[1, count], sections[2, count] = node, lost[best] - lost[at], best - at
            count += 1
            at = best
    left, bound = int(margin), total
    if total < wanted and left > 0 and count:
        best_first = Heap(np.empty(count), np.empty(count, np.int64), np.zeros(1, np.int64))
        for i in range(count):
            push(best_first, -sections[2, i] / sections[1, i], i)
        while best_first.length[0]:
            i = pop(best_first)
            cost, gain = sections[1, i], sections[2, i]
            if cost > left:
                return total, total + gain * left // cost
            left -= cost
            total += gain
            limit[sections[0, i]] += gain
            bound = total
            if total >= wanted or not left:
                break
    return total, bound


@kernel
def fill_exactly(
    free: Floats,
    allowed: Bools,
    jobs: JobRequests,
    head: int,
    margin: float,
    job: int,
    room: Ints,
    wanted: int,
    limit: Ints,
) -> int:
    """Limits the chunks of a job as `fill_beside` does, with the largest sum; returns it.

    A dynamic program over the nodes and the margin, for the few jobs between the sum and the bound of `fill_beside`.
    """
    first, chunk, n, left = chunk_of(jobs, head), chunk_of(jobs, job), len(room), int(margin)
    widest = 0
    for node in range(n):
        widest = max(widest, min(room[node], wanted))
    lost = np.empty(widest + 1, np.int64)
    # Most chunks on the nodes so far for each loss, and those on each node.
    most, chosen = np.zeros(left + 1, np.int64), np.zeros((n, left + 1), np.int64)
    for node in range(n):
        if room[node] <= 0:
            continue
        widest, before = min(room[node], wanted), room_on(free, allowed, first, node)
        given = _without_loss(free, allowed, first, chunk, node, widest, before)
        for k in range(given + 1, widest + 1):
            lost[k] = int(before - room_beside(free, allowed, first, chunk, node, k))
        for loss in range(left, -1, -1):
            base = most[loss]
            most[loss], chosen[node, loss] = base + given, given
            for k in range(given + 1, widest + 1):
                if lost[k] > loss:
                    break
                if most[loss - lost[k]] + k > most[loss]:
                    most[loss], chosen[node, loss] = most[loss - lost[k]] + k, k
    for node in range(n - 1, -1, -1):
        limit[node] = chosen[node, left]
        after = room_beside(free, allowed, first, chunk, node, limit[node])
        left -= int(room_on(free, allowed, first, node) - after)
    total = 0
    for node in range(n):
        total += limit[node]
    return total


@kernel
def reserve_all(profile: Profile, cores: Floats, durations: Floats, latest: float, depth: int, starts: Floats) -> int:
    """Reserves cores for jobs in order, until a number of them have later starts; see `reserve`.

    Args:
        profile: The profile.
        cores: (Q,) cores of each job.
        durations: (Q,) their durations in seconds.
        latest: Time in seconds after which no start is reserved.
        depth: Most starts after the begin of the profile.
        starts: (Q,) takes their starts in seconds.

    Returns:
        Place of the first job that was not looked at, Q if there is none.
    """
    for i in range(len(starts)):
        if not depth:
            return i
        starts[i] = reserve(profile, cores[i], durations[i], latest)
        depth -= profile.times[0] < starts[i] < math.inf
    return len(starts)
