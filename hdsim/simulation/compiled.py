"""Replays in compiled code: a stock agent on interchangeable cores whose jobs nothing slows down.

The schedule is that of the engine, core by core, which tests verify, at about a hundred times its speed.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.job_state import ReadOnlyList
from hdsim.cluster.kernels.free_ranges import FreeRanges, make_free_ranges, placements
from hdsim.cluster.requests import Requests
from hdsim.cluster.selection import static_scores
from hdsim.cluster.state import FinalState, completed
from hdsim.cluster.stores.ordered import core_sets, preference
from hdsim.kernels.heap import make_heap
from hdsim.platform.schema import CORES
from hdsim.results.moment import Moment
from hdsim.results.result import Result
from hdsim.scheduling.agent import StockRules, stock_rules
from hdsim.scheduling.kernels.profiles import make_profile
from hdsim.scheduling.machine import loop
from hdsim.scheduling.machine.loop import Replay
from hdsim.scheduling.machine.queue_tree import make_queue_tree
from hdsim.scheduling.machine.ranked_queue import Plan, RankedQueue
from hdsim.scheduling.machine.state import JobColumns, make_machine
from hdsim.scheduling.queue import ranking
from hdsim.scheduling.rules import HEAD_ALONE, NUMBERS, PLANNED, Backfilling
from hdsim.util.arrays import Flags, Floats, Ints
from hdsim.util.intervals import IntervalSets

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster
    from hdsim.platform.model import Platform
    from hdsim.scheduling.learned import order as learned
    from hdsim.simulation.setup import ReplaySetup
    from hdsim.simulation.terminal import ReplayBar
    from hdsim.workload.model import Workload

#: Instants between two checks for signals.
_INSTANTS = 4096


def compiled_cores(
    platform: Platform, workload: Workload, setup: ReplaySetup, *, kill_at_walltime: bool, batch_events: bool
) -> CompiledCores | None:
    """Returns the replay of what has been set up, None if cores are not interchangeable or there is contention."""
    rules, refused = stock_rules(setup.agent), setup.infeasible
    plain = setup.contention is None and setup.failures is None and setup.power is None
    if rules is None or not has_kernel(rules) or not plain:
        return None
    ranked = interchangeable_cores(platform, workload, setup.agent.core_policy)
    if ranked is None:
        return None
    options = {"kill_at_walltime": kill_at_walltime, "batch_events": batch_events}
    make_state = partial(make_replay, workload, rules, len(ranked), refused, **options)
    return CompiledCores(platform, workload, refused, make_state, make_checks(rules, len(ranked)), ranked)


def has_kernel(rules: StockRules) -> bool:
    """Returns whether compiled code knows the rules, where cores are interchangeable."""
    plain = rules.candidates is None and rules.estimates == "requested"
    if rules.backfill == "hybrid" and rules.candidates is not None:
        return False
    scored = rules.order.network is not None and rules.backfill not in ("conservative", "hybrid")
    return rules.static or (scored and plain)


def has_plain_jobs(platform: Platform, jobs: Workload) -> bool:
    """Returns whether jobs are rigid and ask for whole cores with ids, and perhaps for memory and GPUs."""
    special = jobs.has_programs or jobs.has_gangs or jobs.has_constraints or jobs.storage.any()
    return platform.kind == CORES and not special and bool((jobs.cpu == 1).all())


def interchangeable_cores(platform: Platform, workload: Workload, core_policy: str) -> NDArray[np.int32] | None:
    """Returns the cores by ascending preference if they are interchangeable and chosen in a static order, else None."""
    jobs = workload
    limited = jobs.asks_for_gpus or (np.isfinite(platform.memory).any() and (jobs.memory > 0).any())
    if limited or not platform.homogeneous_speed or not has_plain_jobs(platform, jobs):
        return None
    bandwidth = ReadOnlyList([1.0] if jobs.memory_bandwidth.any() else [])
    scores = static_scores(platform, Requests([], ReadOnlyList(), bandwidth), [core_policy])
    return preference(scores[core_policy], platform) if core_policy in scores else None


def make_replay(
    workload: Workload,
    rules: StockRules,
    cores: int,
    infeasible: Ints,
    *,
    kill_at_walltime: bool = False,
    batch_events: bool = True,
    on_nodes: bool = False,
) -> Replay:
    """Returns a replay before its first event.

    Args:
        workload: The jobs.
        rules: Static orders or a network, and backfilling; see :func:`has_kernel`.
        cores: Number of cores.
        infeasible: Jobs that are rejected.
        kill_at_walltime: Kill jobs at their walltime.
        batch_events: One scheduling pass per instant; otherwise one per event, arrivals first.
        on_nodes: There will be nodes, which have candidates and reservations of their own.
    """
    jobs, backfill = len(workload), NUMBERS[rules.backfill]
    # The type of read-only arrays is another one.
    walltime = workload.walltime.copy() if kill_at_walltime else np.zeros(0)
    ends_in_delay = workload.ends_in_delay.copy() if kill_at_walltime else np.zeros(0, bool)
    if not rules.static:
        from hdsim.scheduling.learned import order as learned

        return learned.make_replay(
            learned.columns_of(workload),
            workload.runtime.copy(),
            learned.read_networks(str(rules.order.network), backfill, rules.commit_head),
            cores,
            infeasible,
            walltime=walltime,
            ends_in_delay=ends_in_delay,
            batch_events=batch_events,
            backfill=backfill,
            commit=rules.commit_head,
        )
    workload = rules.known(workload)
    rank, candidate = ranking(workload, rules.order)
    place = rank
    if backfill == Backfilling.RLSCHEDULER:
        place = candidate = np.arange(jobs)
    elif rules.candidates is not None:
        place, candidate = ranking(workload, rules.candidates)
    columns = JobColumns(
        arrival=workload.submission_time.copy(),
        runtime=workload.runtime.copy(),
        requested=workload.requested_time.copy(),
        walltime=walltime,
        ends_in_delay=ends_in_delay,
        size=workload.requested_cores.copy(),
    )
    made = make_machine(
        columns,
        infeasible,
        backfill=backfill,
        commit=rules.commit_head,
        batch=batch_events,
        cores=cores,
        releases=backfill not in (Backfilling.NONE, Backfilling.GREEDY),
        depth=rules.depth,
    )
    waiting = make_heap(jobs if backfill in HEAD_ALONE else 0)
    tree, plan = make_queue_tree(0 if on_nodes or backfill == Backfilling.NONE else jobs), None
    if backfill in PLANNED and not on_nodes:
        plan = Plan(make_profile(jobs + 2), make_heap(jobs))
    return Replay(made, RankedQueue(rank, place, candidate, waiting, tree), None, plan)


def make_checks(rules: StockRules, cores: int) -> learned.Checks | None:
    """Returns the checks of a replay under a network, None for another order."""
    if rules.order.network is None:
        return None
    from hdsim.scheduling.learned import order as learned

    rule = NUMBERS[rules.backfill], rules.commit_head
    return learned.Checks(learned.read_networks(rules.order.network, *rule), cores, *rule)


def advance(replay: Replay, checks: learned.Checks | None, instants: int) -> int:
    """Simulates at most a number of instants, fewer if the past is checked; returns a result of the machine."""
    told = loop.advance(replay, instants)
    if told == loop.CHECK:
        assert checks is not None
        checks.check(replay)
    return int(told)


@dataclass(eq=False, repr=False)
class CompiledReplay(ABC):
    """A replay in compiled code that ends, pauses and leaves its result."""

    engine: ClassVar[Mapping[str, str]]  # parts of the engine in use, see ``Result.engine``

    platform: Platform
    workload: Workload
    infeasible: Ints  # jobs that are rejected
    make_state: Callable[[], Replay]  # makes the replay before its first event
    checks: learned.Checks | None  # the checks of its past, which networks ask for
    # Jobs that were submitted until then have arrived.
    _until: float = field(default=0.0, init=False)

    @cached_property
    def _state(self) -> Replay:
        return self.make_state()

    @property
    def now(self) -> float:
        """Time of the last instant in seconds."""
        return float(self._state.machine.clock[0].now)

    def _advance(self, instants: int) -> int:
        """Simulates at most a number of instants; returns a result of the machine."""
        return advance(self._state, self.checks, instants)

    def _columns(self) -> tuple[Floats, Floats, Flags]:
        """(J,) start and finish in seconds, NaN where there is none, and whether a job is killed at its walltime."""
        state = self._state.machine
        return state.starting_time, state.finish_time, state.killed

    @abstractmethod
    def _held(self) -> tuple[Ints, IntervalSets]:
        """Returns the jobs in order of their starts and the core ids of each."""

    def run(self, stop: Sequence[int], bar: ReplayBar) -> None:
        """Simulates to the end, or until there is a signal in `stop`."""
        while not stop:
            over = self._advance(_INSTANTS) == loop.OVER
            self._until = math.inf if over else self.now
            if over:
                return
            bar.update(int(np.count_nonzero(~np.isnan(self._columns()[1]))), self.now, self._moment)

    def _moment(self) -> Moment:
        begin, finish, _ = self._columns()
        ended, running = ~np.isnan(finish), ~np.isnan(begin) & np.isnan(finish)
        arrived = self.workload.submission_time <= self.now
        arrived[self.infeasible] = False
        done, count = int(ended.sum()), int(running.sum())
        cores = float(self.workload.requested_cores[running].sum())
        return Moment(self.now, done, int(arrived.sum()) - done - count, count, cores)

    def result(self, *, interrupted: bool, **others: Any) -> Result:
        """Returns what the replay leaves; `others` are further attributes of the result."""
        begin, finish, _ = self._columns()
        return Result.once(
            self.platform,
            self.workload,
            begin,
            finish,
            self._final_states(),
            *self._held(),
            interrupted_at=self.now if interrupted else None,
            **others,
        )

    def fill(self, cluster: Cluster) -> None:
        """Gives a cluster that nothing has happened to the state at the end."""
        final, (begin, finish, _) = self._final_states(), self._columns()
        cluster.now = self.now
        cluster.starting_time, cluster.finish_time = ReadOnlyList(begin.tolist()), ReadOnlyList(finish.tolist())
        cluster.state = ReadOnlyList(final.tolist())
        cluster.arrived = int((final != FinalState.NOT_SUBMITTED).sum())
        cluster.queue.fill(dict.fromkeys(np.flatnonzero(final == FinalState.QUEUED).tolist()))
        started, held = self._held()
        ids = np.split(held.ids.astype(np.int64), np.cumsum(held.sizes)[:-1])
        for job, cores in zip(started.tolist(), ids, strict=False):
            cluster.placements[job] = cluster.cores.placement_of(cores)
        for job in np.flatnonzero(final == FinalState.RUNNING).tolist():
            cluster.running.write(job, cluster.placements[job])
            cluster.cores.allocate(job, cluster.placements[job])

    def _final_states(self) -> NDArray[np.int8]:
        """(J,) states."""
        refused, (begin, finish, killed) = self.infeasible, self._columns()
        finals = completed(self.workload)
        finals[killed] = FinalState.COMPLETED_WALLTIME_REACHED
        arrived = self.workload.submission_time <= self._until
        final = np.where(arrived, FinalState.QUEUED, FinalState.NOT_SUBMITTED).astype(np.int8)
        final[refused[arrived[refused]]] = FinalState.REJECTED
        final[~np.isnan(begin)] = FinalState.RUNNING
        ended = ~np.isnan(finish)
        final[ended] = finals[ended]
        return final


@dataclass(eq=False, repr=False)
class CompiledCores(CompiledReplay):
    """A replay on interchangeable cores."""

    engine: ClassVar[Mapping[str, str]] = {"cores": "OrderedCores", "mode": "compiled", "executor": "none"}

    ranked: NDArray[np.int32]  # (C,) cores by ascending preference

    def _begin(self, held: Ints, first: NDArray[np.int32], last: NDArray[np.int32]) -> tuple[FreeRanges, int]:
        """Returns the idle ranks before the first event and the number of running jobs, whose ranges it fills in.

        See :func:`hdsim.cluster.kernels.free_ranges.placements` for the arguments.
        """
        return make_free_ranges(len(self.ranked)), 0

    def _held(self) -> tuple[Ints, IntervalSets]:
        state, jobs = self._state.machine, len(self.workload)
        number, started, held = np.empty(jobs, np.int64), np.empty(jobs, np.int64), np.zeros(jobs + 1, np.int64)
        log, space, starts = state.log[: state.clock[0].events], 2 * jobs + len(self.ranked), -1
        while starts < 0:
            first, last = np.empty((2, space), np.int32)
            idle, running = self._begin(held, first, last)
            starts = placements(log, state.jobs.size, idle, running, number, started, held, first, last)
            space *= 2
        ranges, counts = slice(held[starts]), np.diff(held[: starts + 1])
        return started[:starts], core_sets(self.ranked, counts, first[ranges], last[ranges])
