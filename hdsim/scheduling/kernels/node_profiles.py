"""Availability profiles of nodes for conservative backfilling: unreserved resources of each node over time."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.kernels.chunks import Chunk, Holdings, JobRequests, add_amounts, chunk_of, room_in
from hdsim.kernels.compiling import lean_kernel, part_of_kernel
from hdsim.kernels.references import by_reference
from hdsim.scheduling.kernels.profiles import Bools, Floats, Ints, Releases, later

#: Sets of bounds on starts, by kind of chunks, and bounds of each set.
_SETS, _BOUNDS = 64, 16
#: Steps whose cores are looked at before the room on each node.
_LOOK = 8
#: Entries of a node that a reservation may need: its begin and its end.
_ENTRIES = 2
#: An entry: its begin in seconds, its node, the next entry of the node and that of the same step (-1 for none), and the
#: unreserved cores, rounded up.
ENTRY = np.dtype([("begin", "f8"), ("node", "i4"), ("next", "i4"), ("beside", "i4"), ("cores", "i4")])
#: A bound on starts: the kind of chunks of the job that it was found for (-1 for none), their number, the requested
#: time in seconds, the time in seconds before which there is no start, and whether the former holds at any speed.
BOUND = np.dtype([("kind", "i8"), ("number", "i8"), ("time", "f8"), ("start", "f8"), ("fixed", "?")], align=True)
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


class Demand(NamedTuple):
    """The demand of a job.

    Attributes:
        chunk: Its chunks.
        time: Requested time in seconds.
        fixed: The time holds at any speed.
        speed: (N,) speed of each node.
        shortest: Shortest duration in seconds.
    """

    chunk: Chunk
    time: float
    fixed: bool
    speed: Floats
    shortest: float


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
        changed: (S,) latest entry that begins with the step of each row, -1 for none. Those of the first step are not
            looked at.
        entries: (E,) entries; see `ENTRY`.
        amount: (R, E) unreserved amounts.
        first: (N,) first entry of each node.
        found: (N,) entry of each node that was looked for last, or an earlier one.
        allowed: (M, N) nodes in service that constraints allow.
        speeds: Speeds of the nodes.
        bounds: (2, sets, bounds) bounds on starts; see `BOUND`.
        oldest: (2, sets) place of the bound that the next one replaces.
        room: (N,) space for the chunks that fit on each node, or more.
        nodes: (N,) space for the nodes of a job.
        taken: (N,) space for its chunks on each of them.
        shortest: (N,) space for its shortest duration in seconds if a node is one of them.
        length: (2,) numbers of steps and of entries.
    """

    times: Floats
    idle: Floats
    row: Ints
    cores: NDArray[np.int32]
    changed: Ints
    entries: NDArray[np.void]
    amount: Floats
    first: Ints
    found: Ints
    allowed: Bools
    speeds: NodeSpeeds
    bounds: NDArray[np.void]
    oldest: Ints
    room: NDArray[np.int32]
    nodes: Ints
    taken: Ints
    shortest: Floats
    length: Ints


def make_node_profile(free: Floats, allowed: Bools, speeds: NodeSpeeds) -> NodeProfile:
    """Returns a profile without space for steps.

    Args:
        free: (R, N) amounts.
        allowed: (M, N) nodes in service that constraints allow.
        speeds: Speeds of the nodes.
    """
    n = free.shape[1]
    times, rows, first = np.zeros((2, 0)), np.zeros((2, 0), np.int64), np.zeros((2, n), np.int64)
    steps = times[0], times[1], rows[0], np.zeros((0, n), np.int32), rows[1]
    # Of fewer entries NumPy would take the amounts for rows, which is another type.
    entries = np.zeros(2, ENTRY), np.zeros((len(free), 2), order="F"), first[0], first[1]
    bounds = np.zeros((2, _SETS, _BOUNDS), BOUND), np.zeros((2, _SETS), np.int64)
    (nodes, taken), length = np.zeros((2, n), np.int64), np.zeros(2, np.int64)
    room, shortest = np.zeros(n, np.int32), np.zeros(n)
    return NodeProfile(*steps, *entries, allowed, speeds, *bounds, room, nodes, taken, shortest, length)


