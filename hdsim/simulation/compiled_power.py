"""Replays in compiled code under power management, on interchangeable cores: a constant cap, or nodes that sleep."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hdsim.cluster.node_states import NodeStates
from hdsim.cluster.power_budget import ROUNDING, SLACK, PowerBudget
from hdsim.cluster.state import FinalState
from hdsim.cluster.stores.ordered import core_sets
from hdsim.platform.node_state import NodeState
from hdsim.platform.power import CORE_SHARES
from hdsim.platform.states import StateSpans
from hdsim.power import PowerManagement
from hdsim.scheduling.agent import StockRules, stock_rules
from hdsim.scheduling.machine import loop
from hdsim.scheduling.machine.cap import CAP_STATE, Cap
from hdsim.scheduling.machine.held_ranges import make_held_ranges, with_ranges
from hdsim.scheduling.machine.power import Power
from hdsim.scheduling.machine.sleep import Sleep, make_sleep, with_events
from hdsim.simulation.compiled import CompiledCores, has_kernel, interchangeable_cores, make_replay
from hdsim.util.arrays import first_of_kind
from hdsim.util.intervals import IntervalSets

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hdsim.cluster.state import Cluster
    from hdsim.platform.model import Platform
    from hdsim.results.result import Result
    from hdsim.scheduling.machine.loop import Replay
    from hdsim.simulation.setup import ReplaySetup
    from hdsim.util.arrays import Flags, Floats, Ints
    from hdsim.workload.model import Workload

log = logging.getLogger(__name__)

#: Backfilling algorithms with a kernel under power management.
_BACKFILLS = ("none", "easy", "greedy")
#: Highest rate of nodes a minute with a kernel, beside none.
_HIGHEST_RATE = 1 << 16


def compiled_power(
    platform: Platform, workload: Workload, setup: ReplaySetup, *, kill_at_walltime: bool, batch_events: bool
) -> CompiledPower | None:
    """Returns the replay of what has been set up, None without power management or if only the engine has it.

    The log has the reason of the latter.
    """
    management = setup.power
    if management is None:
        return None
    rules, refused = stock_rules(setup.agent), setup.infeasible
    ranked = interchangeable_cores(platform, workload, setup.agent.core_policy)
    if rules is None or not has_kernel(rules) or not rules.static or rules.backfill not in _BACKFILLS:
        why = f"the agent is not static with one of {', '.join(_BACKFILLS)}"
    elif setup.contention is not None or setup.failures is not None or not batch_events:
        why = "there is contention, a failure model, or a pass for each event"
    elif ranked is None or (np.diff(ranked) >= 0).any():
        why = "cores are not interchangeable, or not taken in order"
    else:
        why = _unknown(platform, management, rules)
    if why:
        log.info("power: replayed by events, not in compiled code: %s", why)
        return None
    assert ranked is not None
    assert rules is not None
    options = {"kill_at_walltime": kill_at_walltime, "batch_events": batch_events}
    make_state = partial(_make_replay, platform, workload, rules, setup, len(ranked), **options)
    return CompiledPower(platform, workload, refused, make_state, None, ranked, management)


def _unknown(platform: Platform, management: PowerManagement, rules: StockRules) -> str:
    """Returns what of power management compiled code does not know, empty for nothing."""
    hard, sleeps = [cap for cap in management.caps if cap.hard], management.suspend_time < math.inf
    if type(management) is not PowerManagement:
        return "a policy of its own"
    if management.changes_frequencies or management.boot_failure or management.least_spare:
        return "frequencies, boots that fail or spare nodes"
    if any(_HIGHEST_RATE < rate < math.inf for rate in (management.suspend_rate, management.resume_rate)):
        return f"rates above {_HIGHEST_RATE} nodes a minute"
    if sleeps and (hard or management.suspend_time == 0 or not platform.node_cpu_cores.all()):
        return "nodes that sleep and a hard cap, without a time-out or without cores"
    if not hard:
        return ""
    on, idle = np.nan_to_num(platform.state_watts)[[NodeState.ON, NodeState.IDLE]]
    if len(hard) > 1 or not hard[0].nodes.all() or len(hard[0].times) > 1 or (on < idle).any():
        return "hard caps that are not one constant limit of the machine"
    if rules.candidates is not None or rules.commit_head or rules.estimates != "requested":
        return "a hard cap with another order of candidates, a committed head or other estimates"
    return ""


def _make_replay(
    platform: Platform,
    workload: Workload,
    rules: StockRules,
    setup: ReplaySetup,
    cores: int,
    *,
    kill_at_walltime: bool,
    batch_events: bool,
) -> Replay:
    """Returns a replay before its first event; see :func:`hdsim.simulation.compiled.make_replay`."""
    events = {"kill_at_walltime": kill_at_walltime, "batch_events": batch_events}
    replay, management, n = make_replay(workload, rules, cores, setup.infeasible, **events), setup.power, len(workload)
    assert management is not None
    of_core = platform.core_processor[~platform.is_gpu[platform.core_processor]].astype(np.int64)
    cap: Cap | None = None
    sleep: Sleep | None = None
    if management.suspend_time < math.inf:
        sleep = make_sleep(
            n,
            platform.processor_node[of_core].astype(np.int64),
            np.nan_to_num(platform.state_seconds[[NodeState.GOING_DOWN, NodeState.BOOTING]]),
            ~management.excluded,
            float(workload.submission_time[-1]),
            suspend_time=management.suspend_time,
            suspend_rate=management.suspend_rate,
            resume_rate=management.resume_rate,
        )
    elif hard := [each for each in management.caps if each.hard]:
        budget = PowerBudget(platform, hard, NodeStates(platform))
        cap = _make_cap(platform, workload, rules, budget, of_core)
    if cap is None and sleep is None:
        return replay
    return replay._replace(power=Power(make_held_ranges(n, cores), cap, sleep))


def _make_cap(platform: Platform, workload: Workload, rules: StockRules, budget: PowerBudget, of_core: Ints) -> Cap:
    """Returns a cap before the first event."""
    jobs, processors = len(workload), platform.n_processors
    held, (computing, beside, package) = np.zeros((2, max(processors, platform.n_nodes)), np.int64), CORE_SHARES
    first, of_size = first_of_kind(workload.requested_cores)
    kind = np.zeros(jobs, np.int64)
    if rules.backfill == "greedy":
        kind = first_of_kind(workload.requested_cores, workload.requested_time)[1]
    state_watts = np.nan_to_num(platform.state_watts)[[NodeState.ON, NodeState.IDLE]]
    # A node of one processor is not in use while that is not.
    count, of_node = np.bincount(platform.processor_node), state_watts[0] - state_watts[1]
    alone = count == 1
    more = np.where(alone, of_node, 0.0)[platform.processor_node]
    watts = platform.power.astype(np.float64)
    others = (watts * (computing - package) + more / platform.cores_per_processor)[~platform.is_gpu].min()
    core_watts, node_watts = watts * (computing - beside), np.where(alone, 0.0, of_node)
    wake_watts = watts * platform.cores_per_processor * (beside - package) + more
    first_core = np.searchsorted(platform.processor_node[of_core], np.arange(platform.n_nodes + 1))
    plain = (platform.node_gpus == 0) & (np.diff(first_core) > 0)
    whole = np.zeros((2, platform.n_nodes + 1))
    dearest = core_watts + wake_watts + node_watts[platform.processor_node]
    falls = np.bincount(platform.processor_node, platform.cores_per_processor * core_watts + wake_watts)
    whole[:, 1:] = np.cumsum([falls + node_watts, falls], axis=1)
    least, state = np.finfo(float).tiny, np.zeros(1, CAP_STATE).view(np.recarray)
    state.barred = state.barred_late = math.inf
    return Cap(
        state=state,
        limit=float(budget.caps[0].watts[0]) * (1 + ROUNDING),
        slack=SLACK * budget.highest,
        rounding=1 + ROUNDING,
        cheapest=max(float(watts[~platform.is_gpu].min() * (computing - beside)), least),
        others=max(float(others), least),
        dearest=float(dearest[~platform.is_gpu].max()),
        several=bool(node_watts.any()),
        least=max(budget.least, least),
        shares=CORE_SHARES.copy(),
        processor=of_core.copy(),
        first=np.searchsorted(of_core, np.arange(processors + 1)),
        cores=platform.cores_per_processor.astype(np.int64),
        node=platform.processor_node.astype(np.int64),
        processors=count,
        of_node=first_core,
        alike=_last_of_run(plain),
        whole=whole,
        watts=watts,
        core_watts=core_watts,
        wake_watts=wake_watts,
        node_watts=node_watts,
        state_watts=state_watts,
        head_watts=np.array([budget.job_watts(size) for size in workload.requested_cores[first].tolist()])[of_size],
        least_watts=np.zeros(jobs),
        kind=kind,
        refused=np.full(kind.max(initial=0) + 1, -1),
        held=held,
        then=held.copy(),
        space=held.copy(),
    )


def _last_of_run(flags: Flags) -> Ints:
    """Returns the (N,) last place of the run of flags that each place is in, the one before for a place without."""
    places = np.arange(len(flags))
    behind = np.where(flags, len(flags), places)
    return np.minimum.accumulate(behind[::-1])[::-1] - 1


@dataclass(eq=False, repr=False)
class CompiledPower(CompiledCores):
    """A replay on interchangeable cores under power management."""

    engine: ClassVar[Mapping[str, str]] = {"cores": "SleepingCores", "mode": "compiled", "executor": "none"}

    management: PowerManagement

    def _advance(self, instants: int) -> int:
        told = super()._advance(instants)
        if told == loop.FULL:
            power = self._state.power
            assert power is not None
            ranges, sleep = power.ranges, power.sleep
            sleep = None if sleep is None else with_events(sleep)
            self._state = self._state._replace(power=power._replace(ranges=with_ranges(ranges), sleep=sleep))
        return told

    @property
    def _sleep(self) -> Sleep | None:
        return None if self._state.power is None else self._state.power.sleep

    @property
    def _starting(self) -> Flags:
        """(J,) jobs that wait for nodes."""
        sleep = self._sleep
        return np.zeros(len(self.workload), bool) if sleep is None else sleep.missing > 0

    def _columns(self) -> tuple[Floats, Floats, Flags]:
        begin, finish, killed = super()._columns()
        return np.where(self._starting, math.nan, begin), finish, killed

    def _held(self) -> tuple[Ints, IntervalSets]:
        power = self._state.power
        if power is None:
            return super()._held()
        ranges, machine = power.ranges, self._state.machine
        log = machine.log[: machine.clock[0].events]
        started = log[log >= 0]
        begin, counts = ranges.begin[started], ranges.end[started] - ranges.begin[started]
        if self._sleep is None:
            rows: Any = slice(int(counts.sum()))
        else:
            # Jobs begin in another order than their starts were requested.
            rows = np.repeat(begin - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
        return started, core_sets(self.ranked, counts, ranges.first[rows], ranges.last[rows])

    def _final_states(self) -> NDArray[np.int8]:
        return np.where(self._starting, np.int8(FinalState.STARTING), super()._final_states())

    def _spans(self, now: float | None = None) -> StateSpans:
        """Stays of nodes in states that are over, and those until now, in seconds."""
        sleep = self._sleep
        if sleep is None:
            return StateSpans.of([])
        rows = sleep.spans[:, : sleep.state[0].spans]
        if now is not None:
            away = np.flatnonzero(sleep.node_state != NodeState.ON)
            present = [away, sleep.node_state[away], sleep.since[away], np.full(len(away), now)]
            rows = np.concatenate([rows, np.array(present, np.float64)], axis=1)
        return StateSpans(rows[0].astype(np.int64), rows[1].astype(np.int64), rows[2].copy(), rows[3].copy())

    def result(self, *, interrupted: bool, **others: Any) -> Result:
        """See :meth:`CompiledReplay.result`."""
        more = {"caps": self.management.caps, "node_states": self._spans(self.now)}
        result = super().result(interrupted=interrupted, **more, **others)
        assert result.node_states is not None
        result.node_states = result.node_states.until(result.end_time)
        return result

    def fill(self, cluster: Cluster) -> None:
        """See :meth:`CompiledReplay.fill`."""
        super().fill(cluster)
        sleep, states = self._sleep, cluster.node_states
        if sleep is not None:
            assert states is not None
            spans = self._spans()
            rows = zip(*(column.tolist() for column in (spans.node, spans.state, spans.begin, spans.end)), strict=True)
            states.assume(sleep.node_state, sleep.ready, sleep.since, list(rows))
