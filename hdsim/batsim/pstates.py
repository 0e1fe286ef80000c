"""P-states that a scheduler asks Batsim for: hdsim's contention model and idle power, carried out by SimGrid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hdsim.power import ASLEEP, COMPUTING, IDLE, OVERSUBSCRIBED, PSTATES

if TYPE_CHECKING:
    from hdsim.contention import ProcessorContention
    from hdsim.platform import Platform
    from hdsim.workload import Workload

Ints = NDArray[np.int64]


class PStates:
    """P-state of every core by the rule of :data:`hdsim.power.PSTATES`, kept up to date by starts and ends of jobs.

    Args:
        platform: The platform; all its cores begin asleep.
        workload: The jobs.
        model: Says which processors are oversubscribed; None if none ever is.
    """

    def __init__(self, platform: Platform, workload: Workload, model: ProcessorContention | None) -> None:
        self._model = model
        self._owner = platform.core_processor
        self._first_core = platform.processor_first_core
        self._bandwidth: list[float] = workload.memory_bandwidth.tolist()
        self._busy = np.zeros(platform.n_cores, bool)
        self._state = np.full(platform.n_cores, ASLEEP, np.int8)
        self._n_busy = np.zeros(platform.n_processors, np.int64)
        self._demand = np.zeros(platform.n_processors)
        self._touched = np.zeros(platform.n_processors, bool)
        self._dirty = False

    def start(self, job: int, cores: Sequence[int]) -> None:
        """A job has started on some cores."""
        self._change(job, cores, 1)

    def end(self, job: int, cores: Sequence[int]) -> None:
        """A job has left its cores."""
        self._change(job, cores, -1)

    def _change(self, job: int, cores: Sequence[int], sign: int) -> None:
        held = np.array(cores)
        self._busy[held] = sign > 0
        owner = self._owner[held]
        np.add.at(self._n_busy, owner, sign)
        bandwidth = self._bandwidth[job]
        if bandwidth and self._model is not None:
            np.add.at(self._demand, owner, sign * bandwidth)
        self._touched[owner] = self._dirty = True

    def changes(self) -> Iterator[tuple[int, list[int]]]:
        """Brings the states up to date.

        Yields:
            (P-state, ascending ids of the cores that enter it), in order of the P-states.
        """
        if not self._dirty:
            return
        self._dirty = False
        processors = self._touched.nonzero()[0].astype(np.int32)
        self._touched[processors] = False
        first = self._first_core[processors]
        sizes = self._first_core[processors + 1] - first
        ends = np.cumsum(sizes)
        cores = np.repeat(first - (ends - sizes), sizes) + np.arange(ends[-1])
        working: Ints = np.full(len(processors), COMPUTING)
        if self._model is not None:
            slowed = self._model.speeds(processors, self._demand[processors]) < PSTATES[COMPUTING].speed
            working[slowed] = OVERSUBSCRIBED
        resting = np.where(self._n_busy[processors] > 0, IDLE, ASLEEP)
        states = np.where(self._busy[cores], np.repeat(working, sizes), np.repeat(resting, sizes))
        changed = states != self._state[cores]
        cores, states = cores[changed], states[changed]
        self._state[cores] = states
        for state in sorted(set(states.tolist())):
            yield state, cores[states == state].tolist()