def with_steps(profile: NodeProfile, size: int) -> NodeProfile:
    """Returns a profile, moved to larger arrays if there is no space for `size` steps."""
    old, n = profile.cores.shape
    if size <= old:
        return profile
    size = 2 * size
    row, cores = np.arange(size), np.zeros((size, n), np.int32)
    row[:old], cores[:old] = profile.row, profile.cores
    times, idle = np.resize(profile.times, size), np.resize(profile.idle, size)
    changed = np.resize(profile.changed, size)
    return profile._replace(times=times, idle=idle, row=row, cores=cores, changed=changed)


def with_entries(profile: NodeProfile, more: int) -> NodeProfile:
    """Returns a profile, moved to larger arrays if there is no space for `more` entries and those of one job."""
    old, needed = len(profile.entries), int(profile.length[1]) + more + _ENTRIES * len(profile.first)
    if needed <= old:
        return profile
    amount = np.zeros((len(profile.amount), 2 * needed), order="F")
    amount[:, :old] = profile.amount
    return profile._replace(entries=np.resize(profile.entries, 2 * needed), amount=amount)


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
    profile = by_reference(profile)
    last = profile.nodes  # latest entry of each node
    for kinds in profile.bounds:
        for bounds in kinds:
            for bound in bounds:
                bound["kind"] = -1
    for i in range(len(profile.row)):
        profile.row[i] = i
    profile.times[0], profile.idle[0] = now, 0.0
    profile.length[0], profile.length[1] = 1, free.shape[1]
    for node in range(free.shape[1]):
        profile.first[node] = profile.found[node] = last[node] = node
        profile.entries[node]["node"], profile.entries[node]["begin"], profile.entries[node]["next"] = node, now, -1
        for i in range(len(free)):
            profile.amount[i, node] = free[i, node]
        profile.idle[0] += max(free[0, node], 0.0)
        profile.cores[0, node] = _count_cores(profile, node)
    for i in range(releases.length[0]):
        time = later(releases.end[i], now)
        step, job = _split(profile, time), releases.job[i]
        chunk = chunk_of(jobs, job)
        for place in range(holdings.first[job], holdings.last[job]):
            node, cores = holdings.node[place], holdings.cores[place]
            last[node] = _entry(profile, last[node], step)
            add_amounts(profile.amount, chunk, last[node], cores)
            profile.idle[step] += cores * chunk.cpu
            profile.cores[profile.row[step], node] = _count_cores(profile, last[node])


@lean_kernel
def forward_nodes(profile: NodeProfile, now: float) -> None:
    """Removes the time before `now`, at which or before which the profile begins."""
    profile = by_reference(profile)
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
        profile.entries[profile.first[node]]["begin"] = now


@part_of_kernel
def _count_cores(profile: NodeProfile, entry: int) -> int:
    """Counts the unreserved cores of an entry after a change of its amounts, rounded up."""
    cores = int(min(max(np.ceil(profile.amount[0, entry]), 0.0), _INT32))
    profile.entries[entry]["cores"] = cores
    return cores


@part_of_kernel
def _entry_during(profile: NodeProfile, node: int, time: float) -> int:
    """Returns the entry of a node at a time."""
    entry = profile.found[node]  # mostly the times that are asked for ascend
    if profile.entries[entry]["begin"] > time:
        entry = profile.first[node]
    profile.found[node] = _entry_at(profile, entry, time)
    return profile.found[node]


@part_of_kernel
def _entry_at(profile: NodeProfile, entry: int, time: float) -> int:
    """Returns the entry of the same node at a time, not before that of `entry`."""
    after = profile.entries[entry]["next"]
    while after >= 0 and profile.entries[after]["begin"] <= time:
        entry = after
        after = profile.entries[entry]["next"]
    return entry


@part_of_kernel
def _entry(profile: NodeProfile, entry: int, step: int) -> int:
    """Returns the entry that begins with a step during `entry`; it is created if it does not exist."""
    entries, time, row = profile.entries, profile.times[step], profile.row[step]
    if entries[entry]["begin"] == time:
        return entry
    new = profile.length[1]
    profile.length[1] = new + 1
    entries[new]["begin"], entries[new]["node"] = time, entries[entry]["node"]
    entries[new]["cores"], entries[new]["next"] = entries[entry]["cores"], entries[entry]["next"]
    entries[new]["beside"] = profile.changed[row]
    entries[entry]["next"] = profile.changed[row] = new
    for i in range(len(profile.amount)):
        profile.amount[i, new] = profile.amount[i, entry]
    return new


