"""A running job on its way through its program."""

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
    """What a job is doing."""

    COMPUTING = 0
    #: Messages of a superstep.
    EXCHANGING = 1
    #: A parallel task whose rate the network gives.
    PARALLEL = 2
    #: Nothing but waiting for a date: a barrier, or messages that cost a given time.
    WAITING = 3
    OVER = 4


# Plain numbers: looking a member of an enum up costs as much as a comparison.
COMPUTING, EXCHANGING, PARALLEL, WAITING, OVER = map(int, Activity)


class RunningJob:
    """A running job on its way through its program."""

    __slots__ = (
        "activity", "announced", "begun", "date", "entered", "exchanges", "groups", "growth", "index", "job", "kind",
        "known_groups", "left", "nodes", "placement", "rate", "seconds", "since", "step", "steps", "tasks",
        "uncontended",
    )  # fmt: skip

    def __init__(self, job: int, placement: Placement, steps: tuple[Step, ...], index: int) -> None:
        self.job = job
        self.steps = steps
        #: Steps done.
        self.index = index
        self.step = steps[0]
        self.kind = int(StepType.PARALLEL_TASK)
        self.activity = OVER
        #: When the present activity, and the present step, began.
        self.begun = self.entered = 0.0
        #: Due date of the next call of `advance`, and the one last told to the engine.
        self.date = math.inf
        self.announced = math.nan
        #: Task groups of the present step, and the s that it takes at peak speed.
        self.groups: list[TaskGroup] = []
        self.seconds = 0.0
        #: What is left of a parallel task, in s at the reference speed of the task that computes most.
        self.left = 0.0
        self.rate = 0.0
        self.since = 0.0
        #: Cores over requested cores; 1 unless the job has been resized.
        self.growth = 1.0
        self.exchanges: dict[Pattern, Phase] = {}
        self.place(placement)

    def place(self, placement: Placement) -> None:
        """Puts the job on cores, and forgets what depends on them."""
        self.placement = placement
        self.tasks = len(placement.cores)
        self.nodes: NDArray[np.int32] | None = None
        # Task groups by step: most programs repeat one step. Then s that a step takes undisturbed.
        self.known_groups: dict[Step, tuple[list[TaskGroup], float]] = {}
        self.uncontended: dict[Step, float] = {}

    def waited(self, now: float) -> float:
        """Seconds that a task has waited on average for slower ones since the step began."""
        waited, idle = 0.0, self.tasks
        for group in self.groups:
            idle -= group.tasks
            if group.date < now:
                waited += group.tasks * (now - group.date)
        return (waited + idle * (now - self.begun)) / self.tasks

    def task_rate(self) -> float:
        """Rate of a parallel task: that of the task that takes longest, as seen from the one that computes most."""
        longest = self.step.longest
        return self.growth * min(
            group.rate if group.work == longest else group.rate * (longest / group.work) for group in self.groups
        )
