"""Processor sharing of tasks with individual completion dates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.contention import Contention, CoreContention, ProcessorContention
from hdsim.simulation.contended import own_speeds, unknown_model
from hdsim.util.copies import itself

if TYPE_CHECKING:
    from hdsim.cluster.time_breakdown import TimeBreakdown
    from hdsim.platform.model import Platform


@dataclass(slots=True, eq=False, repr=False)
class TaskGroup:
    """Tasks of a job on one processor with equal work in a step."""

    job: Any  # the running job
    processor: int
    tasks: int
    work: float  # of each task, reference seconds
    demand: float  # memory bandwidth of each computing task, GB/s
    peak: float  # uncontended speed relative to the reference
    slowed: int  # tasks that contention can slow down; it does not affect delays
    core: int = -1  # of a group of one task, after changes of speed
    left: float = 0.0  # reference seconds
    rate: float = 0.0
    since: float = 0.0  # date of the rate, seconds
    date: float = math.inf  # of the completion at the current rate, seconds
    speed: float = 0.0  # share of the peak speed without other jobs on the processor; 0 until it is computed
    lost: float = 0.0  # speed lost to contention, in cores

    def begin(self, left: float, now: float) -> None:
        """Begins the work; `settle` computes the rate."""
        self.left, self.since, self.rate, self.date = left, now, 0.0, math.inf

    def set_rate(self, rate: float, now: float) -> None:
        """Changes the rate."""
        self.left = left = max(self.left - self.rate * (now - self.since), 0.0)
        self.since, self.rate = now, rate
        self.date = now + left / rate


class ProcessorSharing:
    """Tasks on each processor and their speeds under a contention model.

    A change affects only the tasks on its processor.

    Attributes:
        crowded: Whether some tasks slow others down, for each processor.
    """

    def __init__(self, platform: Platform, model: Contention, time_breakdown: TimeBreakdown) -> None:
        self._speeds = _Speeds(platform, model)
        self._residents: list[dict[TaskGroup, None]] = [{} for _ in range(platform.n_processors)]
        # Processors with tasks below their peak speed.
        self._slow = [False] * platform.n_processors
        self.crowded = [False] * platform.n_processors
        self._touched: dict[int, None] = {}
        self._changes = time_breakdown.changes

    def touch(self, processor: int) -> None:
        """Marks a processor for an update of speeds by `settle`."""
        self._touched[processor] = None

    def present(self, group: TaskGroup) -> bool:
        """Returns whether a group still occupies its processor."""
        return group in self._residents[group.processor]

    def enter(self, groups: list[TaskGroup], now: float) -> None:
        """Adds tasks; those on processors with other tasks get their speeds from `settle`."""
        slowed = 0.0
        for group in groups:
            processor = group.processor
            residents = self._residents[processor]
            if residents:
                self._touched[processor] = None
                residents[group] = None
                continue
            residents[group] = None
            if not group.speed:
                group.speed = self._speeds.of(processor, {group.demand: group.tasks})[group.demand]
            group.rate = rate = group.peak * group.speed
            group.date = now + group.left / rate
            slow = self._slow[processor] = group.speed < 1.0
            self.crowded[processor] = False
            if slow:
                group.lost = group.slowed * (1.0 - group.speed)
                slowed += group.lost
        if slowed:
            self._changes.extend((now, slowed, 0.0))

    def replace(self, groups: list[TaskGroup], others: list[TaskGroup]) -> None:
        """Replaces groups by others for the same tasks."""
        for group in groups:
            self._residents[group.processor].pop(group, None)
        for group in others:
            self._residents[group.processor][group] = None
            self._touched[group.processor] = None

    def leave(self, groups: list[TaskGroup], now: float) -> None:
        """Removes the tasks that still occupy their processors."""
        gone, date = 0.0, now
        for group in groups:
            processor = group.processor
            residents = self._residents[processor]
            if group not in residents:
                continue
            del residents[group]
            # On a processor without slowdown, removing a task changes no speed.
            if self._slow[processor]:
                if residents:
                    self._touched[processor] = None
                if group.lost:
                    over = min(group.date, now)
                    if over != date and gone:
                        self._changes.extend((date, -gone, 0.0))
                        gone = 0.0
                    date = over
                    gone += group.lost
                    group.lost = 0.0
        if gone:
            self._changes.extend((date, -gone, 0.0))

    def settle(self, now: float, affected: dict[Any, None]) -> None:
        """Updates the speeds on processors with changed tasks; `affected` receives the jobs whose dates may change."""
        if not self._touched:
            return
        touched, self._touched = self._touched, {}
        slow = self._slow
        for processor in touched:
            residents = self._residents[processor]
            tasks: dict[float, int] = {}
            over = []
            for group in residents:
                if group.date > now:
                    tasks[group.demand] = tasks.get(group.demand, 0) + group.tasks
                else:
                    over.append(group)
            # Removes tasks that ended without an effect on others.
            for group in over:
                del residents[group]
                self._count_lost(group, 0.0, group.date)
            slow[processor] = False
            was_crowded, self.crowded[processor] = self.crowded[processor], False
            if not tasks:
                continue
            speeds = self._speeds.of(processor, tasks)
            for group in residents:
                speed = speeds[group.demand]
                if speed < 1.0:
                    slow[processor] = True
                rate = group.peak * speed
                if rate != group.rate:
                    group.set_rate(rate, now)
                    affected[group.job] = None
                    self._count_lost(group, group.slowed * (1.0 - speed), now)
            if slow[processor] and len(residents) > 1:
                self.crowded[processor] = True
                if not was_crowded:
                    # The ends of all tasks matter from now on, also of those with unchanged rates.
                    affected.update(dict.fromkeys(group.job for group in residents))

    def _count_lost(self, group: TaskGroup, lost: float, date: float) -> None:
        if lost != group.lost:
            self._changes.extend((date, lost - group.lost, 0.0))
            group.lost = lost


class _Speeds:
    """Cache of the speeds of a contention model for each combination of demands."""

    __deepcopy__ = itself

    #: Maximum number of cached combinations; those of demands from continuous distributions do not recur.
    _MOST = 100_000

    def __init__(self, platform: Platform, model: Contention) -> None:
        self._model = model
        self._alike: list[int] = model.alike().tolist()
        self._known: dict[tuple[Any, ...], dict[float, float]] = {}

    def of(self, processor: int, tasks: dict[float, int]) -> dict[float, float]:
        """Returns the speeds of the tasks on a processor as shares of their peak speed.

        Args:
            processor: The processor.
            tasks: Number of tasks by demand in GB/s.

        Returns:
            Speeds by demand.

        Raises:
            ConfigError: The model returned a speed that is not above 0.
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
            shares = own_speeds(model, model.core_speeds(at, np.array([0, len(each)]), each), len(each))
            found = np.broadcast_to(shares, len(each))[np.cumsum(counts) - 1]
        elif isinstance(model, ProcessorContention):
            found = np.broadcast_to(own_speeds(model, model.speeds(at, np.array([demands @ counts])), 1), len(demands))
        else:
            raise unknown_model(model)
        return dict(zip(demands.tolist(), found.tolist(), strict=True))
