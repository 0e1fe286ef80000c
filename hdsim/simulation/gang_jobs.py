"""Executor of gangs: jobs whose CPU a controller plans between supersteps, and other jobs beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hdsim.gangs.simulation import Gang, RunningGang
from hdsim.simulation.executor import JobProgress, Uncontended

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.workload.model import Workload

#: Millicores: a gang takes free CPU in whole cores, since each other amount would be planned for anew.
_GROWTH = 1000


class GangJobs(Uncontended):
    """Executor of workloads with gangs, on nodes with quantities; other jobs are not slowed down.

    A superstep ends when its slowest task ends. Between supersteps the controller of a gang may plan its shares anew.
    They are at most the shares that the gang holds and its part of the CPU that is free on its node, which is divided
    equally among the gangs there that hold less than their total. The gang holds the planned shares from the begin of
    the checkpoint on, which lasts for the penalty. It keeps shares until its controller plans less.

    Gangs plan after all ends and starts of an instant, in order of submission.
    """

    runs_gangs = True

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._gang: list[Gang | None] = cluster.workload.gang.tolist()
        # Gangs that plan at this instant; begin and end of the superstep of the others, with its checkpoint, seconds.
        self._at_barrier: list[int] = []
        self._superstep: dict[int, tuple[float, float]] = {}

    def add(self, jobs: Workload) -> None:
        super().add(jobs)
        self._gang += jobs.gang.tolist()

    def rigid_jobs(self) -> None:
        """See :meth:`hdsim.simulation.executor.Executor.rigid_jobs`."""

    def start(self, job: int, placement: Any, now: float) -> None:
        gang = self._gang[job]
        if gang is None:
            super().start(job, placement, now)
        else:
            self._cluster.gangs[job] = RunningGang(gang)
            self._at_barrier.append(job)

    def advance(self, job: int, now: float) -> bool:
        if self._gang[job] is None:
            return super().advance(job, now)
        if self._cluster.gangs[job].over:
            self.end(job, now)
            return True
        self._at_barrier.append(job)
        return False

    def end(self, job: int, now: float) -> None:
        super().end(job, now)
        self._superstep.pop(job, None)

    def progress(self, job: int, now: float) -> JobProgress:
        """See :meth:`hdsim.simulation.executor.Executor.progress`; the steps are supersteps."""
        if self._gang[job] is None:
            return super().progress(job, now)
        if job not in self._superstep:
            return JobProgress(0, 0.0)
        begin, end = self._superstep[job]
        return JobProgress(self._cluster.gangs[job].planned - 1, (now - begin) / (end - begin))

    def settle(self, now: float) -> list[tuple[int, float]]:
        for job in sorted(self._at_barrier):
            if job in self._cluster.running:  # else it was killed at this instant
                self._plan(job, now)
        self._at_barrier.clear()
        return super().settle(now)

    def _plan(self, job: int, now: float) -> None:
        """Plans and begins the next superstep of a gang."""
        cluster = self._cluster
        running = cluster.gangs[job]
        held, first = running.held, not running.planned
        replanned = running.plan(self._available(job, running))
        if running.held != held:
            cluster.resize_gang(job, running.held / 1000)
        if running.held < held:
            cluster.calls.append(now)  # waiting jobs may fit
        checkpoint = running.gang.penalty if replanned and not first else 0.0
        date = now + (checkpoint + running.execute())
        self._superstep[job] = now, date
        self._due.append((job, date))

    def _available(self, job: int, running: RunningGang) -> int:
        """Returns the millicores that a gang may hold from now on."""
        cluster, held, total = self._cluster, running.held, running.gang.budget.total
        if held == total:
            return total
        (node,) = cluster.running[job].nodes
        growing = sum(
            other.held < other.gang.budget.total and cluster.running[key].nodes[0] == node
            for key, other in cluster.gangs.items()
            if key in cluster.running
        )
        free = round(1000 * float(cluster.cores.node_idle[node])) // growing
        return total if held + free >= total else held + free // _GROWTH * _GROWTH
