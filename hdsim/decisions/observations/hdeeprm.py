"""Observations of HDeepRM: quartiles of the queue, and the state of nodes, processors and cores."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hdsim.decisions.base import Array, FreeShares, Observation, Observer, one_of, oversubscription_limit
from hdsim.errors import ConfigError, nearest
from hdsim.kernels.placements import lowest
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
#: Index of idle cores, which have no remaining work.
_IDLE = 0
#: Speed of a busy core as a share of its peak, by oversubscription of its processor.
_SPEED = BUSY_SPEED.astype(np.float32)
#: Power of an idle core as a share of its full power, by whether its processor has busy cores; busy cores draw full
#: power.
_IDLE_POWER = IDLE_POWER.astype(np.float32)
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
        """See :meth:`Observer.arrays`."""
        return Array((QUEUE_NUMBERS,))

    def begin(self, cluster: Cluster, wait_queue: WaitQueue) -> None:
        """See :meth:`Observer.begin`."""
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
        if len(scales) == len(ORDER_OF):
            self._renewal = math.inf
            self._learn()
        self._last_length = 0
        self._version = -1
        self._shares: list[float] = []

    def on_instant(self) -> None:
        """See :meth:`Observer.on_instant`."""
        cluster = self._cluster
        if cluster.arrived >= self._renewal:
            self._renewal = 2.0 * cluster.arrived
            self._version = -1
            jobs = np.array(cluster.state).nonzero()[0]
            for name, _, shares in self._attributes:
                if name not in self.scales:
                    self._scale_of[name] = _percentile(getattr(cluster.workload, name)[jobs])
                shares.clear()
            self._learned = 0
        if self._learned < len(cluster.state) and self._scale_of:
            self._learn()

    def _learn(self) -> None:
        """Computes the shares of the jobs that have become known."""
        jobs = self._cluster.workload
        for name, _, shares in self._attributes:
            values, scale = getattr(jobs, name)[self._learned :], self._scale_of[name]
            shares.extend((np.minimum(values / scale, 1.0) if scale > 0 else np.zeros(len(values))).tolist())
        self._learned = len(jobs)

    def before_action(self) -> None:
        """See :meth:`Observer.before_action`."""
        self._last_length = len(self._wait_queue.jobs)

    def observe(self) -> Observation:
        """See :meth:`Observer.observe`."""
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
        """See :meth:`Observer.arrays`."""
        return Array((platform.n_nodes + platform.n_processors + QUEUE_NUMBERS,))

    def begin(self, cluster: Cluster, wait_queue: WaitQueue) -> None:
        """See :meth:`Observer.begin`."""
        super().begin(cluster, wait_queue)
        platform = cluster.platform
        self._memory, self._bandwidth = FreeShares(in_bytes(platform.memory)), FreeShares(platform.mem_bw)
        self._nodes, self._both = platform.n_nodes, platform.n_nodes + platform.n_processors
        self._length = self.arrays(platform).shape[0]

    def observe(self) -> Observation:
        """See :meth:`Observer.observe`."""
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
        """See :meth:`Observer.arrays`."""
        return Array((super().arrays(platform).shape[0] + 3 * platform.n_cores,))

    def begin(self, cluster: Cluster, wait_queue: WaitQueue) -> None:
        """See :meth:`Observer.begin`."""
        super().begin(cluster, wait_queue)
        platform = cluster.platform
        self._peak = platform.gflops / platform.reference_gflops
        self._overdrawn = oversubscription_limit(platform)
        self._over = np.zeros(platform.n_processors, bool)
        self._speed = self._peak
        # Running jobs have compact indices, so an observation computes one number per running job.
        self._job_of_index = [-1]
        self._free: list[int] = []
        self._held: dict[int, tuple[int, Ints]] = {}
        self._index_of_core: Ints = np.full(platform.n_cores, _IDLE)
        self._busy = np.zeros(platform.n_cores, np.float32)
        # Remaining work is (end - now) * rate, which needs no update as time passes.
        self._end: Floats = np.zeros(platform.n_cores + 1)
        self._rate: Floats = np.zeros(platform.n_cores + 1)
        self._new: list[int] = []
        self._has_ended = False
        self._now = 0.0
        self._known = 0
        self._first_core: list[int] = platform.processor_first_core.tolist()
        self._core_processor: Ints = platform.core_processor.astype(np.int64)
        places = [self._both + i * platform.n_cores for i in range(4)]
        self._speeds, self._powers, self._remaining = itertools.starmap(slice, itertools.pairwise(places))

    def on_instant(self) -> None:
        """See :meth:`Observer.on_instant`."""
        super().on_instant()
        cluster = self._cluster
        self._now = cluster.now
        self._known = 0
        for job in cluster.ended:
            index, ids = self._held.pop(job)
            self._index_of_core[ids] = _IDLE
            self._busy[ids] = 0.0
            self._free.append(index)
            self._has_ended = True

    def after_action(self) -> None:
        """See :meth:`Observer.after_action`."""
        cluster = self._cluster
        started = cluster.started[self._known :]
        if not started:
            return
        self._known += len(started)
        for job in started:
            if self._free:
                index = self._free.pop()
                self._job_of_index[index] = job
            else:
                index = len(self._job_of_index)
                self._job_of_index.append(job)
            ids = cluster.running[job].ids
            self._held[job] = index, ids
            self._new.append(index)
            self._index_of_core[ids] = index
            self._busy[ids] = 1.0
            # All work remains at this instant; `end_of_pass` computes the rate.
            self._end[index] = self._now + 1.0
            self._rate[index] = float(cluster.requested_time[job] > 0)

    def end_of_pass(self) -> None:
        """See :meth:`Observer.end_of_pass`."""
        if not (self._new or self._has_ended):
            return
        affected = dict.fromkeys(self._new)
        over = self._cluster.cores.free_bandwidth < self._overdrawn
        flipped = (over != self._over).nonzero()[0].tolist()
        if flipped:
            self._over = over
            self._speed = self._peak * BUSY_SPEED.take(over)
            first, index_of_core = self._first_core, self._index_of_core
            for p in flipped:
                affected.update(dict.fromkeys(index_of_core[first[p] : first[p + 1]].tolist()))
            affected.pop(_IDLE, None)
        for index in affected:
            self._update_rate(index)
        self._new.clear()
        self._has_ended = False

    def observe(self) -> Observation:
        """See :meth:`Observer.observe`."""
        seen = super().observe()
        assert isinstance(seen, np.ndarray)
        cores, owner, busy = self._cluster.cores, self._core_processor, self._busy
        speeds, powers, remaining = seen[self._speeds], seen[self._powers], seen[self._remaining]
        _SPEED.take(cores.free_bandwidth < self._overdrawn).take(owner, out=speeds, mode="clip")
        speeds *= busy
        _IDLE_POWER.take(cores.processor_busy() > 0).take(owner, out=powers, mode="clip")
        np.maximum(powers, busy, out=powers)
        jobs = len(self._job_of_index)
        left = (self._end[:jobs] - self._now) * self._rate[:jobs]
        np.maximum(left, 0.0, out=left)
        left.astype(np.float32).take(self._index_of_core, out=remaining, mode="clip")
        return seen

    def _update_rate(self, index: int) -> None:
        """Updates the rate of a job, and its end at that rate."""
        cluster, job = self._cluster, self._job_of_index[index]
        requested = cluster.requested_time[job]
        if not requested > 0:
            return
        rate = (
            1.0 if cluster.fixed_duration[job] else lowest(self._speed, cluster.running[job].processors)
        ) / requested
        before = float(self._rate[index])
        if rate != before:
            left = (float(self._end[index]) - self._now) * before
            self._end[index] = self._now + left / rate
            self._rate[index] = rate
