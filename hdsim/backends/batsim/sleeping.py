"""Nodes that sleep and wake behind Batsim: dates are calls of Batsim, and changes are over when it says so."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.platform.node_state import NodeState
from hdsim.platform.power import IDLE_PACKAGE
from hdsim.platform.simgrid import ASLEEP
from hdsim.simulation.node_power import NodePower

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.power import PowerManagement

#: Decimals of times in messages.
_DECIMALS = 6
#: P-state that begins each change of a node.
_PSTATES = {int(NodeState.GOING_DOWN): ASLEEP, int(NodeState.BOOTING): IDLE_PACKAGE}


class HostPower:
    """The engine of a :class:`hdsim.simulation.node_power.NodePower` whose clock and nodes are Batsim's.

    Attributes:
        cluster: The state that the messages change.
        power: The power management.
        begun: Jobs whose nodes are up and that Batsim is yet to execute.
    """

    batch_events = True

    def __init__(self, cluster: Cluster, management: PowerManagement) -> None:
        self.cluster = cluster
        self.begun: list[int] = []
        # Rounded date, rank, number, exact date, action and argument.
        self._agenda: list[tuple[float, int, int, float, Callable[[Any], Any], Any]] = []
        self._numbers = count()
        # Dates of calls to ask for, and of those asked for.
        self._wanted: set[float] = set()
        self._calls: list[float] = []
        states = cluster.node_states
        assert states is not None
        self._states, states.confirmed = states, set()
        self._told, self._seen = states.state.copy(), states.changes
        self.power = NodePower(self, management, None)

    # For the power management

    def schedule_at(self, date: float, action: Callable[[Any], Any], argument: Any, rank: int) -> None:
        """Schedules an action."""
        rounded = round(date, _DECIMALS)
        heapq.heappush(self._agenda, (rounded, rank, next(self._numbers), date, action, argument))
        if rounded not in self._calls:
            self._wanted.add(rounded)

    def notify(self) -> None:
        """Requests a scheduling pass, which only caps do."""
        raise AssertionError("caps are refused")

    def begin(self, job: int) -> None:
        """Starts a job that is STARTING."""
        self.cluster.confirm_start(job, self.cluster.now)
        self.begun.append(job)

    def fail(self, node: int, until: float) -> None:
        """Begins an outage of a node, which only failed boots do."""
        raise AssertionError("failures of boots are refused")

    # For the session

    def run_due(self) -> None:
        """Carries out what is due by the time of the cluster, which has the decimals of messages."""
        cluster, now = self.cluster, self.cluster.now
        while self._agenda and self._agenda[0][0] <= now:
            *_, date, action, argument = heapq.heappop(self._agenda)
            cluster.now = max(now, date)
            action(argument)
        cluster.now = now

    def calls(self) -> Iterator[float]:
        """Yields the dates in seconds of further calls to ask Batsim for."""
        for date in sorted(self._wanted):
            heapq.heappush(self._calls, date)
            yield date
        self._wanted.clear()

    def takes_call(self, now: float) -> bool:
        """Takes note of a call of Batsim; returns whether it was asked for here."""
        if self._calls and self._calls[0] <= now:
            heapq.heappop(self._calls)
            return True
        return False

    def requests(self) -> Iterator[tuple[int, list[int]]]:
        """Yields (P-state, ascending nodes) of the changes that have begun since the last call."""
        states = self._states
        if states.changes == self._seen:
            return
        self._seen = states.changes
        turned = np.flatnonzero(states.state != self._told)
        self._told = states.state.copy()
        seconds = self.cluster.platform.state_seconds
        groups: dict[tuple[int, float], list[int]] = {}
        for node in turned.tolist():
            state = int(self._told[node])
            if state in _PSTATES:
                # Batsim confirms a request when all of its hosts have changed.
                groups.setdefault((state, float(seconds[state, node])), []).append(node)
        for (state, _), nodes in sorted(groups.items()):
            yield _PSTATES[state], nodes
