"""HDeepRM's observations: quartiles of the queue, and the state of nodes, processors and cores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from hdsim.decisions.parts import Array, Observation, Observer
from hdsim.errors import ConfigError

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
QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)
QUEUE_NUMBERS = len(ORDER_OF) * len(QUANTILES) + 1


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
        self._sensitivity = float(queue_sensitivity)
        self._scales = scales

    def arrays(self, platform: Platform) -> Array:
        """See :meth:`Observer.arrays`."""
        return Array((QUEUE_NUMBERS,))

    def begin(self, cluster: Cluster, waiting: Waiting) -> None:
        """See :meth:`Observer.begin`."""
        self._cluster, self._waiting = cluster, waiting
        scales = queue_scales(cluster.workload) if self._scales is None else self._scales
        self._attributes = [
            (waiting.by(order), _shares(getattr(cluster.workload, name), scales[name]))
            for name, order in ORDER_OF.items()
        ]
        self._last_length = 0

    def acting(self) -> None:
        """See :meth:`Observer.acting`."""
        self._last_length = len(self._cluster.queue)

    def observe(self) -> Observation:
        """See :meth:`Observer.observe`."""
        return np.array(self.queue_numbers(), np.float32)

    def queue_numbers(self) -> list[float]:
        """The 21 numbers."""
        length = len(self._cluster.queue)
        if not length:
            return [0.0] * QUEUE_NUMBERS
        numbers: list[float] = []
        last = length - 1
        places = [(int(q * last), q * last - int(q * last)) for q in QUANTILES]
        for queue, share in self._attributes:
            for place, beyond in places:
                low = share[queue.at(place)]
                numbers.append(low + beyond * (share[queue.at(place + 1)] - low) if beyond else low)
        before = self._last_length
        if not before:
            numbers.append(1.0)
        else:
            variation = (length - before) / min(length, before)
            numbers.append(min(max((variation + self._sensitivity) / (2 * self._sensitivity), 0.0), 1.0))
        return numbers


def queue_scales(workload: Workload) -> dict[str, float]:
    """99th percentile of each attribute of the queue over a workload."""
    return {name: float(np.percentile(getattr(workload, name), 99)) for name in ORDER_OF}


def _shares(values: np.ndarray, scale: float) -> list[float]:
    shares: list[float] = np.minimum(values / scale, 1.0).tolist() if scale > 0 else np.zeros(len(values)).tolist()
    return shares
