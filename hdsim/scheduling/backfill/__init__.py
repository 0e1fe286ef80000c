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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hdsim.errors import ConfigError, not_one_of
from hdsim.scheduling.backfill.base import Backfill
from hdsim.scheduling.backfill.conservative import Conservative
from hdsim.scheduling.backfill.easy import Easy
from hdsim.scheduling.backfill.greedy import Greedy
from hdsim.scheduling.backfill.rlscheduler import RLScheduler
from hdsim.util.plugins import PluginType, installed

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster

log = logging.getLogger(__name__)

_TYPE = PluginType("agent.backfill", Backfill, "hdsim.Backfill")
_STOCK: dict[str, type[Backfill] | None] = {
    "none": None,
    "easy": Easy,
    "conservative": Conservative,
    "rlscheduler": RLScheduler,
    "greedy": Greedy,
}


def find_backfill(spec: str | Mapping[str, Any]) -> tuple[str, Callable[[Cluster], Backfill | None]]:
    """Returns the name of an algorithm and what makes it for a cluster, None for ``none``.

    Args:
        spec: A name of hdsim or of an installed package (entry point group ``hdsim.backfills``), a Python file with one
            `Backfill` subclass, or a mapping with ``path`` or ``_target_`` and settings.

    Raises:
        ConfigError: There is no such algorithm; or, when it is made, it does not take the settings, or it is not
            ``none`` or ``greedy`` and jobs are gangs, whose ends and CPU no reservation knows.
    """
    own = spec if isinstance(spec, Mapping) else {"path": spec} if str(spec).endswith(".py") else {}
    settings = dict(own)
    path, target, name = settings.pop("path", None), settings.pop("_target_", None), str(spec)
    found: Any
    if path:
        found = _TYPE.in_file(Path(str(path)))
    elif target:
        found = _TYPE.by_target(str(target))
    elif name in _STOCK:
        found = _STOCK[name]
    elif name in (packages := installed("backfill")).names:
        found = packages[name].load()
    else:
        names = (*_STOCK, *sorted(packages.names), "a Python file (my_rule.py)")
        raise ConfigError(not_one_of(name, names), where="agent.backfill")
    name = str(path or target or spec)
    if name not in _STOCK:
        _tell(name)

    def make(cluster: Cluster) -> Backfill | None:
        if cluster.workload.has_gangs and name not in ("none", "greedy"):
            raise ConfigError(f"expected none or greedy with gangs, got {name}", where="agent.backfill")
        made: Backfill | None = found and _TYPE.construct(found, name, cluster, **settings)
        return made

    return name, make


@cache
def _tell(name: str) -> None:
    log.warning(
        "agent.backfill=%s is not part of hdsim: replays go through the engine, not through compiled code", name
    )
