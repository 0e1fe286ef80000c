"""Execution of jobs that compute, exchange messages and meet at barriers, under memory and network contention.

A job is a course through the steps of its program; a job without one is a single parallel task. While tasks compute
they share the memory bandwidth of their processors; while they exchange messages they share links.

Of every job one date is known: that of its next step. A change touches the jobs that share a processor or a link with
it and no others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.placement import Placement
from hdsim.cluster.time_breakdown import TimeBreakdown
from hdsim.contention import Contention, CoreContention, ProcessorContention
from hdsim.errors import ConfigError
from hdsim.failures import checkpointed_work
from hdsim.workload.programs import Program, Step, StepType

if TYPE_CHECKING:
    from hdsim.network import Network, Phase
    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload
    from hdsim.workload.patterns import Pattern


class _Phase(IntEnum):
    """What a job is doing."""

    COMPUTING = 0
    #: Messages of a superstep.
    EXCHANGING = 1
    #: A parallel task whose pace the network gives.
    TOGETHER = 2
    #: Nothing but waiting for a date: a barrier, or messages that cost a given time.
    WAITING = 3
    OVER = 4


_COMPUTING, _EXCHANGING, _TOGETHER, _WAITING, _OVER = map(int, _Phase)
_DELAY, _PARALLEL, _SUPERSTEP = map(int, StepType)


class Part:
    """Tasks of a job on one processor that have the same work to do in a step."""

    __slots__ = (
        "course", "date", "demand", "left", "lost", "peak", "processor", "rate", "since", "slowed", "speed", "tasks",
        "work",
    )  # fmt: skip

    def __init__(self, course: Course, processor: int, tasks: int, work: float, demand: float, peak: float) -> None:
        self.course = course
        self.processor = processor
        self.tasks = tasks
        #: Tasks that contention can slow down: a delay is none of its business.
        self.slowed = tasks if course.kind != _DELAY else 0
        #: s at the reference speed.
        self.work = work
        #: GB/s of memory bandwidth of each task while it computes.
        self.demand = demand
        #: Speed relative to the reference where nobody slows it down.
        self.peak = peak
        self.left = work
        self.rate = 0.0
        self.since = 0.0
        #: When nothing is left at the present rate.
        self.date = math.inf
        #: Share of peak speed with the processor to itself; 0 until it is known.
        self.speed = 0.0
        #: Cores' worth of speed that contention takes from it.
        self.lost = 0.0


class Course:
    """A running job on its way through its program."""

    __slots__ = (
        "alone", "announced", "begun", "date", "entered", "exchanges", "index", "job", "kind", "left", "nodes", "parts",
        "phase", "placement", "rate", "seconds", "since", "step", "steps", "tasks", "work_parts",
    )  # fmt: skip

    def __init__(self, job: int, placement: Placement, steps: tuple[Step, ...], index: int) -> None:
        self.job = job
        self.placement = placement
        self.steps = steps
        self.tasks = len(placement.cores)
        #: Steps done.
        self.index = index
        self.step = steps[0]
        self.kind = _PARALLEL
        self.phase = _OVER
        #: When the present phase, and the present step, began.
        self.begun = self.entered = 0.0
        #: Due date of the next call of `advance`, and the one last told to the engine.
        self.date = math.inf
        self.announced = math.nan
        #: Parts of the present step, and the s that it takes at peak speed.
        self.parts: list[Part] = []
        self.seconds = 0.0
        #: What is left of a parallel task, in s at the reference speed of the task that computes most.
        self.left = 0.0
        self.rate = 0.0
        self.since = 0.0
        self.nodes: NDArray[np.int32] | None = None
        #: Parts by step, messages by pattern: most programs repeat one step.
        self.work_parts: dict[Step, tuple[list[Part], float]] = {}
        self.exchanges: dict[Pattern, Phase] = {}
        #: s that a step takes undisturbed.
        self.alone: dict[Step, float] = {}


class Execution:
    """All running jobs.

    Args:
        platform: The platform.
        workload: The jobs.
        contention: Contention model, or None for tasks that never slow each other down.
        network: Network model, or None: messages then take Valiant's h g.
    """

    def __init__(
        self, platform: Platform, workload: Workload, contention: Contention | None, network: Network | None
    ) -> None:
        self.time_breakdown = TimeBreakdown(len(workload))
        self._platform = platform
        self._runtime: list[float] = workload.runtime.tolist()
        self._fixed: list[bool] = workload.fixed_duration.tolist()
        self._program: list[Program | None] = workload.program.tolist()
        self._bandwidth: list[float] = workload.memory_bandwidth.tolist()
        self._peak: list[float] = (platform.gflops / platform.reference_gflops).tolist()
        self._courses: dict[int, Course] = {}
        #: Steps of interrupted jobs that need not be done again.
        self._done: dict[int, int] = {}
        self._network = network
        self._model = _Speeds(platform, contention) if contention is not None else None
        self._residents: list[dict[Part, None]] = [{} for _ in range(platform.n_processors)]
        # Processors some of whose residents run below their peak, and those where others are there too.
        self._slow = [False] * platform.n_processors
        self._crowded = [False] * platform.n_processors
        self._touched: dict[int, None] = {}
        self._news: dict[Course, None] = {}
        # The network has been told something since it was last settled.
        self._sent = False
        # Jobs called before their date, which has moved since it was told.
        self._early: list[Course] = []

    # What the engine calls

    def start(self, job: int, placement: Placement, now: float) -> None:
        """Starts a job, or goes on with one that was interrupted; `settle` will tell its first date."""
        program = self._program[job]
        if program is None:
            kind = StepType.DELAY if self._fixed[job] else StepType.PARALLEL_TASK
            steps: tuple[Step, ...] = (Step(kind, (self._runtime[job],)),)
        else:
            steps = program.steps
        course = self._courses[job] = Course(job, placement, steps, self._done.get(job, 0))
        self._begin(course, now)

    def advance(self, job: int, now: float) -> bool:
        """Takes a job over the date that `settle` gave for it; True when it is done and gone."""
        course = self._courses[job]
        course.announced = math.nan
        phase = course.phase
        if phase == _COMPUTING and course.date > now:
            self._early.append(course)
            return False
        if phase == _COMPUTING:
            if not self._finish(course, now):
                self._news[course] = None
                return False
            self._computed(course, now)
        elif phase == _WAITING:
            self._end_superstep(course, now)
            self._begin(course, now)
        elif phase != _OVER and self._network is not None:
            self._sent = True
            if not self._network.advance(job, now):
                return False
            if phase == _EXCHANGING:
                self._at_barrier(course, now)
            else:
                self._leave_processors(course, now)
                self._end_parallel(course, now)
        if course.phase != _OVER:
            return False
        del self._courses[job]
        self._news.pop(course, None)
        return True

    def end(self, job: int, now: float) -> None:
        """Removes a job before its end."""
        course = self._courses.pop(job)
        self._news.pop(course, None)
        time_breakdown, seconds = self.time_breakdown, now - course.begun
        if course.phase in (_EXCHANGING, _WAITING):
            time_breakdown.communication[job] += seconds
            if course.phase == _EXCHANGING:
                time_breakdown.changes.extend((now, 0.0, -course.tasks))
        elif course.phase != _OVER:
            time_breakdown.computation[job] += seconds
            if course.kind == _SUPERSTEP:
                time_breakdown.waiting[job] += self._waited(course, now)
        if course.phase != _OVER:
            time_breakdown.uncontended[job] += min(now - course.entered, self._alone(course))
        if self._network is not None and course.phase in (_EXCHANGING, _TOGETHER):
            self._sent = True
            self._network.end(job, now)
        self._leave_processors(course, now)

    def interrupt(self, job: int, now: float, begin: float, interval: float | None) -> float:
        """Removes a job that will start again; see :meth:`hdsim.simulation.engine.Executor.interrupt`."""
        course = self._courses[job]
        lost = now - begin
        if interval is not None and self._program[job] is not None:
            self._done[job] = course.index
            lost = now - course.entered
        elif interval is not None:
            done = course.step.longest - course.left + course.rate * (now - course.since)
            saved = checkpointed_work(done, interval)
            self._runtime[job] -= saved
            lost *= 1 - saved / done if saved else 1.0
        self.end(job, now)
        self.time_breakdown.forget(job)
        return lost

    def settle(self, now: float) -> Iterator[tuple[int, float]]:
        """Brings speeds up to date after starts, advances and ends of the instant `now`.

        Yields:
            (job, date at which `advance` is due) for every new job and every one whose date has moved.
        """
        if self._touched:
            self._share_processors(now)
        if self._news:
            news, self._news = self._news, {}
            for course in news:
                if course.phase == _COMPUTING:
                    self._next_date(course, now)
                elif course.phase == _TOGETHER:
                    self._set_pace(course)
                    continue
                elif course.phase == _EXCHANGING:
                    continue
                # Most dates that move later move again before the old one has come: that is told when it has.
                if not course.date >= course.announced:
                    course.announced = course.date
                    yield course.job, max(course.date, now)
        if self._early:
            early, self._early = self._early, []
            for course in early:
                if math.isnan(course.announced) and self._courses.get(course.job) is course:
                    course.announced = course.date
                    yield course.job, course.date
        if self._network is not None and self._sent:
            self._sent = False
            for key, seconds in self._network.settle(now):
                yield key, now + seconds  # type: ignore[misc]

    # Steps

    def _begin(self, course: Course, now: float) -> None:
        """Begins the next step, and those after it as long as they take no time."""
        while course.index < len(course.steps):
            step = course.step = course.steps[course.index]
            course.begun = course.entered = now
            course.kind = int(step.kind)
            if step.longest:
                self._compute(course, step, now)
                return
            course.parts, course.seconds = [], 0.0
            if course.kind == _PARALLEL and step.pattern is not None and self._network is not None:
                self._sent = True
                self._network.start_parallel(course.job, 0.0, self._messages(course, step), now)
                course.phase = _TOGETHER
                return
            if course.kind != _SUPERSTEP:
                course.index += 1
                continue
            self._exchange(course, step, now)
            if course.phase != _OVER:
                return
        course.phase = _OVER
        course.date = now
        self._news[course] = None

    def _compute(self, course: Course, step: Step, now: float) -> None:
        course.phase = _COMPUTING
        known = course.work_parts.get(step)
        if known is None:
            parts = self._parts(course, step)
            seconds = step.longest
            if course.kind != _DELAY:
                seconds = max(part.work / self._peak[part.processor] for part in parts)
            known = course.work_parts[step] = parts, seconds
        course.parts, course.seconds = known
        together = course.kind != _SUPERSTEP
        model = self._model
        slowed = 0.0
        for part in course.parts:
            # The tasks of a parallel task have no date of their own.
            part.left = left = math.inf if together else part.work
            part.since = now
            processor = part.processor
            if model is None:
                part.rate = rate = part.peak
                part.date = now + left / rate
                continue
            residents = self._residents[processor]
            if residents:
                part.rate, part.date = 0.0, math.inf
                self._touched[processor] = None
                residents[part] = None
                continue
            residents[part] = None
            if not part.speed:
                part.speed = model.of(processor, {part.demand: part.tasks})[part.demand]
            part.rate = rate = part.peak * part.speed
            part.date = now + left / rate
            slow = self._slow[processor] = part.speed < 1.0
            self._crowded[processor] = False
            if slow:
                part.lost = part.slowed * (1.0 - part.speed)
                slowed += part.lost
        if slowed:
            self.time_breakdown.changes.extend((now, slowed, 0.0))
        if together:
            course.left, course.rate, course.since = step.longest, 0.0, now
            if step.pattern is not None and self._network is not None:
                course.phase = _TOGETHER
                self._sent = True
                self._network.start_parallel(course.job, step.longest, self._messages(course, step), now)
        self._news[course] = None

    def _finish(self, course: Course, now: float) -> bool:
        """Lets the tasks go that have done their work; True when none is left."""
        date = max(now, course.date)
        if course.kind != _SUPERSTEP:
            self._leave_processors(course, now)
            return True
        ended = [part for part in course.parts if part.date <= date]
        if self._model is not None:
            self._leave(ended, now)
        return len(ended) == len(course.parts)

    def _computed(self, course: Course, now: float) -> None:
        """The last task of a step has done its work."""
        if course.kind != _SUPERSTEP:
            self._end_parallel(course, now)
            return
        job, time_breakdown = course.job, self.time_breakdown
        time_breakdown.computation[job] += now - course.begun
        if len(course.parts) > 1 or course.parts[0].tasks < course.tasks:
            time_breakdown.waiting[job] += self._waited(course, now)
        course.begun = now
        self._exchange(course, course.step, now)
        if course.phase == _OVER:
            self._begin(course, now)

    def _waited(self, course: Course, now: float) -> float:
        """Seconds that a task has waited on average for slower ones since the step began."""
        waited, idle = 0.0, course.tasks
        for part in course.parts:
            idle -= part.tasks
            if part.date < now:
                waited += part.tasks * (now - part.date)
        return (waited + idle * (now - course.begun)) / course.tasks

    def _end_parallel(self, course: Course, now: float) -> None:
        self.time_breakdown.computation[course.job] += now - course.begun
        self.time_breakdown.uncontended[course.job] += self._alone(course)
        course.index += 1
        self._begin(course, now)

    def _exchange(self, course: Course, step: Step, now: float) -> None:
        """Sends the messages of a superstep; the course is over, for the caller to go on, if that takes no time."""
        pattern = step.pattern
        if pattern is not None and self._network is not None:
            messages = self._messages(course, step)
            if messages.uncontended_time > 0:
                self._sent = True
                self._network.start_phase(course.job, messages, now)
                course.phase = _EXCHANGING
                self.time_breakdown.changes.extend((now, 0.0, course.tasks))
                return
        self._wait(course, now, (pattern.h * step.gap if pattern is not None and self._network is None else 0.0))

    def _at_barrier(self, course: Course, now: float) -> None:
        self.time_breakdown.changes.extend((now, 0.0, -course.tasks))
        self._wait(course, now, 0.0)
        if course.phase == _OVER:
            self._begin(course, now)

    def _wait(self, course: Course, now: float, seconds: float) -> None:
        """Waits for messages that take a given time, and for the barrier."""
        seconds += course.step.latency
        if seconds:
            course.phase = _WAITING
            course.date = now + seconds
            self._news[course] = None
        else:
            self._end_superstep(course, now)

    def _end_superstep(self, course: Course, now: float) -> None:
        job, time_breakdown = course.job, self.time_breakdown
        time_breakdown.communication[job] += now - course.begun
        time_breakdown.supersteps[job] += 1
        time_breakdown.uncontended[job] += self._alone(course)
        course.index += 1
        course.phase = _OVER

    def _alone(self, course: Course) -> float:
        """Seconds that the present step takes with cores at peak speed and links without other jobs."""
        step = course.step
        seconds = course.alone.get(step)
        if seconds is None:
            seconds = course.seconds
            if step.pattern is not None:
                if self._network is None:
                    seconds += step.pattern.h * step.gap
                elif course.kind == _SUPERSTEP:
                    seconds += self._messages(course, step).uncontended_time
                else:
                    seconds = self._messages(course, step).parallel_time(seconds)
            seconds += step.latency
            course.alone[step] = seconds
        return seconds

    # Processors

    def _parts(self, course: Course, step: Step) -> list[Part]:
        """The work of a step on every processor."""
        placement, demand, peak = course.placement, self._bandwidth[course.job], self._peak
        if len(step.work) == 1:
            return [
                Part(course, processor, tasks, step.work[0], demand, peak[processor])
                for processor, tasks in zip(placement.processors.tolist(), placement.counts.tolist(), strict=True)
            ]
        counts: dict[tuple[int, float], int] = {}
        owners = self._platform.core_processor[placement.cores].tolist()
        for pair in zip(owners, step.work, strict=True):
            # A task without work takes no memory bandwidth.
            if pair[1]:
                counts[pair] = counts.get(pair, 0) + 1
        return [
            Part(course, processor, tasks, work, demand, peak[processor]) for (processor, work), tasks in counts.items()
        ]

    def _messages(self, course: Course, step: Step) -> Phase:
        """The messages of a step between the nodes of a job."""
        assert self._network is not None and step.pattern is not None
        found = course.exchanges.get(step.pattern)
        if found is None:
            if course.nodes is None:
                platform = self._platform
                course.nodes = platform.processor_node[platform.core_processor[course.placement.cores]]
            found = course.exchanges[step.pattern] = self._network.phase(step.pattern.between(course.nodes))
        return found

    def _leave_processors(self, course: Course, now: float) -> None:
        if self._model is not None:
            self._leave(course.parts, now)

    def _leave(self, parts: list[Part], now: float) -> None:
        """Takes tasks off their processors, those that are still there."""
        gone, date = 0.0, now
        for part in parts:
            processor = part.processor
            residents = self._residents[processor]
            if part not in residents:
                continue
            del residents[part]
            # Where nobody was slowed down, one less changes nothing.
            if self._slow[processor]:
                if residents:
                    self._touched[processor] = None
                if part.lost:
                    over = min(part.date, now)
                    if over != date and gone:
                        self.time_breakdown.changes.extend((date, -gone, 0.0))
                        gone = 0.0
                    date = over
                    gone += part.lost
                    part.lost = 0.0
        if gone:
            self.time_breakdown.changes.extend((date, -gone, 0.0))

    def _share_processors(self, now: float) -> None:
        """Gives the tasks on processors their speeds where tasks have come or gone."""
        touched, self._touched = self._touched, {}
        model, news, slow = self._model, self._news, self._slow
        assert model is not None
        for processor in touched:
            residents = self._residents[processor]
            tasks: dict[float, int] = {}
            over = []
            for part in residents:
                if part.date > now:
                    tasks[part.demand] = tasks.get(part.demand, 0) + part.tasks
                else:
                    over.append(part)
            # Tasks that ended while they disturbed nobody were still there.
            for part in over:
                del residents[part]
                self._count_lost(part, 0.0, part.date)
            slow[processor] = False
            was_crowded, self._crowded[processor] = self._crowded[processor], False
            if not tasks:
                continue
            speeds = model.of(processor, tasks)
            for part in residents:
                speed = speeds[part.demand]
                if speed < 1.0:
                    slow[processor] = True
                rate = part.peak * speed
                before = part.rate
                if rate != before:
                    part.left = left = max(part.left - before * (now - part.since), 0.0)
                    part.since, part.rate = now, rate
                    part.date = now + left / rate
                    news[part.course] = None
                    self._count_lost(part, part.slowed * (1.0 - speed), now)
            if slow[processor] and len(residents) > 1:
                self._crowded[processor] = True
                if not was_crowded:
                    # The ends of all of them matter from now on, also of those that go on as before.
                    news.update(dict.fromkeys(part.course for part in residents))

    def _next_date(self, course: Course, now: float) -> None:
        """Finds when a computing job needs attention next."""
        if course.kind == _SUPERSTEP:
            # A task that ends before the others matters at once only where it slows tasks of others down.
            last, first = now, math.inf
            crowded, residents = self._crowded, self._residents
            for part in course.parts:
                date = part.date
                if date > last:
                    last = date
                if date < first and crowded[part.processor] and part in residents[part.processor]:
                    first = date
            course.date = first if first < last else last
            return
        pace = 1.0 if course.kind == _DELAY else self._pace(course)
        if pace != course.rate:
            course.left -= course.rate * (now - course.since)
            course.since, course.rate = now, pace
            course.date = now + max(course.left / pace, 0.0)

    def _set_pace(self, course: Course) -> None:
        """Tells the network at which pace the tasks of a parallel task could compute."""
        if course.parts and self._network is not None:
            pace = self._pace(course)
            if pace != course.rate:
                course.rate = pace
                self._sent = True
                self._network.set_seconds(course.job, course.step.longest / pace)

    def _pace(self, course: Course) -> float:
        """Rate of a parallel task: that of the task that takes longest, as seen from the one that computes most."""
        longest = course.step.longest
        return min(part.rate if part.work == longest else part.rate * (longest / part.work) for part in course.parts)

    def _count_lost(self, part: Part, lost: float, date: float) -> None:
        if lost != part.lost:
            self.time_breakdown.changes.extend((date, lost - part.lost, 0.0))
            part.lost = lost


class _Speeds:
    """Asks the contention model once for every mixture of demands.

    Args:
        platform: The platform.
        model: The model.
    """

    #: Mixtures remembered; demands drawn from a continuous distribution never come again.
    _MOST = 100_000

    def __init__(self, platform: Platform, model: Contention) -> None:
        self._model = model
        self._alike: list[int] = model.alike().tolist()
        self._known: dict[tuple[Any, ...], dict[float, float]] = {}

    def of(self, processor: int, tasks: dict[float, int]) -> dict[float, float]:
        """Share of peak speed of the tasks on a processor.

        Args:
            processor: The processor.
            tasks: How many of its tasks ask for so many GB/s.

        Returns:
            Speeds by GB/s.

        Raises:
            ConfigError: The model gave a speed that is not above 0.
        """
        key = (self._alike[processor], *(tasks.items() if len(tasks) == 1 else sorted(tasks.items())))
        speeds = self._known.get(key)
        if speeds is None:
            if len(self._known) >= self._MOST:
                self._known.clear()
            speeds = self._known[key] = self._ask(processor, sorted(tasks.items()))
        return speeds

    def _ask(self, processor: int, mixture: list[tuple[float, int]]) -> dict[float, float]:
        model, at = self._model, np.array([processor], np.int32)
        demands = np.array([demand for demand, _ in mixture])
        counts = np.array([tasks for _, tasks in mixture])
        if isinstance(model, CoreContention):
            each = demands.repeat(counts)
            found = model.core_speeds(at, np.array([0, len(each)]), each)[np.cumsum(counts) - 1].tolist()
        elif isinstance(model, ProcessorContention):
            found = model.speeds(at, np.array([demands @ counts])).tolist() * len(demands)
        else:
            raise ConfigError(
                f"expected a ProcessorContention or a CoreContention, got {type(model).__name__}", where="contention"
            )
        if not min(found) > 0:
            raise ConfigError(
                f"expected speeds above 0 from {type(model).__name__}, got {min(found):g}", where="contention"
            )
        return dict(zip(demands.tolist(), found, strict=True))
