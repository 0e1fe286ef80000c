"""The discrete-event engine: a SimPy environment that hands out one instant at a time and feeds a `Cluster`.

Completions, walltimes and calls are SimPy events with a callback, never a process per job; a completion whose date
moves is disarmed and armed again. Arrivals are read from the sorted trace and need no event.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Protocol

import simpy
from simpy.events import NORMAL, EventPriority

from hdsim.cluster.state import Cluster, FinalState, completed
from hdsim.simulation.execution import Execution
from hdsim.simulation.progress import make_progress

if TYPE_CHECKING:
    from hdsim.cluster.placement import Placement
    from hdsim.contention import Contention
    from hdsim.network import Network
    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload

#: A computation that ends at its walltime completes before the walltime can stop it.
_AFTER_COMPLETIONS = EventPriority(NORMAL + 1)


class Alarm(simpy.Event):
    """An event at an absolute date; SimPy's relative timeouts can miss a trace's date by a rounding.

    Args:
        env: The environment.
        date: s.
        callback: What to call with the event; clear `callbacks` to disarm it.
        value: Value of the event.
        priority: Of the events of one date, those with the lowest go off first.
    """

    def __init__(
        self,
        env: simpy.Environment,
        date: float,
        callback: Callable[[Any], None],
        value: Any = None,
        priority: EventPriority = NORMAL,
    ) -> None:
        self.env = env
        self.callbacks = [callback]
        self._value = value
        self._ok = True
        heappush(env._queue, (date, priority, next(env._eid), self))


class Executor(Protocol):
    """What tells the dates of running jobs where these depend on each other: `Progress` or `Execution`."""

    def start(self, job: int, placement: Placement, now: float) -> None:
        """Adds a job."""

    def advance(self, job: int, now: float) -> bool:
        """Takes a job over the date that `settle` gave for it; True when it is done and gone."""

    def end(self, job: int, now: float) -> None:
        """Removes a job before its end."""

    def interrupt(self, job: int, now: float, begin: float, interval: float | None) -> float:
        """Removes a job that will start again, with what its last checkpoint holds.

        A job with steps has a checkpoint after each of them, another one after every `interval` s of its run time at
        the reference speed; no job has any where that is None.

        Returns:
            s that are lost of those since `begin`, when it was started.
        """

    def settle(self, now: float) -> Iterator[tuple[int, float]]:
        """Yields (job, date at which `advance` is due) for every new job and every one whose date has moved."""


def make_executor(
    platform: Platform, workload: Workload, contention: Contention | None, network: Network | None
) -> Executor | None:
    """Makes what the jobs need: None where every job runs its time undisturbed, once it runs."""
    if workload.has_programs:
        return Execution(platform, workload, contention, network)
    return make_progress(platform, workload, contention) if contention else None


class SimBackend(simpy.Environment):
    """Simulates a workload on a platform.

    Args:
        platform: The platform.
        workload: The jobs.
        cluster: State to drive.
        executor: What tells the dates of jobs, see :func:`make_executor`.
        kill_at_walltime: Kill a job when its walltime has passed.
        batch_events: Hand over all events of an instant together; otherwise one by one, arrivals first, with a
            scheduling pass after each.
        infeasible: Jobs to turn away at their submission.
    """

    def __init__(
        self,
        platform: Platform,
        workload: Workload,
        cluster: Cluster,
        *,
        executor: Executor | None = None,
        kill_at_walltime: bool = False,
        batch_events: bool = True,
        infeasible: Iterable[int] = (),
    ) -> None:
        super().__init__()
        self.cluster = cluster
        self._executor = executor
        if isinstance(executor, Execution):
            cluster.time_breakdown = executor.time_breakdown
        self._kill_at_walltime = kill_at_walltime
        self._batch_events = batch_events
        self._submission: list[float] = [*workload.submission_time.tolist(), math.inf]
        self._runtime: list[float] = workload.runtime.tolist()
        self._walltime: list[float] = workload.walltime.tolist()
        self._ends_in_delay: list[bool] = workload.ends_in_delay.tolist()
        self._at_peak: list[bool] = (workload.fixed_duration | platform.homogeneous_speed).tolist()
        self._infeasible = frozenset(infeasible)
        self._finals: list[int] = completed(workload).tolist()
        self._completions: list[Alarm | None] = [None] * len(workload)
        self._walltimes: dict[int, Alarm] = {}
        self._next = 0
        self._called = False

    def advance(self) -> bool:
        """Runs to the next instant with news and hands over all its events; False when nothing is left to happen.

        At an instant, jobs end first, then others arrive.
        """
        cluster, queue = self.cluster, self._queue
        submitted, ended = cluster.submitted, cluster.ended
        submitted.clear()
        ended.clear()
        cluster.rejected.clear()
        self._called = False
        if cluster.calls:
            # An agent may ask for calls before the first event.
            self._arm_calls()
        if not self._batch_events:
            return self._advance_by_one()
        arrival = self._submission[self._next]
        while True:
            now = queue[0][0] if queue else math.inf
            if arrival < now:
                now = arrival
            elif now == math.inf:
                return False
            self._now = cluster.now = now
            happened = False
            while queue and queue[0][0] == now:
                event = heappop(queue)[3]
                callbacks, event.callbacks = event.callbacks, None  # type: ignore[assignment]
                for callback in callbacks:
                    callback(event)
                    happened = True
            if arrival == now:
                arrival = self._arrive(now)
            if submitted or ended or self._called:
                return True
            if happened and self._executor is not None:
                self._settle(self._executor)

    def _advance_by_one(self) -> bool:
        cluster = self.cluster
        while True:
            arrival, date = self._submission[self._next], self.peek()
            self._now = cluster.now = min(arrival, date)
            if self._now == math.inf:
                return False
            if arrival <= date:
                self._arrive_one(self._next)
                self._next += 1
            else:
                self.step()
            if cluster.submitted or cluster.ended or self._called:
                return True
            if self._executor is not None:
                self._settle(self._executor)

    def apply(self) -> None:
        """Carries out what the scheduler decided at this instant."""
        cluster, executor = self.cluster, self._executor
        if cluster.started:
            if executor is None:
                self._start_alone(cluster.started)
            else:
                self._start_shared(cluster.started, executor)
            cluster.started.clear()
        if executor is not None:
            self._settle(executor)
        if cluster.killed:
            for job in cluster.killed:
                Alarm(self, cluster.now, self._on_kill, job)
            cluster.killed.clear()
        if cluster.calls:
            self._arm_calls()

    def _arm_calls(self) -> None:
        for date in self.cluster.calls:
            Alarm(self, date, self._on_call)
        self.cluster.calls.clear()

    # Starting

    def _start_alone(self, jobs: list[int]) -> None:
        cluster, completions = self.cluster, self._completions
        now = cluster.now
        for job in jobs:
            seconds = self._runtime[job]
            if not self._at_peak[job]:
                seconds /= cluster.cores.slowest(cluster.running[job])
            limit = self._walltime[job]
            reached = seconds >= limit if self._ends_in_delay[job] else seconds > limit
            if reached and self._kill_at_walltime:
                completions[job] = Alarm(self, now + limit, self._on_walltime, job)
            else:
                completions[job] = Alarm(self, now + seconds, self._on_completion, job)

    def _start_shared(self, jobs: list[int], executor: Executor) -> None:
        cluster = self.cluster
        for job in jobs:
            executor.start(job, cluster.running[job], cluster.now)
            if self._kill_at_walltime and self._walltime[job] != math.inf:
                date = cluster.now + self._walltime[job]
                priority = NORMAL if self._ends_in_delay[job] else _AFTER_COMPLETIONS
                self._walltimes[job] = Alarm(self, date, self._on_walltime, job, priority)

    def _settle(self, executor: Executor) -> None:
        completions = self._completions
        for job, date in executor.settle(self.cluster.now):
            self._disarm(completions[job])
            completions[job] = Alarm(self, date, self._on_completion, job)

    # Events

    def _arrive(self, now: float) -> float:
        """Submits the jobs of this instant; returns the date of the next ones."""
        submission, job = self._submission, self._next
        while submission[job] == now:
            self._arrive_one(job)
            job += 1
        self._next = job
        return submission[job]

    def _arrive_one(self, job: int) -> None:
        if job in self._infeasible:
            self.cluster.refuse(job)
        else:
            self.cluster.submit(job)

    def _on_completion(self, event: Alarm) -> None:
        job = event._value
        if self._executor is not None:
            if not self._executor.advance(job, self.cluster.now):
                return
            self._disarm(self._walltimes.pop(job, None))
        self.cluster.end(job, self._finals[job])

    def _on_walltime(self, event: Alarm) -> None:
        self._stop(event._value, FinalState.COMPLETED_WALLTIME_REACHED)

    def _on_kill(self, event: Alarm) -> None:
        if event._value in self.cluster.running:
            self._stop(event._value, FinalState.COMPLETED_KILLED)

    def _on_call(self, _event: Alarm) -> None:
        self._called = True

    def _stop(self, job: int, state: FinalState) -> None:
        """Ends a job before its completion."""
        self._disarm(self._completions[job])
        if self._executor is not None:
            self._executor.end(job, self.cluster.now)
            self._disarm(self._walltimes.pop(job, None))
        self.cluster.end(job, state)

    @staticmethod
    def _disarm(alarm: Alarm | None) -> None:
        """Makes an alarm do nothing; one that has gone off has no callbacks any more."""
        if alarm is not None and alarm.callbacks:
            alarm.callbacks.clear()
