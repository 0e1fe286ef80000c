"""Scheduling rules that kernels and all above them share: each number and name stands here alone."""

from enum import IntEnum


class Backfilling(IntEnum):
    """Backfilling algorithms, see :mod:`hdsim.scheduling.backfill`; their names are those of settings in capitals."""

    NONE = 0
    EASY = 1
    CONSERVATIVE = 2
    RLSCHEDULER = 3
    GREEDY = 4


#: Algorithms under which no job but the head has a reservation, in the order of the weights of learned orders.
HEAD_ALONE = (Backfilling.NONE, Backfilling.EASY, Backfilling.RLSCHEDULER)
#: The numbers by name: plain ones, since a kernel would be compiled again for a member as argument.
NUMBERS = {rule.name.lower(): rule.value for rule in Backfilling}
HEAD_ALONE_NUMBERS = {rule.name.lower(): rule.value for rule in HEAD_ALONE}


class Deciding(IntEnum):
    """When a policy pair is asked for."""

    USEFUL = 0  # while a job waits and a core is idle
    QUEUED = 1  # while a job waits
    ALWAYS = 2  # at every instant


#: The numbers by name.
DECIDING = {kind.name.lower(): kind.value for kind in Deciding}

#: Threshold of the bounded slowdown in seconds (Feitelson et al. 1997; RLScheduler and IRMaSim use 10).
TAU = 10.0
