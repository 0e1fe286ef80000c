"""Backfilling: which jobs may overtake the head of the queue.

Estimates are made at the speed of the cores a job would be given; where memory limits a job or a job asks for GPUs,
reservations count the cores, the memory and the GPUs of every node, otherwise cores alone. On a homogeneous platform
without memory limits these are the textbook algorithms: EASY (Lifka 1995; Mu'alem and Feitelson 2001) and
conservative backfilling.

Nobody knows when a node that is down will be repaired: reservations are made on the nodes that are up, and made anew
when a node fails or is repaired. A job that does not fit on the nodes that are up has no reservation until then.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hdsim.cluster.cores import STATIC_KEYS, Chunk, Floats, FreeNodes, Ints
from hdsim.scheduling.queue import FixedQueue, MovingQueue

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.platform.model import Platform

Queue = FixedQueue | MovingQueue
BACKFILLS = ("none", "easy", "conservative", "rlscheduler")


class ExpectedEnds:
    """Running jobs by their expected ends.

    Attributes:
        order: (end in s, job), ascending.
        end: Expected end of each running job.
    """

    def __init__(self) -> None:
        self.order: list[tuple[float, int]] = []
        self.end: dict[int, float] = {}

    def add(self, job: int, end: float) -> None:
        """Notes a started job."""
        self.end[job] = end
        insort(self.order, (end, job))

    def overdue(self, now: float) -> bool:
        """Whether a job should have ended by now that still runs."""
        return bool(self.order) and self.order[0][0] <= now

    def remove(self, job: int) -> float:
        """Forgets an ended job and returns when it was expected to end."""
        end = self.end.pop(job)
        del self.order[bisect_left(self.order, (end, job))]
        return end


class Backfill(Protocol):
    """A backfilling algorithm: told of every job that starts or ends, asked once a pass.

    Attributes:
        serves_head: The algorithm starts the head itself; otherwise it is asked only while the head is blocked.
    """

    serves_head: bool

    def started(self, cluster: Cluster, job: int, placement: Any) -> None:
        """A job was started by someone else."""

    def ended(self, cluster: Cluster) -> None:
        """Jobs may have ended: see ``cluster.ended``."""

    def fill(self, cluster: Cluster, queue: Queue, order: Queue, head: int) -> None:
        """Start what may start.

        Args:
            cluster: The cluster.
            queue: The queue; started jobs are taken out of it.
            order: The same jobs in the order in which candidates are tried; may be `queue` itself.
            head: The first job of the queue.
        """


def _start(cluster: Cluster, queue: Queue, order: Queue, job: int, placement: Any) -> None:
    cluster.start(job, placement)
    queue.remove(job)
    if order is not queue:
        order.remove(job)


class Easy:
    """One reservation, for the head; any job may start now that does not delay it."""

    serves_head = False

    def __init__(self, cluster: Cluster) -> None:
        self._ends = ExpectedEnds()
        platform = cluster.platform
        fastest = platform.gflops[~platform.is_gpu].max()
        self._fastest = 1.0 if cluster.uniform_speed else float(fastest / platform.reference_gflops)
        self._head = -1
        self._room: _SpareCores | _SpareNodes | None = None

    def started(self, cluster: Cluster, job: int, placement: Any) -> None:
        """Notes when a started job is expected to end."""
        self._ends.add(job, cluster.now + cluster.estimate(job, placement))
        self._head = -1

    def ended(self, cluster: Cluster) -> None:
        """Forgets the jobs that have ended."""
        ended = cluster.ended
        if ended:
            self._head = -1
            for job in ended:
                self._ends.remove(job)
        if cluster.node_changes:
            self._head = -1

    def fill(self, cluster: Cluster, queue: Queue, order: Queue, head: int) -> None:
        """Starts what does not delay the head.

        While nothing has ended and the head is the same, jobs that had to wait still have to: only new ones are tried.
        """
        idle, size, requested = cluster.n_idle, cluster.size, cluster.requested_time
        if not idle:
            return
        if self._head == head and not self._ends.overdue(cluster.now):
            candidates = order.sort([job for job in cluster.submitted if size[job] <= idle and job in cluster.queue])
        else:
            candidates = order.jobs(idle)
            self._room = (_SpareCores if cluster.only_counts else _SpareNodes)(cluster, self._ends, head)
            self._head = head
        room = self._room
        assert room is not None
        now, shadow, extra, counts = cluster.now, room.shadow, room.extra, cluster.only_counts
        # Wider than exact by more than any rounding: the estimates below decide.
        longest = (shadow - now) * self._fastest * (1 + 1e-9) if shadow > now else 0.0
        # What is neither short enough at the highest speed nor narrow enough is out; cores only get fewer below.
        for job in [job for job in candidates if requested[job] <= longest or size[job] <= extra]:
            # Where only counts matter, enough idle cores are all it takes.
            if size[job] > idle or job == head or not (counts or cluster.fits(job)):
                continue
            placement = cluster.pick(job)
            end = now + cluster.estimate(job, placement)
            if end > shadow and not room.spare(cluster, job, placement):
                continue
            _start(cluster, queue, order, job, placement)
            self._ends.add(job, end)
            idle -= size[job]
            if not idle:
                break


class _SpareCores:
    """Reservation of the head where only the number of cores matters.

    Attributes:
        shadow: When the head can start, s; infinite if nobody knows.
        extra: Cores left over at that time.
    """

    def __init__(self, cluster: Cluster, ends: ExpectedEnds, head: int) -> None:
        missing = cluster.size[head] - cluster.n_idle
        self.shadow = math.inf
        now = cluster.now
        for end, job in ends.order:
            date = end if end > now else now
            if missing <= 0 and date > self.shadow:
                break
            missing -= cluster.size[job]
            self.shadow = date
        if missing > 0:
            self.shadow = math.inf
        self.extra = -missing

    def spare(self, cluster: Cluster, job: int, placement: Any) -> bool:
        """Gives the job extra cores to keep past the shadow time, if there are enough."""
        if cluster.size[job] > self.extra:
            return False
        self.extra -= cluster.size[job]
        return True


class _SpareNodes:
    """Reservation of the head where memory or GPUs of nodes matter.

    What is free at the shadow time is kept by node, the head's reservation in its chunks.
    """

    def __init__(self, cluster: Cluster, ends: ExpectedEnds, head: int) -> None:
        self._free: FreeNodes = cluster.cores.free_nodes()
        self._slot = cluster.requests.chunk(head)
        self.shadow = math.inf
        self._spare = float(self._free.room(self._slot).sum()) - self._slot.number
        for end, job in ends.order:
            date = max(end, cluster.now)
            if self._spare >= 0 and date > self.shadow:
                break
            held = cluster.running[job]
            self._spare += self._change(held.nodes, held.node_counts, cluster.requests.chunk(job))
            self.shadow = date
        if self._spare < 0:
            self.shadow = math.inf
        # Whether a job may keep cores depends on where they are, but more than these never.
        self.extra = int(self._free.idle.sum()) - self._slot.number * self._slot.cores

    def _change(self, nodes: Ints, counts: Ints, chunk: Chunk) -> float:
        """Gives nodes back what a job has there; returns by how many chunks the head's room has grown."""
        before = self._free.room(self._slot, nodes).sum()
        self._free.add(nodes, counts, chunk)
        return float(self._free.room(self._slot, nodes).sum() - before)

    def spare(self, cluster: Cluster, job: int, placement: Any) -> bool:
        """Lets the job keep its cores past the shadow time, if the head still fits beside it then."""
        chunk = cluster.requests.chunk(job)
        change = self._change(placement.nodes, -placement.node_counts, chunk)
        if self._spare + change < 0:
            self._free.add(placement.nodes, placement.node_counts, chunk)
            return False
        self._spare += change
        self.extra -= cluster.size[job]
        return True


