"""Availability profiles: unreserved resources over time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hdsim.cluster.kernels.chunks import Chunk, JobRequests, chunk_of
from hdsim.scheduling.backfill.arrays import NodeArrays, node_speeds
from hdsim.scheduling.kernels.node_profiles import (
    NodeProfile,
    forward_nodes,
    hold,
    make_node_profile,
    plan_nodes,
    reserve_ahead,
    reserve_nodes,
    room_until,
    with_entries,
    with_steps,
)
from hdsim.scheduling.kernels.profiles import forward, later, make_profile, plan, reserve_all, with_space
from hdsim.scheduling.rules import UNLIMITED

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.scheduling.backfill.releases import ReleaseTimes


class Plan(Protocol):
    """Reservations of queued jobs."""

    def begin(self, cluster: Cluster, ends: ReleaseTimes) -> None:
        """Makes a plan of the running jobs alone."""

    def forward(self, now: float) -> None:
        """Removes the time before `now`."""

    def reserve(
        self, cluster: Cluster, jobs: list[int], reserved: dict[int, float], depth: int
    ) -> Iterator[tuple[int, Any]]:
        """Reserves the earliest start of each job, beside those that have one, up to a number of later starts.

        A plan without limit may leave out the last jobs, which cannot start now; they come first in the next call.

        Args:
            cluster: The cluster.
            jobs: The jobs in order.
            reserved: Takes the start of each job in seconds, infinite if unknown.
            depth: Most later starts that are known.

        Yields:
            Each job whose start is now, and its placement.
        """

    def start(self, cluster: Cluster, jobs: list[int]) -> Iterator[tuple[int, Any]]:
        """Yields each of some jobs in order that can start now beside the reservations, and its placement."""


class CorePlan(Plan):
    """Reservations of cores, on a uniform platform without memory limits."""

    def __init__(self) -> None:
        self._profile = make_profile(64)

    def begin(self, cluster: Cluster, ends: ReleaseTimes) -> None:
        self._profile = with_space(self._profile, len(ends.end) + 1)
        plan(self._profile, ends.sorted, cluster.now, float(cluster.n_idle))

    def forward(self, now: float) -> None:
        forward(self._profile, now)

    def reserve(
        self, cluster: Cluster, jobs: list[int], reserved: dict[int, float], depth: int
    ) -> Iterator[tuple[int, Any]]:
        starts = self._starts(cluster, jobs, math.inf, depth)
        reserved.update(zip(jobs, starts, strict=False))
        yield from self._due(cluster, jobs, starts)

    def start(self, cluster: Cluster, jobs: list[int]) -> Iterator[tuple[int, Any]]:
        yield from self._due(cluster, jobs, self._starts(cluster, jobs, cluster.now, UNLIMITED))

    def _starts(self, cluster: Cluster, jobs: list[int], latest: float, depth: int) -> list[float]:
        """Reserves cores; see :func:`hdsim.scheduling.kernels.profiles.reserve_all`."""
        self._profile = with_space(self._profile, int(self._profile.length[0]) + len(jobs))
        cores, durations = (
            np.array([column[job] for job in jobs], np.float64) for column in (cluster.size, cluster.requested_time)
        )
        starts = np.empty(len(jobs))
        done = reserve_all(self._profile, cores, durations, latest, depth, starts)
        return starts[:done].tolist()

    def _due(self, cluster: Cluster, jobs: list[int], starts: list[float]) -> Iterator[tuple[int, Any]]:
        for job, start in zip(jobs, starts, strict=False):
            if start <= cluster.now:
                yield job, cluster.pick(job)


class NodePlan(Plan):
    """Reservations of the resources of each node."""

    def __init__(self, cluster: Cluster) -> None:
        self._arrays = NodeArrays()
        free, allowed = cluster.cores.free_nodes().arrays()
        self._profile = make_node_profile(free, allowed, node_speeds(cluster.platform))

    def begin(self, cluster: Cluster, ends: ReleaseTimes) -> None:
        free, allowed = cluster.cores.free_nodes().arrays()
        requests = self._arrays.requests(cluster)
        holdings = self._arrays.holdings(cluster)
        self._profile = with_steps(self._profile._replace(allowed=allowed), len(ends.end) + 1)
        self._profile = with_entries(self._profile, free.shape[1] + int(holdings.length[0]))
        plan_nodes(self._profile, free, requests, ends.sorted, holdings, cluster.now)

    def forward(self, now: float) -> None:
        forward_nodes(self._profile, now)

    def reserve(
        self, cluster: Cluster, jobs: list[int], reserved: dict[int, float], depth: int
    ) -> Iterator[tuple[int, Any]]:
        if depth < UNLIMITED:
            yield from self._reserve_first(cluster, jobs, reserved, depth)
            return
        requests, profile = self._prepared(cluster, len(jobs))
        queued, starts, place = np.array(jobs, np.int64), np.zeros(len(jobs)), 0
        while True:
            self._profile = profile = with_entries(profile, 0)
            ahead = reserve_ahead(profile, requests, queued, place, starts)
            reserved.update(zip(jobs[place:ahead], starts[place:ahead].tolist(), strict=True))
            place = ahead
            if ahead < len(jobs) and starts[ahead] == -math.inf:
                job = jobs[ahead]
                placement = self._start_now(cluster, job, chunk_of(requests, job))
                if placement is None:
                    reserved[job] = reserve_nodes(profile, requests, job, 1)
                else:
                    reserved[job] = cluster.now
                    yield job, placement
                place += 1
            elif ahead == len(jobs) or not math.isnan(starts[ahead]):
                return

    def start(self, cluster: Cluster, jobs: list[int]) -> Iterator[tuple[int, Any]]:
        requests, _ = self._prepared(cluster, len(jobs))
        for job in jobs:
            if cluster.fits(job):
                self._profile = with_entries(self._profile, 0)
                placement = self._start_now(cluster, job, chunk_of(requests, job))
                if placement is not None:
                    yield job, placement

    def _reserve_first(
        self, cluster: Cluster, jobs: list[int], reserved: dict[int, float], depth: int
    ) -> Iterator[tuple[int, Any]]:
        """Reserves a start for each job up to a number of later ones."""
        requests, _ = self._prepared(cluster, len(jobs))
        for job in jobs:
            if not depth:
                return
            self._profile = with_entries(self._profile, 0)
            placement = self._start_now(cluster, job, chunk_of(requests, job))
            if placement is None:
                reserved[job] = reserve_nodes(self._profile, requests, job, 1)
                depth -= reserved[job] < math.inf
            else:
                reserved[job] = cluster.now
                yield job, placement

    def _prepared(self, cluster: Cluster, jobs: int) -> tuple[JobRequests, NodeProfile]:
        """Returns the requests, and the profile with the nodes in service now and steps for these reservations."""
        profile = with_steps(self._profile, int(self._profile.length[0]) + jobs)
        self._profile = profile._replace(allowed=cluster.cores.free_nodes().arrays()[1])
        return self._arrays.requests(cluster), self._profile

    def _start_now(self, cluster: Cluster, job: int, chunk: Chunk) -> Any:
        """Reserves a start now and returns its placement, None if the job does not fit beside the reservations."""
        profile, now = self._profile, cluster.now
        end = later(now, now)
        while room_until(profile, chunk, end) >= chunk.number:
            placement = cluster.pick(job, limit=profile.room.astype(np.int64))
            if placement is None:
                return None
            duration = cluster.estimate(job, placement)
            if later(now + duration, now) <= end:
                hold(profile, chunk, placement.nodes, placement.node_counts, 0, duration)
                return placement
            end = later(now + duration, now)
        return None
