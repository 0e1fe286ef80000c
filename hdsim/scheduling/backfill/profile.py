"""Availability profiles: unreserved resources over time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import repeat
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hdsim.kernels.node_profiles import (
    forward_nodes,
    hold,
    make_node_profile,
    plan_nodes,
    reserve_ahead,
    reserve_nodes,
    room_until,
    steps_until,
    with_steps,
)
from hdsim.kernels.profiles import Chunk, chunk_of, forward, make_profile, plan, reserve_all, with_space
from hdsim.scheduling.backfill.arrays import NodeArrays, node_speeds

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.scheduling.backfill.base import ReleaseTimes


class Plan(Protocol):
    """Reservations of queued jobs."""

    def begin(self, cluster: Cluster, ends: ReleaseTimes) -> None:
        """Makes a plan of the running jobs alone."""

    def forward(self, now: float) -> None:
        """Removes the time before `now`."""

    def reserve(self, cluster: Cluster, jobs: list[int]) -> Iterator[tuple[int, float, Any]]:
        """Reserves the earliest start of each job, beside those that have one.

        A plan may leave out the last jobs, which cannot start now; they come first in the next call.

        Yields:
            Job, start in seconds, infinite if unknown, and a placement if the start is now.
        """


class CorePlan:
    """Reservations of cores, on a uniform platform without memory limits."""

    def __init__(self) -> None:
        self._profile = make_profile(64)

    def begin(self, cluster: Cluster, ends: ReleaseTimes) -> None:
        """See :meth:`Plan.begin`."""
        self._profile = with_space(self._profile, len(ends.end) + 1)
        plan(self._profile, ends.sorted, cluster.now, float(cluster.n_idle))

    def forward(self, now: float) -> None:
        """See :meth:`Plan.forward`."""
        forward(self._profile, now)

    def reserve(self, cluster: Cluster, jobs: list[int]) -> Iterator[tuple[int, float, Any]]:
        """See :meth:`Plan.reserve`."""
        self._profile = with_space(self._profile, int(self._profile.length[0]) + len(jobs))
        cores, durations = (
            np.array([column[job] for job in jobs], np.float64) for column in (cluster.size, cluster.requested_time)
        )
        starts = np.empty(len(jobs))
        reserve_all(self._profile, cores, durations, starts)
        for job, start in zip(jobs, starts.tolist(), strict=True):
            yield job, start, cluster.pick(job) if start <= cluster.now else None


class NodePlan:
    """Reservations of the resources of each node."""

    def __init__(self, cluster: Cluster) -> None:
        self._arrays = NodeArrays()
        free, allowed = cluster.cores.free_nodes().arrays()
        self._profile = make_node_profile(free, allowed, node_speeds(cluster.platform))

    def begin(self, cluster: Cluster, ends: ReleaseTimes) -> None:
        """See :meth:`Plan.begin`."""
        free, allowed = cluster.cores.free_nodes().arrays()
        requests = self._arrays.requests(cluster)
        self._profile = with_steps(self._profile._replace(allowed=allowed), len(ends.end) + 1, self._arrays.kinds)
        plan_nodes(self._profile, free, requests, ends.sorted, self._arrays.holdings(cluster), cluster.now)

    def forward(self, now: float) -> None:
        """See :meth:`Plan.forward`."""
        forward_nodes(self._profile, now)

    def reserve(self, cluster: Cluster, jobs: list[int]) -> Iterator[tuple[int, float, Any]]:
        """See :meth:`Plan.reserve`."""
        requests = self._arrays.requests(cluster)
        profile = with_steps(self._profile, int(self._profile.length[0]) + len(jobs), self._arrays.kinds)
        self._profile = profile = profile._replace(allowed=cluster.cores.free_nodes().arrays()[1])
        queued, starts, place = np.array(jobs, np.int64), np.zeros(len(jobs)), 0
        while True:
            ahead = reserve_ahead(profile, requests, queued, place, starts)
            yield from zip(jobs[place:ahead], starts[place:ahead].tolist(), repeat(None))
            if ahead == len(jobs) or starts[ahead] != -math.inf:
                return
            job = jobs[ahead]
            placement = self._start_now(cluster, job, chunk_of(requests, job))
            start = reserve_nodes(profile, requests, job, 1) if placement is None else cluster.now
            yield job, start, placement
            place = ahead + 1

    def _start_now(self, cluster: Cluster, job: int, chunk: Chunk) -> Any:
        """Reserves a start now and returns its placement, None if the job does not fit beside the reservations."""
        profile, last = self._profile, 1
        while room_until(profile, chunk, last) >= chunk.number:
            placement = cluster.pick(job, limit=profile.room.astype(np.int64))
            if placement is None:
                return None
            duration = cluster.estimate(job, placement)
            behind = steps_until(profile.times, profile.length[0], 0, duration)
            if behind <= last:
                hold(profile, chunk, placement.nodes, placement.node_counts, 0, duration)
                return placement
            last = behind
        return None