class Conservative:
    """A reservation for every queued job in order; the plan is made anew whenever an end was not where it was expected.

    While every job ends when it was expected to and new jobs come last in the order, making the plan anew would give
    the same plan, so it is only extended. A plan of nodes is made anew at every end: jobs get others than it says.
    """

    serves_head = True

    def __init__(self, cluster: Cluster) -> None:
        self._ends = ExpectedEnds()
        self._plan: _CorePlan | _NodePlan | None = None
        self._reserved: dict[int, float] = {}
        by_count = cluster.only_counts and cluster.uniform_speed
        self._speeds = None if by_count else _NodeSpeeds(cluster.platform)

    def started(self, cluster: Cluster, job: int, placement: Any) -> None:
        """Notes when a started job is expected to end."""
        self._ends.add(job, cluster.now + cluster.estimate(job, placement))

    def ended(self, cluster: Cluster) -> None:
        """Forgets the jobs that have ended; an unexpected end outdates the plan."""
        now = cluster.now
        if cluster.node_changes:
            self._plan = None
        for job in cluster.ended:
            # A job of no time is planned to end a moment after its start, and has ended sooner.
            expected = self._ends.remove(job) == now and cluster.starting_time[job] != now
            if not expected or isinstance(self._plan, _NodePlan):
                self._plan = None

    def fill(self, cluster: Cluster, queue: Queue, order: Queue, head: int) -> None:
        """Plans every queued job in order and starts those whose turn is now."""
        jobs = order.jobs()
        overdue = self._ends.overdue(cluster.now)
        planned = len(self._reserved)
        if self._plan is not None and not overdue and list(self._reserved) == jobs[:planned]:
            self._plan.forward(cluster.now)
            due = [job for job, start in self._reserved.items() if start <= cluster.now]
            for job in due:
                self._start(cluster, queue, order, job, cluster.pick(job))
            jobs = jobs[planned:]
        else:
            speeds = self._speeds
            self._plan = _CorePlan(cluster, self._ends) if speeds is None else _NodePlan(cluster, self._ends, speeds)
            self._reserved.clear()
        for job in jobs:
            start, placement = self._plan.reserve(cluster, job)
            self._reserved[job] = start
            if start <= cluster.now:
                self._start(cluster, queue, order, job, placement)

    def _start(self, cluster: Cluster, queue: Queue, order: Queue, job: int, placement: Any) -> None:
        _start(cluster, queue, order, job, placement)
        del self._reserved[job]
        self.started(cluster, job, placement)


