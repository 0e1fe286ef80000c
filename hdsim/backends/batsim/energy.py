"""Energy of hosts whose P-states a scheduler sets, integrated exactly from change to change."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hdsim.backends.batsim.hosts import COMPUTATION, Hosts
from hdsim.errors import PlatformError
from hdsim.platform.model import Platform
from hdsim.platform.node_state import NodeState
from hdsim.platform.power import COMPUTING, IDLE_POWER, PSTATES
from hdsim.util.arrays import Floats, Ints, members

Mask = NDArray[np.bool_]


class Meter:
    """Counts the joules of every host.

    A host takes the power of its P-state: that of an idle host, or with a load the one between the least and the full
    load. Hosts of hdsim's own platforms follow the rule of :data:`hdsim.platform.power.PSTATES`, with an equal share of
    what their node draws besides, until a scheduler sets a P-state of a host that is awake; one that is switched on
    into P-state 0 follows the rule as before. `as_batsim` reproduces an artefact of SimGrid: a host counts as one in
    P-state 0 until its first update, which is its first change of P-state, its first execution or the first reading of
    all hosts after time 0.

    Raises:
        PlatformError: A host has no power.
    """

    def __init__(self, hosts: Hosts, *, as_batsim: bool = False) -> None:
        if hosts.watts is None:
            raise PlatformError(
                "energy: expected the property wattage_per_state of every host", where=hosts.platform.source
            )
        self._hosts = np.arange(len(hosts))
        self._idle, self._least, self._full = hosts.watts
        self.state = hosts.initial.copy()  # (H,) P-state of each host
        self._load = np.zeros(len(hosts))
        self._computes: Mask = hosts.kind == COMPUTATION
        self._unseen: Mask | None = np.ones(len(hosts), bool) if as_batsim else None
        # Power of the hosts in their present P-states, idle and with a load.
        self._idle_now, self._least_now, self._span_now = np.empty((3, len(hosts)))
        self._joules = np.zeros(len(hosts))
        self._since = 0.0
        self._watts = np.empty(len(hosts))
        self._rule = _Rule(hosts.platform) if hosts.ruled else None
        self.least_watts = 0.0  # power in W of all hosts if they were idle in their present P-states
        self._enter_states(self._hosts)

    def read(self, now: float) -> float:
        """Returns the joules of all hosts until `now`."""
        self._advance(now)
        if now > 0 and self._unseen is not None:
            self._unseen = None
            self._enter_states(self._hosts)
        return float(self._joules.sum())

    def joules(self, hosts: Sequence[int], now: float) -> float:
        """Returns the joules of some hosts until `now`."""
        self._advance(now)
        return float(self._joules[hosts].sum())

    def set_state(self, hosts: Sequence[int], state: int, now: float) -> None:
        """Puts hosts into a P-state."""
        self._advance(now)
        chosen = np.array(hosts)
        self.state[chosen] = state
        if self._rule is not None:
            self._rule.enter(chosen, state, self._computes[chosen, state])
        self._see(chosen)
        self._enter_states(chosen)

    def set_load(self, hosts: Sequence[int], loads: Floats | float, now: float, *, busy: bool) -> None:
        """Sets the loads of (n,) hosts: shares of their speed that a job uses, 0 for one that only lasts.

        `busy` says whether a job is on them.
        """
        self._advance(now)
        chosen = np.array(hosts)
        self._load[chosen] = loads
        if self._unseen is not None and np.any(loads):
            self._see(chosen)
            self._enter_states(chosen)
        elif self._rule is None or not self._rule.for_all:
            self._draw(chosen)
        if self._rule is not None:
            self._rule.draw(self._rule.set_busy(chosen, busy), self._watts)

    def _advance(self, now: float) -> None:
        if now > self._since:
            self._joules += self._watts * (now - self._since)
            self._since = now

    def _see(self, hosts: Ints) -> None:
        if self._unseen is not None:
            self._unseen[hosts] = False

    def _enter_states(self, hosts: Ints) -> None:
        state = self.state[hosts]
        if self._unseen is not None:
            state = np.where(self._unseen[hosts], COMPUTING, state)
        self._idle_now[hosts] = self._idle[hosts, state]
        self._least_now[hosts] = self._least[hosts, state]
        self._span_now[hosts] = self._full[hosts, state] - self._least[hosts, state]
        self.least_watts = float(self._idle[self._hosts, self.state].sum())
        self._draw(hosts)
        if self._rule is not None:
            self._rule.draw(hosts, self._watts)

    def _draw(self, hosts: Ints) -> None:
        load = self._load[hosts]
        loaded = self._least_now[hosts] + self._span_now[hosts] * load
        self._watts[hosts] = np.where(load > 0, loaded, self._idle_now[hosts])


class _Rule:
    """hdsim's rule of P-states: cores that serve a job, cores beside them, and cores of processors that serve none."""

    def __init__(self, platform: Platform) -> None:
        self.for_all = True  # no core has a P-state of its own yet
        self._owner = platform.core_processor
        self._first_core = platform.processor_first_core
        self._alone = platform.n_processors == platform.n_cores
        power = platform.power[self._owner]
        self._serves = power * PSTATES[COMPUTING].power
        # (2, C) by whether any core of the node serves a job: the share of each core in the power of its node.
        self._node = platform.processor_node[self._owner]
        self._first_core_of_node = platform.node_first_core
        self._serving_nodes = np.zeros(platform.n_nodes, np.int64)
        of_node = np.nan_to_num(platform.state_watts[[NodeState.IDLE, NodeState.ON]]) / np.diff(
            platform.node_first_core
        )
        self._shares = of_node[:, self._node] if of_node.any() else None
        # (2, C), by whether another core of the processor serves a job.
        self._idles = IDLE_POWER[:, None] * power
        self._busy = np.zeros(platform.n_cores, bool)
        self._serving = np.zeros(platform.n_processors, np.int64)
        self._ruled = np.ones(platform.n_cores, bool)
        self._asleep = np.zeros(platform.n_cores, bool)

    def enter(self, cores: Ints, state: int, computes: Mask) -> None:
        """Excludes cores whose P-state a scheduler sets, those that sleep until they wake into P-state 0.

        `computes` are the (n,) cores that compute in this P-state.
        """
        woken = self._asleep[cores] & computes
        self._asleep[cores] = ~computes
        self._ruled[cores] &= ~computes | (woken & (state == COMPUTING))
        self.for_all = False

    def set_busy(self, cores: Ints, busy: bool) -> Ints:
        """Sets whether cores serve a job; returns the cores whose power changes."""
        cores = cores[self._busy[cores] != busy]
        self._busy[cores] = busy
        owner, node = self._owner[cores], self._node[cores]
        if self._alone and self._shares is None:
            self._serving[owner] = busy
            return cores
        changed = [cores]
        for serving, each, first in (
            (self._serving, owner, self._first_core),
            *([] if self._shares is None else [(self._serving_nodes, node, self._first_core_of_node)]),
        ):
            before = serving[each] > 0
            np.add.at(serving, each, 1 if busy else -1)
            turned = each[before != (serving[each] > 0)]
            if len(turned):
                changed.append(members(first, np.unique(turned)))
        return np.concatenate(changed)

    def draw(self, cores: Ints, watts: Floats) -> None:
        """Sets the power of those cores whose P-state no scheduler has set."""
        ruled = cores if self.for_all else cores[self._ruled[cores] & ~self._asleep[cores]]
        beside = self._idles[(self._serving[self._owner[ruled]] > 0).astype(np.intp), ruled]
        drawn = np.where(self._busy[ruled], self._serves[ruled], beside)
        if self._shares is not None:
            drawn += self._shares[(self._serving_nodes[self._node[ruled]] > 0).astype(np.intp), ruled]
        watts[ruled] = drawn
