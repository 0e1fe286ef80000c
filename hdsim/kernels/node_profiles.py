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
    chunk_of,
    later,
    room_on,
)

#: Sets of bounds on starts, by kind of chunks, and bounds of each set.
_SETS, _BOUNDS = 64, 4
#: Bounds on starts at present, at the highest speeds of the nodes, and on reserved starts, at the lowest.
_NOW, _AHEAD = 0, 1
_INT32 = np.iinfo(np.int32).max


class NodeSpeeds(NamedTuple):
    """Speeds of nodes relative to the reference speed, without GPUs.

    Attributes:
        slowest: (N,) speed of the slowest processor of each node.
        fastest: (N,) speed of the fastest one, with a margin for rounding.
        preferred: (N,) nodes by descending speed of the fastest one.
        descending: Both speeds descend in that order.
    """

    slowest: Floats
    fastest: Floats
    preferred: Ints
    descending: bool


class StartBounds(NamedTuple):
    """Bounds on the starts of like jobs while a profile only loses room.

    A job with as many chunks of a kind as another, or more, for a time as long, or longer, starts no earlier.

    Attributes:
        kind: (2, sets, bounds) kinds of chunks, -1 for none.
        number: (2, sets, bounds) numbers of chunks.
        time: (2, sets, bounds) requested times in seconds.
        fixed: (2, sets, bounds) whether these hold at any speed.
        start: (2, sets, bounds) time in seconds before which there is no start.
        oldest: (2, sets) place of the bound that the next one replaces.
    """

    kind: Ints
    number: Ints
    time: Floats
    fixed: Bools
    start: Floats
    oldest: Ints


class NodeProfile(NamedTuple):
    """Unreserved resources of nodes over time.

    Each node has a timeline, a linked list of entries. The times at which an entry of any node begins are the steps of
    the profile: step i lasts from ``times[i]`` to ``times[i + 1]``, the last without end.

    Attributes:
        times: (S,) beginnings of steps in seconds, ascending. One step for each running and each queued job and one
            more are enough.
        idle: (S,) upper bound of the unreserved CPU of all nodes together, in cores.
        row: (S,) row of `cores` of each step, then the rows that are not in use.
        cores: (S, N) unreserved cores of each node, rounded up.
        begin: (E,) begin of each entry in seconds.
        following: (E,) next entry of the same node, -1 for none.
        amount: (R, E) unreserved amounts.
        first: (N,) first entry of each node.
        allowed: (M, N) nodes in service that constraints allow.
        speeds: Speeds of the nodes.
        bounds: Bounds on starts.
        least: (R, N) space for the least amounts during some time.
        room: (N,) space for the chunks that fit on each node.
        nodes: (N,) space for the nodes of a job.
        taken: (N,) space for its chunks on each of them.
        length: (2,) numbers of steps and of entries.
    """

    times: Floats
    idle: Floats
    row: Ints
    cores: NDArray[np.int32]
    begin: Floats
    following: Ints
    amount: Floats
    first: Ints
    allowed: Bools
    speeds: NodeSpeeds
    bounds: StartBounds
    least: Floats
    room: Ints
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
    n, sets = free.shape[1], (2, _SETS, _BOUNDS)
    times, entries = np.zeros((3, 0)), np.zeros((2, 0), np.int64)
    (kind, number), (time, start) = np.zeros((2, *sets), np.int64), np.zeros((2, *sets))
    bounds = StartBounds(kind, number, time, np.zeros(sets, np.bool_), start, np.zeros(sets[:2], np.int64))
    amounts, ints = np.zeros((len(free), 0)), np.zeros((4, n), np.int64)
    space = np.zeros(free.shape), *ints[1:], np.zeros(2, np.int64)
    steps = times[0], times[1], entries[0], np.zeros((0, n), np.int32)
    return NodeProfile(*steps, times[2], entries[1], amounts, ints[0], allowed, speeds, bounds, *space)


