"""What the engine needs beside its own parts in Batsim's place: jobs added on the way, P-states set at will."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.placement import Placement
from hdsim.cluster.state import Cluster, FinalState, completed
from hdsim.contention import Contention, CoreContention
from hdsim.errors import DecisionError
from hdsim.simulation.engine import Executor, SimBackend
from hdsim.simulation.execution import Course, Execution, Part
from hdsim.simulation.progress import CoreProgress, ProcessorProgress, Progress
from hdsim.workload.programs import Step, StepType

if TYPE_CHECKING:
    from hdsim.network import Network
    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload

_NOBODY = -1


class HostCores:
    """Idle hosts where a scheduler names those that it wants; a placement is the ascending list of them.

    Args:
        speed: (H,) speed of each host relative to the reference.
    """

    def __init__(self, speed: NDArray[np.float64]) -> None:
        self._speed: list[float] = speed.tolist()
        self._idle = set(range(len(speed)))

    @property
    def n_idle(self) -> int:
        """Idle hosts."""
        return len(self._idle)

    def placement_of(self, hosts: Sequence[int]) -> list[int]:
        """The hosts, ascending."""
        return sorted(hosts)

    def allocate(self, job: int, hosts: list[int]) -> None:
        """Makes hosts busy.

        Raises:
            DecisionError: One is already.
        """
        if not self._idle.issuperset(hosts):
            raise DecisionError(f"expected idle cores, got busy {sorted(set(hosts) - self._idle)}")
        self._idle.difference_update(hosts)

    def release(self, job: int, hosts: list[int]) -> None:
        """Makes hosts idle again."""
        self._idle.update(hosts)

    def ids_of(self, hosts: list[int]) -> list[int]:
        """Core ids of a placement, which it is."""
        return hosts

    def slowest(self, hosts: list[int]) -> float:
        """Relative speed of the slowest of the hosts."""
        return min([self._speed[host] for host in hosts])

    def check(self, running: Sequence[list[int]]) -> None:
        """Asserts that every host is either idle or held by exactly one running job."""
        held = [host for hosts in running for host in hosts]
        assert sorted([*held, *self._idle]) == list(range(len(self._speed))), "a host is lost or held twice"


class GrowingCluster(Cluster):
    """A cluster to which jobs are added while it runs; they follow those of the workload.

    Args:
        platform: The platform; a scheduler names the cores that it wants.
        workload: The jobs known from the beginning; memory is nobody's concern in Batsim.
    """

    def __init__(self, platform: Platform, workload: Workload) -> None:
        super().__init__(platform, workload)
        self.cores = HostCores(platform.core_gflops() / platform.reference_gflops)
        self._names: list[str] = []

    def add(self, jobs: Workload) -> None:
        """Adds jobs that have not been submitted yet."""
        count = len(jobs)
        self._names += map(str, jobs.job_id.tolist())
        self.size += jobs.requested_cores.tolist()
        self.requested_time += jobs.requested_time.tolist()
        self.fixed_duration += jobs.fixed_duration.tolist()
        self.starting_time += [math.nan] * count
        self.finish_time += [math.nan] * count
        self.state += [FinalState.NOT_SUBMITTED] * count

    def _name(self, job: int) -> str:
        static = len(self.workload)
        return self._names[job - static] if job >= static else super()._name(job)


class _Held(NamedTuple):
    """Cores of a job where nobody asks which processors they are on."""

    cores: NDArray[np.int64]
    processors: NDArray[np.int64]


class Pace(Progress):
    """Progress of jobs on cores whose P-states a scheduler sets, and of jobs added on the way.

    A job advances at the speed of its slowest core; speeds of P-states and of the contention model multiply.

    Attributes:
        moved: Jobs whose loads may have changed since somebody emptied it.

    Args:
        platform: The platform.
        workload: The jobs known from the beginning.
        model: Contention model.
        share: (C,) present speed of each core as a share of its peak.
    """

    def __init__(self, platform: Platform, workload: Workload, model: Any, share: NDArray[np.float64]) -> None:
        super().__init__(platform, workload, model)
        self._platform = platform
        self._processor = platform.core_processor
        self._share = share.copy()
        self._changed: list[NDArray[np.int64]] = []
        self.moved: dict[int, None] = {}

    def add(self, jobs: Workload) -> None:
        """Adds jobs behind those known."""
        self._runtime += jobs.runtime.tolist()
        self._fixed += jobs.fixed_duration.tolist()

    def start(self, job: int, placement: Any, now: float) -> None:
        """Adds a job on a list of cores; see :meth:`hdsim.simulation.progress.Progress.start`."""
        super().start(job, self._place(np.array(placement, np.int64)), now)

    def done(self, job: int, now: float) -> tuple[int, float]:
        """No steps, and the share of a running job that is done, 0..1."""
        if not self._runtime[job]:
            return 0, 1.0
        left = self._left[job] - self._rate[job] * (now - self._since[job])
        return 0, 1.0 - max(left, 0.0) / self._runtime[job]

    def loads(self, job: int) -> NDArray[np.float64] | float:
        """(n,) share of its speed that each core of a running job uses; a job of fixed duration uses none."""
        if self._fixed[job]:
            return 0.0
        speed = self._speeds_of(job)
        return np.asarray(speed.min() / speed)

    def set_share(self, hosts: Sequence[int], share: NDArray[np.float64], now: float) -> None:
        """Changes the speed of cores to a share of their peak."""
        cores = np.array(hosts, np.int64)
        self._share[cores] = share
        self._touched.append(self._processor[cores])
        self._changed.append(cores)

    @abstractmethod
    def _contended(self, cores: NDArray[np.int64]) -> NDArray[np.float64]:
        """(n,) speeds of busy cores under the contention model alone."""

    def _place(self, cores: NDArray[np.int64]) -> Any:
        return Placement(cores, self._platform)

    def _speeds_of(self, job: int) -> NDArray[np.float64]:
        cores = self._placements[job].cores
        return self._contended(cores) * self._share[cores]

    def _jobs_on(self, cores: NDArray[np.int64]) -> list[int]:
        jobs = np.unique(self._job_of_core[cores])
        held: list[int] = jobs[jobs != _NOBODY].tolist()
        return held

    def _with_changed(self, affected: Iterable[int]) -> Iterable[int]:
        """The jobs the contention model affects and those whose P-state has changed, each once."""
        if not self._changed:
            return affected
        changed = self._jobs_on(np.concatenate(self._changed))
        self._changed.clear()
        return dict.fromkeys([*affected, *changed])

    def _rate_of(self, job: int) -> float:
        self.moved[job] = None
        return 1.0 if self._fixed[job] else float(self._speeds_of(job).min())


class FreePace(Pace):
    """Where jobs never slow each other down: a start changes nobody else's speed."""

    def _place(self, cores: NDArray[np.int64]) -> Any:
        return _Held(cores, cores)

    def _contended(self, cores: NDArray[np.int64]) -> NDArray[np.float64]:
        return self._peak[self._processor[cores]]

    def _update(self, touched: NDArray[np.integer]) -> Iterable[int]:
        return self._with_changed(())