@part_of_kernel
def _split(profile: NodeProfile, time: float) -> int:
    """Returns the step that begins at `time`, after the begin of the profile; it is created if it does not exist."""
    times, idle, row, count = profile.times, profile.idle, profile.row, profile.length[0]
    step = count
    while times[step - 1] >= time:
        step -= 1
    if step == count or times[step] > time:
        new = row[count]
        profile.changed[new] = -1
        for i in range(count, step, -1):
            times[i], idle[i], row[i] = times[i - 1], idle[i - 1], row[i - 1]
        times[step], idle[step], row[step] = time, idle[step - 1], new
        for node in range(profile.cores.shape[1]):
            profile.cores[new, node] = profile.cores[row[step - 1], node]
        profile.length[0] = count + 1
    return step


@part_of_kernel
def _room(profile: NodeProfile, chunk: Chunk, node: int, entry: int, end: float) -> int:
    """Counts the chunks of a job that fit on a node from an entry to a time."""
    entries, amount, allowed = profile.entries, profile.amount, profile.allowed
    room, entry = room_in(amount, entry, allowed, chunk, node), entries[entry]["next"]
    while room > 0 and entry >= 0 and entries[entry]["begin"] < end:
        room, entry = min(room, room_in(amount, entry, allowed, chunk, node)), entries[entry]["next"]
    return int(max(min(room, _INT32), 0))


@part_of_kernel
def _least_cores(profile: NodeProfile, entry: int, end: float) -> int:
    """Returns the least unreserved cores of a node from an entry to a time, rounded up."""
    entries = profile.entries
    least, entry = entries[entry]["cores"], entries[entry]["next"]
    while least and entry >= 0 and entries[entry]["begin"] < end:
        least, entry = min(least, entries[entry]["cores"]), entries[entry]["next"]
    return least


@lean_kernel
def room_until(profile: NodeProfile, chunk: Chunk, end: float) -> int:
    """Counts the chunks of a job that fit from now to a time in seconds; see :attr:`NodeProfile.room`."""
    profile, total = by_reference(profile), 0
    for node in range(len(profile.room)):
        profile.room[node] = _room(profile, chunk, node, _entry_during(profile, node, profile.times[0]), end)
        total += profile.room[node]
    return total


@part_of_kernel
def _next_start(profile: NodeProfile, demand: Demand, step: int, stop: int) -> int:
    """Returns the first step from `step` to `stop` - 1 with enough cores for the shortest duration, or -1.

    Those of all nodes together are looked at, which are known at less cost than the room on each.
    """
    times, idle, count, chunk = profile.times, profile.idle, profile.length[0], demand.chunk
    # Sums of thousandths have an error far below one.
    needed, last = chunk.number * chunk.cores * chunk.cpu - 1e-4, step
    while step < stop:
        if last == count or (last > step and times[last] >= times[step] + demand.shortest):
            return step
        last += 1
        if idle[last - 1] < needed:
            step = last
    return -1


@part_of_kernel
def _duration(demand: Demand, speed: float) -> float:
    """Returns the duration of a job at a speed in seconds."""
    return demand.time if demand.fixed else demand.time / speed


@part_of_kernel
def _most_room(profile: NodeProfile, demand: Demand, step: int) -> int:
    """Takes upper bounds of the chunks of a job that fit on each node from a step on, and returns their sum.

    They are those of the least cores during the first steps.
    """
    room, each, total = profile.room, _per_core(demand.chunk), 0
    room[:] = _INT32
    last, end = min(step + _LOOK, profile.length[0]), profile.times[step] + demand.shortest
    for i in range(step, last):
        if i == step or profile.times[i] < end:
            cores = profile.cores[profile.row[i]]
            for node in range(len(room)):
                room[node] = cores[node] if cores[node] < room[node] else room[node]
    for node in range(len(room)):
        room[node] = _most_on(room[node], each)
        total += room[node]
    return total


@part_of_kernel
def _per_core(chunk: Chunk) -> float:
    """Returns the number of chunks that fit on a core, and a little more; 0 for chunks that need no CPU."""
    needed = chunk.cores * chunk.cpu - 1e-4
    return 1 / needed if needed > 0 else 0.0


