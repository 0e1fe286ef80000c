"""Failures and repairs of nodes, from failure models and from processes of the user."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import simpy

from hdsim.cluster.state import FinalState
from hdsim.errors import ConfigError
from hdsim.failures import Failures
from hdsim.simulation.agenda import AFTER_ENDS
from hdsim.util.copies import with_own_containers

if TYPE_CHECKING:
    from collections.abc import Callable

    from hdsim.cluster.state import Cluster

log = logging.getLogger(__name__)


class Repair(simpy.Event):
    """The repair of a node that a user process has taken out of service; a copy has no callbacks."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Repair:
        memo[id(self)] = other = Repair(memo[id(self.env)])
        return other


class OutageEngine(Protocol):
    """The part of :class:`hdsim.simulation.engine.Engine` that outages use."""

    cluster: Cluster

    def notify(self) -> None:
        """Requests a scheduling pass."""

    def schedule_at(self, date: float, action: Callable[[Any], Any], argument: Any, rank: int) -> None:
        """Schedules an action."""

    def interrupt(self, job: int, interval: float | None) -> None:
        """Returns a running job to the queue."""

    def stop(self, job: int, state: FinalState) -> None:
        """Ends a running job."""


class NodeOutages:
    """Outages of the nodes of a simulation.

    A node may be down for several reasons at once; it is up again at the end of the last one.
    """

    __deepcopy__ = with_own_containers

    def __init__(self, engine: OutageEngine, failures: Failures, rng: np.random.Generator | None) -> None:
        self._engine = engine
        self._interval, self._model = failures.checkpoint_interval, type(failures).__name__
        self._max_restarts = failures.max_restarts
        # Per node that is down: the reasons, None for the failure model, and its row in `cluster.outages`.
        self._reasons: dict[int, dict[simpy.Event | None, None]] = {}
        self._row: dict[int, int] = {}
        self._coming = failures.outages(rng or np.random.default_rng(0))
        self._check_iterators(engine.cluster.platform.n_nodes)
        for node in range(len(self._coming)):
            self._schedule_next(node)

    def fail(self, node: int, until: float, repaired: simpy.Event) -> None:
        """See :meth:`hdsim.simulation.engine.Engine.fail`; the repair triggers `repaired`."""
        self._engine.schedule_at(self._engine.cluster.now, self._begin, (node, until, repaired), AFTER_ENDS)

    def repair(self, node: int) -> None:
        """Ends all outages of a node."""
        self._engine.schedule_at(self._engine.cluster.now, self._end_all, node, AFTER_ENDS)

    @property
    def awaited(self) -> bool:
        """Whether a user process waits for a repair."""
        return any(reason is not None and reason.callbacks for each in self._reasons.values() for reason in each)

    def forget(self, memo: dict[int, Any]) -> None:
        """Has a copy made without the outages to come; see :func:`copy.deepcopy` for `memo`."""
        memo[id(self._coming)] = ()

    def is_to_come(self, action: Callable[[Any], Any], argument: Any) -> bool:
        """Returns whether an action of the agenda is an outage of the failure model that has not begun."""
        return action == self._begin and argument[2] is None

    def warn_of_lost_jobs(self) -> None:
        """Logs permanently failed jobs and jobs that wait for nodes that are never repaired."""
        cluster = self._engine.cluster
        if cluster.failed_permanently:
            log.warning(
                "%d jobs failed permanently after %d restarts", len(cluster.failed_permanently), self._max_restarts
            )
        never_repaired = {node for node, _, until in cluster.outages if until == math.inf}
        if cluster.queue and never_repaired:
            log.warning(
                "%d jobs cannot start: %d of %d nodes are never repaired",
                len(cluster.queue),
                len(never_repaired),
                cluster.platform.n_nodes,
            )

    def _check_iterators(self, nodes: int) -> None:
        """Raises ConfigError unless there is an iterator of its own for each of the nodes, or none at all."""
        found: Any = self._coming
        known = isinstance(found, Sequence) and all(isinstance(one, Iterator) for one in found)
        own = len(set(map(id, found))) if known else -1
        if known and (not found or own == len(found) == nodes):
            return
        got = (f"{own}" if own == len(found) else f"{own} for {len(found)} nodes") if known else repr(found)
        told = f"expected {nodes} iterators from {self._model}.outages, one of its own for each node, got {got}"
        raise ConfigError(told, where="failures")

    def _schedule_next(self, node: int) -> None:
        """Schedules the next outage of a node by the failure model.

        Raises:
            ConfigError: It begins in the past, or ends before it begins.
        """
        outage: Any = next(self._coming[node], (math.inf, math.inf)) if self._coming else (math.inf, math.inf)
        if not (isinstance(outage, tuple | list) and len(outage) == 2 and all(isinstance(one, Real) for one in outage)):
            told = f"expected outages (begin, end) of node {node} in seconds, got {outage!r} from {self._model}"
            raise ConfigError(told, where="failures")
        down, up = outage
        now = self._engine.cluster.now
        if not now <= down <= up:
            told = f"expected outages of node {node} one after the other, from {now:g} s on, got {down:g} to {up:g} s"
            raise ConfigError(f"{told} from {self._model}", where="failures")
        if down < math.inf:
            self._engine.schedule_at(down, self._begin, (node, up, None), AFTER_ENDS)

    def _begin(self, outage: tuple[int, float, simpy.Event | None]) -> None:
        node, until, reason = outage
        engine, cluster = self._engine, self._engine.cluster
        if node in cluster.down:
            row = self._row[node]
            _, begin, end = cluster.outages[row]
            cluster.outages[row] = node, begin, max(end, until)
        else:
            self._clear(node)
            self._row[node] = len(cluster.outages)
            cluster.fail(node, until)
            engine.notify()
        self._reasons.setdefault(node, {})[reason] = None
        if until < math.inf:
            engine.schedule_at(until, self._end, (node, reason), AFTER_ENDS)

    def _clear(self, node: int) -> None:
        """Interrupts the jobs on a node."""
        cluster = self._engine.cluster
        for job in cluster.cores.jobs_on(node):
            if job in cluster.starting or cluster.allocations.restarts.get(job, 0) < self._max_restarts:
                self._engine.interrupt(job, self._interval)
            else:
                cluster.failed_permanently.append(job)
                self._engine.stop(job, FinalState.COMPLETED_FAILED)

    def _end(self, outage: tuple[int, simpy.Event | None]) -> None:
        node, reason = outage
        reasons = self._reasons.get(node, {})
        # `repair` may have ended the outage earlier.
        if reason in reasons:
            del reasons[reason]
            if not reasons:
                self._put_back(node)
        if reason is None:
            self._schedule_next(node)
        elif not reason.triggered:
            reason.succeed()

    def _end_all(self, node: int) -> None:
        reasons = self._reasons.pop(node, {})
        if reasons:
            self._put_back(node)
        for reason in reasons:
            if reason is not None:
                reason.succeed()

    def _put_back(self, node: int) -> None:
        cluster = self._engine.cluster
        row = self._row.pop(node)
        cluster.outages[row] = node, cluster.outages[row][1], cluster.now
        cluster.repair(node)
        self._engine.notify()
