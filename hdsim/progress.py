"""Progress of jobs that slow each other down: what is left of each, at which speed, and who shares which processor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hdsim.contention import Contention
from hdsim.cores import Placement

if TYPE_CHECKING:
    from hdsim.platform import Platform
    from hdsim.workload import Workload


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
        self._demand: list[float] = workload.memory_bandwidth.tolist()
        self._runtime: list[float] = workload.runtime.tolist()
        self._fixed: list[bool] = workload.fixed_duration.tolist()
        self._peak: list[float] = (platform.gflops / platform.reference_gflops).tolist()
        self._residents: list[dict[int, int]] = [{} for _ in range(platform.n_processors)]
        # Speed on a processor: one number where all its jobs have the same, else one by job.
        self._speed: list[float] = list(self._peak)
        self._speed_by_job: dict[int, dict[int, float]] = {}
        self._processors: dict[int, list[int]] = {}
        self._left: dict[int, float] = {}
        self._rate: dict[int, float] = {}
        self._since: dict[int, float] = {}
        self._touched: dict[int, None] = {}
        self._new: dict[int, None] = {}

    def start(self, job: int, placement: Placement) -> None:
        """Adds a job; `settle` will tell when it ends."""
        self._processors[job] = processors = placement.processors.tolist()
        for processor, cores in zip(processors, placement.counts.tolist(), strict=True):
            self._residents[processor][job] = cores
            self._touched[processor] = None
        self._left[job] = self._runtime[job]
        self._rate[job] = 0.0
        self._since[job] = 0.0
        self._new[job] = None

    def end(self, job: int) -> None:
        """Removes a job."""
        for processor in self._processors.pop(job):
            del self._residents[processor][job]
            self._touched[processor] = None
        del self._left[job], self._rate[job], self._since[job]
        self._new.pop(job, None)

    def settle(self, now: float) -> Iterator[tuple[int, float]]:
        """Brings speeds up to date after starts and ends at time `now`.

        Yields:
            (job, seconds until it completes) for every job whose speed has changed and every new one.
        """
        affected, self._new = self._new, {}
        touched, self._touched = self._touched, {}
        demand = self._demand
        for processor in touched:
            residents = self._residents[processor]
            peak = self._peak[processor]
            if not residents:
                self._speed[processor] = peak
                self._speed_by_job.pop(processor, None)
                continue
            shares = self._model.speeds(processor, list(residents.values()), [demand[job] for job in residents])
            if isinstance(shares, float):
                if shares * peak != self._speed[processor]:
                    self._speed[processor] = shares * peak
                    affected.update(residents)
            else:
                self._speed_by_job[processor] = {
                    job: share * peak for job, share in zip(residents, shares, strict=True)
                }
                affected.update(residents)
        for job in affected:
            rate = self._rate_of(job)
            before_rate = self._rate[job]
            if rate != before_rate:
                self._left[job] -= before_rate * (now - self._since[job])
                self._rate[job] = rate
                self._since[job] = now
                yield job, max(self._left[job] / rate, 0.0)

    def _rate_of(self, job: int) -> float:
        if self._fixed[job]:
            return 1.0
        processors = self._processors[job]
        if self._speed_by_job:
            return min(
                self._speed_by_job[processor][job] if processor in self._speed_by_job else self._speed[processor]
                for processor in processors
            )
        return min(map(self._speed.__getitem__, processors))