@part_of_kernel
def _most_on(cores: int, each: float) -> int:
    """Returns an upper bound of the chunks on a number of cores, given their number on each; see `_per_core`."""
    return int(min(cores * each, _INT32)) if each > 0 else _INT32


@part_of_kernel
def _fit(profile: NodeProfile, demand: Demand, step: int) -> tuple[int, float]:
    """Chooses the fastest nodes with room for a job that starts at the begin of a step.

    Args:
        profile: The profile, which takes the nodes and the chunks on each. It has upper bounds of the room on each node
            for the shortest duration, and takes the room on those that are looked at.
        demand: The demand of the job.
        step: The step.

    Returns:
        The number of nodes, 0 if the job does not fit, and its duration at the lowest of their speeds in seconds.
    """
    nodes, taken, rooms = profile.nodes, profile.taken, profile.room
    start, number = profile.times[step], demand.chunk.number
    soonest = end = later(start + demand.shortest, start)
    while True:
        count, slowest, fastest, left, total = 0, math.inf, 0.0, number, 0
        for room in rooms:
            total += room
        for node in profile.speeds.preferred:
            if rooms[node] > 0:
                until = max(end, later(start + profile.shortest[node], start))
                room = _room(profile, demand.chunk, node, _entry_during(profile, node, start), until)
                total += room - rooms[node]
                if end == soonest:
                    rooms[node] = room
                if total < number:
                    return 0, 0.0
                if room > 0:
                    nodes[count], taken[count] = node, min(room, left)
                    left -= taken[count]
                    count += 1
                    slowest, fastest = min(slowest, demand.speed[node]), max(fastest, demand.speed[node])
                    if not left:
                        break
        if left:
            return 0, 0.0
        duration = _duration(demand, slowest)
        if later(start + duration, start) <= end or (slowest == fastest and profile.speeds.descending):
            return count, duration
        end = later(start + duration, start)


@part_of_kernel
def _next_with_room(profile: NodeProfile, demand: Demand, step: int, stop: int) -> int:
    """Returns the first step behind `step`, up to `stop` - 1, with enough room for the shortest duration, or -1.

    The room on a node does not grow until its next entry begins: upper bounds at `step` hold up to there.
    """
    rooms, grown, is_grown, count, total = profile.room, profile.nodes, profile.taken, 0, 0
    each, number, entries = _per_core(demand.chunk), demand.chunk.number, profile.entries
    for node in range(len(rooms)):
        total += rooms[node]
        is_grown[node] = 0
    while True:
        past, step = step, _next_start(profile, demand, step + 1, stop)
        if step < 0:
            return -1
        for i in range(past + 1, step + 1):
            entry = profile.changed[profile.row[i]]
            while entry >= 0:
                node, room = entries[entry]["node"], _most_on(entries[entry]["cores"], each)
                if room > rooms[node] and not is_grown[node]:
                    grown[count], is_grown[node] = entry, 1
                    count += 1
                total += room - rooms[node]
                rooms[node] = room
                entry = entries[entry]["beside"]
        start = profile.times[step]
        while count and total >= number:
            count -= 1
            entry = grown[count]
            node = entries[entry]["node"]
            end = later(start + profile.shortest[node], start)
            room = _most_on(_least_cores(profile, _entry_at(profile, entry, start), end), each)
            total += room - rooms[node]
            rooms[node], is_grown[node] = room, 0
        if total >= number:
            return step


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
    profile = by_reference(profile)
    start = profile.times[step]
    end = later(start + duration, start)
    last = _split(profile, end)
    for i in range(step, last):
        profile.idle[i] -= chunk.number * chunk.cores * chunk.cpu
    for k in range(len(nodes)):
        node, at = nodes[k], step
        entry = _entry(profile, _entry_during(profile, node, start), step)
        while profile.entries[entry]["begin"] < end:
            after = profile.entries[entry]["next"]
            if after < 0 or profile.entries[after]["begin"] > end:
                after = _entry(profile, entry, last)
            add_amounts(profile.amount, chunk, entry, -cores[k])
            cores_left = _count_cores(profile, entry)
            while at < last and profile.times[at] < profile.entries[after]["begin"]:
                profile.cores[profile.row[at], node] = cores_left
                at += 1
            entry = after


