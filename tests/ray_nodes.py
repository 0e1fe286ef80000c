"""A cluster of Ray with several nodes on this machine, on the loopback interface."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_NODE = {"object_store_memory": 80_000_000}
#: On a machine under load a node that answers late is alive; one whose connection is refused is not.
_PATIENCE = {"health_check_timeout_ms": 120_000, "agent_register_timeout_ms": 300_000}


class Nodes:
    """A head node without processors, which the driver belongs to, and further nodes with one each.

    Args:
        count: Number of the further nodes.
    """

    def __init__(self, count: int) -> None:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 0, "include_dashboard": False, "_system_config": _PATIENCE, **_NODE}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self._nodes = [self._cluster.add_node(wait=False, num_cpus=1, **_NODE) for _ in range(count)]
        self._cluster.wait_for_nodes()
        self.address = str(self._cluster.address)

    def __len__(self) -> int:
        return len(self._nodes)

    def remove(self, name: str | None = None) -> None:
        """Kills the processes of a node: of the one that Ray calls so, or of the latest."""
        node = next(node for node in reversed(self._nodes) if name in (node.node_id, None))
        self._nodes.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)

    def close(self) -> None:
        """Ends all processes."""
        self._cluster.shutdown()


@contextmanager
def ray_nodes(count: int) -> Iterator[Nodes]:
    """A cluster as long as the context lasts."""
    nodes = Nodes(count)
    try:
        yield nodes
    finally:
        nodes.close()


def pid_of(actor: Any) -> int:
    """The process of an actor."""
    import ray

    return int(ray._private.state.actors(actor._actor_id.hex())["Pid"])