def _later(end: float, now: float) -> float:
    """An expected end after `now`: a job past it may end at any moment, but has not yet."""
    return end if end > now else math.nextafter(now, math.inf)


class _CorePlan:
    """Idle cores over time, on a uniform platform without memory limits.

    ``free[i]`` cores are unreserved from ``times[i]`` to ``times[i + 1]``, the last for ever.
    """

    def __init__(self, cluster: Cluster, ends: ExpectedEnds) -> None:
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


class _NodeSpeeds:
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


class _NodePlan:
    """What is free on every node over time; cores of a reservation are chosen node by node.

    ``free[i]`` holds from ``times[i]`` to ``times[i + 1]``, the last for ever.
    """

    def __init__(self, cluster: Cluster, ends: ExpectedEnds, speeds: _NodeSpeeds) -> None:
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
            room: Floats | Ints = self._free[i].room(kind).copy()
            known = self._room[i][kind] = room, float(room.sum())
        return known

    def reserve(self, cluster: Cluster, job: int) -> tuple[float, Any]:
        """Finds the earliest start of a job and keeps its part of the nodes for it; see `_CorePlan.reserve`."""
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


class RLScheduler:
    """The backfilling of RLScheduler's published code: not EASY, but what its tables were made with.

    The head is reserved a start once, when it becomes the head; a job may start if it is expected to end strictly
    before that. There are no extra cores.
    """

    serves_head = False

    def __init__(self, cluster: Cluster) -> None:
        self._ends = ExpectedEnds()
        self._head = -1
        self._earliest = 0.0
        self._freed = False  # since the queue was gone through

    def started(self, cluster: Cluster, job: int, placement: Any) -> None:
        """Notes when a started job is expected to end."""
        self._ends.add(job, cluster.now + cluster.estimate(job, placement))

    def ended(self, cluster: Cluster) -> None:
        """Forgets the jobs that have ended."""
        if cluster.ended:
            self._freed = True
            for job in cluster.ended:
                self._ends.remove(job)
        if cluster.node_changes:
            self._head = -1

    def fill(self, cluster: Cluster, queue: Queue, order: Queue, head: int) -> None:
        """Starts, in order of submission, what ends before the head's first reservation.

        While nothing has ended and the head is the same, jobs that had to wait still have to: only new ones are tried.
        """
        candidates: Iterable[int] = cluster.queue
        if self._head != head:
            self._head = head
            self._earliest = _SpareCores(cluster, self._ends, head).shadow
        elif not self._freed:
            candidates = [job for job in cluster.submitted if job in cluster.queue]
        self._freed = False
        now, earliest, size, requested = cluster.now, self._earliest, cluster.size, cluster.requested_time
        idle = cluster.n_idle
        for job in [job for job in candidates if size[job] <= idle and now + requested[job] < earliest and job != head]:
            placement = cluster.pick(job)
            if placement is not None:
                _start(cluster, queue, order, job, placement)
                self.started(cluster, job, placement)


def make_backfill(name: str, cluster: Cluster) -> Backfill | None:
    """Makes the named algorithm, or None for ``none``."""
    makers: dict[str, type[Easy] | type[Conservative] | type[RLScheduler]] = {
        "easy": Easy,
        "conservative": Conservative,
        "rlscheduler": RLScheduler,
    }
    return makers[name](cluster) if name in makers else None
