"""Hosts in Batsim's place: a scheduler names those that it wants."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hdsim.errors import DecisionError, require


class HostCores:
    """Idle hosts; a placement is the ascending list of the hosts that the scheduler has named.

    Args:
        speed: (H,) speed of each host relative to the reference.
    """

    def __init__(self, speed: NDArray[np.float64]) -> None:
        self._speed: list[float] = speed.tolist()
        self._idle = set(range(len(speed)))

    @property
    def n_idle(self) -> int:
        """Idle hosts."""
        return len(self._idle)

    def placement_of(self, hosts: Sequence[int]) -> list[int]:
        """The hosts, ascending."""
        return sorted(hosts)

    def allocate(self, job: int, hosts: list[int]) -> None:
        """Makes hosts busy.

        Raises:
            DecisionError: One is already.
        """
        if not self._idle.issuperset(hosts):
            raise DecisionError(f"expected idle cores, got busy {sorted(set(hosts) - self._idle)}")
        self._idle.difference_update(hosts)

    def release(self, job: int, hosts: list[int]) -> None:
        """Makes hosts idle again."""
        self._idle.update(hosts)

    def ids_of(self, hosts: list[int]) -> list[int]:
        """Core ids of a placement, which it is."""
        return hosts

    def slowest(self, hosts: list[int]) -> float:
        """Relative speed of the slowest of the hosts."""
        return min([self._speed[host] for host in hosts])

    def check(self, running: Sequence[list[int]]) -> None:
        """Asserts that every host is either idle or held by exactly one running job."""
        held = [host for hosts in running for host in hosts]
        require(sorted([*held, *self._idle]) == list(range(len(self._speed))), "a host is lost or allocated twice")