def with_steps(profile: NodeProfile, size: int) -> NodeProfile:
    """Returns a profile, moved to larger arrays if there is no space for `size` steps."""
    old, n = profile.cores.shape
    if size <= old:
        return profile
    size = 2 * size
    row, cores = np.arange(size), np.zeros((size, n), np.int32)
    row[:old], cores[:old] = profile.row, profile.cores
    times, idle = np.resize(profile.times, size), np.resize(profile.idle, size)
    return profile._replace(times=times, idle=idle, row=row, cores=cores)


def with_entries(profile: NodeProfile, more: int) -> NodeProfile:
    """Returns a profile, moved to larger arrays if there is no space for `more` entries and those of one job."""
    old, needed = len(profile.begin), int(profile.length[1]) + more + entries_of_job(profile)
    if needed <= old:
        return profile
    amount = np.zeros((len(profile.amount), 2 * needed))
    amount[:, :old] = profile.amount
    begin, following = np.resize(profile.begin, 2 * needed), np.resize(profile.following, 2 * needed)
    return profile._replace(begin=begin, following=following, amount=amount)


@lean_kernel
def entries_of_job(profile: NodeProfile) -> int:
    """Returns the number of entries that a reservation may need: its begin and its end on each node."""
    return 2 * len(profile.first)


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
    last = profile.nodes  # latest entry of each node
    profile.bounds.kind[:] = -1
    for i in range(len(profile.row)):
        profile.row[i] = i
    profile.times[0], profile.idle[0] = now, 0.0
    profile.length[0], profile.length[1] = 1, free.shape[1]
    for node in range(free.shape[1]):
        profile.first[node] = last[node] = node
        profile.begin[node], profile.following[node] = now, -1
        for i in range(len(free)):
            profile.amount[i, node] = free[i, node]
        profile.idle[0] += max(free[0, node], 0.0)
        profile.cores[0, node] = _whole_cores(profile, node)
    for i in range(releases.length[0]):
        time = later(releases.end[i], now)
        step, job = _split(profile, time), releases.job[i]
        chunk = chunk_of(jobs, job)
        for place in range(holdings.first[job], holdings.last[job]):
            node, cores = holdings.node[place], holdings.cores[place]
            last[node] = _entry(profile, last[node], time)
            add_amounts(profile.amount, chunk, last[node], cores)
            profile.idle[step] += cores * chunk.cpu
            profile.cores[profile.row[step], node] = _whole_cores(profile, last[node])


@lean_kernel
def forward_nodes(profile: NodeProfile, now: float) -> None:
    """Removes the time before `now`, at which or before which the profile begins."""
    past, count = 0, profile.length[0]
    while past + 1 < count and profile.times[past + 1] <= now:
        past += 1
    for i in range(past, count):
        profile.times[i - past], profile.idle[i - past] = profile.times[i], profile.idle[i]
        profile.row[i - past], profile.row[i] = profile.row[i], profile.row[i - past]
    profile.length[0] = count - past
    profile.times[0] = now
    for node in range(len(profile.first)):
        profile.first[node] = _entry_during(profile, node, now)
        profile.begin[profile.first[node]] = now


@part_of_kernel
def _whole_cores(profile: NodeProfile, entry: int) -> int:
    """Returns the unreserved cores of an entry, rounded up."""
    return int(min(max(np.ceil(profile.amount[0, entry]), 0.0), _INT32))


@part_of_kernel
def _entry_during(profile: NodeProfile, node: int, time: float) -> int:
    """Returns the entry of a node at a time."""
    entry = profile.first[node]
    after = profile.following[entry]
    while after >= 0 and profile.begin[after] <= time:
        entry = after
        after = profile.following[entry]
    return entry


@part_of_kernel
def _entry(profile: NodeProfile, entry: int, time: float) -> int:
    """Returns the entry that begins at a time during `entry`; it is created if it does not exist."""
    if profile.begin[entry] == time:
        return entry
    new = profile.length[1]
    profile.length[1] = new + 1
    profile.begin[new], profile.following[new] = time, profile.following[entry]
    profile.following[entry] = new
    for i in range(len(profile.amount)):
        profile.amount[i, new] = profile.amount[i, entry]
    return new


