"""EASY backfilling."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.kernels.profiles import ROUNDED_UP, admit, head_reservation, reserve_head
from hdsim.scheduling.backfill.arrays import NodeArrays
from hdsim.scheduling.backfill.base import Queue, ReleaseTimes, start_queued

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster


class Easy:
    """EASY: only the head has a reservation; jobs that do not delay it start at once."""

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
        self._free, self._allowed = np.zeros((0, 0)), np.zeros((0, 0), bool)

    def started(self, cluster: Cluster, job: int, placement: Any) -> None:
        """See :meth:`Backfill.started`."""
        self._ends.add(job, cluster.now + cluster.estimate(job, placement), cluster.size[job])
        self._head = -1

    def ended(self, cluster: Cluster) -> None:
        """See :meth:`Backfill.ended`."""
        ended = cluster.ended
        if ended:
            self._head = -1
            for job in ended:
                self._ends.remove(job)
        if self._ends.correct() or cluster.node_changes:
            self._head = -1

    def backfill(self, cluster: Cluster, queue: Queue, order: Queue, head: int) -> None:
        """Starts the jobs that do not delay the head.

        While no job ends and the head is the same, blocked jobs stay blocked and only submitted jobs are candidates.
        """
        idle, size, requested = cluster.n_idle, cluster.size, cluster.requested_time
        # Without core ids a job may take no CPU at all.
        if not idle and cluster.has_core_ids:
            return
        if self._head == head and not self._ends.overdue(cluster.now):
            candidates = order.sort([job for job in cluster.submitted if job in cluster.queue])
        else:
            candidates = order.jobs
            self._reserve(cluster, head)
        now, shadow, extra, counts = cluster.now, self._shadow, self._extra, cluster.only_counts
        # An upper bound with a margin for rounding; the estimates below decide.
        longest = (shadow - now) * self._fastest * ROUNDED_UP if shadow > now else 0.0
        # Jobs that are neither short enough at the highest speed nor narrow enough are never admitted below.
        possible = iter([
            job for job in candidates if size[job] <= idle and (requested[job] <= longest or size[job] <= extra)
        ])  # fmt: skip
        while (job := next(possible, -1)) >= 0:
            # If only counts of cores matter, enough idle cores suffice.
            if size[job] > idle or job == head or not (counts or cluster.fits(job)):
                continue
            placement = cluster.pick(job)
            end = now + cluster.estimate(job, placement)
            if end > shadow and not self._admit(cluster, job, placement):
                continue
            start_queued(cluster, queue, order, job, placement)
            self._ends.add(job, end, size[job])
            idle = cluster.n_idle
            if not idle and cluster.has_core_ids:
                break
            if order.after_start:
                order.refresh(cluster)
                possible = iter(order.sort(list(possible)))

    def admits(self, cluster: Cluster, head: int, job: int) -> bool:
        """Returns whether a job that fits can start now without a delay of the blocked head; changes no reservation."""
        if self._head != head or self._ends.overdue(cluster.now):
            self._reserve(cluster, head)
        placement = cluster.pick(job)
        if cluster.now + cluster.estimate(job, placement) <= self._shadow:
            return True
        extra, margin, free = self._extra, self._margin, self._free.copy()
        admitted = self._admit(cluster, job, placement)
        self._extra, self._margin, self._free = extra, margin, free
        return admitted

    def _reserve(self, cluster: Cluster, head: int) -> None:
        """Reserves the earliest expected start of the head."""
        self._head, now, size = head, cluster.now, float(cluster.size[head])
        if self._nodes is None:
            self._shadow, self._extra = head_reservation(self._ends.sorted, now, float(cluster.n_idle), size)
            return
        self._free, self._allowed = cluster.cores.free_nodes().arrays()
        requests, running = self._nodes.requests(cluster), self._nodes.holdings(cluster)
        self._shadow, self._margin = reserve_head(
            self._free, self._allowed, requests, self._ends.sorted, running, head, now
        )
        # An upper bound: admission also depends on the nodes of the cores.
        self._extra = float(np.maximum(self._free[0], 0).sum()) - size

    def _admit(self, cluster: Cluster, job: int, placement: Any) -> bool:
        """Reserves the cores of a job that ends after the shadow time; False if the head does not fit beside it."""
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
