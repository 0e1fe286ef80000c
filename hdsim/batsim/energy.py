"""Energy of hosts whose P-states a scheduler sets, integrated exactly from change to change."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hdsim.batsim.hosts import Hosts
from hdsim.errors import PlatformError
from hdsim.power import ASLEEP, COMPUTING, IDLE, PSTATES

Floats = NDArray[np.float64]


class Meter:
    """Counts the joules of every host.

    A host takes the power of its P-state: that of an idle host, or with a load the one between the least and the full
    load. Hosts of hdsim's own platforms follow the rule of :data:`hdsim.power.PSTATES` until a scheduler sets them.

    Args:
        hosts: The hosts.
        as_batsim: Reproduce an artefact of SimGrid: a host counts as one in P-state 0 until its first update, which is
            its first change of P-state, its first execution or the first reading of all hosts after time 0.

    Raises:
        PlatformError: A host does not tell its power.
    """

    def __init__(self, hosts: Hosts, *, as_batsim: bool = False) -> None:
        if hosts.watts is None:
            raise PlatformError(
                "energy: expected the property wattage_per_state of every host", where=hosts.platform.source
            )
        self._idle, self._least, self._full = hosts.watts
        self._core_processor = hosts.platform.core_processor
        self._first_core = hosts.platform.processor_first_core
        self._power = hosts.platform.power[self._core_processor]
        self.state = hosts.initial.copy()
        self._ruled = np.full(len(hosts), hosts.ruled)
        self._load = np.zeros(len(hosts))
        self._busy = np.zeros(len(hosts), bool)
        self._unseen = np.full(len(hosts), as_batsim)
        self._joules = np.zeros(len(hosts))
        self._since = 0.0
        self._watts = np.zeros(len(hosts))
        self._update(np.arange(len(hosts)))

    def read(self, now: float) -> float:
        """Joules of all hosts until `now`."""
        self._advance(now)
        if now > 0 and self._unseen.any():
            self._unseen[:] = False
            self._update(np.arange(len(self._joules)))
        return float(self._joules.sum())

    def joules(self, hosts: Sequence[int], now: float) -> float:
        """Joules of some hosts until `now`."""
        self._advance(now)
        return float(self._joules[hosts].sum())

    @property
    def least_watts(self) -> float:
        """W of all hosts if they were idle in their present P-states."""
        return float(self._idle[np.arange(len(self.state)), self.state].sum())

    def set_state(self, hosts: Sequence[int] | NDArray[np.int64], state: int, now: float) -> None:
        """Puts hosts into a P-state."""
        self._advance(now)
        chosen = np.asarray(hosts)
        self.state[chosen] = state
        self._ruled[chosen] = self._unseen[chosen] = False
        self._update(chosen)

    def set_load(self, hosts: Sequence[int], loads: Floats | float, now: float, *, busy: bool) -> None:
        """Tells what runs on hosts.

        Args:
            hosts: (n,) host ids.
            loads: (n,) share of their speed that a job uses; 0 for a job that only lasts.
            now: s.
            busy: A job is on them.
        """
        self._advance(now)
        chosen = np.asarray(hosts)
        self._load[chosen] = loads
        self._busy[chosen] = busy
        if np.any(loads):
            self._unseen[chosen] = False
        self._update(self._neighbours(chosen) if self._ruled.any() else chosen)

    def _neighbours(self, hosts: NDArray[np.int64]) -> NDArray[np.int64]:
        """All cores of the processors that hosts are on."""
        processors = np.unique(self._core_processor[hosts])
        spans = zip(self._first_core[processors].tolist(), self._first_core[processors + 1].tolist(), strict=True)
        return np.concatenate([np.arange(first, end) for first, end in spans])

    def _advance(self, now: float) -> None:
        if now > self._since:
            self._joules += self._watts * (now - self._since)
            self._since = now

    def _update(self, hosts: NDArray[np.int64]) -> None:
        state = np.where(self._unseen[hosts], COMPUTING, self.state[hosts])
        load = self._load[hosts]
        least, full = self._least[hosts, state], self._full[hosts, state]
        watts = np.where(load > 0, least + (full - least) * load, self._idle[hosts, state])
        ruled = self._ruled[hosts]
        if ruled.any():
            processors = self._core_processor[hosts]
            serving = np.bincount(self._core_processor, self._busy, len(self._first_core) - 1)[processors] > 0
            share = np.where(serving, PSTATES[IDLE].power, PSTATES[ASLEEP].power)
            share = np.where(self._busy[hosts], PSTATES[COMPUTING].power, share)
            watts = np.where(ruled, self._power[hosts] * share, watts)
        self._watts[hosts] = watts
