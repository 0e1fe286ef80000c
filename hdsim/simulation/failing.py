"""The engine with nodes that fail and are repaired."""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np
from simpy.events import NORMAL, EventPriority

from hdsim.cluster.state import FinalState
from hdsim.failures import Failures, checkpointed_work
from hdsim.simulation.engine import Alarm, SimBackend

log = logging.getLogger(__name__)

#: At an instant nodes change after jobs have ended: a job that completes when its node fails has completed.
_AFTER_JOBS = EventPriority(NORMAL + 2)
#: Changes of nodes, at least and for each node, without any job started before waiting jobs are given up.
_PATIENCE, _PATIENCE_OF_NODE = 10_000, 200


class FailingBackend(SimBackend):
    """Simulates a workload on a platform whose nodes fail.

    A job with cores on a node that fails goes back to its place in the queue, unless that has happened too often. Every
    failure and every repair is an instant with a scheduling pass.

    Args:
        *arguments: See :class:`hdsim.simulation.engine.SimBackend`.
        failures: When nodes are down, and how jobs recover.
        rng: For the outages, and for nothing else.
        **options: See :class:`hdsim.simulation.engine.SimBackend`.
    """

    def __init__(self, *arguments: Any, failures: Failures, rng: np.random.Generator, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._checkpoint_interval = failures.checkpoint_interval
        self._max_restarts = failures.max_restarts
        self._restarts: dict[int, int] = {}
        self._coming = failures.outages(rng)
        self._due_calls = 0
        self._idle_changes = 0
        self._patience = max(_PATIENCE, _PATIENCE_OF_NODE * len(self._coming))
        for node in range(len(self._coming)):
            self._arm_failure(node)

    def advance(self) -> bool:
        """See :meth:`hdsim.simulation.engine.SimBackend.advance`; failures alone do not keep a replay going."""
        going_on = not self._is_over()
        self.cluster.node_changes.clear()
        if going_on and super().advance():
            return True
        self._tell_of_lost_jobs()
        return False

    def _is_over(self) -> bool:
        """Whether nothing but failures and repairs is left to happen."""
        cluster = self.cluster
        if cluster.running or self._due_calls or self._submission[self._next] < math.inf:
            self._idle_changes = 0
            return False
        # With the whole platform idle, what has not been started never will be.
        if not cluster.queue or not cluster.down:
            return True
        self._idle_changes += 1
        return self._idle_changes > self._patience

    def _tell_of_lost_jobs(self) -> None:
        cluster = self.cluster
        if cluster.failed_permanently:
            log.warning(
                "%d jobs failed for good after %d restarts", len(cluster.failed_permanently), self._max_restarts
            )
        if not cluster.queue or not cluster.down:
            return
        for_good = {node for node, _, until in cluster.outages if until == math.inf}
        if self._idle_changes > self._patience:
            why = f"none was started in {self._patience} failures and repairs"
        else:
            why = f"{len(for_good)} of {cluster.platform.n_nodes} nodes are down for good"
        log.warning("%d jobs wait in vain: %s", len(cluster.queue), why)

    def _arm_failure(self, node: int) -> None:
        down, up = next(self._coming[node], (math.inf, math.inf))
        if down < math.inf:
            Alarm(self, down, self._on_failure, (node, up), _AFTER_JOBS)

    def _on_failure(self, event: Alarm) -> None:
        node, up = event._value
        cluster = self.cluster
        for job in cluster.cores.jobs_on(node):
            restarts = self._restarts.get(job, 0)
            if restarts < self._max_restarts:
                self._restarts[job] = restarts + 1
                cluster.interrupt(job, self._interrupt(job))
            else:
                cluster.failed_permanently.append(job)
                self._stop(job, FinalState.COMPLETED_FAILED)
        cluster.fail(node, up)
        self._called = True
        if up < math.inf:
            Alarm(self, up, self._on_repair, node, _AFTER_JOBS)

    def _on_repair(self, event: Alarm) -> None:
        self.cluster.repair(event._value)
        self._called = True
        self._arm_failure(event._value)

    def _interrupt(self, job: int) -> float:
        """Stops a job whose node fails, so that it can start again; returns the s of running that are lost."""
        cluster, executor, interval = self.cluster, self._executor, self._checkpoint_interval
        now, begin = cluster.now, cluster.starting_time[job]
        self._disarm(self._completions[job])
        if executor is not None:
            self._disarm(self._walltimes.pop(job, None))
            return executor.interrupt(job, now, begin, interval)
        if interval is None:
            return now - begin
        speed = 1.0 if self._at_peak[job] else cluster.cores.slowest(cluster.running[job])
        saved = checkpointed_work((now - begin) * speed, interval)
        self._runtime[job] -= saved
        return now - begin - saved / speed

    # Calls that agents have asked for keep a replay going.

    def _arm_calls(self) -> None:
        self._due_calls += len(self.cluster.calls)
        super()._arm_calls()

    def _on_call(self, event: Alarm) -> None:
        self._due_calls -= 1
        super()._on_call(event)