@lean_kernel
def _split(profile: NodeProfile, time: float) -> int:
    """Returns the step that begins at `time`, after the begin of the profile; it is created if it does not exist."""
    times, idle, row, count = profile.times, profile.idle, profile.row, profile.length[0]
    step = count
    while times[step - 1] >= time:
        step -= 1
    if step == count or times[step] > time:
        new = row[count]
        for i in range(count, step, -1):
            times[i], idle[i], row[i] = times[i - 1], idle[i - 1], row[i - 1]
        times[step], idle[step], row[step] = time, idle[step - 1], new
        for node in range(profile.cores.shape[1]):
            profile.cores[new, node] = profile.cores[row[step - 1], node]
        profile.length[0] = count + 1
    return step


@part_of_kernel
def _room(profile: NodeProfile, chunk: Chunk, node: int, start: float, end: float) -> int:
    """Counts the chunks of a job that fit on a node from one time to another.

    Their least number is that for the least amounts: it never decreases with an amount.
    """
    least, amount = profile.least, profile.amount
    entry = _entry_during(profile, node, start)
    for i in range(len(amount)):
        least[i, node] = amount[i, entry]
    entry = profile.following[entry]
    while entry >= 0 and profile.begin[entry] < end:
        for i in range(len(amount)):
            least[i, node] = min(least[i, node], amount[i, entry])
        entry = profile.following[entry]
    return int(min(room_on(least, profile.allowed, chunk, node), _INT32))


@lean_kernel
def room_until(profile: NodeProfile, chunk: Chunk, end: float) -> int:
    """Counts the chunks of a job that fit from now to a time in seconds; see :attr:`NodeProfile.room`."""
    total = 0
    for node in range(len(profile.room)):
        profile.room[node] = _room(profile, chunk, node, profile.times[0], end)
        total += profile.room[node]
    return total


@part_of_kernel
def _next_start(profile: NodeProfile, chunk: Chunk, shortest: float, step: int, stop: int) -> int:
    """Returns the first step from `step` to `stop` - 1 with enough cores for `shortest` seconds, or -1.

    Those of all nodes together are looked at, which are known at less cost than the room on each.
    """
    times, idle, count = profile.times, profile.idle, profile.length[0]
    # Sums of thousandths have an error far below one.
    needed, last = chunk.number * chunk.cores * chunk.cpu - 1e-4, step
    while step < stop:
        if last == count or (last > step and times[last] >= times[step] + shortest):
            return step
        last += 1
        if idle[last - 1] < needed:
            step = last
    return -1


@part_of_kernel
def _fit(
    profile: NodeProfile, chunk: Chunk, time: float, fixed: bool, speed: Floats, step: int, shortest: float
) -> tuple[int, float]:
    """Chooses the fastest nodes with room for a job that starts at the begin of a step.

    Args:
        profile: The profile, which takes the nodes and the chunks on each.
        chunk: The chunks.
        time: Requested time in seconds.
        fixed: The time holds at any speed.
        speed: (N,) speed of each node.
        step: The step.
        shortest: Shortest duration in seconds.

    Returns:
        The number of nodes, 0 if the job does not fit, and its duration at the lowest of their speeds in seconds.
    """
    nodes, taken, start, idle = profile.nodes, profile.taken, profile.times[step], profile.cores[profile.row[step]]
    end, cores = later(start + shortest, start), chunk.cores * chunk.cpu - 1e-4
    while True:
        count, slowest, left = 0, math.inf, chunk.number
        for node in profile.speeds.preferred:
            if idle[node] >= cores:
                room = _room(profile, chunk, node, start, end)
                if room > 0:
                    nodes[count], taken[count] = node, min(room, left)
                    left -= taken[count]
                    count += 1
                    slowest = min(slowest, speed[node])
                    if not left:
                        break
        if left:
            return 0, 0.0
        duration = time if fixed else time / slowest
        if later(start + duration, start) <= end:
            return count, duration
        end = later(start + duration, start)


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
    end = later(start + duration, start)
    last = _split(profile, end)
    for i in range(step, last):
        profile.idle[i] -= chunk.number * chunk.cores * chunk.cpu
    for k in range(len(nodes)):
        node, at = nodes[k], step
        entry = _entry(profile, _entry_during(profile, node, start), start)
        while profile.begin[entry] < end:
            after = profile.following[entry]
            if after < 0 or profile.begin[after] > end:
                after = _entry(profile, entry, end)
            add_amounts(profile.amount, chunk, entry, -cores[k])
            whole = _whole_cores(profile, entry)
            while at < last and profile.times[at] < profile.begin[after]:
                profile.cores[profile.row[at], node] = whole
                at += 1
            entry = after


