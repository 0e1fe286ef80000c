"""P-states that a scheduler asks Batsim for: hdsim's contention model and idle power, carried out by SimGrid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hdsim.cores import members
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
        self._owner = platform.core_processor.astype(np.int64)
        self._first_core = platform.processor_first_core.astype(np.int64)
        self._alone = platform.n_processors == platform.n_cores
        self._bandwidth: list[float] = workload.memory_bandwidth.tolist()
        self._busy = np.zeros(platform.n_cores, bool)
        self._state = np.full(platform.n_cores, ASLEEP)
        self._n_busy = np.zeros(platform.n_processors, np.int64)
        self._demand = np.zeros(platform.n_processors)
        self._touched = np.zeros(platform.n_processors, bool)

    def start(self, job: int, cores: Sequence[int]) -> None:
        """A job has started on some cores."""
        self._change(job, cores, 1)

    def end(self, job: int, cores: Sequence[int]) -> None:
        """A job has left its cores."""
        self._change(job, cores, -1)

    def _change(self, job: int, cores: Sequence[int], sign: int) -> None:
        held = np.array(cores)
        self._busy[held] = sign > 0
        counts = np.bincount(self._owner[held], minlength=len(self._n_busy))
        self._touched |= counts > 0
        self._n_busy += sign * counts
        bandwidth = self._bandwidth[job]
        if bandwidth and self._model is not None:
            self._demand += sign * bandwidth * counts

    def changes(self) -> Iterator[tuple[int, list[int]]]:
        """Brings the states up to date.

        Yields:
            (P-state, ascending ids of the cores that enter it), in order of the P-states.
        """
        processors = self._touched.nonzero()[0]
        if not len(processors):
            return
        self._touched[:] = False
        # A core that is the only one of its processor has the same number.
        cores = processors if self._alone else members(self._first_core, processors)
        owner = self._owner[cores]
        resting = np.where(self._n_busy[owner] > 0, IDLE, ASLEEP)
        states = np.where(self._busy[cores], self._working(processors, owner), resting)
        changed = states != self._state[cores]
        if not changed.all():
            cores, states = cores[changed], states[changed]
        self._state[cores] = states
        found = states.tolist()
        for state in sorted(set(found)):
            yield state, (cores if found.count(state) == len(found) else cores[states == state]).tolist()

    def _working(self, processors: Ints, owner: Ints) -> Ints | int:
        """P-state of busy cores, by their processors."""
        if self._model is None:
            return COMPUTING
        slowed = self._model.speeds(processors, self._demand[processors]) < PSTATES[COMPUTING].speed
        return np.where(slowed, OVERSUBSCRIBED, COMPUTING)[np.searchsorted(processors, owner)]
