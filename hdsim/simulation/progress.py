"""Progress of jobs that slow each other down: what is left of each, at which speed, and who shares which processor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.placement import Placement
from hdsim.contention import Contention, CoreContention, ProcessorContention
from hdsim.errors import ConfigError
from hdsim.failures import checkpointed_work
from hdsim.util.arrays import members, min_at

if TYPE_CHECKING:
    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload

_NOBODY = -1


def make_progress(platform: Platform, workload: Workload, model: Contention) -> Progress:
    """Makes the bookkeeping that suits a contention model.

    Raises:
        ConfigError: The model is of no known kind.
    """
    if isinstance(model, ProcessorContention):
        return ProcessorProgress(platform, workload, model)
    if isinstance(model, CoreContention):
        return CoreProgress(platform, workload, model)
    raise ConfigError(
        f"expected a ProcessorContention or a CoreContention, got {type(model).__name__}", where="contention"
    )


class Progress(ABC):
    """Integrates the work of running jobs under a contention model.

    All cores of a job advance together at the speed of its slowest core. A change on a processor touches the jobs on
    that processor and no others.

    Args:
        platform: The platform.
        workload: The jobs.
        model: The contention model.
    """

    def __init__(self, platform: Platform, workload: Workload, model: Contention) -> None:
        self._name = type(model).__name__
        self._runtime: list[float] = workload.runtime.tolist()
        self._fixed: list[bool] = workload.fixed_duration.tolist()
        self._peak = platform.gflops / platform.reference_gflops
        self._job_of_core = np.full(platform.n_cores, _NOBODY)
        self._first_core = platform.processor_first_core.astype(np.int64)
        self._placements: dict[int, Placement] = {}
        self._left: dict[int, float] = {}
        self._rate: dict[int, float] = {}
        self._since: dict[int, float] = {}
        self._touched: list[NDArray[np.integer]] = []
        self._new: dict[int, None] = {}

    def start(self, job: int, placement: Placement, now: float) -> None:
        """Adds a job; `settle` will tell when it ends."""
        self._placements[job] = placement
        self._job_of_core[placement.cores] = job
        self._touched.append(placement.processors)
        self._left[job] = self._runtime[job]
        self._rate[job] = self._since[job] = 0.0
        self._new[job] = None

    def advance(self, job: int, now: float) -> bool:
        """Takes a job over the date that `settle` gave for it: it is done, and gone."""
        self.end(job, now)
        return True

    def end(self, job: int, now: float) -> None:
        """Removes a job."""
        placement = self._placements.pop(job)
        self._job_of_core[placement.cores] = _NOBODY
        self._touched.append(placement.processors)
        del self._left[job], self._rate[job], self._since[job]
        self._new.pop(job, None)

    def interrupt(self, job: int, now: float, begin: float, interval: float | None) -> float:
        """Removes a job that will start again; see :meth:`hdsim.simulation.engine.Executor.interrupt`.

        Where its speed has changed, the work lost is taken to have cost as much time as the rest.
        """
        lost = now - begin
        if interval is not None:
            done = self._runtime[job] - self._left[job] + self._rate[job] * (now - self._since[job])
            saved = checkpointed_work(done, interval)
            self._runtime[job] -= saved
            lost *= 1 - saved / done if saved else 1.0
        self.end(job, now)
        return lost

    def settle(self, now: float) -> Iterator[tuple[int, float]]:
        """Brings speeds up to date after starts and ends at time `now`.

        Yields:
            (job, date at which it completes) for every job whose speed has changed and every new one.

        Raises:
            ConfigError: The contention model gave a speed that is not above 0.
        """
        if not self._touched:
            return
        touched = self._touched[0] if len(self._touched) == 1 else np.concatenate(self._touched)
        self._touched.clear()
        affected, self._new = self._new, {}
        affected.update(dict.fromkeys(self._update(touched)))
        for job in affected:
            rate, before = self._rate_of(job), self._rate[job]
            if not rate > 0:
                raise ConfigError(f"expected speeds above 0 from {self._name}, got {rate:g}", where="contention")
            if rate != before:
                self._left[job] -= before * (now - self._since[job])
                self._rate[job] = rate
                self._since[job] = now
                yield job, now + max(self._left[job] / rate, 0.0)

    @abstractmethod
    def _update(self, touched: NDArray[np.integer]) -> Iterable[int]:
        """Asks the model for the speeds on processors, some of them perhaps named twice.

        Returns:
            The jobs on them whose speed may have changed, each once, ascending.
        """

    @abstractmethod
    def _rate_of(self, job: int) -> float:
        """Present speed of a job relative to the reference speed."""

    def _cores_of(self, processors: NDArray[np.integer]) -> NDArray[np.int64]:
        """All cores of the processors, one processor after the other."""
        return members(self._first_core, processors)


class ProcessorProgress(Progress):
    """Progress under a model that gives all busy cores of a processor the same speed."""

    def __init__(self, platform: Platform, workload: Workload, model: ProcessorContention) -> None:
        super().__init__(platform, workload, model)
        self._speeds = model.speeds
        self._bandwidth: list[float] = workload.memory_bandwidth.tolist()
        self._speed = self._peak.copy()
        self._demand = np.zeros(platform.n_processors)

    def start(self, job: int, placement: Placement, now: float) -> None:
        """See :meth:`Progress.start`."""
        super().start(job, placement, now)
        self._ask(placement, self._bandwidth[job])

    def end(self, job: int, now: float) -> None:
        """See :meth:`Progress.end`."""
        placement = self._placements[job]
        super().end(job, now)
        self._ask(placement, -self._bandwidth[job])

    def _ask(self, placement: Placement, bandwidth: float) -> None:
        """Adds to the demands on the processors of a placement, GB/s for each of its cores."""
        if len(placement.processors) == 1:
            # Scalars cost a fraction of arrays of one.
            self._demand[placement.processors[0]] += len(placement.cores) * bandwidth
        else:
            self._demand[placement.processors] += placement.counts * bandwidth

    def _update(self, touched: NDArray[np.integer]) -> Iterable[int]:
        speeds = self._peak[touched] * self._speeds(touched, self._demand[touched])
        changed = touched[speeds != self._speed[touched]]
        if not len(changed):
            return ()
        self._speed[touched] = speeds
        return sorted(set(self._job_of_core[self._cores_of(changed)].tolist()) - {_NOBODY})

    def _rate_of(self, job: int) -> float:
        if self._fixed[job]:
            return 1.0
        return min_at(self._speed, self._placements[job].processors)


class CoreProgress(Progress):
    """Progress under a model that gives every busy core a speed of its own."""

    def __init__(self, platform: Platform, workload: Workload, model: CoreContention) -> None:
        super().__init__(platform, workload, model)
        self._speeds = model.core_speeds
        self._bandwidth = workload.memory_bandwidth
        self._core_processor = platform.core_processor
        # Of an idle core, whatever it was when the core was last busy.
        self._speed = np.zeros(platform.n_cores)

    def _update(self, touched: NDArray[np.integer]) -> Iterable[int]:
        if len(touched) == 1:
            processors = touched
            begin, end = self._first_core[touched[0]], self._first_core[touched[0] + 1]
            busy = begin + (self._job_of_core[begin:end] != _NOBODY).nonzero()[0]
            if not len(busy):
                return ()
            first = np.array([0, len(busy)])
            peak = self._peak[touched]
        else:
            # Ascending and each once: a job may start where another has just ended.
            cores = self._cores_of(np.unique(touched))
            busy = cores[self._job_of_core[cores] != _NOBODY]
            if not len(busy):
                return ()
            owner = self._core_processor[busy]
            first = np.concatenate([[0], (owner[1:] != owner[:-1]).nonzero()[0] + 1, [len(owner)]])
            processors = owner[first[:-1]]
            peak = self._peak[owner]
        jobs = self._job_of_core[busy]
        speeds = peak * self._speeds(processors, first, self._bandwidth[jobs])
        changed = speeds != self._speed[busy]
        self._speed[busy] = speeds
        return sorted(set(jobs[changed].tolist()))

    def _rate_of(self, job: int) -> float:
        if self._fixed[job]:
            return 1.0
        return min_at(self._speed, self._placements[job].cores)