class ProcessorPace(Pace, ProcessorProgress):
    """Beside a model that gives all busy cores of a processor the same speed."""

    def add(self, jobs: Workload) -> None:
        """See :meth:`Pace.add`."""
        super().add(jobs)
        self._bandwidth += jobs.memory_bandwidth.tolist()

    def _contended(self, cores: NDArray[np.int64]) -> NDArray[np.float64]:
        return self._speed[self._processor[cores]]

    def _update(self, touched: NDArray[np.integer]) -> Iterable[int]:
        return self._with_changed(ProcessorProgress._update(self, touched))


class CorePace(Pace, CoreProgress):
    """Beside a model that gives every busy core a speed of its own."""

    def add(self, jobs: Workload) -> None:
        """See :meth:`Pace.add`."""
        super().add(jobs)
        self._bandwidth = np.append(self._bandwidth, jobs.memory_bandwidth)

    def _contended(self, cores: NDArray[np.int64]) -> NDArray[np.float64]:
        return self._speed[cores]

    def _update(self, touched: NDArray[np.integer]) -> Iterable[int]:
        return self._with_changed(CoreProgress._update(self, touched))


class _HostPart(Part):
    """A task of a job on a core whose P-state a scheduler sets."""

    __slots__ = ("core",)
    core: int


