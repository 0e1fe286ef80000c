"""Observations of HDeepRM: quartiles of the queue, and the state of nodes, processors and cores."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hdsim.decisions.base import Array, FreeShares, Observation, Observer, one_of, oversubscription_limit
from hdsim.decisions.kernels import progress
from hdsim.errors import ConfigError, nearest
from hdsim.platform.power import BUSY_SPEED, IDLE_POWER
from hdsim.util.arrays import Floats, Ints
from hdsim.util.units import in_bytes

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.decisions.wait_queue import WaitQueue
    from hdsim.platform.model import Platform
    from hdsim.scheduling.queue import FixedQueue
    from hdsim.workload.model import Workload

#: Attributes of the queue and the job order that sorts by each.
ORDER_OF = {
    "requested_time": "shortest",
    "requested_cores": "smallest",
    "memory": "low_mem",
    "memory_bandwidth": "low_mem_bw",
}
QUARTILES = 4
SCALES = ("seen", "workload")
#: Speed of a busy core as a share of its peak, by oversubscription of its processor; power of an idle core as a share
#: of its full power, by whether its processor has busy cores.
STATES = np.stack([BUSY_SPEED, IDLE_POWER]).astype(np.float32)
QUEUE_NUMBERS = len(ORDER_OF) * (QUARTILES + 1) + 1


class Minimal(Observer):
    """(21,): minimum, quartiles and maximum of four attributes of the queue, and the change of its length.

    Each attribute is divided by its scale and limited to 1. The change of the length is v = (length - length at the
    last decision) / the smaller of both, mapped to clip((v + q) / (2 q), 0, 1); 1 where the queue was empty before. An
    empty queue gives zeros.

    Attributes:
        sensitivity: q.
        by_workload: Scales that are not given are those of all jobs.
        scales: Given scales by attribute.

    Args:
        queue_sensitivity: q.
        scale: Scale of an attribute: ``seen``, its 99th percentile over the jobs that have arrived, renewed whenever
            their number has doubled; or ``workload``, over all jobs as in HDeepRM, which depends on future jobs.
        scales: Scales by attribute, instead.
    """

    def __init__(
        self, queue_sensitivity: float = 1.0, scale: str = "seen", scales: Mapping[str, float] | None = None
    ) -> None:
        if not queue_sensitivity > 0:
            raise ConfigError(f"expected a number > 0, got {queue_sensitivity}", where="env.queue_sensitivity")
        for name in scales or {}:
            if name not in ORDER_OF:
                raise ConfigError(
                    f"expected the keys {', '.join(ORDER_OF)}, got '{name}'{nearest(name, ORDER_OF)}",
                    where="env.scales",
                )
        self.sensitivity = float(queue_sensitivity)
        self.by_workload = one_of("scale", scale, SCALES) == "workload"
        self.scales = scales or {}

    def arrays(self, platform: Platform) -> Array:
        return Array((QUEUE_NUMBERS,))

    def begin(self, cluster: Cluster, wait_queue: WaitQueue) -> None:
        self._cluster, self._wait_queue = cluster, wait_queue
        scales = dict(self.scales)
        if self.by_workload and len(scales) < len(ORDER_OF):
            scales = queue_scales(cluster.workload) | scales
        # By attribute its scale; then the queue sorted by it and the share of each known job.
        self._scale_of = scales
        self._attributes: list[tuple[str, FixedQueue, list[float]]] = [
            (name, wait_queue.ordered(order), []) for name, order in ORDER_OF.items()
        ]
        self._learned = 0
        # Arrived jobs at which the scales are renewed.
        self._renewal = 1.0
        self._last_length = 0
        self._version = -1
        self._shares: list[float] = []
        if len(scales) == len(ORDER_OF):
            self._renewal = math.inf
            self._learn()
        elif cluster.doubled:
            self._renew(cluster.doubled)

    def on_instant(self) -> None:
        cluster = self._cluster
        if cluster.arrived >= self._renewal:
            self._renew(cluster.arrived)
        if self._learned < len(cluster.state) and self._scale_of:
            self._learn()

    def _renew(self, arrived: int) -> None:
        """Renews the scales from the first jobs that have arrived."""
        cluster, self._renewal, self._version = self._cluster, 2.0 * arrived, -1
        jobs = np.array(cluster.state).nonzero()[0]
        jobs = jobs[cluster.workload.submission_time[jobs].argsort(kind="stable")[:arrived]]
        for name, _, shares in self._attributes:
            if name not in self.scales:
                self._scale_of[name] = _percentile(getattr(cluster.workload, name)[jobs])
            shares.clear()
        self._learned = 0

    def _learn(self) -> None:
        """Computes the shares of the jobs that have become known."""
        jobs = self._cluster.workload
        for name, _, shares in self._attributes:
            values, scale = getattr(jobs, name)[self._learned :], self._scale_of[name]
            shares.extend((np.minimum(values / scale, 1.0) if scale > 0 else np.zeros(len(values))).tolist())
        self._learned = len(jobs)

    def before_action(self) -> None:
        self._last_length = len(self._wait_queue.jobs)

    def observe(self) -> Observation:
        return np.array(self._queue_numbers(), np.float32)

    def _queue_numbers(self) -> list[float]:
        """Returns the 21 numbers."""
        length = len(self._wait_queue.jobs)
        if not length:
            return [0.0] * QUEUE_NUMBERS
        if self._version != self._wait_queue.version:
            self._version = self._wait_queue.version
            self._shares = self._quartiles(length - 1)
        before = self._last_length
        if not before:
            return [*self._shares, 1.0]
        variation = (length - before) / min(length, before)
        q = self.sensitivity
        return [*self._shares, min(max((variation + q) / (2 * q), 0.0), 1.0)]

    def _quartiles(self, last: int) -> list[float]:
        """Quartiles of each attribute by linear interpolation; `last` is the index of the last queued job."""
        (low, a), (middle, b), (high, c) = (divmod(k * last, QUARTILES) for k in (1, 2, 3))
        numbers: list[float] = []
        for _, queue, share in self._attributes:
            jobs = queue.jobs
            first, median, third = share[jobs[low]], share[jobs[middle]], share[jobs[high]]
            # Interpolation where the quartile lies between two jobs.
            if a:
                first += a / QUARTILES * (share[jobs[low + 1]] - first)
            if b:
                median += b / QUARTILES * (share[jobs[middle + 1]] - median)
            if c:
                third += c / QUARTILES * (share[jobs[high + 1]] - third)
            numbers += (share[jobs[0]], first, median, third, share[jobs[last]])
        return numbers


def _percentile(values: NDArray[Any]) -> float:
    """99th percentile of at least one number, with linear interpolation as NumPy's, in a tenth of its time."""
    place = 0.99 * (len(values) - 1)
    low = int(place)
    high = min(low + 1, len(values) - 1)
    parted = np.partition(values, (low, high))
    return float(parted[low] + (place - low) * (parted[high] - parted[low]))


