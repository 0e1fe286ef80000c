"""Hard caps on the power of a cluster: what its nodes are committed to, and what may start beside that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.cluster.kernels.power import (
    added_cores,
    busy_at,
    committed_watts,
    core_costs,
    first_below,
    further_watts,
    most_cores,
    with_job,
    without_job,
)
from hdsim.errors import ConfigError
from hdsim.platform.node_state import NodeState
from hdsim.platform.power import COMPUTING, CORE_SHARES, IDLE_PACKAGE, IDLE_POWER, PSTATES, node_power
from hdsim.platform.schema import GPU
from hdsim.util.arrays import distinct, read_only
from hdsim.util.copies import with_own_containers

if TYPE_CHECKING:
    from hdsim.cluster.node_states import NodeStates
    from hdsim.platform.model import Platform
    from hdsim.platform.states import Cap
    from hdsim.util.arrays import Flags, Floats, Ints

#: Relative rounding of sums of watts.
ROUNDING = 1e-12
#: Share of the highest power of the machine by which a bound is looser.
SLACK = 1e-9
#: Changes after which running sums are taken anew.
_RENEWAL = 1 << 12


def refuse_hard_caps(budget: PowerBudget | None, name: str) -> None:
    """Refuses hard caps for an agent that plans without them.

    Args:
        budget: That of the cluster, None without hard caps.
        name: Name of the agent or action.

    Raises:
        ConfigError: There is a hard cap.
    """
    if budget is not None:
        raise ConfigError(
            f"expected no hard cap with {name}, which plans without it (power.cap_kind=soft measures it)",
            where="power.cap",
        )


class PowerBudget:
    """The power that nodes may draw at most from now on, and hard caps on it.

    Cores that a job holds count as computing, also while it waits for its nodes, until its expected end; a job that has
    exceeded that counts as running to the end. A node that changes its state counts with the highest power until it is
    up; a node that is down, and at later times one that is off, counts as up and idle.

    Attributes:
        caps: The caps.
        only_nominal: Whether all queued jobs start at the nominal frequency, for which there are closer bounds.
        least: Least W that a busy core adds: beside another one of its processor.
        highest: W of all nodes, whatever they do, at most.
        can_boot: (N,) whether each node can boot beside idle ones under the lowest values of its caps.

    Args:
        platform: The platform.
        caps: Hard caps.
        states: Power states of the nodes.
    """

    __deepcopy__ = with_own_containers

    def __init__(self, platform: Platform, caps: Sequence[Cap], states: NodeStates) -> None:
        self.caps = tuple(caps)
        self._platform, self._states, self.only_nominal = platform, states, True
        # Whether no cap ever changes; those of the whole machine.
        self.steady = all(len(cap.times) == 1 for cap in self.caps)
        self._whole = [cap for cap in self.caps if cap.nodes.all()]
        self._watts: Floats = np.nan_to_num(platform.state_watts)
        self._owner = platform.core_processor
        self.can_boot = self._bootable()
        self.least = float(platform.power.min()) * (PSTATES[COMPUTING].power - float(IDLE_POWER[1]))
        self._frequencies = platform.frequencies
        # The same at the frequency that draws least.
        self._cheapest = self.least
        if self._frequencies is not None:
            more = self._frequencies.more.min(axis=0)[platform.processor_type]
            busy = platform.power * (PSTATES[COMPUTING].power - float(IDLE_POWER[1])) + more
            self._cheapest = float(busy.min())
        self.highest = float((platform.power * platform.cores_per_processor).sum() + self._watts.max(axis=0).sum())
        # Of the processors that draw most the cores and their watts; cores of the largest node; watts of a node in use.
        most, in_use = int(np.argmax(platform.power)), self._watts[NodeState.ON] - self._watts[NodeState.IDLE]
        cores, widest = int(platform.cores_per_processor[most]), int(platform.node_cpu_cores.max())
        self._widest = cores, float(platform.power[most]), widest, float(in_use.max())
        self._gpu_types = np.array([kind == GPU for kind in platform.processor_kind])
        # Cores that may start, and of what moment.
        self._room: tuple[Any, float] | None = None
        # Busy cores and committed watts at dates, and of what moment.
        self._levels: dict[float, tuple[Ints, float]] = {}
        self._levels_of: Any = None
        self._changes = 0
        # Of each running job the expected end in seconds; of each processor with cores of a job that end, and the
        # processor, number of cores and job, in as many columns as `_length`; cores of processors that are held now.
        self._ends: dict[int, float] = {}
        # Of running jobs that are not at the nominal frequency, the processors and how many W more they draw there.
        self._off_nominal: dict[int, tuple[Ints, Floats]] = {}
        self._end_rows, self._rows, self._length = np.zeros(64), np.zeros((3, 64), np.int64), 0
        self._held: Ints = np.zeros(platform.n_processors, np.int64)
        # Arguments of the kernels that never change.
        self._processors: Ints = read_only(
            np.array([platform.processor_node, platform.cores_per_processor, platform.is_gpu], np.int64)
        )
        self._of_core: Floats = read_only(platform.power.copy())
        self._idle: Ints = read_only(np.zeros(platform.n_processors, np.int64))
        self._awake: Flags = read_only(np.zeros(platform.n_nodes, np.bool_))
        self._all: Flags = read_only(np.ones(platform.n_nodes, np.bool_))
        self._nominal: Floats = read_only(np.zeros(platform.n_processors))
        self._costs: Any = None
        self._arrays = self._processors, self._of_core, CORE_SHARES, self._watts
        # Cores of each node that jobs hold, and about how many W all nodes draw where they are up: a running sum that
        # loses by rounding, None if it is to be taken anew.
        self._computing: Ints = np.zeros(platform.n_nodes, np.int64)
        self._running: float | None = None
        self._full: float = self._committed(None, 0.0, 0.0, platform.cores_per_processor.astype(np.int64))

    # The jobs

    def hold(self, job: int, ids: Ints, end: float, ghz: float = math.nan) -> None:
        """Takes note of a job that holds cores, and GPUs, by their ids.

        Args:
            job: The job.
            ids: Its cores and GPUs.
            end: Its expected end in seconds.
            ghz: Frequency of its cores, NaN for the nominal one.
        """
        beyond = self._more(ids, ghz)
        if beyond is not None:
            processors = np.flatnonzero(beyond)
            self._off_nominal[job] = processors, beyond[processors]
        missing = self._length + len(ids) - len(self._end_rows)
        if missing > 0:
            more = max(missing, len(self._end_rows))
            self._end_rows = np.concatenate([self._end_rows, np.zeros(more)])
            self._rows = np.concatenate([self._rows, np.zeros((3, more), np.int64)], axis=1)
        self._ends[job] = end
        held = self._end_rows, self._rows, self._length, self._held, self._computing
        self._length, change = with_job(job, end, ids, self._owner, *held, *self._arrays)
        self._take_note(change)

    def release(self, job: int) -> float:
        """Takes note of a job that has given its cores back; returns its expected end in seconds."""
        held = self._end_rows, self._rows, self._length, self._held, self._computing
        self._length, more = without_job(job, *held, *self._arrays)
        self._take_note(more)
        self._off_nominal.pop(job, None)
        return self._ends.pop(job)

    def _take_note(self, more: float) -> None:
        """Takes note of a job that holds cores, or has given them back, and of about how many W more nodes draw."""
        self._changes += 1
        if self._running is not None:
            self._running = self._running + more if self._changes % _RENEWAL else None

    def forget(self) -> None:
        """Takes note of a queued job that is to start at another frequency: earlier answers do not hold for it."""
        self._changes += 1
        self.only_nominal = False

    def at_highest(self) -> PowerBudget:
        """Returns a budget without jobs under the highest values of the caps."""
        highest = [replace(cap, times=np.zeros(1), watts=np.array([cap.watts.max()])) for cap in self.caps]
        other = PowerBudget(self._platform, highest, self._states)
        other.only_nominal = self.only_nominal
        return other

    def moment(self, now: float) -> Any:
        """Returns what is equal at two times if the same may start, until the same ends, as if it were one time."""
        plain = self.steady and not self._states.n_away
        return self._changes, self._states.changes, 0.0 if plain else now

    def lasts(self, moment: Any, now: float) -> bool:
        """Returns whether a reservation of an earlier `moment` is the same now, and what did not start then cannot."""
        return self.moment(now) == moment and min(self._ends.values(), default=math.inf) > now

    def prospect(self, now: float) -> Any:
        """Returns what changes where a cap changes or a node does, which may let jobs start beside ends of others."""
        return self._states.changes, *(int(np.searchsorted(cap.times, now, "right")) for cap in self.caps)

    def rises_after(self, now: float) -> bool:
        """Returns whether a cap is higher at a later time."""
        return any(bool((np.diff(cap.watts)[cap.times[1:] > now] > 0).any()) for cap in self.caps)

    # The questions

    def startable(self, now: float) -> float:
        """Returns an upper bound, which is found quickly, of the cores of a job that may start now."""
        moment = self.moment(now)
        if self._room is None or self._room[0] != moment:
            self._room = moment, self.cores_beside(0.0, now, now, now)
        return self._room[1]

    def broken(self, now: float, end: float, ids: Ints, nodes: Ints, ready: float, ghz: float = math.nan) -> Flags:
        """Returns the (N,) nodes of the caps that a job would break if it started now.

        Args:
            now: Present time in seconds.
            end: Its expected end.
            ids: Its cores and GPUs.
            nodes: Its nodes.
            ready: When all its nodes will be up.
            ghz: Frequency of its cores, NaN for the nominal one.
        """
        added, asleep, beyond = self._added(ids), self._awake, self._more(ids, ghz)
        if self._states.n_away:
            asleep = np.zeros(self._platform.n_nodes, bool)
            asleep[nodes] = self._states.state[nodes] != NodeState.ON
        broken = self._awake
        for cap in self.caps:
            if cap not in self._whole and not cap.nodes[nodes].any():
                continue
            for date, watts in self._lows(cap, now, end):
                left = self._left(cap, date, now, watts * (1 + ROUNDING), added, beyond)
                if left is None:
                    committed = self._committed(cap, date, now, added, asleep, ready, beyond=beyond)
                    left = watts * (1 + ROUNDING) - committed
                if left < 0:
                    broken = broken | cap.nodes
                    break
        return broken

    def allows_change(self, node: int, state: NodeState, now: float, until: float) -> bool:
        """Returns whether a node may go down, or boot, until a time in seconds."""
        more = float(self._watts[state, node])
        for cap in self.caps:
            if not cap.nodes[node]:
                continue
            for date, watts in self._lows(cap, now, until):
                if self._committed(cap, date, now, changed=node, more=more) > watts * (1 + ROUNDING):
                    return False
        return True

    def room(self, now: float) -> float:
        """Returns the watts that the whole machine can draw more now."""
        lows = [(cap, *self._lows(cap, now, now)[0]) for cap in self._whole]
        return min(
            (watts * (1 + ROUNDING) - self._committed(cap, now, now) for cap, _, watts in lows), default=math.inf
        )

    def has_room(
        self, watts: float, begin: float, end: float, now: float, ids: Ints | None = None, ghz: float = math.nan
    ) -> bool:
        """Returns whether the whole machine can draw some watts more in a time to come.

        Args:
            watts: The watts.
            begin: Begin of the time in seconds.
            end: Its end.
            now: Present time in seconds.
            ids: Cores and GPUs of a job beside which there is room, None for no job.
            ghz: Frequency of its cores, NaN for the nominal one.
        """
        added = self._idle if ids is None else self._added(ids)
        beyond = None if ids is None else self._more(ids, ghz)
        for cap in self._whole:
            for date, most in self._lows(cap, begin, end):
                left = self._left(cap, date, now, most * (1 + ROUNDING) - watts, added, beyond)
                if left is None:
                    left = most * (1 + ROUNDING) - self._committed(cap, date, now, added, beyond=beyond) - watts
                if left < 0:
                    return False
        return True

    def cores_beside(self, watts: float, begin: float, end: float, now: float) -> float:
        """Returns an upper bound of the cores that jobs can take in a time beside some watts; see `has_room`."""
        lows = [low for cap in self._whole for low in self._lows(cap, begin, end)]
        if not lows or (self._is_plain and self.only_nominal and self._full <= min(most for _, most in lows) - watts):
            return math.inf
        left = min(most * (1 + ROUNDING) - self._level(date, now)[1] for date, most in lows) - watts
        # Rounding of the sums of the whole machine is far below that.
        left += SLACK * self.highest
        least = self.least if self.only_nominal else self._cheapest
        bound = left * (1 + ROUNDING) / least if least > 0 else math.inf
        if bound > 0 and self.only_nominal:
            if self._costs is None:
                self._costs = core_costs(*self._arrays)
            arrays = self._processors, self._states.state, *self._costs
            bound = min(bound, float(most_cores(left, self._level(begin, now)[0], *arrays)))
        return bound

    def least_more(self, before: float, ghz: float) -> float:
        """Returns a lower bound of the W that a core draws more at a frequency than at another one, NaN: nominal."""
        assert self._frequencies is not None
        more = self._frequencies.more_watts(ghz) - self._frequencies.more_watts(before)
        return float(more[~self._gpu_types].min())

    def earliest(self, watts: float, seconds: float, begin: float, now: float) -> float:
        """Returns the earliest time from `begin` on at which the machine can draw some watts more for some seconds.

        It is the present time, an expected end of a job or a step of a cap; infinite if there is none.
        """
        ends = np.fromiter(self._ends.values(), np.float64, len(self._ends))
        dates = np.concatenate([ends, *(cap.times for cap in self._whole)])
        ordered = np.append(begin, distinct(dates[dates > begin]))
        first, last = 0, len(ordered)
        if self.steady and self._whole and self._is_plain:
            most = min(float(cap.watts[0]) for cap in self._whole) * (1 + ROUNDING) - watts + SLACK * self.highest
            held = self._held, self._computing, self._end_rows, self._rows, self._length
            level = self._level(now, now)[1]
            first, level, busy = first_below(most, level, ordered, now, *held, *self._arrays)
            if first < last and ordered[first] > now:
                self._levels_at(now)[float(ordered[first])] = busy, level
        elif self.steady:
            # With constant caps there is ever more room.
            while first < last:
                middle = (first + last) // 2
                date = float(ordered[middle])
                if self.has_room(watts, date, date + seconds, now):
                    last = middle
                else:
                    first = middle + 1
        dates = ordered[first:].tolist()
        return next((date for date in dates if self.has_room(watts, date, date + seconds, now)), math.inf)

    def job_watts(self, cores: int, ghz: float = math.nan) -> float:
        """Returns the watts that a job of some cores adds, on as few of the processors that draw most as have them.

        Its cores run at a frequency, NaN for the nominal one.
        """
        width, core, of_node, more = self._widest
        others = math.ceil(cores / width) * width - cores
        watts = core * (cores * (CORE_SHARES[0] - CORE_SHARES[2]) + others * (CORE_SHARES[1] - CORE_SHARES[2]))
        if not math.isnan(ghz):
            assert self._frequencies is not None
            watts += cores * float(self._frequencies.more_watts(ghz)[~self._gpu_types].max())
        return float(watts + math.ceil(cores / of_node) * more)

    def _bootable(self) -> Flags:
        idle, able = node_power(self._platform, IDLE_PACKAGE, NodeState.IDLE), np.ones(self._platform.n_nodes, bool)
        more = np.maximum(self._watts[NodeState.BOOTING] - idle, 0.0)
        for cap in self.caps:
            able &= ~cap.nodes | (idle[cap.nodes].sum() + more <= cap.watts.min())
        return able

    # Levels

    def _lows(self, cap: Cap, begin: float, end: float) -> list[tuple[float, float]]:
        """Returns the begin of a time and every later step to a new low of a cap in it, with its watts.

        Between these nothing that runs draws more than before, so that the cap holds there, too.
        """
        if len(cap.times) == 1:
            return [(begin, float(cap.watts[0]))]
        place = int(np.searchsorted(cap.times, begin, side="right")) - 1
        lows = [(begin, float(cap.watts[place]))]
        for date, watts in zip(cap.times[place + 1 :].tolist(), cap.watts[place + 1 :].tolist(), strict=True):
            if date >= end:
                break
            if watts < lows[-1][1]:
                lows.append((date, watts))
        return lows

    @property
    def _is_plain(self) -> bool:
        """Whether all nodes are up and all jobs at the nominal frequency."""
        return not (self._states.n_away or self._off_nominal)

    def _level(self, date: float, now: float) -> tuple[Ints, float]:
        """Returns the (P,) busy cores at a date, now or later, and about the W to which all nodes are committed."""
        if date <= now and self._is_plain:
            if self._running is None:
                self._running = self._committed(None, now, now)
            return self._held, self._running
        levels = self._levels_at(now)
        found = levels.get(date)
        if found is None:
            busy = busy_at(date, now, self._held, self._end_rows, self._rows, self._length)
            found = levels[date] = busy, self._committed(None, date, now)
        return found

    def _levels_at(self, now: float) -> dict[float, tuple[Ints, float]]:
        """Returns what has been found of dates as things stand now."""
        moment = self._changes, self._states.changes, now
        if self._levels_of != moment:
            self._levels, self._levels_of = {}, moment
        return self._levels

    def _left(
        self, cap: Cap, date: float, now: float, watts: float, added: Ints, beyond: Floats | None
    ) -> float | None:
        """Returns about what further cores leave of some watts of a cap of the machine at a date.

        None where rounding might decide, or more than the numbers of busy cores does.
        """
        if beyond is not None or not self._is_plain or cap not in self._whole:
            return None
        busy, level = self._level(date, now)
        left: float = watts - level - (0.0 if added is self._idle else further_watts(busy, added, *self._arrays))
        return left if abs(left) > SLACK * self.highest else None

    def _committed(
        self,
        cap: Cap | None,
        date: float,
        now: float,
        added: Ints | None = None,
        woken: Flags | None = None,
        ready: float = 0.0,
        changed: int = -1,
        more: float = 0.0,
        beyond: Floats | None = None,
    ) -> float:
        """Returns the watts to which the nodes of a cap, None for all, are committed at a date, now or later.

        `beyond` are the (P,) W that the further cores draw more than at their nominal frequency; see
        :func:`hdsim.cluster.kernels.power.committed_watts` for the other arguments.
        """
        off_nominal = self._nominal if beyond is None else beyond
        if self._off_nominal:
            off_nominal = off_nominal.copy()
            for job, (processors, watts) in self._off_nominal.items():
                if date <= now or self._ends[job] > date or self._ends[job] <= now:
                    off_nominal[processors] += watts
        states, length = self._states, self._length if date > now else 0
        return committed_watts(
            date,
            now,
            self._held,
            self._end_rows,
            self._rows,
            length,
            self._idle if added is None else added,
            self._processors,
            self._of_core,
            CORE_SHARES,
            states.state,
            states.ready,
            states.off_at,
            self._watts,
            self._awake if woken is None else woken,
            ready,
            changed,
            more,
            self._all if cap is None else cap.nodes,
            off_nominal,
        )

    def _more(self, ids: Ints, ghz: float) -> Floats | None:
        """Returns the (P,) W that cores at a frequency draw more than at the nominal one, None at that."""
        if math.isnan(ghz):
            return None
        assert self._frequencies is not None
        watts: Floats = self._added(ids) * self._frequencies.more_watts(ghz)[self._platform.processor_type]
        return watts

    def _added(self, ids: Ints) -> Ints:
        """Returns the (P,) cores and GPUs of each processor among some."""
        return added_cores(ids, self._owner, len(self._held))
