"""The discrete-event engine: SimPy's clock and event queue feeding a `Cluster`.

Timers are plain SimPy timeouts with a callback, never a process per job; one arrival is pending at a time; a
completion whose date moves is disarmed and armed again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import simpy

from hdsim.progress import Progress
from hdsim.state import Cluster, FinalState

if TYPE_CHECKING:
    from hdsim.contention import Contention
    from hdsim.platform import Platform
    from hdsim.workload import Workload


class SimBackend:
    """Simulates a workload on a platform.

    Args:
        platform: The platform.
        workload: The jobs.
        cluster: State to drive.
        contention: Contention model, or None for jobs that never slow each other down.
        kill_at_walltime: Kill a job when its walltime has passed.
        impossible: Jobs to turn away at their submission.
    """

    def __init__(
        self,
        platform: Platform,
        workload: Workload,
        cluster: Cluster,
        *,
        contention: Contention | None = None,
        kill_at_walltime: bool = False,
        impossible: Iterable[int] = (),
    ) -> None:
        self.cluster = cluster
        self._env = simpy.Environment()
        self._progress = Progress(platform, workload, contention) if contention else None
        self._kill_at_walltime = kill_at_walltime
        self._submission: list[float] = workload.submission_time.tolist()
        self._runtime: list[float] = workload.runtime.tolist()
        self._walltime: list[float] = workload.walltime.tolist()
        self._at_peak: list[bool] = (workload.fixed_duration | platform.homogeneous_speed).tolist()
        self._impossible = frozenset(impossible)
        self._finals = [
            FinalState.COMPLETED_FAILED if code else FinalState.COMPLETED_SUCCESSFULLY
            for code in workload.return_code.tolist()
        ]
        self._timers: dict[int, simpy.Event] = {}
        self._walltimes: dict[int, simpy.Event] = {}
        self._next = 0
        self._called = False
        if self._submission:
            self._arm_arrival()

    def advance(self) -> bool:
        """Runs to the next instant with news and hands over all its events; False when nothing is left to happen."""
        cluster, env = self.cluster, self._env
        cluster.clear_news()
        self._called = False
        step, peek = env.step, env.peek
        while peek() != simpy.core.Infinity:
            step()
            now = env.now
            while peek() == now:
                step()
            if cluster.submitted or cluster.ended or self._called:
                return True
        return False

    def apply(self) -> None:
        """Carries out what the scheduler decided at this instant."""
        cluster, env = self.cluster, self._env
        if cluster.started:
            if self._progress is None:
                self._start_alone(cluster.started)
            else:
                for job in cluster.started:
                    self._start_shared(job, self._progress)
            cluster.started.clear()
        if self._progress is not None:
            self._settle(self._progress)
        if cluster.killed:
            for job in cluster.killed:
                env.timeout(0.0, job).callbacks.append(self._on_kill)
            cluster.killed.clear()
        if cluster.calls:
            for time in cluster.calls:
                env.timeout(max(time - env.now, 0.0)).callbacks.append(self._on_call)
            cluster.calls.clear()

    # Starting

    def _start_alone(self, jobs: list[int]) -> None:
        cluster, env = self.cluster, self._env
        for job in jobs:
            seconds = self._runtime[job]
            if not self._at_peak[job]:
                seconds /= cluster.cores.slowest(cluster.running[job])
            if self._kill_at_walltime and seconds >= self._walltime[job]:
                timer = env.timeout(self._walltime[job], job)
                timer.callbacks.append(self._on_walltime)
            else:
                timer = env.timeout(seconds, job)
                timer.callbacks.append(self._on_completion)
            self._timers[job] = timer

    def _start_shared(self, job: int, progress: Progress) -> None:
        progress.start(job, self.cluster.running[job])
        if self._kill_at_walltime and self._walltime[job] != simpy.core.Infinity:
            timer = self._env.timeout(self._walltime[job], job)
            timer.callbacks.append(self._on_walltime)
            self._walltimes[job] = timer

    def _settle(self, progress: Progress) -> None:
        timers = self._timers
        for job, seconds in progress.settle(self.cluster.now):
            if job in timers:
                timers[job].callbacks.clear()
            timers[job] = timer = self._env.timeout(seconds, job)
            timer.callbacks.append(self._on_completion)

    # Events

    def _arm_arrival(self) -> None:
        delay = self._submission[self._next] - self._env.now
        self._env.timeout(delay if delay > 0.0 else 0.0).callbacks.append(self._on_arrival)

    def _on_arrival(self, _event: simpy.Event) -> None:
        cluster, submission = self.cluster, self._submission
        job = self._next
        # The trace's own date, which now + delay may miss by a rounding.
        cluster.now = now = max(submission[job], cluster.now)
        while job < len(submission) and submission[job] <= now:
            if job in self._impossible:
                cluster.refuse(job)
            else:
                cluster.submit(job)
            job += 1
        self._next = job
        if job < len(submission):
            self._arm_arrival()

    def _on_completion(self, event: simpy.Event) -> None:
        self._end(event.value, self._finals[event.value])

    def _on_walltime(self, event: simpy.Event) -> None:
        self._end(event.value, FinalState.COMPLETED_WALLTIME_REACHED)

    def _on_kill(self, event: simpy.Event) -> None:
        if event.value in self.cluster.running:
            self._end(event.value, FinalState.COMPLETED_KILLED)

    def _on_call(self, _event: simpy.Event) -> None:
        self.cluster.now = max(self._env.now, self.cluster.now)
        self._called = True

    def _end(self, job: int, state: FinalState) -> None:
        cluster = self.cluster
        now = self._env.now
        if now > cluster.now:
            cluster.now = now
        self._timers.pop(job).callbacks = []
        if self._progress is not None:
            self._progress.end(job)
            if job in self._walltimes:
                self._walltimes.pop(job).callbacks = []
        cluster.end(job, state)
