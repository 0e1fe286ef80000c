"""Executors of rigid jobs under contention on shared processors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.placement import Placement
from hdsim.contention import Contention, CoreContention, ProcessorContention
from hdsim.errors import ConfigError
from hdsim.simulation.executor import CoreIds, RigidExecutor, placed
from hdsim.util.arrays import members, min_at

if TYPE_CHECKING:
    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload

_NONE = -1


def contended(platform: Platform, workload: Workload, model: Contention) -> Contended:
    """Creates the executor for a contention model.

    Raises:
        ConfigError: The model is of no known type.
    """
    if isinstance(model, ProcessorContention):
        return ContendedProcessors(platform, workload, model)
    if isinstance(model, CoreContention):
        return ContendedCores(platform, workload, model)
    raise unknown_model(model)


def unknown_model(model: Contention) -> ConfigError:
    """Returns the error for a contention model of no known type."""
    return ConfigError(
        f"expected a ProcessorContention or a CoreContention, got {type(model).__name__}", where="contention"
    )


def require_speed(speed: float, model: Contention) -> None:
    """Checks a speed of a contention model.

    Raises:
        ConfigError: The speed is not above 0.
    """
    if not speed > 0:
        raise ConfigError(f"expected speeds above 0 from {type(model).__name__}, got {speed:g}", where="contention")


class Contended(RigidExecutor):
    """Base class of executors that integrate the work of jobs under a contention model.

    All cores of a job advance at the speed of its slowest core. The speeds of the model and of `set_speed` multiply. A
    change on a processor affects only the jobs on that processor.

    Args:
        platform: The platform.
        workload: The initial jobs.
        model: The contention model.
    """

    def __init__(self, platform: Platform, workload: Workload, model: Contention) -> None:
        super().__init__(workload)
        self._platform = platform
        self._model = model
        self._peak = platform.gflops / platform.reference_gflops
        self._job_of_core = np.full(platform.n_cores, _NONE)
        self._first_core = platform.processor_first_core.astype(np.int64)
        # (C,) current speed as a share of the peak; None before the first `set_speed`.
        self._share: NDArray[np.float64] | None = None
        self._placements: dict[int, Placement] = {}
        self._left: dict[int, float] = {}
        self._rate: dict[int, float] = {}
        self._since: dict[int, float] = {}
        # Cores relative to requested cores, of resized jobs.
        self._growth: dict[int, float] = {}
        self._touched: list[NDArray[np.integer]] = []
        # Jobs whose rate is updated even if the speeds of their processors have not changed.
        self._new: dict[int, None] = {}

    def start(self, job: int, placement: Any, now: float) -> None:
        """See :meth:`hdsim.simulation.executor.Executor.start`."""
        self._left[job] = self._runtime[job]
        self._rate[job] = self._since[job] = 0.0
        self._occupy(job, placed(placement, self._platform))

    def advance(self, job: int, now: float) -> bool:
        """See :meth:`hdsim.simulation.executor.Executor.advance`."""
        self.end(job, now)
        return True

    def end(self, job: int, now: float) -> None:
        """See :meth:`hdsim.simulation.executor.Executor.end`."""
        self._vacate(job)
        del self._left[job], self._rate[job], self._since[job]
        self._growth.pop(job, None)

    def interrupt(self, job: int, now: float, begin: float, interval: float | None) -> float:
        """See :meth:`hdsim.simulation.executor.Executor.interrupt`."""
        lost = self._checkpoint(job, self._runtime[job] - self._left_at(job, now), now - begin, interval)
        self.end(job, now)
        return lost

    def resize(self, job: int, placement: Any, now: float) -> None:
        """See :meth:`hdsim.simulation.executor.Executor.resize`."""
        placement = placed(placement, self._platform)
        self._vacate(job)
        self._growth[job] = len(placement.cores) / self._requested[job]
        self._occupy(job, placement)

    def set_speed(self, cores: CoreIds, share: NDArray[np.float64] | float, now: float) -> Iterable[int]:
        """See :meth:`hdsim.simulation.executor.Executor.set_speed`."""
        if self._share is None:
            self._share = np.ones(self._platform.n_cores)
        chosen = np.asarray(cores, np.int64)
        self._share[chosen] = share
        self._touched.append(self._platform.core_processor[chosen])
        jobs = {job: None for job in self._job_of_core[chosen].tolist() if job != _NONE}
        self._new.update(jobs)
        return jobs

    def settle(self, now: float) -> Iterator[tuple[int, float]]:
        """See :meth:`hdsim.simulation.executor.Executor.settle`.

        Raises:
            ConfigError: The contention model returned a speed that is not above 0.
        """
        if not self._touched:
            return
        touched = self._touched[0] if len(self._touched) == 1 else np.concatenate(self._touched)
        self._touched.clear()
        affected, self._new = self._new, {}
        affected.update(dict.fromkeys(self._update(touched)))
        if self.moved is not None:
            self.moved.update(affected)
        for job in affected:
            rate, before = self._rate_of(job), self._rate[job]
            require_speed(rate, self._model)
            if rate != before:
                self._left[job] -= before * (now - self._since[job])
                self._rate[job] = rate
                self._since[job] = now
                yield job, now + max(self._left[job] / rate, 0.0)

    def _occupy(self, job: int, placement: Placement) -> None:
        """Adds a job on cores."""
        self._placements[job] = placement
        self._job_of_core[placement.cores] = job
        self._touched.append(placement.processors)
        self._new[job] = None

    def _vacate(self, job: int) -> None:
        """Removes a job from its cores."""
        placement = self._placements.pop(job)
        self._job_of_core[placement.cores] = _NONE
        self._touched.append(placement.processors)
        self._new.pop(job, None)

    def _left_at(self, job: int, now: float) -> float:
        return self._left[job] - self._rate[job] * (now - self._since[job])

    def _rate_of(self, job: int) -> float:
        """Returns the current speed of a job relative to the reference speed."""
        if self._fixed[job]:
            return 1.0
        rate = self._slowest(self._placements[job]) if self._share is None else float(self._core_speeds(job).min())
        return rate * self._growth[job] if job in self._growth else rate

    def _core_speeds(self, job: int) -> NDArray[np.float64]:
        cores = self._placements[job].cores
        speeds = self._contended(cores)
        return speeds if self._share is None else speeds * self._share[cores]

    @abstractmethod
    def _update(self, touched: NDArray[np.integer]) -> Iterable[int]:
        """Computes the speeds on processors, which may contain duplicates.

        Returns:
            The jobs on them whose speed may have changed, unique and ascending.
        """

    @abstractmethod
    def _contended(self, cores: NDArray[np.int64]) -> NDArray[np.float64]:
        """(n,) speeds of busy cores under the contention model, without `set_speed`."""

    @abstractmethod
    def _slowest(self, placement: Placement) -> float:
        """Returns the minimum of these speeds in a placement."""

    def _cores_of(self, processors: NDArray[np.integer]) -> NDArray[np.int64]:
        """Returns all cores of processors, processor by processor."""
        return members(self._first_core, processors)


class ContendedProcessors(Contended):
    """Executor for models in which all busy cores of a processor have the same speed."""

    def __init__(self, platform: Platform, workload: Workload, model: ProcessorContention) -> None:
        super().__init__(platform, workload, model)
        self._speeds = model.speeds
        self._bandwidth: list[float] = workload.memory_bandwidth.tolist()
        self._speed = self._peak.copy()
        self._demand = np.zeros(platform.n_processors)

    def add(self, jobs: Workload) -> None:
        """See :meth:`hdsim.simulation.executor.Executor.add`."""
        super().add(jobs)
        self._bandwidth += jobs.memory_bandwidth.tolist()

    def _occupy(self, job: int, placement: Placement) -> None:
        super()._occupy(job, placement)
        self._ask(placement, self._bandwidth[job])

    def _vacate(self, job: int) -> None:
        self._ask(self._placements[job], -self._bandwidth[job])
        super()._vacate(job)

    def _ask(self, placement: Placement, bandwidth: float) -> None:
        """Adds a demand per core in GB/s to the processors of a placement."""
        if len(placement.processors) == 1:
            # Scalars cost a fraction of arrays of length 1.
            self._demand[placement.processors[0]] += len(placement.cores) * bandwidth
        else:
            self._demand[placement.processors] += placement.counts * bandwidth

    def _update(self, touched: NDArray[np.integer]) -> Iterable[int]:
        speeds = self._peak[touched] * self._speeds(touched, self._demand[touched])
        changed = touched[speeds != self._speed[touched]]
        if not len(changed):
            return ()
        self._speed[touched] = speeds
        return sorted(set(self._job_of_core[self._cores_of(changed)].tolist()) - {_NONE})

    def _contended(self, cores: NDArray[np.int64]) -> NDArray[np.float64]:
        return self._speed[self._platform.core_processor[cores]]

    def _slowest(self, placement: Placement) -> float:
        return min_at(self._speed, placement.processors)


class ContendedCores(Contended):
    """Executor for models in which busy cores have individual speeds."""

    def __init__(self, platform: Platform, workload: Workload, model: CoreContention) -> None:
        super().__init__(platform, workload, model)
        self._speeds = model.core_speeds
        self._bandwidth = workload.memory_bandwidth
        self._core_processor = platform.core_processor
        # The speed of an idle core is that of its last job.
        self._speed = np.zeros(platform.n_cores)

    def add(self, jobs: Workload) -> None:
        """See :meth:`hdsim.simulation.executor.Executor.add`."""
        super().add(jobs)
        self._bandwidth = np.append(self._bandwidth, jobs.memory_bandwidth)

    def _update(self, touched: NDArray[np.integer]) -> Iterable[int]:
        if len(touched) == 1:
            processors = touched
            begin, end = self._first_core[touched[0]], self._first_core[touched[0] + 1]
            busy = begin + (self._job_of_core[begin:end] != _NONE).nonzero()[0]
            if not len(busy):
                return ()
            first = np.array([0, len(busy)])
            peak = self._peak[touched]
        else:
            # Unique and ascending: a job may start on cores of one that has just ended.
            cores = self._cores_of(np.unique(touched))
            busy = cores[self._job_of_core[cores] != _NONE]
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

    def _contended(self, cores: NDArray[np.int64]) -> NDArray[np.float64]:
        return self._speed[cores]

    def _slowest(self, placement: Placement) -> float:
        return min_at(self._speed, placement.cores)
