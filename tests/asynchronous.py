"""A backend whose starts are confirmed late, out of order, together with the end, or refused, by a seeded draw."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from hdsim.backends.base import Backend, Capabilities
from hdsim.cluster.state import FinalState
from hdsim.simulation.setup import ReplaySetup
from hdsim.workload.model import Workload

DONE, KILLED = FinalState.COMPLETED_SUCCESSFULLY, FinalState.COMPLETED_KILLED


class Asynchronous(Backend):
    """Runs jobs for their run times, with a mind of its own about when and whether they start.

    Args:
        seed: Seed of the draws.
        refused: Share of starts that are refused.
        latency: s, mean time until a start is carried out or refused, and again until word of it arrives.
        later: Jobs that become known at their submission, behind those of the workload.
    """

    capabilities = Capabilities(contention=(), gpus=True, confirms_starts=True)

    def __init__(self, seed: int = 1, refused: float = 0.2, latency: float = 20.0, later: Workload | None = None):
        self._rng = np.random.default_rng(seed)
        self._refused, self._latency, self._later = refused, latency, later

    def open(self, setup: ReplaySetup, directory: Path, stop: Sequence[int]) -> None:
        self._cluster = setup.cluster
        self._events: list[tuple[Any, ...]] = []
        self._order = count()
        self._token: dict[int, int] = {}
        infeasible = set(setup.infeasible.tolist())
        for job, time in enumerate(setup.cluster.workload.submission_time.tolist()):
            self._at(time, setup.cluster.refuse if job in infeasible else setup.cluster.submit, job)
        if self._later is not None:
            for row, time in enumerate(self._later.submission_time.tolist()):
                self._at(time, self._add, row)

    def _at(self, time: float, verb: Any, *arguments: Any) -> None:
        heappush(self._events, (time, next(self._order), verb, arguments))

    def advance(self) -> bool:
        if not self._events:
            return False
        now = self._events[0][0]
        self._cluster.next_instant(now)
        while self._events and self._events[0][0] == now:
            _, _, verb, arguments = heappop(self._events)
            verb(*arguments)
        return True

    def apply(self) -> None:
        cluster, rng = self._cluster, self._rng
        for job in cluster.started:
            token = self._token[job] = next(self._order)
            start = cluster.now + rng.exponential(self._latency)
            if rng.random() < self._refused:
                self._at(start, cluster.start_failed, job, "by lot")
                continue
            end = start + float(cluster.workload.runtime[job])
            self._at(min(start + rng.exponential(self._latency), end), self._confirm, job, start)
            self._at(end, self._end, job, token, DONE)
        for job in cluster.killed:
            self._at(cluster.now + rng.exponential(self._latency), self._end, job, self._token[job], KILLED)
        for time in cluster.calls:
            self._at(time, lambda: None)
        for told in (cluster.started, cluster.killed, cluster.calls):
            told.clear()

    def _add(self, row: int) -> None:
        assert self._later is not None
        job = len(self._cluster.state)
        self._cluster.add(self._later.rows(row)[:1].replaced(submission_time=self._cluster.now))
        self._cluster.submit(job)
        self._cluster.open_ended = row < len(self._later) - 1

    def _confirm(self, job: int, start: float) -> None:
        if job in self._cluster.starting:
            self._cluster.confirm_start(job, start)

    def _end(self, job: int, token: int, state: FinalState) -> None:
        # A job that was killed before, or refused and started again.
        if job in self._cluster.running and self._token[job] == token and job not in self._cluster.starting:
            self._cluster.end(job, state)


class Growing(Asynchronous):
    """The same, and jobs may become known on the way."""

    capabilities = Capabilities(contention=(), gpus=True, confirms_starts=True, known_jobs=False)