@part_of_kernel
def _bound(profile: NodeProfile, jobs: JobRequests, job: int, which: int) -> float:
    """Returns the time in seconds before which a job has no start.

    While a profile only loses room, a job with as many chunks of a kind as another, or more, for a time as long, or
    longer, starts no earlier.
    """
    kind, number, time, fixed, start = jobs.kind[job], jobs.number[job], jobs.time[job], jobs.fixed[job], -math.inf
    for bound in profile.bounds[which, kind % _SETS]:
        if bound["kind"] == kind and number >= bound["number"] and time >= bound["time"] and fixed == bound["fixed"]:
            start = max(start, bound["start"])
    return start


@part_of_kernel
def _note_bound(profile: NodeProfile, jobs: JobRequests, job: int, which: int, start: float) -> None:
    """Notes the time in seconds before which a job has no start."""
    if not profile.speeds.descending:
        return  # with other nodes left a job may take less time
    kind, number, time, fixed = jobs.kind[job], jobs.number[job], jobs.time[job], jobs.fixed[job]
    bounds, place = profile.bounds[which, kind % _SETS], -1
    for i in range(_BOUNDS):
        bound = bounds[i]
        as_wide = bound["kind"] == kind and bound["number"] >= number
        as_long = bound["fixed"] == fixed and bound["time"] >= time
        if as_wide and as_long and bound["start"] <= start:
            place = i
    if place < 0:
        place = profile.oldest[which, kind % _SETS]
        profile.oldest[which, kind % _SETS] = (place + 1) % _BOUNDS
    bound = bounds[place]
    bound["kind"], bound["number"], bound["time"], bound["fixed"], bound["start"] = kind, number, time, fixed, start


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
    profile = by_reference(profile)
    speeds, time, fixed = profile.speeds, jobs.time[job], jobs.fixed[job]
    shortest = time if fixed else time / speeds.fastest[speeds.preferred[0]]
    demand = by_reference(Demand(chunk_of(jobs, job), time, fixed, speed, shortest))
    for node in range(len(profile.shortest)):
        profile.shortest[node] = _duration(demand, speed[node]) if speeds.descending else shortest
    step = _next_start(profile, demand, step, stop)
    if step >= 0 and _most_room(profile, demand, step) < demand.chunk.number:
        step = _next_with_room(profile, demand, step, stop)
    while step >= 0:
        used, duration = _fit(profile, demand, step)
        if used:
            return step, used, duration
        step = _next_with_room(profile, demand, step, stop)
    return -1, 0, 0.0


@part_of_kernel
def _end_from_now(profile: NodeProfile, jobs: JobRequests, job: int) -> float:
    """Returns the end in seconds of a job that starts now at the highest speeds, negatively infinite without room."""
    if _bound(profile, jobs, job, _NOW) <= profile.times[0]:
        step, _, duration = _earliest(profile, jobs, job, profile.speeds.fastest, 0, 1)
        if step == 0:
            return later(profile.times[0] + duration, profile.times[0])
        _note_bound(profile, jobs, job, _NOW, profile.times[1] if profile.length[0] > 1 else math.inf)
    return -math.inf


@lean_kernel
def reserve_nodes(profile: NodeProfile, jobs: JobRequests, job: int, first: int) -> float:
    """Reserves the earliest start of a job at or after step `first` on the fastest nodes with room.

    There is space for the entries of one job; see `with_entries`.

    Returns:
        The start in seconds, infinite if there is none.
    """
    profile = by_reference(profile)
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
    profile = by_reference(profile)
    last, end = len(queued), -math.inf  # of the last job that might start now
    for place in range(first, last):
        # A job that cannot start now at the highest speeds cannot start before a job ends either: later starts need
        # room for longer, and every reservation leaves less. One that can is not impeded by reservations from its end.
        while last > place and end == -math.inf:
            end = _end_from_now(profile, jobs, queued[last - 1])
            if end == -math.inf:
                last -= 1
        if place == last:
            return place
        job = queued[place]
        if place == last - 1 or _end_from_now(profile, jobs, job) > -math.inf:
            starts[place] = -math.inf
            return place
        if profile.length[1] + _ENTRIES * len(profile.first) > len(profile.entries):
            starts[place] = math.nan
            return place
        starts[place] = reserve_nodes(profile, jobs, job, 1)
        _note_bound(profile, jobs, job, _AHEAD, starts[place])
        if starts[place] < end:
            end = -math.inf
    return len(queued)
