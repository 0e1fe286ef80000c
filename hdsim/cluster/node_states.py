"""Power states of the nodes of a cluster: which are up, and when the others will be."""

from __future__ import annotations

import math
from bisect import insort
from typing import TYPE_CHECKING

import numpy as np

from hdsim.errors import ConfigError
from hdsim.platform.node_state import NodeState
from hdsim.util.copies import with_own_containers

if TYPE_CHECKING:
    from hdsim.platform.model import Platform
    from hdsim.util.arrays import Floats, Ints

_ON, _GOING_DOWN, _OFF, _BOOTING = (
    int(state) for state in (NodeState.ON, NodeState.GOING_DOWN, NodeState.OFF, NodeState.BOOTING)
)
_MINUTE = 60.0


def refuse_sleep(states: NodeStates | None, name: str) -> None:
    """Refuses nodes that sleep for an agent that plans without them.

    Args:
        states: Those of the cluster, None where nodes do not sleep.
        name: Name of the agent.

    Raises:
        ConfigError: Idle nodes go down by power management.
    """
    if states is not None and states.time_out:
        raise ConfigError(f"expected no nodes that sleep with {name}, which plans with all nodes up", where="power")


class NodeStates:
    """States of nodes that sleep and wake.

    A node that is asked to boot while it goes down does so as soon as it is off. At most `resume_rate` boots begin
    within any 60 s; further ones wait until the oldest of these is that long ago.

    Attributes:
        state: (N,) :class:`hdsim.platform.node_state.NodeState`; ON for every node that is up.
        ready: (N,) s, when a node that boots, or has been asked to, will be up; infinite for others that are not up.
        n_away: Number of nodes that are not up.
        changes: Number of changes so far.
        due: (date, node) of changes to come that the backend is yet to take note of; `step` makes them.
        confirmed: Nodes whose present change is over, where the backend says so by `confirm`; None where it is over at
            its date.
        spans: (node, state, begin, end) of every stay in another state that is over.
        time_out: Idle nodes go down without a decision of the scheduler.

    Args:
        platform: The platform.
        resume_rate: Most boots that begin within 60 s, may be infinite.
        time_out: See above.
    """

    __deepcopy__ = with_own_containers

    def __init__(self, platform: Platform, resume_rate: float = math.inf, *, time_out: bool = False) -> None:
        nodes = platform.n_nodes
        self.time_out = time_out
        self.state: Ints = np.zeros(nodes, np.int64)
        self.ready: Floats = np.zeros(nodes)
        self.n_away = self.changes = 0
        self.due: list[tuple[float, int]] = []
        self.confirmed: set[int] | None = None
        self.spans: list[tuple[int, int, float, float]] = []
        self._going_down: Floats = platform.state_seconds[_GOING_DOWN]
        self._booting: Floats = platform.state_seconds[_BOOTING]
        # When nodes went into their states; from when on they can boot; when the boots begin that they were asked for.
        self._since, self._off, self._boot = np.zeros((3, nodes))
        self._rate = resume_rate
        self._begins: list[float] = []  # of boots, ascending
        order = np.argsort(self._booting, kind="stable")
        self._order = np.empty(nodes, np.int64)
        self._order[order] = np.arange(nodes)

    def preference(self, nodes: Ints) -> Ints:
        """Returns nodes that are not up in the order in which jobs get them.

        These are nodes that boot or have been asked to, nodes that are off, and nodes that go down; of equal ones those
        that boot sooner, by id.
        """
        rank = np.where(self.ready[nodes] < math.inf, 0, np.where(self.state[nodes] == _OFF, 1, 2))
        return nodes[np.argsort(rank * len(self.state) + self._order[nodes], kind="stable")]

    def power_off(self, node: int, now: float) -> None:
        """Begins to switch off a node that is up."""
        self._enter(node, _GOING_DOWN, now)
        self.ready[node], self._off[node] = math.inf, now + float(self._going_down[node])
        self._await_end(float(self._off[node]), node)

    def power_on(self, node: int, now: float) -> None:
        """Asks a node to boot; nothing happens if it is up, boots, or has been asked to."""
        if self.ready[node] < math.inf:
            return
        begin = self._begin(node, now, self._begins)
        self.changes += 1
        self.ready[node], self._boot[node] = begin + float(self._booting[node]), begin
        self.due.append((begin, node))

    def away(self, nodes: Ints) -> Ints:
        """Returns those of some nodes that are not up."""
        return nodes[self.state[nodes] != _ON]

    def up_at(self, nodes: Ints, now: float) -> float:
        """Returns when all of some nodes are up if those that are not are asked to boot now, in seconds."""
        if not self.n_away or not (away := self.away(nodes)).size:
            return now
        asked = self.ready[away] < math.inf
        latest, asleep = float(self.ready[away[asked]].max(initial=now)), away[~asked]
        if self._rate == math.inf:
            return float((np.maximum(self._off[asleep], now) + self._booting[asleep]).max(initial=latest))
        begins = self._begins.copy()
        for node in asleep.tolist():
            latest = max(latest, self._begin(node, now, begins) + float(self._booting[node]))
        return latest

    @property
    def off_at(self) -> Floats:
        """(N,) s, when each node that goes down will be off."""
        return self._off

    def up_dates(self, now: float) -> Floats:
        """(N,) s, when each node would be up if it were asked to boot now, and no other one."""
        asked = np.where(self.ready < math.inf, self.ready, np.maximum(self._off, now) + self._booting)
        return np.where(self.state == _ON, now, asked)

    def confirm(self, node: int, now: float) -> bool:
        """Takes note that the present change of a node is over, whenever it was to be; False if there is none."""
        assert self.confirmed is not None
        if self.state[node] == _GOING_DOWN:
            self._off[node] = now
        elif self.state[node] == _BOOTING:
            self.ready[node] = now
        else:
            return False
        self.confirmed.add(node)
        return True

    def step(self, node: int, now: float) -> bool:
        """Makes the changes of a node that are due; returns whether its boot is over."""
        if self.state[node] == _GOING_DOWN and self._off[node] <= now and self._is_over(node):
            self._enter(node, _OFF, now)
        if self.state[node] == _OFF and self.ready[node] < math.inf and self._boot[node] <= now:
            self._enter(node, _BOOTING, now)
            self._await_end(float(self.ready[node]), node)
        return bool(self.state[node] == _BOOTING and self.ready[node] <= now and self._is_over(node))

    def _await_end(self, date: float, node: int) -> None:
        if self.confirmed is None:
            self.due.append((date, node))

    def _is_over(self, node: int) -> bool:
        """Returns whether nothing speaks against the end of the present change of a node."""
        if self.confirmed is None:
            return True
        over = node in self.confirmed
        self.confirmed.discard(node)
        return over

    def come_up(self, node: int, now: float) -> None:
        """Takes note that a node is up, or out of service and no longer in a state."""
        self._enter(node, _ON, now)
        self.ready[node] = 0.0

    def fail_boot(self, node: int, timeout: float) -> float:
        """Takes note that a node does not come up; returns the end of `timeout` seconds since the begin of its boot."""
        self.ready[node] = self._boot[node] + timeout
        self.changes += 1
        self.due.append((float(self.ready[node]), node))
        return float(self.ready[node])

    def assume(self, state: Ints, ready: Floats, since: Floats, spans: list[tuple[int, int, float, float]]) -> None:
        """Takes the states over that another simulation has ended in: (N,) states, see `ready`, since when, `spans`."""
        self.state[:], self.ready[:], self._since[:], self.spans = state, ready, since, spans
        self.n_away = int((state != _ON).sum())

    def all_spans(self, now: float) -> list[tuple[int, int, float, float]]:
        """Returns `spans`, and the present ones until now."""
        away = np.flatnonzero(self.state != _ON).tolist()
        return self.spans + [(node, int(self.state[node]), float(self._since[node]), now) for node in away]

    def _begin(self, node: int, now: float, begins: list[float]) -> float:
        """Returns when the boot of a node begins, and adds it to the ascending begins of others."""
        begin = max(now, float(self._off[node]))
        if self._rate < math.inf:
            rate = int(self._rate)
            if len(begins) >= rate:
                begin = max(begin, begins[-rate] + _MINUTE)
            insort(begins, begin)
            del begins[:-rate]
        return begin

    def _enter(self, node: int, state: int, now: float) -> None:
        before = int(self.state[node])
        self.changes += 1
        if before != _ON:
            self.spans.append((node, before, float(self._since[node]), now))
        self.n_away += int(state != _ON) - int(before != _ON)
        self.state[node], self._since[node] = state, now
