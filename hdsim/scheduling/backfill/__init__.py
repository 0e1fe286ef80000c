"""Backfilling: which jobs may overtake the head of the queue.

Estimates are made at the speed of the cores a job would be given; where memory limits a job or a job asks for GPUs,
reservations count the cores, the memory and the GPUs of every node, otherwise cores alone. On a homogeneous platform
without memory limits these are the textbook algorithms: EASY (Lifka 1995; Mu'alem and Feitelson 2001) and
conservative backfilling.

Nobody knows when a node that is down will be repaired: reservations are made on the nodes that are up, and made anew
when a node fails or is repaired. A job that does not fit on the nodes that are up has no reservation until then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hdsim.scheduling.backfill.conservative import Conservative
from hdsim.scheduling.backfill.easy import Easy
from hdsim.scheduling.backfill.rlscheduler import RLScheduler

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.scheduling.backfill.base import Backfill

BACKFILLS = ("none", "easy", "conservative", "rlscheduler")


def make_backfill(name: str, cluster: Cluster) -> Backfill | None:
    """Makes the named algorithm, or None for ``none``."""
    makers: dict[str, type[Easy] | type[Conservative] | type[RLScheduler]] = {
        "easy": Easy,
        "conservative": Conservative,
        "rlscheduler": RLScheduler,
    }
    return makers[name](cluster) if name in makers else None
