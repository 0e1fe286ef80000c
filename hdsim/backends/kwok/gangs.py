"""Pods that wait for the others of their gang."""

from __future__ import annotations

from collections.abc import Iterator

from hdsim.backends.kwok.members import Member
from hdsim.kubernetes.objects import PodView


class Gangs:
    """Pods of gangs that are not complete.

    Args:
        timeout: Seconds after which the pods of an incomplete gang get an event.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._waiting: dict[tuple[str, str], list[Member]] = {}
        self._since: dict[tuple[str, str], float] = {}
        # Pods of a gang that are bound, which count as arrived.
        self._bound: dict[tuple[str, str], set[str]] = {}

    def add(self, member: Member, now: float) -> list[Member]:
        """Adds a pod that waits; returns the pods of its gang if it is complete, otherwise none."""
        key = _key(member.pod)
        self._waiting.setdefault(key, []).append(member)
        self._since.setdefault(key, now)
        return self._complete(key)

    def note_bound(self, pod: PodView) -> list[Member]:
        """Takes note of a pod of a gang that is bound; returns the pods that waited for it alone, otherwise none."""
        if not pod.group:
            return []
        key = _key(pod)
        self._bound.setdefault(key, set()).add(pod.uid)
        return self._complete(key)

    def _complete(self, key: tuple[str, str]) -> list[Member]:
        waiting = self._waiting.get(key)
        if not waiting:
            return []
        size = waiting[0].pod.group_size
        if size is None or len(waiting) + len(self._bound.get(key, ())) < size:
            return []
        del self._waiting[key], self._since[key]
        return sorted(waiting, key=lambda each: each.pod.name)

    def remove(self, member: Member) -> None:
        """Takes a pod away that is deleted or has ended."""
        key = _key(member.pod)
        self._bound.get(key, set()).discard(member.pod.uid)
        waiting = self._waiting.get(key, [])
        if member in waiting:
            waiting.remove(member)
        if not waiting:
            self._waiting.pop(key, None)
            self._since.pop(key, None)

    def overdue(self, now: float) -> Iterator[tuple[Member, str]]:
        """Yields the pods that have waited too long, each with the reason."""
        for key, since in self._since.items():
            if now - since < self._timeout:
                continue
            waiting = self._waiting[key]
            size = waiting[0].pod.group_size
            arrived = len(waiting) + len(self._bound.get(key, ()))
            reason = (
                f"gang {key[1]}: {arrived} of {size} pods have arrived after {self._timeout:g} s"
                if size
                else f"gang {key[1]}: annotation hdsim.io/pod-group-size is missing or no positive integer"
            )
            for member in waiting:
                yield member, reason


def _key(pod: PodView) -> tuple[str, str]:
    return pod.namespace, pod.group
