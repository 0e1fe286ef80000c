"""The state of a running job with its program."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
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


@dataclass(slots=True, eq=False, repr=False)
class RunningJob:
    """The state of a running job; dates are in seconds."""

    job: int
    placement: Placement
    steps: tuple[Step, ...]
    index: int  # completed steps
    step: Step = field(init=False)
    kind: int = int(StepType.PARALLEL_TASK)
    activity: int = OVER
    begun: float = 0.0  # begin of the current activity
    entered: float = 0.0  # begin of the current step
    date: float = math.inf  # of the next `advance`
    announced: float = math.nan  # the date last announced to the engine
    groups: list[TaskGroup] = field(default_factory=list)  # of the current step
    seconds: float = 0.0  # duration of the current step at peak speed
    left: float = 0.0  # rest of a parallel task: reference seconds of the task with the most work
    rate: float = 0.0  # of the rest
    since: float = 0.0  # date of the rate
    growth: float = 1.0  # cores relative to requested cores; 1 without a resize
    exchanges: dict[Pattern, Phase] = field(default_factory=dict)
    # These depend on the cores; most programs repeat steps.
    tasks: int = field(init=False)
    nodes: NDArray[np.int32] | None = field(init=False)
    known_groups: dict[Step, tuple[list[TaskGroup], float]] = field(init=False)
    uncontended: dict[Step, float] = field(init=False)  # seconds of each step

    def __post_init__(self) -> None:
        self.step = self.steps[0]
        self.place(self.placement)

    def place(self, placement: Placement) -> None:
        """Moves the job to cores and clears the state that depends on them."""
        self.placement = placement
        self.tasks = len(placement.cores)
        self.nodes = None
        self.known_groups, self.uncontended = {}, {}

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
