"""Backfilling: jobs behind the head of the queue start early.

Estimates use the speed of the cores of a placement. Reservations count cores, memory and GPUs of each node if jobs
request memory or GPUs, otherwise cores only. On a homogeneous platform without memory limits these are the textbook
algorithms: EASY (Lifka 1995; Mu'alem and Feitelson 2001) and conservative backfilling.

Repair times are unknown to the scheduler: reservations use the nodes that are up and are recomputed at every failure
and repair. A job that does not fit on the nodes that are up has no reservation until then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hdsim.errors import ConfigError
from hdsim.scheduling.backfill.conservative import Conservative
from hdsim.scheduling.backfill.easy import Easy
from hdsim.scheduling.backfill.greedy import Greedy
from hdsim.scheduling.backfill.rlscheduler import RLScheduler

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.scheduling.backfill.base import Backfill


def make_backfill(name: str, cluster: Cluster) -> Backfill | None:
    """Creates an algorithm by name, None for ``none``.

    Raises:
        ConfigError: The algorithm makes reservations, and jobs are gangs, whose ends and CPU no reservation knows.
    """
    makers: dict[str, Callable[[Cluster], Backfill]] = {
        "easy": Easy,
        "conservative": Conservative,
        "rlscheduler": RLScheduler,
        "greedy": Greedy,
    }
    if cluster.workload.has_gangs and name not in ("none", "greedy"):
        raise ConfigError(f"expected none or greedy with gangs, got {name}", where="agent.backfill")
    return makers[name](cluster) if name in makers else None
