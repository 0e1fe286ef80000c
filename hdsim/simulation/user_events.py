"""The part of the engine for processes of the user, which run in its SimPy environment beside the jobs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import simpy

from hdsim.errors import ConfigError, DecisionError
from hdsim.simulation.agenda import FIRST, Agenda
from hdsim.simulation.outages import NodeOutages, Repair

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster


class UserEvents(simpy.Environment):
    """A SimPy environment with a cluster whose nodes processes of the user take out of service.

    Attributes:
        cluster: The state of the cluster.

    Args:
        cluster: The state before the first event.
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self.cluster = cluster
        self._agenda = Agenda()
        self._outages: NodeOutages | None = None
        # Number of agenda entries and events of the user that prevent the end of the simulation.
        self._awaited = 0

    def run(self, until: Any = None) -> NoReturn:
        """Raises an error, since the loop of SimPy has no scheduling passes.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError("expected Simulation.run, run_until or step; simpy.Environment.run has no scheduling passes")

    def schedule_at(self, date: float, action: Callable[[Any], Any], argument: Any, rank: int = FIRST) -> None:
        """Schedules an action at a date in seconds, after actions of lower ranks at the same date."""
        self._agenda.schedule(date, action, argument, rank)

    def at(self, date: float, value: Any = None) -> simpy.Event:
        """Returns an event at a date in seconds, which a relative ``timeout`` can miss by rounding.

        Raises:
            DecisionError: The date has passed.
        """
        if not date >= self.cluster.now:
            raise DecisionError(f"at: expected a date of at least {self.cluster.now:g} s, got {date:g}")
        event = self.event()
        self.schedule_at(date, event.succeed, value)
        return event

    def expect(self, event: simpy.Event) -> simpy.Event:
        """Delays the end of the simulation until an event or process of the user ends; returns the event.

        By default a simulation ends with its last job.
        """
        if event.callbacks is not None:
            self._awaited += 1
            event.callbacks.append(self._happened)
        return event

    def fail(self, node: int, until: float = math.inf) -> simpy.Event:
        """Begins an outage of a node; its jobs return to the queue or, after too many restarts, fail permanently.

        Args:
            node: The node.
            until: Time of the repair in seconds, unless `repair` is called earlier.

        Returns:
            The event of its repair.

        Raises:
            ConfigError: The simulation has no failure model, or the node does not exist.
        """
        repaired = Repair(self)
        self._node_outages(node).fail(node, until, repaired)
        return repaired

    def repair(self, node: int) -> None:
        """Ends all outages of a node.

        Raises:
            ConfigError: The simulation has no failure model, or the node does not exist.
        """
        self._node_outages(node).repair(node)

    @property
    def user_processes(self) -> str:
        """Signs of processes of the user, which have no copies; empty if there are none."""
        if self._active_proc is not None:
            return "one of them runs"
        if self._queue:
            return f"there are events up to {max(self._queue)[0]:g} s"
        if any(isinstance(getattr(entry[3], "__self__", None), simpy.Event) for entry in self._agenda.actions):
            return "one of them waits for a date"
        return "one of them waits for a repair" if self._outages is not None and self._outages.awaited else ""

    def _happened(self, _: simpy.Event) -> None:
        self._awaited -= 1

    def _node_outages(self, node: int) -> NodeOutages:
        if self._outages is None:
            raise ConfigError(
                "nodes can fail where there is a failure model only; failures=external has no outages of its own",
                where="failures",
            )
        nodes = self.cluster.platform.n_nodes
        if not 0 <= node < nodes:
            raise ConfigError(f"expected nodes 0 to {nodes - 1}, got {node}", where="failures")
        return self._outages
