"""Types of plug-ins that one key of a configuration names."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from hdsim.util.plugins import NamedType


@cache
def named_types() -> Mapping[str, NamedType]:
    """Returns the types by their keys."""
    from hdsim.decisions.kinds import KINDS
    from hdsim.scheduling.backfill import BACKFILL
    from hdsim.workload.generators.base import GENERATORS

    return {kind.key: kind for kind in (*KINDS, BACKFILL, GENERATORS)}
