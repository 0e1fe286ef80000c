"""Idle cores of nodes that sleep and wake."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hdsim.cluster.stores.failing import FailingCores
from hdsim.platform.node_state import NodeState

if TYPE_CHECKING:
    from hdsim.cluster.node_states import NodeStates
    from hdsim.cluster.placement import Placement
    from hdsim.cluster.requests import Requests
    from hdsim.platform.model import Platform
    from hdsim.util.arrays import Floats, Ints


_ON = int(NodeState.ON)


class SleepingCores(FailingCores):
    """`FailingCores` of nodes that may be switched off: a job may get idle cores of any node, and of those up first.

    Attributes:
        freed: Nodes of jobs that have given cores back, and nodes back in service, until the backend clears it.
    """

    def __init__(
        self, platform: Platform, requests: Requests, policy: str, rng: np.random.Generator, states: NodeStates
    ) -> None:
        super().__init__(platform, requests, policy, rng)
        self._states = states
        self.freed: list[Ints] = []
        self._whole: list[int] = platform.node_cpu_cores.tolist()

    def pick(self, job: int, policy: str | None = None, limit: Floats | Ints | None = None) -> Placement | None:
        """See :meth:`NodeCores.pick`; the core policy chooses among the nodes that are up.

        If they do not suffice, it chooses among these and the fewest others, in the order of
        :meth:`hdsim.cluster.node_states.NodeStates.preference`.
        """
        states = self._states
        if states.n_away:
            if self._size[job] > self.n_idle:
                return None
            chunk, up = self._requests.chunk(job), states.state == _ON
            room = self.capacity(chunk)
            if limit is not None:
                room = np.minimum(room, limit).astype(np.int64)
            missing = chunk.number - int(room[up].sum())
            if missing > 0:
                others = states.preference(np.flatnonzero(~up & (room > 0)))
                enough = int(np.searchsorted(np.cumsum(room[others]), missing))
                if enough == len(others):
                    return None
                up[others[: enough + 1]] = True
            limit = np.where(up, room, 0)
        return super().pick(job, policy, limit)

    def release(self, job: int, placement: Placement) -> None:
        super().release(job, placement)
        self.freed.append(placement.nodes)

    def repair(self, node: int) -> None:
        super().repair(node)
        self.freed.append(np.array([node]))

    def idle_nodes(self, nodes: Ints) -> Ints:
        """Returns those of some nodes that are up and serve no job."""
        capacity = self._platform.node_cpu_cores[nodes]
        return nodes[(self.node_idle[nodes] == capacity) & (self._states.state[nodes] == _ON)]

    def is_idle(self, node: int) -> bool:
        """Returns whether a node is up and serves no job."""
        return bool(self.node_idle[node] == self._whole[node] and self._states.state[node] == _ON)
