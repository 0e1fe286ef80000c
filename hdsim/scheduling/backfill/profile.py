"""Availability profiles: unreserved resources over time."""

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
    """Returns an expected end, just after `now` if it has passed."""
    return end if end > now else math.nextafter(now, math.inf)


class AvailabilityProfile:
    """Unreserved cores over time, on a uniform platform without memory limits.

    ``free[i]`` cores are unreserved from ``times[i]`` to ``times[i + 1]``, the last entry without end.
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
        """Removes the time before `now`."""
        i = bisect_right(self.times, now) - 1
        del self.times[:i], self.free[:i]
        self.times[0] = now

    def reserve(self, cluster: Cluster, job: int) -> tuple[float, Any]:
        """Reserves the earliest start of a job.

        Returns:
            Start in seconds, infinite if unknown, and a placement if the start is now.
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
    """Speeds of nodes relative to the reference speed, without GPUs.

    Attributes:
        slowest: (N,) speed of the slowest processor of each node.
        fastest: Upper bound of the speeds of processors, with a margin for rounding.
        preferred: (N,) nodes by descending speed of their fastest processor.
    """

    def __init__(self, platform: Platform) -> None:
        first = platform.node_first_processor[:-1]
        speed = np.where(platform.is_gpu, math.inf, platform.gflops / platform.reference_gflops)
        preference = np.where(platform.is_gpu, -math.inf, STATIC_KEYS["high_gflops"](platform))
        self.slowest = np.minimum.reduceat(speed, first)
        self.fastest = float(speed[~platform.is_gpu].max()) * (1 + 1e-9)
        self.preferred = np.argsort(-np.maximum.reduceat(preference, first), kind="stable")


class NodeAvailabilityProfile:
    """Unreserved resources of each node over time.

    ``free[i]`` holds from ``times[i]`` to ``times[i + 1]``, the last entry without end.
    """

    def __init__(self, cluster: Cluster, ends: ReleaseTimes, speeds: NodeSpeeds) -> None:
        self._speeds = speeds
        self._times = [cluster.now]
        now = cluster.cores.free_nodes()
        # Comparing arrays of one type is faster than comparing two types.
        now.idle = now.idle.astype(np.float64)
        self._free: list[FreeNodes] = [now]
        # Cache for each step: capacity for each chunk type, per node and in total.
        self._capacity: list[dict[Chunk, tuple[Floats | Ints, float]]] = [{}]
        for end, job in ends.order:
            held = cluster.running[job]
            i = self._split(_later(end, cluster.now))
            self._add(i, len(self._times), held.nodes, held.node_counts, cluster.requests.chunk(job))

    def forward(self, now: float) -> None:
        """Removes the time before `now`."""
        i = bisect_right(self._times, now) - 1
        del self._times[:i], self._free[:i], self._capacity[:i]
        self._times[0] = now

    def _split(self, time: float) -> int:
        """Returns the index of the step that begins at `time`, which is created if it does not exist."""
        i = bisect_left(self._times, time)
        if i == len(self._times) or self._times[i] != time:
            self._times.insert(i, time)
            self._free.insert(i, self._free[i - 1].copy())
            self._capacity.insert(i, self._capacity[i - 1].copy())
        return i

    def _add(self, first: int, last: int, nodes: Ints, counts: Ints, chunk: Chunk) -> None:
        for free in self._free[first:last]:
            free.add(nodes, counts, chunk)
        for capacity in self._capacity[first:last]:
            capacity.clear()

    def _capacity_at(self, i: int, chunk_type: Chunk) -> tuple[Floats | Ints, float]:
        """Returns the capacity for a chunk type in a step, per node and in total."""
        known = self._capacity[i].get(chunk_type)
        if known is None:
            # A copy: without memory limits the capacity is the array of idle cores, which changes.
            capacity: Floats | Ints = self._free[i].capacity(chunk_type).copy()
            known = self._capacity[i][chunk_type] = capacity, float(capacity.sum())
        return known

    def reserve(self, cluster: Cluster, job: int) -> tuple[float, Any]:
        """Reserves the earliest start of a job, see :meth:`AvailabilityProfile.reserve`."""
        chunk, times, capacity_at = cluster.requests.chunk(job), self._times, self._capacity_at
        chunk_type = chunk._replace(number=1)
        shortest = cluster.requested_time[job]
        if not cluster.workload.fixed_duration[job]:
            shortest /= self._speeds.fastest
        i = 0
        while i < len(times):
            start = times[i]
            j = i
            while j < len(times) and (j == i or times[j] < start + shortest):
                if capacity_at(j, chunk_type)[1] < chunk.number:
                    # Too few chunks on all nodes together: no start before the end of this step is possible.
                    i = j + 1
                    break
                j += 1
            if i > j:
                continue
            choice = self._choose(cluster, job, i, chunk, chunk_type)
            if choice is None:
                i += 1
                continue
            nodes, counts, duration, placement = choice
            last = self._split(_later(start + duration, start))
            self._add(i, last, nodes, -counts, chunk)
            return start, placement
        return math.inf, None

    def _choose(
        self, cluster: Cluster, job: int, i: int, chunk: Chunk, chunk_type: Chunk
    ) -> tuple[Ints, Ints, float, Any] | None:
        """Returns nodes, cores on each, duration and, for a start now, placement of a job that starts at step `i`."""
        start = self._times[i]
        duration = 0.0
        capacity, total = self._capacity_at(i, chunk_type)
        j = i + 1
        while True:
            if j < len(self._times) and self._times[j] < _later(start + duration, start):
                while j < len(self._times) and self._times[j] < _later(start + duration, start):
                    capacity = np.minimum(capacity, self._capacity_at(j, chunk_type)[0])
                    j += 1
                total = float(capacity.sum())
            if total < chunk.number:
                return None
            placement = None
            if start <= cluster.now:
                placement = cluster.pick(job, limit=capacity)
                if placement is None:
                    return None
                nodes, counts = placement.nodes, placement.node_counts
                needed = cluster.estimate(job, placement)
            else:
                nodes, counts = self._first_nodes(capacity, chunk)
                needed = cluster.requested_time[job]
                if not cluster.workload.fixed_duration[job]:
                    needed /= float(self._speeds.slowest[nodes].min())
            if needed <= duration or j == len(self._times) or self._times[j] >= _later(start + needed, start):
                return nodes, counts, needed, placement
            duration = needed

    def _first_nodes(self, capacity: Floats | Ints, chunk: Chunk) -> tuple[Ints, Ints]:
        """Returns the fastest nodes with capacity and the cores to take of each."""
        preferred = self._speeds.preferred
        taken = capacity[preferred]
        offered = taken.cumsum()
        last = offered.searchsorted(chunk.number)
        taken = taken[: last + 1]
        taken[last] -= offered[last] - chunk.number
        used = taken.nonzero()[0]
        nodes = preferred[used]
        order = nodes.argsort()
        return nodes[order], taken[used][order].astype(np.int64) * chunk.cores
