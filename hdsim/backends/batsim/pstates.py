"""P-states that a scheduler asks Batsim for: hdsim's contention model and idle power, carried out by SimGrid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, repeat, starmap
from typing import TYPE_CHECKING

import numpy as np

from hdsim.platform.power import BUSY_PSTATE, COMPUTING, IDLE_PACKAGE, IDLE_PSTATE, PSTATES
from hdsim.platform.simgrid import IDLE_BESIDE, has_node_states

if TYPE_CHECKING:
    from hdsim.contention import ProcessorContention
    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload


class PStates:
    """P-state of every core by the rule of :data:`hdsim.platform.power.PSTATES`, kept up to date by starts and ends.

    In lists, as hosts are in messages: jobs have few cores, for which arrays would take several times as long.

    On platforms with power states of nodes it also depends on whether another processor of the node serves a job. All
    cores are idle at first. The `model` says which processors are oversubscribed; without it none ever is.
    """

    def __init__(self, platform: Platform, workload: Workload, model: ProcessorContention | None) -> None:
        self._model = model
        self._owner: list[int] = platform.core_processor.tolist()
        self._cores = list(starmap(range, pairwise(platform.processor_first_core.tolist())))
        self._bandwidth: list[float] = workload.memory_bandwidth.tolist()
        self._busy = [False] * platform.n_cores
        self._state = [IDLE_PACKAGE] * platform.n_cores
        self._n_busy = [0] * platform.n_processors
        self._demand = [0.0] * platform.n_processors
        self._touched: set[int] = set()
        self._node: list[int] = platform.processor_node.tolist()
        self._processors = list(starmap(range, pairwise(platform.node_first_processor.tolist())))
        self._busy_on_node = [0] * platform.n_nodes if has_node_states(platform) else None

    def start(self, job: int, cores: Sequence[int]) -> None:
        """A job has started on some cores."""
        self._change(job, cores, 1)

    def end(self, job: int, cores: Sequence[int]) -> None:
        """A job has left its cores."""
        self._change(job, cores, -1)

    def _change(self, job: int, cores: Sequence[int], sign: int) -> None:
        busy, n_busy, demand = self._busy, self._n_busy, self._demand
        for core in cores:
            busy[core] = sign > 0
        counts = Counter(map(self._owner.__getitem__, cores))
        self._touched.update(counts)
        bandwidth = sign * self._bandwidth[job]
        for processor, number in counts.items():
            n_busy[processor] += sign * number
            demand[processor] += number * bandwidth
        if self._busy_on_node is not None:
            for processor, number in counts.items():
                node = self._node[processor]
                before = self._busy_on_node[node]
                self._busy_on_node[node] = after = before + sign * number
                if not (before and after):
                    self._touched.update(self._processors[node])

    def changes(self) -> Iterator[tuple[int, list[int]]]:
        """Updates the states.

        Yields:
            (P-state, ascending ids of the cores that enter it), in order of the P-states.
        """
        if not self._touched:
            return
        processors = sorted(self._touched)
        self._touched.clear()
        busy, states = self._busy, self._state
        entering: dict[int, list[int]] = {}
        for processor, working in zip(processors, self._working(processors), strict=False):
            resting = IDLE_PSTATE[self._n_busy[processor] > 0]
            if resting == IDLE_PACKAGE and self._busy_on_node is not None and self._busy_on_node[self._node[processor]]:
                resting = IDLE_BESIDE
            for core in self._cores[processor]:
                state = working if busy[core] else resting
                if state != states[core]:
                    states[core] = state
                    entering.setdefault(state, []).append(core)
        yield from sorted(entering.items())

    def _working(self, processors: list[int]) -> Iterable[int]:
        """Returns the P-state of the busy cores of each processor."""
        if self._model is None:
            return repeat(COMPUTING)
        demand = np.array([self._demand[processor] for processor in processors])
        slowed = self._model.speeds(np.array(processors), demand) < PSTATES[COMPUTING].speed
        return [BUSY_PSTATE[over] for over in slowed.tolist()]
