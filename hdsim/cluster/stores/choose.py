"""The store for a cluster."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from hdsim.cluster.stores.failing import FailingCores
from hdsim.cluster.stores.nodes import NodeCores
from hdsim.cluster.stores.ordered import OrderedCores
from hdsim.cluster.stores.quantities import NodeQuantities

if TYPE_CHECKING:
    import numpy as np

    from hdsim.cluster.requests import Requests
    from hdsim.platform.model import Platform


def make_store(
    platform: Platform,
    requests: Requests,
    rng: np.random.Generator,
    policies: tuple[str, Collection[str]],
    *,
    only_order: bool,
    nodes_fail: bool,
) -> Any:
    """Creates the store of an empty platform.

    Args:
        platform: The platform.
        requests: Requests of the jobs.
        rng: For random policies.
        policies: Default core policy, and all that are in use; none for any.
        only_order: Only the order of cores matters, neither memory nor speeds nor processors.
        nodes_fail: Nodes may fail.
    """
    core_policy, asked = policies
    if requests.places is not None:
        return NodeQuantities(platform, requests, core_policy, rng)
    if nodes_fail:
        return FailingCores(platform, requests, core_policy, rng)
    if asked and only_order and OrderedCores.suit(list(asked), platform, requests):
        return OrderedCores(platform, requests, list(asked), rng)
    return NodeCores(platform, requests, core_policy, rng)
