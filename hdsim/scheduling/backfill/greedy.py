"""Greedy scheduling, as in Kubernetes: a job that does not fit holds up no other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hdsim.scheduling.backfill.base import Backfill, Queue, start_queued
from hdsim.scheduling.kinds import JobKinds

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster


class Greedy(Backfill):
    """Starts every job that fits, in order, without reservations: large jobs may starve."""

    serves_head = True

    def __init__(self, cluster: Cluster) -> None:
        self._kinds = JobKinds(cluster)

    def ended(self, cluster: Cluster) -> None:
        self._kinds.on_instant()

    def backfill(self, cluster: Cluster, queue: Queue, order: Queue, head: int) -> None:
        """Starts the jobs that fit."""
        kinds = self._kinds
        kinds.update(order)
        while (job := kinds.next()) is not None:
            placement = cluster.pick(job)
            if placement is None:
                kinds.block()
            else:
                start_queued(cluster, queue, order, job, placement)
                if order.after_start:
                    order.refresh(cluster)
                    kinds.update(order)
