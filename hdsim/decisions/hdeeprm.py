"""HDeepRM's observations: quartiles of the queue, and the state of nodes, processors and cores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from hdsim.cores import Floats, Ints, Placement, members
from hdsim.decisions.parts import Array, Observation, Observer, Shares, overdrawn
from hdsim.errors import ConfigError, nearest
from hdsim.power import ASLEEP, COMPUTING, IDLE, OVERSUBSCRIBED, PSTATES
from hdsim.units import in_bytes

if TYPE_CHECKING:
    from hdsim.decisions.waiting import Waiting
    from hdsim.platform import Platform
    from hdsim.state import Cluster
    from hdsim.workload import Workload

#: Attributes of the queue and the order that sorts by each.
ORDER_OF = {
    "requested_time": "shortest",
    "requested_cores": "smallest",
    "memory": "low_mem",
    "memory_bandwidth": "low_mem_bw",
}
QUARTILES = 4
_NOBODY = -1
QUEUE_NUMBERS = len(ORDER_OF) * (QUARTILES + 1) + 1


class Minimal(Observer):
    """(21,): minimum, quartiles and maximum of four attributes of the queue, and how its length has changed.

    Each attribute counts as a share of its 99th percentile over the workload, at most 1. The change of the length is
    v = (length - length at the last decision) / the smaller of both, shown as clip((v + q) / (2 q), 0, 1); 1 where
    the queue was empty before. An empty queue gives zeros.

    Args:
        queue_sensitivity: q.
        scales: What counts as 1, by attribute; None = 99th percentiles of the workload that is replayed.
    """

    def __init__(self, queue_sensitivity: float = 1.0, scales: Mapping[str, float] | None = None) -> None:
        if not queue_sensitivity > 0:
            raise ConfigError(f"expected a number > 0, got {queue_sensitivity}", where="env.queue_sensitivity")
        for name in scales or {}:
            if name not in ORDER_OF:
                raise ConfigError(
                    f"expected the keys {', '.join(ORDER_OF)}, got '{name}'{nearest(name, ORDER_OF)}",
                    where="env.scales",
                )
        self._sensitivity = float(queue_sensitivity)
        self._scales = scales

    def arrays(self, platform: Platform) -> Array:
        """See :meth:`Observer.arrays`."""
        return Array((QUEUE_NUMBERS,))

    def begin(self, cluster: Cluster, waiting: Waiting) -> None:
        """See :meth:`Observer.begin`."""
        self._cluster, self._waiting = cluster, waiting
        scales = self._scales or {}
        if len(scales) < len(ORDER_OF):
            scales = queue_scales(cluster.workload) | dict(scales)
        self._attributes = []
        for name, order in ORDER_OF.items():
            queue, scale = waiting.by(order), scales[name]
            values = getattr(cluster.workload, name)[queue.job_of_rank]
            share = np.minimum(values / scale, 1.0) if scale > 0 else np.zeros(len(values))
            self._attributes.append((queue, share.tolist()))
        self._last_length = 0
        self._version = -1
        self._shares: list[float] = []

    def acting(self) -> None:
        """See :meth:`Observer.acting`."""
        self._last_length = len(self._waiting.ranks)

    def observe(self) -> Observation:
        """See :meth:`Observer.observe`."""
        return np.array(self._queue_numbers(), np.float32)

    def _queue_numbers(self) -> list[float]:
        """The 21 numbers."""
        length = len(self._waiting.ranks)
        if not length:
            return [0.0] * QUEUE_NUMBERS
        if self._version != self._waiting.version:
            self._version = self._waiting.version
            self._shares = self._quartiles(length - 1)
        before = self._last_length
        if not before:
            return [*self._shares, 1.0]
        variation = (length - before) / min(length, before)
        q = self._sensitivity
        return [*self._shares, min(max((variation + q) / (2 * q), 0.0), 1.0)]

    def _quartiles(self, last: int) -> list[float]:
        """Quartiles of each attribute, between two jobs on a line; `last` is the place of the last job."""
        (low, a), (middle, b), (high, c) = (divmod(k * last, QUARTILES) for k in (1, 2, 3))
        numbers: list[float] = []
        for queue, share in self._attributes:
            ranks = queue.ranks
            first, median, third = share[ranks[low]], share[ranks[middle]], share[ranks[high]]
            # Between two jobs where the quartile is at none.
            if a:
                first += a / QUARTILES * (share[ranks[low + 1]] - first)
            if b:
                median += b / QUARTILES * (share[ranks[middle + 1]] - median)
            if c:
                third += c / QUARTILES * (share[ranks[high + 1]] - third)
            numbers += (share[ranks[0]], first, median, third, share[ranks[-1]])
        return numbers


def queue_scales(*workloads: Workload) -> dict[str, float]:
    """99th percentile of each attribute of the queue over the jobs of workloads."""
    return {
        name: float(np.percentile(np.concatenate([getattr(workload, name) for workload in workloads]), 99))
        for name in ORDER_OF
    }


class Small(Minimal):
    """(N + P + 21,): free memory of nodes and free bandwidth of processors as shares, then those of `Minimal`.

    A node or a processor without limit counts as 1, an oversubscribed processor as 0.
    """

    sees_cores = True

    def arrays(self, platform: Platform) -> Array:
        """See :meth:`Observer.arrays`."""
        return Array((platform.n_nodes + platform.n_processors + QUEUE_NUMBERS,))

    def begin(self, cluster: Cluster, waiting: Waiting) -> None:
        """See :meth:`Observer.begin`."""
        super().begin(cluster, waiting)
        platform = cluster.platform
        self._memory, self._bandwidth = Shares(in_bytes(platform.memory)), Shares(platform.mem_bw)
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
    """(N + P + 3 C + 21,): as `Small`, with speed, power and rest of its job of every core between both parts.

    Speed and power are shares of the core's peak by the P-states of :mod:`hdsim.power`: a core computes at 75 % while
    the bandwidth of its processor is oversubscribed, whatever contention model the jobs feel. The rest of a job is the
    fraction of the operations it asked for that is not done yet at such speeds; 0 for an idle core and for a job that
    has used up its requested time.
    """

    def arrays(self, platform: Platform) -> Array:
        """See :meth:`Observer.arrays`."""
        return Array((super().arrays(platform).shape[0] + 3 * platform.n_cores,))

    def begin(self, cluster: Cluster, waiting: Waiting) -> None:
        """See :meth:`Observer.begin`."""
        super().begin(cluster, waiting)
        platform = cluster.platform
        self._peak = platform.gflops / platform.reference_gflops
        self._fixed: list[bool] = cluster.workload.fixed_duration.tolist()
        self._overdrawn = overdrawn(platform)
        self._over = np.zeros(platform.n_processors, bool)
        self._speed = self._peak
        self._job_of_core: Ints = np.full(platform.n_cores, _NOBODY)
        self._ids: dict[int, Ints] = {}
        self._processors: dict[int, Ints] = {}
        self._rest: Floats = np.zeros(platform.n_cores)
        self._rate: Floats = np.zeros(platform.n_cores)
        self._since = 0.0
        self._known = 0
        self._first_core = platform.processor_first_core
        self._cores_of_processor: Ints = platform.cores_per_processor.astype(np.int64)
        # (2, C) speeds and powers as they were when last seen, and processors on which they may have changed since.
        self._shown = np.zeros((2, platform.n_cores), np.float32)
        self._changed: list[Ints] = [np.arange(platform.n_processors)]

    def news(self) -> None:
        """See :meth:`Observer.news`."""
        cluster = self._cluster
        if cluster.now > self._since:
            self._rest -= self._rate * (cluster.now - self._since)
            self._since = cluster.now
        self._known = 0
        if cluster.node_changes:
            nodes = np.array(cluster.node_changes)
            self._changed.append(members(cluster.platform.node_first_processor, nodes))
        if cluster.ended:
            for job in cluster.ended:
                self._changed.append(self._processors.pop(job))
                ids = self._ids.pop(job)
                self._job_of_core[ids] = _NOBODY
                self._rest[ids] = self._rate[ids] = 0.0
            self._time([])

    def acted(self) -> None:
        """See :meth:`Observer.acted`."""
        started = self._cluster.started[self._known :]
        if started:
            self._known += len(started)
            for job in started:
                placement = self._cluster.running[job]
                ids = self._ids[job] = placement.ids
                self._processors[job] = processors = self._owners(placement)
                self._changed.append(processors)
                self._job_of_core[ids] = job
                self._rest[ids] = 1.0
            self._time(started)

    def observe(self) -> Observation:
        """See :meth:`Observer.observe`."""
        seen = super().observe()
        assert isinstance(seen, np.ndarray)
        if self._changed:
            self._show(np.concatenate(self._changed))
            self._changed.clear()
        states, rest = np.split(seen[self._both : -QUEUE_NUMBERS], [self._shown.size])
        states[:] = self._shown.reshape(-1)
        np.maximum(self._rest, 0.0, out=rest, casting="same_kind")
        return seen

    def _show(self, processors: Ints) -> None:
        """Brings speed and power of the cores of processors up to date."""
        cores = members(self._first_core, processors)
        idle = np.where(
            self._cluster.cores.processor_busy()[processors] > 0, PSTATES[IDLE].power, PSTATES[ASLEEP].power
        )
        speed = np.where(self._over[processors], PSTATES[OVERSUBSCRIBED].speed, PSTATES[COMPUTING].speed)
        sizes = self._cores_of_processor[processors]
        busy = self._job_of_core[cores] != _NOBODY
        self._shown[0, cores] = speed.repeat(sizes) * busy
        self._shown[1, cores] = np.where(busy, PSTATES[COMPUTING].power, idle.repeat(sizes))

    def _owners(self, placement: Placement) -> Ints:
        """Processors of a job, those of its GPUs too."""
        if not len(placement.gpus):
            return placement.processors
        owners = self._cluster.platform.core_processor[placement.gpus].astype(np.int64)
        return np.append(placement.processors, np.unique(owners))

    def _time(self, started: list[int]) -> None:
        """Brings the speeds of jobs up to date: of new ones, and of those on processors whose P-state has changed."""
        cluster = self._cluster
        over = cluster.cores.free_bandwidth < self._overdrawn
        flipped = (over != self._over).nonzero()[0]
        affected = dict.fromkeys(started)
        if len(flipped):
            self._over = over
            self._changed.append(flipped)
            self._speed = self._peak * np.where(over, PSTATES[OVERSUBSCRIBED].speed, PSTATES[COMPUTING].speed)
            residents = self._job_of_core[members(cluster.platform.processor_first_core, flipped)]
            affected.update(dict.fromkeys(residents[residents != _NOBODY].tolist()))
        for job in affected:
            ids, requested = self._ids[job], cluster.requested_time[job]
            if requested > 0:
                speed = 1.0 if self._fixed[job] else self._speed[cluster.running[job].processors].min()
                self._rate[ids] = speed / requested
            else:
                self._rest[ids] = 0.0
