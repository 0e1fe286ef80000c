"""Power states of nodes: plain numbers that kernels and all above them share."""

from enum import IntEnum


class NodeState(IntEnum):
    """Power state of a node; a node that is down, out of service by a failure, is in none of them."""

    ON = 0  # serves a job, or more generally is up
    IDLE = 1  # up, and serves no job
    GOING_DOWN = 2
    OFF = 3
    BOOTING = 4


#: Names of the states in files, in their order.
STATE_NAMES = tuple(state.name.lower() for state in NodeState)
