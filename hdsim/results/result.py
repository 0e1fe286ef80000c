"""Result of a replay: start, end, state and cores of every job, as columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.state import FinalState
from hdsim.platform import power
from hdsim.results import details
from hdsim.results.metrics import slowdown, summary
from hdsim.results.schedule import Schedule

if TYPE_CHECKING:
    from hdsim.results.segments import Segments

Column = NDArray[Any]


class Jobs(Mapping[str, Column]):
    """Columns of the jobs by name, made when first asked for; rows in the order of the workload."""

    def __init__(self, makers: Mapping[str, Callable[[], Column]]) -> None:
        self._makers = makers
        self._made: dict[str, Column] = {}

    def __getitem__(self, name: str) -> Column:
        if name not in self._made:
            column = self._makers[name]()
            column.flags.writeable = False
            self._made[name] = column
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


@dataclass(kw_only=True, eq=False)
class Result(Schedule):
    """A finished (or interrupted) replay; see :class:`hdsim.results.replay.FullReplay`.

    Attributes:
        config: Settings of the replay.
        wall_seconds: Wall-clock time the replay took.
        engine: Which parts of the engine the replay has used: ``mode`` (``events`` or ``compiled``), ``cores`` (store)
            and ``executor``; empty on other backends.
    """

    config: Mapping[str, Any] = field(default_factory=dict)
    wall_seconds: float = 0.0
    engine: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def jobs(self) -> Jobs:
        """Columns by name: Batsim's job columns, then hdsim's own, in the order of the workload.

        `requested_number_of_resources` counts cores and GPUs, both of which are hosts to Batsim, `requested_gpus` the
        latter alone.
        `restarts` counts the starts of a job after failures, and `lost_core_seconds` the core-seconds that failures
        have undone. :func:`hdsim.results.details.columns` explains the others.
        """
        workload, start, finish = self.workload, self.starting_time, self.finish_time
        submission = workload.submission_time
        return Jobs(
            {
                "job_id": workload.job_id.copy,
                "submission_time": submission.copy,
                "requested_number_of_resources": workload.requested_resources.copy,
                "requested_time": workload.requested_time.copy,
                "success": lambda: (self.state == FinalState.COMPLETED_SUCCESSFULLY).astype(np.int8),
                "final_state": lambda: np.array([state.name for state in FinalState], object)[self.state],
                "starting_time": start.copy,
                "execution_time": lambda: finish - start,
                "finish_time": finish.copy,
                "waiting_time": lambda: start - submission,
                "turnaround_time": lambda: finish - submission,
                "stretch": lambda: slowdown(finish - submission, finish - start),
                "allocated_resources": self._interval_sets,
                "consumed_energy": self._consumed_energy,
                "requested_gpus": workload.requested_gpus.copy,
                "restarts": lambda: self.segments.restarts(len(workload)),
                "lost_core_seconds": lambda: self.segments.lost_by_job(len(workload)),
                **details.columns(self),
            }
        )

    @cached_property
    def metrics(self) -> dict[str, float]:
        """Metrics by name; see :mod:`hdsim.results.metrics`."""
        return summary(self)

    @cached_property
    def segments(self) -> Segments:
        """Allocation segments in order of their begins."""
        return self.latest.joined(self.earlier)

    @cached_property
    def energy_joules(self) -> float:
        """Energy of the platform from the first submission to `end_time`, J; NaN where cores have no ids."""
        held = self.segments
        if held.amounts is not None:
            return math.nan
        core_seconds, active = power.busy_seconds(self.platform, held.held, held.begin, held.end)
        platform, end = self.platform, self.end_time
        if self.outages is None:
            return power.total_energy(platform, core_seconds, active, end)
        down = self.outages.seconds(platform.n_nodes, end)[platform.processor_node]
        return power.total_energy(platform, core_seconds, active, end, down)

    @cached_property
    def oversubscribed(self) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.float64]]:
        """Spans in which the demands on a processor exceeded its memory bandwidth: processors, begins, ends."""
        ran = self.segments.rows(np.flatnonzero(self.workload.memory_bandwidth[self.segments.job] > 0))
        held = ran.usage
        demand = held.cores * self.workload.memory_bandwidth[ran.job[held.segment]]
        limited = np.isfinite(self.platform.mem_bw) & ~self.platform.is_gpu
        used = np.flatnonzero(limited[held.processor])
        processor, demand, segment = held.processor[used], demand[used], held.segment[used]
        time = np.concatenate([ran.begin[segment], ran.end[segment]])
        change = np.concatenate([demand, -demand])
        processor = np.concatenate([processor, processor])
        order = np.lexsort((time, processor))
        processor, time, change = processor[order], time[order], change[order]
        if not len(processor):
            return processor, time, time
        # Sums of all processors in one pass: each processor's changes add up to nothing.
        load = np.cumsum(change)
        last_of_instant = np.append((processor[1:] != processor[:-1]) | (time[1:] != time[:-1]), True)
        processor, time, load = processor[last_of_instant], time[last_of_instant], load[last_of_instant]
        limit = self.platform.mem_bw[processor]
        over = load > limit * (1 + 1e-12)
        begins = over & np.append(True, (processor[1:] != processor[:-1]) | ~over[:-1])
        until = np.flatnonzero(~over & np.append(False, (processor[1:] == processor[:-1]) & over[:-1]))
        return processor[begins], time[begins], time[until]

    @cached_property
    def contention(self) -> NDArray[np.float64]:
        """(E, 3) changes, in any order: date in seconds, cores' worth of speed lost to contention, tasks that send.

        Empty where jobs have no programs.
        """
        changes = self.time_breakdown.changes if self.time_breakdown is not None else ()
        return np.array(changes, np.float64).reshape(-1, 3)

    def _interval_sets(self) -> Column:
        """All that each job has held since its last start."""
        texts = np.full(len(self.workload), "", object)
        held = self.segments.last_attempts
        texts[held.job] = held.texts
        return texts

    def _consumed_energy(self) -> Column:
        """Energy of a job's own cores while it ran, J, without idle cores beside it; NaN where cores have no ids."""
        energy = np.full(len(self.workload), np.nan)
        ran, watts = self.segments, self.platform.power
        if ran.amounts is not None:
            return energy
        if len(watts) and (watts == watts[0]).all():
            total = ran.sizes * watts[0]
        else:
            # Every segment has at least one core, so no group is empty.
            per_core = watts[self.platform.core_processor[ran.cores]]
            total = np.add.reduceat(per_core, np.cumsum(ran.sizes) - ran.sizes) if len(per_core) else np.zeros(0)
        joules = total * (ran.end - ran.begin) * power.PSTATES[power.COMPUTING].power
        ended = ~np.isnan(self.finish_time)
        energy[ended] = np.bincount(ran.job, joules, len(energy))[ended]
        return energy
