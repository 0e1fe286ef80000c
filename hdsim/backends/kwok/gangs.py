"""Pods that wait for the others of their gang."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hdsim.backends.kwok.members import Member
from hdsim.kubernetes.objects import PodGroupView, PodView

#: Namespace and name of a gang.
_Key = tuple[str, str]


class Gangs:
    """Pods of gangs that are not complete, which get an event after `timeout` seconds."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        # Sizes by PodGroups.
        self._min_members: dict[_Key, int] = {}
        self._waiting: dict[_Key, list[Member]] = {}
        self._since: dict[_Key, float] = {}
        # Pods of a gang that are bound, which count as arrived.
        self._bound: dict[_Key, set[str]] = {}

    def add(self, member: Member, now: float) -> list[Member]:
        """Adds a pod that waits; returns the pods of its gang that start together if all have arrived, or none."""
        self.put_back([member], now)
        return self._complete(_key(member.pod))

    def put_back(self, members: Iterable[Member], now: float) -> None:
        """Lets pods that cannot start together wait on, as others may come in their places."""
        for member in members:
            key = _key(member.pod)
            self._waiting.setdefault(key, []).append(member)
            self._since.setdefault(key, now)

    def note_bound(self, pod: PodView) -> list[Member]:
        """Takes note of a pod of a gang that is bound; returns the pods that waited for it alone, otherwise none."""
        if not pod.group:
            return []
        key = _key(pod)
        self._bound.setdefault(key, set()).add(pod.uid)
        return self._complete(key)

    def note_group(self, group: PodGroupView, *, deleted: bool) -> list[Member]:
        """Takes note of a PodGroup; returns the pods of its gang that start together if all have arrived, or none."""
        self._min_members.pop(group.gang, None)
        if group.min_member and not deleted:
            self._min_members[group.gang] = group.min_member
        return self._complete(group.gang)

    def _size(self, key: _Key) -> int | None:
        """The number of pods that start together, by their annotation or by their PodGroup."""
        return self._waiting[key][0].pod.group_size or self._min_members.get(key)

    def _complete(self, key: _Key) -> list[Member]:
        waiting = self._waiting.get(key)
        size = self._size(key) if waiting else None
        if not waiting or size is None:
            return []
        missing = size - len(self._bound.get(key, ()))
        if len(waiting) < missing:
            return []
        ordered = sorted(waiting, key=lambda each: each.pod.name)
        # Those beyond the size of the gang wait until it is bound.
        together = ordered[:missing] if missing > 0 else ordered
        self._waiting[key] = ordered[len(together) :]
        if not self._waiting[key]:
            del self._waiting[key], self._since[key]
        return together

    def lack_sizes(self) -> bool:
        """Returns whether pods of a gang wait whose size nothing tells."""
        return any(self._size(key) is None for key in self._waiting)

    def remove(self, member: Member) -> None:
        """Takes a pod away that is deleted or has ended."""
        key = _key(member.pod)
        bound = self._bound.get(key, set())
        bound.discard(member.pod.uid)
        if not bound:
            self._bound.pop(key, None)
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
            waiting, size = self._waiting[key], self._size(key)
            arrived = len(waiting) + len(self._bound.get(key, ()))
            if size and arrived >= size:
                continue  # They cannot start together, or wait until the others are bound.
            reason = (
                f"gang {key[1]}: {arrived} of {size} pods have arrived after {self._timeout:g} s"
                if size
                else f"gang {key[1]}: no PodGroup tells its size, nor an annotation hdsim.io/pod-group-size > 0"
            )
            for member in waiting:
                yield member, reason


def _key(pod: PodView) -> _Key:
    return pod.namespace, pod.group