@part_of_kernel
def _bound(profile: NodeProfile, jobs: JobRequests, job: int, which: int) -> float:
    """Returns the time in seconds before which a job has no start."""
    bounds, kind, start = profile.bounds, jobs.kind[job], -math.inf
    for i in range(_BOUNDS):
        at = which, kind % _SETS, i
        if (
            bounds.kind[at] == kind
            and jobs.number[job] >= bounds.number[at]
            and jobs.time[job] >= bounds.time[at]
            and jobs.fixed[job] == bounds.fixed[at]
        ):
            start = max(start, bounds.start[at])
    return start


@part_of_kernel
def _note_bound(profile: NodeProfile, jobs: JobRequests, job: int, which: int, start: float) -> None:
    """Notes the time in seconds before which a job has no start."""
    if not profile.speeds.descending:
        return  # with other nodes left a job may take less time
    bounds, kind, time, number = profile.bounds, jobs.kind[job], jobs.time[job], jobs.number[job]
    row, place = kind % _SETS, -1
    for i in range(_BOUNDS):
        at = which, row, i
        as_wide = bounds.kind[at] == kind and bounds.number[at] >= number
        as_long = bounds.fixed[at] == jobs.fixed[job] and bounds.time[at] >= time
        if as_wide and as_long and bounds.start[at] <= start:
            place = i
    if place < 0:
        place = bounds.oldest[which, row]
        bounds.oldest[which, row] = (place + 1) % _BOUNDS
    at = which, row, place
    bounds.kind[at], bounds.number[at], bounds.time[at] = kind, number, time
    bounds.fixed[at], bounds.start[at] = jobs.fixed[job], start


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
        used, duration = _fit(profile, chunk, time, fixed, speed, step, shortest)
        if used:
            return step, used, duration
        step += 1


@part_of_kernel
def _may_start_now(profile: NodeProfile, jobs: JobRequests, job: int) -> bool:
    """Returns whether there is room for a job now at the highest speeds."""
    if _bound(profile, jobs, job, _NOW) > profile.times[0]:
        return False
    if _earliest(profile, jobs, job, profile.speeds.fastest, 0, 1)[0] == 0:
        return True
    _note_bound(profile, jobs, job, _NOW, profile.times[1] if profile.length[0] > 1 else math.inf)
    return False


@lean_kernel
def reserve_nodes(profile: NodeProfile, jobs: JobRequests, job: int, first: int) -> float:
    """Reserves the earliest start of a job at or after step `first` on the fastest nodes with room.

    There is space for the entries of one job; see `with_entries`.

    Returns:
        The start in seconds, infinite if there is none.
    """
    bound = _bound(profile, jobs, job, _AHEAD)
    while first < profile.length[0] and profile.times[first] < bound:
        first += 1
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
        starts: (Q,) takes their starts in seconds; negatively infinite for the job that may start now, NaN for one that
            needs space for more entries.

    Returns:
        Place of that job or of the first one that is left out, Q if there is none.
    """
    last = len(queued)
    for place in range(first, last):
        # A job that cannot start now at the highest speeds cannot start before a job ends either: later starts need
        # room for longer, and every reservation leaves less.
        while last > place and not _may_start_now(profile, jobs, queued[last - 1]):
            last -= 1
        if place == last:
            return place
        job = queued[place]
        if _may_start_now(profile, jobs, job):
            starts[place] = -math.inf
            return place
        if profile.length[1] + entries_of_job(profile) > len(profile.begin):
            starts[place] = math.nan
            return place
        starts[place] = reserve_nodes(profile, jobs, job, 1)
        _note_bound(profile, jobs, job, _AHEAD, starts[place])
    return len(queued)
