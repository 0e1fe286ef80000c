"""EASY backfilling."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.kernels.compiling import in_python
from hdsim.scheduling.backfill.arrays import NodeArrays, node_speeds
from hdsim.scheduling.backfill.base import Backfill, Queue, start_queued
from hdsim.scheduling.backfill.releases import ReleaseTimes
from hdsim.scheduling.kernels.profiles import (
    admit,
    fill_beside,
    fill_exactly,
    longest_before,
    reserve_head,
)

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster

_longest_before = in_python(longest_before)


class Easy(Backfill):
    """EASY: only the head has a reservation; jobs that do not delay it start at once.

    On nodes, three placements are tried for a candidate: the core policy's choice; its choice among nodes fast enough
    for an end before the shadow time; its choice under a limit for each node that leaves the head its room (spent in
    whole steps of equal gain, so that together the limits may allow more cores than the candidate asks for); where that
    finds too few cores, an exact search. A candidate stays in the queue only where no distribution over the nodes
    leaves the head its room.
    """

    serves_head = False

    def __init__(self, cluster: Cluster) -> None:
        self._ends = ReleaseTimes(cluster)
        platform = cluster.platform
        fastest = platform.gflops[~platform.is_gpu].max()
        self._fastest = 1.0 if cluster.uniform_speed else float(fastest / platform.reference_gflops)
        self._head = -1
        # Shadow time in seconds, extra cores, and on nodes the chunks of the head that fit beside it at that time.
        self._shadow, self._extra, self._margin = math.inf, 0.0, 0.0
        self._nodes = None if cluster.only_counts else NodeArrays()
        # Whether equal cores are counted.
        self._counts = cluster.only_counts and cluster.uniform_speed and cluster.node_states is None
        self._free, self._allowed = np.zeros((0, 0)), np.zeros((0, 0), bool)
        # Chunks of each kind that may run beside the head, and that may not; space for limits; speeds of nodes.
        self._most: dict[int, tuple[int, float]] = {}
        self._limits = np.zeros(platform.n_nodes, np.int64)
        # Of the head, under hard caps; and the moment at which `backfill` last made its reservation.
        self._watts, self._head_end = 0.0, math.inf
        self._moment: Any = None
        # Begins, ends and watts of its starts at lower and lower frequencies, each before the one before.
        self._kept: list[tuple[float, float, float]] = []
        self._slowest = node_speeds(platform).slowest

    def started(self, cluster: Cluster, job: int, placement: Any) -> None:
        self._ends.add(job, cluster.now + cluster.estimate(job, placement), cluster.size[job])
        self._head = -1

    def ended(self, cluster: Cluster) -> None:
        ended = cluster.ended
        if ended:
            self._head = -1
            for job in ended:
                self._ends.remove(job)
        if self._ends.correct() or cluster.node_changes:
            self._head = -1

    def backfill(self, cluster: Cluster, queue: Queue, order: Queue, head: int) -> None:
        """Starts the jobs that do not delay the head.

        While no job ends and the head is the same, blocked jobs stay blocked where equal cores are counted; elsewhere
        what starts and what is submitted meanwhile changes the cores that a job would get. Under hard caps they do
        while none starts either.
        """
        # Without core ids a job may take no CPU at all; slowed jobs rise beside a reservation.
        idle = cluster.n_idle
        if not idle and cluster.has_core_ids and not cluster.has_slowed:
            return
        budget, now = cluster.budget, cluster.now
        known = self._head == head and not self._ends.overdue(now)
        if known and budget is not None:
            known = self._shadow > now and budget.lasts(self._moment, now)
        if not known:
            self._reserve(cluster, head)
            self._moment = None if budget is None else budget.moment(now)
        if self._shadow == math.inf:
            if self._serve_next(cluster, queue, order, head):
                return
            idle = cluster.n_idle
        if budget is not None:
            idle = self._idle(cluster)
            if self._shadow < math.inf:
                cluster.reserve_power(self._kept)
        head, size, requested = self._head, cluster.size, cluster.requested_time
        shadow, extra = self._shadow, self._extra
        candidates = order.jobs
        if known and (self._counts or budget is not None):
            candidates = order.sort([job for job in cluster.submitted if job in cluster.queue])
        # An upper bound; the estimates below decide.
        longest = _longest_before(shadow, now, self._fastest)
        # Jobs that are neither short enough at the highest speed nor narrow enough are never admitted below.
        possible = iter(
            [job for job in candidates if size[job] <= idle and (requested[job] <= longest or size[job] <= extra)]
        )
        fits = cluster.fits if budget is not None else None if cluster.only_counts else cluster.cores.fits
        while (job := next(possible, -1)) >= 0:
            # If only counts of cores matter, enough idle cores suffice.
            if size[job] > idle or job == head or (fits is not None and not fits(job)):
                continue
            placement = self._place(cluster, job)
            if placement is None:
                continue
            start_queued(cluster, queue, order, job, placement)
            self._ends.add(job, now + cluster.estimate(job, placement), size[job])
            self._most.clear()
            idle = self._idle(cluster)
            if not idle and cluster.has_core_ids:
                break
            if order.after_start:
                order.refresh(cluster)
                possible = iter(order.sort(list(possible)))

    def _idle(self, cluster: Cluster) -> Any:
        """Returns an upper bound of the cores of a job that may start now."""
        budget = cluster.budget
        return cluster.n_idle if budget is None else min(cluster.n_idle, budget.startable(cluster.now))

    def placement(self, cluster: Cluster, head: int, job: int) -> Any:
        """Returns cores on which a job can start now without a delay of the blocked head, None if there are none.

        The reservation does not change.
        """
        if self._head != head or self._ends.overdue(cluster.now):
            self._reserve(cluster, head)
        if not cluster.fits(job):
            return None
        extra, margin, free = self._extra, self._margin, self._free.copy()
        placement = self._place(cluster, job)
        self._extra, self._margin, self._free = extra, margin, free
        return placement

    def _serve_next(self, cluster: Cluster, queue: Queue, order: Queue, head: int) -> bool:
        """Serves the queue behind a head that does not fit on the nodes that are up, which has no reservation.

        The jobs behind it start in order; the first that cannot has the reservation if it fits on these nodes.

        Returns:
            Whether no job is left to reserve for.
        """
        waiting, passed = iter(list(queue.jobs)), {head}
        while (job := next(waiting, -1)) >= 0:
            if job in passed:
                continue
            placement = cluster.pick(job) if cluster.fits(job) else None
            if placement is not None:
                start_queued(cluster, queue, order, job, placement)
                self._ends.add(job, cluster.now + cluster.estimate(job, placement), cluster.size[job])
                if queue.after_start:
                    queue.refresh(cluster)
                    waiting = iter(list(queue.jobs))
                continue
            self._reserve(cluster, job)
            if self._shadow < math.inf:
                return False
            passed.add(job)
        return True

    def _place(self, cluster: Cluster, job: int) -> Any:
        """Returns cores for a job that fits on which it does not delay the head, and reserves them beside the head.

        These are the core policy's first choice; else its choice among nodes that are fast enough for an end by the
        shadow time; else among nodes where the head keeps its room. None if there are none.
        """
        now, shadow, requested = cluster.now, self._shadow, cluster.requested_time[job]
        any_speed = bool(cluster.uniform_speed or cluster.workload.fixed_duration[job])
        late = now + requested / (1.0 if any_speed else self._fastest) > shadow
        if late and self._nodes is not None:
            wide = cluster.budget is not None and cluster.size[job] > self._extra
            if wide or not self._may_stay(cluster, job):
                return None
        placement = cluster.pick(job)
        if now + cluster.estimate(job, placement) <= shadow or self._admit(cluster, job, placement):
            return placement
        if not late and (not any_speed or cluster.node_states is not None):
            begin = now if cluster.node_states is None else cluster.node_states.up_dates(now)
            fast = begin + requested / (1.0 if any_speed else self._slowest) <= shadow
            placement = cluster.pick(job, limit=np.where(fast, cluster.requests.size[job], 0))
            if placement is not None and now + cluster.estimate(job, placement) <= shadow:
                return placement
        if self._nodes is not None and (limit := self._limit(cluster, job)) is not None:
            placement = cluster.pick(job, limit=limit)
            if placement is not None and self._admit(cluster, job, placement):
                return placement
            if cluster.budget is None:
                raise AssertionError(f"job {job} delays job {self._head} on nodes that leave it room")
        return None

    def _reserve(self, cluster: Cluster, head: int) -> None:
        """Reserves the earliest expected start of the head."""
        self._head, now, size, self._moment = head, cluster.now, float(cluster.size[head]), None
        self._most.clear()
        if self._nodes is None:
            self._shadow, self._extra = self._ends.head_reservation(now, float(cluster.n_idle), size)
            return
        self._free, self._allowed = cluster.cores.free_nodes().arrays()
        requests, running = self._nodes.requests(cluster), self._nodes.holdings(cluster)
        self._shadow, self._margin = reserve_head(
            self._free, self._allowed, requests, self._ends.sorted, running, head, now
        )
        # An upper bound: admission also depends on the nodes of the cores.
        self._extra = float(np.maximum(self._free[0], 0).sum()) - size
        if cluster.budget is not None and self._margin >= 0:
            # Jobs that run beyond an earlier time at which there are cores for the head leave it these.
            seconds = cluster.requested_time[head]
            begin = now if cluster.cores.fits(head) else self._shadow
            # The reservation is for the highest frequency at which there will ever be room; it may start slower before,
            # which jobs that are slowed leave it.
            self._shadow, self._kept = math.inf, []
            for ghz in cluster.frequencies_of(head):
                lasts = seconds * cluster.stretch(head, ghz)
                watts = cluster.budget.job_watts(cluster.size[head], ghz)
                start = cluster.budget.earliest(watts, lasts, begin, now)
                if self._shadow == math.inf:
                    self._shadow, self._head_end, self._watts = start, start + lasts, watts
                if start < min((each[0] for each in self._kept), default=math.inf):
                    self._kept.append((start, start + lasts, watts))
                if self._shadow < math.inf and not cluster.has_slowed:
                    break
            if self._shadow < math.inf:
                most = cluster.budget.cores_beside(self._watts, self._shadow, self._head_end, now)
                self._extra = min(self._extra, most)

    def _may_stay(self, cluster: Cluster, job: int) -> bool:
        """Returns whether there are nodes for a job on which it may run beyond the shadow time."""
        assert self._nodes is not None
        requests = self._nodes.requests(cluster)
        kind, number = int(requests.kind[job]), int(requests.number[job])
        fewer, more = self._most.get(kind, (0, math.inf))
        if fewer < number < more:
            fewer, more = (number, more) if self._limit(cluster, job) is not None else (fewer, number)
            self._most[kind] = fewer, more
        return number <= fewer

    def _limit(self, cluster: Cluster, job: int) -> Any:
        """Returns (N,) limits of the chunks of a job on each node that leave the head its room, None if too few do."""
        assert self._nodes is not None
        requests, room = self._nodes.requests(cluster), cluster.cores.capacity(cluster.requests.chunk(job))
        number = int(requests.number[job])
        asked = self._free, self._allowed, requests, self._head, self._margin, job, room, number, self._limits
        least, most = fill_beside(*asked)
        if least < number <= most:
            least = fill_exactly(*asked)
        return self._limits if least >= number else None

    def _admit(self, cluster: Cluster, job: int, placement: Any) -> bool:
        """Reserves the cores of a job that ends after the shadow time; False if the head does not fit beside it."""
        budget, end = cluster.budget, self._head_end
        if budget is not None:
            ghz = cluster.frequency_on(job, placement)
            if not budget.has_room(self._watts, self._shadow, end, cluster.now, placement.ids, ghz):
                return False
        if self._nodes is not None:
            requests, nodes, cores = self._nodes.requests(cluster), placement.nodes, placement.node_counts
            margin = admit(self._free, self._allowed, requests, self._head, self._margin, job, nodes, cores)
            if margin < 0:
                return False
            self._margin = margin
        elif cluster.size[job] > self._extra:
            return False
        self._extra -= cluster.size[job]
        return True
