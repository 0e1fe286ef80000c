"""Executor of rigid jobs under contention on shared processors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.contention import Contention, CoreContention, ProcessorContention
from hdsim.contention.kernels import speeds
from hdsim.errors import ConfigError
from hdsim.simulation.executor import CoreIds, RigidExecutor, placed
from hdsim.util.arrays import Floats, Ints
from hdsim.util.copies import with_own_containers

if TYPE_CHECKING:
    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload


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


def own_speeds(model: Contention, found: Any, number: int) -> Floats:
    """Returns the speeds, (n,) or one for all, that a model of a user's own has returned for n cores or processors.

    Raises:
        ConfigError: They are not as many numbers above 0.
    """
    name = type(model).__name__
    try:
        shares = np.asarray(found, np.float64)
    except (TypeError, ValueError):
        shares = np.zeros(0)
    if shares.shape not in ((), (number,)):
        got = f"{len(shares)} numbers" if shares.ndim == 1 and len(shares) else repr(found)
        raise ConfigError(f"expected {number} speeds from {name}, got {got}", where="contention")
    wrong = ~(np.isfinite(shares) & (shares > 0))
    if wrong.any():
        raise ConfigError(f"expected speeds above 0 from {name}, got {shares[wrong].min():g}", where="contention")
    return shares


def shared_state(platform: Platform, workload: Workload) -> speeds.State:
    """Returns the state of the jobs of a workload before their start."""
    c, p = platform.n_cores, platform.n_processors
    ones = np.ones(c)
    return (
        np.array([platform.core_processor, -ones, -ones], np.int64),
        np.array([0 * ones, ones]),
        platform.processor_first_core.astype(np.int64),
        np.array([platform.gflops / platform.reference_gflops, np.zeros(p)]),
        *_of_jobs(workload),
        np.zeros((8, c + p + 1), np.int64),
        np.zeros((4, c)),
    )


def _of_jobs(workload: Workload) -> tuple[Ints, Floats]:
    none = np.zeros(len(workload))
    ints = np.array([none - 1, workload.fixed_duration, none], np.int64)
    return ints, np.array([workload.memory_bandwidth, none, none, none, none + 1], np.float64)


class Contended(RigidExecutor):
    """Executor that integrates the work of jobs under a contention model.

    The speeds of the model and of `set_speed` multiply.

    Raises:
        ConfigError: The model is of no known type.
    """

    def __init__(self, platform: Platform, workload: Workload, model: Contention) -> None:
        super().__init__(workload)
        if not isinstance(model, ProcessorContention | CoreContention):
            raise unknown_model(model)
        self._platform = platform
        self._model = model
        self._has_kernel = model.has_kernel
        self._state = shared_state(platform, workload)
        self._jobs = speeds.shared_of(self._state)

    def __deepcopy__(self, memo: dict[int, Any]) -> Contended:
        memo[id(self._jobs)] = self._jobs
        other = with_own_containers(self, memo)
        other._jobs = speeds.shared_of(other._state)
        return other

    def add(self, jobs: Workload) -> None:
        super().add(jobs)
        ints, floats = _of_jobs(jobs)
        a, b, c, d, known_ints, known_floats, e, f = self._state
        self._state = a, b, c, d, np.hstack([known_ints, ints]), np.hstack([known_floats, floats]), e, f
        self._jobs = speeds.shared_of(self._state)

    def start(self, job: int, placement: Any, now: float) -> None:
        speeds.begin(self._state, job, placed(placement, self._platform).cores, self._runtime[job], 0.0, 1.0)

    def advance(self, job: int, now: float) -> bool:
        self.end(job, now)
        return True

    def end(self, job: int, now: float) -> None:
        speeds.finish(self._state, job)

    def interrupt(self, job: int, now: float, begin: float, interval: float | None) -> float:
        lost = self._checkpoint(job, self._runtime[job] - self._left_at(job, now), now - begin, interval)
        self.end(job, now)
        return lost

    def rigid_jobs(self) -> tuple[list[float], speeds.State | None]:
        return self._runtime, self._state

    def set_runtimes(self, runtimes: list[float], starts: list[float], now: float) -> dict[int, float]:
        jobs, running = self._jobs, np.flatnonzero(self._jobs.core_of_job >= 0)
        done = np.array(self._runtime)[running] - jobs.left[running]
        self._runtime = runtimes
        jobs.left[running] = np.array(runtimes)[running] - done
        dates = jobs.since[running] + jobs.left[running] / jobs.rate[running]
        return dict(zip(running.tolist(), np.maximum(dates, math.nextafter(now, math.inf)).tolist(), strict=True))

    def resize(self, placements: Mapping[int, Any], now: float) -> None:
        for job in placements:
            self.end(job, now)
        for job, placement in placements.items():
            cores = placed(placement, self._platform).cores
            left, rate = float(self._jobs.left[job]), float(self._jobs.rate[job])
            speeds.begin(self._state, job, cores, left, rate, len(cores) / self._requested[job])

    def set_speed(self, cores: CoreIds, share: Floats | float, now: float) -> Iterable[int]:
        chosen = np.array(cores, np.int64)
        speeds.set_speed(self._state, chosen, np.full(len(chosen), share, np.float64))
        return [job for job in dict.fromkeys(self._jobs.job_of_core[chosen].tolist()) if job >= 0]

    def settle(self, now: float) -> Iterator[tuple[int, float]]:
        """See :meth:`hdsim.simulation.executor.Executor.settle`.

        Raises:
            ConfigError: The contention model returned a speed that is not above 0.
        """
        state, jobs, model = self._state, self._jobs, self._model
        if not jobs.counts[0]:
            return
        if self._has_kernel:
            n = speeds.settle(state, model.kernel, model.parameters, now)
        else:
            m = speeds.gather(state)
            if m:
                processors, first = jobs.processors[:m], jobs.offsets[: m + 1]
                if isinstance(model, ProcessorContention):
                    jobs.shares[:m] = own_speeds(model, model.speeds(processors, jobs.totals[:m]), m)
                else:
                    k = int(first[-1])
                    found = model.core_speeds(processors, first, jobs.demands[:k])
                    jobs.shares[:k] = own_speeds(model, found, k)
            n = speeds.apply(state, m, isinstance(model, ProcessorContention), now)
        affected = jobs.jobs[:n].tolist()
        if self.moved is not None:
            self.moved.update(dict.fromkeys(affected))
        for job, date in zip(affected, jobs.dates[:n].tolist(), strict=True):
            if date == -math.inf:
                require_speed(float(jobs.rate[job]), model)
            if not math.isnan(date):
                yield job, date

    def _left_at(self, job: int, now: float) -> float:
        jobs = self._jobs
        return float(jobs.left[job] - jobs.rate[job] * (now - jobs.since[job]))

    def _core_speeds(self, job: int) -> Floats:
        cores = np.flatnonzero(self._jobs.job_of_core == job)
        return np.asarray(self._jobs.speed[cores] * self._jobs.share[cores])
