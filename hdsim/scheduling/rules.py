"""Scheduling rules that kernels and all above them share: each number and name stands here alone."""

import re
import sys
from enum import IntEnum
from typing import Any


class Backfilling(IntEnum):
    """Backfilling algorithms, see :mod:`hdsim.scheduling.backfill`; their names are those of settings in capitals."""

    NONE = 0
    EASY = 1
    CONSERVATIVE = 2
    RLSCHEDULER = 3
    GREEDY = 4
    HYBRID = 5


#: Algorithms under which no job but the head has a reservation, in the order of the weights of learned orders.
HEAD_ALONE = (Backfilling.NONE, Backfilling.EASY, Backfilling.RLSCHEDULER)
#: Algorithms with a plan of the reservations of several jobs.
PLANNED = (Backfilling.CONSERVATIVE, Backfilling.HYBRID)
#: Reservations of an algorithm that gives one to every job, and those of ``hybrid``, as in flux-sched.
UNLIMITED, TYPICAL_DEPTH = sys.maxsize, 64
#: The numbers by name: plain ones, since a kernel would be compiled again for a member as argument.
NUMBERS = {rule.name.lower(): rule.value for rule in Backfilling}
HEAD_ALONE_NUMBERS = {rule.name.lower(): rule.value for rule in HEAD_ALONE}


def name_and_depth(spec: Any) -> tuple[str, int]:
    """Returns the name of a backfilling algorithm and the number of jobs to which its plan gives reservations.

    Args:
        spec: A name, or a number of reservations: ``4`` and ``hybrid4`` are ``hybrid`` with 4, 0 is ``greedy``, and 1
            is ``easy``.
    """
    name = str(spec)
    number = re.fullmatch(r"(?:hybrid)?([0-9]+)", name)
    if number is None:
        return name, TYPICAL_DEPTH if name == "hybrid" else UNLIMITED
    depth = int(number[1])
    return ("hybrid", depth) if depth > 1 else (("greedy", "easy")[depth], UNLIMITED)


def rule_label(spec: Any) -> str:
    """Returns the name of a backfilling algorithm, with its reservations where a number tells them."""
    name, depth = name_and_depth(spec)
    return name if name != "hybrid" or spec == name else f"{name}{depth}"


class Deciding(IntEnum):
    """When a policy pair is asked for."""

    USEFUL = 0  # while a job waits and a core is idle
    QUEUED = 1  # while a job waits
    ALWAYS = 2  # at every instant


#: The numbers by name.
DECIDING = {kind.name.lower(): kind.value for kind in Deciding}

#: Threshold of the bounded slowdown in seconds (Feitelson et al. 1997; RLScheduler and IRMaSim use 10).
TAU = 10.0
