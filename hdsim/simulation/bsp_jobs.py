"""Executor of jobs with programs under memory and network contention.

A job runs the steps of its program; a job without a program is a single parallel task. Computing tasks share the memory
bandwidth of their processors, messages share links.

Each job has one date, that of its next step. A change affects only jobs on the same processors or links.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from hdsim.cluster.time_breakdown import TimeBreakdown
from hdsim.errors import ConfigError, DecisionError
from hdsim.simulation.executor import CoreIds, Executor, JobProgress, placed
from hdsim.simulation.running_job import COMPUTING, EXCHANGING, OVER, PARALLEL, WAITING, RunningJob
from hdsim.simulation.sharing import ProcessorSharing, TaskGroup
from hdsim.simulation.task_cores import Cores
from hdsim.util.arrays import Floats
from hdsim.util.rules import is_finite
from hdsim.workload.programs import Program, Step, StepType

if TYPE_CHECKING:
    from hdsim.contention import Contention
    from hdsim.network import Network, Phase
    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload

_DELAY, _PARALLEL_TASK, _SUPERSTEP = map(int, StepType)


class BspJobs(Executor):
    """Executor of workloads in which some jobs have programs.

    A job with a program cannot be resized, since its messages and its work are for a fixed number of tasks.
    """

    def __init__(
        self, platform: Platform, workload: Workload, contention: Contention | None, network: Network | None
    ) -> None:
        super().__init__(workload)
        self.time_breakdown: TimeBreakdown = TimeBreakdown(len(workload))
        self._platform = platform
        self._cores = Cores(platform, workload)
        self._program: list[Program | None] = workload.program.tolist()
        self._running: dict[int, RunningJob] = {}
        #: Completed steps of interrupted jobs.
        self._done: dict[int, int] = {}
        self._network = network
        self._sharing: ProcessorSharing | None = None
        if contention is not None:
            self._sharing = ProcessorSharing(platform, contention, self.time_breakdown)
        self._crowded = [False] * platform.n_processors if self._sharing is None else self._sharing.crowded
        # Jobs whose date is to be computed or announced.
        self._affected: dict[RunningJob, None] = {}
        # The network has changed since its last `settle`.
        self._sent = False
        # Jobs called before their date, which has changed since its announcement.
        self._early: list[RunningJob] = []

    # Executor interface

    def add(self, jobs: Workload) -> None:
        super().add(jobs)
        self._program += jobs.program.tolist()
        self._cores.add(jobs)
        self.time_breakdown.add(len(jobs))

    def start(self, job: int, placement: Any, now: float) -> None:
        """Starts or resumes a job; see :meth:`Executor.start`."""
        program = self._program[job]
        if program is None:
            kind = StepType.DELAY if self._fixed[job] else StepType.PARALLEL_TASK
            steps: tuple[Step, ...] = (Step(kind, (self._runtime[job],)),)
        else:
            steps = program.steps
        running = self._running[job] = RunningJob(job, placed(placement, self._platform), steps, self._done.get(job, 0))
        self._cores.hold(running)
        self._begin(running, now)
        if self.moved is not None:
            self.moved[job] = None

    def advance(self, job: int, now: float) -> bool:
        running = self._running[job]
        running.announced = math.nan
        activity = running.activity
        if activity == COMPUTING and running.date > now:
            self._early.append(running)
            return False
        if activity == COMPUTING:
            if not self._finish(running, now):
                self._affected[running] = None
                return False
            self._computed(running, now)
        elif activity == WAITING:
            self._end_superstep(running, now)
            self._begin(running, now)
        elif activity != OVER and self._network is not None:
            self._sent = True
            if not self._network.advance(job, now):
                return False
            if activity == EXCHANGING:
                self._at_barrier(running, now)
            else:
                self._leave(running.groups, now)
                self._end_parallel(running, now)
        if running.activity != OVER:
            return False
        self._forget(running)
        return True

    def end(self, job: int, now: float) -> None:
        running = self._running[job]
        self._forget(running)
        time_breakdown, seconds = self.time_breakdown, now - running.begun
        if running.activity in (EXCHANGING, WAITING):
            time_breakdown.communication[job] += seconds
            if running.activity == EXCHANGING:
                time_breakdown.changes.extend((now, 0.0, -running.tasks))
        elif running.activity != OVER:
            time_breakdown.computation[job] += seconds
            if running.kind == _SUPERSTEP:
                time_breakdown.waiting[job] += running.waited(now)
        if running.activity != OVER:
            time_breakdown.uncontended[job] += min(now - running.entered, self._uncontended(running))
        if self._network is not None and running.activity in (EXCHANGING, PARALLEL):
            self._sent = True
            self._network.end(job, now)
        self._leave(running.groups, now)

    def interrupt(self, job: int, now: float, begin: float, interval: float | None) -> float:
        running = self._running[job]
        if interval is not None and self._program[job] is not None:
            self._done[job] = running.index
            lost = now - running.entered
        else:
            done = running.step.longest - running.left + running.rate * (now - running.since)
            lost = self._checkpoint(job, done, now - begin, interval)
        self.end(job, now)
        self.time_breakdown.forget(job)
        return lost

    def worked(self, job: int, now: float, begin: float) -> float:
        """See :meth:`hdsim.simulation.executor.Executor.worked`; programs count at the peak speed of the cores."""
        running = self._running[job]
        if self._program[job] is None:
            return running.step.longest - running.left + running.rate * (now - running.since)
        return (now - begin) * min(self._cores.peak[processor] for processor in running.placement.processors)

    def set_runtimes(self, runtimes: list[float], starts: list[float], now: float) -> dict[int, float]:
        placements = {job: (running.placement, running.growth) for job, running in self._running.items()}
        worked = {job: self.worked(job, now, starts[job]) for job in placements}
        for job in placements:
            self.end(job, now)
        self._program, self._done = [None] * len(runtimes), {}
        for job, (placement, growth) in placements.items():
            self._runtime[job] = max(runtimes[job] - worked[job], 0.0)
            self.start(job, placement, now)
            self._running[job].growth = growth
        self._runtime = runtimes
        return {}

    def resize(self, placements: Mapping[int, Any], now: float) -> None:
        for job in placements:
            if self._program[job] is not None:
                raise DecisionError("a job with a program cannot be resized: it has one task on each of its cores")
            running = self._running[job]
            self._leave(running.groups, now)
            self._cores.release(running)
        for job, placement in placements.items():
            running = self._running[job]
            running.place(placed(placement, self._platform))
            self._cores.hold(running)
            running.growth = running.tasks / self._requested[job]
            if running.activity == COMPUTING:
                left, rate, since = running.left, running.rate, running.since
                self._compute(running, running.step, now)
                running.left, running.rate, running.since = left, rate, since

    def set_speed(self, cores: CoreIds, share: Floats | float, now: float) -> list[int]:
        jobs = list(self._cores.set_share(cores, share, self._running.values(), self._sharing))
        for running in jobs:
            for group in running.groups:
                if self._sharing is not None:
                    self._sharing.touch(group.processor)
                elif group.peak != group.rate:
                    group.set_rate(group.peak, now)
                    self._affected[running] = None
        return [running.job for running in jobs]

    def progress(self, job: int, now: float) -> JobProgress:
        """See :meth:`Executor.progress`; the share of a step with messages is relative to its uncontended duration."""
        running = self._running[job]
        step = running.step
        if step.kind != StepType.SUPERSTEP and running.rate:
            share = 1.0 - (running.left - running.rate * (now - running.since)) / step.longest
        else:
            seconds = self._uncontended(running)
            share = (now - running.entered) / seconds if seconds else 1.0
        return JobProgress(running.index, min(share, 1.0))

    def loads(self, job: int) -> Floats | float:
        """See :meth:`Executor.loads`; tasks that wait for messages or at barriers use their cores, delays do not."""
        running = self._running[job]
        step = running.step
        if step.kind == StepType.DELAY:
            return 0.0
        if step.kind == StepType.SUPERSTEP or (step.pattern is not None and self._network is not None):
            return 1.0
        return self._cores.loads(running)

    def settle(self, now: float) -> Iterator[tuple[int, float]]:
        if self._sharing is not None:
            self._sharing.settle(now, self._affected)
        if self._affected:
            affected, self._affected = self._affected, {}
            if self.moved is not None:
                self.moved.update((running.job, None) for running in affected)
            for running in affected:
                if running.activity == COMPUTING:
                    self._next_date(running, now)
                elif running.activity == PARALLEL:
                    self._tell_rate(running)
                    continue
                elif running.activity == EXCHANGING:
                    continue
                # A later date is announced at the old date, since most dates change again before it.
                if not running.date >= running.announced:
                    running.announced = running.date
                    yield running.job, max(running.date, now)
        if self._early:
            early, self._early = self._early, []
            for running in early:
                if math.isnan(running.announced) and self._running.get(running.job) is running:
                    running.announced = running.date
                    yield running.job, running.date
        if self._network is not None and self._sent:
            self._sent = False
            for key, found in self._network.settle(now):
                known = type(found) is float and 0.0 <= found < math.inf
                seconds = found if known else _seconds(found, self._network)
                yield key, now + seconds  # type: ignore[misc]

    def _forget(self, running: RunningJob) -> None:
        """Removes an ended job."""
        del self._running[running.job]
        self._affected.pop(running, None)
        self._cores.release(running)

    # Steps

    def _begin(self, running: RunningJob, now: float) -> None:
        """Begins the next step, and further steps while they have no duration."""
        while running.index < len(running.steps):
            step = running.step = running.steps[running.index]
            running.begun = running.entered = now
            running.kind = int(step.kind)
            if step.longest:
                self._compute(running, step, now)
                return
            running.groups, running.seconds = [], 0.0
            if running.kind == _PARALLEL_TASK and step.pattern is not None and self._network is not None:
                self._sent = True
                self._network.start_parallel(running.job, 0.0, self._messages(running, step), now)
                running.activity = PARALLEL
                return
            if running.kind != _SUPERSTEP:
                running.index += 1
                continue
            self._exchange(running, step, now)
            if running.activity != OVER:
                return
        running.activity = OVER
        running.date = now
        self._affected[running] = None

    def _compute(self, running: RunningJob, step: Step, now: float) -> None:
        running.activity = COMPUTING
        known = running.known_groups.get(step)
        if known is None:
            groups = self._cores.groups(running, step)
            seconds = step.longest
            if running.kind != _DELAY:
                seconds = max(group.work / self._cores.peak[group.processor] for group in groups)
            known = running.known_groups[step] = groups, seconds
        running.groups, running.seconds = known
        parallel = running.kind != _SUPERSTEP
        for group in running.groups:
            # The tasks of a parallel task have no individual dates.
            group.begin(math.inf if parallel else group.work, now)
            if self._sharing is None:
                group.set_rate(group.peak, now)
        if self._sharing is not None:
            self._sharing.enter(running.groups, now)
        if parallel:
            running.left, running.rate, running.since = step.longest, 0.0, now
            if step.pattern is not None and self._network is not None:
                running.activity = PARALLEL
                self._sent = True
                self._network.start_parallel(running.job, step.longest, self._messages(running, step), now)
        self._affected[running] = None

    def _finish(self, running: RunningJob, now: float) -> bool:
        """Removes the tasks that have completed their work; True if none is left."""
        date = max(now, running.date)
        if running.kind != _SUPERSTEP:
            self._leave(running.groups, now)
            return True
        ended = [group for group in running.groups if group.date <= date]
        self._leave(ended, now)
        return len(ended) == len(running.groups)

    def _computed(self, running: RunningJob, now: float) -> None:
        """Ends the computation of a step."""
        if running.kind != _SUPERSTEP:
            self._end_parallel(running, now)
            return
        job, time_breakdown = running.job, self.time_breakdown
        time_breakdown.computation[job] += now - running.begun
        if len(running.groups) > 1 or running.groups[0].tasks < running.tasks:
            time_breakdown.waiting[job] += running.waited(now)
        running.begun = now
        self._exchange(running, running.step, now)
        if running.activity == OVER:
            self._begin(running, now)

    def _end_parallel(self, running: RunningJob, now: float) -> None:
        self.time_breakdown.computation[running.job] += now - running.begun
        self.time_breakdown.uncontended[running.job] += self._uncontended(running)
        running.index += 1
        self._begin(running, now)

    def _exchange(self, running: RunningJob, step: Step, now: float) -> None:
        """Starts the messages of a superstep; the activity is OVER if they have no duration."""
        pattern = step.pattern
        if pattern is not None and self._network is not None:
            messages = self._messages(running, step)
            if messages.uncontended_time > 0:
                self._sent = True
                self._network.start_phase(running.job, messages, now)
                running.activity = EXCHANGING
                self.time_breakdown.changes.extend((now, 0.0, running.tasks))
                return
        self._wait(running, now, (pattern.h * step.gap if pattern is not None and self._network is None else 0.0))

    def _at_barrier(self, running: RunningJob, now: float) -> None:
        self.time_breakdown.changes.extend((now, 0.0, -running.tasks))
        self._wait(running, now, 0.0)
        if running.activity == OVER:
            self._begin(running, now)

    def _wait(self, running: RunningJob, now: float, seconds: float) -> None:
        """Waits for messages of a given duration and for the barrier."""
        seconds += running.step.latency
        if seconds:
            running.activity = WAITING
            running.date = now + seconds
            self._affected[running] = None
        else:
            self._end_superstep(running, now)

    def _end_superstep(self, running: RunningJob, now: float) -> None:
        job, time_breakdown = running.job, self.time_breakdown
        time_breakdown.communication[job] += now - running.begun
        time_breakdown.supersteps[job] += 1
        time_breakdown.uncontended[job] += self._uncontended(running)
        running.index += 1
        running.activity = OVER

    def _uncontended(self, running: RunningJob) -> float:
        """Returns the uncontended duration of the current step in seconds."""
        step = running.step
        seconds = running.uncontended.get(step)
        if seconds is None:
            seconds = running.seconds
            if step.pattern is not None:
                if self._network is None:
                    seconds += step.pattern.h * step.gap
                elif running.kind == _SUPERSTEP:
                    seconds += self._messages(running, step).uncontended_time
                else:
                    seconds = self._messages(running, step).parallel_time(seconds)
            seconds += step.latency
            running.uncontended[step] = seconds
        return seconds

    def _messages(self, running: RunningJob, step: Step) -> Phase:
        """Returns the messages of a step between the nodes of a job."""
        assert self._network is not None and step.pattern is not None
        found = running.exchanges.get(step.pattern)
        if found is None:
            if running.nodes is None:
                platform = self._platform
                running.nodes = platform.processor_node[platform.core_processor[running.placement.cores]]
            found = running.exchanges[step.pattern] = self._network.phase(step.pattern.between(running.nodes))
        return found

    # Computation

    def _leave(self, groups: list[TaskGroup], now: float) -> None:
        if self._sharing is not None:
            self._sharing.leave(groups, now)

    def _next_date(self, running: RunningJob, now: float) -> None:
        """Computes the next date of a computing job."""
        if running.kind == _SUPERSTEP:
            # The end of a single task matters only if it slows down tasks of other jobs.
            last, first = now, math.inf
            sharing, crowded = self._sharing, self._crowded
            for group in running.groups:
                date = group.date
                if date > last:
                    last = date
                if date < first and crowded[group.processor] and sharing and sharing.present(group):
                    first = date
            running.date = first if first < last else last
            return
        rate = 1.0 if running.kind == _DELAY else running.task_rate()
        if rate != running.rate:
            running.left -= running.rate * (now - running.since)
            running.since, running.rate = now, rate
            running.date = now + max(running.left / rate, 0.0)

    def _tell_rate(self, running: RunningJob) -> None:
        """Sets the rate of the computation of a parallel task in the network."""
        if running.groups and self._network is not None:
            rate = running.task_rate()
            if rate != running.rate:
                running.rate = rate
                self._sent = True
                self._network.set_seconds(running.job, running.step.longest / rate)


def _seconds(found: Any, network: Network) -> float:
    """Returns the seconds of a network model of a user's own; ConfigError unless they are a number of at least 0."""
    if not is_finite(found) or found < 0:
        told = f"expected seconds of at least 0 from {type(network).__name__}.settle, got {found!r}"
        raise ConfigError(told, where="network")
    return float(found)
