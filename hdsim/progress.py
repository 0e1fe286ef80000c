"""Progress of jobs that slow each other down: what is left of each, at which speed, and who shares which processor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hdsim.contention import Contention
from hdsim.cores import Placement

if TYPE_CHECKING:
    from hdsim.platform import Platform
    from hdsim.workload import Workload

_NOBODY = -1


class Progress:
    """Integrates the work of running jobs under a contention model.

    All cores of a job advance together at the speed of its slowest core. A change on a processor touches the jobs on
    that processor and no others.

    Args:
        platform: The platform.
        workload: The jobs.
        model: The contention model.
    """

    def __init__(self, platform: Platform, workload: Workload, model: Contention) -> None:
        self._model = model
        self._bandwidth: list[float] = workload.memory_bandwidth.tolist()
        self._runtime: list[float] = workload.runtime.tolist()
        self._fixed: list[bool] = workload.fixed_duration.tolist()
        self._peak = platform.gflops / platform.reference_gflops
        self._speed = self._peak.copy()
        self._demand = np.zeros(platform.n_processors)
        self._job_of_core = np.full(platform.n_cores, _NOBODY)
        self._first_core = platform.processor_first_core
        self._processors: dict[int, NDArray[np.int32]] = {}
        self._left: dict[int, float] = {}
        self._rate: dict[int, float] = {}
        self._since: dict[int, float] = {}
        self._touched: list[NDArray[np.int32]] = []
        self._new: dict[int, None] = {}

    def start(self, job: int, placement: Placement) -> None:
        """Adds a job; `settle` will tell when it ends."""
        self._processors[job] = processors = placement.processors
        self._job_of_core[placement.cores] = job
        self._demand[processors] += placement.counts * self._bandwidth[job]
        self._touched.append(processors)
        self._left[job] = self._runtime[job]
        self._rate[job] = self._since[job] = 0.0
        self._new[job] = None

    def end(self, job: int, placement: Placement) -> None:
        """Removes a job."""
        processors = self._processors.pop(job)
        self._job_of_core[placement.cores] = _NOBODY
        self._demand[processors] -= placement.counts * self._bandwidth[job]
        self._touched.append(processors)
        del self._left[job], self._rate[job], self._since[job]
        self._new.pop(job, None)

    def settle(self, now: float) -> Iterator[tuple[int, float]]:
        """Brings speeds up to date after starts and ends at time `now`.

        Yields:
            (job, seconds until it completes) for every job whose speed has changed and every new one.
        """
        if not self._touched:
            return
        touched = self._touched[0] if len(self._touched) == 1 else np.concatenate(self._touched)
        self._touched.clear()
        affected, self._new = self._new, {}
        speeds = self._peak[touched] * self._model.speeds(touched, self._demand[touched])
        changed = touched[speeds != self._speed[touched]]
        if len(changed):
            self._speed[touched] = speeds
            affected.update(dict.fromkeys(self._residents(changed)))
        for job in affected:
            rate, before = self._rate_of(job), self._rate[job]
            if rate != before:
                self._left[job] -= before * (now - self._since[job])
                self._rate[job] = rate
                self._since[job] = now
                yield job, max(self._left[job] / rate, 0.0)

    def _residents(self, processors: NDArray[np.int32]) -> list[int]:
        """Jobs on any of the processors, ascending."""
        first = self._first_core[processors]
        sizes = self._first_core[processors + 1] - first
        ends = np.cumsum(sizes)
        jobs = np.unique(self._job_of_core[np.repeat(first - (ends - sizes), sizes) + np.arange(ends[-1])])
        residents: list[int] = jobs[jobs != _NOBODY].tolist()
        return residents

    def _rate_of(self, job: int) -> float:
        if self._fixed[job]:
            return 1.0
        processors = self._processors[job]
        return float(self._speed[processors[0]] if len(processors) == 1 else self._speed[processors].min())
