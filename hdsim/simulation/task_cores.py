"""Task groups of steps per processor, or per core after changes of speed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from hdsim.simulation.executor import CoreIds
from hdsim.simulation.running_job import RunningJob
from hdsim.simulation.sharing import ProcessorSharing, TaskGroup
from hdsim.util.arrays import Floats
from hdsim.workload.programs import Step, StepType

if TYPE_CHECKING:
    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload

#: Core of a task group of several cores.
_ANY = -1


class Cores:
    """Peak speeds of cores and the task groups on them.

    Attributes:
        peak: (P,) peak speed of the cores of each processor relative to the reference.
    """

    def __init__(self, platform: Platform, workload: Workload) -> None:
        self.peak: list[float] = (platform.gflops / platform.reference_gflops).tolist()
        self._platform = platform
        self._bandwidth: list[float] = workload.memory_bandwidth.tolist()
        # (C,) current speed of each core as a share of its peak; None before the first `set_share`.
        self._share: list[float] | None = None
        # Jobs of busy cores, from then on.
        self._job_of_core: dict[int, RunningJob] = {}

    def add(self, jobs: Workload) -> None:
        """Appends jobs."""
        self._bandwidth += jobs.memory_bandwidth.tolist()

    def hold(self, running: RunningJob) -> None:
        """Records the cores of a started job."""
        if self._share is not None:
            self._job_of_core.update(dict.fromkeys(running.placement.cores.tolist(), running))

    def release(self, running: RunningJob) -> None:
        """Removes the cores of an ended job."""
        if self._share is not None:
            for core in running.placement.cores.tolist():
                del self._job_of_core[core]

    def set_share(
        self,
        cores: CoreIds,
        share: Floats | float,
        running: Iterable[RunningJob],
        sharing: ProcessorSharing | None,
    ) -> Iterable[RunningJob]:
        """Changes the speed of cores to a share of their peak and returns the jobs on them.

        Args:
            cores: (n,) core ids.
            share: (n,) or one for all.
            running: All running jobs.
            sharing: Processor sharing of the task groups, None without contention.
        """
        if self._share is None:
            self._share = [1.0] * self._platform.n_cores
            for each in running:
                self.hold(each)
                self._divide(each, sharing)
        changed = np.asarray(cores, np.int64).tolist()
        for core, value in zip(changed, np.broadcast_to(share, len(changed)).tolist(), strict=True):
            self._share[core] = value
        jobs = dict.fromkeys(self._job_of_core[core] for core in changed if core in self._job_of_core)
        for each in jobs:
            # These include the groups of the current step.
            for group in [group for groups, _ in each.known_groups.values() for group in groups]:
                group.peak = self.peak[group.processor] * self._share[group.core]
        return jobs

    def loads(self, running: RunningJob) -> Floats:
        """(n,) used share of the speed of each core of a parallel task."""
        step = running.step
        rate = running.rate / running.growth
        used = {
            (group.processor, group.core, group.work): rate * (group.work / step.longest) / group.rate
            for group in running.groups
        }
        by_core = self._share is not None
        return np.array(
            [
                used.get((owner, core if by_core else _ANY, work), 0.0)
                for core, owner, work in self._tasks(running, step)
            ]
        )

    def _tasks(self, running: RunningJob, step: Step) -> Iterable[tuple[int, int, float]]:
        """Returns core, processor and work of each task."""
        cores = running.placement.cores
        work = step.work if len(step.work) > 1 else step.work * running.tasks
        return zip(cores.tolist(), self._platform.core_processor[cores].tolist(), work, strict=True)

    def groups(self, running: RunningJob, step: Step) -> list[TaskGroup]:
        """Returns the task groups of a step, per processor or, after changes of speed, per core."""
        placement, demand, peak = running.placement, self._bandwidth[running.job], self.peak
        is_slowed = step.kind != StepType.DELAY
        # A task without work has no memory bandwidth demand.
        if self._share is not None:
            return [
                TaskGroup(running, owner, 1, each, demand, peak[owner] * self._share[core], int(is_slowed), core)
                for core, owner, each in self._tasks(running, step)
                if each
            ]
        if len(step.work) == 1:
            counts = {
                (processor, step.work[0]): tasks
                for processor, tasks in zip(placement.processors.tolist(), placement.counts.tolist(), strict=True)
            }
        else:
            counts = {}
            for _, owner, each in self._tasks(running, step):
                if each:
                    counts[owner, each] = counts.get((owner, each), 0) + 1
        return [
            TaskGroup(running, processor, tasks, each, demand, peak[processor], tasks if is_slowed else 0)
            for (processor, each), tasks in counts.items()
        ]

    def _divide(self, running: RunningJob, sharing: ProcessorSharing | None) -> None:
        """Splits the task groups of a job into one per core."""
        running.known_groups.clear()
        if not running.groups:
            return
        before = {(group.processor, group.work): group for group in running.groups}
        after = self.groups(running, running.step)
        for group in after:
            old = before[group.processor, group.work]
            group.left, group.since, group.rate, group.date = old.left, old.since, old.rate, old.date
            group.lost = old.lost / old.tasks
        if sharing is not None:
            present = [group for group in running.groups if sharing.present(group)]
            keys = {(group.processor, group.work) for group in present}
            sharing.replace(present, [group for group in after if (group.processor, group.work) in keys])
        running.groups = after
        running.known_groups[running.step] = after, running.seconds