def queue_scales(*workloads: Workload) -> dict[str, float]:
    """99th percentile of each attribute of the queue over the jobs of workloads."""
    return {
        name: float(np.percentile(np.concatenate([getattr(workload, name) for workload in workloads]), 99))
        for name in ORDER_OF
    }


class Small(Minimal):
    """(N + P + 21,): free memory of nodes and free bandwidth of processors as shares, then the numbers of `Minimal`.

    Nodes and processors without a limit give 1, oversubscribed processors 0.
    """

    sees_cores = True

    def arrays(self, platform: Platform) -> Array:
        return Array((platform.n_nodes + platform.n_processors + QUEUE_NUMBERS,))

    def begin(self, cluster: Cluster, wait_queue: WaitQueue) -> None:
        super().begin(cluster, wait_queue)
        platform = cluster.platform
        self._memory, self._bandwidth = FreeShares(in_bytes(platform.memory)), FreeShares(platform.mem_bw)
        self._nodes, self._both = platform.n_nodes, platform.n_nodes + platform.n_processors
        self._length = self.arrays(platform).shape[0]

    def observe(self) -> Observation:
        cores = self._cluster.cores
        seen = np.empty(self._length, np.float32)
        self._memory.write(cores.node_memory, seen[: self._nodes])
        self._bandwidth.write(cores.free_bandwidth, seen[self._nodes : self._both])
        seen[-QUEUE_NUMBERS:] = self._queue_numbers()
        return seen