class Programs(Execution):
    """Execution of jobs with several steps or messages, and of jobs added on the way.

    Attributes:
        moved: Jobs whose loads may have changed since somebody emptied it; none without P-states.

    Args:
        platform: The platform.
        workload: The jobs known from the beginning.
        contention: Contention model, or None for tasks that never slow each other down.
        network: Network model, or None for messages that take no time of their own.
        share: (C,) present speed of each core as a share of its peak, or None where it is that and stays so.
    """

    def __init__(
        self,
        platform: Platform,
        workload: Workload,
        contention: Contention | None,
        network: Network | None,
        share: NDArray[np.float64] | None,
    ) -> None:
        super().__init__(platform, workload, contention, network)
        self._share: list[float] | None = None if share is None else share.tolist()
        self.moved: dict[int, None] = {}

    def add(self, jobs: Workload) -> None:
        """Adds jobs behind those known."""
        self._runtime += jobs.runtime.tolist()
        self._fixed += jobs.fixed_duration.tolist()
        self._program += jobs.program.tolist()
        self._bandwidth += jobs.memory_bandwidth.tolist()
        self.time_breakdown.add(len(jobs))

    def start(self, job: int, placement: Any, now: float) -> None:
        """Adds a job on a list of cores; see :meth:`hdsim.simulation.execution.Execution.start`."""
        super().start(job, Placement(np.array(placement, np.int64), self._platform), now)
        self._move(job)

    def loads(self, job: int) -> NDArray[np.float64] | float:
        """(n,) share of its speed that each core of a running job uses; while a delay lasts, none.

        Tasks wait busily for messages and at barriers.
        """
        course = self._courses[job]
        step = course.step
        if step.kind == StepType.DELAY:
            return 0.0
        if step.kind == StepType.SUPERSTEP or (step.pattern is not None and self._network is not None):
            return 1.0
        loads = np.zeros(course.tasks)
        parts: Any = course.parts
        for part in parts:
            task = np.searchsorted(course.placement.cores, part.core)
            loads[task] = course.rate * (part.work / step.longest) / part.rate
        return loads

    def set_share(self, hosts: Sequence[int], share: NDArray[np.float64], now: float) -> None:
        """Changes the speed of cores to a share of their peak."""
        assert self._share is not None
        for host, each in zip(hosts, share.tolist(), strict=True):
            self._share[host] = each
        for course in self._courses.values():
            known: Any
            for known, _ in course.work_parts.values():
                for part in known:
                    part.peak = self._peak[part.processor] * self._share[part.core]
            for part in course.parts:
                if self._model is not None:
                    self._touched[part.processor] = None
                elif part.peak != part.rate:
                    part.left = max(part.left - part.rate * (now - part.since), 0.0)
                    part.since, part.rate = now, part.peak
                    part.date = now + part.left / part.peak
                    self._news[course] = None

    def _parts(self, course: Course, step: Step) -> list[Part]:
        share = self._share
        if share is None:
            return super()._parts(course, step)
        work = step.work if len(step.work) > 1 else step.work * course.tasks
        parts: list[Part] = []
        for core, each in zip(course.placement.cores.tolist(), work, strict=True):
            # A task without work takes no memory bandwidth.
            if each:
                processor = int(self._platform.core_processor[core])
                peak = self._peak[processor] * share[core]
                part = _HostPart(course, processor, 1, each, self._bandwidth[course.job], peak)
                part.core = core
                parts.append(part)
        return parts

    def _next_date(self, course: Course, now: float) -> None:
        super()._next_date(course, now)
        self._move(course.job)

    def _set_pace(self, course: Course) -> None:
        super()._set_pace(course)
        self._move(course.job)

    def _move(self, job: int) -> None:
        if self._share is not None:
            self.moved[job] = None

    def done(self, job: int, now: float) -> tuple[int, float]:
        """Steps that a running job has done, and the share of the present one that is, 0..1.

        Of a step with messages it is the time that has passed by that which the step takes alone.
        """
        course = self._courses[job]
        step = course.step
        if step.kind != StepType.SUPERSTEP and course.rate:
            share = 1.0 - (course.left - course.rate * (now - course.since)) / step.longest
        else:
            alone = self._alone(course)
            share = (now - course.entered) / alone if alone else 1.0
        return course.index, min(share, 1.0)


