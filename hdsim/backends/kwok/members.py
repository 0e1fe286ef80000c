"""The pods of jobs, and their states on the way to a node."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum, auto

from hdsim.cluster.requests import Amounts
from hdsim.kubernetes.objects import PodView


class PodPhase(Enum):
    """State of a pod that hdsim schedules."""

    WAITING = auto()
    BINDING = auto()  # a binding has no answer yet
    BOUND = auto()
    ENDED = auto()
    GONE = auto()  # deleted


@dataclass(slots=True, eq=False)
class Member:
    """A pod of a job; times are on the clock of the backend, NaN for what has not happened.

    Attributes:
        pod: Its latest view.
        requests: Amounts that its job requests for it.
        job: Its job, -1 before it belongs to one.
        node: Node that is chosen or that it is bound to, empty for none.
        attempts: Bindings that were asked for.
        decided: Decision of the scheduler.
        bound: Answer to the binding.
        running: First sight of its phase Running.
        finished: End or deletion.
        told: Reason of the last event FailedScheduling.
        refusal: Reason of the last refused binding.
    """

    pod: PodView
    created: float
    requests: Amounts
    job: int = -1
    phase: PodPhase = PodPhase.WAITING
    node: str = ""
    attempts: int = 0
    decided: float = math.nan
    bound: float = math.nan
    running: float = math.nan
    finished: float = math.nan
    succeeded: bool = False
    told: str = ""
    refusal: str = ""