class Normal(Small):
    """(N + P + 3 C + 21,): as `Small`, with speed, power and remaining work of every core between both parts.

    Speed and power are shares of the core's peak by the P-states of :mod:`hdsim.platform.power`: a core computes at 75
    % while the bandwidth of its processor is oversubscribed, independent of the contention model. The remaining work of
    a job is the fraction of its requested operations that is not done at such speeds; 0 for an idle core and for a job
    beyond its requested time.
    """

    needs_core_ids = True

    def arrays(self, platform: Platform) -> Array:
        return Array((super().arrays(platform).shape[0] + 3 * platform.n_cores,))

    def begin(self, cluster: Cluster, wait_queue: WaitQueue) -> None:
        super().begin(cluster, wait_queue)
        platform = cluster.platform
        # GPUs hold no job back.
        peak = np.where(platform.is_gpu, np.inf, platform.gflops / platform.reference_gflops)
        slowed, limit = peak * BUSY_SPEED[1], oversubscription_limit(platform)
        self._processors = np.stack([peak, slowed, limit, peak, np.zeros(len(peak))])
        self._core_processor = platform.core_processor.astype(np.int64)
        self._first_core = platform.processor_first_core.astype(np.int64)
        self._cores: Ints = np.full((2, platform.n_cores), progress.NONE)
        self._jobs: Floats = np.zeros((4, platform.n_cores))
        self._first_of: dict[int, int] = {}
        self._new: list[int] = []
        self._has_ended = False
        if cluster.running:
            self._follow_past()

    def on_instant(self) -> None:
        super().on_instant()
        for job in self._cluster.ended:
            progress.end(self._cores, self._first_of.pop(job))
            self._has_ended = True

    def started(self, jobs: Iterable[int]) -> None:
        for job in jobs:
            self._put(job, self._cluster.now)

    def end_of_pass(self) -> None:
        if self._new or self._has_ended:
            self._update_rates(self._cluster.cores.free_bandwidth, self._cluster.now)
            self._has_ended = False

    def _put(self, job: int, start: float) -> None:
        """Puts a started job on its cores."""
        cluster = self._cluster
        ids, requested = cluster.running[job].ids, cluster.requested_time[job]
        progress.begin(self._cores, self._jobs, ids, requested, bool(cluster.workload.fixed_duration[job]), start)
        self._first_of[job] = first = int(ids[0])
        self._new.append(first)

    def _update_rates(self, free_bandwidth: Floats, now: float) -> None:
        progress.update_rates(
            *(self._cores, self._jobs, np.array(self._new, np.int64), self._core_processor, self._first_core),
            *(self._processors, free_bandwidth, now),
        )
        self._new.clear()

    def _follow_past(self) -> None:
        """Puts the running jobs on their cores, at the rates that they have had since their starts.

        The rates depend on the bandwidth of all jobs that ran beside them.
        """
        cluster = self._cluster
        begin, end, past = cluster.starting_time, cluster.finish_time, cluster.allocations
        since = min(begin[job] for job in cluster.running)
        spans = [(begin[job], end[job], job, placement) for job, placement in past.placements.items()]
        spans += [(each.begin, each.end, each.job, each.placement) for each in past.closed if each.requeued]
        # Ends come first at an instant; jobs without duration change nothing.
        changes = [
            change
            for first, last, job, placement in spans
            if not (last <= since or last == first)
            for change in ((first, 1, job, placement), (last, 0, job, placement))
            if change[0] <= cluster.now
        ]
        free = cluster.platform.mem_bw.copy()
        for now, at_once in groupby(sorted(changes, key=lambda change: change[:2]), key=lambda change: change[0]):
            for _, starts, job, placement in at_once:
                held = np.bincount(self._core_processor[placement.cores], minlength=len(free))
                free += (-held if starts else held) * cluster.requests.bandwidth[job]
                if starts and now == begin[job] and job in cluster.running:
                    self._put(job, now)
            self._update_rates(free, now)

    def observe(self) -> Observation:
        seen, cluster = super().observe(), self._cluster
        assert isinstance(seen, np.ndarray)
        progress.write_cores(
            *(self._cores, self._jobs, self._first_core, self._processors),
            *(cluster.cores.free_bandwidth, cluster.cores.processor_busy(), STATES, cluster.now),
            seen[self._both : -QUEUE_NUMBERS],
        )
        return seen
