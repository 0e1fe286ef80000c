"""Nodes that sleep and wake during a simulation: their changes, idle time-outs, and jobs that wait for them."""

from __future__ import annotations

import math
from collections import deque
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hdsim.cluster.stores.sleeping import SleepingCores
from hdsim.errors import ConfigError
from hdsim.platform.node_state import NodeState
from hdsim.simulation.agenda import AFTER_ENDS
from hdsim.util.copies import with_own_containers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hdsim.cluster.node_states import NodeStates
    from hdsim.cluster.state import Cluster
    from hdsim.platform.states import Cap
    from hdsim.power import PowerManagement
    from hdsim.util.arrays import Floats, Ints

_MINUTE = 60.0


class PowerEngine(Protocol):
    """The part of :class:`hdsim.simulation.engine.Engine` that power management uses."""

    cluster: Cluster

    @property
    def batch_events(self) -> bool:
        """Whether there is one scheduling pass per instant, not one per event."""

    def schedule_at(self, date: float, action: Callable[[Any], Any], argument: Any, rank: int) -> None:
        """Schedules an action."""

    def notify(self) -> None:
        """Requests a scheduling pass."""

    def begin(self, job: int) -> None:
        """Starts a job that is STARTING."""

    def fail(self, node: int, until: float) -> Any:
        """Begins an outage of a node."""


