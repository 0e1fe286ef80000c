"""Requests of jobs and resources of nodes in the arrays of the kernels."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.cluster.kernels.chunks import Holdings, JobRequests
from hdsim.cluster.selection import STATIC_KEYS
from hdsim.scheduling.kernels.node_profiles import NodeSpeeds
from hdsim.scheduling.kernels.profiles import ROUNDED_UP

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hdsim.cluster.requests import Requests
    from hdsim.cluster.state import Cluster
    from hdsim.platform.model import Platform
    from hdsim.util.arrays import Floats


def node_speeds(platform: Platform) -> NodeSpeeds:
    """Returns the speeds of the nodes of a platform."""
    first = platform.node_first_processor[:-1]
    speed = platform.gflops / platform.reference_gflops
    slowest = np.minimum.reduceat(np.where(platform.is_gpu, math.inf, speed), first)
    fastest = np.maximum.reduceat(np.where(platform.is_gpu, -math.inf, speed), first)
    preference = np.where(platform.is_gpu, -math.inf, STATIC_KEYS["high_gflops"](platform))
    preferred = np.argsort(-np.maximum.reduceat(preference, first), kind="stable")
    descending = all(bool((np.diff(each[preferred]) <= 0).all()) for each in (slowest, fastest))
    return NodeSpeeds(slowest, fastest * ROUNDED_UP, preferred, descending)


def job_requests(
    asked: Requests, times: Floats, fixed: NDArray[np.bool_], kinds: dict[tuple[float, ...], int], known: int = 0
) -> JobRequests:
    """Returns the requests of jobs.

    Args:
        asked: Requests of all jobs.
        times: (J,) requested times in seconds of the jobs behind the `known` ones.
        fixed: (J,) whether these hold at any speed.
        kinds: Number of each kind of chunks, to which new kinds are added.
        known: Number of jobs before these.
    """
    rows, n = slice(known, known + len(times)), len(times)
    size = np.array(asked.size[rows])
    gpus = np.array(asked.gpus[rows]) if asked.gpus else np.zeros_like(size)
    number = np.gcd(size, gpus)
    jobs = JobRequests(
        number=number,
        cores=size // number,
        gpus=gpus // number,
        memory=np.array(asked.memory[rows]),
        cpu=np.array(asked.cpu[rows]) if asked.cpu else np.ones(n),
        storage=np.array(asked.storage[rows]) if asked.storage else np.zeros(n),
        place=np.array(asked.places.of_job[rows]) if asked.places else np.zeros(n, np.int64),
        kind=np.zeros(n, np.int64),
        time=times.copy(),
        fixed=fixed.copy(),
    )
    chunks = zip(*(column.tolist() for column in jobs[1:7]), strict=True)
    jobs.kind[:] = [kinds.setdefault(chunk, len(kinds)) for chunk in chunks]
    return jobs


class NodeArrays:
    """Requests of the jobs of a cluster and cores of the running ones on nodes."""

    def __init__(self) -> None:
        self._known = 0
        columns: list[Any] = [np.zeros(0, dtype) for dtype in "qqqdddqqd?"]
        self._jobs = JobRequests(*columns)
        self._kinds: dict[tuple[float, ...], int] = {}
        self._held: dict[int, Any] = {}  # latest placement of each job of the holdings
        self._holdings = Holdings(*(np.zeros(size, np.int64) for size in (0, 0, 64, 64, 1)))

    @property
    def kinds(self) -> int:
        """Number of kinds of chunks."""
        return len(self._kinds)

    def requests(self, cluster: Cluster) -> JobRequests:
        """Returns the requests of all jobs that are known so far."""
        known, jobs = self._known, len(cluster.size)
        if jobs > len(self._jobs.time):
            space = max(jobs, 2 * known)
            columns: list[Any] = [np.resize(column, space) for column in self._jobs]
            self._jobs = JobRequests(*columns)
        if jobs > known:
            rows = slice(known, jobs)
            times, fixed = np.array(cluster.requested_time[rows]), cluster.workload.fixed_duration[rows]
            more = job_requests(cluster.requests, times, fixed, self._kinds, known)
            for column, values in zip(self._jobs, more, strict=True):
                column[rows] = values
            self._known = jobs
        if cluster.expected:
            queued = list(cluster.queue)
            self._jobs.time[queued] = [cluster.requested_time[job] for job in queued]
        return self._jobs

    def holdings(self, cluster: Cluster) -> Holdings:
        """Returns the cores of the running jobs on nodes; `requests` comes first."""
        running, started = cluster.running, []
        for job in reversed(running):
            if self._held.get(job) is running[job]:
                break  # jobs are in order of their starts, so that those before it are known, too
            started.append(job)
        if not started:
            return self._holdings
        first, last, node, cores, length = self._holdings
        if len(first) < len(self._jobs.time):
            first, last = (np.resize(column, len(self._jobs.time)) for column in (first, last))
        places = [running[job] for job in started]
        end = int(length[0]) + sum(len(each.nodes) for each in places)
        if end > len(node):
            # Of jobs that have ended nothing is kept.
            started, places = list(running), list(running.values())
            length[0], end = 0, sum(len(each.nodes) for each in places)
            node, cores = np.zeros((2, max(2 * end, len(node))), np.int64)
        for job, placement in zip(started, places, strict=True):
            self._held[job] = placement
            first[job], last[job] = length[0], length[0] + len(placement.nodes)
            node[first[job] : last[job]], cores[first[job] : last[job]] = placement.nodes, placement.node_counts
            length[0] = last[job]
        self._holdings = Holdings(first, last, node, cores, length)
        return self._holdings
