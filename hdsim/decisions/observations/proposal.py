"""Observation of one job that a base policy is about to start, and of the jobs that wait beside it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from hdsim.decisions.base import Array, Observation, Observer
from hdsim.decisions.observations.jobs import scaled_time

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.decisions.wait_queue import WaitQueue
    from hdsim.platform.model import Platform

FEATURES = (
    "waited",
    "requested_time",
    "cores",
    "idle_cores",
    "idle_cores_left",
    "delays",
    "others",
    "others_fit",
    "others_fit_beside",
    "share_of_slowdown",
    "next_end",
)
#: Queued jobs at the upper end of the logarithmic scale.
_MANY = 1000


class Proposal(Observer):
    """(11,): the proposed job, else the head in order of submission; zeros if the queue is empty.

    Waiting time and requested time as in `Jobs`; cores, idle cores, and idle cores after its start, as shares of all;
    d / (d + 1) with d its delays; number n of other queued jobs, log(1 + n) / log(1 + 1000), at most 1; shares of them
    with no more cores than are idle now, and after its start; its share of the sum over the queue of
    1 / max(requested time, 1 s), the rate at which the slowdown grows; time until the next expected end of a
    running job, 1 if unknown. Only numbers of cores count.
    """

    needs_core_ids = True

    def arrays(self, platform: Platform) -> Array:
        return Array((len(FEATURES),))

    def begin(self, cluster: Cluster, wait_queue: WaitQueue) -> None:
        self._cluster, self._wait_queue = cluster, wait_queue

    def observe(self) -> Observation:
        cluster, wait_queue = self._cluster, self._wait_queue
        seen = np.zeros(len(FEATURES), np.float32)
        if not wait_queue.jobs:
            return seen
        job = wait_queue.next()
        jobs, cores, idle = cluster.workload, cluster.platform.n_cpu_cores, cluster.n_idle
        others = np.array([each for each in wait_queue.jobs if each != job], np.int64)
        sizes, size = jobs.requested_cores[others], int(jobs.requested_cores[job])
        left = max(idle - size, 0)
        rate, rates = (1 / np.maximum(jobs.requested_time[which], 1.0) for which in (job, others))
        ends = [
            cluster.starting_time[each] + cluster.estimate(each, placement)
            for each, placement in cluster.running.items()
            if each not in cluster.starting
        ]
        delays = wait_queue.delays.get(job, 0)
        seen[:] = (
            scaled_time(cluster.now - jobs.submission_time[job]),
            scaled_time(jobs.requested_time[job]),
            min(size / cores, 1.0),
            idle / cores,
            left / cores,
            delays / (delays + 1),
            min(math.log1p(len(others)) / math.log1p(_MANY), 1.0),
            np.mean(sizes <= idle) if len(others) else 0.0,
            np.mean(sizes <= left) if len(others) else 0.0,
            rate / (rate + rates.sum()),
            scaled_time(max(min(ends) - cluster.now, 0.0)) if ends else 1.0,
        )
        return seen
