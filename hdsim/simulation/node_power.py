"""Nodes that sleep and wake during a simulation: their changes, idle time-outs, and jobs that wait for them."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hdsim.cluster.stores.sleeping import SleepingCores
from hdsim.platform.states import NodeState
from hdsim.simulation.agenda import AFTER_ENDS
from hdsim.util.copies import with_own_containers

if TYPE_CHECKING:
    from collections.abc import Callable

    from hdsim.cluster.node_states import NodeStates
    from hdsim.cluster.state import Cluster
    from hdsim.power import PowerManagement
    from hdsim.util.arrays import Floats, Ints

_MINUTE = 60.0


class PowerEngine(Protocol):
    """The part of :class:`hdsim.simulation.engine.Engine` that power management uses."""

    cluster: Cluster

    def schedule_at(self, date: float, action: Callable[[Any], Any], argument: Any, rank: int) -> None:
        """Schedules an action."""

    def begin(self, job: int) -> None:
        """Starts a job that is STARTING."""

    def fail(self, node: int, until: float) -> Any:
        """Begins an outage of a node."""


class NodePower:
    """Changes of the power states of the nodes of a simulation.

    Attributes:
        doomed: Jobs that are STARTING and will be killed as soon as they run.
    """

    __deepcopy__ = with_own_containers

    def __init__(self, engine: PowerEngine, management: PowerManagement, boots: np.random.Generator | None) -> None:
        self._engine, self._management, self._boots = engine, management, boots
        cluster = engine.cluster
        nodes = cluster.platform.n_nodes
        assert cluster.node_states is not None
        assert isinstance(cluster.cores, SleepingCores)
        # Jobs that wait for each node, and the number of nodes that each of them waits for.
        self._waiting: dict[int, tuple[int, ...]] = {}
        self._missing: dict[int, int] = {}
        self.doomed: set[int] = set()
        self._failing: dict[int, float] = {}  # nodes that do not come up, and when that is found
        self._idle_since: Floats = np.full(nodes, -math.inf)
        # Nodes whose time is over, with the begins of their idleness, which go down as the rate allows, and when the
        # last ones did.
        self._timed_out: deque[tuple[int, float]] = deque()
        self._suspended: deque[float] = deque()
        self._resumes_at = -math.inf
        cluster.cores.freed.append(np.arange(nodes))
        self._watch()

    def forget(self, memo: dict[int, Any]) -> None:
        """Has a copy made that does not know which boots will fail; see :func:`copy.deepcopy` for `memo`."""
        memo[id(self._boots)] = None

    def wait(self, job: int) -> None:
        """Takes note of a job that waits for its nodes."""
        nodes = self._engine.cluster.running[job].nodes
        away = nodes[self._states.state[nodes] != NodeState.ON].tolist()
        self._missing[job] = len(away)
        for node in away:
            self._waiting[node] = (*self._waiting.get(node, ()), job)

    def forget_job(self, job: int) -> None:
        """Takes note that a job waits no longer."""
        del self._missing[job]
        self.doomed.discard(job)
        self._waiting = {node: tuple(each for each in jobs if each != job) for node, jobs in self._waiting.items()}

    def apply(self) -> None:
        """Schedules what follows from the decisions of a pass, and the time-outs of nodes that are idle after it."""
        self._watch()
        self._schedule_changes()

    @property
    def _states(self) -> NodeStates:
        states = self._engine.cluster.node_states
        assert states is not None
        return states

    def _schedule_changes(self) -> None:
        due = self._states.due
        for date, node in due:
            self._engine.schedule_at(date, self._change, node, AFTER_ENDS)
        due.clear()

    def _change(self, node: int) -> None:
        """Makes the changes of a node that are due."""
        states, now, management = self._states, self._engine.cluster.now, self._management
        if states.step(node, now):
            if self._failing.pop(node, None) == now:
                self._engine.fail(node, now + management.repair)
            elif self._boots is not None and self._boots.random() < management.boot_failure:
                self._failing[node] = states.fail_boot(node, management.resume_timeout)
            else:
                self._come_up(node)
        self._schedule_changes()

    def _come_up(self, node: int) -> None:
        cluster = self._engine.cluster
        self._states.come_up(node, cluster.now)
        for job in self._waiting.pop(node, ()):
            self._missing[job] -= 1
            if not self._missing[job]:
                del self._missing[job]
                self._engine.begin(job)
        cluster.cores.freed.append(np.array([node]))
        self._watch()

    def _watch(self) -> None:
        """Begins the time-outs of nodes that have become idle."""
        cluster = self._engine.cluster
        freed = cluster.cores.freed
        if not freed:
            return
        nodes = np.unique(np.concatenate(freed)) if len(freed) > 1 else freed[0]
        freed.clear()
        nodes = cluster.cores.idle_nodes(nodes)
        nodes = nodes[~self._management.excluded[nodes]]
        if not nodes.size:
            return
        seconds = np.broadcast_to(np.asarray(self._management.timeout(nodes, cluster), np.float64), nodes.shape)
        self._idle_since[nodes] = cluster.now
        for wait in np.unique(seconds).tolist():
            if wait < math.inf:
                chosen = nodes[seconds == wait]
                self._engine.schedule_at(cluster.now + wait, self._time_out, (chosen, cluster.now), AFTER_ENDS)

    def _time_out(self, nodes: tuple[Ints, float]) -> None:
        """Switches off those nodes that have been idle since a time in seconds."""
        # Nodes that have served a job until this very instant begin anew.
        self._watch()
        chosen, since = nodes
        self._timed_out.extend((node, since) for node in chosen.tolist())
        self._suspend(None)

    def _suspend(self, _: None) -> None:
        """Switches off nodes whose time is over and that are still idle, as many as the rate allows."""
        cluster, rate, recent = self._engine.cluster, self._management.suspend_rate, self._suspended
        now, waiting, states = cluster.now, self._timed_out, self._states
        while waiting:
            node, since = waiting[0]
            if self._idle_since[node] != since or not cluster.cores.idle_nodes(np.array([node])).size:
                waiting.popleft()
                continue
            if len(recent) >= rate:
                if now < recent[0] + _MINUTE:
                    if self._resumes_at <= now:
                        self._resumes_at = recent[0] + _MINUTE
                        self._engine.schedule_at(self._resumes_at, self._suspend, None, AFTER_ENDS)
                    break
                recent.popleft()
            waiting.popleft()
            if rate < math.inf:
                recent.append(now)
            states.power_off(node, now)
        self._schedule_changes()
