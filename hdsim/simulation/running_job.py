"""The state of a running job with its program."""

from __future__ import annotations

import math
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.placement import Placement
from hdsim.simulation.sharing import TaskGroup
from hdsim.workload.programs import Step, StepType

if TYPE_CHECKING:
    from hdsim.network import Phase
    from hdsim.workload.patterns import Pattern


class Activity(IntEnum):
    """Activity of a running job."""

    COMPUTING = 0
    #: Messages of a superstep.
    EXCHANGING = 1
    #: A parallel task with a rate from the network.
    PARALLEL = 2
    #: A wait until a date: a barrier, or messages of a given duration.
    WAITING = 3
    OVER = 4


# Integers, since a lookup of an enum member costs as much as a comparison.
COMPUTING, EXCHANGING, PARALLEL, WAITING, OVER = map(int, Activity)


class RunningJob:
    """The state of a running job."""

    __slots__ = (
        "activity",
        "announced",
        "begun",
        "date",
        "entered",
        "exchanges",
        "groups",
        "growth",
        "index",
        "job",
        "kind",
        "known_groups",
        "left",
        "nodes",
        "placement",
        "rate",
        "seconds",
        "since",
        "step",
        "steps",
        "tasks",
        "uncontended",
    )

    def __init__(self, job: int, placement: Placement, steps: tuple[Step, ...], index: int) -> None:
        self.job = job
        self.steps = steps
        #: Completed steps.
        self.index = index
        self.step = steps[0]
        self.kind = int(StepType.PARALLEL_TASK)
        self.activity = OVER
        #: Begin of the current activity and of the current step.
        self.begun = self.entered = 0.0
        #: Date of the next `advance`, and the date last announced to the engine.
        self.date = math.inf
        self.announced = math.nan
        #: Task groups of the current step, and its duration at peak speed in seconds.
        self.groups: list[TaskGroup] = []
        self.seconds = 0.0
        #: Rest of a parallel task: reference seconds of the task with the most work.
        self.left = 0.0
        self.rate = 0.0
        self.since = 0.0
        #: Cores relative to requested cores; 1 without a resize.
        self.growth = 1.0
        self.exchanges: dict[Pattern, Phase] = {}
        self.place(placement)

    def place(self, placement: Placement) -> None:
        """Moves the job to cores and clears the state that depends on them."""
        self.placement = placement
        self.tasks = len(placement.cores)
        self.nodes: NDArray[np.int32] | None = None
        # Cache of task groups per step, since most programs repeat steps; then of uncontended seconds per step.
        self.known_groups: dict[Step, tuple[list[TaskGroup], float]] = {}
        self.uncontended: dict[Step, float] = {}

    def waited(self, now: float) -> float:
        """Returns the mean seconds that a task has waited for slower tasks in this step."""
        waited, idle = 0.0, self.tasks
        for group in self.groups:
            idle -= group.tasks
            if group.date < now:
                waited += group.tasks * (now - group.date)
        return (waited + idle * (now - self.begun)) / self.tasks

    def task_rate(self) -> float:
        """Returns the rate of a parallel task: that of its slowest task, relative to the task with the most work."""
        longest = self.step.longest
        return self.growth * min(
            group.rate if group.work == longest else group.rate * (longest / group.work) for group in self.groups
        )
