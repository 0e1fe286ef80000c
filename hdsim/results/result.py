"""What came out of a replay: start, end, state and cores of every job, as columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.state import FinalState
from hdsim.failures import Outages
from hdsim.platform import power
from hdsim.results import details
from hdsim.results.attempts import Attempts
from hdsim.results.metrics import slowdown
from hdsim.util.intervals import interval_sets

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.cluster.time_breakdown import TimeBreakdown
    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload

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


class Result:
    """A finished (or interrupted) replay.

    Attributes:
        platform: The platform.
        workload: The jobs.
        config: Settings of the replay.
        starting_time: (J,) s since the first submission, NaN for a job that never started.
        finish_time: (J,) s, NaN for a job that never ended.
        state: (J,) :class:`hdsim.cluster.state.FinalState`.
        started: (S,) jobs that ever started, in order of their starts.
        sizes: (S,) core ids of each of them: cores and GPUs.
        cores: (sum of sizes,) core ids of each of them in turn, ascending within a job.
        interrupted_attempts: Earlier starts of jobs, cut short by failures.
        failed_permanently: (G,) jobs that have failed for good because nodes failed under them too often.
        outages: When nodes were down, None where they do not fail.
        time_breakdown: Where the time of jobs has gone, None where none has a program.
        end_time: s, end of the period accounted for: the last finish, or the moment of the interruption.
        wall_seconds: Wall-clock time the replay took.
        interrupted: The replay was stopped before its end.
    """

    def __init__(
        self,
        platform: Platform,
        workload: Workload,
        *,
        starting_time: NDArray[np.float64],
        finish_time: NDArray[np.float64],
        state: NDArray[np.int8],
        started: NDArray[np.int64],
        cores: NDArray[np.int32],
        end_time: float,
        interrupted_attempts: Attempts | None = None,
        failed_permanently: Sequence[int] = (),
        outages: Outages | None = None,
        time_breakdown: TimeBreakdown | None = None,
        config: Mapping[str, Any] | None = None,
        wall_seconds: float = 0.0,
        interrupted: bool = False,
    ) -> None:
        self.platform = platform
        self.workload = workload
        self.config = dict(config or {})
        self.starting_time = starting_time
        self.finish_time = finish_time
        self.state = state
        self.started = started
        self.sizes: NDArray[np.int64] = workload.requested_resources[started]
        self.cores = cores
        self.interrupted_attempts = interrupted_attempts or Attempts.none()
        self.failed_permanently = np.array(failed_permanently, np.int64)
        self.outages = outages
        self.time_breakdown = time_breakdown
        self.end_time = end_time
        self.wall_seconds = wall_seconds
        self.interrupted = interrupted

    @classmethod
    def of(
        cls, cluster: Cluster, *, config: Mapping[str, Any] | None, wall_seconds: float, interrupted: bool
    ) -> Result:
        """Collects the columns from the state at the end of a replay."""
        cluster.compact()
        started, cores = (np.concatenate(portions) for portions in zip(*cluster.compacted, strict=True))
        finish = np.array(cluster.finish_time)
        cut_short = _cut_short(cluster)
        last = max(float(finish[~np.isnan(finish)].max(initial=0.0)), float(cut_short.end.max(initial=0.0)))
        end = cluster.now if interrupted else last
        return cls(
            cluster.platform,
            cluster.workload,
            starting_time=np.array(cluster.starting_time),
            finish_time=finish,
            state=np.array(cluster.state, np.int8),
            started=started,
            cores=cores,
            end_time=end,
            interrupted_attempts=cut_short,
            failed_permanently=cluster.failed_permanently,
            outages=Outages.of(cluster.outages).begun_before(end) if cluster.nodes_fail else None,
            time_breakdown=cluster.time_breakdown,
            config=config,
            wall_seconds=wall_seconds,
            interrupted=interrupted,
        )

    @cached_property
    def jobs(self) -> Jobs:
        """Columns by name: Batsim's job columns, then hdsim's own, in the order of the workload.

        `requested_number_of_resources` counts cores and GPUs, both of which are hosts to Batsim, `requested_gpus` the
        latter alone.
        `restarts` and `lost_core_seconds` tell how often a job was started again after a failure, and the s x cores of
        running that failures have undone. :func:`hdsim.results.details.columns` explains the others.
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
                "restarts": lambda: self.attempts.restarts(len(workload)),
                "lost_core_seconds": lambda: self.attempts.lost_by_job(len(workload)),
                **details.columns(self),
            }
        )

    @cached_property
    def metrics(self) -> dict[str, float]:
        """Metrics by name; see :mod:`hdsim.results.metrics`."""
        from hdsim.results.metrics import summary

        return summary(self)

    @cached_property
    def attempts(self) -> Attempts:
        """Every start of a job, those cut short by failures among them."""
        job, start, end = self.started, self.starting_time, self.busy_until
        last = Attempts.last(job, start[job], end[job], self.sizes, self.cores, self.failed_permanently)
        return last.joined(self.interrupted_attempts)

    @cached_property
    def usage(self) -> power.Usage:
        """Which processors every start of a job occupied."""
        return power.usage(self.platform, self.attempts.sizes, self.attempts.cores)

    @cached_property
    def busy_until(self) -> NDArray[np.float64]:
        """(J,) s, the finish of each job, or for one that still runs the end of the period."""
        return np.where(np.isnan(self.finish_time), self.end_time, self.finish_time)

    @cached_property
    def energy_joules(self) -> float:
        """Energy of the platform from the first submission to `end_time`, J."""
        ran = self.attempts
        core_seconds, active = power.busy_seconds(self.platform, ran.sizes, ran.cores, ran.start, ran.end)
        platform, end = self.platform, self.end_time
        if self.outages is None:
            return power.total_energy(platform, core_seconds, active, end)
        down = self.outages.seconds(platform.n_nodes, end)[platform.processor_node]
        return power.total_energy(platform, core_seconds, active, end, down)

    @cached_property
    def alloc_offsets(self) -> NDArray[np.int64]:
        """(J + 1,) where the cores of each job begin in `alloc_cores`."""
        held = np.zeros(len(self.workload), np.int64)
        held[self.started] = self.sizes
        return np.concatenate([[0], np.cumsum(held)])

    @cached_property
    def alloc_cores(self) -> NDArray[np.int32]:
        """Core ids of all jobs in the order of the workload, ascending within a job."""
        order = np.argsort(self.started, kind="stable")
        first = (np.cumsum(self.sizes) - self.sizes)[order]
        sizes = self.sizes[order]
        ends = np.cumsum(sizes)
        return self.cores[np.repeat(first - (ends - sizes), sizes) + np.arange(len(self.cores))]

    @cached_property
    def oversubscribed(self) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.float64]]:
        """Spans in which the demands on a processor exceeded its memory bandwidth: processors, starts and ends in s."""
        held, ran = self.usage, self.attempts
        demand = held.cores * self.workload.memory_bandwidth[ran.job[held.attempt]]
        limited = np.isfinite(self.platform.mem_bw) & ~self.platform.is_gpu
        used = np.flatnonzero((demand > 0) & limited[held.processor])
        processor, demand, attempt = held.processor[used], demand[used], held.attempt[used]
        time = np.concatenate([ran.start[attempt], ran.end[attempt]])
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
        """(E, 3) changes, in any order: date in s, cores' worth of speed lost to contention, tasks that send messages.

        Empty where jobs have no programs.
        """
        changes = self.time_breakdown.changes if self.time_breakdown is not None else ()
        return np.array(changes, np.float64).reshape(-1, 3)

    def _interval_sets(self) -> Column:
        texts = np.full(len(self.workload), "", object)
        texts[self.started] = interval_sets(self.cores, self.sizes)
        return texts

    def _consumed_energy(self) -> Column:
        """Energy of a job's own cores while it ran, J; cores that idle beside it are nobody's."""
        energy = np.full(len(self.workload), np.nan)
        ran, watts = self.attempts, self.platform.power
        if len(watts) and (watts == watts[0]).all():
            total = ran.sizes * watts[0]
        else:
            # Every started job has at least one core, so no group is empty.
            per_core = watts[self.platform.core_processor[ran.cores]]
            total = np.add.reduceat(per_core, np.cumsum(ran.sizes) - ran.sizes) if len(per_core) else np.zeros(0)
        joules = total * (ran.end - ran.start) * power.PSTATES[power.COMPUTING].power
        ended = ~np.isnan(self.finish_time)
        energy[ended] = np.bincount(ran.job, joules, len(energy))[ended]
        return energy


def _cut_short(cluster: Cluster) -> Attempts:
    """The starts after which jobs went back to the queue; those of jobs that were given up later were in vain."""
    if not cluster.interruptions:
        return Attempts.none()
    jobs, placements, starts, ends, losses = zip(*cluster.interruptions, strict=True)
    job, start, end = np.array(jobs, np.int64), np.array(starts), np.array(ends)
    lost = np.where(np.isin(job, cluster.failed_permanently), end - start, losses)
    sizes = np.array([len(placement.ids) for placement in placements], np.int64)
    cores = cluster.cores.cores_of(placements, sizes)
    return Attempts(job, start, end, sizes, cores, lost, np.ones(len(job), bool))
