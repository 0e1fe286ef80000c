"""Types of plug-ins that keys of a configuration name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from hdsim.util.plugins import NamedFunction, NamedType


@cache
def named_types() -> Mapping[str, NamedType | NamedFunction]:
    """Returns the types by their keys."""
    from hdsim.cluster.selection import OWN_CORE_POLICIES
    from hdsim.decisions.kinds import KINDS
    from hdsim.scheduling.backfill import BACKFILL
    from hdsim.scheduling.orders import OWN_ORDERS
    from hdsim.workload.generators.base import GENERATORS

    types = (*KINDS, BACKFILL, GENERATORS, OWN_ORDERS, OWN_CORE_POLICIES)
    return {kind.key: kind for kind in types} | {"agent.backfill_order": OWN_ORDERS}
