"""Backfilling: jobs behind the head of the queue start early.

Estimates use the speed of the cores of a placement. Reservations count cores, memory and GPUs of each node if jobs
request memory or GPUs, otherwise cores only. On a homogeneous platform without memory limits these are the textbook
algorithms: EASY (Lifka 1995; Mu'alem and Feitelson 2001) and conservative backfilling.

Repair times are unknown to the scheduler: reservations use the nodes that are up and are recomputed at every failure
and repair. A job that does not fit on the nodes that are up has no reservation until then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from hdsim.errors import ConfigError
from hdsim.scheduling.backfill.base import Backfill
from hdsim.scheduling.rules import name_and_depth
from hdsim.util.plugins import NamedType
from hdsim.util.rules import integers_from, require

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster

log = logging.getLogger(__name__)

BACKFILL = NamedType(
    "backfill",
    Backfill,
    "hdsim.Backfill",
    "agent.backfill",
    {
        "none": f"{__name__}.base.NoBackfill",
        "easy": f"{__name__}.easy.Easy",
        "conservative": f"{__name__}.conservative.Conservative",
        "rlscheduler": f"{__name__}.rlscheduler.RLScheduler",
        "greedy": f"{__name__}.greedy.Greedy",
        "hybrid": f"{__name__}.conservative.Hybrid",
    },
)


def find_backfill(spec: str | int | Mapping[str, Any]) -> tuple[str, int, Callable[[Cluster], Backfill | None]]:
    """Returns the name of an algorithm, the depth of its plan, and what makes it for a cluster, None for ``none``.

    Args:
        spec: A name, file or class of `BACKFILL`, a number of reservations (see :func:`name_and_depth`), or a mapping
            with ``path`` or ``_target_`` and settings.

    Raises:
        ConfigError: There is no such algorithm; or, when it is made, it does not take the settings, or it is not
            ``none`` or ``greedy`` and jobs are gangs, whose ends and CPU no reservation knows, or there is a hard cap
            on the power that its reservations do not know.
    """
    settings = dict(spec) if isinstance(spec, Mapping) else {}
    path, target = settings.pop("path", None), settings.pop("_target_", None)
    name, depth = name_and_depth(path or target or spec)
    found = BACKFILL.find(name)
    if name == "hybrid":
        depth = settings.setdefault("depth", depth)
        require(BACKFILL.key, {"depth": integers_from(1)}, settings)
    if name not in BACKFILL.bundled:
        _tell(name)

    def make(cluster: Cluster) -> Backfill | None:
        if cluster.workload.has_gangs and name not in ("none", "greedy"):
            raise ConfigError(f"expected none or greedy with gangs, got {name}", where=BACKFILL.key)
        if cluster.budget is not None and name in ("conservative", "hybrid", "rlscheduler"):
            message = f"expected none, easy or greedy under a hard cap, which other reservations ignore, got {name}"
            raise ConfigError(message, where=BACKFILL.key)
        made: Backfill = BACKFILL.construct(found, name, cluster, **settings)
        return None if name == "none" else made

    return name, depth, make


@cache
def _tell(name: str) -> None:
    log.warning(
        "agent.backfill=%s is not part of hdsim: replays go through the engine, not through compiled code", name
    )