class HostBackend(SimBackend):
    """The engine with jobs added on the way, and with P-states or programs if asked for.

    Args:
        platform: The platform.
        workload: The jobs known from the beginning.
        cluster: State to drive.
        contention: Contention model, or None for jobs that never slow each other down.
        network: Network model, or None for messages that take no time of their own.
        share: (C,) speed of each core as a share of its peak at time 0, or None where it is that and stays so.
        programs: Jobs may have several steps or messages.
        loaded: Called with every running job whose loads may have changed, if there is a `share`.

    Attributes:
        pace: What knows how far jobs are; None where each runs its time undisturbed.
    """

    def __init__(
        self,
        platform: Platform,
        workload: Workload,
        cluster: GrowingCluster,
        *,
        contention: Contention | None = None,
        network: Network | None = None,
        share: NDArray[np.float64] | None = None,
        programs: bool = False,
        loaded: Callable[[int], None] | None = None,
    ) -> None:
        self.pace: Pace | Programs | None = None
        if programs:
            self.pace = Programs(platform, workload, contention, network, share)
        elif contention is not None or share is not None:
            kind = CorePace if isinstance(contention, CoreContention) else ProcessorPace if contention else FreePace
            self.pace = kind(platform, workload, contention, np.ones(platform.n_cores) if share is None else share)
        super().__init__(platform, workload, cluster, executor=self.pace, kill_at_walltime=True)
        self._grown = cluster
        self._loaded = loaded
        self._homogeneous = platform.homogeneous_speed

    def add(self, jobs: Workload) -> int:
        """Adds jobs and returns the index of the first; they are submitted by the caller."""
        first = len(self._runtime)
        self._grown.add(jobs)
        self._runtime += jobs.runtime.tolist()
        self._walltime += jobs.walltime.tolist()
        self._at_peak += (jobs.fixed_duration | self._homogeneous).tolist()
        self._ends_in_delay += jobs.ends_in_delay.tolist()
        self._finals += completed(jobs).tolist()
        self._completions += [None] * len(jobs)
        if self.pace is not None:
            self.pace.add(jobs)
        return first

    def done(self, job: int) -> tuple[int, float]:
        """Steps that a running job has done, and the share of the present one that is, 0..1."""
        now = self.cluster.now
        if self.pace is not None:
            return self.pace.done(job, now)
        seconds = self._runtime[job]
        if not self._at_peak[job]:
            seconds /= self.cluster.cores.slowest(self.cluster.running[job])
        return 0, min((now - self.cluster.starting_time[job]) / seconds, 1.0) if seconds else 1.0

    def _settle(self, executor: Executor) -> None:
        super()._settle(executor)
        assert self.pace is not None
        if self.pace.moved:
            if self._loaded is not None:
                for job in self.pace.moved:
                    self._loaded(job)
            self.pace.moved.clear()
