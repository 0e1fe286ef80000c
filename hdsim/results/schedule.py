"""Schedules: starts, ends, states and cores of all jobs as plain columns, from which all results derive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.state import FinalState
from hdsim.failures import Outages
from hdsim.platform.states import Cap, StateSpans
from hdsim.results.segments import Segments
from hdsim.util.arrays import Floats, Ints, objects
from hdsim.util.intervals import IntervalSets

if TYPE_CHECKING:
    from hdsim.cluster.job_state import FailedStart
    from hdsim.cluster.state import Cluster
    from hdsim.cluster.time_breakdown import TimeBreakdown
    from hdsim.facility.model import Facility
    from hdsim.gangs.simulation import GangRun
    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload


#: Placements whose core ids are listed at a time.
_BLOCK = 1 << 15


@dataclass(kw_only=True, eq=False)
class Schedule:
    """The starts, ends, states and cores of all jobs.

    Attributes of :class:`hdsim.results.replay.FullReplay` are documented there. `end_time` is the last finish, or the
    moment of the interruption if the replay was `interrupted`.
    """

    platform: Platform
    workload: Workload
    starting_time: Floats
    finish_time: Floats
    state: NDArray[np.int8]
    end_time: float
    latest: Segments
    earlier: Segments
    failed_permanently: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    failed_starts: tuple[FailedStart, ...] = ()
    outages: Outages | None = None
    node_states: StateSpans | None = None
    caps: tuple[Cap, ...] = ()
    facility: Facility | None = None
    time_breakdown: TimeBreakdown | None = None
    gangs: Mapping[int, GangRun] = field(default_factory=dict)
    interrupted: bool = False
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    earlier_runs: Mapping[tuple[int, int], Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def once(
        cls,
        platform: Platform,
        workload: Workload,
        starting_time: Floats,
        finish_time: Floats,
        state: NDArray[np.int8],
        started: Ints,
        held: IntervalSets,
        *,
        interrupted_at: float | None = None,
        **others: Any,
    ) -> Self:
        """Makes the schedule of jobs that were started once and never resized.

        The jobs `started`, (A,) in order of their starts, hold the core ids `held`. The replay was interrupted at a
        time in seconds, or not at all. All other arguments are attributes.
        """
        end_time = float(np.nanmax(finish_time, initial=0.0)) if interrupted_at is None else interrupted_at
        finish = finish_time[started]
        end = np.where(np.isnan(finish), end_time, finish)
        return cls(
            platform=platform,
            workload=workload,
            starting_time=starting_time,
            finish_time=finish_time,
            state=state,
            end_time=end_time,
            latest=Segments.once(platform, started, starting_time[started], end, held),
            earlier=Segments.none(platform),
            interrupted=interrupted_at is not None,
            **others,
        )

    @classmethod
    def of(cls, cluster: Cluster, *, interrupted: bool, **others: Any) -> Self:
        """Makes the schedule from the state at the end of a replay; further arguments are attributes."""
        starting_time, finish_time = np.array(cluster.starting_time), np.array(cluster.finish_time)
        state = np.array(cluster.state, np.int8)
        earlier = _earlier(cluster)
        finish = finish_time[~np.isnan(finish_time)]
        last = max(float(finish.max(initial=0.0)), float(earlier.end.max(initial=0.0)))
        end_time = cluster.now if interrupted else last
        busy_until = np.where(np.isnan(finish_time), end_time, finish_time)
        done, states = FinalState.COMPLETED_SUCCESSFULLY, cluster.node_states
        return cls(
            platform=cluster.platform,
            workload=cluster.workload,
            starting_time=starting_time,
            finish_time=finish_time,
            state=state,
            end_time=end_time,
            latest=_latest(cluster, starting_time, busy_until),
            earlier=earlier,
            failed_permanently=np.array(cluster.failed_permanently, np.int64),
            failed_starts=tuple(cluster.failed_starts),
            outages=Outages.of(cluster.outages).begun_before(end_time) if cluster.nodes_fail else None,
            node_states=None if states is None else StateSpans.of(states.all_spans(cluster.now)).until(end_time),
            caps=cluster.caps,
            time_breakdown=cluster.time_breakdown,
            gangs={job: running.run(complete=state[job] == done) for job, running in cluster.gangs.items()},
            interrupted=interrupted,
            columns={
                name: column if isinstance(column, np.ndarray) else objects(column)
                for name, column in cluster.columns.items()
            },
            earlier_runs=dict(cluster.earlier_runs),
            **others,
        )


def _latest(cluster: Cluster, starting_time: Floats, busy_until: Floats) -> Segments:
    """The last segment of every job that has started, in order of the starts.

    `busy_until` has the end of each job in seconds, of one that still runs the end of the period.
    """
    placements = cluster.allocations.placements
    job = np.fromiter(placements, np.int64, len(placements))
    held, amounts = _held(cluster, list(placements.values()))
    ghz = np.full(len(busy_until), np.nan)
    begin, speed, attempt = starting_time.copy(), np.ones(len(busy_until)), np.zeros(len(busy_until), np.int64)
    for values, known in (
        (begin, cluster.allocations.begin),
        (speed, cluster.allocations.speed),
        (attempt, cluster.allocations.restarts),
        (ghz, cluster.allocations.frequency),
    ):
        values[list(known)] = list(known.values())
    begin, end = begin[job], busy_until[job]
    # A job that is suspended holds nothing since then.
    end = np.where(np.isin(job, list(cluster.suspended)), begin, end)
    # All running of a job that has failed permanently is lost.
    lost = np.where(np.isin(job, cluster.failed_permanently), end - begin, 0.0)
    never, ghz = np.zeros(len(job), bool), ghz[job]
    of_rows = attempt[job], begin, end, held, speed[job], lost, never, amounts, None if np.isnan(ghz).all() else ghz
    return Segments(cluster.platform, job, *of_rows)


def _earlier(cluster: Cluster) -> Segments:
    """The segments that a resize, a change of speed or frequency or a failure has ended, in order of their ends."""
    if not cluster.allocations.closed:
        return Segments.none(cluster.platform)
    job, attempt, placements, begin, end, speed, lost, requeued, frequency = (
        list(column) for column in zip(*cluster.allocations.closed, strict=True)
    )
    held, amounts = _held(cluster, placements)
    ghz = np.array(frequency)
    segments = Segments(
        cluster.platform,
        np.array(job, np.int64),
        np.array(attempt, np.int64),
        np.array(begin),
        np.array(end),
        held,
        np.array(speed),
        np.array(lost),
        np.array(requeued),
        amounts,
        None if np.isnan(ghz).all() else ghz,
    ).with_losses_spread()
    failed = np.isin(segments.job, cluster.failed_permanently)
    return replace(segments, lost=np.where(failed, segments.end - segments.begin, segments.lost))


def _held(cluster: Cluster, placements: list[Any]) -> tuple[IntervalSets, NDArray[np.object_] | None]:
    """The core ids of placements, or their amounts of nodes where cores have no ids."""
    if cluster.has_core_ids:
        blocks = [IntervalSets.empty()]
        for begin in range(0, len(placements), _BLOCK):
            some = placements[begin : begin + _BLOCK]
            sizes = np.array([len(placement) for placement in some], np.int64)
            blocks.append(IntervalSets.of(cluster.cores.cores_of(some, sizes), sizes))
        return IntervalSets.concatenate(blocks), None
    return IntervalSets.empty(len(placements)), objects(placements)