class NodePower:
    """Changes of the power states of the nodes of a simulation.

    Attributes:
        doomed: Jobs that are STARTING and will be killed as soon as they run.
    """

    __deepcopy__ = with_own_containers

    def __init__(self, engine: PowerEngine, management: PowerManagement, boots: np.random.Generator | None) -> None:
        self._engine, self._management, self._boots = engine, management, boots
        cluster = engine.cluster
        nodes = cluster.platform.n_nodes
        assert cluster.node_states is not None
        assert isinstance(cluster.cores, SleepingCores)
        # Jobs that wait for each node, and the number of nodes that each of them waits for.
        self._waiting: dict[int, tuple[int, ...]] = {}
        self._missing: dict[int, int] = {}
        self.doomed: set[int] = set()
        self._failing: dict[int, float] = {}  # nodes that do not come up, and when that is found
        self._excludes = bool(management.excluded.any())
        self._idle_since: Floats = np.full(nodes, -math.inf)
        # When the time of each idle node will be over, and the time-out that the scheduler has set.
        self._expiry: Floats = np.full(nodes, math.inf)
        self._suspend_time: float | None = None
        # Nodes whose time is over, with the begins of their idleness, which go down as the rate allows, and when the
        # last ones did.
        self._timed_out: deque[tuple[int, float]] = deque()
        self._suspended: deque[float] = deque()
        self._resumes_at = -math.inf
        # Nodes that are kept up and idle, and the date at which their number is asked for anew.
        self._spare, self._asks_at = 0, -math.inf
        self._rises = _rises([] if cluster.budget is None else cluster.budget.caps)
        self._schedule_rise()
        cluster.cores.freed.append(np.arange(nodes))
        self._watch()

    def forget(self, memo: dict[int, Any]) -> None:
        """Has a copy made that does not know which boots will fail; see :func:`copy.deepcopy` for `memo`."""
        memo[id(self._boots)] = None

    def wait(self, job: int) -> None:
        """Takes note of a job that waits for its nodes."""
        away = self._states.away(self._engine.cluster.running[job].nodes).tolist()
        self._missing[job] = len(away)
        for node in away:
            self._waiting[node] = (*self._waiting.get(node, ()), job)

    def forget_job(self, job: int) -> None:
        """Takes note that a job waits no longer."""
        del self._missing[job]
        self.doomed.discard(job)
        left = ((node, tuple(each for each in jobs if each != job)) for node, jobs in self._waiting.items())
        self._waiting = {node: jobs for node, jobs in left if jobs}

    def confirm(self, nodes: list[int]) -> bool:
        """Makes changes of nodes that the backend has seen end; returns whether all of these were under way."""
        now = self._engine.cluster.now
        expected = [self._states.confirm(node, now) for node in nodes]
        self._change(nodes)
        return all(expected)

    def apply(self) -> None:
        """Schedules what follows from the decisions of a pass, and the time-outs of nodes that are idle after it."""
        if self._engine.cluster.suspend_time != self._suspend_time:
            self._renew_timeouts()
        self._watch()
        if self._stuck():
            self._wake_one()
        self._keep_spare()
        if self._timed_out and self._resumes_at <= self._engine.cluster.now:
            self._suspend(None)
        self._schedule_changes()

    def _stuck(self) -> bool:
        """Returns whether there is a hard cap and jobs wait though none runs."""
        cluster = self._engine.cluster
        return cluster.budget is not None and bool(cluster.queue) and not cluster.running

    def _wake_one(self) -> None:
        """Wakes a node for jobs that draw too much to start while it boots, if none is about to change."""
        cluster, states = self._engine.cluster, self._states
        asked = (states.state != NodeState.ON) & ((states.ready < math.inf) | (states.state == NodeState.GOING_DOWN))
        if asked.any() or not states.n_away:
            return
        for node in states.preference(np.flatnonzero(states.state != NodeState.ON)).tolist():
            until = states.up_at(np.array([node]), cluster.now)
            assert cluster.budget is not None
            if cluster.budget.allows_change(node, NodeState.BOOTING, cluster.now, until):
                states.power_on(node, cluster.now)
                return

    def _keep_spare(self) -> None:
        """Asks how many nodes are kept spare, and until when, and wakes as many as are missing."""
        now = self._engine.cluster.now
        self._spare, until = self._chosen_spare()
        if self._spare and self._states.n_away:
            self._boot_ahead(self._spare)
        if now < until < math.inf and not now < self._asks_at <= until:
            self._asks_at = until
            self._engine.schedule_at(until, self._ask, None, AFTER_ENDS)

    def _chosen_spare(self) -> tuple[int, float]:
        """Returns what power management says of spare nodes.

        Raises:
            ConfigError: It is no number of nodes and a date.
        """
        found: Any = self._management.spare(self._engine.cluster)
        number, until = found if isinstance(found, tuple) and len(found) == 2 else (-1, math.nan)
        counts = isinstance(number, int | np.integer) and number >= 0
        if not (counts and isinstance(until, int | float | np.floating) and not math.isnan(until)):
            told = f"expected a number of nodes and a date in seconds from {type(self._management).__name__}.spare"
            raise ConfigError(f"{told}, such as (2, math.inf), got {found!r}", where="power")
        return int(number), float(until)

    def _ask(self, _: None) -> None:
        """Keeps as many nodes spare as from now on, and switches off what is beyond."""
        if self._asks_at <= self._engine.cluster.now:
            self._keep_spare()
            self._suspend(None)

    def _boot_ahead(self, spare: int) -> None:
        """Wakes as many nodes as are missing in a number of idle ones that are up or boot for no job."""
        cluster, states = self._engine.cluster, self._states
        asleep = states.state != NodeState.ON
        coming = asleep & (states.ready < math.inf)
        coming[list(self._waiting)] = False
        missing = spare - self._idle() - int(coming.sum())
        if missing <= 0:
            return
        free = asleep & (states.ready == math.inf)
        free[list(cluster.down)] = False
        for node in states.preference(np.flatnonzero(free))[:missing].tolist():
            until = states.up_at(np.array([node]), cluster.now)
            if cluster.budget is None or cluster.budget.allows_change(node, NodeState.BOOTING, cluster.now, until):
                states.power_on(node, cluster.now)

    def _idle(self) -> int:
        """Returns the number of nodes that are up and serve no job."""
        cores = self._engine.cluster.cores
        assert isinstance(cores, SleepingCores)
        return len(cores.idle_nodes(np.arange(len(self._idle_since))))

    @property
    def pending(self) -> bool:
        """Whether changes to come, of nodes or of caps, may let a waiting job start."""
        cluster = self._engine.cluster
        return cluster.budget is not None and (bool(self._rises) or self._states.n_away > 0)

    def _schedule_rise(self) -> None:
        """Has a scheduling pass made at the next step of a hard cap to a higher value."""
        if self._rises:
            self._engine.schedule_at(self._rises[-1], self._rise, None, AFTER_ENDS)

    def _rise(self, _: None) -> None:
        self._rises.pop()
        self._engine.notify()
        self._schedule_rise()

    @property
    def _states(self) -> NodeStates:
        states = self._engine.cluster.node_states
        assert states is not None
        return states

    def _schedule_changes(self) -> None:
        due = self._states.due
        if not due:
            return
        # Changes of one date that follow one another are one event, unless every event has a pass of its own.
        for date, group in groupby(due, itemgetter(0)):
            nodes = [node for _, node in group]
            for each in [nodes] if self._engine.batch_events else [[node] for node in nodes]:
                self._engine.schedule_at(date, self._change, each, AFTER_ENDS)
        due.clear()

    def _change(self, nodes: list[int]) -> None:
        """Makes the changes of nodes that are due."""
        if self._engine.cluster.budget is not None:
            # There may be more power now.
            self._engine.notify()
        for node in nodes:
            self._change_one(node)
        self._schedule_changes()

    def _change_one(self, node: int) -> None:
        states, now, management = self._states, self._engine.cluster.now, self._management
        if states.step(node, now):
            if self._failing.pop(node, None) == now:
                self._engine.fail(node, now + management.repair)
            elif self._boots is not None and self._boots.random() < management.boot_failure:
                self._failing[node] = states.fail_boot(node, management.resume_timeout)
            else:
                self._come_up(node)

    def _come_up(self, node: int) -> None:
        cluster = self._engine.cluster
        self._states.come_up(node, cluster.now)
        for job in self._waiting.pop(node, ()):
            self._missing[job] -= 1
            if not self._missing[job]:
                del self._missing[job]
                self._engine.begin(job)
        if cluster.cores.is_idle(node):
            cluster.cores.freed.append(np.array([node]))
            self._watch()

    def _watch(self) -> None:
        """Begins the time-outs of nodes that have become idle."""
        cluster = self._engine.cluster
        freed = cluster.cores.freed
        if not freed:
            return
        nodes = freed[0]
        if len(freed) > 1:
            among = np.zeros(len(self._idle_since), bool)
            among[np.concatenate(freed)] = True
            nodes = among.nonzero()[0]
        freed.clear()
        nodes = cluster.cores.idle_nodes(nodes)
        if self._excludes:
            nodes = nodes[~self._management.excluded[nodes]]
        if not nodes.size:
            return
        seconds = self._management.timeout(nodes, cluster) if self._suspend_time is None else self._suspend_time
        self._idle_since[nodes] = cluster.now
        if isinstance(seconds, int | float):
            self._await(nodes, float(seconds))
            return
        try:
            seconds = np.asarray(seconds, np.float64)
        except (TypeError, ValueError):
            seconds = np.full(1, np.nan)
        if seconds.shape not in ((), nodes.shape):
            name, shape = type(self._management).__name__, seconds.shape
            told = (
                f"expected a time-out, or one for each of {len(nodes)} nodes, from {name}, got numbers of shape {shape}"
            )
            raise ConfigError(told, where="power")
        seconds = np.broadcast_to(seconds, nodes.shape)
        for wait in np.unique(seconds).tolist():
            self._await(nodes[seconds == wait], wait)

    def _await(self, nodes: Ints, wait: float) -> None:
        """Begins the time-out of nodes that are idle from now on, in seconds.

        Raises:
            ConfigError: Power management has chosen another time-out than at least 0 s.
        """
        if not wait >= 0:
            name = type(self._management).__name__
            raise ConfigError(f"expected time-outs of at least 0 s from {name}, got {wait:g}", where="power")
        self._expire(nodes, self._engine.cluster.now + wait)

    def _expire(self, nodes: Ints, date: float) -> None:
        """Has the time of idle nodes be over at a date in seconds, not before."""
        self._expiry[nodes] = date
        if date < math.inf:
            self._engine.schedule_at(date, self._time_out, (nodes, date), AFTER_ENDS)

    def _renew_timeouts(self) -> None:
        """Applies the time-out that the scheduler has set to all nodes that are idle already."""
        cluster = self._engine.cluster
        self._suspend_time = wait = cluster.suspend_time
        assert wait is not None
        nodes = cluster.cores.idle_nodes(np.flatnonzero(~self._management.excluded))
        dates = np.maximum(self._idle_since[nodes] + wait, cluster.now)
        for date in np.unique(dates).tolist():
            self._expire(nodes[dates == date], date)

    def _time_out(self, nodes: tuple[Ints, float]) -> None:
        """Switches off those nodes whose time is over at a date in seconds."""
        # Nodes that have served a job until this very instant begin anew.
        self._watch()
        chosen, date = nodes
        over = chosen[self._expiry[chosen] == date]
        self._timed_out.extend(zip(over.tolist(), self._idle_since[over].tolist(), strict=True))
        self._suspend(None)

    def _resume(self, _: None) -> None:
        """Switches off further nodes, as the rate allows again; as in `_time_out` those that have served a job stay."""
        self._watch()
        self._suspend(None)

    def _suspend(self, _: None) -> None:
        """Switches off nodes whose time is over and that are still idle, as many as the rate allows."""
        cluster, rate, recent = self._engine.cluster, self._management.suspend_rate, self._suspended
        now, waiting, states = cluster.now, self._timed_out, self._states
        beyond = self._idle() - self._spare if self._spare and waiting else len(waiting)
        while waiting:
            node, since = waiting[0]
            stays = self._idle_since[node] != since or self._expiry[node] > now
            if stays or not cluster.cores.is_idle(node):
                waiting.popleft()
                continue
            if beyond <= 0:
                break
            if len(recent) >= rate:
                if now < recent[0] + _MINUTE:
                    if self._resumes_at <= now:
                        self._resumes_at = recent[0] + _MINUTE
                        self._engine.schedule_at(self._resumes_at, self._resume, None, AFTER_ENDS)
                    break
                recent.popleft()
            # Under a hard cap nodes stay up while jobs wait on an idle machine, and are woken one after the other.
            if self._stuck() or not cluster.may_go_down(node):
                break
            waiting.popleft()
            beyond -= 1
            if rate < math.inf:
                recent.append(now)
            states.power_off(node, now)
        self._schedule_changes()


def _rises(caps: Iterable[Cap]) -> list[float]:
    """Returns the times in seconds at which a cap rises, in descending order."""
    dates = [cap.times[1:][np.diff(cap.watts) > 0].tolist() for cap in caps]
    return sorted({date for each in dates for date in each}, reverse=True)
