"""The pods of jobs, and their states on the way to a node."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum, auto

from hdsim.kubernetes.objects import PodView


class Phase(Enum):
    """What hdsim knows of a pod that it schedules."""

    WAITING = auto()
    BINDING = auto()  # a binding is on its way
    BOUND = auto()
    ENDED = auto()
    GONE = auto()  # deleted


@dataclass(slots=True, eq=False)
class Member:
    """A pod of a job; times are on the clock of the backend, NaN for what has not happened.

    Attributes:
        pod: Its latest view.
        created: Creation.
        job: Its job, -1 before it belongs to one.
        phase: Its state.
        node: Node that is chosen or that it is bound to, empty for none.
        attempts: Bindings that were asked for.
        decided: Decision of the scheduler.
        bound: Answer to the binding.
        running: First sight of its phase Running.
        finished: End or deletion.
        succeeded: It ended with success.
        told: Reason of the last event FailedScheduling.
    """

    pod: PodView
    created: float
    job: int = -1
    phase: Phase = Phase.WAITING
    node: str = ""
    attempts: int = 0
    decided: float = math.nan
    bound: float = math.nan
    running: float = math.nan
    finished: float = math.nan
    succeeded: bool = False
    told: str = ""


@dataclass(slots=True, eq=False)
class PodJob:
    """The pods of a job, one or a gang.

    Attributes:
        members: The pods, in order of their names.
        duration: Annotation that a binding gives to the pods, None for none.
    """

    members: list[Member] = field(default_factory=list)

    def of(self, *phases: Phase) -> list[Member]:
        """Returns the pods in one of some states."""
        return [member for member in self.members if member.phase in phases]
