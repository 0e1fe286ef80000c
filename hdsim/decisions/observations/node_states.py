"""Observation of the power states of nodes, with a summary of the queue."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hdsim.decisions.base import Array, Observer
from hdsim.decisions.observations.jobs import scaled_time
from hdsim.platform.node_state import NodeState

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.decisions.wait_queue import WaitQueue
    from hdsim.platform.model import Platform

#: Columns of a node: its state, of which at most one is 1, and what else concerns it.
STATES = ("on", "idle", "going_down", "off", "booting")
FEATURES = (*STATES, "idle_cores", "can_sleep", "until_up", "queued", "queued_cores", "time_of_day")
#: Jobs that count as 1 on the logarithmic scale of their number.
_MANY = 1000
_DAY = 86400.0


class NodeStatesObserver(Observer):
    """(N, 11): one row per node.

    Columns of a node: 1 if it serves a job, is idle, goes down, is off, boots (five columns, all 0 for a node out of
    service); share of its cores that are idle; 1 if it can be switched off; time until it would be up if it were asked
    to boot now, on the scale of `Jobs`. Columns of the whole, equal in all rows: number n of queued jobs as
    log(1 + n) / log(1001); share of all cores that these request, at most 1; time of day, simulated seconds modulo a
    day as a share of it. Platforms on which nodes do not sleep have all nodes up.
    """

    sees_cores = True
    needs_core_ids = True

    def arrays(self, platform: Platform) -> Array:
        return Array((platform.n_nodes, len(FEATURES)))

    def begin(self, cluster: Cluster, wait_queue: WaitQueue) -> None:
        self._cluster, platform = cluster, cluster.platform
        self._cores = platform.node_cpu_cores.astype(np.float64)
        self._n_cores = int(self._cores.sum())
        self._can_sleep = platform.can_sleep

    def observe(self) -> NDArray[np.float32]:
        cluster, states = self._cluster, self._cluster.node_states
        nodes, idle = len(self._cores), np.asarray(cluster.cores.node_idle, np.float64) / self._cores
        seen = np.zeros((nodes, len(FEATURES)), np.float32)
        state = np.zeros(nodes, np.int64) if states is None else states.state.copy()
        state[(state == NodeState.ON) & (idle == 1)] = NodeState.IDLE
        seen[np.arange(nodes), state] = 1
        if cluster.down:
            seen[list(cluster.down), : len(STATES)] = 0
        seen[:, 5] = idle
        seen[:, 6] = self._can_sleep
        if states is not None:
            away = np.flatnonzero(states.state != NodeState.ON)
            up = states.up_dates(cluster.now)
            seen[away, 7] = [scaled_time(float(date) - cluster.now) for date in up[away]]
        seen[:, 8] = min(math.log1p(len(cluster.queue)) / math.log1p(_MANY), 1.0)
        seen[:, 9] = min(sum(cluster.size[job] for job in cluster.queue) / self._n_cores, 1.0)
        seen[:, 10] = cluster.now % _DAY / _DAY
        return seen
