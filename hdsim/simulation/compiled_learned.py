"""Replays of the order ``learned`` in compiled code, on interchangeable cores whose jobs nothing slows down."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.stores.ordered import core_sets
from hdsim.kernels import counted_replay, scored_replay
from hdsim.kernels.free_ranges import make_free_ranges
from hdsim.kernels.rules import HEAD_ALONE_NUMBERS
from hdsim.kernels.scored_replay import ScoredReplay
from hdsim.scheduling.agent import stock_rules
from hdsim.scheduling.learned import Checks, columns_of, make_replay, read_networks
from hdsim.simulation.compiled import CompiledReplay, interchangeable_cores

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hdsim.platform.model import Platform
    from hdsim.scheduling.agent import StockRules
    from hdsim.simulation.setup import Setup
    from hdsim.util.arrays import Floats, Ints
    from hdsim.util.intervals import IntervalSets
    from hdsim.workload.model import Workload


def compiled_learned(
    platform: Platform, workload: Workload, setup: Setup, *, kill_at_walltime: bool, batch_events: bool
) -> CompiledLearned | None:
    """Returns the replay of what has been set up, None for another order and where only the engine can replay it."""
    rules, refused = stock_rules(setup.agent), setup.infeasible
    if rules is None or not is_compiled(rules) or setup.contention is not None or setup.failures is not None:
        return None
    ranked = interchangeable_cores(platform, workload, setup.agent.core_policy)
    if ranked is None:
        return None
    options = {"kill_at_walltime": kill_at_walltime, "batch_events": batch_events}
    make_state = partial(make_learned, workload, rules, len(ranked), refused, **options)
    return CompiledLearned(platform, workload, ranked, refused, make_state, make_checks(rules, len(ranked)))


def is_compiled(rules: StockRules) -> bool:
    """Returns whether compiled code knows the rules, where cores are interchangeable."""
    plain = rules.candidates is None and rules.estimates == "requested"
    return rules.order.network is not None and plain and rules.backfill in HEAD_ALONE_NUMBERS


def make_learned(
    workload: Workload,
    rules: StockRules,
    cores: int,
    infeasible: Ints,
    *,
    kill_at_walltime: bool = False,
    batch_events: bool = True,
) -> ScoredReplay:
    """Returns a replay before its first event; see :func:`hdsim.simulation.compiled.make_replay`."""
    walltime, delay = (workload.walltime.copy(), workload.ends_in_delay.copy()) if kill_at_walltime else (None, None)
    return make_replay(
        columns_of(workload), workload.runtime.copy(), read_networks(str(rules.order.network)), cores, infeasible,
        walltime=walltime, ends_in_delay=delay, batch_events=batch_events,
        backfill=HEAD_ALONE_NUMBERS[rules.backfill], commit=rules.commit_head,
    )  # fmt: skip


def make_checks(rules: StockRules, cores: int) -> Checks:
    """Returns the checks of a replay."""
    networks = read_networks(str(rules.order.network))
    return Checks(networks, cores, HEAD_ALONE_NUMBERS[rules.backfill], rules.commit_head)


def advance(checks: Checks, state: ScoredReplay, instants: int) -> tuple[ScoredReplay, bool]:
    """Simulates at most a number of instants, fewer if the past is checked; returns the state, and True at the end."""
    told = scored_replay.scored_replay(state, instants)
    if told == scored_replay.CHECK:
        checks.check(state)
    return state, bool(told == counted_replay.OVER)


class CompiledLearned(CompiledReplay[ScoredReplay]):
    """A replay on interchangeable cores.

    Args:
        platform: The platform.
        workload: The jobs.
        ranked: (C,) cores by ascending preference.
        infeasible: Jobs that are rejected.
        make_state: Makes the replay before its first event.
        checks: The checks of its past.
    """

    engine: ClassVar[Mapping[str, str]] = {"cores": "OrderedCores", "mode": "compiled", "executor": "none"}

    def __init__(
        self,
        platform: Platform,
        workload: Workload,
        ranked: NDArray[np.int32],
        infeasible: Ints,
        make_state: Callable[[], ScoredReplay],
        checks: Checks,
    ) -> None:
        super().__init__(platform, workload, infeasible, make_state)
        self._ranked, self._checks = ranked, checks

    def _advance(self, instants: int) -> bool:
        self._state, over = advance(self._checks, self._state, instants)
        return over

    def _columns(self) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        return self._state.starting_time, self._state.finish_time, self._state.killed

    def _held(self) -> tuple[Ints, IntervalSets]:
        numbers, cores, ranges = self._state.numbers, len(self._ranked), 2 * len(self._workload) + len(self._ranked)
        started = self._state.started[: numbers[counted_replay.STARTED]]
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
