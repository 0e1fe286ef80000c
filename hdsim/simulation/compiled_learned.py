"""Replays of the order ``learned`` in compiled code, on interchangeable cores whose jobs nothing slows down."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.stores.ordered import core_sets
from hdsim.kernels import counted_replay, scored_replay
from hdsim.kernels.free_ranges import make_free_ranges
from hdsim.kernels.heap import make_heap
from hdsim.kernels.profiles import make_releases
from hdsim.kernels.scored_replay import ScoredReplay
from hdsim.scheduling.agent import stock_rules
from hdsim.scheduling.learned import columns_of, read_weights
from hdsim.simulation.compiled import CompiledReplay, interchangeable_cores

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hdsim.platform.model import Platform
    from hdsim.simulation.setup import Setup
    from hdsim.util.arrays import Floats, Ints
    from hdsim.util.intervals import IntervalSets
    from hdsim.workload.model import Workload

_BACKFILLS = {
    "none": counted_replay.NONE,
    "easy": counted_replay.EASY,
    "rlscheduler": counted_replay.RLSCHEDULER,
}


def compiled_learned(
    platform: Platform, workload: Workload, setup: Setup, *, kill_at_walltime: bool, batch_events: bool
) -> CompiledLearned | None:
    """Returns the replay of what has been set up, None for another order and where only the engine can replay it."""
    rules, refused = stock_rules(setup.agent), setup.infeasible
    if rules is None or rules.order.network is None or rules.candidates is not None:
        return None
    if rules.estimates != "requested" or rules.backfill not in _BACKFILLS:
        return None
    if setup.contention is not None or setup.failures is not None:
        return None
    ranked = interchangeable_cores(platform, workload, setup.agent.core_policy)
    if ranked is None:
        return None
    weights, backfill = read_weights(rules.order.network), _BACKFILLS[rules.backfill]
    options = {"kill_at_walltime": kill_at_walltime, "batch_events": batch_events, "commit": rules.commit_head}
    make_state = partial(make_replay, workload, weights, len(ranked), refused, backfill=backfill, **options)
    return CompiledLearned(platform, workload, ranked, refused, make_state)


def make_replay(
    workload: Workload,
    weights: Floats,
    cores: int,
    infeasible: Ints,
    *,
    backfill: int,
    commit: bool,
    kill_at_walltime: bool = False,
    batch_events: bool = True,
) -> ScoredReplay:
    """Returns a replay before its first event.

    Args:
        workload: The jobs.
        weights: The network.
        cores: Number of cores.
        infeasible: Jobs that are rejected.
        backfill: ``NONE``, ``EASY`` or ``RLSCHEDULER`` of :mod:`hdsim.kernels.counted_replay`.
        commit: A head stays the head until it starts.
        kill_at_walltime: Kill jobs at their walltime.
        batch_events: One scheduling pass per instant; otherwise one per event, arrivals first.
    """
    jobs, seen = len(workload), columns_of(workload)
    running = min(jobs, cores) + 1
    return ScoredReplay(
        rules=np.array([backfill, commit, batch_events, cores]),
        weights=weights,
        arriving=np.delete(np.arange(jobs), infeasible),
        submission=seen.submission,
        runtime=workload.runtime.copy(),
        requested=seen.requested,
        walltime=workload.walltime.copy() if kill_at_walltime else np.full(jobs, math.inf),
        ends_in_delay=workload.ends_in_delay.copy() if kill_at_walltime else np.zeros(jobs, bool),
        size=seen.size,
        sums=seen.sums,
        numbers=np.array([0, 0, 0, -1, -1, cores, 0]),
        dates=np.zeros(3),
        starting_time=np.full(jobs, math.nan),
        finish_time=np.full(jobs, math.nan),
        killed=np.zeros(jobs, bool),
        queue=np.zeros(jobs + 1, np.int64),
        score=np.zeros(jobs + 1),
        started=np.zeros(jobs, np.int64),
        changes=np.zeros(2 * jobs, np.int64),
        ends=make_heap(running),
        releases=make_releases(running),
    )


class CompiledLearned(CompiledReplay[ScoredReplay]):
    """A replay on interchangeable cores.

    Args:
        platform: The platform.
        workload: The jobs.
        ranked: (C,) cores by ascending preference.
        infeasible: Jobs that are rejected.
        make_state: Makes the replay before its first event.
    """

    engine: ClassVar[Mapping[str, str]] = {"cores": "OrderedCores", "mode": "compiled", "executor": "none"}

    def __init__(
        self,
        platform: Platform,
        workload: Workload,
        ranked: NDArray[np.int32],
        infeasible: Ints,
        make_state: Callable[[], ScoredReplay],
    ) -> None:
        super().__init__(platform, workload, infeasible, make_state)
        self._ranked = ranked

    def _advance(self, instants: int) -> bool:
        return bool(scored_replay.scored_replay(self._state, instants) == counted_replay.OVER)

    def _columns(self) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        return self._state.starting_time, self._state.finish_time, self._state.killed

    def _held(self) -> tuple[Ints, IntervalSets]:
        numbers, cores, ranges = self._state.numbers, len(self._ranked), 2 * len(self._workload) + len(self._ranked)
        started = self._state.started[: numbers[scored_replay.STARTED]]
        changes, size = self._state.changes[: numbers[scored_replay.CHANGES]], self._state.size[started]
        done = False
        while not done:
            held, first, last = (
                np.zeros(len(started) + 1, np.int64),
                np.zeros(ranges, np.int32),
                np.zeros(ranges, np.int32),
            )
            done = scored_replay.hold_cores(changes, size, held, first, last, make_free_ranges(cores))
            ranges *= 2
        return started, core_sets(self._ranked, np.diff(held), first[: held[-1]], last[: held[-1]])
