"""What is free over time, reservations taken out."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.cluster.selection import STATIC_KEYS

if TYPE_CHECKING:
    from hdsim.cluster.requests import Chunk, FreeNodes
    from hdsim.cluster.state import Cluster
    from hdsim.platform.model import Platform
    from hdsim.scheduling.backfill.base import ReleaseTimes
    from hdsim.util.arrays import Floats, Ints


def _later(end: float, now: float) -> float:
    """An expected end after `now`: a job past it may end at any moment, but has not yet."""
    return end if end > now else math.nextafter(now, math.inf)


class AvailabilityProfile:
    """Idle cores over time, on a uniform platform without memory limits.

    ``free[i]`` cores are unreserved from ``times[i]`` to ``times[i + 1]``, the last for ever.
    """

    def __init__(self, cluster: Cluster, ends: ReleaseTimes) -> None:
        self.times = [cluster.now]
        self.free = [cluster.n_idle]
        for end, job in ends.order:
            date = _later(end, cluster.now)
            if date > self.times[-1]:
                self.times.append(date)
                self.free.append(self.free[-1])
            self.free[-1] += cluster.size[job]

    def forward(self, now: float) -> None:
        """Forgets what lies before `now`."""
        i = bisect_right(self.times, now) - 1
        del self.times[:i], self.free[:i]
        self.times[0] = now

    def reserve(self, cluster: Cluster, job: int) -> tuple[float, Any]:
        """Finds the earliest start of a job and keeps its cores for it.

        Returns:
            Start in s, infinite if nobody knows, and a placement if it is now.
        """
        times, free = self.times, self.free
        n, duration = cluster.size[job], cluster.requested_time[job]
        if free[-1] < n:
            return math.inf, None
        i = 0
        while True:
            while free[i] < n:
                i += 1
            end = _later(times[i] + duration, times[i])
            j = i + 1
            while j < len(times) and times[j] < end and free[j] >= n:
                j += 1
            if j == len(times) or times[j] >= end:
                break
            i = j
        start = times[i]
        if j == len(times) or times[j] > end:
            times.insert(j, end)
            free.insert(j, free[j - 1])
        for k in range(i, j):
            free[k] -= n
        return start, cluster.pick(job) if start <= cluster.now else None


class NodeSpeeds:
    """How fast nodes are, relative to the reference; GPUs aside.

    Attributes:
        least: (N,) speed of the slowest processor of each node.
        fastest: More than the speed of any processor, by more than any rounding.
        preferred: (N,) nodes, those with the fastest processor first.
    """

    def __init__(self, platform: Platform) -> None:
        first = platform.node_first_processor[:-1]
        speed = np.where(platform.is_gpu, math.inf, platform.gflops / platform.reference_gflops)
        preference = np.where(platform.is_gpu, -math.inf, STATIC_KEYS["high_gflops"](platform))
        self.least = np.minimum.reduceat(speed, first)
        self.fastest = float(speed[~platform.is_gpu].max()) * (1 + 1e-9)
        self.preferred = np.argsort(-np.maximum.reduceat(preference, first), kind="stable")


class NodeAvailabilityProfile:
    """What is free on every node over time; cores of a reservation are chosen node by node.

    ``free[i]`` holds from ``times[i]`` to ``times[i + 1]``, the last for ever.
    """

    def __init__(self, cluster: Cluster, ends: ReleaseTimes, speeds: NodeSpeeds) -> None:
        self._speeds = speeds
        self._times = [cluster.now]
        now = cluster.cores.free_nodes()
        # Numbers of one type are compared with memory faster than those of two.
        now.idle = now.idle.astype(np.float64)
        self._free: list[FreeNodes] = [now]
        # Of every step: room for kinds of chunks on each node and in all, as far as anybody has asked.
        self._room: list[dict[Chunk, tuple[Floats | Ints, float]]] = [{}]
        for end, job in ends.order:
            held = cluster.running[job]
            i = self._split(_later(end, cluster.now))
            self._add(i, len(self._times), held.nodes, held.node_counts, cluster.requests.chunk(job))

    def forward(self, now: float) -> None:
        """Forgets what lies before `now`."""
        i = bisect_right(self._times, now) - 1
        del self._times[:i], self._free[:i], self._room[:i]
        self._times[0] = now

    def _split(self, time: float) -> int:
        """Index of the step that begins at `time`, made if there is none."""
        i = bisect_left(self._times, time)
        if i == len(self._times) or self._times[i] != time:
            self._times.insert(i, time)
            self._free.insert(i, self._free[i - 1].copy())
            self._room.insert(i, self._room[i - 1].copy())
        return i

    def _add(self, first: int, last: int, nodes: Ints, counts: Ints, chunk: Chunk) -> None:
        for free in self._free[first:last]:
            free.add(nodes, counts, chunk)
        for room in self._room[first:last]:
            room.clear()

    def _room_at(self, i: int, kind: Chunk) -> tuple[Floats | Ints, float]:
        """How many chunks of a kind each node can give in a step, and all nodes together."""
        known = self._room[i].get(kind)
        if known is None:
            # Of its own: without memory limits the room is the array of idle cores, which changes.
            room: Floats | Ints = self._free[i].capacity(kind).copy()
            known = self._room[i][kind] = room, float(room.sum())
        return known

    def reserve(self, cluster: Cluster, job: int) -> tuple[float, Any]:
        """Finds the earliest start of a job and reserves its share of the nodes; see `AvailabilityProfile.reserve`."""
        chunk, times, room_at = cluster.requests.chunk(job), self._times, self._room_at
        kind = chunk._replace(number=1)
        shortest = cluster.requested_time[job]
        if not cluster.workload.fixed_duration[job]:
            shortest /= self._speeds.fastest
        i = 0
        while i < len(times):
            start = times[i]
            j = i
            while j < len(times) and (j == i or times[j] < start + shortest):
                if room_at(j, kind)[1] < chunk.number:
                    # Too little even on all nodes together: no start up to then will do.
                    i = j + 1
                    break
                j += 1
            if i > j:
                continue
            choice = self._choose(cluster, job, i, chunk, kind)
            if choice is None:
                i += 1
                continue
            nodes, counts, duration, placement = choice
            last = self._split(_later(start + duration, start))
            self._add(i, last, nodes, -counts, chunk)
            return start, placement
        return math.inf, None

    def _choose(
        self, cluster: Cluster, job: int, i: int, chunk: Chunk, kind: Chunk
    ) -> tuple[Ints, Ints, float, Any] | None:
        """Nodes, cores on each, duration and (for a start now) placement of a job at the start of step `i`."""
        start = self._times[i]
        duration = 0.0
        room, total = self._room_at(i, kind)
        j = i + 1
        while True:
            if j < len(self._times) and self._times[j] < _later(start + duration, start):
                while j < len(self._times) and self._times[j] < _later(start + duration, start):
                    room = np.minimum(room, self._room_at(j, kind)[0])
                    j += 1
                total = float(room.sum())
            if total < chunk.number:
                return None
            placement = None
            if start <= cluster.now:
                placement = cluster.pick(job, limit=room)
                if placement is None:
                    return None
                nodes, counts = placement.nodes, placement.node_counts
                needed = cluster.estimate(job, placement)
            else:
                nodes, counts = self._first_nodes(room, chunk)
                needed = cluster.requested_time[job]
                if not cluster.workload.fixed_duration[job]:
                    needed /= float(self._speeds.least[nodes].min())
            if needed <= duration or j == len(self._times) or self._times[j] >= _later(start + needed, start):
                return nodes, counts, needed, placement
            duration = needed

    def _first_nodes(self, room: Floats | Ints, chunk: Chunk) -> tuple[Ints, Ints]:
        """The fastest nodes with room, and the cores to take of each."""
        preferred = self._speeds.preferred
        taken = room[preferred]
        offered = taken.cumsum()
        last = offered.searchsorted(chunk.number)
        taken = taken[: last + 1]
        taken[last] -= offered[last] - chunk.number
        used = taken.nonzero()[0]
        nodes = preferred[used]
        order = nodes.argsort()
        return nodes[order], taken[used][order].astype(np.int64) * chunk.cores
